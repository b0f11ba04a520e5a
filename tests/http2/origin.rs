//! An origin that speaks HTTP/2 frame by frame: a script a connection, in the order in which they
//! come, and service on further ones.

use std::collections::{HashMap, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::frame::{DATA, END_HEADERS, END_STREAM, Frame, HEADERS};
use super::hpack::block;
use super::peer::Peer;
use super::step::Step;
use super::watch::value;
use crate::harness::ms;

/// What a connection is told to do.
pub type Script = Vec<Step>;

#[derive(Default)]
struct Shared {
    scripts: VecDeque<Script>,
    taken: Vec<Arc<Peer>>,
    /// Steps that waited in vain.
    stuck: Vec<String>,
    era: u64,
    stopped: bool,
}

/// The origin; it ends with all its connections when dropped.
pub struct FrameOrigin {
    shared: Arc<Mutex<Shared>>,
    /// Where it listens.
    pub address: String,
}

impl FrameOrigin {
    /// Starts one on a free loopback port.
    pub fn start() -> FrameOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port for the origin");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let origin = FrameOrigin { shared: shared.clone(), address };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                let mut state = lock(&shared);
                if state.stopped {
                    return;
                }
                let script = state.scripts.pop_front();
                let peer = Arc::new(Peer::accepted(stream));
                state.taken.push(peer.clone());
                let era = state.era;
                drop(state);
                std::thread::spawn(move || talk(&shared, &peer, script, era));
            }
        });
        origin
    }

    /// Ends all connections and takes the scripts of the next ones.
    pub fn reset(&self, scripts: Vec<Script>) {
        let mut state = lock(&self.shared);
        state.taken.iter().for_each(|peer| peer.close(false));
        state.taken.clear();
        state.stuck.clear();
        state.scripts = scripts.into();
        state.era += 1;
    }

    /// The connections of the current scripts.
    pub fn taken(&self) -> Vec<Arc<Peer>> {
        lock(&self.shared).taken.clone()
    }

    /// Steps that waited in vain.
    pub fn stuck(&self) -> Vec<String> {
        lock(&self.shared).stuck.clone()
    }
}

impl Drop for FrameOrigin {
    fn drop(&mut self) {
        lock(&self.shared).stopped = true;
        self.reset(Vec::new());
        // The accept loop looks at `stopped` once a connection comes.
        drop(TcpStream::connect(&self.address));
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("no thread panics while it holds the state")
}

fn talk(shared: &Mutex<Shared>, peer: &Peer, script: Option<Script>, era: u64) {
    let Some(script) = script else {
        peer.begin(&[]);
        return serve(peer, 1);
    };
    for (number, step) in script.iter().enumerate() {
        if matches!(step, Step::Serve) {
            return serve(peer, 1);
        }
        if !step.play(peer) {
            let mut state = lock(shared);
            if state.era == era {
                state.stuck.push(format!("step {} waited in vain: {step:?}", number + 1));
            }
        }
    }
    // It stays as it is until the case is over.
    peer.wait_end(Duration::from_secs(20));
}

/// Answers every request that has ended and was not answered yet.
fn serve(peer: &Peer, from: u32) {
    let mut answered: HashMap<u32, ()> = HashMap::new();
    loop {
        let ready = |number: &u32, s: &super::watch::Stream| {
            *number >= from && s.ended && s.reset.is_none() && !s.answered()
        };
        let mut wanted: Vec<(u32, Vec<u8>)> = Vec::new();
        peer.wait(ms(1_000), |state| {
            let streams = state.watch.streams.iter();
            let new =
                streams.filter(|(number, s)| ready(number, s) && !answered.contains_key(number));
            let line = |s: &super::watch::Stream| {
                let head = s.head().unwrap_or_default();
                let (method, path) = (value(head, ":method"), value(head, ":path"));
                [method.unwrap_or_default(), b" ", path.unwrap_or_default()].concat()
            };
            wanted = new.map(|(number, s)| (*number, line(s))).collect();
            !wanted.is_empty()
        });
        if wanted.is_empty() && peer.look(|state| state.end.is_some() || state.is_gone()) {
            return;
        }
        for (number, line) in wanted {
            answered.insert(number, ());
            peer.frames(&answer(number, &String::from_utf8_lossy(&line)));
        }
    }
}

/// 200 with the request's line in `x-seen` and the body "ok".
fn answer(stream: u32, line: &str) -> [Frame; 2] {
    let fields = [(":status", "200"), ("x-seen", line), ("content-length", "2")];
    [
        Frame::new(HEADERS, END_HEADERS, stream, block(&fields)),
        Frame::new(DATA, END_STREAM, stream, *b"ok"),
    ]
}
