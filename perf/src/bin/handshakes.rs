//! Load of whole connections: TCP, a TLS 1.3 handshake, one request, close, and again.
//!
//! Blocking threads, since a handshake costs a hundred times what a switch of threads does. Each
//! thread has its own tickets, so that with `--mode resumed` every connection has one: from the
//! connection before it.

#![expect(clippy::disallowed_methods, reason = "threads of a load generator block: no worker here")]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_perf::args::Args;
use ringway_perf::tls;
use ringway_perf::window::{self, Window};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

/// Threads, and so connections, at once.
const AT_ONCE_MAX: usize = 256;
/// Loopback addresses that connections come from in turn: closed ones keep their port for a
/// minute, and one address has 28,000.
const SOURCES: u64 = 64;
/// The longest answer head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A connection that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(10);
/// A thread that finds nobody answering does not spin.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// What the command line says.
struct Settings {
    server: SocketAddrV4,
    name: ServerName<'static>,
    request: Vec<u8>,
    cert: PathBuf,
    resumes: bool,
    at_once: usize,
    warm_up: Duration,
    window: Duration,
}

fn main() -> ExitCode {
    match settings().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("handshakes: {message}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, String> {
    let known = ["connect", "name", "path", "cert", "mode", "at-once", "warm-up-ms", "ms"];
    let args = Args::parse(std::env::args().skip(1), &known)?;
    let name = args.get("name", "localhost".to_owned())?;
    let path = args.get("path", "/1k".to_owned())?;
    let resumes = match args.get("mode", "full".to_owned())?.as_str() {
        "full" => false,
        "resumed" => true,
        other => return Err(format!("--mode {other:?} is not full or resumed")),
    };
    let at_once = args.get("at-once", 16)?;
    if !(1..=AT_ONCE_MAX).contains(&at_once) {
        return Err(format!("--at-once is 1 to {AT_ONCE_MAX}"));
    }
    let (warm_up, window) = window::durations(&args)?;
    Ok(Settings {
        server: args.get("connect", SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8443))?,
        request: format!("GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n").into_bytes(),
        name: ServerName::try_from(name).map_err(|e| format!("--name: {e}"))?,
        cert: args.get("cert", PathBuf::from("cert.pem"))?,
        resumes,
        at_once,
        warm_up,
        window,
    })
}

/// What the threads share.
struct Load {
    settings: Settings,
    window: Window,
    /// Connections begun, for the source addresses.
    begun: AtomicU64,
    /// Connections in the window that resumed.
    resumed: AtomicU64,
    /// Bytes of answers in the window.
    bytes: AtomicU64,
}

fn run(settings: Settings) -> Result<(), String> {
    let configs: Vec<_> = (0..settings.at_once)
        .map(|_| tls::client(&settings.cert, settings.resumes).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let load = Load {
        settings,
        window: Window::default(),
        begun: AtomicU64::new(0),
        resumed: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let took = thread::scope(|scope| {
        for config in configs {
            scope.spawn(|| repeat(&load, config));
        }
        thread::sleep(load.settings.warm_up);
        let begin = Instant::now();
        load.window.begin();
        thread::sleep(load.settings.window);
        load.window.end();
        begin.elapsed()
    });
    let [resumed, bytes] = [&load.resumed, &load.bytes].map(|n| n.load(Ordering::Relaxed));
    load.window.report(took, &[("resumed", resumed), ("bytes", bytes)]);
    Ok(())
}

/// One connection after the other until the window ends.
fn repeat(load: &Load, config: Arc<ClientConfig>) {
    // A thread's first connection has no ticket yet.
    let mut has_ticket = false;
    while load.window.goes_on() {
        let start = Instant::now();
        match connect_once(load, &config) {
            Ok((kind, bytes)) => {
                let resumed = kind == HandshakeKind::Resumed;
                if load.settings.resumes && has_ticket && !resumed {
                    load.window.error(&"the server did not resume");
                }
                has_ticket = true;
                if load.window.is_open() {
                    load.resumed.fetch_add(u64::from(resumed), Ordering::Relaxed);
                    load.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                load.window.done(start.elapsed());
            }
            Err(e) => {
                load.window.error(&e);
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

/// A connection from its first to its last byte; how it was agreed on, and the answer's length.
fn connect_once(load: &Load, config: &Arc<ClientConfig>) -> io::Result<(HandshakeKind, u64)> {
    let tcp = connect_from(load.begun.fetch_add(1, Ordering::Relaxed), load.settings.server)?;
    let client = ClientConnection::new(config.clone(), load.settings.name.clone())
        .map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(client, tcp);
    stream.write_all(&load.settings.request)?;
    let bytes = read_answer(&mut stream)?;
    let kind = stream.conn.handshake_kind().ok_or_else(|| invalid("no handshake"))?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok((kind, bytes))
}

fn connect_from(number: u64, server: SocketAddrV4) -> io::Result<TcpStream> {
    let last = u8::try_from(1 + number % SOURCES).unwrap_or(1);
    let source = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &source)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_write_timeout(Some(PATIENCE))?;
    rustix::net::connect(&tcp, &server)?;
    Ok(tcp)
}

/// Reads one whole answer with a Content-Length and status 200; its bytes.
fn read_answer(stream: &mut impl Read) -> io::Result<u64> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::with_capacity(2048);
    let mut piece = [0; 4096];
    let head_bytes = loop {
        if let Some(at) = head.windows(END.len()).position(|window| window == END) {
            break at + END.len();
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(invalid("an answer head over 16 KiB"));
        }
        head.extend_from_slice(read_some(stream, &mut piece)?);
    };
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Err(invalid("a status other than 200"));
    }
    let whole = head_bytes + content_length(&head[..head_bytes])?;
    let mut have = head.len();
    while have < whole {
        have += read_some(stream, &mut piece)?.len();
    }
    if have > whole {
        return Err(invalid("more bytes than the answer has"));
    }
    Ok(whole as u64)
}

fn read_some<'a>(stream: &mut impl Read, piece: &'a mut [u8]) -> io::Result<&'a [u8]> {
    match stream.read(piece)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => Ok(&piece[..bytes]),
    }
}

fn content_length(head: &[u8]) -> io::Result<usize> {
    const NAME: &[u8] = b"content-length:";
    head.split(|&byte| byte == b'\n')
        .find(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))
        .and_then(|line| std::str::from_utf8(&line[NAME.len()..]).ok())
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| invalid("no valid Content-Length"))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(read_answer(&mut &answer[..]).expect("valid"), answer.len() as u64);
        assert!(read_answer(&mut &answer[..answer.len() - 1]).is_err());
        assert!(read_answer(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx"[..]).is_err());
    }

    #[test]
    fn other_answers_are_errors() {
        assert!(read_answer(&mut &b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n"[..]).is_err());
        assert!(read_answer(&mut &b"HTTP/1.1 200 OK\r\n\r\n"[..]).is_err());
    }
}
