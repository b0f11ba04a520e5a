//! The proxy as a process: a generated configuration, free ports, readiness, status, metrics.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::{ask, plain_get};
use super::process::Process;
use super::{PATIENCE, ms, poll, show};

/// A configuration, section by section; [`Settings::text`] is the file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `runtime.driver`
    pub driver: &'static str,
    /// `runtime.workers`
    pub workers: usize,
    /// More lines of `[runtime]`.
    pub runtime: String,
    /// Lines of `[listener.main]` but the address.
    pub listener: String,
    /// The upstreams: whole sections.
    pub upstreams: String,
    /// The routes: whole sections.
    pub routes: String,
    /// Variables of its environment, beside those of the test.
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Settings {
    /// Everything to one origin, with timeouts of a second, so that a suite is quick.
    pub fn new(driver: &'static str, origin: &str) -> Settings {
        Settings {
            driver,
            workers: 1,
            runtime: String::new(),
            listener:
                "timeouts = { head = \"1s\", body = \"1s\", idle = \"1s\", write = \"1s\" }\n"
                    .into(),
            upstreams: upstream("main", &[endpoint(origin, 1)], ""),
            routes: route("all", "prefix = \"/\"", "main", ""),
            environment: Vec::new(),
        }
    }

    /// With so many workers.
    pub fn workers(mut self, workers: usize) -> Settings {
        self.workers = workers;
        self
    }

    /// With other lines in `[listener.main]`.
    pub fn listener(mut self, lines: &str) -> Settings {
        self.listener = lines.into();
        self
    }

    /// With other upstreams.
    pub fn upstreams(mut self, sections: impl Into<String>) -> Settings {
        self.upstreams = sections.into();
        self
    }

    /// With other routes.
    pub fn routes(mut self, sections: impl Into<String>) -> Settings {
        self.routes = sections.into();
        self
    }

    /// With more lines in `[runtime]`.
    pub fn runtime(mut self, lines: &str) -> Settings {
        self.runtime = lines.into();
        self
    }

    /// With one more variable in its environment.
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Settings {
        self.environment.push((name, value));
        self
    }

    fn text(&self, address: SocketAddr, admin: SocketAddr) -> String {
        let Settings { driver, workers, runtime, listener, upstreams, routes, .. } = self;
        format!(
            "[runtime]\nworkers = {workers}\ndriver = \"{driver}\"\n{runtime}\n\
             [admin]\nlisten = \"{admin}\"\n\n\
             [listener.main]\naddress = \"{address}\"\n{listener}\n{upstreams}\n{routes}\n"
        )
    }
}

/// One element of `endpoints`.
pub fn endpoint(address: &str, weight: u32) -> String {
    format!("{{ address = \"{address}\", weight = {weight} }}")
}

/// An `[upstream.NAME]` section; `more` replaces the timeouts of a second.
pub fn upstream(name: &str, endpoints: &[String], more: &str) -> String {
    let short = "timeouts = { connect = \"1s\", response = \"1s\", body = \"1s\", idle = \"5s\", \
                 tunnel = \"2s\" }";
    let more = if more.is_empty() { short } else { more };
    format!("[upstream.{name}]\nendpoints = [{}]\n{more}\n\n", endpoints.join(", "))
}

/// A `[[route]]` section.
pub fn route(id: &str, matcher: &str, upstream: &str, more: &str) -> String {
    format!("[[route]]\nid = \"{id}\"\n{matcher}\nupstream = \"{upstream}\"\n{more}\n\n")
}

/// A running proxy. When it is dropped it must still be alive and must not have panicked.
pub struct Proxy {
    child: Child,
    directory: PathBuf,
    settings: Settings,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where the admin interface listens.
    pub admin: SocketAddr,
    /// Panics are part of the test.
    pub may_panic: bool,
    ended: bool,
}

impl Proxy {
    /// Starts it, waits until it is ready and checks that the driver is the one asked for.
    pub fn start(settings: Settings) -> Proxy {
        let (address, admin) = (free_address(), free_address());
        let directory = scratch();
        fs::write(directory.join("ringway.toml"), settings.text(address, admin))
            .expect("the scratch directory takes the configuration");
        let log = fs::File::create(directory.join("stderr")).expect("a file for stderr");
        let child = Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(["run", "--config"])
            .arg(directory.join("ringway.toml"))
            .envs(settings.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let mut proxy =
            Proxy { child, directory, settings, address, admin, may_panic: false, ended: false };
        let ready = poll(PATIENCE, || {
            let ended = proxy.child.try_wait().ok().flatten();
            assert!(ended.is_none(), "it ended with {ended:?}: {}", proxy.log());
            proxy.admin_get("/v1/ready").is_ok_and(|(status, _)| status == 200)
        });
        assert!(ready, "not ready in {PATIENCE:?}: {}", proxy.log());
        assert_eq!(proxy.driver(), proxy.settings.driver, "another driver runs: {}", proxy.log());
        proxy
    }

    /// The process.
    pub fn process(&self) -> Process {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Process(pid.expect("a child has a process id"))
    }

    /// What it wrote to standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("stderr")).unwrap_or_default()
    }

    /// A directory of its own, for sockets and files of the test.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Status and body of an admin page.
    ///
    /// # Errors
    /// Nobody listens there, or no answer came.
    pub fn admin_get(&self, path: &str) -> io::Result<(u16, Vec<u8>)> {
        self.admin_ask(&format!("GET {path}"), Duration::from_secs(5))
    }

