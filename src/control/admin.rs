//! The admin API: served by the control thread alone, never by a worker (C14).

mod answers;
mod config;
mod explain;
mod origin;
mod seats;

use std::io;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use rustix::fs::Mode;
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};

use super::helper::Event;
use super::source::Taken;
use crate::observe::render::ProcessView;
use crate::snapshot::AdminPlan;

/// Fills in what changes from moment to moment; may block for a few milliseconds.
pub type Measure = Arc<dyn Fn(&mut ProcessView) + Send + Sync>;

/// What it shows.
#[derive(Clone)]
pub struct Shown {
    /// The process.
    pub view: watch::Receiver<ProcessView>,
    /// The configuration in force.
    pub taken: watch::Receiver<Taken>,
    /// Fills in the rest of the view.
    pub measure: Measure,
}

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

    /// Serves until the process ends; `events` is where the supervisor takes wishes.
    pub async fn serve(self, shown: Shown, events: mpsc::Sender<Event>) {
        let router = router(Shared { shown, events, lanes: Lanes::default() });
        match self.socket {
            Socket::Tcp(socket) => {
                let router = router.layer(from_fn(origin::only_own_origin));
                seats::accept_loop(router, async || Ok(socket.accept().await?.0)).await;
            }
            Socket::Unix(socket) => {
                seats::accept_loop(router, async || Ok(socket.accept().await?.0)).await
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

#[derive(Clone)]
struct Shared {
    shown: Shown,
    events: mpsc::Sender<Event>,
    lanes: Lanes,
}

/// What renders on the two threads that may block: one job of each lane at a time, so that a large
/// configuration keeps no scrape waiting. Jobs keep their place although their client is gone.
#[derive(Clone)]
struct Lanes {
    /// Metrics and status.
    short: Arc<Semaphore>,
    /// Configuration and explanations: up to seconds at a million routes.
    long: Arc<Mutex<config::Latest>>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { short: Arc::new(Semaphore::new(1)), long: Arc::default() }
    }
}

fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for (_, path, handler) in resources() {
        router = router.route(path, handler);
    }
    router
        .fallback(async || no_such_resource())
        // The router adds Allow, from the methods of the resource.
        .method_not_allowed_fallback(async || {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "the resource has no such method")
        })
        .with_state(shared)
}

/// Everything that there is: method, path, and who answers.
fn resources() -> [(&'static str, &'static str, MethodRouter<Shared>); 8] {
    [
        ("GET", "/metrics", get(answers::metrics)),
        ("GET", "/v1/config", get(config::config)),
        ("GET", "/v1/events", get(answers::events)),
        ("GET", "/v1/explain", get(explain::explain)),
        ("GET", "/v1/ready", get(answers::ready)),
        ("POST", "/v1/reload", post(answers::reload)),
        ("GET", "/v1/status", get(answers::status)),
        ("GET", "/v1/version", get(answers::version)),
    ]
}

fn no_such_resource() -> Response {
    let status = StatusCode::NOT_FOUND;
    let there_are: Vec<_> =
        resources().iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let error = "no such resource";
    let answer = json!({ "error": error, "resources": there_are, "status": status.as_u16() });
    (status, Json(answer)).into_response()
}

fn refusal(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error, "status": status.as_u16() }))).into_response()
}

