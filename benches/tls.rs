//! What the record adapter adds to the cipher: our stream in memory, beside the library's buffered
//! connection and the memory alone.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use divan::{Bencher, black_box};
use ringway::base::buffer::Buf;
use ringway::io::Stream;
use ringway::io::mem::{self, End};
use ringway::io::tls::{Session, handshake};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

const WRITES: [usize; 3] = [1024, 16 * 1024, 64 * 1024];
const READS: [usize; 3] = [200, 1024, 16 * 1024];

fn main() {
    divan::main();
}

/// Our stream, writing.
#[divan::bench(args = WRITES)]
fn write_ours(bencher: Bencher<'_, '_>, bytes: usize) {
    let (stream, _, far) = shaken();
    let text = vec![7; bytes];
    bencher.bench_local(|| {
        let mut buf = Buf::for_body();
        buf.extend(&text);
        let (result, _) = now(stream.write(buf));
        assert!(result.is_ok());
        black_box(far.take())
    });
}

/// The library's connection, sealing into a vector.
#[divan::bench(args = WRITES)]
fn write_library(bencher: Bencher<'_, '_>, bytes: usize) {
    let (_, mut client, _) = shaken();
    client.set_buffer_limit(None);
    let text = vec![7; bytes];
    bencher.bench_local(|| {
        let mut records = Vec::with_capacity(bytes + 1024);
        client.writer().write_all(&text).expect("no limit");
        while client.wants_write() {
            client.write_tls(&mut records).expect("memory");
        }
        black_box(records)
    });
}

/// The memory that the first case goes through.
#[divan::bench(args = WRITES)]
fn write_memory(bencher: Bencher<'_, '_>, bytes: usize) {
    let (near, far) = mem::pair();
    let stream = Stream::Mem(near);
    let text = vec![7; bytes];
    bencher.bench_local(|| {
        let mut buf = Buf::for_body();
        buf.extend(&text);
        let (result, _) = now(stream.write(buf));
        assert!(result.is_ok());
        black_box(far.take())
    });
}

/// Our stream, reading.
#[divan::bench(args = READS)]
fn read_ours(bencher: Bencher<'_, '_>, bytes: usize) {
    let (stream, mut client, far) = shaken();
    let text = vec![7; bytes];
    bencher.with_inputs(|| seal(&mut client, &text)).bench_local_values(|records| {
        far.push(&records);
        let (result, buf) = now(stream.read(Buf::for_head()));
        assert_eq!(result.ok(), Some(bytes));
        black_box(buf.len())
    });
}

/// The library's connection, from a slice.
#[divan::bench(args = READS)]
fn read_library(bencher: Bencher<'_, '_>, bytes: usize) {
    let (mut client, mut server) = library();
    let text = vec![7; bytes];
    let mut plain = vec![0; bytes];
    bencher.with_inputs(|| seal(&mut client, &text)).bench_local_values(|records| {
        let mut records = &records[..];
        while !records.is_empty() {
            server.read_tls(&mut records).expect("memory");
            server.process_new_packets().expect("records");
        }
        server.reader().read_exact(&mut plain).expect("plain text");
        black_box(plain[0])
    });
}

/// The memory that the first of these goes through.
#[divan::bench(args = READS)]
fn read_memory(bencher: Bencher<'_, '_>, bytes: usize) {
    let (near, far) = mem::pair();
    let stream = Stream::Mem(near);
    let text = vec![7; bytes + 22];
    bencher.bench_local(|| {
        far.push(&text);
        let (_, buf) = now(stream.read(Buf::for_body()));
        black_box(buf.len())
    });
}

fn seal(client: &mut ClientConnection, text: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    client.writer().write_all(text).expect("below the limit");
    while client.wants_write() {
        client.write_tls(&mut records).expect("memory");
    }
    records
}

/// Our server after the handshake, its client, and the wire.
fn shaken() -> (Stream, ClientConnection, End) {
    let (server, client) = configs();
    let mut client = call(client);
    let (near, far) = mem::pair();
    let session = UnbufferedServerConnection::new(server).expect("a session");
    let mut shaking = pin!(handshake(Stream::Mem(near), Session::Server(session), Buf::empty()));
    loop {
        let mut records = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut records).expect("memory");
        }
        far.push(&records);
        let polled = shaking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let answer = far.take();
        let mut left = &answer[..];
        while !left.is_empty() {
            client.read_tls(&mut left).expect("memory");
            client.process_new_packets().expect("a handshake");
        }
        if let Poll::Ready(stream) = polled {
            return (stream.expect("a handshake"), client, far);
        }
    }
}

/// Two connections of the library after their handshake.
fn library() -> (ClientConnection, ServerConnection) {
    let (server, client) = configs();
    let mut client = call(client);
    let mut server = ServerConnection::new(server).expect("a connection");
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        let mut there = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut there).expect("memory");
        }
        let mut there = &there[..];
        while !there.is_empty() {
            server.read_tls(&mut there).expect("memory");
            server.process_new_packets().expect("a handshake");
        }
        let mut back = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut back).expect("memory");
        }
        let mut back = &back[..];
        while !back.is_empty() {
            client.read_tls(&mut back).expect("memory");
            client.process_new_packets().expect("a handshake");
        }
    }
    (client, server)
}

fn call(config: Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("example.test").expect("a name");
    ClientConnection::new(config, name).expect("a connection")
}

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let signed = rcgen::generate_simple_self_signed(["example.test".to_owned()]).expect("signed");
    let provider = Arc::new(default_provider());
    let certificate = signed.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider.clone());
    let server = server.with_safe_default_protocol_versions().expect("versions");
    let server = server.with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], PrivateKeyDer::Pkcs8(key));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().expect("versions");
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server.expect("a key")), Arc::new(client))
}

/// The output of a future that waits for nothing.
fn now<F: Future>(task: F) -> F::Output {
    match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
