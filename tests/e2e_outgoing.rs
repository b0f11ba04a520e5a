//! Connections to origins: PROXY headers that name the client, the address that they come from, TCP
//! keepalive.

mod harness;

#[path = "reference/proxy_protocol.rs"]
#[allow(dead_code, reason = "shared with fuzz/")]
mod written;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use harness::client::{ask, plain_get};
use harness::proxy::{endpoint, free_address, scratch, upstream};
use harness::tls::{Authority, Speaks, TlsClient, TlsOrigin, Wanted, client, put};
use harness::{Client, Op, Origin, Proxy, Settings, ms, poll};

const ONLY_12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

/// Takes the PROXY header off each connection, writes it down, and passes the rest on to an origin that
/// knows nothing of it.
struct Gate {
    address: SocketAddr,
    coming: mpsc::Receiver<Seen>,
    seen: RefCell<Vec<Seen>>,
}

/// The header of a connection, and whom it came from.
type Seen = (Vec<u8>, SocketAddr);

impl Gate {
    fn start(origin: &str) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (seen, coming) = mpsc::channel();
        let gate = Gate { address, coming, seen: RefCell::default() };
        let origin = origin.to_owned();
        std::thread::spawn(move || {
            while let Ok((socket, from)) = listener.accept() {
                let (seen, origin) = (seen.clone(), origin.clone());
                std::thread::spawn(move || drop(pass(socket, from, &origin, &seen)));
            }
        });
        gate
    }

    /// All so far: one is known before the origin has its request.
    fn seen(&self) -> Vec<Seen> {
        let mut seen = self.seen.borrow_mut();
        seen.extend(self.coming.try_iter());
        seen.clone()
    }

    fn headers(&self) -> Vec<Vec<u8>> {
        self.seen().into_iter().map(|seen| seen.0).collect()
    }

    fn last(&self) -> Vec<u8> {
        self.headers().pop().expect("a connection came")
    }
}

