//! The command line: verbs, exit codes, messages and signals.

mod harness;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use harness::{ms, poll};
use rustix::process::{Pid, Signal, kill_process};

fn ringway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(arguments)
        .env_remove("RINGWAY_LOG")
        .output()
        .expect("the binary runs")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of its own for one test.
fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{name}.toml"));
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn config(listener: &str, admin: &str) -> String {
    format!(
        "[runtime]\nworkers = 1\n\n[admin]\nlisten = \"{admin}\"\n\n\
         [listener.public]\naddress = \"{listener}\"\n\n\
         [upstream.app]\nendpoints = [{{ address = \"127.0.0.1:9001\" }}]\n\n\
         [[route]]\nid = \"all\"\nprefix = \"/\"\nupstream = \"app\"\n"
    )
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &["--nonsense"][..],
        &["nonsense"],
        &["run", "--nonsense"],
        &["status", "--admin", "nowhere"],
        &["reload", "--admin", "nowhere"],
        &["reload", "--admin", "127.0.0.1:1", "--config", "x"],
        &["status", "--admin", "127.0.0.1:1", "--config", "x"],
        &["explain", "GET"],
        &["explain", "GET", "/", "--admin", "nowhere"],
        &["explain", "GET", "/", "--admin", "127.0.0.1:1", "--config", "x"],
        &["explain", "GET", "/", "--client", "nobody"],
        &["--config", "x"],
    ] {
        let output = ringway(arguments);
        assert_eq!(code(&output), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty(), "{arguments:?} says why");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_names_every_verb_and_is_no_error() {
    let output = ringway(&["--help"]);
    assert_eq!(code(&output), Some(0));
    for verb in ["run", "check", "explain", "status", "reload", "demo", "version"] {
        assert!(stdout(&output).contains(&format!("\n  {verb} ")), "{verb}: {}", stdout(&output));
    }
}

#[test]
fn explain_says_whom_it_asks() {
    let text =
        stdout(&ringway(&["explain", "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "It asks the configuration file, unless --admin or --running says to ask a running proxy",
        "--config <FILE> Explain by this file [default: /etc/ringway/ringway.toml]",
        "--admin <ADDRESS> Ask the running proxy at this admin address",
        "--running Ask the running proxy that --config names",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_good_file_is_valid() {
    let path = file("good", &config("127.0.0.1:8080", "127.0.0.1:9901"));
    for arguments in
        [&["check", "--config", &path][..], &["-t", "--config", &path], &["-tc", &path]]
    {
        let output = ringway(arguments);
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let valid = "configuration is valid: 1 listener, 1 route, 1 upstream, 1 endpoint\n";
        assert_eq!(stdout(&output), valid);
    }
}

#[test]
fn a_bad_or_missing_file_is_78() {
    let bad = file("bad", &config("127.0.0.1:notaport", "127.0.0.1:9901"));
    let missing = format!("{bad}.missing");
    for path in [&bad, &missing] {
        for arguments in [
            &["check", "--config", path][..],
            &["-t", "--config", path],
            &["run", "--config", path],
        ] {
            let output = ringway(arguments);
            assert_eq!(code(&output), Some(78), "{arguments:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(&**path), "the file is named: {}", stderr(&output));
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn an_address_in_use_is_named_and_ends_the_start_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let listener = file("listener", &config(&address, "127.0.0.1:0"));
    let output = ringway(&["run", "--config", &listener]);
    assert_eq!(code(&output), Some(1));
    let expected = format!("listener public: somebody else already listens on {address}");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));

    let admin = file("admin", &config("127.0.0.1:0", &address));
    let output = ringway(&["run", "--config", &admin]);
    assert_eq!(code(&output), Some(1));
    let expected = format!("admin: somebody else already listens on {address}");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
}

#[test]
fn status_without_a_proxy_is_1_and_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.expect("an address").to_string();
    let output = ringway(&["status", "--admin", &address]);
    assert_eq!(code(&output), Some(1));
    assert_eq!(stderr(&output), format!("no status from {address}: nobody listens there\n"));
    let output = ringway(&["reload", "--admin", &address]);
    assert_eq!(code(&output), Some(1));
    assert_eq!(stderr(&output), format!("no reload by {address}: nobody listens there\n"));
    let output = ringway(&["explain", "GET", "/", "--admin", &address]);
    assert_eq!(code(&output), Some(1));
    assert_eq!(stderr(&output), format!("no explanation from {address}: nobody listens there\n"));
    let output = ringway(&["status", "--admin", "unix:/nonexistent/admin.sock"]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).ends_with(": nobody listens there\n"), "{}", stderr(&output));
}

#[test]
fn version_names_the_driver_and_the_kernel() {
    for arguments in [&["version"][..], &["-V"], &["--version"]] {
        let output = ringway(arguments);
        assert_eq!(code(&output), Some(0));
        let text = stdout(&output);
        assert!(text.starts_with(&format!("ringway {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
        for word in ["\nfeatures ", "\nkernel ", "\ndriver "] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }
}

/// A running proxy, ended when the test ends.
struct Proxy {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Proxy {
    fn run(config: &str) -> Proxy {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(["run", "--config", config])
            .env_remove("RINGWAY_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Proxy { child, log }
    }

    /// Reads the log up to the line with `text`.
    fn logs(&mut self, text: &str) -> String {
        let mut read = String::new();
        loop {
            let from = read.len();
            let count = self.log.read_line(&mut read).expect("the log is read");
            assert!(count > 0, "the log ends without {text:?}:\n{read}");
            if read[from..].contains(text) {
                return read;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_proxy_starts_reloads_refuses_and_drains_as_it_is_told() {
    let socket = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli-life.sock");
    let admin = format!("unix:{}", socket.display());
    let good = config("127.0.0.1:0", "ADMIN")
        .replace("listen = \"ADMIN\"", &format!("socket = \"{}\"", socket.display()));
    let path = file("life", &good);
    let mut proxy = Proxy::run(&path);
    let line = proxy.logs(" started: ");
    assert!(line.contains("workers 1, driver ") && line.contains(&admin), "{line}");

    let status = ringway(&["status", "--config", &path]);
    assert!(stdout(&status).contains(", ready\n"), "{}{}", stdout(&status), stderr(&status));
    proxy.signal(Signal::USR1);
    proxy.logs("USR1: there is no access log to open again");
    proxy.signal(Signal::USR2);
    proxy.logs("USR2 has no meaning yet");
    proxy.signal(Signal::HUP);
    proxy.logs("configuration 2 is in force on every worker");
    let reload = ringway(&["reload", "--config", &path]);
    assert_eq!(code(&reload), Some(0), "{}", stderr(&reload));
    let said = stdout(&reload);
    assert!(said.starts_with("configuration 3 is in force on 1 worker after "), "{said}");
    assert!(said.ends_with(" ms\n"), "{said}");

    file("life", "[listener");
    proxy.signal(Signal::HUP);
    proxy.logs("reload refused, configuration 3 stays in force");
    for arguments in [&["reload", "--admin", &admin][..], &["reload", "--config", &path]] {
        let reload = ringway(arguments);
        assert_eq!(code(&reload), Some(78), "{arguments:?}");
        assert!(stderr(&reload).contains(&format!("{path}:1")), "{}", stderr(&reload));
        assert!(stdout(&reload).is_empty(), "{arguments:?}");
    }
    file("life", &good.replace("workers = 1", "workers = 2"));
    let reload = ringway(&["reload", "--admin", &admin]);
    assert_eq!(code(&reload), Some(1));
    let why = "it changes `workers` of [runtime]: that needs a restart\n\
               reload refused, configuration 3 stays in force\n";
    assert_eq!(stderr(&reload), why);
    proxy.logs("it changes `workers` of [runtime]: that needs a restart");

    let status = ringway(&["status", "--admin", &admin, "--json"]);
    let text = stdout(&status);
    assert!(text.contains("\"last_reload_success\": false"), "{text}");
    assert!(text.contains("\"version\": 3"), "{text}");

    proxy.signal(Signal::TERM);
    proxy.logs("drained after");
    assert_eq!(proxy.child.wait().expect("it ended").code(), Some(0));
    assert!(!socket.exists(), "the socket is removed");
}

/// The kernel takes the rings of a killed process apart in its own time, and until then its sockets
/// are in use.
#[test]
fn a_killed_proxy_is_replaced_at_once() {
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let (listener, admin) = (free().expect("free").to_string(), free().expect("free").to_string());
    let path = file("killed", &config(&listener, &admin));
    let mut proxy = Proxy::run(&path);
    proxy.logs(" started: ");
    for _ in 0..5 {
        let open: Vec<_> =
            (0..50).map(|_| std::net::TcpStream::connect(&listener).expect("connected")).collect();
        proxy.signal(Signal::KILL);
        proxy.child.wait().expect("it ended");
        proxy = Proxy::run(&path);
        proxy.logs(" started: ");
        drop(open);
    }
}

/// Whether a process has a handler for HUP, USR1, USR2 and TERM.
fn takes_signals(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TERM]
        .iter()
        .all(|signal| caught >> (signal.as_raw() - 1) & 1 == 1)
}

/// Compiling a large file takes a while: what comes meanwhile waits.
#[test]
fn a_signal_while_it_starts_does_not_end_it() {
    let routes: String = (0..50_000)
        .map(|i| format!("[[route]]\nid = \"r{i}\"\npath = \"/{i}\"\nupstream = \"app\"\n"))
        .collect();
    let text = config("127.0.0.1:0", "127.0.0.1:0") + &routes;
    let path = file("early-signal", &text);
    let start = || {
        let child = Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(["run", "--config", &path])
            .env_remove("RINGWAY_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // That it has taken the signals over is the first thing that it does, long before it serves.
        assert!(poll(ms(5_000), || takes_signals(&child)), "the signals are taken over");
        child
    };
    let signal = |child: &Child, signal| {
        kill_process(Pid::from_child(child), signal).expect("it takes a signal");
    };
    let mut child = start();
    for early in [Signal::HUP, Signal::USR1, Signal::USR2] {
        signal(&child, early);
    }
    let log = BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = log.lines().map_while(Result::ok);
    let mut seen = String::new();
    let reloaded = lines.any(|line| {
        seen += &format!("{line}\n");
        line.contains("configuration 2 is in force")
    });
    assert!(reloaded, "HUP is a reload after the start: {seen}");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    let stopped = start();
    signal(&stopped, Signal::TERM);
    let output = stopped.wait_with_output().expect("it ends");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}
