//! How connections end, and why handshakes fail.

use std::io::ErrorKind;

use rustls::CipherSuite;
use rustls::crypto::aws_lc_rs::default_provider;

use super::*;

/// Our server against a client; what both make of it.
async fn refused_by_us(
    ours: rustls::ServerConfig,
    peer: impl FnOnce(Stream) -> Peer,
) -> (HandshakeFailure, String) {
    let (near, far) = sockets();
    let peer = peer(far);
    let shaking = async {
        let failed = handshake(near, serving(ours), Buf::empty()).await.expect_err("refuses");
        failed.stream.shutdown(Shutdown::Write);
        (failed.reason, failed.stream)
    };
    // A client of 1.3 is done before the server has looked at its certificate.
    let theirs = async {
        match peer.handshake().await {
            Ok(()) => peer.read(1).await.map(|_| ()),
            failed => failed,
        }
    };
    let ((reason, _stream), theirs) = join(shaking, theirs).await;
    (reason, theirs.expect_err("told").to_string())
}

/// Our client against a server.
async fn refused_by_client(
    theirs: rustls::ServerConfig,
    ours: rustls::ClientConfig,
) -> (HandshakeFailure, String) {
    let (near, far) = sockets();
    let peer = Peer::server(theirs, far);
    let shaking = async {
        let failed = handshake(near, calling(ours), Buf::empty()).await.expect_err("refuses");
        failed.stream.shutdown(Shutdown::Write);
        (failed.reason, failed.stream)
    };
    let ((reason, _stream), theirs) = join(shaking, peer.handshake()).await;
    (reason, theirs.expect_err("told").to_string())
}

const ALERT: u8 = 21;

fn only(suite: CipherSuite) -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    let mut provider = default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    std::sync::Arc::new(provider)
}

#[test]
fn a_server_says_why_it_refuses() {
    let (authority, other) = (Authority::new(), Authority::new());
    on_both(async || {
        let client = |config| move |far| Peer::client(config, NAME, far);
        let versions = refused_by_us(authority.server(NEW), client(authority.client(OLD)));
        let (reason, told) = versions.await;
        assert_eq!(reason, HandshakeFailure::NoSharedVersion);
        assert!(told.contains("ProtocolVersion"), "{told}");

        let mut alpn = (authority.server(BOTH), authority.client(BOTH));
        alpn.0.alpn_protocols = vec![b"h2".to_vec()];
        alpn.1.alpn_protocols = vec![b"http/1.0".to_vec()];
        let (reason, told) = refused_by_us(alpn.0, client(alpn.1)).await;
        assert_eq!(reason, HandshakeFailure::NoAlpn);
        assert!(told.contains("NoApplicationProtocol"), "{told}");

        let (reason, told) =
            refused_by_us(authority.strict_server(), client(authority.client(BOTH))).await;
        assert_eq!(reason, HandshakeFailure::CertificateMissing);
        assert!(told.contains("CertificateRequired"), "{told}");

        let old = authority.client_as(authority.identity("old.test", 2001));
        let (reason, told) = refused_by_us(authority.strict_server(), client(old)).await;
        assert_eq!(reason, HandshakeFailure::CertificateExpired);
        assert!(told.contains("Expired"), "{told}");

        let builder =
            rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let (chain, key) = other.identity("foreign.test", 2100);
        let foreign =
            builder.with_root_certificates(authority.roots()).with_client_auth_cert(chain, key);
        let (reason, told) =
            refused_by_us(authority.strict_server(), client(foreign.expect("a key"))).await;
        assert_eq!(reason, HandshakeFailure::CertificateRefused);
        assert!(told.contains("fatal alert"), "{told}");

        let (reason, _) = refused_by_us(authority.server(BOTH), client(other.client(BOTH))).await;
        assert_eq!(reason, HandshakeFailure::PeerAlert);
    });
}

#[test]
fn no_cipher_and_no_certificate_have_their_names() {
    #[derive(Debug)]
    struct None_;
    impl rustls::server::ResolvesServerCert for None_ {
        fn resolve(
            &self,
            _: rustls::server::ClientHello<'_>,
        ) -> Option<std::sync::Arc<rustls::sign::CertifiedKey>> {
            None
        }
    }
    let authority = Authority::new();
    on_one(async {
        let (chain, key) = authority.identity(NAME, 2100);
        let builder = rustls::ServerConfig::builder_with_provider(only(
            CipherSuite::TLS13_AES_128_GCM_SHA256,
        ));
        let builder = builder.with_protocol_versions(NEW).expect("versions");
        let ours = builder.with_no_client_auth().with_single_cert(chain, key).expect("a key");
        let builder = rustls::ClientConfig::builder_with_provider(only(
            CipherSuite::TLS13_AES_256_GCM_SHA384,
        ));
        let builder = builder.with_protocol_versions(NEW).expect("versions");
        let theirs = builder.with_root_certificates(authority.roots()).with_no_client_auth();
        let (reason, _) = refused_by_us(ours, |far| Peer::client(theirs, NAME, far)).await;
        assert_eq!(reason, HandshakeFailure::NoSharedCipher);

        let mut ours = authority.server(BOTH);
        ours.cert_resolver = std::sync::Arc::new(None_);
        let client = authority.client(BOTH);
        let (reason, _) = refused_by_us(ours, |far| Peer::client(client, NAME, far)).await;
        assert_eq!(reason, HandshakeFailure::UnknownName);
    });
}

