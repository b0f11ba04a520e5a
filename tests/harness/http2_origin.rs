//! An origin that speaks HTTP/2 by the `h2` crate; what it does stands in the path.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::http2::send;
use super::ms;

/// Bytes of `/large`, which are [`filling`].
pub const LARGE: usize = 8 * 1024 * 1024;

/// What it saw.
#[derive(Default)]
pub struct Record {
    /// Requests, in the order in which they ended.
    pub requests: Vec<Seen>,
    /// Connections that were made.
    pub connections: usize,
    /// Connections that are open.
    pub open: usize,
    /// Streams being served, and the most there were.
    pub streams: (usize, usize),
}

/// A request.
#[derive(Debug)]
pub struct Seen {
    /// Which connection it came by, counted from 1.
    pub connection: usize,
    /// `METHOD path`
    pub line: String,
    /// `:scheme`, `:authority` and `:protocol`.
    pub pseudo: (String, String, Option<String>),
    /// Its fields.
    pub fields: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    /// Its trailers.
    pub trailers: Option<HeaderMap>,
    /// Whether it came to its end.
    pub whole: bool,
}

/// What a request tells the connection that it came by.
enum Act {
    GoAway,
    Die,
}

/// The origin; it ends with all its connections when dropped.
pub struct Http2Origin {
    /// Where it listens.
    pub address: String,
    record: Arc<Mutex<Record>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Http2Origin {
    /// Starts one that takes extended CONNECT.
    pub fn start() -> Http2Origin {
        let mut settings = Builder::new();
        settings.enable_connect_protocol();
        Http2Origin::start_with(settings)
    }

    /// Starts one on a free loopback port.
    pub fn start_with(settings: Builder) -> Http2Origin {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        listener.set_nonblocking(true).expect("a socket that does not block");
        let record: Arc<Mutex<Record>> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let of = record.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(&listener, &settings, &of) => {}
                    _ = stopped => {}
                }
            });
        });
        Http2Origin { address, record, stop: Some(stop), thread: Some(thread) }
    }

    /// Looks at what it saw.
    pub fn look<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        look(&lock(&self.record))
    }

    /// How many requests ended.
    pub fn count(&self) -> usize {
        self.look(|record| record.requests.len())
    }
}

impl Drop for Http2Origin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The body of `/large`.
pub fn filling() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    // A test that fails while it looks is not to fail the origin too.
    record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn accept(listener: &TcpListener, settings: &Builder, record: &Arc<Mutex<Record>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (settings, record) = (settings.clone(), record.clone());
        let number = {
            let mut record = lock(&record);
            record.connections += 1;
            record.open += 1;
            record.connections
        };
        tokio::spawn(async move {
            talk(stream, &settings, &record, number).await;
            lock(&record).open -= 1;
        });
    }
}

async fn talk(stream: TcpStream, settings: &Builder, record: &Arc<Mutex<Record>>, number: usize) {
    let Ok(mut connection) = settings.handshake::<_, Bytes>(stream).await else { return };
    let (tell, mut told) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, reply))) = accepted else { return };
                let call = Call { record: record.clone(), number, tell: tell.clone() };
                tokio::spawn(call.serve(request, reply));
            }
            act = told.recv() => match act {
                Some(Act::GoAway) => connection.graceful_shutdown(),
                Some(Act::Die) | None => return,
            },
        }
    }
}

/// One request being served.
struct Call {
    record: Arc<Mutex<Record>>,
    number: usize,
    tell: mpsc::UnboundedSender<Act>,
}

/// The reply to be sent.
type Reply = SendResponse<Bytes>;

impl Call {
    async fn serve(self, request: Request<RecvStream>, mut reply: Reply) {
        {
            let streams = &mut lock(&self.record).streams;
            streams.0 += 1;
            streams.1 = streams.1.max(streams.0);
        }
        // A proxy that is gone is told of by what it sees.
        let _ = self.act(request, &mut reply).await;
        lock(&self.record).streams.0 -= 1;
    }