    /// Status and body of the answer to a request without a body, which may take `limit`.
    ///
    /// # Errors
    /// Nobody listens there, or no answer came.
    pub fn admin_ask(&self, request: &str, limit: Duration) -> io::Result<(u16, Vec<u8>)> {
        let (admin, length) = (self.admin, "Content-Length: 0");
        let text =
            format!("{request} HTTP/1.1\r\nHost: {admin}\r\n{length}\r\nConnection: close\r\n\r\n");
        let received = ask(admin, text.as_bytes(), limit)?;
        let last = received.finals.into_iter().next_back().ok_or(io::ErrorKind::InvalidData)?;
        Ok((last.status, last.body))
    }

    /// `POST /v1/reload`: status and answer.
    pub fn reload(&self) -> (u16, Value) {
        let asked = self.admin_ask("POST /v1/reload", Duration::from_secs(15));
        let (status, body) = asked.expect("the admin interface answers");
        let answer = serde_json::from_slice(&body);
        (status, answer.unwrap_or_else(|error| panic!("{error}: {}", show(&body))))
    }

    /// The file as [`Proxy::rewrite`] would put it, for other sections to be added to.
    pub fn text(&self, settings: &Settings) -> String {
        settings.text(self.address, self.admin)
    }

    /// `/v1/status`
    pub fn status(&self) -> Value {
        let (status, body) = self.admin_get("/v1/status").expect("the admin interface answers");
        assert_eq!(status, 200, "status page");
        serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {}", show(&body)))
    }

    /// Name of the driver that runs, from the status page.
    pub fn driver(&self) -> String {
        let status = self.status();
        find_text(&status, "driver").unwrap_or_else(|| panic!("no driver in {status}"))
    }

    /// Sum of the series of a metric whose labels contain `labels`.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let (_, body) = self.admin_get("/metrics").expect("the admin interface answers");
        metric(&String::from_utf8_lossy(&body), name, labels)
    }

    /// Errors counted under a stable code.
    pub fn errors(&self, code: &str) -> f64 {
        self.metric("ringway_errors_total", &format!("code=\"{code}\""))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process().0, signal).expect("the process takes a signal");
    }

    /// Puts another configuration in the file; a signal makes it count.
    pub fn rewrite(&mut self, settings: Settings) {
        let text = settings.text(self.address, self.admin);
        self.settings = settings;
        self.rewrite_raw(&text);
    }

    /// Puts any text in the file, by renaming, as editors do.
    pub fn rewrite_raw(&self, text: &str) {
        let (new, file) = (self.directory.join("new.toml"), self.directory.join("ringway.toml"));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).expect("a new configuration");
    }

    /// The configuration that it started with, or that was put last.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits for the process to end.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        let child = &mut self.child;
        let mut status = None;
        poll(limit, || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        self.ended = status.is_some();
        status
    }

    /// A plain GET through the proxy; says what is wrong with the answer.
    pub fn probe(&self, path: &str) -> Result<(), String> {
        let received = ask(self.address, &plain_get(path), Duration::from_secs(5))
            .map_err(|error| format!("a plain GET afterwards: {error}"))?;
        let seen = format!("GET {path}").into_bytes();
        match &received.finals[..] {
            [one] if one.status == 200 && one.get("x-seen") == Some(&seen) && one.complete => {
                Ok(())
            }
            other => Err(format!(
                "a plain GET afterwards got {:?}",
                other
                    .iter()
                    .map(|one| (one.status, one.code(), show(&one.body)))
                    .collect::<Vec<_>>()
            )),
        }
    }
}

impl Proxy {
    /// A killed process writes no coverage: the first signal begins a drain, the second ends it.
    fn leave_in_order(&mut self) {
        let pid = Pid::from_child(&self.child);
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            let _ = kill_process(pid, Signal::TERM);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let died = self.child.try_wait().ok().flatten().filter(|_| !self.ended);
        if std::env::var_os("LLVM_PROFILE_FILE").is_some() && died.is_none() && !self.ended {
            self.leave_in_order();
        }
        drop(self.child.kill());
        drop(self.child.wait());
        let log = self.log();
        drop(fs::remove_dir_all(&self.directory));
        if std::thread::panicking() {
            return;
        }
        assert!(died.is_none(), "the proxy died with {died:?}: {log}");
        assert!(self.may_panic || !log.contains("panicked"), "the proxy panicked: {log}");
    }
}

/// The first text under this key, at any depth.
pub fn find_text(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Object(map) => {
            let here = map.get(key).and_then(Value::as_str).map(str::to_owned);
            here.or_else(|| map.values().find_map(|value| find_text(value, key)))
                .or_else(|| map.get(key).and_then(|value| find_text(value, "name")))
        }
        Value::Array(list) => list.iter().find_map(|value| find_text(value, key)),
        _ => None,
    }
}

/// Sum of the series of a metric whose labels contain `labels`.
pub fn metric(page: &str, name: &str, labels: &str) -> f64 {
    page.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// A loopback address that nobody listens on. Below the range that outgoing connections take their
/// ports from, and never the same one twice in a process.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 1_000).expect("a small number") * 20;
    loop {
        let port = 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A new empty directory.
pub fn scratch() -> PathBuf {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let name = format!("ringway-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).expect("a directory for the test");
    directory
}

/// A directory of a test's own, gone with it.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new empty one.
    pub fn new() -> Folder {
        Folder(scratch())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Time in which the proxy lets an origin go once a client is gone: a sweep or two, and the
/// machine may be busy.
pub const LET_GO: Duration = Duration::from_secs(2);

/// A second, the timeout that [`Settings::new`] sets, with what sweeps and a busy machine add.
pub fn timeout_bound() -> Duration {
    ms(2_500)
}