#[test]
fn a_client_says_why_it_refuses() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = |identity: peer::Identity| {
        let builder =
            rustls::ServerConfig::builder_with_provider(std::sync::Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        builder.with_no_client_auth().with_single_cert(identity.0, identity.1).expect("a key")
    };
    on_both(async || {
        let ours = || authority.client(BOTH);
        let cases = [
            (authority.identity("other.test", 2100), HandshakeFailure::NameMismatch),
            (authority.identity(NAME, 2001), HandshakeFailure::CertificateExpired),
            (other.identity(NAME, 2100), HandshakeFailure::CertificateRefused),
        ];
        for (identity, expected) in cases {
            let (reason, told) = refused_by_client(server(identity), ours()).await;
            assert_eq!(reason, expected);
            assert!(told.contains("lert"), "{told}");
        }
        let theirs = authority.server(OLD);
        let (reason, _) = refused_by_client(theirs, authority.client(NEW)).await;
        assert!(matches!(reason, HandshakeFailure::PeerAlert | HandshakeFailure::NoSharedVersion));
    });
}

#[test]
fn what_is_no_tls_is_told_apart() {
    let authority = Authority::new();
    on_one(async {
        let cases: [(&[u8], HandshakeFailure); 7] = [
            (b"GET / HTTP/1.1\r\n", HandshakeFailure::PlainHttp),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HandshakeFailure::PlainHttp),
            (b"\x80\x2e\x01\x00\x02\x00\x15\x00", HandshakeFailure::Malformed),
            (b"\x16\x03\x01\x00\x05hello", HandshakeFailure::Malformed),
            (b"\x17\x03\x03\x00\x01x", HandshakeFailure::Malformed),
            (b"\x16\x03\x01\xff\xff", HandshakeFailure::Malformed),
            (b"\x15\x03\x01\x00\x02\x02\x28", HandshakeFailure::PeerAlert),
        ];
        for (bytes, expected) in cases {
            let (near, far) = ends();
            let failed = handshake(near, serving(authority.server(BOTH)), Buf::from(bytes)).await;
            let failed = failed.expect_err("no TLS");
            assert_eq!(failed.reason, expected, "{failed}");
            let answer = far.take();
            assert!(answer.is_empty() || answer[0] == ALERT, "{failed}: {answer:?}");
        }
        for half in [&b""[..], b"\x16\x03\x01\x00\x50\x01"] {
            let (near, far) = ends();
            drop(far);
            let failed = handshake(near, serving(authority.server(BOTH)), Buf::from(half)).await;
            assert_eq!(failed.expect_err("gone").reason, HandshakeFailure::Closed);
        }
    });
}

/// A peer may not make us hold more than a bound, however it cuts its messages.
#[test]
fn a_hello_that_does_not_end_is_refused() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = ends();
        // A hello of 60,000 bytes, one byte a record.
        let mut records = b"\x16\x03\x01\x00\x04\x01\x00\xea\x60".to_vec();
        for _ in 0..30_000 {
            records.extend_from_slice(b"\x16\x03\x01\x00\x01\x03");
        }
        far.push(&records);
        let failed = handshake(near, serving(authority.server(BOTH)), Buf::empty()).await;
        assert_eq!(failed.expect_err("too much").reason, HandshakeFailure::Malformed);
        assert_eq!(Buf::bodies_in_use(), 0);
    });
}

#[test]
fn an_end_is_told_from_a_cut() {
    let authority = Authority::new();
    on_both(async || {
        for versions in EACH {
            // close_notify, from either side.
            let (near, far) = sockets();
            let (stream, peer) = called(&authority, versions, near, far).await;
            let mut last = peer.seal(b"all");
            last.extend(peer.close_notify());
            peer.send_raw(&last).await.expect("sent");
            assert_eq!(read_exactly(&stream, 3).await, b"all");
            assert_eq!(stream.peek(), Peek::Closed);
            for _ in 0..2 {
                assert!(matches!(stream.read(Buf::for_head()).await, (Ok(0), _)));
            }
            // Our direction is still open.
            write_text(&stream, b"thanks").await;
            stream.finish().await;
            assert_eq!(peer.read(100).await.expect("a clean end"), b"thanks");

            // A cut.
            let (near, far) = sockets();
            let (stream, peer) = called(&authority, versions, near, far).await;
            peer.stream().shutdown(Shutdown::Both);
            let (result, _) = stream.read(Buf::for_head()).await;
            assert_eq!(result.expect_err("cut").kind(), ErrorKind::UnexpectedEof);
            assert_eq!(stream.peek(), Peek::Closed);

            let (near, far) = sockets();
            let (stream, peer) = served(&authority, versions, near, far).await;
            peer.stream().shutdown(Shutdown::Both);
            assert!(matches!(stream.read(Buf::for_head()).await, (Ok(0), _)));
        }
    });
}

