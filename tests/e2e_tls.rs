//! TLS of listeners and upstreams over real sockets: names, versions, clients' certificates, tickets,
//! certificates that change, refused handshakes.

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::http2;
use harness::proxy::{endpoint, route, scratch, upstream};
use harness::tls::{Authority, Leaf, Speaks, TlsClient, TlsOrigin, Wanted, client, put};
use harness::{Origin, Proxy, Settings, ms, poll};
use rustix::process::Signal;
use rustls::ClientConfig;

const ONLY_12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
const ONLY_13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

const TIMEOUTS: &str =
    "timeouts = { head = \"1s\", body = \"1s\", idle = \"5s\", handshake = \"1s\" }\n";

/// A folder with an authority and its certificates, and what it takes to listen with them.
struct Yard {
    folder: PathBuf,
    authority: Authority,
}

impl Yard {
    fn new() -> Yard {
        Yard { folder: scratch(), authority: Authority::new("Test CA") }
    }

    fn leaf(&self, names: &[&str], serial: u64) -> Leaf {
        self.authority.issue(&Wanted::of(names, serial))
    }

    /// A listener with these certificates; `more` stands in its table too.
    fn listener(&self, certs: &[String], more: &str) -> String {
        format!(
            "{TIMEOUTS}tls = {{ certs = [{}], alpn = [\"http/1.1\"]{more} }}\n",
            certs.join(", ")
        )
    }

    /// An upstream whose certificate is of this authority; `more` stands in its table too.
    fn upstream(&self, origin: &TlsOrigin, more: &str) -> String {
        let ca = put(&self.folder, "ca.pem", &self.authority.pem());
        let more = format!("tls = {{ ca = \"{}\" }}\n{more}", ca.display());
        upstream("main", &[endpoint(&origin.address.to_string(), 1)], &more)
    }

