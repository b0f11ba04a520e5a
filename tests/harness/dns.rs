//! A name server with a zone that tests change while it runs (RFC 1035), over UDP and TCP.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Types of records.
pub const A: u16 = 1;
pub const SRV: u16 = 33;
pub const AAAA: u16 = 28;
const CNAME: u16 = 5;

/// What the server makes of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It answers from its zone; of a name that it does not have with NXDOMAIN.
    #[default]
    Answers,
    /// It does not answer.
    Silent,
    /// It says SERVFAIL.
    Fails,
    /// It answers, but for AAAA it says SERVFAIL.
    FailsForAaaa,
    /// Over UDP it says that its answer has no room there.
    Truncates,
}

/// TTL and data of a record.
type Data = (u32, Vec<u8>);

#[derive(Default)]
struct Zone {
    /// Records by name and type.
    records: BTreeMap<(String, u16), Vec<Data>>,
    mood: Mood,
    /// Queries that came: name, type and whether over TCP.
    queries: Vec<(String, u16, bool)>,
    stopped: bool,
}

struct Shared {
    zone: Mutex<Zone>,
    changed: Condvar,
}

/// The server; it ends when it is dropped.
pub struct NameServer {
    shared: Arc<Shared>,
    /// Where it listens, as `resolver` is written.
    pub address: SocketAddr,
}

impl NameServer {
    /// Starts one with an empty zone.
    pub fn start() -> NameServer {
        // The same port over both: one that is free over TCP is hardly taken over UDP.
        let (tcp, udp) = (0..20)
            .find_map(|_| {
                let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
                let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
                Some((tcp, udp))
            })
            .expect("a free port");
        let address = tcp.local_addr().expect("bound");
        let shared = Arc::new(Shared { zone: Mutex::default(), changed: Condvar::new() });
        let server = NameServer { shared: shared.clone(), address };
        let by_tcp = shared.clone();
        std::thread::spawn(move || {
            let mut query = [0; 4096];
            while let Ok((length, from)) = udp.recv_from(&mut query) {
                if shared.lock().stopped {
                    return;
                }
                if let Some(answer) = shared.answer(&query[..length], false) {
                    drop(udp.send_to(&answer, from));
                }
            }
        });
        std::thread::spawn(move || {
            for socket in tcp.incoming().flatten() {
                if by_tcp.lock().stopped {
                    return;
                }
                let shared = by_tcp.clone();
                std::thread::spawn(move || drop(talk(&shared, socket)));
            }
        });
        server
    }

    /// The addresses of a name, in place of those that it had; none is NXDOMAIN.
    pub fn set(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let parsed = addresses.iter().map(|it| it.parse::<IpAddr>().expect("an address"));
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in parsed {
            match address {
                IpAddr::V4(ip) => v4.push((ttl, ip.octets().to_vec())),
                IpAddr::V6(ip) => v6.push((ttl, ip.octets().to_vec())),
            }
        }
        self.put(name, A, v4);
        self.put(name, AAAA, v6);
    }

    /// The targets of a service: priority, weight, port, host.
    pub fn service(&self, name: &str, ttl: u32, targets: &[(u16, u16, u16, &str)]) {
        let data = |(priority, weight, port, host): &(u16, u16, u16, &str)| {
            let numbers = [priority, weight, port].map(|number| number.to_be_bytes()).concat();
            (ttl, [numbers, name_bytes(host)].concat())
        };
        self.put(name, SRV, targets.iter().map(data).collect());
    }

    /// Another name for a name.
    pub fn alias(&self, name: &str, ttl: u32, of: &str) {
        self.put(name, CNAME, vec![(ttl, name_bytes(of))]);
    }

    /// What it makes of queries from now on.
    pub fn set_mood(&self, mood: Mood) {
        self.shared.lock().mood = mood;
    }

