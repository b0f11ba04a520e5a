//! Checks over real sockets, of origins that answer in every way.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::snapshot::{Ids, load_text};

/// The target of an upstream of one endpoint; `more` are lines of the upstream.
fn target(address: &str, more: &str) -> Arc<Target> {
    let text = format!(
        "[listener.a]\naddress = \"127.0.0.1:1\"\n[upstream.u]\n\
         endpoints = [{{ address = \"{address}\" }}]\n{more}\n\
         [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n"
    );
    let snapshot = load_text("test", &text, &mut Ids::default(), 1).expect("valid").snapshot;
    let plan = &snapshot.upstreams[0];
    let health = plan.health.clone().expect("health is given");
    Arc::new(Target { health, endpoint: plan.endpoints[0].clone() })
}

async fn checked(address: &str, more: &str) -> Result<(), Box<str>> {
    check(target(address, more), Vec::new(), Permits::default()).await
}

/// An origin that gives every connection this answer to its first head, and keeps the heads.
async fn origin(answer: &'static [u8]) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    let (heads, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let _ = heads.send(String::from_utf8_lossy(&head).into_owned());
                let _ = stream.write_all(answer).await;
                // A body without an end keeps the connection open.
                let _ = stream.read_u8().await;
            });
        }
    });
    (address, seen)
}

#[tokio::test]
async fn statuses_and_bodies_are_expected() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nall is fine";
    let (address, mut heads) = origin(ok).await;
    assert_eq!(checked(&address, "health = {}").await, Ok(()));
    let head = heads.recv().await.expect("a head");
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
    let more = "health = { path = \"/up?x=1\", host = \"app.test\", body = \"is fine\" }";
    assert_eq!(checked(&address, more).await, Ok(()));
    let head = heads.recv().await.expect("a head");
    assert!(head.starts_with("GET /up?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: app.test\r\n"), "{head}");
    let said = checked(&address, "health = { body = \"is bad\" }").await.expect_err("no such text");
    assert_eq!(&*said, "the body does not contain \"is bad\"");
    let said = checked(&address, "health = { statuses = [204, \"300-399\"] }").await;
    assert_eq!(said, Err("status 200".into()));
    let (address, _) = origin(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(checked(&address, "health = {}").await, Err("status 503".into()));
    assert_eq!(checked(&address, "health = { statuses = [\"500-599\"] }").await, Ok(()));
}

#[tokio::test]
async fn a_text_is_found_across_the_parts_of_an_endless_body() {
    let parts = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2\r\ndy\r\n";
    let (address, _heads) = origin(parts).await;
    assert_eq!(checked(&address, "health = { body = \"ready\" }").await, Ok(()));
    let more = "health = { body = \"never\", timeout = \"200ms\" }";
    assert_eq!(checked(&address, more).await, Err("nothing within 200 ms".into()));
}

#[tokio::test]
async fn what_does_not_answer_fails_and_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    let silent = "timeout = \"100ms\"";
    let said = checked(&address, &format!("health = {{ {silent} }}")).await;
    assert_eq!(said, Err("nothing within 100 ms".into()));
    assert_eq!(checked(&address, "health = { kind = \"tcp\" }").await, Ok(()));
    drop(listener);
    for kind in ["http", "tcp", "grpc"] {
        let said = checked(&address, &format!("health = {{ kind = \"{kind}\" }}")).await;
        assert_eq!(said, Err("connection refused".into()), "{kind}");
    }
    let (address, _heads) = origin(b"SSH-2.0-nothing\r\n\r\n").await;
    let said = checked(&address, "health = {}").await.expect_err("no HTTP");
    assert!(said.starts_with("no answer: "), "{said}");
}

