//! What the fuzz targets check, as plain functions: `tests/corpus.rs` and `tests/engine.rs` include
//! this file, so that `cargo test` replays the corpus and feeds it generated messages.
//!
//! Each function takes any bytes and panics where the engine disagrees with itself (whole against
//! byte by byte), with the reference parser in tests/reference, or with another parser where both
//! accept.

pub mod access_log;
pub mod chunked;
#[allow(dead_code, reason = "tests that include this file use a part of it")]
pub mod config;
pub mod connection;
pub mod framing;
pub mod head;
pub mod header_variables;
pub mod http2;
pub mod proxy_protocol;
pub mod routes;
pub mod target;
pub mod tls_records;

#[path = "../../tests/reference/mod.rs"]
pub mod reference;

#[path = "../../tests/sim/mod.rs"]
pub mod sim;

#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use access_log::access_log;
pub use chunked::chunked;
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use config::config;
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use connection::connection;
pub use framing::framing;
pub use head::{request_head, response_head};
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use header_variables::header_variables;
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use http2::{http2_frames, http2_request};
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use proxy_protocol::proxy_protocol;
pub use routes::routes;
pub use target::target;
#[allow(unused_imports, reason = "tests that include this file use a part of it")]
pub use tls_records::tls_records;

use reference::Stop;

/// A verdict without its reason: accepted, unfinished or refused.
fn outline<T, E>(verdict: &Result<Option<T>, E>) -> Result<(), Stop> {
    match verdict {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Stop::More),
        Err(_) => Err(Stop::Bad),
    }
}
