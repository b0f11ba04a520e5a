//! gRPC load: a number of connections with a number of calls at once on each, over HTTP/2 by
//! prior knowledge, on one thread. Every status, message and trailer is checked.

use std::cell::Cell;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderValue, Method, Request, Response, Version};
use ringway_perf::args::Args;
use ringway_perf::grpc::{Ask, CONTENT_TYPE, METHOD, Messages};
use ringway_perf::window::{self, Window};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// Connections times calls on each.
const AT_ONCE_MAX: usize = 4096;
/// Windows as a gRPC library grows them on a fast link.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// A call that takes longer is an error; so is a handshake.
const PATIENCE: Duration = Duration::from_secs(20);
/// A caller that met an error does not spin.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// What the command line says.
struct Settings {
    server: SocketAddr,
    connections: usize,
    calls: usize,
    ask: Ask,
    request_bytes: usize,
    warm_up: Duration,
    window: Duration,
}

fn main() -> ExitCode {
    match settings().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("grpc-load: {message}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, String> {
    let known = [
        "connect",
        "connections",
        "calls",
        "messages",
        "message-bytes",
        "request-bytes",
        "warm-up-ms",
        "ms",
    ];
    let args = Args::parse(std::env::args().skip(1), &known)?;
    let (connections, calls) = (args.get("connections", 8)?, args.get("calls", 16)?);
    if connections == 0 || calls == 0 || AT_ONCE_MAX / connections < calls {
        return Err(format!("--connections times --calls is 1 to {AT_ONCE_MAX}"));
    }
    let (warm_up, window) = window::durations(&args)?;
    Ok(Settings {
        server: args.get("connect", SocketAddr::from(([127, 0, 0, 1], 8080)))?,
        connections,
        calls,
        ask: Ask::new(args.get("messages", 1)?, args.get("message-bytes", 128)?)?,
        request_bytes: args.get("request-bytes", 128)?,
        warm_up,
        window,
    })
}

/// What all calls share.
struct Load {
    settings: Settings,
    window: Window,
    request: Bytes,
    /// Messages that came while the window was open, of calls under way too.
    messages: Cell<u64>,
}

fn run(settings: Settings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    LocalSet::new().block_on(&runtime, measure(settings))
}

async fn measure(settings: Settings) -> Result<(), String> {
    let request = settings.ask.encode(settings.request_bytes);
    let window = Window::default();
    let load = Rc::new(Load { settings, window, request, messages: Cell::new(0) });
    let mut callers = Vec::new();
    for _ in 0..load.settings.connections {
        let sender = connect(load.settings.server).await?;
        for _ in 0..load.settings.calls {
            callers.push(tokio::task::spawn_local(repeat(load.clone(), sender.clone())));
        }
    }
    sleep(load.settings.warm_up).await;
    let begin = Instant::now();
    load.window.begin();
    sleep(load.settings.window).await;
    let took = begin.elapsed();
    load.window.end();
    for caller in callers {
        caller.await.map_err(|e| e.to_string())?;
    }
    load.window.report(took, &[("messages", load.messages.get())]);
    Ok(())
}

async fn connect(server: SocketAddr) -> Result<SendRequest<Bytes>, String> {
    let opened = timeout(PATIENCE, async {
        let tcp = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(tcp)
            .await
            .map_err(|e| e.to_string())
    });
    let (sender, connection) = opened.await.map_err(|_| "no handshake in time".to_owned())??;
    tokio::task::spawn_local(async move {
        if let Err(e) = connection.await {
            eprintln!("grpc-load: {e}");
        }
    });
    Ok(sender)
}

/// One call after the other until the window ends.
async fn repeat(load: Rc<Load>, mut sender: SendRequest<Bytes>) {
    while load.window.goes_on() {
        let start = Instant::now();
        let called = timeout(PATIENCE, call(&load, sender.clone()));
        match called.await.unwrap_or_else(|_| Err("a call took too long".to_owned())) {
            Ok(again) => {
                sender = again;
                load.window.done(start.elapsed());
            }
            Err(e) => {
                load.window.error(&e);
                sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn call(load: &Load, sender: SendRequest<Bytes>) -> Result<SendRequest<Bytes>, String> {
    let mut sender = sender.ready().await.map_err(|e| e.to_string())?;
    let (response, mut stream) =
        sender.send_request(head(load)?, false).map_err(|e| e.to_string())?;
    stream.send_data(load.request.clone(), true).map_err(|e| e.to_string())?;
    let response = response.await.map_err(|e| e.to_string())?;
    check_head(&response)?;
    read_answer(load, response.into_body()).await?;
    Ok(sender)
}

fn head(load: &Load) -> Result<Request<()>, String> {
    Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://{}{METHOD}", load.settings.server))
        .header("content-type", CONTENT_TYPE)
        .header("te", "trailers")
        .header("user-agent", "grpc-load/0.1")
        .header("grpc-accept-encoding", "identity,gzip")
        .body(())
        .map_err(|e| e.to_string())
}

fn check_head(response: &Response<RecvStream>) -> Result<(), String> {
    let kind = response.headers().get("content-type").map(HeaderValue::as_bytes);
    if response.status() != 200 || kind != Some(CONTENT_TYPE.as_bytes()) {
        let status = response.headers().get("grpc-status");
        return Err(format!("status {}, grpc-status {status:?}", response.status()));
    }
    Ok(())
}

async fn read_answer(load: &Load, mut body: RecvStream) -> Result<(), String> {
    let mut messages = Messages::new(load.settings.ask);
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|e| e.to_string())?;
        let whole = messages.push(&piece)?;
        if load.window.is_open() {
            load.messages.set(load.messages.get() + whole as u64);
        }
        body.flow_control().release_capacity(piece.len()).map_err(|e| e.to_string())?;
    }
    let trailers = body.trailers().await.map_err(|e| e.to_string())?;
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    if status.map(HeaderValue::as_bytes) != Some(b"0") {
        return Err(format!("grpc-status {status:?}"));
    }
    if !messages.is_complete() {
        return Err(format!("{} messages came", messages.whole));
    }
    Ok(())
}