const UNCACHED: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::outcome::{Outcome, Reason, Refusal};
    use crate::control::source::Source;
    use crate::observe::render::Phase;
    use crate::snapshot::Ids;
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
        let host =
            if request.to_lowercase().contains("\r\nhost:") { "" } else { "host: localhost\r\n" };
        let request = format!("{request}\r\n{host}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    /// An API on TCP, what changes its view, and the supervisor's end.
    fn serving() -> (String, watch::Sender<ProcessView>, mpsc::Receiver<Event>) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let admin = Admin::bind(&AdminPlan::Tcp(any)).expect("bound");
        let address = admin.address.clone();
        let (publish, view) = watch::channel(ProcessView::default());
        let text = "[listener.a]\naddress = \"127.0.0.1:0\"\n[upstream.u]\n\
                    endpoints = [{ address = \"127.0.0.1:1\" }]\n\
                    [[route]]\nid = \"r\"\nprefix = \"/r\"\nupstream = \"u\"\n";
        let source = Source::Text { name: "test".to_owned(), text: text.to_owned() };
        let taken = source.load(&mut Ids::default(), 1).expect("valid").taken;
        let (_, taken) = watch::channel(taken);
        let (sender, events) = mpsc::channel(4);
        let measure: Measure = Arc::new(|view| view.resident_bytes = 7);
        tokio::spawn(admin.serve(Shown { view, taken, measure }, sender));
        (address, publish, events)
    }

    #[tokio::test]
    async fn the_resources_answer_and_everything_else_is_refused_in_json() {
        let (address, publish, _events) = serving();
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
        for (method, path, _) in resources() {
            assert!(missing.contains(&format!("\"{method} {path}\"")), "{path}: {missing}");
        }
        let version = exchange(&address, "GET /v1/version HTTP/1.1").await;
        assert!(version.ends_with(&format!("\"version\":\"{}\"}}", env!("CARGO_PKG_VERSION"))));
        let post = exchange(&address, "POST /v1/status HTTP/1.1\r\ncontent-length: 0").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.ends_with(r#""status":405}"#), "{post}");
        assert!(post.to_lowercase().contains("\r\nallow: get,head\r\n"), "{post}");
        let get = exchange(&address, "GET /v1/reload HTTP/1.1").await;
        assert!(get.starts_with("HTTP/1.1 405 ") && get.ends_with(r#""status":405}"#), "{get}");
        assert!(get.to_lowercase().contains("\r\nallow: post\r\n"), "{get}");
    }

    #[tokio::test]
    async fn the_configuration_is_shown_and_explained() {
        let (address, publish, _events) = serving();
        publish.send_modify(|view| view.config_applied_at_s = 1.5);
        let asked = || exchange(&address, "GET /v1/config HTTP/1.1");
        for config in <[String; 3]>::from(tokio::join!(asked(), asked(), asked())) {
            assert!(config.starts_with("HTTP/1.1 200 "), "{config}");
            let begins = r#"{"applied_at":"1970-01-01T00:00:01.500000Z","config":{"listener":"#;
            assert!(config.contains(begins), "{config}");
            assert!(config.ends_with(r#""files":["test"],"source":"","version":1}"#), "{config}");
        }
        let taken = exchange(&address, "GET /v1/explain?url=/r/x HTTP/1.1").await;
        assert!(taken.starts_with("HTTP/1.1 200 ") && taken.contains(r#""matched":true"#));
        let missed = exchange(&address, "GET /v1/explain?url=/x HTTP/1.1").await;
        assert!(missed.starts_with("HTTP/1.1 200 ") && missed.contains(r#""matched":false"#));
        for bad in ["", "?url=x", "?url=/&client=x", "?method=%20&url=/", "?url=/a%20b"] {
            let refused = exchange(&address, &format!("GET /v1/explain{bad} HTTP/1.1")).await;
            assert!(refused.starts_with("HTTP/1.1 400 "), "{bad}: {refused}");
            assert!(refused.ends_with(r#""status":400}"#), "{bad}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_reload_is_answered_when_it_is_decided() {
        let (address, _publish, mut events) = serving();
        let refusal = Refusal { reason: Reason::Rejected, text: "no".to_owned() };
        let outcomes = [
            Outcome::Applied { version: 7, workers: 2, ms: 12.3, warnings: String::new() },
            Outcome::Refused { refusal, version: 7 },
            Outcome::Unacknowledged { version: 8, workers: vec![0, 2] },
            Outcome::Draining,
        ];
        let answers = [
            (200, r#"{"ms":12.3,"version":7,"warnings":"","workers":2}"#),
            (422, r#"{"diagnostics":"no","error":"rejected","version":7}"#),
            (504, r#""version":8,"workers":[0,2]}"#),
            (503, r#"{"diagnostics":"no reload while draining","error":"draining"}"#),
        ];
        for (outcome, (status, body)) in outcomes.into_iter().zip(answers) {
            let asked = exchange(&address, "POST /v1/reload HTTP/1.1\r\ncontent-length: 0");
            let decided = async {
                let Some(Event::Reload(caller)) = events.recv().await else { panic!("a wish") };
                caller.send(outcome).expect("somebody waits");
            };
            let (answer, ()) = tokio::join!(asked, decided);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.ends_with(body), "{answer}");
        }
    }

    #[tokio::test]
    async fn what_a_page_of_another_site_could_send_is_refused() {
        let (address, _publish, mut events) = serving();
        for (headers, status) in [
            (format!("host: {address}"), 503),
            ("host: localhost".to_owned(), 503),
            ("host: LOCALHOST:9901".to_owned(), 503),
            ("host: [::1]:9901".to_owned(), 503),
            (format!("host: {address}\r\norigin: http://{address}"), 503),
            ("host: rebound.example".to_owned(), 403),
            ("host: rebound.example:9901".to_owned(), 403),
            ("host: localhost.example".to_owned(), 403),
            ("host: 127.0.0.1.example".to_owned(), 403),
            ("host: a@127.0.0.1".to_owned(), 403),
            ("host: localhost\r\nhost: evil.example".to_owned(), 403),
            ("host:".to_owned(), 403),
            (format!("host: {address}\r\norigin: http://evil.example"), 403),
            (format!("host: {address}\r\norigin: https://{address}"), 403),
            (format!("host: {address}\r\norigin: null"), 403),
        ] {
            let answer = exchange(&address, &format!("GET /v1/ready HTTP/1.1\r\n{headers}")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
            assert_eq!(answer.ends_with(r#""status":403}"#), status == 403, "{headers}: {answer}");
        }
        let post = "POST /v1/reload HTTP/1.1\r\ncontent-length: 0\r\nhost: localhost\r\n\
                    origin: http://evil.example";
        assert!(exchange(&address, post).await.starts_with("HTTP/1.1 403 "));
        assert!(events.try_recv().is_err(), "nothing was asked of the supervisor");
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
