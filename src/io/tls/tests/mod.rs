//! Both sides against the library's buffered connections, over sockets and in memory.

mod failures;
mod peer;

use std::rc::Rc;

use rustls::version::{TLS12, TLS13};

use self::peer::{Authority, NAME, Peer, Versions, calling, serving};
use super::*;
use crate::io::driver::{DriverChoice, probe};
use crate::io::mem::{self, End};
use crate::io::runtime::{join, run as run_on, sleep_ms, spawn};

const BOTH: Versions = &[&TLS13, &TLS12];
const NEW: Versions = &[&TLS13];
const OLD: Versions = &[&TLS12];
const EACH: [Versions; 2] = [NEW, OLD];

/// Runs a test on each driver.
fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
        let report = probe(choice).expect("a driver");
        run_on(&report, test()).expect("runs");
    }
}

fn on_one<F: Future<Output = ()>>(test: F) {
    run_on(&probe(DriverChoice::Auto).expect("a driver"), test).expect("runs");
}

fn sockets() -> (Stream, Stream) {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let adopt = |socket: std::os::unix::net::UnixStream| {
        socket.set_nonblocking(true).expect("set");
        Stream::unix(monoio::net::UnixStream::from_std(socket).expect("adopted"))
    };
    (adopt(near), adopt(far))
}

/// Our client and a peer that serves, after the handshake.
async fn called(
    authority: &Authority,
    versions: Versions,
    near: Stream,
    far: Stream,
) -> (Stream, Peer) {
    let peer = Peer::server(authority.server(versions), far);
    let session = calling(authority.client(BOTH));
    let (stream, shaken) = join(handshake(near, session, Buf::empty()), peer.handshake()).await;
    shaken.expect("the peer agrees");
    (stream.expect("we agree"), peer)
}

/// Our server and a peer that calls, after the handshake.
async fn served(
    authority: &Authority,
    versions: Versions,
    near: Stream,
    far: Stream,
) -> (Stream, Peer) {
    let peer = Peer::client(authority.client(versions), NAME, far);
    let session = serving(authority.server(BOTH));
    let (stream, shaken) = join(handshake(near, session, Buf::empty()), peer.handshake()).await;
    shaken.expect("the peer agrees");
    (stream.expect("we agree"), peer)
}

async fn read_exactly(stream: &Stream, count: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let mut buf = Buf::for_head();
    while text.len() < count {
        let (result, back) = stream.read(buf).await;
        buf = back;
        assert_ne!(result.expect("plain text"), 0, "ended after {} bytes", text.len());
        text.extend_from_slice(buf.filled());
        buf.clear();
    }
    text
}

async fn write_text(stream: &Stream, text: &[u8]) {
    let mut buf = Buf::from(text);
    while !buf.is_empty() {
        let (result, back) = stream.write(buf).await;
        buf = back;
        buf.consume(result.expect("written"));
    }
}

fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 + index / 251) as u8).collect()
}

fn engine(stream: &Stream) -> std::cell::Ref<'_, Engine> {
    stream.tls().expect("TLS").engine.borrow()
}

#[test]
fn both_versions_shake_hands_on_both_sides() {
    let authority = Authority::new();
    on_both(async || {
        for (versions, word) in EACH.into_iter().zip(["TLSv1.3", "TLSv1.2"]) {
            let (near, far) = sockets();
            let (stream, peer) = served(&authority, versions, near, far).await;
            let tls = stream.tls().expect("TLS");
            assert_eq!((tls.version(), tls.server_name()), (word, Some(NAME)));
            assert!(tls.cipher().starts_with("TLS_"), "{}", tls.cipher());
            assert!(!tls.resumed() && tls.peer_certificates().is_empty() && tls.alpn().is_none());
            let (_, said) = join(write_text(&stream, b"hello"), peer.read(5)).await;
            assert_eq!(said.expect("read"), b"hello");

            let (near, far) = sockets();
            let (stream, peer) = called(&authority, versions, near, far).await;
            let tls = stream.tls().expect("TLS");
            assert_eq!((tls.version(), tls.server_name()), (word, None));
            assert_eq!(tls.peer_certificates().len(), 1);
            peer.send(b"good day").await.expect("sent");
            assert_eq!(read_exactly(&stream, 8).await, b"good day");
            assert_eq!(engine(&stream).held_bytes(), 0);
        }
    });
}