fn pass(
    mut socket: TcpStream,
    from: SocketAddr,
    origin: &str,
    seen: &mpsc::Sender<Seen>,
) -> io::Result<()> {
    let header = read_header(&mut socket)?;
    seen.send((header, from)).map_err(io::Error::other)?;
    let mut behind = TcpStream::connect(origin)?;
    let (mut back, mut to) = (behind.try_clone()?, socket.try_clone()?);
    std::thread::spawn(move || {
        drop(io::copy(&mut back, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
    io::copy(&mut socket, &mut behind)?;
    behind.shutdown(Shutdown::Write)
}

/// A header of either version, byte for byte; anything else is an error.
fn read_header(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = vec![0; 12];
    socket.read_exact(&mut header)?;
    if header == written::SIGNATURE {
        header.resize(16, 0);
        socket.read_exact(&mut header[12..])?;
        let length = usize::from(u16::from_be_bytes([header[14], header[15]]));
        header.resize(16 + length, 0);
        socket.read_exact(&mut header[16..])?;
        return Ok(header);
    }
    assert!(header.starts_with(b"PROXY "), "{}", header.escape_ascii());
    while !header.ends_with(b"\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        header.push(byte[0]);
    }
    Ok(header)
}

/// A proxy on two workers in front of one address, with more lines in its upstream.
fn proxied(driver: &'static str, address: &str, lines: &str) -> Proxy {
    let lines = format!("timeouts = {{ connect = \"1s\", idle = \"5s\" }}\n{lines}");
    let section = upstream("main", &[endpoint(address, 1)], &lines);
    Proxy::start(Settings::new(driver, address).workers(2).upstreams(section))
}

/// The address of this end of a client's connection, which serves one request.
fn served(proxy: &Proxy, request: &[u8]) -> SocketAddr {
    let mut socket = TcpStream::connect(proxy.address).expect("a connection");
    socket.set_read_timeout(Some(harness::PATIENCE)).expect("set");
    socket.write_all(request).expect("sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("answered");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
    socket.local_addr().expect("an address")
}

/// What an origin is told in version 2 of a client that speaks clear text.
fn block(source: SocketAddr, destination: SocketAddr, id: &[u8], more: &[Vec<u8>]) -> Vec<u8> {
    let (family, addresses) = written::addresses(Some((source, destination)));
    let (before, behind) = more.split_at(more.len().min(2));
    let id = written::tlv(5, id);
    written::block(1, family, &[addresses, before.concat(), id, behind.concat()].concat())
}

/// The value of a field in the request that came last.
fn told(origin: &Origin, name: &str) -> Vec<u8> {
    origin.look(|record| {
        record.requests.last().and_then(|it| it.get(name)).expect("it was told").to_vec()
    })
}

/// Each connection begins with the header of the client of its one request, and no other uses it: not
/// even the next request of the same connection.
fn each_connection_names_its_client(driver: &'static str) {
    let origin = Origin::start();
    let gate = Gate::start(&origin.address);
    let proxy = proxied(driver, &gate.address.to_string(), "send_proxy = \"v1\"\n");
    let to = proxy.address;
    let sources: Vec<SocketAddr> = (0..4).map(|_| served(&proxy, &plain_get("/"))).collect();
    let expected: Vec<_> = sources.iter().map(|from| written::line(Some((*from, to)))).collect();
    assert_eq!(gate.headers(), expected);
    let kept = Client::open(to).expect("a connection");
    for number in 1..=3 {
        kept.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert!(kept.wait_responses(number, ms(5_000)));
    }
    let headers = gate.headers();
    assert_eq!(headers.len(), 7);
    assert!(headers[4..].iter().all(|header| *header == headers[4]), "one client");
    assert!(!headers[..4].contains(&headers[4]));
    assert_eq!(proxy.metric("ringway_pool_hits_total", ""), 0.0);
    assert!(poll(ms(5_000), || proxy.metric("ringway_upstream_connections", "") == 0.0), "closed");
    // Bodies, and what is large, come as through any connection.
    let body = vec![b'x'; 300_000];
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
    let received = ask(to, &[head.as_bytes(), &body].concat(), ms(5_000)).expect("an answer");
    assert_eq!(received.finals[0].status, 200);
    assert_eq!(origin.look(|record| record.requests.last().map(|it| it.body.len())), Some(300_000));
}

/// Version 2, with the id of the request. Off again after a reload: no header, and connections are kept.
fn version_2_has_the_id(driver: &'static str) {
    let origin = Origin::start();
    let gate = Gate::start(&origin.address);
    let mut proxy = proxied(driver, &gate.address.to_string(), "send_proxy = \"v2\"\n");
    let source = served(&proxy, &plain_get("/"));
    let id = told(&origin, "x-request-id");
    assert_eq!(gate.last(), block(source, proxy.address, &id, &[]));
    let section = upstream("main", &[endpoint(&origin.address, 1)], "");
    let settings = proxy.settings().clone().upstreams(section);
    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    for _ in 0..6 {
        served(&proxy, &plain_get("/"));
    }
    assert!(proxy.metric("ringway_pool_hits_total", "") >= 4.0, "kept again");
}

/// The client is who it is believed to be: by fields of a trusted proxy, or by its PROXY header.
fn the_client_is_the_believed_one(driver: &'static str) {
    let origin = Origin::start();
    let gate = Gate::start(&origin.address);
    let mut proxy = proxied(driver, &gate.address.to_string(), "send_proxy = \"v1\"\n");
    let claim = b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n";
    let to = proxy.address;
    let from = served(&proxy, claim);
    assert_eq!(gate.last(), written::line(Some((from, to))), "nobody is trusted");
    let lines = "trusted_proxies = [\"127.0.0.0/8\"]\nproxy_protocol = \"optional\"\n";
    let settings = proxy.settings().clone().listener(lines);
    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    served(&proxy, claim);
    assert_eq!(gate.last(), written::line(Some((address("203.0.113.9:0"), to))));
    let ends = Some((address("192.0.2.7:4711"), address("198.51.100.1:443")));
    served(&proxy, &[&written::line(ends)[..], &plain_get("/")].concat());
    assert_eq!(gate.last(), written::line(ends), "passed on");
    let six = Some((address("[2001:db8::7]:4711"), address("[2001:db8::1]:443")));
    let (family, addresses) = written::addresses(six);
    served(&proxy, &[written::block(1, family, &addresses), plain_get("/")].concat());
    assert_eq!(gate.last(), written::line(six));
    // The ends are of two families where only the client is told of.
    let six_only = b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 2001:db8::9\r\nConnection: close\r\n\r\n";
    served(&proxy, six_only);
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().expect("mapped"), to.port());
    assert_eq!(gate.last(), written::line(Some((address("[2001:db8::9]:0"), mapped))));
}

/// On every address the destination is the one that the client came to.
fn the_destination_is_where_the_client_came(driver: &'static str) {
    let origin = Origin::start();
    let gate = Gate::start(&origin.address);
    let mut proxy = proxied(driver, &gate.address.to_string(), "send_proxy = \"v1\"\n");
    let any = SocketAddr::new("0.0.0.0".parse().expect("any"), free_address().port());
    let text = proxy.text(proxy.settings()) + &format!("[listener.any]\naddress = \"{any}\"\n");
    proxy.rewrite_raw(&text);
    assert_eq!(proxy.reload().0, 200);
    let to = SocketAddr::new("127.0.0.9".parse().expect("an address"), any.port());
    proxy.address = to;
    let from = served(&proxy, &plain_get("/"));
    assert_eq!(gate.last(), written::line(Some((from, to))));
}

/// Of a client over TLS version 2 tells the protocol, the name, and what is known of its certificate;
/// to an origin over TLS the header comes before the handshake.
fn tls_on_both_sides(driver: &'static str) {
    let authority = Authority::new("Test CA");
    let folder = scratch();
    let ca = put(&folder, "ca.pem", &authority.pem());
    let server = authority.issue(&Wanted::of(&["shop.test", "127.0.0.1"], 1));
    let origin = TlsOrigin::start(&server, None);
    let gate = Gate::start(&origin.address.to_string());
    let lines = format!("send_proxy = \"v2\"\ntls = {{ ca = \"{}\" }}\n", ca.display());
    let mut proxy = proxied(driver, &gate.address.to_string(), &lines);
    let listener = format!(
        "tls = {{ certs = [{}], alpn = [\"h2\", \"http/1.1\"], client_ca = \"{}\", \
         client_auth = \"optional\" }}\n",
        server.put(&folder, "server"),
        ca.display()
    );
    let settings = proxy.settings().clone().listener(&listener);
    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    let alice = authority.issue(&Wanted { common_name: "alice", ..Wanted::of(&["alice.test"], 2) });
    let speaks = Speaks { versions: ONLY_12, ..Speaks::default() };
    let suite = b"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    for (leaf, client_bits, failed) in [(Some(&alice), 0x07, false), (None, 0x01, true)] {
        let config = client(&authority, &speaks, leaf);
        for resumed in [false, true] {
            let mut client = TlsClient::open(proxy.address, &config, "shop.test").expect("open");
            assert_eq!(client.resumed(), resumed);
            let answer = client.get("/").expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let header = gate.last();
            let head = origin.heads().pop().expect("a request");
            let id = head.to_ascii_lowercase();
            let id = id.split("x-request-id: ").nth(1).and_then(|it| it.lines().next());
            let bits = if resumed { client_bits & !0x02 } else { client_bits };
            let mut parts = vec![written::tlv(0x21, b"TLSv1.2")];
            parts.extend(leaf.map(|_| written::tlv(0x22, b"alice")));
            parts.push(written::tlv(0x23, suite));
            let tlvs = [
                written::tlv(1, b"http/1.1"),
                written::tlv(2, b"shop.test"),
                written::tlv(0x20, &written::ssl(bits, failed, &parts)),
            ];
            let source = client.local();
            let expected = block(source, proxy.address, id.expect("an id").as_bytes(), &tlvs);
            assert_eq!(
                header.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{client_bits} {resumed}"
            );
        }
    }
    drop(std::fs::remove_dir_all(&folder));
}

/// nginx as an origin that insists on the header, and says what it made of it.
fn nginx_reads_it(driver: &'static str) {
    let folder = scratch();
    let address = free_address();
    let Some(_nginx) = Nginx::start(&folder, address) else {
        println!("nginx is not installed: left out");
        return;
    };
    for version in ["v1", "v2"] {
        let lines = format!("send_proxy = \"{version}\"\n");
        let proxy = proxied(driver, &address.to_string(), &lines);
        let socket = TcpStream::connect(proxy.address).expect("a connection");
        let source = socket.local_addr().expect("an address");
        let mut socket = socket;
        socket.write_all(&plain_get("/")).expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("answered");
        let said = format!("{source} {}", proxy.address).replace(':', " ");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(&said),
            "{said} in {answer}"
        );
    }
    let proxy = proxied(driver, &address.to_string(), "");
    let received = ask(proxy.address, &plain_get("/"), ms(5_000)).expect("an answer");
    assert_ne!(received.finals[0].status, 200, "nginx insists on a header");
    drop(_nginx);
    drop(std::fs::remove_dir_all(&folder));
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Nginx {
    /// None where it is not installed.
    fn start(folder: &Path, address: SocketAddr) -> Option<Nginx> {
        let place = folder.display();
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .concat();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log {place}/error.log;\n\
             events {{}}\nhttp {{\naccess_log off;\n{temp}server {{\nlisten {address} proxy_protocol;\n\
             location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port \
             $proxy_protocol_server_addr $proxy_protocol_server_port\"; }}\n}}\n}}\n"
        );
        std::fs::write(folder.join("nginx.conf"), text).expect("the folder takes it");
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .arg("-p")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let nginx = Nginx(child.ok()?);
        assert!(poll(ms(10_000), || TcpStream::connect(address).is_ok()), "nginx listens");
        Some(nginx)
    }
}

/// Connections come from the configured address, are kept and fail as others do.
fn the_source_address(driver: &'static str) {
    let origin = Origin::start();
    let gate = Gate::start(&origin.address);
    let gated = gate.address.to_string();
    let lines = "source_address = \"127.0.0.5\"\nsend_proxy = \"v1\"\n";
    let proxy = proxied(driver, &gated, lines);
    served(&proxy, &plain_get("/"));
    let from = gate.seen()[0].1;
    assert_eq!(from.ip(), std::net::Ipv4Addr::new(127, 0, 0, 5));

    let mut proxy = proxied(driver, &origin.address, "source_address = \"127.0.0.5\"\n");
    for _ in 0..8 {
        served(&proxy, &plain_get("/"));
    }
    assert!(proxy.metric("ringway_pool_hits_total", "") >= 6.0, "one for each worker");
    // Large both ways, so that writes have to wait for the other side: on a socket of the wrong mode
    // they would fail instead.
    let body = vec![b'x'; 8 << 20];
    let filled = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 8 << 20);
    origin.reset([(
        "/large".to_owned(),
        vec![vec![Op::Sleep(300), Op::Body, Op::Send(filled), Op::Fill(8 << 20)]],
    )]);
    let head =
        format!("POST /large HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
    let received = ask(proxy.address, &[head.as_bytes(), &body].concat(), ms(20_000));
    let received = received.expect("an answer");
    assert_eq!((received.finals[0].status, received.finals[0].body.len()), (200, 8 << 20));

    let lines = "source_address = \"127.0.0.5\"\ntimeouts = { connect = \"1s\" }\n";
    let closed = free_address().to_string();
    let settings = proxy.settings().clone();
    proxy.rewrite(settings.clone().upstreams(upstream("main", &[endpoint(&closed, 1)], lines)));
    assert_eq!(proxy.reload().0, 200);
    let status = |proxy: &Proxy| {
        ask(proxy.address, &plain_get("/"), ms(5_000)).expect("an answer").finals[0].status
    };
    assert_eq!((status(&proxy), proxy.errors("connect_refused")), (502, 1.0));
    let both = [endpoint(&closed, 1), endpoint(&origin.address, 1)];
    proxy.rewrite(settings.clone().upstreams(upstream("main", &both, lines)));
    assert_eq!(proxy.reload().0, 200);
    assert!((0..4).all(|_| status(&proxy) == 200), "tried at the other one");
    let lines = lines.replace("127.0.0.5", "192.0.2.1");
    proxy.rewrite(settings.upstreams(upstream("main", &[endpoint(&origin.address, 1)], &lines)));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(status(&proxy), 502, "this machine has no such address");
}

/// The timer of the connection from `local` to `remote` in /proc/net/tcp, and in how many seconds it
/// is due: 2 is that of keepalive.
fn timer(local: u16, remote: u16) -> Option<(u8, u64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| u16::from_str_radix(words.get(at)?.rsplit(':').next()?, 16).ok();
        let open = words.get(3) == Some(&"01");
        if !open || port(1) != Some(local) && local != 0 || port(2) != Some(remote) {
            return None;
        }
        let (kind, due) = words.get(5)?.split_once(':')?;
        let due = u64::from_str_radix(due, 16).ok()?;
        Some((u8::from_str_radix(kind, 16).ok()?, due / 100))
    })
}

/// Silent peers are asked: endpoints and clients, where the configuration says so.
fn keepalive(driver: &'static str) {
    let origin = Origin::start();
    let origin_port = origin.address.rsplit(':').next().and_then(|port| port.parse().ok());
    let origin_port: u16 = origin_port.expect("a port");
    for source in ["", "source_address = \"127.0.0.5\"\n"] {
        let lines = format!("tcp_keepalive = \"60s\"\n{source}");
        let mut proxy = proxied(driver, &origin.address, &lines);
        let idle = "timeouts = { idle = \"30s\" }\n";
        let settings = proxy.settings().clone();
        proxy.rewrite(settings.clone().listener(&format!("tcp_keepalive = \"9s\"\n{idle}")));
        assert_eq!(proxy.reload().0, 200);
        let mut client = TcpStream::connect(proxy.address).expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        assert!(client.read(&mut [0; 64]).is_ok_and(|count| count > 0));
        let client_port = client.local_addr().expect("an address").port();
        let of_client = || timer(proxy.address.port(), client_port);
        let asked = |timer: Option<(u8, u64)>, most| {
            timer.is_some_and(|(kind, due_s)| kind == 2 && due_s <= most && due_s + 10 >= most)
        };
        assert!(poll(ms(5_000), || asked(of_client(), 9)), "{:?}", of_client());
        let of_origin = || timer(0, origin_port);
        assert!(poll(ms(5_000), || asked(of_origin(), 60)), "{:?}", of_origin());
        proxy.rewrite(settings.listener(idle).upstreams(upstream(
            "main",
            &[endpoint(&origin.address, 1)],
            "",
        )));
        assert_eq!(proxy.reload().0, 200);
        origin.hang_up();
        let mut client = TcpStream::connect(proxy.address).expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        assert!(client.read(&mut [0; 64]).is_ok_and(|count| count > 0));
        let client_port = client.local_addr().expect("an address").port();
        let silent = |timer: Option<(u8, u64)>| timer.is_some_and(|(kind, _)| kind == 0);
        let of_client = || timer(proxy.address.port(), client_port);
        assert!(poll(ms(5_000), || silent(of_client()) && silent(of_origin())), "nobody is asked");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    each_connection_names_its_client version_2_has_the_id the_client_is_the_believed_one
    the_destination_is_where_the_client_came tls_on_both_sides nginx_reads_it
    the_source_address keepalive
}
