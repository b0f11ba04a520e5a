//! The admin API: served by the control thread alone, never by a worker (C14).

use std::future::Future;
use std::io;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::Mode;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};

use crate::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_HEAD_TIMEOUT_MS};
use crate::observe::render::{Phase, ProcessView};
use crate::snapshot::AdminPlan;

/// Fills in what changes from moment to moment; may block for a few milliseconds.
pub type Measure = Arc<dyn Fn(&mut ProcessView) + Send + Sync>;

/// A bound admin address.
#[derive(Debug)]
pub struct Admin {
    socket: Socket,
    /// As `--admin` takes it.
    pub address: String,
    /// The socket file to remove at the end.
    pub path: Option<PathBuf>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Admin {
    /// Binds it; inside the control thread's runtime.
    ///
    /// # Errors
    /// A sentence that names the address.
    pub fn bind(plan: &AdminPlan) -> Result<Admin, String> {
        match plan {
            AdminPlan::Tcp(address) => {
                let bound = std::net::TcpListener::bind(address)
                    .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                    .and_then(|socket| Ok((socket.local_addr()?, TcpListener::from_std(socket)?)));
                let (address, socket) = bound.map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        format!("admin: somebody else already listens on {address}")
                    }
                    _ => format!("admin: cannot listen on {address}: {error}"),
                })?;
                Ok(Admin { socket: Socket::Tcp(socket), address: address.to_string(), path: None })
            }
            AdminPlan::Unix(path) => Admin::bind_unix(path.clone()),
            AdminPlan::Default => Admin::bind_unix(default_path()),
        }
    }

    fn bind_unix(path: PathBuf) -> Result<Admin, String> {
        let failed =
            |error: io::Error| format!("admin: cannot listen on {}: {error}", path.display());
        clear_stale(&path)?;
        // A mask, not a later chmod: there is no moment in which others may connect.
        let before = rustix::process::umask(Mode::from_raw_mode(0o117));
        let bound = StdUnixListener::bind(&path);
        rustix::process::umask(before);
        let socket = bound.map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let socket = Socket::Unix(UnixListener::from_std(socket).map_err(failed)?);
        Ok(Admin { socket, address: format!("unix:{}", path.display()), path: Some(path) })
    }

    /// Serves until the process ends.
    pub async fn serve(self, view: watch::Receiver<ProcessView>, measure: Measure) {
        let router = router(view, measure);
        match self.socket {
            Socket::Tcp(socket) => accept_loop(router, async || Ok(socket.accept().await?.0)).await,
            Socket::Unix(socket) => {
                accept_loop(router, async || Ok(socket.accept().await?.0)).await
            }
        }
    }
}

/// Directories in which admin sockets named by process id are looked for.
pub fn socket_directories() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    user.map(PathBuf::from).into_iter().chain(["/run/ringway".into(), "/tmp".into()]).collect()
}

/// The first of [`socket_directories`] in which a socket can be made.
fn default_path() -> PathBuf {
    let name = format!("ringway-{}.sock", std::process::id());
    let mut directories = socket_directories();
    let last = directories.pop().unwrap_or_default();
    for directory in directories {
        if directory.starts_with("/run/ringway") {
            // Only root can; whoever else fails the test below.
            let _ = std::fs::create_dir(&directory);
        }
        let usable = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        if directory.is_dir() && rustix::fs::access(&directory, usable).is_ok() {
            return directory.join(name);
        }
    }
    tracing::warn!(
        "neither $XDG_RUNTIME_DIR nor /run/ringway can be written: the admin socket is in {}",
        last.display()
    );
    last.join(name)
}

/// Removes a socket that nobody serves any more.
fn clear_stale(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt;
    let shown = path.display();
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(format!("admin: {shown} exists and is not a socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(format!("admin: another process already listens on {shown}")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .map_err(|error| format!("admin: cannot replace the stale socket {shown}: {error}"))
        }
        Err(error) => Err(format!("admin: cannot tell whether {shown} is in use: {error}")),
    }
}