    fn config(&self) -> Arc<ClientConfig> {
        client(&self.authority, &Speaks::default(), None)
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn handshakes(proxy: &Proxy, result: &str) -> f64 {
    proxy.metric("ringway_tls_handshakes_total", &format!("result=\"{result}\""))
}

/// Counting follows what the client sees by a moment.
fn counted(proxy: &Proxy, result: &str, count: f64) {
    let reached = poll(ms(3_000), || handshakes(proxy, result) >= count);
    let (_, page) = proxy.admin_get("/metrics").expect("metrics");
    let page = String::from_utf8_lossy(&page).into_owned();
    let lines: Vec<_> = page.lines().filter(|line| line.contains("tls_handshakes")).collect();
    assert!(reached, "{result}: {lines:?}\n{}", proxy.log());
}

/// Exact before wildcard, one label only, and the first certificate for everything else.
fn names(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let leaves = [
        yard.leaf(&["default.test", "localhost"], 1),
        yard.leaf(&["*.wild.test"], 2),
        yard.leaf(&["exact.wild.test", "also.test"], 3),
    ];
    let certs: Vec<String> = leaves
        .iter()
        .enumerate()
        .map(|(at, leaf)| leaf.put(&yard.folder, &at.to_string()))
        .collect();
    let settings = Settings::new(driver, &origin.address).listener(&yard.listener(&certs, ""));
    let proxy = Proxy::start(settings);
    for (name, leaf) in [
        ("default.test", 0),
        ("a.wild.test", 1),
        ("A.WILD.test", 1),
        ("exact.wild.test", 2),
        ("also.test", 2),
    ] {
        let mut client = TlsClient::open(proxy.address, &yard.config(), name).expect(name);
        assert_eq!(client.shown().expect("one"), leaves[leaf].der, "{name}");
        assert!(client.get("/").expect("an answer").starts_with("HTTP/1.1 200"));
    }
    for unknown in ["a.b.wild.test", "wild.test", "nobody.test", "127.0.0.1"] {
        let error =
            TlsClient::open(proxy.address, &yard.config(), unknown).err().expect("wrong name");
        assert!(error.to_string().contains("default.test"), "{unknown}: {error}");
    }
    counted(&proxy, "full", 5.0);
    let shown = proxy.status()["certificates"].clone();
    assert_eq!(shown.as_array().map(Vec::len), Some(3), "{shown}");
    assert!(shown[0]["days_left"].as_f64().is_some_and(|days| days > 20_000.0), "{shown}");
    let ends = proxy.metric("ringway_tls_cert_not_after", "listener=\"main\"");
    assert_eq!(ends, 3.0 * 4_102_444_800.0);
}

/// A certificate for each kind of key side by side; old and new versions; suites and protocols.
fn versions_and_keys(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let ecdsa = yard.leaf(&["a.test"], 1);
    let rsa = yard.authority.issue(&Wanted { rsa: true, ..Wanted::of(&["a.test"], 2) });
    let certs = [rsa.put(&yard.folder, "rsa"), ecdsa.put(&yard.folder, "ecdsa")];
    let settings = Settings::new(driver, &origin.address).listener(&yard.listener(&certs, ""));
    let mut proxy = Proxy::start(settings.clone());
    let open = |proxy: &Proxy, speaks: Speaks| {
        let config = client(&yard.authority, &speaks, None);
        TlsClient::open(proxy.address, &config, "a.test")
    };
    for (versions, suites, leaf) in [
        (ONLY_13, "", &ecdsa),
        (ONLY_12, "", &ecdsa),
        (ONLY_12, "ECDHE_RSA", &rsa),
        (ONLY_12, "ECDHE_ECDSA", &ecdsa),
    ] {
        let speaks = Speaks { versions, suites, ..Speaks::default() };
        let mut client = open(&proxy, speaks).expect("a handshake");
        assert_eq!(client.shown().as_ref(), Some(&leaf.der), "{suites}");
        assert_eq!(client.connection().alpn_protocol(), Some(&b"http/1.1"[..]));
        assert!(client.get("/").expect("an answer").starts_with("HTTP/1.1 200"));
    }
    let mut silent = open(&proxy, Speaks { alpn: &[], ..Speaks::default() }).expect("no ALPN");
    assert_eq!(silent.connection().alpn_protocol(), None);
    assert!(silent.get("/").expect("an answer").starts_with("HTTP/1.1 200"));
    assert!(open(&proxy, Speaks { alpn: &["h3"], ..Speaks::default() }).is_err());
    counted(&proxy, "no_alpn", 1.0);

    let strict = ", min_version = \"1.3\", ciphers = [\"TLS_CHACHA20_POLY1305_SHA256\"]";
    proxy.rewrite(settings.listener(&yard.listener(&certs, strict)));
    assert_eq!(proxy.reload().0, 200);
    assert!(open(&proxy, Speaks { versions: ONLY_12, ..Speaks::default() }).is_err());
    counted(&proxy, "no_shared_version", 1.0);
    assert!(open(&proxy, Speaks { suites: "AES", ..Speaks::default() }).is_err());
    counted(&proxy, "no_shared_cipher", 1.0);
    assert!(open(&proxy, Speaks { versions: ONLY_13, ..Speaks::default() }).is_ok());
}

/// Required, optional, revoked; and what upstreams are told of who it is.
fn client_certificates(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let server = yard.leaf(&["a.test"], 1).put(&yard.folder, "server");
    let clients = Authority::new("Clients");
    let ca = put(&yard.folder, "clients.pem", &clients.pem());
    let good =
        clients.issue(&Wanted { common_name: "orders, eu", ..Wanted::of(&["o.test"], 0xab) });
    let gone = clients.issue(&Wanted::of(&["g.test"], 8));
    let stale = clients.issue(&Wanted { until: 2020, ..Wanted::of(&["s.test"], 9) });
    let foreign = Authority::new("Strangers").issue(&Wanted::of(&["f.test"], 10));
    let crl = put(&yard.folder, "crl.pem", &clients.revoke(&[&gone]));
    let more = |auth: &str| {
        format!(
            ", client_ca = \"{}\", client_crl = \"{}\", client_auth = \"{auth}\"",
            ca.display(),
            crl.display()
        )
    };
    let headers = "filters = [{ kind = \"headers\", set = { \
        x-subject = \"${client_cert.subject}\", x-sans = \"${client_cert.sans}\", \
        x-serial = \"${client_cert.serial}\", x-print = \"${client_cert.fingerprint}\", \
        x-known = \"${client_cert.verified}\", x-tls = \"${tls.version} ${tls.sni}\", \
        x-scheme = \"${request.scheme}\" } }]";
    let only = "when = [{ client_cert = \"verified\", equals = \"true\" }]";
    let routes = route("known", "path = \"/known\"", "main", only)
        + &route("all", "prefix = \"/\"", "main", headers);
    let listener = |auth: &str| {
        format!("forwarded = true\n{}", yard.listener(std::slice::from_ref(&server), &more(auth)))
    };
    let settings = Settings::new(driver, &origin.address).routes(routes);
    let mut proxy = Proxy::start(settings.clone().listener(&listener("required")));
    let ask = |proxy: &Proxy, leaf: Option<&Leaf>, path: &str| {
        let config = client(&yard.authority, &Speaks::default(), leaf);
        TlsClient::open(proxy.address, &config, "a.test")?.get(path)
    };
    assert!(ask(&proxy, Some(&good), "/").expect("known").starts_with("HTTP/1.1 200"));
    let field = |name: &str| {
        origin.look(|record| {
            let last = record.requests.last().expect("one came");
            String::from_utf8_lossy(last.get(name).unwrap_or_default()).into_owned()
        })
    };
    assert_eq!(field("x-subject"), "CN=orders\\, eu");
    assert_eq!(field("x-sans"), "DNS:o.test");
    assert_eq!(field("x-serial").trim_start_matches('0'), "AB");
    assert_eq!((field("x-print").len(), field("x-known")), (64, "true".into()));
    assert_eq!((field("x-tls"), field("x-scheme")), ("TLSv1.3 a.test".into(), "https".into()));
    assert_eq!(field("x-forwarded-proto"), "https");
    assert!(field("forwarded").ends_with(";proto=https"), "{}", field("forwarded"));

    for (leaf, result) in [
        (None, "certificate_missing"),
        (Some(&gone), "certificate_refused"),
        (Some(&foreign), "certificate_refused"),
        (Some(&stale), "certificate_expired"),
    ] {
        let before = handshakes(&proxy, result);
        assert!(ask(&proxy, leaf, "/").is_err(), "{result}");
        counted(&proxy, result, before + 1.0);
    }
    proxy.rewrite(settings.listener(&listener("optional")));
    assert_eq!(proxy.reload().0, 200);
    assert!(ask(&proxy, None, "/").expect("nobody").starts_with("HTTP/1.1 200"));
    assert_eq!((field("x-known"), field("x-subject")), ("false".into(), String::new()));
    assert!(ask(&proxy, Some(&good), "/known").expect("known").starts_with("HTTP/1.1 200"));
    assert_eq!(field("x-known"), "", "the route without the filter");
    assert!(ask(&proxy, Some(&foreign), "/").is_err(), "one that is sent must be good");
}

/// One ticket for all workers, over a reload, and not past a policy that changes.
fn tickets(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let certs = [yard.leaf(&["a.test"], 1).put(&yard.folder, "server")];
    let settings = Settings::new(driver, &origin.address).workers(2);
    let settings = settings.listener(&yard.listener(&certs, ""));
    let mut proxy = Proxy::start(settings.clone());
    for versions in [rustls::ALL_VERSIONS, ONLY_12] {
        let config = client(&yard.authority, &Speaks { versions, ..Speaks::default() }, None);
        let resumed = |proxy: &Proxy| {
            let mut client = TlsClient::open(proxy.address, &config, "a.test").expect("opened");
            // Tickets of TLS 1.3 come behind the handshake.
            assert!(client.get("/").expect("an answer").starts_with("HTTP/1.1 200"));
            client.resumed()
        };
        assert!(!resumed(&proxy), "the first");
        for number in 0..8 {
            assert!(resumed(&proxy), "{number}: by whichever worker");
        }
        proxy.rewrite(settings.clone().runtime(&format!("drain = \"{}s\"", versions.len())));
        assert_eq!(proxy.reload().0, 200);
        assert!(resumed(&proxy), "after a reload");
        let ca = put(&yard.folder, "clients.pem", &Authority::new("Clients").pem());
        let more = format!(", client_ca = \"{}\", client_auth = \"optional\"", ca.display());
        proxy.rewrite(settings.clone().listener(&yard.listener(&certs, &more)));
        assert_eq!(proxy.reload().0, 200);
        assert!(!resumed(&proxy), "clients must prove something else now");
        proxy.rewrite(settings.clone());
        assert_eq!(proxy.reload().0, 200);
        assert!(!resumed(&proxy), "and back");
    }
    assert!(handshakes(&proxy, "resumed") >= 18.0);
}

/// New certificates by HUP and by themselves; a connection goes on; a broken one changes nothing.
fn certificates_change(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let certs = [yard.leaf(&["a.test"], 1).put(&yard.folder, "server")];
    let settings = Settings::new(driver, &origin.address).listener(&yard.listener(&certs, ""));
    let proxy = Proxy::start(settings);
    let shown = || {
        let client = TlsClient::open(proxy.address, &yard.config(), "a.test").expect("opened");
        client.shown().expect("a certificate")
    };
    let mut stays = TlsClient::open(proxy.address, &yard.config(), "a.test").expect("opened");
    assert!(stays.get("/").is_ok());
    let second = yard.leaf(&["a.test"], 2);
    second.put(&yard.folder, "server");
    proxy.signal(Signal::HUP);
    // Compiling has its time; who looks for changed files may have been there first.
    assert!(poll(ms(5_000), || shown() == second.der), "by HUP: {}", proxy.log());
    assert!(stays.get("/").is_ok(), "an open connection goes on");

    // The configuration's own file may be half edited meanwhile.
    proxy.rewrite_raw("[listener.main\n");
    let third = yard.leaf(&["a.test"], 3);
    third.put(&yard.folder, "server");
    assert!(poll(ms(8_000), || shown() == third.der), "by itself: {}", proxy.log());
    assert_eq!(proxy.metric("ringway_config_last_reload_success", ""), 1.0);
    assert!(stays.get("/").is_ok());

    put(
        &yard.folder,
        "server.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let told = poll(ms(8_000), || proxy.metric("ringway_config_last_reload_success", "") == 0.0);
    assert!(told && proxy.log().contains("server.pem"), "{}", proxy.log());
    let last = proxy.status()["config"]["last_reload"]["message"].to_string();
    assert!(last.contains("malformed") && last.contains("server.pem"), "{last}");
    assert_eq!(shown(), third.der, "the old one stays");
    assert!(stays.get("/").is_ok());
    let fourth = yard.leaf(&["a.test"], 4);
    fourth.put(&yard.folder, "server");
    assert!(poll(ms(8_000), || shown() == fourth.der), "mended: {}", proxy.log());
    assert!(stays.get("/").is_ok());
}

/// Clients that are slow, silent, or do not speak TLS at all.
fn odd_clients(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let certs = [yard.leaf(&["a.test"], 1).put(&yard.folder, "server")];
    let settings = Settings::new(driver, &origin.address).listener(&yard.listener(&certs, ""));
    let proxy = Proxy::start(settings);
    let config = yard.config();
    let silent = TcpStream::connect(proxy.address).expect("connected");
    let mut slow = TcpStream::connect(proxy.address).expect("connected");
    let began = Instant::now();
    for byte in [0x16, 3, 1] {
        slow.write_all(&[byte]).expect("written");
        let asked = Instant::now();
        let mut client = TlsClient::open(proxy.address, &config, "a.test").expect("opened");
        assert!(client.get("/").is_ok());
        assert!(asked.elapsed() < ms(500), "nobody waits for a slow one");
        harness::pause(ms(200));
    }
    for mut stream in [silent, slow] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        drop(stream.read_to_end(&mut Vec::new()));
    }
    assert!((ms(900)..ms(4_000)).contains(&began.elapsed()), "{:?}", began.elapsed());
    counted(&proxy, "timeout", 2.0);

    let said = plain(proxy.address, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("https://"), "{said}");
    counted(&proxy, "plain_http", 1.0);
    plain(proxy.address, b"\x16\x03\x01\0\x05hello");
    counted(&proxy, "malformed", 1.0);
    drop(TcpStream::connect(proxy.address).expect("connected"));
    counted(&proxy, "closed", 1.0);
    // A clean end of the last answer.
    let mut client = TlsClient::open(proxy.address, &config, "a.test").expect("opened");
    assert!(client.get("/x HTTP/1.1\r\nConnection: close\r\nX-Rest:").is_ok());
    client.end().expect("close_notify");
    let gone = poll(ms(5_000), || proxy.metric("ringway_connections", "") == 0.0);
    assert!(gone, "no connection is left behind");
}

fn plain(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    stream.write_all(bytes).expect("written");
    let mut said = Vec::new();
    drop(stream.read_to_end(&mut said));
    String::from_utf8_lossy(&said).into_owned()
}

/// A status and an error code.
fn ask(proxy: &Proxy) -> String {
    let mut stream = TcpStream::connect(proxy.address).expect("connected");
    stream
        .write_all(b"GET /close HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
        .expect("written");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("text");
    let status = said.split(' ').nth(1).unwrap_or_default();
    let code = said.split("details=\"").nth(1).and_then(|rest| rest.split('"').next());
    format!("{status} {}", code.unwrap_or_default()).trim().to_owned()
}

/// Verified by an own authority, by name and by address; refused otherwise; with our certificate.
fn upstreams(driver: &'static str) {
    let yard = Yard::new();
    let origin = TlsOrigin::start(&yard.leaf(&["origin.test", "127.0.0.1"], 1), None);
    let nameless = TlsOrigin::start(&yard.leaf(&["origin.test"], 2), None);
    let clients = Authority::new("Clients");
    let asking = TlsOrigin::start(&yard.leaf(&["127.0.0.1"], 3), Some(&clients));
    let ca = put(&yard.folder, "ca.pem", &yard.authority.pem());
    let ca = format!("ca = \"{}\"", ca.display());
    let other = put(&yard.folder, "other.pem", &Authority::new("Other").pem());
    let pair = clients.issue(&Wanted::of(&["me.test"], 4)).put(&yard.folder, "me");
    let pair = pair.trim_matches(['{', '}', ' ']).to_owned();
    let with = |origin: &TlsOrigin, tls: &str| {
        let endpoints = [endpoint(&origin.address.to_string(), 1)];
        let timeouts = "timeouts = { connect = \"1s\", response = \"1s\" }";
        Settings::new(driver, "127.0.0.1:1").upstreams(upstream(
            "main",
            &endpoints,
            &format!("{timeouts}\ntls = {{ {tls} }}"),
        ))
    };
    let mut proxy = Proxy::start(with(&origin, &ca));
    assert_eq!(ask(&proxy), "200", "{}", proxy.log());
    assert_eq!(ask(&proxy), "200");
    assert_eq!(origin.resumed(), [false, true], "a session is taken up again");
    assert!(origin.heads()[0].contains("\r\nX-Forwarded-Proto: http\r\n"), "{:?}", origin.heads());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = TlsOrigin::start(&yard.leaf(&["127.0.0.1"], 5), None);
    let silent_address = silent.local_addr().expect("an address");
    for (settings, wanted) in [
        (with(&nameless, &ca), "502 upstream_certificate"),
        (with(&nameless, &format!("{ca}, sni = \"origin.test\"")), "200"),
        (with(&nameless, &format!("{ca}, sni = \"else.test\"")), "502 upstream_certificate"),
        (with(&origin, &format!("ca = \"{}\"", other.display())), "502 upstream_certificate"),
        (with(&origin, "verify = false"), "200"),
        (with(&asking, &format!("{ca}, {pair}")), "200"),
        (with(&origin, &format!("{ca}, min_version = \"1.3\"")), "200"),
    ] {
        proxy.rewrite(settings.clone());
        let (status, said) = proxy.reload();
        assert_eq!(status, 200, "{said}");
        assert_eq!(ask(&proxy), wanted, "{}\n{}", settings.upstreams, proxy.log());
    }
    let mut stuck = with(&dead, &ca);
    stuck.upstreams =
        stuck.upstreams.replace(&dead.address.to_string(), &silent_address.to_string());
    proxy.rewrite(stuck);
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(ask(&proxy), "504 connect_timeout");
    let clear_text = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let clear_address = clear_text.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in clear_text.incoming().flatten() {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let mut clear = with(&dead, &ca);
    clear.upstreams =
        clear.upstreams.replace(&dead.address.to_string(), &clear_address.to_string());
    proxy.rewrite(clear);
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(ask(&proxy), "502 upstream_tls_failed");
    assert!(proxy.metric("ringway_upstream_tls_failures_total", "") >= 5.0);
}

/// What an upstream's `protocol` offers by ALPN, and what comes of what the origin chooses.
fn upstream_protocols(driver: &'static str) {
    let yard = Yard::new();
    let leaf = yard.leaf(&["127.0.0.1"], 1);
    let ca = put(&yard.folder, "ca.pem", &yard.authority.pem());
    let both = TlsOrigin::start_with(&leaf, None, &["h2", "http/1.1"]);
    let old = TlsOrigin::start_with(&leaf, None, &["http/1.1"]);
    let without = TlsOrigin::start(&leaf, None);
    let with = |origin: &TlsOrigin, protocol: &str| {
        let endpoints = [endpoint(&origin.address.to_string(), 1)];
        let more = format!(
            "protocol = \"{protocol}\"\ntls = {{ ca = \"{}\" }}\n\
             timeouts = {{ connect = \"1s\", response = \"1s\" }}",
            ca.display()
        );
        Settings::new(driver, "127.0.0.1:1").upstreams(upstream("main", &endpoints, &more))
    };
    let mut proxy = Proxy::start(with(&both, "http1"));
    for (origin, protocol, wanted, spoken) in [
        (&both, "http1", "200", "http/1.1"),
        (&both, "http2", "200", "h2"),
        (&both, "auto", "200", "h2"),
        (&old, "auto", "200", "http/1.1"),
        (&without, "auto", "200", ""),
        (&without, "http2", "502 protocol_mismatch", ""),
    ] {
        proxy.rewrite(with(origin, protocol));
        assert_eq!(proxy.reload().0, 200);
        for again in [false, true] {
            let said = ask(&proxy);
            assert_eq!(said, wanted, "{protocol}, again: {again}\n{}", proxy.log());
        }
        let protocols = origin.protocols();
        assert_eq!(protocols.last().map(String::as_str), Some(spoken), "{protocol}");
        let on_http2 = proxy.metric("ringway_upstream_http2_connections", "");
        assert_eq!(on_http2 >= 1.0, spoken == "h2", "{protocol}");
    }
    assert_eq!(both.protocols().len(), 4, "connections of HTTP/2 are kept, over reloads too");
    proxy.rewrite(with(&old, "http2"));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(ask(&proxy), "502 protocol_mismatch", "its alert says so (RFC 7301 section 3.2)");
}

/// RFC 8446 section 6.1: idle connections end with close_notify, those of clients and those to
/// upstreams.
fn idle_ends(driver: &'static str) {
    let yard = Yard::new();
    let leaf = yard.leaf(&["a.test", "127.0.0.1"], 1);
    let origin = TlsOrigin::start(&leaf, None);
    let listener = yard.listener(&[leaf.put(&yard.folder, "leaf")], "");
    let settings = Settings::new(driver, "127.0.0.1:1")
        .listener(&listener.replace("idle = \"5s\"", "idle = \"500ms\""))
        .upstreams(yard.upstream(&origin, "timeouts = { idle = \"500ms\" }"));
    let proxy = Proxy::start(settings);
    let config = yard.config();
    let mut client = TlsClient::open(proxy.address, &config, "a.test").expect("a handshake");
    assert!(client.get("/").expect("an answer").starts_with("HTTP/1.1 200"));
    assert_eq!(client.end().expect("a clean end"), b"");
    assert!(poll(ms(3_000), || origin.ends() == [true]), "{:?}", origin.ends());
}

/// Half a record behind an answer is no sign of death: the connection stays, and is used once it is
/// whole.
fn half_a_record_on_an_idle_connection(driver: &'static str) {
    let yard = Yard::new();
    let origin = TlsOrigin::start(&yard.leaf(&["127.0.0.1"], 1), None);
    let section = yard.upstream(&origin, "");
    let proxy = Proxy::start(Settings::new(driver, "127.0.0.1:1").upstreams(section));
    let ask = |path: &str| {
        let received =
            harness::client::ask(proxy.address, &harness::client::plain_get(path), ms(5_000));
        received.expect("an answer").finals[0].status
    };
    assert_eq!(ask("/half"), 200);
    let looked = Instant::now();
    // The pool is swept, and asked, while only half is there.
    assert!(poll(ms(5_000), || looked.elapsed() > ms(1_500)));
    assert_eq!(ask("/beside"), 200);
    assert_eq!(proxy.metric("ringway_pool_idle_connections", ""), 2.0);
    origin.release();
    assert_eq!(ask("/after"), 200);
    assert_eq!(proxy.metric("ringway_pool_stale_total", ""), 0.0);
    assert_eq!((origin.heads().len(), origin.resumed().len()), (3, 2));
}

/// Who was let in under rules that are others now is sent away with the next answer, or at once where
/// HTTP/2 can say so; a certificate that is renewed sends nobody away.
fn rules_that_change_end_open_connections(driver: &'static str) {
    let (yard, origin) = (Yard::new(), Origin::start());
    let server = yard.leaf(&["a.test"], 1).put(&yard.folder, "server");
    let clients = Authority::new("Clients");
    let ca = put(&yard.folder, "clients.pem", &clients.pem());
    let good = clients.issue(&Wanted::of(&["o.test"], 7));
    let crl = put(&yard.folder, "crl.pem", &clients.revoke(&[]));
    let listener = |more: &str| {
        let (ca, crl) = (ca.display(), crl.display());
        format!(
            "{TIMEOUTS}tls = {{ certs = [{server}], alpn = [\"h2\", \"http/1.1\"], \
             client_ca = \"{ca}\", client_crl = \"{crl}\"{more} }}\n"
        )
    };
    let settings = Settings::new(driver, &origin.address);
    let mut proxy = Proxy::start(settings.clone().listener(&listener("")));
    let address = proxy.address;
    let open = |alpn: &'static [&'static str]| {
        let config = client(&yard.authority, &Speaks { alpn, ..Speaks::default() }, Some(&good));
        TlsClient::open(address, &config, "a.test").expect("let in")
    };
    let stays = |answer: std::io::Result<String>| {
        let answer = answer.expect("an answer").to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        !answer.contains("connection: close")
    };
    let ask = |id: u32| http2::frame(1, 5, id, http2::GET);
    let begin = [http2::PREFACE, &http2::frame(4, 1, 0, b""), &ask(1)].concat();
    type Change<'a> = &'a dyn Fn(&mut Proxy);
    let renewed: Change<'_> = &|_| drop(yard.leaf(&["a.test"], 2).put(&yard.folder, "server"));
    let revoked: Change<'_> =
        &|_| drop(put(&yard.folder, "crl.pem", &clients.revoke(&[&yard.leaf(&["x.test"], 9)])));
    let newer: Change<'_> =
        &|proxy| proxy.rewrite(settings.clone().listener(&listener(", min_version = \"1.3\"")));
    let optional: Change<'_> = &|proxy| {
        let more = ", min_version = \"1.3\", client_auth = \"optional\"";
        proxy.rewrite(settings.clone().listener(&listener(more)));
    };
    for (what, change, goes) in [
        ("renewed", renewed, false),
        ("revoked", revoked, true),
        ("min_version", newer, true),
        ("client_auth", optional, true),
    ] {
        let (mut one, mut two) = (open(&["http/1.1"]), open(&["h2"]));
        assert!(stays(one.get("/")), "{what}: before");
        two.http2_until(&begin, http2::HEADERS).expect("an answer");
        change(&mut proxy);
        assert_eq!(proxy.reload().0, 200, "{what}");
        assert_eq!(stays(one.get("/")), !goes, "{what}");
        if goes {
            one.end().expect("a clean end");
            let began = Instant::now();
            let said = two.http2_until(b"", http2::GOAWAY).expect("a GOAWAY");
            assert_eq!(said[..8], [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], "{what}");
            assert!(began.elapsed() < ms(3_000), "{what}: not by the idle timeout");
        } else {
            two.http2_until(&ask(3), http2::HEADERS).expect("an answer");
            assert!(stays(one.get("/")), "{what}: later");
            two.http2_until(&ask(5), http2::HEADERS).expect("an answer");
        }
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    names versions_and_keys client_certificates tickets certificates_change odd_clients upstreams
    upstream_protocols idle_ends half_a_record_on_an_idle_connection
    rules_that_change_end_open_connections
}
