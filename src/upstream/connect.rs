//! Getting a connection to an endpoint: a pooled one, a place on a shared one, or a new one.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::group::Endpoint;
use super::plan::{EndpointAddress, Protocol};
use super::pool::Lease;
use super::shared::connect_shared;
use crate::error::ErrorKind;
use crate::io::Stream;
use crate::io::connect::{connect_tcp, connect_unix};
use crate::limits::TIMEOUT_MS_MIN;

/// Addresses of one name that are tried for one request.
const ADDRESSES_TRIED_MAX: usize = 3;

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
}

/// A pooled connection, where there is one that is alive.
#[inline]
pub fn acquire(endpoint: &Rc<Endpoint>) -> Option<Lease> {
    Lease::pooled(endpoint)
}

/// A new connection, within `timeout_ms` over all its addresses. Where HTTP/2 is spoken it may be a
/// place on one that others have made, or are making within their `connect_ms`.
///
/// # Errors
/// The kinds whose retry is [`crate::error::Retry::Unsent`].
pub async fn connect(
    endpoint: &Rc<Endpoint>,
    connect_ms: u64,
    timeout_ms: u64,
) -> Result<Lease, ErrorKind> {
    if endpoint.spoken() == Spoken::Http2
        && let Some(lease) = connect_shared(endpoint, connect_ms, timeout_ms).await?
    {
        return Ok(lease);
    }
    endpoint.counters.pool_misses.increment();
    let (stream, spoken) = dial(endpoint, timeout_ms).await?;
    match spoken {
        Spoken::Http1 => Ok(Lease::fresh(endpoint, stream)),
        // It has learned HTTP/2 since: the next connection is made for all.
        Spoken::Http2 => {
            let shared = connect_shared(endpoint, connect_ms, timeout_ms).await?;
            shared.ok_or(ErrorKind::ProtocolMismatch)
        }
    }
}

/// A new connection, and what is spoken on it.
pub(super) async fn dial(
    endpoint: &Endpoint,
    timeout_ms: u64,
) -> Result<(Stream, Spoken), ErrorKind> {
    let stream = reach(endpoint, timeout_ms).await?;
    let spoken = match endpoint.plan.protocol {
        Protocol::Http2 => Spoken::Http2,
        // Nothing on clear text says what the origin would like.
        Protocol::Http1 | Protocol::Auto => Spoken::Http1,
    };
    endpoint.set_spoken(spoken);
    Ok((stream, spoken))
}

async fn reach(endpoint: &Endpoint, timeout_ms: u64) -> Result<Stream, ErrorKind> {
    if let EndpointAddress::Unix(path) = &endpoint.plan.address {
        return connect_unix(path, timeout_ms).await.map_err(|error| kind(&error));
    }
    let began = Instant::now();
    let tries = endpoint.address_count().clamp(1, ADDRESSES_TRIED_MAX);
    let mut failed = ErrorKind::NoEndpoint;
    for left in (1..=tries as u64).rev() {
        let Some(address) = endpoint.next_address() else { break };
        let spent_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // An address that does not answer leaves time for the next.
        let share_ms = (timeout_ms.saturating_sub(spent_ms) / left).max(TIMEOUT_MS_MIN);
        match connect_tcp(address, share_ms).await {
            Ok(stream) => return Ok(stream),
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
