//! A client that sends the bytes it is told to and keeps all that comes back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::ms;
use super::response::{End, Received, parse};

#[derive(Default)]
struct Inbox {
    data: Vec<u8>,
    end: Option<End>,
    end_at: Option<Instant>,
    last_at: Option<Instant>,
    paused: bool,
    gone: bool,
}

#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("no thread panics while it holds the inbox")
    }
}

/// One connection, read by a thread of its own.
pub struct Client {
    stream: Option<Arc<TcpStream>>,
    shared: Arc<Shared>,
    /// Methods of the requests, so that answers to HEAD are understood.
    pub methods: Vec<Vec<u8>>,
    /// When it connected.
    pub opened: Instant,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens, or nobody takes the connection.
    pub fn open(address: SocketAddr) -> io::Result<Client> {
        Client::open_with(address, None)
    }

    /// Connects with a receive buffer of so many bytes.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn open_with(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<Client> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect_timeout(&address.into(), Duration::from_secs(5))?;
        let stream = Arc::new(TcpStream::from(socket));
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let shared = Arc::new(Shared::default());
        let reader = (stream.clone(), shared.clone());
        std::thread::spawn(move || read_all(&reader.0, &reader.1));
        let opened = Instant::now();
        Ok(Client { stream: Some(stream), shared, methods: Vec::new(), opened })
    }

    /// Sends bytes; false if the connection is gone or stuck for ten seconds.
    pub fn send(&self, bytes: &[u8]) -> bool {
        self.stream.as_ref().is_some_and(|stream| (&**stream).write_all(bytes).is_ok())
    }

    /// Sends for as long as the other side takes it, at most until `limit`; says how much it took.
    pub fn pour(&self, count: u64, limit: Duration) -> u64 {
        let Some(stream) = &self.stream else { return 0 };
        let (end, block) = (Instant::now() + limit, [b'x'; 64 * 1024]);
        let mut sent = 0;
        while sent < count {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stream.set_write_timeout(Some(left.max(ms(1)))).is_err() {
                break;
            }
            let piece = usize::try_from(count - sent).unwrap_or(usize::MAX).min(block.len());
            match (&**stream).write(&block[..piece]) {
                Ok(taken) if taken > 0 => sent += taken as u64,
                _ => break,
            }
        }
        drop(stream.set_write_timeout(Some(Duration::from_secs(10))));
        sent
    }

    /// Sends one byte at a time; stops when the connection ends.
    pub fn drip(&self, bytes: &[u8], every: Duration) {
        for byte in bytes {
            if self.wait_end(Duration::ZERO) || !self.send(&[*byte]) {
                return;
            }
            self.wait_end(every);
        }
    }

    /// Waits until these bytes stand in what came.
    pub fn wait_text(&self, text: &[u8]) -> bool {
        self.wait(ms(3_000), |inbox| super::contains(&inbox.data, text))
    }

    /// Waits until `ready` holds or the connection ended; whether `ready` holds.
    fn wait(&self, limit: Duration, mut ready: impl FnMut(&Inbox) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut inbox = self.shared.lock();
        loop {
            if ready(&inbox) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || inbox.end.is_some() {
                return false;
            }
            let woken = self.shared.changed.wait_timeout(inbox, left);
            inbox = woken.expect("no thread panics while it holds the inbox").0;
        }
    }

    /// Waits for so many complete final responses; false if they do not come in time.
    pub fn wait_responses(&self, count: usize, limit: Duration) -> bool {
        let mut looked_at = usize::MAX;
        self.wait(limit, |inbox| {
            // The parse is the dear part: only where something new came.
            let new = looked_at != inbox.data.len() || inbox.end.is_some();
            looked_at = inbox.data.len();
            new && parse(&inbox.data, &self.methods, inbox.end).complete() >= count
        })
    }

    /// Waits for any response, interim or final.
    pub fn wait_any(&self, limit: Duration) -> Received {
        self.wait(limit, |inbox| {
            let received = parse(&inbox.data, &self.methods, inbox.end);
            !received.finals.is_empty() || !received.interims.is_empty()
        });
        self.received()
    }

    /// Waits until so many bytes came in all.
    pub fn wait_bytes(&self, count: usize, limit: Duration) -> bool {
        self.wait(limit, |inbox| inbox.data.len() >= count)
    }

    /// Waits until the other side ends the connection.
    pub fn wait_end(&self, limit: Duration) -> bool {
        self.wait(limit, |inbox| inbox.end.is_some())
    }

    /// Waits until nothing came for `quiet`, or the connection ended.
    pub fn settle(&self, quiet: Duration) {
        let mut count = self.bytes();
        while self.wait(quiet, |inbox| inbox.data.len() > count) {
            count = self.bytes();
        }
    }

    /// Bytes that came so far.
    pub fn bytes(&self) -> usize {
        self.shared.lock().data.len()
    }

    /// What came, understood.
    pub fn received(&self) -> Received {
        let inbox = self.shared.lock();
        parse(&inbox.data, &self.methods, inbox.end)
    }

    /// What came, as it is.
    pub fn raw(&self) -> Vec<u8> {
        self.shared.lock().data.clone()
    }

    /// How the other side ended the connection, if it did.
    pub fn end(&self) -> Option<End> {
        self.shared.lock().end
    }

    /// Time from connecting to the end, or to the last byte where it has not ended.
    pub fn took(&self) -> Duration {
        let inbox = self.shared.lock();
        let last = inbox.end_at.or(inbox.last_at).unwrap_or_else(Instant::now);
        last.saturating_duration_since(self.opened)
    }

    /// Time from connecting to the last byte.
    pub fn last_byte(&self) -> Duration {
        let last = self.shared.lock().last_at.unwrap_or_else(Instant::now);
        last.saturating_duration_since(self.opened)
    }

    /// Stops or goes on reading.
    pub fn set_paused(&self, paused: bool) {
        self.shared.lock().paused = paused;
        self.shared.changed.notify_all();
    }

    /// Sends FIN.
    pub fn half_close(&self) {
        if let Some(stream) = &self.stream {
            drop(stream.shutdown(Shutdown::Write));
        }
    }

    /// Sends RST, now.
    pub fn reset(&mut self) {
        self.shared.lock().gone = true;
        self.shared.changed.notify_all();
        if let Some(stream) = self.stream.take() {
            reset(&stream);
        }
    }

    /// Closes, now.
    pub fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.lock().gone = true;
        self.set_paused(false);
        self.close();
    }
}

