//! A client of HTTP/2 by the `h2` crate, and one of raw frames for what no library sends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::task::JoinHandle;

use super::PATIENCE;

/// Runs a test's client.
pub fn block_on<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let bounded = async {
        let bounded = tokio::time::timeout(PATIENCE * 3, client).await;
        bounded.expect("what is bound to happen happens in time")
    };
    runtime.expect("a runtime").block_on(bounded)
}

/// A connection.
pub struct Http2 {
    /// Begins streams.
    pub sender: SendRequest<Bytes>,
    /// Ends when the connection does, and says how.
    pub driver: JoinHandle<Result<(), h2::Error>>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The fields.
    pub fields: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers, if there were some.
    pub trailers: Option<HeaderMap>,
}

impl Http2 {
    /// Connects without TLS.
    pub async fn connect(address: SocketAddr) -> Http2 {
        Http2::connect_with(address, &h2::client::Builder::new()).await
    }

    /// The same, with other settings.
    pub async fn connect_with(address: SocketAddr, settings: &h2::client::Builder) -> Http2 {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let (sender, connection) = settings.handshake(stream).await.expect("a handshake");
        Http2 { sender, driver: tokio::spawn(connection) }
    }

    /// Begins a request; `end` says that it has no body.
    pub async fn begin(
        &mut self,
        method: &str,
        path: &str,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let uri = format!("http://a.test{path}");
        let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
        let mut ready = self.sender.clone().ready().await?;
        ready.send_request(request, end)
    }

    /// Asks for a path.
    pub async fn get(&mut self, path: &str) -> Result<Answer, h2::Error> {
        let (response, _) = self.begin("GET", path, true).await?;
        read(response.await?).await
    }

    /// Sends a body, piece by piece as there is room, and maybe trailers.
    pub async fn post(
        &mut self,
        path: &str,
        body: &[u8],
        trailers: Option<HeaderMap>,
    ) -> Result<Answer, h2::Error> {
        let (response, mut stream) = self.begin("POST", path, false).await?;
        let sending = async {
            send(&mut stream, body, trailers.is_none()).await?;
            trailers.map_or(Ok(()), |trailers| stream.send_trailers(trailers))
        };
        let (sent, answered) = tokio::join!(sending, async { read(response.await?).await });
        sent.and(answered)
    }
}

/// Sends a body as there is room.
pub async fn send(
    stream: &mut SendStream<Bytes>,
    mut body: &[u8],
    end: bool,
) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len().min(64 * 1024));
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let room = room.unwrap_or(Ok(0))?.min(body.len());
        let (part, rest) = body.split_at(room);
        body = rest;
        stream.send_data(Bytes::copy_from_slice(part), end && body.is_empty())?;
    }
    Ok(())
}

/// Reads a whole answer.
pub async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await?;
    Ok(Answer { status: head.status.as_u16(), fields: head.headers, body, trailers })
}

/// A client of raw frames.
pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A frame as it came: kind, flags, stream, payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// RFC 9113 section 6
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// What a client begins with, without settings.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

impl Raw {
    /// Connects and says nothing.
    pub fn open(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Raw { stream, read: Vec::new() }
    }

    /// A connection that a client of HTTP/2 has made; its preface is read.
    pub fn accepted(stream: TcpStream) -> Raw {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut raw = Raw { stream, read: Vec::new() };
        let mut preface = [0; 24];
        raw.stream.read_exact(&mut preface).expect("a preface");
        raw
    }

    /// Connects, sends the preface and acknowledges what comes back.
    pub fn begin(address: SocketAddr) -> Raw {
        let mut raw = Raw::open(address);
        raw.send(PREFACE);
        raw.frame(4, 1, 0, b"");
        raw
    }

    /// Sends bytes; a peer that has gone does not matter.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.send(&frame(kind, flags, stream, payload))
    }

    /// The next frame; none at the end.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, id @ ..] = &self.read[..]
                && let Some((id, rest)) = id.split_first_chunk::<4>()
            {
                let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
                if rest.len() >= length {
                    let payload = rest[..length].to_vec();
                    let stream = u32::from_be_bytes(*id) & 0x7fff_ffff;
                    let frame = Frame { kind: *kind, flags: *flags, stream, payload };
                    self.read.drain(..9 + length);
                    return Some(frame);
                }
            }
            let mut part = [0; 16 * 1024];
            match self.stream.read(&mut part) {
                Ok(count) if count > 0 => self.read.extend_from_slice(&part[..count]),
                Ok(_) => return None,
                Err(error) if super::origin::is_timeout(&error) => panic!("nothing came"),
                Err(_) => return None,
            }
        }
    }

    /// The error code of the last GOAWAY before the end.
    pub fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next() {
            if frame.kind == 7 {
                code = frame.payload[4..8].try_into().ok().map(u32::from_be_bytes);
            }
        }
        code
    }

    /// Whether nothing comes for so long.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a timeout");
        let silent = matches!(self.stream.read(&mut [0]), Err(e) if super::origin::is_timeout(&e));
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        silent
    }
}

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The fields of `GET / http a.test`, by the static table of RFC 7541 and one literal.
pub const GET: &[u8] = b"\x82\x84\x86\x01\x06a.test";

/// Type of a frame (RFC 9113 section 6.2).
pub const HEADERS: u8 = 1;

/// Type of a frame (RFC 9113 section 6.8).
pub const GOAWAY: u8 = 7;
