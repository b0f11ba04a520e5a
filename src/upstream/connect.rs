//! Getting a connection to an endpoint: a pooled one, or a new one.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::group::Endpoint;
use super::plan::EndpointAddress;
use super::pool::Lease;
use crate::error::ErrorKind;
use crate::io::Stream;
use crate::io::connect::{connect_tcp, connect_unix};
use crate::limits::TIMEOUT_MS_MIN;

/// Addresses of one name that are tried for one request.
const ADDRESSES_TRIED_MAX: usize = 3;

/// A pooled connection, where there is one that is alive.
#[inline]
pub fn acquire(endpoint: &Rc<Endpoint>) -> Option<Lease> {
    Lease::pooled(endpoint)
}

/// A new connection, within `timeout_ms` over all its addresses.
///
/// # Errors
/// The kinds whose retry is [`crate::error::Retry::Unsent`].
pub async fn connect(endpoint: &Rc<Endpoint>, timeout_ms: u64) -> Result<Lease, ErrorKind> {
    endpoint.counters.pool_misses.increment();
    if let EndpointAddress::Unix(path) = &endpoint.plan.address {
        let connected = connect_unix(path, timeout_ms).await;
        return connected
            .map(|stream| Lease::fresh(endpoint, stream))
            .map_err(|error| kind(&error));
    }
    let began = Instant::now();
    let tries = endpoint.address_count().clamp(1, ADDRESSES_TRIED_MAX);
    let mut failed = ErrorKind::NoEndpoint;
    for left in (1..=tries as u64).rev() {
        let Some(address) = endpoint.next_address() else { break };
        let spent_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // An address that does not answer leaves time for the next.
        let share_ms = (timeout_ms.saturating_sub(spent_ms) / left).max(TIMEOUT_MS_MIN);
        let connected: io::Result<Stream> = connect_tcp(address, share_ms).await;
        match connected {
            Ok(stream) => return Ok(Lease::fresh(endpoint, stream)),
            Err(error) => failed = kind(&error),
        }
    }
    Err(failed)
}

fn kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::ConnectTimeout,
        io::ErrorKind::ConnectionRefused => ErrorKind::ConnectRefused,
        _ => ErrorKind::ConnectFailed,
    }
}
