//! PROXY headers through the binary: in pieces, believed or not, refused and counted, and what they
//! tell (P18).

mod harness;

#[path = "reference/proxy_protocol.rs"]
#[allow(dead_code, reason = "shared with fuzz/")]
mod written;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::client::ask;
use harness::grammar::values;
use harness::proxy::free_address;
use harness::{Client, Origin, Proxy, Settings, ms, poll};
use serde_json::Value;

const GET: &[u8] = b"GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n";
const CLAIM: &[u8] = b"GET /one HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
const TIMEOUTS: &str =
    "timeouts = { head = \"1s\", body = \"1s\", idle = \"30s\", write = \"1s\" }\n";

/// An origin, and a proxy in front of it that trusts its own machine and 10.0.0.0/8.
fn proxied(driver: &'static str, mode: &str) -> (Origin, Proxy) {
    trusting(driver, mode, "\"127.0.0.0/8\", \"10.0.0.0/8\"")
}

/// The same with more lines in its listener.
fn proxied_with(driver: &'static str, mode: &str, lines: &str) -> (Origin, Proxy) {
    let (origin, mut proxy) = proxied(driver, mode);
    let lines = proxy.settings().listener.clone() + lines;
    let settings = proxy.settings().clone().listener(&lines);
    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    (origin, proxy)
}

fn trusting(driver: &'static str, mode: &str, trusted: &str) -> (Origin, Proxy) {
    let origin = Origin::start();
    let lines = format!("proxy_protocol = \"{mode}\"\ntrusted_proxies = [{trusted}]\n{TIMEOUTS}");
    let proxy = Proxy::start(Settings::new(driver, &origin.address).listener(&lines));
    (origin, proxy)
}

/// The ends of a connection to port 443.
fn from(source: &str) -> Option<(SocketAddr, SocketAddr)> {
    let source: SocketAddr = source.parse().expect("an address");
    let to = if source.is_ipv4() { "198.51.100.1:443" } else { "[2001:db8::443]:443" };
    Some((source, to.parse().expect("an address")))
}

fn v2(source: &str, tlvs: &[Vec<u8>]) -> Vec<u8> {
    let (family, addresses) = written::addresses(from(source));
    written::block(1, family, &[addresses, tlvs.concat()].concat())
}

fn counted(proxy: &Proxy, result: &str) -> f64 {
    proxy.metric("ringway_proxy_protocol_total", &format!("result=\"{result}\""))
}

/// Sends these bytes on a connection of its own and waits for one answer of 200.
fn served(proxy: &Proxy, bytes: &[u8]) {
    let received = ask(proxy.address, bytes, ms(3_000)).expect("an answer");
    assert_eq!(received.finals[0].status, 200, "{}", bytes.escape_ascii());
}

/// The values of a field in the request that came last.
fn told(origin: &Origin, name: &str) -> String {
    origin.look(|record| {
        let request = record.requests.last().expect("a request");
        let values = values(&request.fields, name);
        String::from_utf8_lossy(&values.join(&b"|"[..])).into_owned()
    })
}