    /// Waits for this many more queries for a name and a type than there have been.
    pub fn wait_queries(&self, name: &str, kind: u16, more: usize, limit: Duration) -> bool {
        let guard = self.shared.lock();
        let target = guard.count(name, kind) + more;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(guard, limit, |zone| zone.count(name, kind) < target);
        !waited.expect("nobody panics").1.timed_out()
    }

    /// How many queries came over TCP.
    pub fn over_tcp(&self) -> usize {
        self.shared.lock().queries.iter().filter(|query| query.2).count()
    }

    fn put(&self, name: &str, kind: u16, records: Vec<Data>) {
        let mut zone = self.shared.lock();
        match records.is_empty() {
            true => drop(zone.records.remove(&(name.to_owned(), kind))),
            false => drop(zone.records.insert((name.to_owned(), kind), records)),
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        drop(TcpStream::connect(self.address));
        let wake = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        drop(wake.and_then(|socket| socket.send_to(&[0], self.address)));
    }
}

impl Zone {
    fn count(&self, name: &str, kind: u16) -> usize {
        self.queries.iter().filter(|query| query.0 == name && query.1 == kind).count()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().expect("no thread panics while it holds the zone")
    }

    /// The answer to a query, unless there is to be none (RFC 1035 section 4.1).
    fn answer(&self, query: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let (name, end) = read_name(query.get(12..)?)?;
        let question = query.get(12..12 + end + 4)?;
        let kind = u16::from_be_bytes([question[end], question[end + 1]]);
        let mut zone = self.lock();
        zone.queries.push((name.clone(), kind, tcp));
        self.changed.notify_all();
        let (code, truncated) = match zone.mood {
            Mood::Silent => return None,
            Mood::Fails => (2, false),
            Mood::FailsForAaaa if kind == AAAA => (2, false),
            Mood::Truncates if !tcp => (0, true),
            _ if zone.records.keys().any(|(known, _)| *known == name) => (0, false),
            _ => (3, false),
        };
        let mut records = Vec::new();
        if code == 0 && !truncated {
            zone.collect(&name, kind, &mut records);
        }
        let flags = 0x8180 | code | if truncated { 0x0200 } else { 0 };
        let count = u16::try_from(records.len()).expect("few");
        let mut answer = query[..2].to_vec();
        for number in [flags, 1, count, 0, 0] {
            answer.extend(u16::to_be_bytes(number));
        }
        answer.extend(question);
        answer.extend(records.concat());
        Some(answer)
    }
}

impl Zone {
    /// The records of a name, encoded, and behind an alias those of what it stands for.
    fn collect(&self, name: &str, kind: u16, out: &mut Vec<Vec<u8>>) {
        for of in [kind, CNAME] {
            for (ttl, data) in self.records.get(&(name.to_owned(), of)).into_iter().flatten() {
                let length = u16::try_from(data.len()).expect("short");
                let head = [of.to_be_bytes(), 1u16.to_be_bytes()].concat();
                let tail = [&ttl.to_be_bytes()[..], &length.to_be_bytes(), data].concat();
                out.push([name_bytes(name), head, tail].concat());
                if of == CNAME && kind != CNAME {
                    let (target, _) = read_name(data).expect("just written");
                    self.collect(&target, kind, out);
                }
            }
        }
    }
}

/// Queries on one connection, each behind its length (RFC 1035 section 4.2.2).
fn talk(shared: &Shared, mut socket: TcpStream) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        socket.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        socket.read_exact(&mut query)?;
        let Some(answer) = shared.answer(&query, true) else { continue };
        let length = u16::try_from(answer.len()).expect("few records");
        socket.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
    }
}

/// A name in lower case, and how many bytes it takes.
fn read_name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = bytes.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

fn name_bytes(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> = labels
        .flat_map(|label| {
            let length = u8::try_from(label.len()).expect("at most 63");
            [&[length][..], label.as_bytes()].concat()
        })
        .collect();
    bytes.push(0);
    bytes
}