/// Accepts for ever; at the cap it waits, and the rest queue in the backlog.
async fn accept_loop<S, F>(router: Router, mut accept: impl FnMut() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>>,
{
    let permits = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("the admin API could not accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            // An error here is one connection's own affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_millis(ADMIN_HEAD_TIMEOUT_MS))
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[derive(Clone)]
struct Shared {
    view: watch::Receiver<ProcessView>,
    measure: Measure,
}

fn router(view: watch::Receiver<ProcessView>, measure: Measure) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/ready", get(ready))
        .route("/v1/status", get(status))
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "no such resource") })
        .method_not_allowed_fallback(|| async {
            let allow = [(header::ALLOW, "GET, HEAD")];
            (allow, refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD")).into_response()
        })
        .with_state(Shared { view, measure })
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let text = render(&shared, |view| view.prometheus()).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"), UNCACHED];
    (kind, text).into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    let view = shared.view.borrow();
    let status = match view.phase {
        Phase::Ready => StatusCode::OK,
        Phase::Starting | Phase::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, [UNCACHED], Json(view.ready())).into_response()
}

async fn status(State(shared): State<Shared>) -> Response {
    ([UNCACHED], render(&shared, |view| Json(view.status())).await).into_response()
}

/// Measures and renders on a thread that may block: reading /proc does.
async fn render<T: Send + Default + 'static>(shared: &Shared, how: fn(&ProcessView) -> T) -> T {
    let mut view = shared.view.borrow().clone();
    let measure = shared.measure.clone();
    let rendered = tokio::task::spawn_blocking(move || {
        measure(&mut view);
        how(&view)
    });
    rendered.await.unwrap_or_default()
}

fn refusal(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error, "status": status.as_u16() }))).into_response()
}

const UNCACHED: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn directory(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("ringway-admin-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    async fn exchange(address: &str, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        let request = format!("{request}\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[tokio::test]
    async fn the_three_resources_answer_and_everything_else_is_refused_in_json() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let admin = Admin::bind(&AdminPlan::Tcp(any)).expect("bound");
        let address = admin.address.clone();
        let (publish, view) = watch::channel(ProcessView::default());
        let serving = tokio::spawn(admin.serve(view, Arc::new(|view| view.resident_bytes = 7)));

        let starting = exchange(&address, "GET /v1/ready HTTP/1.1").await;
        assert!(starting.starts_with("HTTP/1.1 503 "), "{starting}");
        assert!(starting.ends_with(r#"{"ready":false,"reasons":["starting"]}"#), "{starting}");
        publish.send_modify(|view| view.phase = Phase::Ready);
        let ready = exchange(&address, "GET /v1/ready HTTP/1.1").await;
        assert!(ready.starts_with("HTTP/1.1 200 ") && ready.ends_with(r#"{"ready":true}"#));

        let metrics = exchange(&address, "GET /metrics HTTP/1.1").await;
        assert!(metrics.contains("\nprocess_resident_memory_bytes 7\n"), "{metrics}");
        let status = exchange(&address, "GET /v1/status HTTP/1.1").await;
        assert!(status.contains(r#""state":"ready""#), "{status}");

        let missing = exchange(&address, "GET /other HTTP/1.1").await;
        assert!(missing.starts_with("HTTP/1.1 404 ") && missing.ends_with(r#""status":404}"#));
        let post = exchange(&address, "POST /v1/status HTTP/1.1\r\ncontent-length: 0").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.ends_with(r#""status":405}"#), "{post}");
        assert_eq!(post.to_lowercase().matches("\r\nallow: ").count(), 1, "{post}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let path = directory("stale").join("admin.sock");
        drop(StdUnixListener::bind(&path).expect("bound"));
        let admin = Admin::bind(&AdminPlan::Unix(path.clone())).expect("replaced");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let error = Admin::bind(&AdminPlan::Unix(path.clone())).expect_err("in use");
        assert!(error.contains("another process already listens"), "{error}");
        drop(admin);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "text").expect("written");
        let error = Admin::bind(&AdminPlan::Unix(path)).expect_err("a file");
        assert!(error.contains("is not a socket"), "{error}");
    }
}