/// Both versions, both families; the request in the same packet.
fn the_client_is_the_announced_one(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    for (source, shown) in [
        ("192.0.2.7:4711", "192.0.2.7"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("[::ffff:192.0.2.8]:1", "192.0.2.8"),
    ] {
        for header in [written::line(from(source)), v2(source, &[])] {
            served(&proxy, &[&header[..], GET].concat());
            assert_eq!(told(&origin, "x-forwarded-for"), shown);
            assert_eq!(told(&origin, "x-forwarded-port"), "443");
            assert_eq!(told(&origin, "x-forwarded-proto"), "http");
        }
    }
    assert_eq!((counted(&proxy, "v1"), counted(&proxy, "v2")), (3.0, 3.0));
}

/// A header counts for every request of its connection, and for none but the first bytes.
fn requests_behind_a_header(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    let client = Client::open(proxy.address).expect("a connection");
    let header = written::line(from("192.0.2.7:4711"));
    client.send(&[&header[..], GET, GET].concat());
    assert!(client.wait_responses(2, ms(3_000)), "pipelined requests are answered");
    client.send(GET);
    assert!(client.wait_responses(3, ms(3_000)), "and later ones");
    let all = origin.look(|record| {
        let of = |request: &harness::Request| {
            values(&request.fields, "x-forwarded-for").concat() == b"192.0.2.7"
        };
        (record.requests.len(), record.requests.iter().all(of))
    });
    assert_eq!(all, (3, true));
    client.send(&[&header[..], GET].concat());
    assert!(client.wait_responses(4, ms(3_000)), "a second header is no request");
    assert_eq!(client.received().finals[3].status, 400);
    assert_eq!(counted(&proxy, "v1"), 1.0);
}

/// Byte by byte, the request too; and split in the middle of the request.
fn pieces(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    let tlvs = [written::tlv(2, b"shop.test"), written::tlv(5, b"17")];
    for header in [written::line(from("192.0.2.7:4711")), v2("192.0.2.7:4711", &tlvs)] {
        let all = [&header[..], GET].concat();
        let slow = Client::open(proxy.address).expect("a connection");
        slow.drip(&all, ms(1));
        assert!(slow.wait_responses(1, ms(3_000)), "byte by byte");
        let split = Client::open(proxy.address).expect("a connection");
        split.send(&all[..header.len() + 7]);
        harness::pause(ms(20));
        split.send(&all[header.len() + 7..]);
        assert!(split.wait_responses(1, ms(3_000)), "in the middle of the request");
        assert_eq!(told(&origin, "x-forwarded-for"), "192.0.2.7");
    }
}

/// Half a header, with and without an end; nothing at all; a header that trickles.
fn headers_that_do_not_come(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    let header = written::line(from("192.0.2.7:4711"));
    for half in [&header[..3], &header[..20], &v2("192.0.2.7:4711", &[])[..20]] {
        let mut client = Client::open(proxy.address).expect("a connection");
        client.send(half);
        client.half_close();
        assert!(client.wait_end(ms(3_000)), "closed");
        assert_eq!(client.bytes(), 0, "without an answer");
        client.close();
    }
    Client::open(proxy.address).expect("a connection").close();
    assert!(poll(ms(3_000), || counted(&proxy, "empty") == 1.0));
    assert_eq!(counted(&proxy, "incomplete"), 3.0);
    let silent = Client::open(proxy.address).expect("a connection");
    let slow = Client::open(proxy.address).expect("a connection");
    slow.drip(&header[..12], ms(150));
    for client in [&slow, &silent] {
        assert!(client.wait_end(ms(3_000)), "closed in time");
        assert_eq!(client.bytes(), 0, "without an answer");
    }
    assert!(poll(ms(3_000), || counted(&proxy, "timeout") == 2.0));
    assert_eq!(origin.look(|record| record.connections.len()), 0, "nothing reached the origin");
}

/// Every reason is counted under its name, and none brings an answer.
fn headers_that_are_refused(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    let sum = written::addresses(from("192.0.2.7:4711"));
    let mut checked = written::checked(sum.0, &sum.1);
    served(&proxy, &[&checked[..], GET].concat());
    *checked.last_mut().expect("not empty") ^= 1;
    let long = [b"PROXY UNKNOWN ", &[b'x'; 100][..], b"\r\n"].concat();
    let connections = origin.look(|record| record.connections.len());
    for (bytes, result) in [
        (&b"PROXY TCP4 192.0.2.7 198.51.100.1 04711 443\r\n"[..], "malformed_v1"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\n", "malformed_v1"),
        (&long, "too_long"),
        (&written::block(1, 0x41, &[0; 12]), "malformed_v2"),
        (&written::block(3, 0x11, &[0; 12]), "malformed_v2"),
        (&v2("192.0.2.7:4711", &[vec![4, 0, 9]]), "malformed_v2"),
        (&v2("192.0.2.7:4711", &[written::tlv(5, &[b'x'; 129])]), "too_long"),
        (&written::block(1, 0x11, &[0; 8_193]), "too_long"),
        (&checked, "checksum"),
        (b"", "missing"),
    ] {
        let before = counted(&proxy, result);
        let client = Client::open(proxy.address).expect("a connection");
        client.send(&[bytes, GET].concat());
        assert!(client.wait_end(ms(3_000)), "{result}: closed");
        assert_eq!(client.bytes(), 0, "{result}: without an answer");
        assert!(poll(ms(3_000), || counted(&proxy, result) == before + 1.0), "{result}");
    }
    assert_eq!(origin.look(|record| record.connections.len()), connections);
}

/// From a peer that is not trusted a header is nothing, and a listener that requires one is closed.
fn peers_that_are_not_trusted(driver: &'static str) {
    let header = written::line(from("192.0.2.7:4711"));
    let (_origin, proxy) = trusting(driver, "required", "\"192.0.2.0/24\"");
    for bytes in [&[&header[..], GET].concat()[..], GET] {
        let client = Client::open(proxy.address).expect("a connection");
        client.send(bytes);
        assert!(client.wait_end(ms(3_000)), "closed");
        assert_eq!(client.bytes(), 0, "without an answer");
    }
    assert!(poll(ms(3_000), || counted(&proxy, "untrusted") == 2.0));

    let (origin, proxy) = trusting(driver, "optional", "\"192.0.2.0/24\"");
    served(&proxy, CLAIM);
    assert_eq!(told(&origin, "x-forwarded-for"), "127.0.0.1");
    for header in [&header, &v2("192.0.2.7:4711", &[])] {
        let all = [&header[..], GET].concat();
        let received = ask(proxy.address, &all, ms(3_000)).expect("an answer");
        assert_eq!(received.finals[0].status, 400, "a header is no request");
    }
    assert_eq!(proxy.metric("ringway_proxy_protocol_total", ""), 0.0);
}

/// With and without a header on one listener; a silent connection is not closed for want of one.
fn an_optional_header(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "optional");
    let patient = Client::open(proxy.address).expect("a connection");
    served(&proxy, GET);
    assert_eq!(told(&origin, "x-forwarded-for"), "127.0.0.1");
    served(&proxy, CLAIM);
    assert_eq!(told(&origin, "x-forwarded-for"), "203.0.113.9, 127.0.0.1");
    served(&proxy, &[&written::line(from("192.0.2.7:4711"))[..], GET].concat());
    assert_eq!(told(&origin, "x-forwarded-for"), "192.0.2.7");
    served(&proxy, b"PROPFIND /one HTTP/1.1\r\nHost: a.test\r\n\r\n");
    served(&proxy, &[b"\r\n\r\n", GET].concat());
    harness::pause(ms(1_500));
    patient.send(GET);
    assert!(patient.wait_responses(1, ms(3_000)), "longer than a head may take");
    assert_eq!((counted(&proxy, "none"), counted(&proxy, "v1")), (5.0, 1.0));
}

/// What a client says of earlier hops is believed if the announced client is trusted, and nobody
/// else (docs/decisions/0013).
fn whose_fields_are_believed(driver: &'static str) {
    let (origin, proxy) = proxied(driver, "required");
    let unix = written::block(1, 0x31, &[0; 216]);
    for (header, shown) in [
        (written::line(from("192.0.2.7:4711")), "192.0.2.7"),
        (v2("192.0.2.7:4711", &[]), "192.0.2.7"),
        (written::line(from("10.1.2.3:4711")), "203.0.113.9, 10.1.2.3"),
        (v2("[::ffff:10.1.2.3]:4711", &[]), "203.0.113.9, 10.1.2.3"),
        (written::line(None), "127.0.0.1"),
        (written::block(1, 0x00, b""), "127.0.0.1"),
        (unix, "127.0.0.1"),
        (written::block(0, 0x00, b""), "203.0.113.9, 127.0.0.1"),
        (written::block(0, 0x11, &[1; 12]), "203.0.113.9, 127.0.0.1"),
    ] {
        served(&proxy, &[&header[..], CLAIM].concat());
        assert_eq!(told(&origin, "x-forwarded-for"), shown, "{}", header.escape_ascii());
    }
    assert_eq!(counted(&proxy, "local"), 2.0);
}

/// Rules about clients and texts with variables, and a reload in between.
fn rules_go_by_the_announced_client(driver: &'static str) {
    let (origin, mut proxy) = proxied(driver, "required");
    let route = "[[route]]\nid = \"all\"\nprefix = \"/\"\nupstream = \"main\"\nfilters = [\n\
                 { kind = \"ip_list\", deny = [\"192.0.2.0/24\"] },\n\
                 { kind = \"headers\", set = { x-seen-as = \"${client.address} ${client.port} \
                 ${proxy.authority} ${proxy.unique_id} ${proxy.ssl_cn}.\" } }]\n";
    let settings = proxy.settings().clone().routes(route);
    proxy.rewrite(settings.clone());
    assert_eq!(proxy.reload().0, 200);
    let denied = [&v2("192.0.2.7:4711", &[])[..], GET].concat();
    let received = ask(proxy.address, &denied, ms(3_000)).expect("an answer");
    assert_eq!(received.finals[0].status, 403);

    let ssl = written::ssl(0x03, false, &[written::tlv(0x22, b"alice\r\nX: y")]);
    let tlvs = [written::tlv(2, b"shop.test"), written::tlv(5, b"id"), written::tlv(0x20, &ssl)];
    let kept = Client::open(proxy.address).expect("a connection");
    kept.send(&[&v2("203.0.113.1:4711", &tlvs)[..], CLAIM].concat());
    assert!(kept.wait_responses(1, ms(3_000)), "an answer");
    assert_eq!(told(&origin, "x-seen-as"), "203.0.113.1 4711 shop.test id aliceX: y.");
    assert_eq!(told(&origin, "x-forwarded-for"), "203.0.113.1");

    let lines =
        format!("proxy_protocol = \"off\"\ntrusted_proxies = [\"203.0.113.0/24\"]\n{TIMEOUTS}");
    proxy.rewrite(settings.listener(&lines));
    assert_eq!(proxy.reload().0, 200);
    kept.send(CLAIM);
    assert!(kept.wait_responses(2, ms(3_000)), "an answer");
    assert_eq!(told(&origin, "x-seen-as"), "203.0.113.9 4711 shop.test id aliceX: y.");
    assert_eq!(told(&origin, "x-forwarded-for"), "203.0.113.9, 203.0.113.1");
    served(&proxy, GET);
    assert_eq!(told(&origin, "x-forwarded-for"), "127.0.0.1", "a new connection needs none");
}

fn with_log(proxy: &mut Proxy) -> std::path::PathBuf {
    let path = proxy.directory().join("access.log");
    let mut settings = proxy.settings().clone();
    settings.routes += &format!("[access_log]\npath = \"{}\"\nformat = \"json\"\n", path.display());
    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    path
}

/// The line of the access log of this target.
fn logged(log: &Path, target: &str) -> Value {
    let find = || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().find(|line| line.contains(target)).map(str::to_owned)
    };
    assert!(poll(ms(5_000), || find().is_some()), "{target} is not in the log");
    serde_json::from_str(&find().expect("just seen")).expect("JSON")
}

