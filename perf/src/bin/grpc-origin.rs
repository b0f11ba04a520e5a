//! The gRPC origin: answers each call with the messages that it asks for, over HTTP/2 by prior
//! knowledge, on one thread.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use ringway_perf::args::Args;
use ringway_perf::grpc::{Ask, CONTENT_TYPE, METHOD};
use ringway_perf::server;
use tokio::net::{TcpListener, TcpStream};

/// The longest request message that is read.
const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Streams that one connection may have: a proxy may send all of a load over one.
const STREAMS_MAX: u32 = 4096;
/// Window of a connection for requests.
const WINDOW_BYTES: u32 = 8 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("grpc-origin: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1), &["listen"])?;
    let address = args.get("listen", SocketAddr::from(([127, 0, 0, 1], 9000)))?;
    let listener = server::listen(address).map_err(|e| format!("{address}: {e}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(|e| e.to_string())?;
        loop {
            let (client, _) = listener.accept().await.map_err(|e| e.to_string())?;
            tokio::spawn(serve(client));
        }
    })
}

/// Serves one connection until its peer ends it.
async fn serve(client: TcpStream) {
    let handshake = h2::server::Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(client)
        .await;
    // Whoever only looks whether we listen says nothing.
    let Ok(mut connection) = handshake else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(async move {
            if let Err(e) = answer(request, respond).await {
                eprintln!("grpc-origin: {e}");
            }
        });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), String> {
    if request.uri().path() != METHOD {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        return respond.send_response(response, true).map(drop).map_err(|e| e.to_string());
    }
    let ask = Ask::parse(&read_message(request.into_body()).await?)?;
    let mut response = Response::new(());
    let value = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    let mut stream = respond.send_response(response, false).map_err(|e| e.to_string())?;
    let message = ask.message();
    for _ in 0..ask.messages {
        send(&mut stream, message.clone()).await?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).map_err(|e| e.to_string())
}

async fn read_message(mut body: RecvStream) -> Result<BytesMut, String> {
    let mut message = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|e| e.to_string())?;
        message.extend_from_slice(&piece);
        if message.len() > REQUEST_BYTES_MAX {
            return Err("a request message over 64 KiB".to_owned());
        }
        body.flow_control().release_capacity(piece.len()).map_err(|e| e.to_string())?;
    }
    Ok(message)
}

/// Sends one message as soon as the client's window has room for all of it, so that each is one
/// DATA frame where it fits into one.
async fn send(stream: &mut SendStream<Bytes>, message: Bytes) -> Result<(), String> {
    stream.reserve_capacity(message.len());
    while stream.capacity() < message.len() {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(e)) => return Err(e.to_string()),
            None => return Err("the client ended the stream".to_owned()),
        }
    }
    stream.send_data(message, false).map_err(|e| e.to_string())
}