#[test]
fn facts_tell_protocol_certificate_and_resumption() {
    let authority = Authority::new();
    on_one(async {
        let mut ours = authority.strict_server();
        ours.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let ours = std::sync::Arc::new(ours);
        let mut theirs = authority.client_as(authority.identity("client.test", 2100));
        theirs.alpn_protocols = vec![b"http/1.1".to_vec()];
        for resumed in [false, true] {
            let (near, far) = sockets();
            let peer = Peer::client(theirs.clone(), NAME, far);
            let session = UnbufferedServerConnection::new(ours.clone()).expect("a session");
            let session = Session::Server(session);
            let shaking = join(handshake(near, session, Buf::empty()), peer.handshake());
            let (stream, shaken) = shaking.await;
            shaken.expect("the peer agrees");
            let stream = stream.expect("we agree");
            let tls = stream.tls().expect("TLS");
            assert_eq!(tls.alpn(), Some(&b"http/1.1"[..]));
            assert_eq!((tls.resumed(), tls.peer_certificates().len()), (resumed, 1));
            let (_, said) = join(write_text(&stream, b"x"), peer.read(1)).await;
            assert_eq!(said.expect("read, the tickets before it"), b"x");
        }
    });
}

#[test]
fn bytes_that_come_one_by_one_are_the_same() {
    let authority = Authority::new();
    on_one(async {
        for versions in EACH {
            let (near, far) = mem::pair();
            near.faults().read_max.set(1);
            near.faults().write_max.set(1);
            let (stream, peer) =
                served(&authority, versions, Stream::Mem(near), Stream::Mem(far)).await;
            assert_eq!(stream.tls().and_then(TlsStream::server_name), Some(NAME));
            let sent = text(40_000);
            let (_, got) = join(write_text(&stream, &sent), peer.read(40_000)).await;
            assert_eq!(got.expect("read"), sent);
            let (there, back) = join(peer.send(&sent), read_exactly(&stream, 40_000)).await;
            there.expect("sent");
            assert!(back == sent);
        }
    });
}

/// The name must be found where the hello comes in many records, or with other bytes before.
#[test]
fn a_hello_in_many_records_is_read() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = mem::pair();
        let mut config = authority.client(BOTH);
        config.max_fragment_size = Some(40);
        let peer = Peer::client(config, NAME, Stream::Mem(far));
        peer.flush().await.expect("sent");
        let (_, early) = {
            let (result, early) = Stream::Mem(near).read_bare(Buf::for_head(), None).await;
            (result.expect("read"), early)
        };
        let records = early.filled().to_vec();
        for split in [0, 1, 5, 44, 45, 46, 100, records.len()] {
            let (near, far) = mem::pair();
            let session = serving(authority.server(BOTH));
            let mut shaking =
                std::pin::pin!(handshake(Stream::Mem(near), session, Buf::from(&records[..split])));
            far.push(&records[split..]);
            let ended = crate::io::runtime::until(&mut shaking, sleep_ms(1)).await;
            assert!(ended.is_none(), "it waits for the client");
            assert!(far.take().starts_with(&[22, 3, 3]), "it has answered, split at {split}");
            let name = hello::Opening::default().look(&records);
            assert_eq!(name, hello::Hello::Whole(Some(NAME.into())));
        }
    });
}

#[test]
fn five_mebibytes_go_both_ways_at_once() {
    const BYTES: usize = 5 * 1024 * 1024;
    let authority = Authority::new();
    on_both(async || {
        let (near, far) = sockets();
        let server = handshake(near, serving(authority.server(BOTH)), Buf::empty());
        let client = handshake(far, calling(authority.client(BOTH)), Buf::empty());
        let (server, client) = join(server, client).await;
        let (server, client) = (server.expect("agrees"), client.expect("agrees"));
        let sent = text(BYTES);
        let one = join(write_text(&server, &sent), read_exactly(&server, BYTES));
        let other = join(write_text(&client, &sent), read_exactly(&client, BYTES));
        let ((_, one), (_, other)) = join(one, other).await;
        assert!(one == sent && other == sent, "plain text differs");
        assert_eq!(Buf::bodies_in_use(), 0);
        assert_eq!(engine(&server).held_bytes() + engine(&client).held_bytes(), 0);
    });
}