    async fn act(&self, request: Request<RecvStream>, reply: &mut Reply) -> Result<(), h2::Error> {
        let (head, mut body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if path == "/ws" && head.extensions.get::<Protocol>().is_some() {
            self.note(&head, &mut body, false).await;
            return echo(body, reply).await;
        }
        if self.without_body(&head, &mut body, reply).await? {
            return Ok(());
        }
        let seen = self.note(&head, &mut body, true).await;
        if let Some(time) = path.strip_prefix("/sleep/") {
            tokio::time::sleep(ms(time.parse().expect("a number"))).await;
        }
        if let Some(count) = path.strip_prefix("/bytes/") {
            let mut stream = reply.send_response(Response::new(()), false)?;
            return send(&mut stream, &filling()[..count.parse().expect("a number")], true).await;
        }
        if let Some(count) = path.strip_prefix("/parts/") {
            return parts(reply, &seen, count.parse().expect("a number")).await;
        }
        let first = self.look(&seen) == 1;
        match path.as_str() {
            "/refuse" if first => reply.send_reset(Reason::REFUSED_STREAM),
            "/refused" => reply.send_reset(Reason::REFUSED_STREAM),
            "/reset" => reply.send_reset(Reason::INTERNAL_ERROR),
            "/204" => return head_only(reply, 204, &seen),
            "/interim" => {
                let early = Response::builder().status(103).header("link", "</a>");
                reply.send_informational(early.body(()).expect("a head"))?;
                return ok(reply, &seen, head.method == "HEAD");
            }
            "/trailers" => return with_trailers(reply, &seen, "x-sum", "1"),
            "/grpc" => return with_trailers(reply, &seen, "grpc-status", "0"),
            "/grpc-only" => {
                let head = head_of(200, &seen).header("content-type", "application/grpc");
                let head = head.header("grpc-status", "5").header("grpc-message", "no%20such");
                return reply.send_response(head.body(()).expect("a head"), true).map(drop);
            }
            "/grpc-untold" => {
                let head = head_of(200, &seen).header("content-type", "application/grpc");
                let mut stream = reply.send_response(head.body(()).expect("a head"), false)?;
                return stream.send_data(Bytes::from_static(b"\0\0\0\0\x02ab"), true);
            }
            "/large" => {
                let mut stream = reply.send_response(Response::new(()), false)?;
                return send(&mut stream, &filling(), true).await;
            }
            "/cut" => {
                let head = Response::builder().header("content-length", "50").body(());
                let mut stream = reply.send_response(head.expect("a head"), false)?;
                stream.send_data(Bytes::from_static(b"half"), false)?;
                tokio::time::sleep(ms(100)).await;
                let _ = self.tell.send(Act::Die);
            }
            "/goaway" => {
                let _ = self.tell.send(Act::GoAway);
                tokio::time::sleep(ms(300)).await;
                return ok(reply, &seen, false);
            }
            _ => return ok(reply, &seen, head.method == "HEAD"),
        }
        Ok(())
    }

    /// What it does before it looks at the body. Whether that is all.
    async fn without_body(
        &self,
        head: &http::request::Parts,
        body: &mut RecvStream,
        reply: &mut Reply,
    ) -> Result<bool, h2::Error> {
        let path = head.uri.path();
        let first = || self.look(&format!("{} {path}", head.method)) == 0;
        match path {
            "/refuse-unread" if first() => {
                self.note(head, body, false).await;
                reply.send_reset(Reason::REFUSED_STREAM);
            }
            "/die-unread" if first() => {
                self.note(head, body, false).await;
                let _ = self.tell.send(Act::Die);
                // The stream is held until its connection is gone: no reset precedes that.
                let _ = body.data().await;
            }
            "/early" | "/early-held" => {
                self.note(head, body, false).await;
                let response = Response::builder().status(413).body(()).expect("a head");
                reply.send_response(response, true)?;
                if path == "/early-held" {
                    // While it is held nothing is said of the body.
                    tokio::time::sleep(super::PATIENCE).await;
                }
            }
            "/slow-up" => {
                tokio::time::sleep(ms(600)).await;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How often a line was asked for.
    fn look(&self, line: &str) -> usize {
        lock(&self.record).requests.iter().filter(|seen| seen.line == line).count()
    }

    /// Reads a body, if it is to be read, and notes the request. Returns its line.
    async fn note(&self, head: &http::request::Parts, body: &mut RecvStream, read: bool) -> String {
        let (mut bytes, mut trailers, mut whole) = (Vec::new(), None, read);
        while let Some(data) = if read { body.data().await } else { None } {
            let Ok(data) = data else {
                whole = false;
                break;
            };
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
        if whole {
            trailers = body.trailers().await.unwrap_or_default();
        }
        let uri = &head.uri;
        let line = format!(
            "{} {uri}",
            head.method,
            uri = uri.path_and_query().map_or("", |it| it.as_str())
        );
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let authority = uri.authority().map(|authority| authority.as_str());
        let protocol = head.extensions.get::<Protocol>().map(|it| it.as_str().to_owned());
        lock(&self.record).requests.push(Seen {
            connection: self.number,
            line: line.clone(),
            pseudo: (text(uri.scheme_str()), text(authority), protocol),
            fields: head.headers.clone(),
            body: bytes,
            trailers,
            whole,
        });
        line
    }
}

fn head_of(status: u16, line: &str) -> http::response::Builder {
    Response::builder().status(status).header("x-seen", line)
}

fn head_only(reply: &mut Reply, status: u16, line: &str) -> Result<(), h2::Error> {
    reply.send_response(head_of(status, line).body(()).expect("a head"), true).map(drop)
}

fn ok(reply: &mut Reply, line: &str, is_head: bool) -> Result<(), h2::Error> {
    let head = head_of(200, line).header("content-length", "2").body(()).expect("a head");
    let mut stream = reply.send_response(head, is_head)?;
    if is_head { Ok(()) } else { stream.send_data(Bytes::from_static(b"ok"), true) }
}

fn with_trailers(
    reply: &mut Reply,
    line: &str,
    name: &'static str,
    value: &'static str,
) -> Result<(), h2::Error> {
    let head = head_of(200, line).header("content-type", "application/grpc");
    let mut stream: SendStream<Bytes> =
        reply.send_response(head.body(()).expect("a head"), false)?;
    stream.send_data(Bytes::from_static(b"ab"), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert(name, HeaderValue::from_static(value));
    stream.send_trailers(trailers)
}

/// Many small parts, and trailers.
async fn parts(reply: &mut Reply, line: &str, count: usize) -> Result<(), h2::Error> {
    let head = head_of(200, line).header("content-type", "application/grpc");
    let mut stream = reply.send_response(head.body(()).expect("a head"), false)?;
    for number in 0..count {
        send(&mut stream, format!("{number};").as_bytes(), false).await?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}

/// A tunnel that says what it hears.
async fn echo(mut body: RecvStream, reply: &mut Reply) -> Result<(), h2::Error> {
    let mut stream = reply.send_response(head_of(200, "ws").body(()).expect("a head"), false)?;
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        send(&mut stream, &data, false).await?;
    }
    stream.send_data(Bytes::new(), true)
}
