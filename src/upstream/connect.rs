//! Getting a connection to an endpoint: a pooled one, a place on a shared one, or a new one.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use super::group::Endpoint;
use super::plan::{EndpointAddress, Protocol};
use super::pool::Lease;
use super::shared::connect_shared;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http1::conn::write_all;
use crate::http2::Incident;
use crate::io::connect::{connect_tcp, connect_unix};
use crate::io::tls::{HandshakeError, HandshakeFailure, Session, handshake};
use crate::io::{Shutdown, Stream, sleep_ms};
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

/// Why there is no connection.
#[derive(Debug)]
pub struct NoConnection {
    /// What went wrong.
    pub kind: ErrorKind,
    /// What failed others too, who waited for the same connection.
    pub incident: Option<Incident>,
}

impl From<ErrorKind> for NoConnection {
    fn from(kind: ErrorKind) -> NoConnection {
        NoConnection { kind, incident: None }
    }
}

/// A pooled connection, where there is one that is alive.
#[inline]
pub fn acquire(endpoint: &Rc<Endpoint>) -> Option<Lease> {
    Lease::pooled(endpoint)
}

/// A new connection, within `timeout_ms` over all its addresses; it begins with `header`. Where HTTP/2 is
/// spoken it may be a place on one that others have made, or are making within their `connect_ms`.
///
/// # Errors
/// The kinds whose retry is [`crate::error::Retry::Unsent`], and
/// [`ErrorKind::UpstreamCertificate`].
pub async fn connect(
    endpoint: &Rc<Endpoint>,
    connect_ms: u64,
    timeout_ms: u64,
    header: Vec<u8>,
) -> Result<Lease, NoConnection> {
    if endpoint.spoken() == Spoken::Http2
        && let Some(lease) = connect_shared(endpoint, connect_ms, timeout_ms).await?
    {
        return Ok(lease);
    }
    endpoint.counters.pool_misses.increment();
    let (stream, spoken) = dial(endpoint, timeout_ms, &header).await?;
    match spoken {
        Spoken::Http1 => Ok(Lease::fresh(endpoint, stream)),
        // It has learned HTTP/2 since: the next connection is made for all.
        Spoken::Http2 => {
            let shared = connect_shared(endpoint, connect_ms, timeout_ms).await?;
            shared.ok_or(ErrorKind::ProtocolMismatch.into())
        }
    }
}

/// A new connection that begins with `header`, and what is spoken on it.
pub(super) async fn dial(
    endpoint: &Endpoint,
    timeout_ms: u64,
    header: &[u8],
) -> Result<(Stream, Spoken), ErrorKind> {
    let stream = reach(endpoint, timeout_ms, header).await?;
    let chosen = stream.tls().map(|tls| tls.alpn() == Some(b"h2"));
    let spoken = match (endpoint.plan.protocol, chosen) {
        (Protocol::Http2, Some(false)) => return Err(ErrorKind::ProtocolMismatch),
        (Protocol::Http2, _) | (Protocol::Auto, Some(true)) => Spoken::Http2,
        // Nothing on clear text says what the origin would like.
        (Protocol::Http1 | Protocol::Auto, _) => Spoken::Http1,
    };
    endpoint.set_spoken(spoken);
    Ok((stream, spoken))
}

/// A connection to one of its addresses, its TLS handshake included.
async fn reach(endpoint: &Endpoint, timeout_ms: u64, header: &[u8]) -> Result<Stream, ErrorKind> {
    let began = Instant::now();
    if let EndpointAddress::Unix(path) = &endpoint.plan.address {
        let stream = connect_unix(path, timeout_ms).await.map_err(|error| kind(&error))?;
        begin(&stream, header).await?;
        return secure(endpoint, stream, left_ms(began, timeout_ms)).await;
    }
    let tries = endpoint.address_count().clamp(1, ADDRESSES_TRIED_MAX);
    let options = &endpoint.plan.outgoing.socket;
    let mut failed = ErrorKind::NoEndpoint;
    for left in (1..=tries as u64).rev() {
        let Some(address) = endpoint.next_address() else { break };
        // An address that does not answer leaves time for the next.
        let share_ms = (left_ms(began, timeout_ms) / left).max(TIMEOUT_MS_MIN);
        let (tried, connected) = (Instant::now(), connect_tcp(address, options, share_ms).await);
        let secured = match connected {
            Ok(stream) => match begin(&stream, header).await {
                Ok(()) => secure(endpoint, stream, left_ms(tried, share_ms)).await,
                Err(kind) => Err(kind),
            },
            Err(error) => Err(kind(&error)),
        };
        match secured {
            Ok(stream) => return Ok(stream),
            // Whoever answers there is not to be trusted with a second try.
            Err(ErrorKind::UpstreamCertificate) => return Err(ErrorKind::UpstreamCertificate),
            Err(kind) => failed = kind,
        }
    }
    Err(failed)
}