#[test]
fn a_read_that_is_cancelled_within_a_record_loses_nothing() {
    let authority = Authority::new();
    on_both(async || {
        let (near, far) = sockets();
        let (stream, peer) = served(&authority, BOTH, near, far).await;
        let stream = Rc::new(stream);
        let sent = text(10_000);
        let records = peer.seal(&sent);
        let (first, second) = records.split_at(4000);
        peer.send_raw(first).await.expect("sent");
        let cancel = Rc::new(Cancel::default());
        for _ in 0..3 {
            let ending = cancel.clone();
            spawn(async move {
                sleep_ms(10).await;
                ending.cancel();
            });
            let (result, buf) = stream.read_cancelable(Buf::for_head(), &cancel).await;
            assert!(Cancel::is_canceled(&result.expect_err("half a record")) && buf.is_empty());
        }
        assert_eq!(stream.peek(), Peek::Part);
        // A writer goes between the halves.
        let (_, said) = join(write_text(&stream, b"go on"), peer.read(5)).await;
        assert_eq!(said.expect("read"), b"go on");
        peer.send_raw(second).await.expect("sent");
        assert!(read_exactly(&stream, 10_000).await == sent);
        assert_eq!(engine(&stream).held_bytes(), 0);
    });
}

#[test]
fn keys_change_in_both_directions_while_the_writer_is_blocked() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = mem::pair();
        let (stream, peer) = served(&authority, NEW, Stream::Mem(near), Stream::Mem(far)).await;
        let stream = Rc::new(stream);
        let sent = text(200_000);
        let (writer, long) = (stream.clone(), sent.clone());
        spawn(async move { write_text(&writer, &long).await });
        sleep_ms(1).await;
        assert!(stream.tls().expect("TLS").sending.get(), "the pipe is full");
        for round in 0..3u8 {
            peer.update_keys();
            peer.send(&[round; 100]).await.expect("sent");
            assert_eq!(read_exactly(&stream, 100).await, [round; 100]);
            let tls = stream.tls().expect("TLS");
            tls.engine.borrow_mut().update_key().expect("TLS 1.3");
            tls.pay();
        }
        assert!(!engine(&stream).owed().is_empty(), "it must not go into the middle of a record");
        assert!(peer.read(200_000).await.expect("read") == sent);
        peer.send(b"end").await.expect("sent");
        assert_eq!(read_exactly(&stream, 3).await, b"end");
        assert_eq!(engine(&stream).held_bytes(), 0);
    });
}

/// The reader has no room for what came in; that must not keep the writer waiting.
#[test]
fn a_writer_gets_past_records_that_wait_for_the_reader() {
    let authority = Authority::new();
    on_one(async {
        for versions in EACH {
            let (near, far) = mem::pair();
            let (stream, peer) =
                called(&authority, versions, Stream::Mem(near), Stream::Mem(far)).await;
            let sent = text(3 * 4000);
            for part in sent.chunks(4000) {
                peer.send(part).await.expect("sent");
            }
            let (result, buf) = stream.read(Buf::with_capacity(100)).await;
            assert_eq!((result.expect("read"), buf.filled()), (100, &sent[..100]));
            assert_eq!(stream.peek(), Peek::Bytes);
            stream.readable().await.expect("at once");
            let (_, said) = join(write_text(&stream, b"hello"), peer.read(5)).await;
            assert_eq!(said.expect("read"), b"hello");
            assert!(read_exactly(&stream, sent.len() - 100).await == sent[100..]);
            assert_eq!(stream.peek(), Peek::Nothing);
        }
    });
}

#[test]
fn a_full_record_fits_a_head_buffer() {
    let authority = Authority::new();
    on_one(async {
        for versions in EACH {
            let (near, far) = mem::pair();
            let (stream, peer) =
                called(&authority, versions, Stream::Mem(near), Stream::Mem(far)).await;
            let sent = text(16_384);
            let (there, (result, buf)) = join(peer.send(&sent), stream.read(Buf::for_head())).await;
            there.expect("sent");
            assert_eq!(result.expect("read"), 16_384);
            assert!(buf.filled() == sent);
            drop(buf);
            let (result, buf) = stream.write(Buf::from(&sent[..])).await;
            assert_eq!(result.expect("written"), 16_384);
            assert!(peer.read(16_384).await.expect("read") == buf.filled());
            assert_eq!((engine(&stream).held_bytes(), Buf::bodies_in_use()), (0, 0));
        }
    });
}

