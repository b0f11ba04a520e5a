//! The TLS record adapter between us and the library's own connection: splits, cancelled reads,
//! changes of keys, changed bytes and cuts, in any order.
#![allow(dead_code, reason = "tests that include this crate use a part of it")]

use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ringway::base::buffer::Buf;
use ringway::io::mem::{self, End};
use ringway::io::tls::{HandshakeError, Session, TlsStream, handshake};
use ringway::io::{Cancel, Peek, Shutdown, Stream};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

/// `data` is a byte of choices and two bounds on operations, then steps of two bytes.
pub fn tls_records(data: &[u8]) {
    let Some(([choices, read_max, write_max], steps)) = data.split_first_chunk() else { return };
    let mut run = Run::new(*choices, usize::from(*read_max), usize::from(*write_max));
    for step in steps.chunks_exact(2).take(STEPS_MAX) {
        run.step(step[0], usize::from(step[1]));
        run.poll();
    }
    run.settle();
    run.check();
}

const STEPS_MAX: usize = 128;

/// Plain text that one side sends at most.
const TEXT_BYTES_MAX: usize = 400_000;

type Task<T> = Pin<Box<dyn Future<Output = T>>>;

/// Both sides, and the wire between them.
struct Run {
    /// Our handshake, as long as it goes on.
    shaking: Option<Task<Result<Stream, HandshakeError>>>,
    ours: Option<Rc<Stream>>,
    reading: Option<Task<(io::Result<usize>, Buf)>>,
    writing: Option<Task<(io::Result<usize>, Buf)>>,
    finishing: Option<Task<()>>,
    cancel: Rc<Cancel>,
    peer: Connection,
    far: End,
    /// On the wire to us, and to the peer.
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    sent: Tally,
    peer_sent: Tally,
    updates: usize,
    /// The wire to us is cut.
    cut: bool,
    /// Either side has said that it ends. No byte is changed from then on: with debug assertions
    /// the library does not let an alert follow its own close_notify.
    closing: bool,
    /// Our operations are split.
    bounded: bool,
    /// A byte was changed or the wire was cut: errors are right from here on.
    disturbed: bool,
    /// Our reading has ended, or failed.
    over: bool,
    peer_over: bool,
    /// Our writing has failed or ended.
    mute: bool,
}

/// Plain text of one direction: a function of its position.
#[derive(Default)]
struct Tally {
    sent: usize,
    got: usize,
}

impl Tally {
    fn text(from: usize, count: usize) -> Vec<u8> {
        (from..from + count).map(|at| (at * 31 + at / 253) as u8).collect()
    }

    fn receive(&mut self, text: &[u8]) {
        assert!(text == Tally::text(self.got, text.len()), "plain text differs from what was sent");
        self.got += text.len();
        assert!(self.got <= self.sent, "more plain text than was sent");
    }
}

impl Run {
    fn new(choices: u8, read_max: usize, write_max: usize) -> Run {
        let (near, far) = mem::pair();
        near.faults().read_max.set(read_max);
        near.faults().write_max.set(write_max);
        let configs = configs(choices & 1 != 0);
        let name = ServerName::try_from("example.test").expect("a name");
        let (session, peer) = if choices & 2 == 0 {
            let ours = UnbufferedServerConnection::new(configs.0).expect("a session");
            let peer = ClientConnection::new(configs.1, name).expect("a connection");
            (Session::Server(ours), Connection::Client(peer))
        } else {
            let ours = UnbufferedClientConnection::new(configs.1, name).expect("a session");
            let peer = ServerConnection::new(configs.0).expect("a connection");
            (Session::Client(ours), Connection::Server(peer))
        };
        let shaking = Box::pin(handshake(Stream::Mem(near), session, Buf::empty()));
        let mut run = Run {
            shaking: Some(shaking),
            ours: None,
            reading: None,
            writing: None,
            finishing: None,
            cancel: Rc::default(),
            peer,
            far,
            inbound: Vec::new(),
            outbound: Vec::new(),
            sent: Tally::default(),
            peer_sent: Tally::default(),
            updates: 0,
            closing: false,
            cut: false,
            bounded: read_max > 0,
            disturbed: false,
            over: false,
            peer_over: false,
            mute: false,
        };
        run.poll();
        if choices & 4 != 0 {
            run.settle();
        }
        run
    }

