//! A scripted origin: a thread a connection, a script a path, everything on record.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Deserialize;
use socket2::SockRef;

use super::grammar::{Request, Source, read_body, read_head};
use super::ms;

/// One act of the origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Reads the whole body.
    Body,
    /// Reads this many bytes of the body.
    BodyBytes(u64),
    /// 200 with the request line in `X-Seen` and the body "ok".
    Ok,
    /// Sends these bytes.
    Send(String),
    /// Lets milliseconds pass; ends early when the proxy gives the connection up.
    Sleep(u64),
    /// Sends 100 if the request expects it.
    Continue,
    /// Sends this many bytes of filling.
    Fill(u64),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Sends FIN and goes on.
    HalfClose,
    /// Reads nothing and says nothing until the proxy closes.
    Hang,
    /// Sends these bytes, then records all that comes.
    Tunnel(String),
    /// Sends 101 and then all that comes back.
    Echo,
}

/// What the origin does for a request.
pub type Script = Vec<Op>;

/// A connection as the origin saw it.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The first bytes that came, up to [`RAW_KEPT_BYTES`].
    pub raw: Vec<u8>,
    /// All bytes that came, in number.
    pub raw_bytes: u64,
    /// What came through the tunnel.
    pub tunnel: Vec<u8>,
    /// When the proxy closed it.
    pub closed: Option<Instant>,
    /// Whether it was the proxy that ended it, by FIN or RST.
    pub by_proxy: bool,
    /// Whether it ended by RST.
    pub reset: bool,
}

/// What is on record.
#[derive(Default)]
pub struct Record {
    scripts: HashMap<String, Vec<Script>>,
    fallback: Option<Script>,
    uses: HashMap<String, usize>,
    /// Requests in the order in which their request lines came.
    pub requests: Vec<Request>,
    /// Connections in the order in which they were taken.
    pub connections: Vec<Connection>,
    /// Requests being served now, and most at one time.
    pub in_flight: (usize, usize),
    era: u64,
    live: HashMap<usize, Wire>,
    stopped: bool,
}

impl Record {
    /// Requests that are no look-around of the suite itself.
    pub fn seen(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| !request.target.starts_with(b"/probe"))
    }

    fn script(&mut self, path: &str) -> Script {
        let default = || vec![Op::Body, Op::Ok];
        let Some(scripts) = self.scripts.get(path) else {
            let probe = path.starts_with("/probe");
            return self.fallback.clone().filter(|_| !probe).unwrap_or_else(default);
        };
        let uses = self.uses.entry(path.to_owned()).or_default();
        *uses += 1;
        match &scripts[..] {
            [only] => only.clone(),
            many => many.get(*uses - 1).cloned().unwrap_or_else(default),
        }
    }
}

struct Shared {
    record: Mutex<Record>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no thread panics while it holds the record")
    }

    fn change<T>(&self, act: impl FnOnce(&mut Record) -> T) -> T {
        let out = act(&mut self.lock());
        self.changed.notify_all();
        out
    }
}

/// The origin; it ends with all its connections when dropped.
pub struct Origin {
    shared: Arc<Shared>,
    /// Where it listens, as an endpoint's address is written.
    pub address: String,
}

impl Origin {
    /// Starts one on a free loopback port.
    pub fn start() -> Origin {
        Origin::at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts one here.
    pub fn at(address: SocketAddr) -> Origin {
        let listener = TcpListener::bind(address).expect("a loopback port for the origin");
        let address = listener.local_addr().expect("a bound socket has an address");
        Origin::serve(address.to_string(), move || {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(Wire::Tcp(Arc::new(stream)))
        })
    }

    /// Starts one on a Unix socket.
    pub fn unix(path: &Path) -> Origin {
        let listener = UnixListener::bind(path).expect("a Unix socket for the origin");
        Origin::serve(format!("unix:{}", path.display()), move || {
            Ok(Wire::Unix(Arc::new(listener.accept()?.0)))
        })
    }

    fn serve(
        address: String,
        mut accept: impl FnMut() -> io::Result<Wire> + Send + 'static,
    ) -> Origin {
        let shared =
            Arc::new(Shared { record: Mutex::new(Record::default()), changed: Condvar::new() });
        let origin = Origin { shared: shared.clone(), address };
        std::thread::spawn(move || {
            while let Ok(wire) = accept() {
                if shared.lock().stopped {
                    return;
                }
                let shared = shared.clone();
                std::thread::spawn(move || talk(&shared, wire));
            }
        });
        origin
    }

    /// Forgets what is on record and takes new scripts by path.
    pub fn reset(&self, scripts: impl IntoIterator<Item = (String, Vec<Script>)>) {
        self.shared.change(|record| {
            record.scripts = scripts.into_iter().collect();
            record.fallback = None;
            record.uses.clear();
            record.requests.clear();
            for connection in &mut record.connections {
                (connection.raw_bytes, connection.tunnel) = (0, Vec::new());
                connection.raw.clear();
            }
            record.in_flight.1 = record.in_flight.0;
            record.era += 1;
        });
    }

    /// Adds a script for a path.
    pub fn script(&self, path: &str, script: Script) {
        self.shared.change(|record| record.scripts.entry(path.into()).or_default().push(script));
    }

    /// What it does on paths that have no script.
    pub fn otherwise(&self, script: Script) {
        self.shared.change(|record| record.fallback = Some(script));
    }

    /// Reads the record.
    pub fn look<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        look(&self.shared.lock())
    }