/// Ends a connection by RST although a thread may be reading it: the shutdown of the reading side
/// makes the reader let go, and with linger 0 the last close sends the RST.
fn reset(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    drop(socket.set_linger(Some(Duration::ZERO)));
    drop(stream.shutdown(Shutdown::Read));
}

fn read_all(stream: &TcpStream, shared: &Shared) {
    let mut block = vec![0; 256 * 1024];
    let end = loop {
        let mut inbox = shared.lock();
        while inbox.paused && !inbox.gone {
            inbox = shared.changed.wait(inbox).expect("no thread panics while it holds the inbox");
        }
        if inbox.gone {
            return;
        }
        drop(inbox);
        match (&*stream).read(&mut block) {
            Ok(0) => break End::Finished,
            Ok(count) => {
                let mut inbox = shared.lock();
                inbox.data.extend_from_slice(&block[..count]);
                inbox.last_at = Some(Instant::now());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break End::Reset,
        }
        shared.changed.notify_all();
    };
    let mut inbox = shared.lock();
    inbox.end = Some(end);
    inbox.end_at = Some(Instant::now());
    drop(inbox);
    shared.changed.notify_all();
}

/// Asks once, on a connection of its own that the answer closes.
///
/// # Errors
/// No connection, or no complete answer in time.
pub fn ask(address: SocketAddr, request: &[u8], limit: Duration) -> io::Result<Received> {
    let client = Client::open(address)?;
    client.send(request);
    if client.wait_responses(1, limit) {
        return Ok(client.received());
    }
    let text = format!("no answer in {limit:?} but {}", super::show(&client.raw()));
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// A plain GET that asks for the connection to be closed.
pub fn plain_get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").into_bytes()
}
