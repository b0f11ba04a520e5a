//! A tunnel: after 101, or a success over HTTP/2, both sides carry bytes that are none of the proxy's
//! business.

use std::time::Instant;

use bytes::Bytes;

use super::balance;
use super::exchange::{Answer, Upload};
use super::filters;
use super::forward::Job;
use super::serve::Next;
use crate::base::buffer::Buf;
use crate::context::RequestContext;
use crate::error::ErrorKind;
use crate::http::{Known, Version, websocket};
use crate::http1::conn::write_all;
use crate::http1::encode::{Persistence, ResponseEdit, encode_response};
use crate::http2::response_out;
use crate::http2::{OriginStream, Piece, ServerStream};
use crate::io::runtime::join;
use crate::io::wait::Timer;
use crate::io::{Shutdown, Stream, Wait};
use crate::observe::WorkerCounters;

/// Whether the client takes any success for an open tunnel (RFC 8441 section 5): in HTTP/2 only an
/// extended CONNECT has an Upgrade, which is written for it.
pub(super) fn is_connect(context: &RequestContext) -> bool {
    let request = &context.request;
    request.version == Version::Http2 && request.value(Known::Upgrade).is_some()
}

/// Passes the head on and then everything, both ways, until both sides have ended or nothing has
/// come for the tunnel's idle timeout. Bytes behind either head are the first of the tunnel.
pub(super) async fn run(
    upload: &mut Upload,
    answer: &mut Answer,
    job: &Job<'_>,
) -> Result<Next, ErrorKind> {
    answer.head_at = Some(Instant::now());
    filters::on_response(job.matched, job.context, &job.listener().name, answer);
    balance::name_endpoint(answer, job);
    balance::settle(answer, job);
    let to_client = match job.down.http2() {
        Some(client) => accept_stream(answer, client, job)?,
        None => accept_connection(answer, job),
    };
    answer.head.bytes = Buf::empty();
    answer.status = 101;
    let mut to_upstream = Buf::empty();
    let first = &job.context.request.rest()[upload.in_hand..];
    if !first.is_empty() {
        to_upstream = Buf::for_head();
        to_upstream.extend(first);
        upload.in_hand = job.context.request.rest().len();
    }

    // A tunnel has bounds of its own: idleness, and a side that takes nothing.
    if let Some(total) = job.total {
        total.disarm();
    }
    let total = Timer::new(&job.core.deadlines, job.down.target(Some(job.lease.handle())));
    if let Some(total_ms) = job.settings().tunnel_total_timeout_ms {
        total.arm(Wait::Tunnel, total_ms);
    }
    let counters = &job.core.counters;
    counters.tunnels.increment();
    let _open = Open(counters);
    let client = match job.down.http2() {
        Some(stream) => Side::Client(stream),
        None => Side::Connection(job.down.stream()),
    };
    let upstream = match job.origin.get() {
        Some(stream) => Side::Origin(stream),
        None => Side::Connection(job.stream()),
    };
    let up = copy(job, &client, &upstream, to_upstream, &mut upload.bytes);
    let down = copy(job, &upstream, &client, to_client, &mut answer.bytes);
    join(up, down).await;
    Ok(Next::Close)
}

/// What an HTTP/1 client is sent: the head, and what is in hand behind it.
fn accept_connection(answer: &mut Answer, job: &Job<'_>) -> Buf {
    let head = &mut answer.head;
    if job.origin.get().is_some() {
        // RFC 8441 section 5.1: what HTTP/2 left out of the handshake.
        head.status = 101;
        head.set("Upgrade", b"websocket");
        if let Some(key) = job.context.request.values_named("sec-websocket-key").next() {
            head.set("Sec-WebSocket-Accept", websocket::accept(key).as_bytes());
        }
    }
    let edit = ResponseEdit::unfinished(Persistence::Upgrade, job.listener().via);
    let mut out = Buf::for_head();
    encode_response(&mut out, head.bytes.filled(), head, &edit);
    if job.origin.get().is_none() {
        out.extend(head.rest());
    }
    out
}

/// The same for a client that speaks HTTP/2 (RFC 8441 section 5.1).
fn accept_stream(
    answer: &mut Answer,
    client: &ServerStream,
    job: &Job<'_>,
) -> Result<Buf, ErrorKind> {
    let head = &mut answer.head;
    if job.origin.get().is_none() {
        head.remove("sec-websocket-accept");
    }
    head.status = 200;
    let edit = ResponseEdit::unfinished(Persistence::Open, job.listener().via);
    let response = response_out::encode_response(head, &edit);
    client.send_head(response, false).map_err(|_| ErrorKind::ClientAborted)?;
    let mut out = Buf::empty();
    if job.origin.get().is_none() && !head.rest().is_empty() {
        out = Buf::for_head();
        out.extend(head.rest());
    }
    Ok(out)
}

