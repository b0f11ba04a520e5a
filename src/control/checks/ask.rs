//! One check: over HTTP/1.1, HTTP/2 or as a mere connection, through TLS where the upstream has it.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;

use super::grpc;
use crate::limits::{HEALTH_BODY_BYTES_MAX, HEALTH_CHECKS_MAX};
use crate::proxy_protocol::encode_own;
use crate::upstream::{Check, EndpointAddress, EndpointPlan, HealthPlan, HttpCheck, Protocol};

/// What is asked, and whom.
#[derive(Debug)]
pub struct Target {
    /// What.
    pub health: HealthPlan,
    /// Whom.
    pub endpoint: EndpointPlan,
}

/// Places for connections of checks; clones share them.
#[derive(Clone, Debug)]
pub struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Permits {
        Permits(Arc::new(Semaphore::new(HEALTH_CHECKS_MAX)))
    }
}

/// Checks an endpoint, which is at one of `addresses` if it is known by name: it passes where one of
/// them does.
///
/// # Errors
/// Why it does not pass, for people.
pub async fn check(
    target: Arc<Target>,
    addresses: Vec<SocketAddr>,
    permits: Permits,
) -> Result<(), Box<str>> {
    let places: Vec<Place> = match &target.endpoint.address {
        EndpointAddress::Unix(path) => vec![Place::Unix(path.as_path().into())],
        EndpointAddress::Socket(address) => vec![Place::Tcp(*address)],
        EndpointAddress::Name(..) => addresses.into_iter().map(Place::Tcp).collect(),
    };
    let mut tries = JoinSet::new();
    for place in places {
        let (target, permits) = (target.clone(), permits.clone());
        tries.spawn(async move {
            // Waiting for a place is no fault of the endpoint.
            let _permit = permits.0.acquire().await;
            let limit_ms = target.health.timeout_ms;
            let asked = ask(&target, &place);
            match tokio::time::timeout(Duration::from_millis(limit_ms), asked).await {
                Ok(result) => result,
                Err(_) => Err(format!("nothing within {limit_ms} ms")),
            }
        });
    }
    let mut last = "its name has no address".to_owned();
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => last = reason,
            Err(error) => last = format!("the check broke off: {error}"),
        }
    }
    Err(last.into())
}

/// Where one try goes.
enum Place {
    Tcp(SocketAddr),
    Unix(Box<Path>),
}

/// A connection of any kind.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What drives a connection; it ends with the check.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn ask(target: &Target, place: &Place) -> Result<(), String> {
    let (stream, chosen_http2) = connect(target, place).await?;
    let http2 = match target.endpoint.protocol {
        Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Auto => chosen_http2,
    };
    match &target.health.check {
        Check::Tcp => Ok(()),
        Check::Grpc { service, host } => ask_grpc(stream, target, service, host.as_deref()).await,
        Check::Http(check) if http2 => ask_http2(stream, target, check).await,
        Check::Http(check) => ask_http1(stream, target, check).await,
    }
}

/// A connection, behind its handshake where TLS is spoken, and whether HTTP/2 was chosen there.
async fn connect(target: &Target, place: &Place) -> Result<(Box<dyn Io>, bool), String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => format!("no connection: {error}"),
    };
    let outgoing = target.endpoint.outgoing;
    let mut stream: Box<dyn Io> = match place {
        Place::Tcp(address) => {
            let connected = connect_tcp(*address, outgoing.socket.source).await;
            Box::new(connected.map_err(failed)?)
        }
        Place::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(failed)?),
    };
    if let Some(version) = outgoing.send_proxy {
        // An origin that waits for a header takes nothing else; this connection is our own.
        stream.write_all(&encode_own(version)).await.map_err(failed)?;
    }
    let Some(tls) = &target.endpoint.tls else { return Ok((stream, false)) };
    let alpn: &[&str] = match (&target.health.check, target.endpoint.protocol) {
        (Check::Grpc { .. }, _) | (_, Protocol::Http2) => &["h2"],
        (_, Protocol::Auto) => &["h2", "http/1.1"],
        (_, Protocol::Http1) => &["http/1.1"],
    };
    let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let connector = TlsConnector::from(tls.client.config());
    let handshake = connector.with_alpn(alpn).connect(tls.name.clone(), stream);
    let stream = handshake.await.map_err(|error| format!("TLS: {error}"))?;
    let chosen_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((Box::new(stream), chosen_http2))
}

/// Checks come from where requests come from.
async fn connect_tcp(address: SocketAddr, source: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(address).await
}

async fn ask_http1(stream: Box<dyn Io>, target: &Target, check: &HttpCheck) -> Result<(), String> {
    let broken = |error: hyper::Error| format!("no answer: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let _driver = Driver(tokio::spawn(async move {
        // What is wrong with it, whoever waits for the answer hears too.
        let _ = connection.await;
    }));
    let host = check.host.as_deref().unwrap_or_else(|| target.endpoint.host());
    let request = Request::builder()
        .uri(&*check.path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close");
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(broken)?;
    expect_status(check, response.status())?;
    let Some(text) = &check.body else { return Ok(()) };
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body breaks off: {error}"))?;
        if let Some(data) = frame.data_ref()
            && contains(&mut seen, data, text)
        {
            return Ok(());
        }
        if seen.len() >= HEALTH_BODY_BYTES_MAX {
            break;
        }
    }
    Err(misses(text))
}

