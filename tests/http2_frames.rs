//! Frames of HTTP/2 one by one, against the proxy as a server and as a client of origins, on both
//! drivers. A failing case is cited as `http2:H001`; docs/http2-conformance.md has the table.

mod harness;
mod http2;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{DRIVERS, Origin, Proxy};
use http2::case::{Case, File};
use http2::server::{self, Target};
use http2::{table, upstream};

/// Pairs of proxy and origin that share the cases of a file.
const LANES: usize = 4;

/// Plays the cases of a file in lanes; `lane` makes what plays one case after the other.
fn suite<P: FnMut(&Case) -> Result<(), String>>(
    text: &str,
    lanes: usize,
    lane: impl Fn() -> P + Sync,
) {
    let only = std::env::var("HTTP2_ONLY").unwrap_or_default();
    let file = File::read(text);
    let cases: Vec<_> = file.case.iter().filter(|case| case.id.starts_with(&only)).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut play, mut failed) = (lane(), Vec::new());
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = play(case) {
                let (id, level, what) = (&case.id, case.level, &case.what);
                failed.push(format!("http2:{id} [{level:?}] {what}\n    {why}"));
            }
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes.min(cases.len())).map(|_| scope.spawn(run)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane ends well")).collect()
    });
    let (count, of) = (failed.len(), cases.len());
    assert!(failed.is_empty(), "{count} of {of} failed\n{}", failed.join("\n"));
}

/// The cases against the proxy.
fn as_server(text: &str, driver: &'static str) {
    if let Ok(target) = std::env::var("HTTP2_TARGET") {
        return as_other(text, &target, driver);
    }
    suite(text, LANES, || {
        let origin = Origin::start();
        let proxy = Proxy::start(server::settings(driver, &origin.address));
        move |case: &Case| {
            // All of the proxy, not its address alone: it lives as long as the lane.
            let proxy = &proxy;
            server::play(
                case,
                &Target { address: proxy.address, origin: Some(&origin), ours: true },
            )
        }
    });
}

/// The cases against whatever answers there; once, as it has no drivers.
fn as_other(text: &str, target: &str, driver: &str) {
    if driver != DRIVERS[0] {
        return;
    }
    let address: SocketAddr = target.parse().expect("HTTP2_TARGET=HOST:PORT");
    let behind = std::env::var("HTTP2_ORIGIN").ok();
    suite(text, 1, || {
        let origin = behind.as_ref().map(|at| Origin::at(at.parse().expect("HTTP2_ORIGIN")));
        move |case: &Case| {
            server::play(case, &Target { address, origin: origin.as_ref(), ours: false })
        }
    });
}

/// The cases in which the proxy is a client of an HTTP/2 origin.
fn as_client(text: &str, driver: &'static str) {
    suite(text, LANES, || {
        let origin = http2::origin::FrameOrigin::start();
        let proxy = Proxy::start(upstream::settings(driver, &origin.address));
        move |case: &Case| upstream::play(case, &proxy, &origin)
    });
}

macro_rules! suites {
    ($($play:ident: $($name:ident)*;)*) => {
        /// Every file of cases, by name.
        const FILES: &[(&str, &str)] = &[
            $($((stringify!($name), include_str!(concat!("http2/cases/", stringify!($name), ".toml"))),)*)*
        ];
        mod io_uring {
            $($(#[test] fn $name() {
                super::$play(include_str!(concat!("http2/cases/", stringify!($name), ".toml")), "io_uring");
            })*)*
        }
        mod epoll {
            $($(#[test] fn $name() {
                super::$play(include_str!(concat!("http2/cases/", stringify!($name), ".toml")), "epoll");
            })*)*
        }
    };
}

suites! {
    as_server: frames streams types flow hpack messages;
    as_client: upstream;
}

/// Every file is played, ids are given once, and the table of docs/ is that of the cases.
#[test]
fn table_is_that_of_the_cases() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http2/cases");
    let on_disk = std::fs::read_dir(directory).expect("the cases").count();
    assert_eq!(on_disk, FILES.len(), "a file of cases that no suite plays");
    let cases: Vec<Case> = FILES.iter().flat_map(|(_, text)| File::read(text).case).collect();
    table::check(&cases);
}
