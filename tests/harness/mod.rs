//! What the end-to-end suites share: the proxy as a process, a scripted origin, a raw client, and
//! strict readers of HTTP/1.1 that were written from the RFC and share no code with the product.

#![allow(
    dead_code,
    unused_imports,
    reason = "every suite compiles this module and uses its own part of it"
)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads with locks are right here: this is the outside world, not a worker"
)]

pub mod case;
pub mod client;
pub mod dns;
pub mod grammar;
pub mod http2;
pub mod http2_origin;
pub mod judge;
pub mod load;
pub mod origin;
pub mod process;
pub mod proxy;
pub mod response;
pub mod tls;

use std::time::{Duration, Instant};

pub use client::Client;
pub use grammar::{Field, Lint, Request};
pub use origin::{Op, Origin, Script};
pub use proxy::{Proxy, Settings};
pub use response::Response;

/// Both drivers; every suite runs on each.
pub const DRIVERS: [&str; 2] = ["io_uring", "epoll"];

/// How long to wait for something that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Milliseconds as a duration.
pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Looks at `ready` every few milliseconds, for what gives no event: /proc, another process.
pub fn poll(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if ready() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(ms(5));
    }
}

/// Lets time pass: only where the passing of time is what is tested.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Bytes as one reads them in a message: cut off and escaped.
pub fn show(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(90)];
    format!("\"{}\"{}", cut.escape_ascii(), if cut.len() < bytes.len() { "..." } else { "" })
}

/// Whether `needle` stands in `hay`.
pub fn contains(hay: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || hay.windows(needle.len()).any(|window| window == needle)
}