async fn ask_http2(stream: Box<dyn Io>, target: &Target, check: &HttpCheck) -> Result<(), String> {
    let host = check.host.as_deref().unwrap_or_else(|| target.endpoint.host());
    let request = request_http2(target, Method::GET, host, &check.path)?;
    let (_driver, response) = send_http2(stream, request, None).await?;
    expect_status(check, response.status())?;
    let Some(text) = &check.body else { return Ok(()) };
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| format!("the body breaks off: {error}"))?;
        if contains(&mut seen, &data, text) {
            return Ok(());
        }
        if seen.len() >= HEALTH_BODY_BYTES_MAX {
            break;
        }
        // Of a body that is small enough, this cannot fail.
        let _ = body.flow_control().release_capacity(data.len());
    }
    Err(misses(text))
}

/// `grpc.health.v1.Health/Check`
async fn ask_grpc(
    stream: Box<dyn Io>,
    target: &Target,
    service: &str,
    host: Option<&str>,
) -> Result<(), String> {
    let host = host.unwrap_or_else(|| target.endpoint.host());
    let mut request = request_http2(target, Method::POST, host, grpc::PATH)?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, header::HeaderValue::from_static("trailers"));
    let (_driver, response) = send_http2(stream, request, Some(grpc::request(service))).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status().as_u16()));
    }
    let grpc_status = |headers: &http::HeaderMap| {
        let status = headers.get("grpc-status")?.to_str().ok()?;
        Some(status.to_owned()).filter(|status| status != "0")
    };
    if let Some(status) = grpc_status(response.headers()) {
        return Err(format!("grpc-status {status}"));
    }
    let (mut body, mut seen) = (response.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| format!("the answer breaks off: {error}"))?;
        seen.extend_from_slice(&data);
        if seen.len() > HEALTH_BODY_BYTES_MAX {
            return Err("the answer is no HealthCheckResponse".to_owned());
        }
        // Of a body that is small enough, this cannot fail.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.map_err(|error| format!("no trailers: {error}"))?;
    if let Some(status) = trailers.as_ref().and_then(grpc_status) {
        return Err(format!("grpc-status {status}"));
    }
    match grpc::status(&seen) {
        Some("SERVING") => Ok(()),
        Some(status) => Err(status.to_owned()),
        None => Err("the answer is no HealthCheckResponse".to_owned()),
    }
}

fn request_http2(
    target: &Target,
    method: Method,
    host: &str,
    path: &str,
) -> Result<Request<()>, String> {
    let scheme = if target.endpoint.tls.is_some() { "https" } else { "http" };
    let uri = format!("{scheme}://{host}{path}");
    let request = Request::builder().method(method).uri(uri).version(http::Version::HTTP_2);
    let request = request.header(header::USER_AGENT, USER_AGENT).body(());
    request.map_err(|error| error.to_string())
}

async fn send_http2(
    stream: Box<dyn Io>,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<(Driver, http::Response<h2::RecvStream>), String> {
    let broken = |error: h2::Error| format!("no answer: {error}");
    let (mut sender, connection) = h2::client::handshake(stream).await.map_err(broken)?;
    let driver = Driver(tokio::spawn(async move {
        // What is wrong with it, whoever waits for the answer hears too.
        let _ = connection.await;
    }));
    poll_fn(|context| sender.poll_ready(context)).await.map_err(broken)?;
    let (response, mut sending) = sender.send_request(request, body.is_none()).map_err(broken)?;
    if let Some(body) = body {
        sending.send_data(body, true).map_err(broken)?;
    }
    Ok((driver, response.await.map_err(broken)?))
}

fn expect_status(check: &HttpCheck, status: StatusCode) -> Result<(), String> {
    match check.statuses.iter().any(|range| range.contains(&status.as_u16())) {
        true => Ok(()),
        false => Err(format!("status {}", status.as_u16())),
    }
}

/// Adds more of a body to what was seen, as far as it is read; says whether the text stands in it.
fn contains(seen: &mut Vec<u8>, data: &[u8], text: &str) -> bool {
    // It may have begun in what came before.
    let from = seen.len().saturating_sub(text.len());
    let room = HEALTH_BODY_BYTES_MAX - seen.len().min(HEALTH_BODY_BYTES_MAX);
    seen.extend_from_slice(&data[..data.len().min(room)]);
    memchr::memmem::find(&seen[from..], text.as_bytes()).is_some()
}

fn misses(text: &str) -> String {
    format!("the body does not contain \"{}\"", text.escape_debug())
}

const USER_AGENT: &str = concat!("ringway-health/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests;
