//! `ringway status`: what a running proxy does.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::print;
use crate::control::{EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, Source, admin, complain};
use crate::limits::{STATUS_BYTES_MAX, STATUS_TIMEOUT_MS};
use crate::snapshot::{AdminPlan, Ids};

/// Asks the proxy that the arguments name, or the only one that can be found.
pub fn run(config: Option<PathBuf>, admin: Option<String>, json: bool) -> ExitCode {
    let address = match find(config, admin) {
        Ok(address) => address,
        Err((code, error)) => {
            complain(&error);
            return ExitCode::from(code);
        }
    };
    match ask(&address) {
        Ok(status) if json => print(&format!("{status:#}")),
        Ok(status) => print(&table(&status)),
        Err(error) => {
            complain(&format!("no status from {address}: {error}"));
            return ExitCode::from(EXIT_FAILED);
        }
    }
    ExitCode::SUCCESS
}

/// The admin address as `--admin` takes it, or an exit code and why there is none.
fn find(config: Option<PathBuf>, admin: Option<String>) -> Result<String, (u8, String)> {
    if let Some(admin) = admin {
        let valid = admin.starts_with("unix:/") || admin.parse::<std::net::SocketAddr>().is_ok();
        let error = || format!("--admin: {admin:?} is neither ADDRESS:PORT nor unix:PATH");
        return if valid { Ok(admin) } else { Err((EXIT_USAGE, error())) };
    }
    if let Some(config) = config {
        let loaded = Source::File(config).load(&mut Ids::default(), 1);
        match loaded.map_err(|rejected| (EXIT_CONFIG, rejected.rendered))?.snapshot.admin {
            AdminPlan::Tcp(address) => return Ok(address.to_string()),
            AdminPlan::Unix(path) => return Ok(unix(&path)),
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

fn ask(address: &str) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let bound = Duration::from_millis(STATUS_TIMEOUT_MS);
    let asked = runtime.block_on(async { tokio::time::timeout(bound, fetch(address)).await });
    asked.map_err(|_| format!("it did not answer within {STATUS_TIMEOUT_MS} ms"))?
}

async fn fetch(address: &str) -> Result<Value, String> {
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => "nobody listens there".into(),
        io::ErrorKind::PermissionDenied => "no permission to connect".into(),
        _ => error.to_string(),
    };
    match address.strip_prefix("unix:") {
        Some(path) => request(UnixStream::connect(path).await.map_err(explain)?).await,
        None => request(TcpStream::connect(address).await.map_err(explain)?).await,
    }
}

async fn request<S>(stream: S) -> Result<Value, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let request = hyper::Request::get("/v1/status")
        .header(hyper::header::HOST, "ringway")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    if !response.status().is_success() {
        return Err(format!("it answered {}; is it ringway's admin address?", response.status()));
    }
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| format!("it did not answer in JSON: {error}"))
}

/// The answer for people. What an older or newer proxy does not send is left out.
fn table(status: &Value) -> String {
    let mut text = String::new();
    let show = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let of = |pointer: &str| status.pointer(pointer).map_or_else(|| "-".to_owned(), show);
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<13} {value}");
    };
    line("ringway", format!("{}, process {}, {}", of("/version"), of("/pid"), of("/state")));
    line("uptime", format!("{} s", of("/uptime_s")));
    line(
        "configuration",
        format!("version {} from {}", of("/config/version"), of("/config/source")),
    );
    if status["config"]["last_reload_success"] == Value::Bool(false) {
        line("", "the last reload was refused; see the log".to_owned());
    }
    line("admin", of("/admin"));
    for listener in status["listeners"].as_array().into_iter().flatten() {
        line("listener", format!("{} on {}", show(&listener["name"]), show(&listener["address"])));
    }
    for name in ["connections", "in_flight", "tunnels", "panics"] {
        line(name, of(&format!("/{name}")));
    }
    line("requests", pairs(&status["requests"]));
    line("errors", pairs(&status["errors"]));
    line("pool", pairs(&status["pool"]));
    let _ = writeln!(
        text,
        "\n{:<7} {:<4} {:<9} {:>11} {:>9} {:>9}  reason",
        "worker", "cpu", "driver", "connections", "in_flight", "accepted"
    );
    for worker in status["workers"].as_array().into_iter().flatten() {
        let of = |key: &str| show(&worker[key]);
        let _ = writeln!(
            text,
            "{:<7} {:<4} {:<9} {:>11} {:>9} {:>9}  {}",
            of("worker"),
            of("cpu"),
            of("driver"),
            of("connections"),
            of("in_flight"),
            of("connections_accepted"),
            of("driver_reason")
        );
    }
    text
}

fn pairs(map: &Value) -> String {
    let pairs: Vec<_> = (map.as_object().into_iter().flatten())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::render::ProcessView;

    #[test]
    fn what_the_admin_api_sends_fits_the_table() {
        let text = table(&ProcessView::default().status());
        assert!(text.starts_with("ringway       "), "{text}");
        assert!(text.contains("starting") && text.contains("errors        none"), "{text}");
        assert!(text.contains("requests      1xx 0, 2xx 0"), "{text}");
    }

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