    fn step(&mut self, op: u8, size: usize) {
        match op % 12 {
            0 => self.write(size * size + 1),
            1 => self.peer_write(size * size + 1),
            2 => self.deliver(size * 8 + 1),
            3 => self.deliver_to_peer(size * 8 + 1),
            4 => self.read(size * size + 1),
            5 => self.cancel.cancel(),
            6 => self.update_keys(),
            7 => self.change(size),
            8 => self.look(),
            9 if size == 0 => self.peer_finish(),
            10 if size == 0 => self.finish(),
            11 if size == 0 => {
                self.disturbed = true;
                self.cut = true;
                self.far.shutdown(Shutdown::Write);
            }
            _ => {}
        }
    }

    fn write(&mut self, bytes: usize) {
        let Some(stream) = self.ours.clone().filter(|_| !self.mute) else { return };
        if self.writing.is_some() || self.sent.sent > TEXT_BYTES_MAX {
            return;
        }
        let text = Tally::text(self.sent.sent, bytes);
        // Sealed at once, so that the peer may see it before the write returns.
        self.sent.sent += bytes.min(ringway::limits::TLS_WRITE_BYTES_MAX);
        self.writing = Some(Box::pin(async move { stream.write(Buf::from(&text[..])).await }));
    }

    fn peer_write(&mut self, bytes: usize) {
        if self.peer.is_handshaking() || self.peer_sent.sent > TEXT_BYTES_MAX {
            return;
        }
        let text = Tally::text(self.peer_sent.sent, bytes);
        // What it does not take is said next time.
        self.peer_sent.sent += self.peer.writer().write(&text).unwrap_or(0);
    }

    fn read(&mut self, bytes: usize) {
        let Some(stream) = self.ours.clone() else { return };
        if self.reading.is_none() {
            let cancel = self.cancel.clone();
            let buf = Buf::with_capacity(bytes);
            self.reading =
                Some(Box::pin(async move { stream.read_cancelable(buf, &cancel).await }));
        }
    }

    fn peer_finish(&mut self) {
        if !self.peer.is_handshaking() && !self.disturbed {
            self.closing = true;
            self.peer.send_close_notify();
        }
    }

    fn finish(&mut self) {
        let Some(stream) = self.ours.clone() else { return };
        if self.writing.is_none() && !self.mute && !self.disturbed {
            self.closing = true;
            self.mute = true;
            self.finishing = Some(Box::pin(async move { stream.finish().await }));
        }
    }

    fn update_keys(&mut self) {
        let new = self.peer.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
        // Above 32 without plain text between them we end the connection, rightly.
        if new && !self.peer.is_handshaking() && self.updates < 24 {
            self.updates += usize::from(self.peer.refresh_traffic_keys().is_ok());
        }
    }

    fn change(&mut self, at: usize) {
        if self.closing {
            return;
        }
        let wire = if at & 1 == 0 { &mut self.inbound } else { &mut self.outbound };
        let at = at * wire.len() / 256;
        if let Some(byte) = wire.get_mut(at) {
            *byte ^= 1 << (at % 8);
            self.disturbed = true;
        }
    }

    fn look(&mut self) {
        let Some(stream) = &self.ours else { return };
        let looked = stream.peek();
        let none = self.peer_sent.got == self.peer_sent.sent && self.inbound.is_empty();
        let whole = !self.bounded && self.reading.is_none() && !self.disturbed;
        // Only the beginning of a record may look like bytes.
        assert!(!none || !whole || looked != Peek::Bytes, "bytes out of nothing");
    }

    /// Lets bytes that the peer sent arrive.
    fn deliver(&mut self, count: usize) {
        while self.peer.wants_write() {
            self.peer.write_tls(&mut self.inbound).expect("memory");
        }
        let count = count.min(self.inbound.len());
        let bytes: Vec<u8> = self.inbound.drain(..count).collect();
        if !self.cut {
            self.far.push(&bytes);
        }
    }

    fn deliver_to_peer(&mut self, count: usize) {
        self.outbound.extend(self.far.take());
        let count = count.min(self.outbound.len());
        let bytes: Vec<u8> = self.outbound.drain(..count).collect();
        let mut left = &bytes[..];
        while !left.is_empty() && !self.peer_over {
            let taken = self.peer.read_tls(&mut left);
            let processed = self.peer.process_new_packets();
            assert!(processed.is_ok() || self.disturbed, "the peer refuses us: {processed:?}");
            self.peer_over |= processed.is_err() || !matches!(taken, Ok(count) if count > 0);
            self.peer_read();
        }
    }

