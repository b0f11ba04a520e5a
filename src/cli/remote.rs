//! Asking a running proxy: finding its admin address, and one exchange with it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::control::{EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, Source, admin};
use crate::limits::ADMIN_ANSWER_BYTES_MAX;
use crate::snapshot::{AdminPlan, Ids};

/// The admin address as `--admin` takes it, or an exit code and why there is none.
pub fn find(config: Option<PathBuf>, admin: Option<String>) -> Result<String, (u8, String)> {
    if let Some(admin) = admin {
        let valid = admin.starts_with("unix:/") || admin.parse::<std::net::SocketAddr>().is_ok();
        let error = || format!("--admin: {admin:?} is neither ADDRESS:PORT nor unix:PATH");
        return if valid { Ok(admin) } else { Err((EXIT_USAGE, error())) };
    }
    if let Some(config) = config {
        let loaded = Source::File(config).load(&mut Ids::default(), 1);
        let loaded = loaded.map_err(|rejected| (EXIT_CONFIG, rejected.rendered))?;
        match &loaded.taken.snapshot.admin {
            AdminPlan::Tcp(address) => return Ok(address.to_string()),
            AdminPlan::Unix(path) => return Ok(unix(path)),
            AdminPlan::Default => {}
        }
    }
    let mut found = sockets();
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(unix(&path)),
        (None, _) => {
            Err((EXIT_FAILED, "no running ringway was found; name it by --admin".to_owned()))
        }
        (Some(last), false) => {
            found.push(last);
            let all: Vec<_> =
                found.iter().map(|path| format!("  --admin {}", unix(path))).collect();
            let error = format!("more than one ringway runs here; choose:\n{}", all.join("\n"));
            Err((EXIT_USAGE, error))
        }
    }
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Sockets named by process id that somebody answers.
fn sockets() -> Vec<PathBuf> {
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("ringway-") && name.ends_with(".sock")
    };
    (admin::socket_directories().iter())
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flat_map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())))
        .filter(ours)
        .filter(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
        .collect()
}

/// One exchange with the proxy at `address`, within `limit_ms`: the answer's status and its JSON.
///
/// # Errors
/// A sentence that says why there is no answer in JSON.
pub fn ask(
    address: &str,
    method: Method,
    path: &str,
    limit_ms: u64,
) -> Result<(StatusCode, Value), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let limit = Duration::from_millis(limit_ms);
    let asked =
        runtime.block_on(async { tokio::time::timeout(limit, fetch(address, method, path)).await });
    asked.map_err(|_| format!("it did not answer within {limit_ms} ms"))?
}

async fn fetch(address: &str, method: Method, path: &str) -> Result<(StatusCode, Value), String> {
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => "nobody listens there".into(),
        io::ErrorKind::PermissionDenied => "no permission to connect".into(),
        _ => error.to_string(),
    };
    let request = hyper::Request::builder().method(method).uri(path);
    match address.strip_prefix("unix:") {
        Some(socket) => {
            let request = request.header(hyper::header::HOST, "localhost");
            exchange(UnixStream::connect(socket).await.map_err(explain)?, request).await
        }
        None => {
            let request = request.header(hyper::header::HOST, address);
            exchange(TcpStream::connect(address).await.map_err(explain)?, request).await
        }
    }
}

async fn exchange<S>(
    stream: S,
    request: hyper::http::request::Builder,
) -> Result<(StatusCode, Value), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ADMIN_ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let answer = serde_json::from_slice(&body);
    let no_json = |_| format!("it answered {status} without JSON; is it ringway's admin address?");
    Ok((status, answer.map_err(no_json)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_a_usage_error() {
        for bad in ["", "localhost", "unix:relative", "127.0.0.1"] {
            let found = find(None, Some(bad.to_owned()));
            assert_eq!(found.expect_err("refused").0, EXIT_USAGE, "{bad}");
        }
        let found = find(None, Some("[::1]:9901".to_owned()));
        assert_eq!(found, Ok("[::1]:9901".to_owned()));
    }
}