    /// Waits until `ready` holds of the record.
    pub fn wait(&self, limit: Duration, mut ready: impl FnMut(&Record) -> bool) -> bool {
        let guard = self.shared.lock();
        let (guard, timeout) = self
            .shared
            .changed
            .wait_timeout_while(guard, limit, |record| !ready(record))
            .expect("no thread panics while it holds the record");
        drop(guard);
        !timeout.timed_out()
    }

    /// Closes every open connection, as a restarted service does.
    pub fn hang_up(&self) {
        let live: Vec<Wire> = self.shared.lock().live.values().cloned().collect();
        live.iter().for_each(|wire| drop(wire.shutdown(Shutdown::Both)));
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.look(|record| record.live.len())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.change(|record| record.stopped = true);
        self.hang_up();
        // The accept loop looks at `stopped` once a connection comes.
        match self.address.strip_prefix("unix:") {
            Some(path) => drop(UnixStream::connect(path)),
            None => drop(TcpStream::connect(&self.address)),
        }
    }
}

/// Serves one connection to its end.
fn talk(shared: &Shared, wire: Wire) {
    let number = shared.change(|record| {
        record.connections.push(Connection::default());
        record.live.insert(record.connections.len() - 1, wire.clone());
        record.connections.len() - 1
    });
    let mut talk = Talk { shared, wire, number, buffer: Vec::new(), by_us: false };
    let end = loop {
        match talk.exchange() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error.kind()),
        }
    };
    shared.change(|record| {
        let connection = &mut record.connections[number];
        connection.closed = Some(Instant::now());
        connection.by_proxy = !talk.by_us && end != Some(io::ErrorKind::InvalidData);
        connection.reset = end == Some(io::ErrorKind::ConnectionReset);
        record.live.remove(&number);
    });
}

struct Talk<'a> {
    shared: &'a Shared,
    wire: Wire,
    number: usize,
    buffer: Vec<u8>,
    by_us: bool,
}

