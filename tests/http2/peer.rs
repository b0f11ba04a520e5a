//! One end of a connection: what comes is read and checked in a thread, what is sent is up to the
//! case.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::frame::{CONTINUATION, END_HEADERS, Frame, HEADERS, PING, PREFACE, PUSH_PROMISE};
use super::watch::{Role, Watch};
use crate::harness::PATIENCE;

/// How the other side ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By FIN.
    Finished,
    /// By RST.
    Reset,
}

/// What is known of a connection.
#[derive(Debug)]
pub struct State {
    /// What came.
    pub watch: Watch,
    /// How it ended.
    pub end: Option<End>,
    /// When it ended.
    pub ended_at: Option<Instant>,
    /// Bytes that are no whole frame yet.
    rest: Vec<u8>,
    /// Nothing is read while this holds.
    paused: bool,
    /// This end is gone.
    gone: bool,
    /// SETTINGS and PING are not answered.
    mute: bool,
    /// Answers that wait for the end of a header block of ours.
    held: Vec<Frame>,
    in_block: bool,
    preface: bool,
}

impl State {
    /// Whether this end was closed.
    pub fn is_gone(&self) -> bool {
        self.gone
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    writing: Mutex<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the state")
    }
}

/// One end of a connection. It is closed when it is dropped.
pub struct Peer {
    stream: Arc<TcpStream>,
    shared: Arc<Shared>,
    role: Role,
}

impl Peer {
    /// Connects and says nothing.
    ///
    /// # Errors
    /// Nobody listens, or nobody takes the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Peer> {
        Peer::connect_with(address, None)
    }

    /// Connects with a receive buffer of so many bytes.
    ///
    /// # Errors
    /// As [`Peer::connect`].
    pub fn connect_with(address: SocketAddr, receive_buffer: Option<usize>) -> io::Result<Peer> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect_timeout(&address.into(), Duration::from_secs(5))?;
        Ok(Peer::new(TcpStream::from(socket), Role::Client))
    }

    /// Connects, and settings are exchanged.
    ///
    /// # Errors
    /// As [`Peer::connect`], or no SETTINGS came.
    pub fn open(address: SocketAddr, settings: &[(u16, u32)]) -> io::Result<Peer> {
        let peer = Peer::connect(address)?;
        peer.begin(settings);
        if peer.wait(PATIENCE, |state| state.watch.settings_frames > 0 && state.watch.acks > 0) {
            return Ok(peer);
        }
        let text = peer.look(|state| format!("no SETTINGS but {:?} {:?}", state.watch, state.end));
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// The side of a server, on a connection that it took.
    pub fn accepted(stream: TcpStream) -> Peer {
        Peer::new(stream, Role::Server)
    }

    fn new(stream: TcpStream, role: Role) -> Peer {
        drop(stream.set_nodelay(true));
        drop(stream.set_write_timeout(Some(Duration::from_secs(5))));
        let state = State {
            watch: Watch::new(role),
            end: None,
            ended_at: None,
            rest: Vec::new(),
            paused: false,
            gone: false,
            mute: false,
            held: Vec::new(),
            in_block: false,
            preface: role == Role::Client,
        };
        let shared =
            Shared { state: Mutex::new(state), changed: Condvar::new(), writing: Mutex::new(()) };
        let (stream, shared) = (Arc::new(stream), Arc::new(shared));
        let reader = (stream.clone(), shared.clone());
        std::thread::spawn(move || read_all(&reader.0, &reader.1));
        Peer { stream, shared, role }
    }

    /// Sends the preface, if it is a client's, and SETTINGS.
    pub fn begin(&self, settings: &[(u16, u32)]) -> bool {
        let preface = self.role == Role::Server || self.send(PREFACE);
        preface && self.frame(&Frame::settings(settings))
    }

    /// Sends bytes; false if the connection is gone or stuck.
    pub fn send(&self, bytes: &[u8]) -> bool {
        let _writing = self.shared.writing.lock().expect("no thread panics while it writes");
        (&*self.stream).write_all(bytes).is_ok()
    }

    /// Sends a frame.
    pub fn frame(&self, frame: &Frame) -> bool {
        self.frames(std::slice::from_ref(frame))
    }

    /// Sends frames in one write.
    pub fn frames(&self, frames: &[Frame]) -> bool {
        let mut bytes = Vec::new();
        for frame in frames {
            self.note(frame);
            bytes.extend_from_slice(&frame.bytes());
        }
        let sent = self.send(&bytes);
        let state = &mut *self.shared.lock();
        if !state.in_block {
            let held: Vec<u8> = state.held.drain(..).flat_map(|frame| frame.bytes()).collect();
            return sent && (held.is_empty() || self.send(&held));
        }
        sent
    }

    /// Takes note of a frame, so that answers do not stand inside a header block.
    pub fn note(&self, frame: &Frame) {
        let mut state = self.shared.lock();
        state.watch.sent(frame);
        if matches!(frame.kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            state.in_block = !frame.has(END_HEADERS);
        }
    }

    /// Waits until `ready` holds or the connection ended; whether it holds.
    pub fn wait(&self, limit: Duration, mut ready: impl FnMut(&State) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.shared.lock();
        loop {
            if ready(&state) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state.end.is_some() {
                return false;
            }
            let woken = self.shared.changed.wait_timeout(state, left);
            state = woken.expect("no thread panics while it holds the state").0;
        }
    }

    /// Waits for the end of the connection.
    pub fn wait_end(&self, limit: Duration) -> bool {
        self.wait(limit, |state| state.end.is_some())
    }

    /// Looks at what is known.
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.lock())
    }

    /// Stops or goes on reading.
    pub fn set_paused(&self, paused: bool) {
        self.shared.lock().paused = paused;
        self.shared.changed.notify_all();
    }

    /// SETTINGS and PING are not answered from now on.
    pub fn set_mute(&self) {
        self.shared.lock().mute = true;
    }

    /// Whether a PING is answered.
    pub fn pong(&self, mark: &[u8; 8], limit: Duration) -> bool {
        self.frame(&Frame::new(PING, 0, 0, *mark));
        self.wait(limit, |state| state.watch.pongs.iter().any(|pong| pong == mark))
    }

    /// Sends FIN.
    pub fn half_close(&self) {
        drop(self.stream.shutdown(Shutdown::Write));
    }

    /// Ends the connection, by FIN or by RST.
    pub fn close(&self, reset: bool) {
        self.shared.lock().gone = true;
        self.shared.changed.notify_all();
        if reset {
            drop(SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO)));
            drop(self.stream.shutdown(Shutdown::Read));
        } else {
            drop(self.stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.set_paused(false);
        self.close(false);
    }
}