/// RFC 8446 section 6.1: without waiting, even where nobody reads, and only once.
#[test]
fn an_idle_connection_says_that_it_ends() {
    let authority = Authority::new();
    on_both(async || {
        for versions in EACH {
            let (near, far) = sockets();
            let (stream, peer) = called(&authority, versions, near, far).await;
            for _ in 0..2 {
                stream.say_end();
            }
            drop(stream);
            assert_eq!(peer.read(100).await.expect("a clean end"), b"");
        }
        let (near, far) = sockets();
        let (stream, peer) = served(&authority, BOTH, near, far).await;
        peer.stream().shutdown(Shutdown::Both);
        stream.say_end();
        let (near, far) = mem::pair();
        let (stream, _peer) = served(&authority, BOTH, Stream::Mem(near), Stream::Mem(far)).await;
        stream.say_end();
        let (refused, _) = stream.write(Buf::from(&b"more"[..])).await;
        assert_eq!(refused.expect_err("it has ended").kind(), ErrorKind::BrokenPipe);
    });
}

/// As those do who look only whether a port speaks TLS.
#[test]
fn a_client_that_closes_with_its_last_message_is_no_failure() {
    let authority = Authority::new();
    on_one(async {
        let (near, far) = mem::pair();
        let peer = Peer::client(authority.client(NEW), NAME, Stream::Mem(far));
        let shaking = handshake(Stream::Mem(near), serving(authority.server(NEW)), Buf::empty());
        let closing = async {
            peer.flush().await.expect("sent");
            let mut last = peer.handshake_but_for_the_last_flight().await;
            last.extend(peer.close_notify());
            peer.send_raw(&last).await.expect("sent");
        };
        let stream = join(shaking, closing).await.0.expect("agrees");
        assert_eq!(stream.peek(), Peek::Closed);
        assert!(matches!(stream.read(Buf::for_head()).await, (Ok(0), _)));
    });
}

#[test]
fn a_changed_record_ends_the_connection_with_an_alert() {
    let authority = Authority::new();
    on_both(async || {
        for versions in EACH {
            let (near, far) = sockets();
            let (stream, peer) = served(&authority, versions, near, far).await;
            let mut records = peer.seal(b"text");
            let last = records.len() - 1;
            records[last] ^= 1;
            peer.send_raw(&records).await.expect("sent");
            let (result, buf) = stream.read(Buf::for_head()).await;
            assert_eq!(result.expect_err("changed").kind(), ErrorKind::InvalidData);
            assert!(buf.is_empty());
            let (result, _) = stream.write(Buf::from(&b"x"[..])).await;
            assert_eq!(result.expect_err("over").kind(), ErrorKind::BrokenPipe);
            let told = peer.read(1).await.expect_err("told").to_string();
            assert!(told.contains("BadRecordMac") || told.contains("DecryptError"), "{told}");
            assert_eq!(engine(&stream).held_bytes(), 0);
        }
    });
}

/// As a sweep that ends an idle wait does: what crosses it is read all the same.
#[test]
fn a_request_that_crossed_the_end_of_a_wait_is_read() {
    let authority = Authority::new();
    on_both(async || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let far =
            std::net::TcpStream::connect(listener.local_addr().expect("one")).expect("connected");
        let (near, _) = listener.accept().expect("accepted");
        let adopt = |socket: std::net::TcpStream| {
            socket.set_nonblocking(true).expect("set");
            Stream::tcp(monoio::net::TcpStream::from_std(socket).expect("adopted"))
        };
        let (stream, peer) = served(&authority, BOTH, adopt(near), adopt(far)).await;
        stream.shutdown(Shutdown::Read);
        assert!(matches!(stream.read(Buf::for_head()).await, (Ok(0), _)));
        peer.send(b"GET / HTTP/1.1\r\n").await.expect("sent");
        assert_eq!(stream.peek(), Peek::Bytes);
        assert_eq!(read_exactly(&stream, 16).await.len(), 16);
        assert_eq!(stream.peek(), Peek::Closed);
    });
}

#[test]
fn failures_have_names_and_places() {
    for (index, failure) in HandshakeFailure::ALL.into_iter().enumerate() {
        assert_eq!(failure.index(), index);
        assert!(failure.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    }
}