impl Talk<'_> {
    /// One request and what its script says; false once this side has closed.
    fn exchange(&mut self) -> io::Result<bool> {
        let (shared, number) = (self.shared, self.number);
        let mut place: Option<(u64, usize)> = None;
        let mut request = read_head(self, &mut |request| {
            shared.change(|record| match place {
                None => {
                    record.in_flight.0 += 1;
                    record.in_flight.1 = record.in_flight.1.max(record.in_flight.0);
                    record.requests.push(Request { connection: number, ..request.clone() });
                    place = Some((record.era, record.requests.len() - 1));
                }
                Some(place) => update(record, place, number, request),
            });
        })
        .inspect_err(|_| {
            shared.change(|record| record.in_flight.0 -= usize::from(place.is_some()))
        })?;
        let place = place.expect("a head that was read has been recorded");
        let script = shared.lock().script(&request.path());
        let result = self.play(script, &mut request, place);
        shared.change(|record| {
            request.served = matches!(result, Ok(true));
            update(record, place, number, &request);
            record.in_flight.0 -= 1;
        });
        result
    }

    fn play(
        &mut self,
        script: Script,
        request: &mut Request,
        place: (u64, usize),
    ) -> io::Result<bool> {
        for op in script {
            if !self.act(op, request, place)? {
                return Ok(false);
            }
        }
        // After malformed bytes nothing that follows can be told apart.
        if !request.lint.faults.is_empty() {
            self.by_us = true;
            drop(self.wire.shutdown(Shutdown::Both));
            return Ok(false);
        }
        self.body(request, u64::MAX, place)?;
        Ok(true)
    }

    fn act(&mut self, op: Op, request: &mut Request, place: (u64, usize)) -> io::Result<bool> {
        match op {
            Op::Body => self.body(request, u64::MAX, place)?,
            Op::BodyBytes(count) => self.body(request, count, place)?,
            Op::Ok => self.send(&plain_answer(request))?,
            Op::Send(text) => self.send(&latin1(&text))?,
            Op::Sleep(time) => self.sleep(ms(time))?,
            Op::Continue if request.get("expect").is_some() => {
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            Op::Continue => {}
            Op::Fill(count) => self.fill(count)?,
            Op::Close | Op::Reset => {
                self.by_us = true;
                if matches!(op, Op::Reset) {
                    self.wire.linger_zero()?;
                    self.shared.change(|record| record.live.remove(&self.number));
                    self.wire.disconnect()?;
                } else {
                    self.wire.shutdown(Shutdown::Both)?;
                }
                return Ok(false);
            }
            Op::HalfClose => self.wire.shutdown(Shutdown::Write)?,
            Op::Hang => self.hang()?,
            Op::Tunnel(text) => {
                self.send(&latin1(&text))?;
                return self.tunnel(false);
            }
            Op::Echo => {
                self.send(SWITCHED)?;
                return self.tunnel(true);
            }
        }
        Ok(true)
    }

    fn body(&mut self, request: &mut Request, until: u64, place: (u64, usize)) -> io::Result<()> {
        let (shared, number) = (self.shared, self.number);
        read_body(self, request, until, &mut |request| {
            shared.change(|record| update(record, place, number, request));
        })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&self.wire).write_all(bytes)
    }

    fn fill(&mut self, count: u64) -> io::Result<()> {
        let block = [b'x'; 64 * 1024];
        let mut left = count;
        while left > 0 {
            let piece = left.min(block.len() as u64);
            self.send(&block[..usize::try_from(piece).expect("a block's length")])?;
            left -= piece;
        }
        Ok(())
    }

    /// Waits, with an eye on the connection.
    fn sleep(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wire.set_read_timeout(Some(left))?;
            let filled = self.refill();
            self.wire.set_read_timeout(None)?;
            match filled {
                Err(error) if is_timeout(&error) => break,
                other => other?,
            }
        }
        Ok(())
    }

    fn hang(&mut self) -> io::Result<()> {
        loop {
            self.buffer.clear();
            self.refill()?;
        }
    }

    fn tunnel(&mut self, echo: bool) -> io::Result<bool> {
        loop {
            let piece = std::mem::take(&mut self.buffer);
            if !piece.is_empty() {
                self.shared.change(|record| {
                    let tunnel = &mut record.connections[self.number].tunnel;
                    tunnel.extend_from_slice(&piece[..piece.len().min(RAW_KEPT_BYTES)]);
                });
                if echo {
                    self.send(&piece)?;
                }
            }
            self.refill()?;
        }
    }

    /// Reads once into the buffer.
    fn refill(&mut self) -> io::Result<()> {
        let mut block = [0; 64 * 1024];
        let count = (&self.wire).read(&mut block)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&block[..count]);
        let mut record = self.shared.lock();
        let connection = &mut record.connections[self.number];
        connection.raw_bytes += count as u64;
        let room = RAW_KEPT_BYTES.saturating_sub(connection.raw.len());
        connection.raw.extend_from_slice(&block[..count.min(room)]);
        Ok(())
    }
}

impl Source for Talk<'_> {
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                return Ok(self.buffer.drain(..=end).collect());
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.refill()?;
        }
    }

    fn some(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.refill()?;
        }
        let count = limit.min(self.buffer.len());
        Ok(self.buffer.drain(..count).collect())
    }
}

/// Puts the newest state of a request on record, unless the record was reset since.
fn update(record: &mut Record, place: (u64, usize), number: usize, request: &Request) {
    let (era, index) = place;
    if record.era == era {
        record.requests[index] = Request { connection: number, ..request.clone() };
    }
}

/// What the origin answers when nothing else is said.
pub fn plain_answer(request: &Request) -> Vec<u8> {
    let body = if request.method == b"HEAD" { "" } else { "ok" };
    let line = String::from_utf8_lossy(&request.line()).into_owned();
    format!("HTTP/1.1 200 OK\r\nX-Seen: {line}\r\nContent-Length: 2\r\n\r\n{body}").into_bytes()
}

/// Text of a case as bytes: every character is one, up to U+00FF.
pub fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a case holds bytes only")).collect()
}

/// Whether a read ended only because its time was over.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Either kind of socket.
#[derive(Clone)]
enum Wire {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl Wire {
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.shutdown(how),
            Wire::Unix(stream) => stream.shutdown(how),
        }
    }

    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.set_read_timeout(time),
            Wire::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    fn linger_zero(&self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => SockRef::from(&**stream).set_linger(Some(Duration::ZERO)),
            Wire::Unix(_) => Ok(()),
        }
    }

    /// Ends the connection now although `live` may still hold it: with linger 0, by RST.
    fn disconnect(&self) -> io::Result<()> {
        match self {
            // The last clone is dropped right after; that close sends the RST.
            Wire::Tcp(_) => Ok(()),
            Wire::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

impl Read for &Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => (&**stream).read(buffer),
            Wire::Unix(stream) => (&**stream).read(buffer),
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => (&**stream).write(bytes),
            Wire::Unix(stream) => (&**stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a connection that are kept.
pub const RAW_KEPT_BYTES: usize = 1 << 20;

/// Longest line that is read before the origin gives up.
const LINE_BYTES_MAX: usize = 4 << 20;

/// An answer to a WebSocket handshake; nothing here looks at the key.
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\n\r\n";