/// Sends what comes before anything else, TLS included. It needs no deadline: a connection that was
/// just made takes more than a header at once.
async fn begin(stream: &Stream, header: &[u8]) -> Result<(), ErrorKind> {
    if header.is_empty() {
        return Ok(());
    }
    let mut out = Buf::for_head();
    out.extend(header);
    write_all(stream, &mut out, || ()).await.map_err(|_| ErrorKind::ConnectFailed)
}

fn left_ms(since: Instant, timeout_ms: u64) -> u64 {
    let spent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    timeout_ms.saturating_sub(spent_ms)
}

/// Shakes hands over a connection that was just made, where the endpoint speaks TLS.
async fn secure(endpoint: &Endpoint, stream: Stream, timeout_ms: u64) -> Result<Stream, ErrorKind> {
    let Some(settings) = &endpoint.plan.tls else { return Ok(stream) };
    let alpn: &[&str] = match endpoint.plan.protocol {
        Protocol::Http1 => &["http/1.1"],
        Protocol::Http2 => &["h2"],
        Protocol::Auto => &["h2", "http/1.1"],
    };
    let session = settings.session(alpn).map_err(|error| {
        tracing::error!(%error, "no TLS handshake can be begun");
        ErrorKind::UpstreamTlsFailed
    })?;
    let counters = &endpoint.counters;
    match shake(stream, Session::Client(session), timeout_ms.max(TIMEOUT_MS_MIN)).await {
        Ok(stream) => {
            counters.upstream_handshakes.increment();
            if stream.tls().is_some_and(|tls| tls.resumed()) {
                counters.upstream_handshakes_resumed.increment();
            }
            Ok(stream)
        }
        Err((error, late)) => {
            counters.upstream_handshakes_failed.increment();
            let (address, detail) = (&endpoint.plan.authority, &error.detail);
            let reason = if late { "timeout" } else { error.reason.name() };
            tracing::debug!(endpoint = %address, reason, %detail, "no TLS with an upstream");
            Err(if late { ErrorKind::ConnectTimeout } else { kind_of_handshake(error.reason) })
        }
    }
}

/// A handshake within a time; whether that has passed. Its read is not dropped: the end of the time
/// shuts the connection down, and the handshake sees it.
async fn shake(
    stream: Stream,
    session: Session,
    timeout_ms: u64,
) -> Result<Stream, (HandshakeError, bool)> {
    let handle = stream.handle();
    let mut shaking = pin!(handshake(stream, session, Buf::empty()));
    let (mut time, mut late) = (pin!(sleep_ms(timeout_ms)), false);
    let shaken = poll_fn(|context| {
        if let Poll::Ready(shaken) = shaking.as_mut().poll(context) {
            return Poll::Ready(shaken);
        }
        if !late && time.as_mut().poll(context).is_ready() {
            late = true;
            handle.shutdown(Shutdown::Both);
        }
        Poll::Pending
    });
    let shaken = shaken.await;
    shaken.map_err(|error| (error, late))
}

fn kind_of_handshake(reason: HandshakeFailure) -> ErrorKind {
    match reason {
        HandshakeFailure::CertificateRefused
        | HandshakeFailure::CertificateExpired
        | HandshakeFailure::NameMismatch => ErrorKind::UpstreamCertificate,
        HandshakeFailure::NoAlpn => ErrorKind::ProtocolMismatch,
        _ => ErrorKind::UpstreamTlsFailed,
    }
}

fn kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::ConnectTimeout,
        io::ErrorKind::ConnectionRefused => ErrorKind::ConnectRefused,
        _ => ErrorKind::ConnectFailed,
    }
}