    fn peer_read(&mut self) {
        let mut text = vec![0; 64 * 1024];
        loop {
            match self.peer.reader().read(&mut text) {
                Ok(count) if count > 0 => self.sent.receive(&text[..count]),
                _ => return,
            }
        }
    }

    /// Lets our side run.
    fn poll(&mut self) {
        if let Some(shaken) = poll(&mut self.shaking) {
            assert!(shaken.is_ok() || self.disturbed, "a handshake failed: {shaken:?}");
            self.ours = shaken.ok().map(Rc::new);
            assert!(self.ours.iter().all(|stream| stream.tls().is_some()));
        }
        if let Some((result, buf)) = poll(&mut self.reading) {
            self.on_read(result, &buf);
        }
        if let Some((result, _)) = poll(&mut self.writing) {
            assert!(result.is_ok() || self.disturbed || self.over, "{result:?}");
            self.mute |= result.is_err();
        }
        poll(&mut self.finishing);
    }

    fn on_read(&mut self, result: io::Result<usize>, buf: &Buf) {
        match result {
            Ok(0) => self.over = true,
            Ok(count) => {
                assert_eq!(count, buf.len());
                assert!(!self.over, "plain text after the end");
                self.peer_sent.receive(buf.filled());
            }
            Err(error) if Cancel::is_canceled(&error) => assert!(buf.is_empty()),
            Err(error) => {
                assert!(self.disturbed, "a read failed: {error}");
                self.over = true;
            }
        }
    }

    /// Delivers everything there is, both ways.
    fn settle(&mut self) {
        for _ in 0..4096 {
            let before = (self.sent.got, self.peer_sent.got);
            self.deliver(usize::MAX);
            self.poll();
            self.deliver_to_peer(usize::MAX);
            if self.ours.is_some() && !self.over {
                self.read(20_000);
                self.poll();
            }
            let moved = before != (self.sent.got, self.peer_sent.got);
            let idle = self.shaking.is_none() && self.writing.is_none() && !self.peer.wants_write();
            if !moved && idle && self.far_is_quiet() {
                break;
            }
        }
        self.cancel.cancel();
        self.poll();
    }

    fn far_is_quiet(&mut self) -> bool {
        self.outbound.extend(self.far.take());
        self.outbound.is_empty() || self.peer_over
    }

    fn check(&self) {
        if self.disturbed {
            return;
        }
        assert!(self.ours.is_some() && self.writing.is_none(), "it hangs");
        assert_eq!(self.sent.got, self.sent.sent, "the peer misses some");
        assert!(self.over || self.peer_sent.got == self.peer_sent.sent, "we miss some");
        let facts = self.ours.as_ref().and_then(|stream| stream.tls());
        assert!(facts.is_some_and(|tls: &TlsStream| tls.version().starts_with("TLSv1.")));
    }
}

/// Polls a task once; what it ended with.
fn poll<T>(task: &mut Option<Task<T>>) -> Option<T> {
    let running = task.as_mut()?;
    match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => {
            *task = None;
            Some(output)
        }
        Poll::Pending => None,
    }
}

type Configs = (Arc<ServerConfig>, Arc<ClientConfig>);

thread_local! {
    static CONFIGS: [Configs; 2] = {
        let signed = rcgen::generate_simple_self_signed(["example.test".to_owned()]);
        let signed = signed.expect("a certificate");
        [make_configs(&signed, false), make_configs(&signed, true)]
    };
}

fn configs(old: bool) -> Configs {
    CONFIGS.with(|configs| configs[usize::from(old)].clone())
}

fn make_configs(signed: &rcgen::CertifiedKey<rcgen::KeyPair>, old: bool) -> Configs {
    let versions = if old { [&TLS12] } else { [&TLS13] };
    let provider = Arc::new(default_provider());
    let certificate = signed.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider.clone());
    let server = server.with_protocol_versions(&versions).expect("versions").with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], PrivateKeyDer::Pkcs8(key));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_protocol_versions(&versions).expect("versions");
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    // Each run is to be the same, whatever ran before.
    client.resumption = Resumption::disabled();
    (Arc::new(server.expect("a key")), Arc::new(client))
}