/// Lines of connections that told something have it, refused requests too; others have none of it.
fn the_log_has_what_was_told(driver: &'static str) {
    let (_origin, mut proxy) = proxied(driver, "required");
    let log = with_log(&mut proxy);
    let parts = [written::tlv(0x21, b"TLSv1.3"), written::tlv(0x22, b"alice")];
    let tlvs = [
        written::tlv(1, b"h2"),
        written::tlv(2, b"shop.test"),
        written::tlv(5, b"\xfe\"17"),
        written::tlv(0x20, &written::ssl(0x03, false, &parts)),
    ];
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes();
    served(&proxy, &[v2("192.0.2.7:4711", &tlvs), get("/told")].concat());
    let refused = [v2("192.0.2.7:4711", &tlvs), b"GET /refused HTTP/1.1\r\n\r\n".to_vec()].concat();
    ask(proxy.address, &refused, ms(3_000)).expect("an answer");
    for target in ["/told", "/refused"] {
        let line = logged(&log, target);
        for (key, value) in [
            ("client", "192.0.2.7"),
            ("proxy_authority", "shop.test"),
            ("proxy_unique_id", "\u{fe}\"17"),
            ("proxy_alpn", "h2"),
            ("proxy_ssl_version", "TLSv1.3"),
            ("proxy_ssl_cn", "alice"),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
    }
    let unverified = written::ssl(0x03, true, &parts);
    let few = [written::tlv(0x20, &unverified)];
    served(&proxy, &[v2("192.0.2.8:4711", &few), get("/unverified")].concat());
    let line = logged(&log, "/unverified");
    assert_eq!((&line["proxy_ssl_version"], line.get("proxy_ssl_cn")), (&"TLSv1.3".into(), None));
    served(&proxy, &[written::line(from("192.0.2.9:4711")), get("/plain")].concat());
    let line = logged(&log, "/plain");
    assert_eq!(line["client"], "192.0.2.9");
    assert!(!line.to_string().contains("proxy_"), "{line}");
}

/// HTTP/2 by prior knowledge behind a header, which may come in one piece with the preface or in
/// bytes.
fn http2_behind_a_header(driver: &'static str) {
    let (_origin, proxy) = proxied_with(driver, "optional", "h2c = true\n");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let settings = b"\x04\0\0\0\0\0";
    for header in [&written::line(from("192.0.2.7:4711"))[..], &v2("192.0.2.7:4711", &[]), b""] {
        let whole = Client::open(proxy.address).expect("a connection");
        whole.send(&[header, preface].concat());
        assert!(whole.wait_text(settings), "{}", header.escape_ascii());
        let slow = Client::open(proxy.address).expect("a connection");
        slow.drip(&[header, preface].concat(), ms(1));
        assert!(slow.wait_text(settings), "{}: byte by byte", header.escape_ascii());
    }
    served(&proxy, &[&written::line(from("192.0.2.7:4711"))[..], GET].concat());
    assert_eq!(
        (counted(&proxy, "v1"), counted(&proxy, "v2"), counted(&proxy, "none")),
        (3.0, 2.0, 2.0)
    );
}

/// HAProxy as a process; killed when it is dropped.
struct HaProxy(Child);

impl Drop for HaProxy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl HaProxy {
    /// Runs it with frontends that pass TCP on to `backend`: version 1, version 2, and version 2
    /// behind TLS with a client's certificate. None where it is not installed.
    fn start(directory: &Path, backend: SocketAddr, ports: [SocketAddr; 3]) -> Option<HaProxy> {
        let server = rcgen::generate_simple_self_signed(["shop.test".into()]).expect("made");
        let pem = server.cert.pem() + &server.signing_key.serialize_pem();
        let client = client_certificate(directory);
        let write = |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).expect("the directory takes it");
        };
        write("server.pem", &pem);
        write("ca.pem", &client);
        let [one, two, tls] = ports;
        let options = "crc32c,unique-id,authority,ssl,cert-cn";
        let dir = directory.display();
        write(
            "haproxy.cfg",
            &format!(
                "defaults\n mode tcp\n timeout connect 2s\n timeout client 10s\n timeout server 10s\n\
                 listen one\n bind {one}\n server s {backend} send-proxy\n\
                 listen two\n bind {two}\n unique-id-format id-%ci-%fp\n \
                 server s {backend} send-proxy-v2 proxy-v2-options {options} check inter 100ms\n\
                 listen tls\n bind {tls} ssl crt {dir}/server.pem alpn http/1.1 ca-file {dir}/ca.pem \
                 verify required\n unique-id-format id-%ci-%fp\n \
                 server s {backend} send-proxy-v2 proxy-v2-options {options}\n"
            ),
        );
        let child = Command::new("haproxy")
            .args(["-db", "-f"])
            .arg(directory.join("haproxy.cfg"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let haproxy = HaProxy(child.ok()?);
        let up = || ports.iter().all(|port| std::net::TcpStream::connect(port).is_ok());
        assert!(poll(ms(10_000), up), "HAProxy listens");
        Some(haproxy)
    }
}

/// A client's key and certificate in files; the certificate again as text.
fn client_certificate(directory: &Path) -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    let all = pem.clone() + &key.serialize_pem();
    std::fs::write(directory.join("client.pem"), all).expect("the directory takes it");
    pem
}