/// Tickets, in pieces: a connection that has nothing else is idle, and holds no buffer.
#[test]
fn tickets_are_no_bytes_for_the_reader() {
    let authority = Authority::new();
    on_both(async || {
        let (near, far) = sockets();
        let mut config = authority.server(NEW);
        config.send_tls13_tickets = 4;
        let peer = Peer::server(config, far);
        let session = calling(authority.client(BOTH));
        let stream = join(handshake(near, session, Buf::empty()), peer.handshake()).await.0;
        let stream = stream.expect("agrees");
        for _ in 0..3 {
            assert_eq!(stream.peek(), Peek::Nothing);
            assert_eq!(engine(&stream).held_bytes(), 0);
            peer.update_keys();
            peer.flush().await.expect("sent");
        }
        let (_, woken) = join(
            async {
                sleep_ms(5).await;
                peer.send(b"now").await.expect("sent");
            },
            stream.readable(),
        )
        .await;
        woken.expect("readable");
        assert_eq!(stream.peek(), Peek::Bytes);
        assert_eq!(read_exactly(&stream, 3).await, b"now");
    });
}

/// The session keeps offsets into a message that has come in part; a writer must not disturb them.
#[test]
fn a_writer_goes_between_the_records_of_a_ticket() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = mem::pair();
        let mut config = authority.server(NEW);
        config.max_fragment_size = Some(64);
        let peer = Peer::server(config, Stream::Mem(far));
        let session = calling(authority.client(BOTH));
        let calling = handshake(Stream::Mem(near), session, Buf::empty());
        let (stream, records) = join(calling, peer.handshake_but_for_the_last_flight()).await;
        let stream = Rc::new(stream.expect("agrees"));
        assert!(records.len() > 128, "tickets in several records");
        for piece in records.chunks(17) {
            let mut reading = Box::pin(stream.readable());
            let pending = crate::io::runtime::until(&mut reading, sleep_ms(0)).await;
            assert!(pending.is_none());
            peer.send_raw(piece).await.expect("sent");
            assert!(matches!(stream.peek(), Peek::Part | Peek::Nothing), "no bytes for a reader");
            let (_, said) = join(write_text(&stream, b"x"), peer.read(1)).await;
            assert_eq!(said.expect("read"), b"x");
        }
        assert_eq!(stream.peek(), Peek::Nothing);
        let reader = stream.clone();
        let read = async move { read_exactly(&reader, 4).await };
        let (read, sent) = join(read, peer.send(b"text")).await;
        sent.expect("sent");
        assert_eq!((read.as_slice(), engine(&stream).held_bytes()), (&b"text"[..], 0));
    });
}

/// What a write costs besides the cipher shows here first: an operation for each 64 KiB.
#[test]
fn one_write_takes_four_records() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = mem::pair();
        let (stream, peer) = served(&authority, BOTH, Stream::Mem(near), Stream::Mem(far)).await;
        let sent = text(70_000);
        let writing = stream.write(Buf::from(&sent[..]));
        let ((result, _), read) = join(writing, peer.read(65_536)).await;
        assert_eq!(result.expect("written"), 65_536);
        assert!(read.expect("read") == sent[..65_536]);
    });
}

/// A connection without TLS does not pay for it.
#[test]
fn operations_stay_small() {
    fn size<'a, F>(_: impl Fn(&'a Stream, Buf) -> F) -> usize {
        std::mem::size_of::<F>()
    }
    let bare = size(|stream, buf| stream.read_bare(buf, None));
    let read = size(|stream, buf| stream.read(buf));
    let write = size(|stream, buf| stream.write(buf));
    assert!(read <= bare + 16 && write <= bare + 16, "{bare}: reading {read}, writing {write}");
}

fn ends() -> (Stream, End) {
    let (near, far) = mem::pair();
    (Stream::Mem(near), far)
}