/// One end of a tunnel.
enum Side<'a> {
    Connection(&'a Stream),
    Client(&'a ServerStream),
    Origin(&'a OriginStream),
}

/// What goes through a tunnel, as it came.
enum Bit {
    Buf(Buf),
    Bytes(Bytes),
}

impl Bit {
    fn len(&self) -> usize {
        match self {
            Bit::Buf(buf) => buf.len(),
            Bit::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A side does not go on.
struct Gone;

impl Side<'_> {
    /// What comes next; nothing at the end.
    async fn receive(&self) -> Result<Option<Bit>, Gone> {
        let piece = match self {
            Side::Connection(stream) => {
                // A quiet tunnel keeps no buffer.
                stream.readable().await.map_err(|_| Gone)?;
                let (read, buf) = stream.read(Buf::for_head()).await;
                let count = read.map_err(|_| Gone)?;
                return Ok((count > 0).then_some(Bit::Buf(buf)));
            }
            Side::Client(stream) => stream.read().await,
            Side::Origin(stream) => stream.read().await,
        };
        match piece.map_err(|_| Gone)? {
            Piece::Data(bytes) => Ok(Some(Bit::Bytes(bytes))),
            Piece::Trailers(_) | Piece::End => Ok(None),
        }
    }

    async fn send(&self, bit: Bit, progress: impl FnMut()) -> Result<(), Gone> {
        let bytes = match (self, bit) {
            (Side::Connection(stream), bit) => {
                let mut buf = match bit {
                    Bit::Buf(buf) => buf,
                    Bit::Bytes(bytes) => {
                        let mut buf = Buf::for_head();
                        buf.extend(&bytes);
                        buf
                    }
                };
                return write_all(stream, &mut buf, progress).await.map_err(|_| Gone);
            }
            (_, Bit::Buf(buf)) => Bytes::copy_from_slice(buf.filled()),
            (_, Bit::Bytes(bytes)) => bytes,
        };
        let sent = match self {
            Side::Client(stream) => stream.send_data(bytes, false, progress).await,
            Side::Origin(stream) => stream.send_data(bytes, false, progress).await,
            Side::Connection(_) => return Ok(()),
        };
        sent.map_err(|_| Gone)
    }

    /// Lets the other end send so much more.
    fn release(&self, bytes: usize) {
        match self {
            Side::Connection(_) => {}
            Side::Client(stream) => stream.release(bytes),
            Side::Origin(stream) => stream.release(bytes),
        }
    }

    /// Passes an end on.
    async fn finish(&self) {
        // A side that is gone needs no end.
        let _ = match self {
            Side::Connection(stream) => {
                stream.finish().await;
                Ok(())
            }
            // An end alone needs no room.
            Side::Client(stream) => stream.send_data(Bytes::new(), true, || ()).await,
            Side::Origin(stream) => stream.send_data(Bytes::new(), true, || ()).await,
        };
    }
}

/// Copies one direction to its end, which is passed on; a failure ends both directions.
async fn copy(job: &Job<'_>, from: &Side<'_>, to: &Side<'_>, first: Buf, bytes: &mut u64) {
    let target = job.down.target(Some(job.lease.handle()));
    let stuck = Timer::new(&job.core.deadlines, target);
    let progress = || job.timer().arm(Wait::Tunnel, job.settings().tunnel_timeout_ms);
    let mut bit = Bit::Buf(first);
    loop {
        progress();
        let length = bit.len();
        *bytes += length as u64;
        if length > 0 {
            let write_ms = job.listener().write_timeout_ms;
            let sent = to.send(bit, || stuck.arm(Wait::Tunnel, write_ms)).await;
            stuck.disarm();
            if sent.is_err() {
                return job.stop_tunnel();
            }
            from.release(length);
        }
        progress();
        bit = match from.receive().await {
            Ok(Some(next)) => next,
            Ok(None) => return to.finish().await,
            Err(Gone) => return job.stop_tunnel(),
        };
    }
}

impl Job<'_> {
    fn stop_tunnel(&self) {
        self.down.handle().shutdown(Shutdown::Both);
        self.lease.handle().shutdown(Shutdown::Both);
    }
}

/// Counts a tunnel as long as it is open.
struct Open<'a>(&'a WorkerCounters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.tunnels.decrement();
    }
}