/// A request over TLS, by openssl.
fn ask_tls(directory: &Path, address: SocketAddr, request: &[u8]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-servername", "shop.test", "-alpn", "http/1.1"])
        .arg("-connect")
        .arg(address.to_string())
        .arg("-cert")
        .arg(directory.join("client.pem"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs where HAProxy does");
    client.stdin.as_mut().expect("a pipe").write_all(request).expect("it takes the request");
    let output = client.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both versions as HAProxy sends them, with all that it tells, and its health checks.
fn from_haproxy(driver: &'static str) {
    let (origin, mut proxy) = proxied(driver, "required");
    let log = with_log(&mut proxy);
    let ports = [free_address(), free_address(), free_address()];
    let directory = harness::proxy::scratch();
    let Some(_haproxy) = HaProxy::start(&directory, proxy.address, ports) else {
        println!("HAProxy is not installed: left out");
        return;
    };
    for (port, target) in ports.iter().zip(["/v1", "/v2"]) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        ask(*port, request.as_bytes(), ms(5_000)).expect("an answer");
        assert_eq!(told(&origin, "x-forwarded-for"), "127.0.0.1");
        assert_eq!(told(&origin, "x-forwarded-port"), port.port().to_string());
    }
    let id = |port: SocketAddr| format!("id-127.0.0.1-{}", port.port());
    assert_eq!(logged(&log, "/v1").get("proxy_unique_id"), None);
    assert_eq!(logged(&log, "/v2")["proxy_unique_id"], id(ports[1]));

    let request = b"GET /tls HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n";
    let answer = ask_tls(&directory, ports[2], request);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = logged(&log, "/tls");
    for (key, value) in [
        ("proxy_authority", "shop.test"),
        ("proxy_unique_id", &*id(ports[2])),
        ("proxy_alpn", "http/1.1"),
        ("proxy_ssl_version", "TLSv1.3"),
        ("proxy_ssl_cn", "alice"),
    ] {
        assert_eq!(line[key], value, "{key} of {line}");
    }
    assert!(poll(ms(5_000), || counted(&proxy, "local") > 0.0), "its health checks");
    for result in ["malformed_v1", "malformed_v2", "checksum", "missing", "too_long"] {
        assert_eq!(counted(&proxy, result), 0.0, "{result}");
    }
    drop(std::fs::remove_dir_all(&directory));
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    the_client_is_the_announced_one requests_behind_a_header pieces headers_that_do_not_come
    headers_that_are_refused peers_that_are_not_trusted an_optional_header
    whose_fields_are_believed http2_behind_a_header rules_go_by_the_announced_client the_log_has_what_was_told
    from_haproxy
}
