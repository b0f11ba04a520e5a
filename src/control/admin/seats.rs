//! The connections to the admin API: few, and never so that some of them keep others out.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_TIMEOUT_MS};

/// Accepts for ever. At the cap a connection closes for the new one: whoever idles, sends slowly or
/// does not read cannot make the API unreachable.
pub(super) async fn accept_loop<S, F>(router: Router, mut accept: impl FnMut() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>>,
{
    let mut seats = Seats::default();
    loop {
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("the admin API could not accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            }
        };
        seats.make_room();
        let activity = seats.next();
        let task = tokio::spawn(connection(stream, router.clone(), activity.clone()));
        seats.taken.push(Seat { activity, task: task.abort_handle() });
        // So that it can ask before it is the oldest, however many more are waiting.
        tokio::task::yield_now().await;
    }
}

async fn connection<S>(stream: S, router: Router, activity: Arc<Activity>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (answering, activity) = (inner.call(request), activity.clone());
        async move {
            activity.begin();
            let answer = answering.await;
            activity.end();
            answer
        }
    });
    // An error here is one connection's own affair.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(ADMIN_HEAD_TIMEOUT_MS))
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The open connections: at most [`ADMIN_CONNECTIONS_MAX`].
#[derive(Default)]
struct Seats {
    taken: Vec<Seat>,
    /// What has happened so far: arrivals and requests.
    clock: Arc<AtomicU64>,
}

struct Seat {
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// What a connection does.
struct Activity {
    clock: Arc<AtomicU64>,
    /// When its last request came, or it itself, by the clock.
    last: AtomicU64,
    /// Whether a request waits for its answer: not whether the answer is being read.
    asking: AtomicBool,
}

impl Seats {
    /// An activity that begins now.
    fn next(&self) -> Arc<Activity> {
        let last = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let asking = AtomicBool::new(false);
        Arc::new(Activity { clock: self.clock.clone(), last, asking })
    }

    /// Closes a connection if all seats are taken: the one whose last request is the longest ago,
    /// and one that waits for an answer only where all do.
    fn make_room(&mut self) {
        self.taken.retain(|seat| !seat.task.is_finished());
        while self.taken.len() >= ADMIN_CONNECTIONS_MAX {
            let order = |at: &usize| self.taken[*at].activity.order();
            let Some(oldest) = (0..self.taken.len()).min_by_key(order) else { return };
            self.taken.swap_remove(oldest).task.abort();
        }
    }
}

impl Activity {
    fn begin(&self) {
        self.last.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.asking.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.asking.store(false, Ordering::Relaxed);
    }

    /// Which is to go first.
    fn order(&self) -> (bool, u64) {
        (self.asking.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_and_one_that_waits_for_its_answer_last() {
        let mut seats = Seats::default();
        let activities: Vec<_> = (0..ADMIN_CONNECTIONS_MAX).map(|_| seats.next()).collect();
        for activity in &activities {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            seats.taken.push(Seat { activity: activity.clone(), task });
        }
        let (first, third) = (&activities[0], &activities[2]);
        first.begin();
        third.begin();
        third.end();
        let is_there = |seats: &Seats, which: &Arc<Activity>| {
            seats.taken.iter().any(|seat| Arc::ptr_eq(&seat.activity, which))
        };
        seats.make_room();
        assert_eq!(seats.taken.len(), ADMIN_CONNECTIONS_MAX - 1);
        assert!(!is_there(&seats, &activities[1]), "the oldest");
        seats.taken.retain(|seat| Arc::ptr_eq(&seat.activity, first));
        for _ in 1..ADMIN_CONNECTIONS_MAX {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            seats.taken.push(Seat { activity: seats.next(), task });
        }
        seats.make_room();
        assert!(is_there(&seats, first), "it waits for its answer");
        seats.taken.iter().for_each(|seat| seat.activity.begin());
        seats.make_room();
        let room = seats.next();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        seats.taken.push(Seat { activity: room, task });
        seats.make_room();
        assert_eq!(seats.taken.len(), ADMIN_CONNECTIONS_MAX - 1, "there is always room");
    }
}
