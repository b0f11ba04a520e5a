//! Clients that ask over and over, and a count of what became of their requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Client, ms, pause, poll};

/// What became of the requests of a load.
#[derive(Default)]
pub struct Tally {
    /// Answered as a whole.
    pub answered: AtomicU64,
    /// Not answered.
    pub lost: AtomicU64,
    /// Requests on a connection that the proxy had closed for being idle before it saw them: the
    /// race of RFC 9112 section 9.5, after which a client sends again.
    pub raced: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    /// Waits until so many more requests were answered.
    pub fn more(&self, count: u64) -> bool {
        let target = self.answered.load(Ordering::Relaxed) + count;
        poll(ms(10_000), || self.answered.load(Ordering::Relaxed) >= target)
    }
}

/// Asks over and over on keep-alive connections until told to stop.
fn ask_until_stopped(address: SocketAddr, tally: &Tally) {
    while !tally.stop.load(Ordering::Relaxed) {
        // A connection that is not accepted carries no request.
        let Ok(client) = Client::open(address) else {
            pause(ms(5));
            continue;
        };
        for number in 1..=20 {
            if tally.stop.load(Ordering::Relaxed) || client.end().is_some() {
                break;
            }
            client.send(b"GET /load HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let answered = client.wait_responses(number, ms(5_000));
            let received = client.received();
            let last = received.finals.last();
            if answered && last.is_some_and(|last| last.status == 200) {
                tally.answered.fetch_add(1, Ordering::Relaxed);
                if last.is_some_and(|last| last.closes()) {
                    break;
                }
            } else if number > 1 && received.finals.len() + 1 == number && client.end().is_some() {
                tally.raced.fetch_add(1, Ordering::Relaxed);
                break;
            } else {
                tally.lost.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
}

/// Runs `act` while eight clients ask, and checks that none lost a request. How many were answered.
pub fn under_load(address: SocketAddr, act: impl FnOnce(&Tally)) -> u64 {
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| ask_until_stopped(address, &tally));
        }
        // Told to stop even where the act fails, or the scope would wait for ever.
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&tally)));
        tally.stop.store(true, Ordering::Relaxed);
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic);
        }
    });
    let (answered, lost) = (tally.answered.into_inner(), tally.lost.into_inner());
    assert_eq!(lost, 0, "lost requests, beside {answered} answered");
    answered
}
