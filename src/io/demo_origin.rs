//! The two origins of `ringway demo`: they say who answered and what they saw, and echo bodies.
//!
//! They speak monoio-http's codec, which is not made for untrusted bytes: they listen on loopback
//! alone, every connection is bounded in bytes and time, and a panic ends one connection.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use monoio::BufResult;
use monoio::buf::{IoBufMut, IoVecBufMut};
use monoio::io::sink::{Sink, SinkExt};
use monoio::io::stream::Stream;
use monoio::io::{AsyncReadRent, Splitable};
use monoio::net::{TcpListener, TcpStream};
use monoio_http::common::body::BodyExt;
use monoio_http::common::request::Request;
use monoio_http::common::response::Response;
use monoio_http::h1::codec::decoder::{FillPayload, RequestDecoder};
use monoio_http::h1::codec::encoder::GenericEncoder;
use monoio_http::h1::payload::{FixedPayload, Payload};

use super::driver::{DriverKind, DriverReport};
use super::runtime::{self, catch_panic};
use crate::limits::{DEMO_BODY_BYTES_MAX, DEMO_TIMEOUT_MS, HEAD_BYTES_MAX};

/// Starts an origin called `name` on a thread of its own and says where it listens.
///
/// # Errors
/// It cannot listen, or the thread cannot be made.
pub fn spawn(name: &'static str) -> io::Result<SocketAddr> {
    let listener = StdListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    // Epoll works everywhere, and a demo's origin need not be fast.
    let driver = DriverReport { kind: DriverKind::Epoll, reason: "a demo origin".to_owned() };
    std::thread::Builder::new().name(format!("origin-{name}")).spawn(move || {
        let ended = runtime::run(&driver, accept_all(name, listener));
        if let Err(error) | Ok(Err(error)) = ended {
            tracing::error!("demo origin {name}: {error}");
        }
    })?;
    Ok(address)
}

async fn accept_all(name: &'static str, listener: StdListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => runtime::spawn(async move {
                let _ = catch_panic(serve(name, stream)).await;
            }),
            Err(error) => {
                tracing::warn!("demo origin {name}: {error}");
                runtime::sleep_ms(PAUSE_MS).await;
            }
        }
    }
}

/// Answers requests until one asks to close, is too large or takes too long.
async fn serve(name: &'static str, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let left = Rc::new(Cell::new(0));
    let (reader, writer) = stream.into_split();
    let mut decoder = RequestDecoder::new(Metered { inner: reader, left: left.clone() });
    let mut encoder = GenericEncoder::new(writer);
    let bound = Duration::from_millis(DEMO_TIMEOUT_MS);
    loop {
        left.set(HEAD_BYTES_MAX + DEMO_BODY_BYTES_MAX);
        let turn = answer_one(name, &mut decoder, &mut encoder);
        match monoio::time::timeout(bound, turn).await {
            Ok(Some(Next::KeepAlive)) => {}
            Ok(Some(Next::Close) | None) | Err(_) => break,
        }
    }
    let _ = Sink::<Response>::close(&mut encoder).await;
}

enum Next {
    KeepAlive,
    Close,
}

async fn answer_one<R, W>(
    name: &'static str,
    decoder: &mut RequestDecoder<Metered<R>>,
    encoder: &mut W,
) -> Option<Next>
where
    R: AsyncReadRent,
    W: Sink<Response>,
{
    let request: Request = decoder.next().await?.ok()?;
    let (head, payload) = request.into_parts();
    // The decoder hands the body over once it has arrived, as far as the meter lets it.
    let whole = decoder.fill_payload().await;
    let body = match whole {
        Ok(()) => payload.bytes().await.ok().filter(|body| body.len() <= DEMO_BODY_BYTES_MAX),
        Err(_) => None,
    };
    let Some(body) = body else {
        let refusal = respond(name, StatusCode::PAYLOAD_TOO_LARGE, None, Bytes::new());
        encoder.send_and_flush(refusal).await.ok()?;
        return Some(Next::Close);
    };
    let close = head.headers.get(CONNECTION).is_some_and(|value| value == "close");
    let response = if head.method == http::Method::HEAD {
        respond(name, StatusCode::OK, None, Bytes::new())
    } else if body.is_empty() {
        let seen = describe(name, head.method.as_str(), &head.uri.to_string(), &head.headers);
        respond(name, StatusCode::OK, Some(HeaderValue::from_static("application/json")), seen)
    } else {
        respond(name, StatusCode::OK, head.headers.get(CONTENT_TYPE).cloned(), body)
    };
    encoder.send_and_flush(response).await.ok()?;
    Some(if close { Next::Close } else { Next::KeepAlive })
}

fn respond(
    name: &'static str,
    status: StatusCode,
    kind: Option<HeaderValue>,
    body: Bytes,
) -> Response {
    let payload =
        if body.is_empty() { Payload::None } else { Payload::Fixed(FixedPayload::new(body)) };
    let mut response = Response::new(payload);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("x-demo-endpoint", HeaderValue::from_static(name));
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, kind);
    }
    response
}

/// What an origin saw, for people to read.
fn describe(name: &str, method: &str, path: &str, headers: &HeaderMap) -> Bytes {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let seen = serde_json::json!({
        "endpoint": name,
        "method": method,
        "path": path,
        "headers": headers,
    });
    Bytes::from(format!("{seen:#}\n"))
}

/// Fails once it has read more than one request may take: the codec itself has no bound.
struct Metered<R> {
    inner: R,
    left: Rc<Cell<usize>>,
}

impl<R> Metered<R> {
    fn take<B>(&self, result: BufResult<usize, B>) -> BufResult<usize, B> {
        let (read, buffer) = result;
        let read = read.and_then(|count| match self.left.get().checked_sub(count) {
            Some(left) => {
                self.left.set(left);
                Ok(count)
            }
            None => Err(io::Error::other("a request larger than the demo takes")),
        });
        (read, buffer)
    }
}

impl<R: AsyncReadRent> AsyncReadRent for Metered<R> {
    async fn read<T: IoBufMut>(&mut self, buffer: T) -> BufResult<usize, T> {
        let result = self.inner.read(buffer).await;
        self.take(result)
    }

    async fn readv<T: IoVecBufMut>(&mut self, buffer: T) -> BufResult<usize, T> {
        let result = self.inner.readv(buffer).await;
        self.take(result)
    }
}

/// Pause after an accept that failed, in milliseconds.
const PAUSE_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(address).expect("connected");
        // An origin that refuses may close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }

    #[test]
    fn it_says_what_it_saw_and_echoes_bodies() {
        let address = spawn("one").expect("started");
        let seen =
            exchange(address, b"GET /a?b=1 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
        assert!(seen.contains("x-demo-endpoint: one\r\n"), "{seen}");
        assert!(seen.contains("\"path\": \"/a?b=1\""), "{seen}");
        let echo = exchange(
            address,
            b"POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
        );
        assert!(echo.ends_with("\r\n\r\nhello"), "{echo}");
        let chunked = exchange(
            address,
            b"POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
              3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        );
        assert!(chunked.ends_with("\r\n\r\nabcde"), "{chunked}");
    }

    #[test]
    fn a_body_beyond_the_bound_is_refused() {
        let address = spawn("two").expect("started");
        let length = DEMO_BODY_BYTES_MAX + 1;
        let head = format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        let mut request = head.into_bytes();
        request.resize(request.len() + length, b'x');
        let refused = exchange(address, &request);
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    }
}
