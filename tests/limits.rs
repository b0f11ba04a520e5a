//! Accuracy of node-wide limits through the binary: two workers, both drivers, a load of 1.2 times
//! the limit that is controlled in its rate.
//!
//! A limiter that is full lets exactly its rate through, whatever its burst: the bucket is emptied
//! before the measurement begins, and the load never lets it fill. The burst is a fifth of a second
//! of the rate, so that pauses of a busy machine up to that length lose nothing. The requests are
//! answered by the route itself: what is measured is the limiter.
//!
//! `RINGWAY_LIMIT_SECONDS=10 cargo test --release --test limits` is the long version;
//! tests/trials/limits.py is the same from outside.

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use harness::{Origin, Proxy, Settings, ms};

/// Connections of the load, so that both workers get some.
const CLIENTS: usize = 16;
const THREADS: usize = 2;
/// Load for each request that is let through.
const OVERLOAD: f64 = 1.2;
/// What may be missing or too much.
const TOLERANCE: f64 = 0.02;
/// Rounds until the machine was quiet enough for the load to be as high as it has to be.
const ROUNDS: usize = 4;
/// Time between two lots of requests.
const TICK: Duration = Duration::from_millis(5);

/// Answers of one thread of the load.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    passed: u64,
    limited: u64,
}

/// One connection that pipelines requests.
struct Pipe {
    stream: TcpStream,
    data: Vec<u8>,
}

impl Pipe {
    fn open(address: SocketAddr) -> Pipe {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        Pipe { stream, data: Vec::new() }
    }

    fn send(&mut self, count: usize) {
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        self.stream.write_all(&request.repeat(count)).expect("the proxy takes it");
    }

    /// Reads so many answers.
    fn receive(&mut self, count: usize, counts: &mut Counts) {
        let (mut left, mut block) = (count, [0; 64 * 1024]);
        while left > 0 {
            while let Some((status, length)) = first_answer(&self.data) {
                match status {
                    200 => counts.passed += 1,
                    429 => counts.limited += 1,
                    other => panic!("status {other}"),
                }
                self.data.drain(..length);
                left -= 1;
            }
            if left > 0 {
                let got = self.stream.read(&mut block).expect("answers come");
                assert!(got > 0, "the connection goes on");
                self.data.extend_from_slice(&block[..got]);
            }
        }
    }
}

/// Status and bytes of the answer at the beginning, if it is whole.
fn first_answer(data: &[u8]) -> Option<(u16, usize)> {
    let head = data.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&data[..head]).expect("a head of ASCII").to_ascii_lowercase();
    let status = text.split(' ').nth(1)?.parse().expect("a status");
    let length = text.split("content-length: ").nth(1)?.lines().next()?;
    let whole = head + length.parse::<usize>().expect("a length");
    (data.len() >= whole).then_some((status, whole))
}

/// Sends `per_s` requests a second over some connections until `end`; what came of those that were
/// sent from `begin` on.
fn load(pipes: &mut [Pipe], per_s: f64, begin: Instant, end: Instant) -> Counts {
    let (start, mut sent) = (Instant::now(), 0u64);
    let (mut before, mut counts) = (Counts::default(), Counts::default());
    let mut turn = 0;
    loop {
        let now = Instant::now();
        let due = (now.duration_since(start).as_secs_f64() * per_s) as u64 - sent;
        let lots: Vec<(usize, usize)> =
            (0..due.min(500) as usize).fold(Vec::new(), |mut lots, _| {
                turn = (turn + 1) % pipes.len();
                match lots.iter_mut().find(|(pipe, _): &&mut (usize, usize)| *pipe == turn) {
                    Some((_, count)) => *count += 1,
                    None => lots.push((turn, 1)),
                }
                lots
            });
        let into = if now < begin { &mut before } else { &mut counts };
        lots.iter().for_each(|(pipe, count)| pipes[*pipe].send(*count));
        lots.iter().for_each(|(pipe, count)| pipes[*pipe].receive(*count, into));
        sent += due.min(500);
        if now >= end {
            return counts;
        }
        harness::pause(TICK.saturating_sub(now.elapsed()));
    }
}

/// What two threads got through in `seconds`, and how much they asked for.
fn measure(address: SocketAddr, rate: u64, seconds: f64) -> (f64, f64) {
    // What the load is above the rate empties the bucket in a second.
    let begin = Instant::now() + ms(1_500);
    let end = begin + Duration::from_secs_f64(seconds);
    let per_s = rate as f64 * OVERLOAD / THREADS as f64;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut pipes: Vec<Pipe> =
                    (0..CLIENTS / THREADS).map(|_| Pipe::open(address)).collect();
                load(&mut pipes, per_s, begin, end)
            })
        })
        .collect();
    let counts: Vec<Counts> =
        threads.into_iter().map(|thread| thread.join().expect("a load")).collect();
    let passed: u64 = counts.iter().map(|counts| counts.passed).sum();
    let limited: u64 = counts.iter().map(|counts| counts.limited).sum();
    let wanted = rate as f64 * seconds;
    (passed as f64 / wanted, (passed + limited) as f64 / wanted)
}

fn accurate(driver: &'static str, rate: u64) {
    let seconds = std::env::var("RINGWAY_LIMIT_SECONDS").ok();
    let seconds = seconds.map_or(3.0, |seconds| seconds.parse().expect("a number of seconds"));
    let origin = Origin::start();
    let burst = rate / 5;
    let routes = format!(
        "[filter.all]\nkind = \"rate_limit\"\nkey = \"route\"\nrate = \"{rate}/s\"\n\
         burst = {burst}\nheaders = false\n\n\
         [[route]]\nid = \"all\"\nprefix = \"/\"\nrespond = {{ status = 200, body = \"ok\" }}\n\
         filters = [\"all\"]\n"
    );
    // The upstream is only there because a file needs one.
    let settings = Settings::new(driver, &origin.address).workers(2).routes(routes);
    let proxy = Proxy::start(settings);
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let (passed, offered) = measure(proxy.address, rate, seconds);
        println!("{driver} {rate}/s: {passed:.4} of the limit passed, {offered:.3} were sent");
        // Below that, the machine was too busy for the load that the promise is about.
        let loaded = offered >= OVERLOAD - 0.1;
        if loaded && (passed - 1.0).abs() <= TOLERANCE {
            return;
        }
        assert!(passed <= 1.0 + TOLERANCE, "{driver} {rate}/s: more than the limit: {passed}");
        seen.push((passed, offered));
    }
    panic!("{driver} {rate}/s: {seen:?} of the limit passed and were sent");
}

/// One after the other: each needs the machine for itself.
fn all_rates(driver: &'static str) {
    for rate in [100, 1_000, 20_000] {
        accurate(driver, rate);
    }
}

#[test]
fn rates_are_kept_on_both_drivers() {
    for driver in harness::DRIVERS {
        all_rates(driver);
    }
}