fn read_all(stream: &TcpStream, shared: &Shared) {
    let mut block = vec![0; 256 * 1024];
    let end = loop {
        let mut state = shared.lock();
        while state.paused && !state.gone {
            state = shared.changed.wait(state).expect("no thread panics while it holds the state");
        }
        if state.gone {
            return;
        }
        drop(state);
        match (&*stream).read(&mut block) {
            Ok(0) => break End::Finished,
            Ok(count) => take(stream, shared, &block[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break End::Reset,
        }
        shared.changed.notify_all();
    };
    let mut state = shared.lock();
    state.end = Some(end);
    state.ended_at = Some(Instant::now());
    drop(state);
    shared.changed.notify_all();
}

/// Takes what came, and answers what wants an answer.
fn take(stream: &TcpStream, shared: &Shared, bytes: &[u8]) {
    let state = &mut *shared.lock();
    state.rest.extend_from_slice(bytes);
    let mut at = 0;
    if !state.preface && state.rest.len() >= PREFACE.len() {
        if !state.rest.starts_with(PREFACE) {
            state.watch.faults.push("RFC 9113 section 3.4: no preface".into());
        }
        (state.preface, at) = (true, PREFACE.len());
    }
    let mut answers = Vec::new();
    while state.preface
        && let Some((frame, length)) = Frame::read(&state.rest[at..])
    {
        at += length;
        let answer = state.watch.take(&frame).filter(|_| !state.mute);
        match answer {
            Some(answer) if state.in_block => state.held.push(answer),
            Some(answer) => answers.extend(answer.bytes()),
            None => {}
        }
    }
    state.rest.drain(..at);
    if !answers.is_empty() {
        let _writing = shared.writing.lock().expect("no thread panics while it writes");
        drop((&*stream).write_all(&answers));
    }
}