#[tokio::test]
async fn an_endpoint_of_several_addresses_is_up_while_one_is() {
    let (up, _heads) = origin(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let dead = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let (up, down) = (up.parse().expect("one"), dead.local_addr().expect("an address"));
    drop(dead);
    let target = target("name.test:80", "health = {}");
    let asked = |addresses| check(target.clone(), addresses, Permits::default());
    assert_eq!(asked(vec![down, up]).await, Ok(()));
    assert_eq!(asked(vec![down]).await, Err("connection refused".into()));
    assert_eq!(asked(vec![]).await, Err("its name has no address".into()));
}

/// An origin that speaks HTTP/2, and answers as its path or the service that is asked for says.
async fn http2_origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, reply))) = connection.accept().await {
                    tokio::spawn(answer(request, reply));
                }
            });
        }
    });
    address
}

async fn answer(request: Request<h2::RecvStream>, mut reply: h2::server::SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    let mut asked = Vec::new();
    let mut body = request.into_body();
    while let Some(Ok(data)) = body.data().await {
        asked.extend_from_slice(&data);
    }
    let response = |status: u16| http::Response::builder().status(status);
    let trailers = |status: &'static str| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static(status));
        trailers
    };
    let serving = |status: u8| Bytes::from(vec![0, 0, 0, 0, 2, 0x08, status]);
    let has = |name: &str| asked.ends_with(name.as_bytes());
    let sent = match &*path {
        grpc::PATH if has("missing") => {
            let head = response(200).header("grpc-status", "5").body(()).expect("a head");
            reply.send_response(head, true).map(|_| ())
        }
        grpc::PATH => {
            let head = response(200).body(()).expect("a head");
            let (status, code) = match (has("stopped"), has("broken")) {
                (true, _) => (2, "0"),
                (_, true) => (1, "13"),
                _ => (1, "0"),
            };
            reply.send_response(head, false).and_then(|mut stream| {
                stream.send_data(serving(status), false)?;
                stream.send_trailers(trailers(code))
            })
        }
        "/healthz" => reply
            .send_response(response(200).body(()).expect("a head"), false)
            .and_then(|mut stream| stream.send_data(Bytes::from_static(b"fine"), true)),
        _ => reply.send_response(response(404).body(()).expect("a head"), true).map(|_| ()),
    };
    // A client that has gone away is none of its business.
    let _ = sent;
}

#[tokio::test]
async fn grpc_services_say_whether_they_serve() {
    let address = http2_origin().await;
    for (service, said) in [
        ("", Ok(())),
        ("service = \"app.v1.Good\"", Ok(())),
        ("service = \"stopped\"", Err("NOT_SERVING")),
        ("service = \"missing\"", Err("grpc-status 5")),
        ("service = \"broken\"", Err("grpc-status 13")),
    ] {
        let comma = if service.is_empty() { "" } else { ", " };
        let more = format!("protocol = \"http2\"\nhealth = {{ kind = \"grpc\"{comma}{service} }}");
        assert_eq!(checked(&address, &more).await, said.map_err(Into::into), "{service}");
    }
}

#[tokio::test]
async fn upstreams_of_http2_are_checked_over_http2() {
    let address = http2_origin().await;
    let health = |more: &str| format!("protocol = \"http2\"\nhealth = {{ {more} }}");
    let more = health("path = \"/healthz\", body = \"fine\"");
    assert_eq!(checked(&address, &more).await, Ok(()));
    let more = health("path = \"/healthz\", body = \"bad\"");
    assert!(checked(&address, &more).await.is_err());
    assert_eq!(checked(&address, &health("")).await, Err("status 404".into()));
}

#[tokio::test]
async fn checks_speak_tls_and_verify_where_the_upstream_does() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["app.test".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("signed");
    let folder = std::env::temp_dir().join(format!("ringway-checks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, certificate.pem()).expect("written");
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                let _ = stream.flush().await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    let tls = |sni: &str| format!("tls = {{ ca = \"{}\", sni = \"{sni}\" }}", ca.display());
    for kind in ["http", "tcp"] {
        let health = format!("health = {{ kind = \"{kind}\" }}");
        assert_eq!(checked(&address, &format!("{}\n{health}", tls("app.test"))).await, Ok(()));
        let said = checked(&address, &format!("{}\n{health}", tls("other.test"))).await;
        let said = said.expect_err("a certificate for another name");
        assert!(said.starts_with("TLS: "), "{said}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
