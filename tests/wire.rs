//! The wire cases of tests/wire/*.toml, on both drivers. A failing case is cited as `wire:ID`.

mod harness;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::case::File;
use harness::judge::play;
use harness::{Origin, Proxy, Settings};

/// Pairs of proxy and origin that share the cases of a file.
const LANES: usize = 4;

/// Plays a file on a driver and reports every case that fails.
fn suite(text: &str, driver: &'static str) {
    let file = File::read(text);
    let only = std::env::var("WIRE_ONLY").unwrap_or_default();
    let cases: Vec<_> = file.case.iter().filter(|case| case.id.starts_with(&only)).collect();
    let next = AtomicUsize::new(0);
    let lane = || {
        let origin = Origin::start();
        let proxy = Proxy::start(Settings::new(driver, &origin.address));
        let mut failed = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = play(case, &proxy, &origin) {
                failed
                    .push(format!("wire:{} [{:?}] {}\n    {why}", case.id, case.level, case.what));
            }
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES.min(cases.len())).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane ends well")).collect()
    });
    let (count, of) = (failed.len(), cases.len());
    assert!(failed.is_empty(), "{count} of {of} failed on {driver}\n{}", failed.join("\n"));
}

macro_rules! suites {
    ($($name:ident)*) => {
        const FILES: &[(&str, &str)] = &[
            $((stringify!($name), include_str!(concat!("wire/", stringify!($name), ".toml"))),)*
        ];
        mod io_uring {
            $(#[test] fn $name() {
                super::suite(include_str!(concat!("wire/", stringify!($name), ".toml")), "io_uring");
            })*
        }
        mod epoll {
            $(#[test] fn $name() {
                super::suite(include_str!(concat!("wire/", stringify!($name), ".toml")), "epoll");
            })*
        }
    };
}

suites! { framing chunked grammar paths hops responses exchange limits }

/// Every file is played, ids are given once, and there are as many cases as the issue asks for.
#[test]
fn files_are_whole() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire");
    let on_disk = std::fs::read_dir(directory).expect("the cases").count();
    assert_eq!(on_disk, FILES.len(), "a file of cases that no suite plays");
    let mut ids = HashSet::new();
    for (name, text) in FILES {
        for case in File::read(text).case {
            assert!(ids.insert(case.id.clone()), "{name}: {} is given twice", case.id);
        }
    }
    assert!(ids.len() >= CASES_MIN, "{} cases", ids.len());
}

/// Cases never become fewer.
const CASES_MIN: usize = 310;
