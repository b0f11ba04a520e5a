//! Thousands of requests that are nearly right, on both drivers, judged without an expected answer
//! for each: what arrives at the origin is conformant, the hidden request never arrives unless the
//! proxy itself understood it as a request, answers belong to their requests, and the proxy goes on
//! (A7, the framing part).

mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};

use harness::case::{File, Step};
use harness::response::Received;
use harness::{Client, Origin, Proxy, Request, Settings, contains, ms, show};

/// One input: what it is called and what the client sends. `@` in a path is its number.
struct Mutant {
    name: String,
    bytes: Vec<u8>,
}

/// Pairs of proxy and origin that share the mutants.
const LANES: usize = 4;

/// Bytes that somebody somewhere takes for white space, or for nothing.
const ODD: &[u8] =
    b"\x00\x01\x04\x07\x08\t\n\x0b\x0c\r\x0e\x1b\x1f \"#'(),/:;<=>?@[]{}\x7f\x80\x85\xa0\xad\xff";

/// Heads in which Transfer-Encoding is disguised beside a true Content-Length.
fn disguised_codings() -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
    let mut field = |name: String, parts: &[&[u8]]| fields.push((name, parts.concat()));
    for &odd in ODD {
        let one = &[odd][..];
        let places: [(&str, [&[u8]; 7]); 8] = [
            ("before the name", [one, b"Transfer-Encoding", b"", b":", b" ", b"chunked", b""]),
            ("behind the name", [b"", b"Transfer-Encoding", one, b":", b" ", b"chunked", b""]),
            ("before the value", [b"", b"Transfer-Encoding", b"", b":", one, b"chunked", b""]),
            ("behind the value", [b"", b"Transfer-Encoding", b"", b":", b" ", b"chunked", one]),
            ("round the value", [b"", b"Transfer-Encoding", b"", b":", one, b"chunked", one]),
            ("inside the name", [b"Transfer", one, b"Encoding", b":", b" ", b"chunked", b""]),
            ("inside the value", [b"Transfer-Encoding: ", b"chun", one, b"ked", b"", b"", b""]),
            (
                "in another field",
                [b"X-A: b", one, b"Transfer-Encoding", b":", b" ", b"chunked", b""],
            ),
        ];
        for (place, parts) in places {
            field(format!("coding: {odd:#04x} {place}"), &parts);
        }
        for (place, lines) in [
            ("CR before it", [b"X-A: b\r", one, b"Transfer-Encoding: chunked"]),
            ("LF before it", [b"X-A: b\n", one, b"Transfer-Encoding: chunked"]),
            ("CR behind it", [b"Transfer-Encoding: chunked\r", one, b"X-A: b"] as [&[u8]; 3]),
            ("LF behind it", [b"Transfer-Encoding: chunked\n", one, b"X-A: b"]),
        ] {
            field(format!("coding: {place}, then {odd:#04x}"), &lines);
        }
    }
    for whole in [
        "Transfer-Encoding: chunked",
        "transfer-encoding:chunked",
        "TRANSFER-ENCODING: CHUNKED",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked chunked",
        "Transfer-Encoding: chunk",
        "Transfer-Encoding: chunked-ish",
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding:",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding:\r\n\tchunked",
        "Transfer-Encoding\r\n: chunked",
        "Transfer\r\n -Encoding: chunked",
        "Transfer-Encoding: x\r\n chunked",
        "Transfer-Encoding: chunked\r\n x",
        "Transfer_Encoding: chunked",
        "Transfer Encoding: chunked",
        "Transfer-Encoding chunked",
        "X:X\rTransfer-Encoding: chunked",
        "X:X\nTransfer-Encoding: chunked",
        "X:X\r\r\nTransfer-Encoding: chunked",
        "\r\nTransfer-Encoding: chunked",
        "Content-Encoding: chunked",
        "TE: chunked",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
        "Connection: Content-Length",
        "Expect: 100-continue\r\nTransfer-Encoding: chunked",
        "Upgrade: websocket\r\nConnection: upgrade\r\nTransfer-Encoding: chunked",
    ] {
        field(format!("coding: {whole:?}"), &[whole.as_bytes()]);
    }
    fields
}

/// Content-Length fields that are nearly right; `#` stands for the true number.
fn disguised_lengths() -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
    for &odd in ODD {
        for (place, before, after) in
            [("before", &[odd][..], &b""[..]), ("behind", b"", &[odd]), ("round", &[odd], &[odd])]
        {
            let value = [b"Content-Length: ", before, b"#", after].concat();
            fields.push((format!("length: {odd:#04x} {place} the number"), value));
            let name = [before, b"Content-Length", after, b": #"].concat();
            fields.push((format!("length: {odd:#04x} {place} the name"), name));
        }
    }
    for text in [
        "Content-Length: #\r\nContent-Length: 0",
        "Content-Length: 0\r\nContent-Length: #",
        "Content-Length: #, 0",
        "Content-Length: 0, #",
        "Content-Length: #,#",
        "Content-Length:\r\nContent-Length: #",
        "Content-Length: \r\n #",
        "Content-Length: 0\r\n #",
        "Content-Length: +#",
        "Content-Length: -#",
        "Content-Length: 0x#",
        "Content-Length: 0o#",
        "Content-Length: #e0",
        "Content-Length: #.0",
        "Content-Length: #_0",
        "Content-Length: 0#",
        "Content-Length: 00000000000000000000000#",
        "Content-Length: 18446744073709551616#",
        "Content-Length: #\r\nContent_Length: 0",
        "Content-Length: #\r\nX-Content-Length: 0",
        "Content-Length: #\nX: y",
        "Content-Length: #\rX: y",
        "Content-Length : #",
        "Content-Length\t: #",
        "Content-Length: # # ",
        "Content-Length: #;",
        "Content-Length: \"#\"",
        "Content-Length: (#)",
    ] {
        fields.push((format!("length: {text:?}"), text.as_bytes().to_vec()));
    }
    fields
}

/// Each disguise with the hidden request outside what the coding says, and inside a chunk.
fn smugglers() -> Vec<Mutant> {
    let hidden = b"GET /hidden-@ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut out = Vec::new();
    // The number that replaces `@` has always five digits, so that lengths stay true.
    let hidden_bytes = hidden.len() + 4;
    let cover = [b"0\r\n\r\n", &hidden[..]].concat();
    let inside = [format!("{hidden_bytes:x}\r\n").as_bytes(), hidden, b"\r\n0\r\n\r\n"].concat();
    for (name, field) in disguised_codings() {
        for (which, body, length) in [("outside", &cover, hidden_bytes + 5), ("inside", &inside, 4)]
        {
            for order in ["first", "last"] {
                let length = format!("Content-Length: {length}");
                let lines = match order {
                    "first" => [&field[..], b"\r\n", length.as_bytes()],
                    _ => [length.as_bytes(), b"\r\n", &field[..]],
                };
                let head = [&b"POST /m-@ HTTP/1.1\r\nHost: a.test\r\n"[..], &lines.concat()];
                let bytes = [&head.concat()[..], b"\r\n\r\n", body].concat();
                out.push(Mutant { name: format!("{name}, {which}, {order}"), bytes });
            }
        }
    }
    for (name, field) in disguised_lengths() {
        let number = hidden_bytes.to_string();
        let field = replace(&field, b'#', number.as_bytes());
        let head = [&b"POST /m-@ HTTP/1.1\r\nHost: a.test\r\n"[..], &field, b"\r\n\r\n"].concat();
        out.push(Mutant { name, bytes: [&head[..], hidden].concat() });
    }
    out
}

/// What is put into the requests of the wire cases.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x85",
    b":",
    b",",
    b";",
    b"0",
    b"-",
    b"+",
    b"0x",
    b"chunked",
    b"gzip, ",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 7\r\n",
    b"Connection: close\r\n",
    b"Host: b.test\r\n",
    b"HTTP/1.0",
    b"Expect: 100-continue\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff",
    b"GET /hidden-@ HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"HEAD ",
    b"%2e%2e/",
];

/// Mutations of what the wire cases send: always the same ones.
fn mutations(count: usize) -> Vec<Mutant> {
    let mut seeds = Vec::new();
    for text in [
        include_str!("wire/framing.toml"),
        include_str!("wire/chunked.toml"),
        include_str!("wire/grammar.toml"),
        include_str!("wire/exchange.toml"),
        include_str!("wire/paths.toml"),
    ] {
        for case in File::read(text).case {
            let sends = case.client.iter().filter_map(|step| match step {
                Step::Send(text) => Some(case.bytes(text)),
                _ => None,
            });
            seeds.push(sends.collect::<Vec<_>>().concat());
        }
    }
    seeds.retain(|seed| (1..4_000).contains(&seed.len()));
    let mut random = Random(0x5eed);
    (0..count)
        .map(|number| {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            for _ in 0..1 + random.below(3) {
                mutate(&mut bytes, &seeds, &mut random);
            }
            Mutant { name: format!("mutation {number}"), bytes }
        })
        .collect()
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(6) {
        0 | 1 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
        2 => drop(bytes.drain(at..(at + 1 + random.below(4)).min(bytes.len()))),
        3 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).expect("a byte"),
        4 => bytes.extend_from_slice(&seeds[random.below(seeds.len())]),
        _ => {
            // A line, repeated somewhere else.
            let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
            let line = lines.get(random.below(lines.len().max(1))).copied().unwrap_or_default();
            let line = line.to_vec();
            bytes.splice(at..at, line);
        }
    }
}

/// A small generator with a fixed seed, so that every run plays the same inputs (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).expect("smaller than the bound")
    }
}

fn replace(bytes: &[u8], from: u8, to: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|&byte| if byte == from { to.to_vec() } else { vec![byte] }).collect()
}

/// Plays all mutants on a driver and reports those that harm.
fn suite(driver: &'static str, mutants: &[Mutant]) {
    let next = AtomicUsize::new(0);
    let lane = || {
        let origin = Origin::start();
        let proxy = Proxy::start(Settings::new(driver, &origin.address));
        let mut failed = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(number) else { break };
            let id = format!("{number:05}");
            let bytes = replace(&mutant.bytes, b'@', id.as_bytes());
            let mut verdict = play(&bytes, &proxy, &origin);
            if verdict.is_ok() && number.is_multiple_of(16) {
                verdict = proxy.probe(&format!("/probe-{id}"));
            }
            if let Err(why) = verdict {
                failed.push(format!("{} {}\n    {why}", mutant.name, show(&bytes)));
            }
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane ends well")).collect()
    });
    let (count, shown) = (failed.len(), failed.len().min(20));
    let text = failed[..shown].join("\n");
    assert!(failed.is_empty(), "{count} of {} harm on {driver}\n{text}", mutants.len());
}

fn play(bytes: &[u8], proxy: &Proxy, origin: &Origin) -> Result<(), String> {
    origin.reset([]);
    let mut client =
        Client::open(proxy.address).map_err(|error| format!("no connection: {error}"))?;
    client.methods = methods(bytes);
    client.send(bytes);
    // Whatever it took the bytes for, after FIN it answers or closes.
    client.half_close();
    if !client.wait_end(ms(4_000)) {
        return Err(format!("neither answered nor closed: {}", show(&client.raw())));
    }
    let requests = origin.look(|record| record.seen().cloned().collect::<Vec<_>>());
    judge(&client.received(), &requests)
}

/// Methods in the order of what look like request lines, so that answers to HEAD are understood.
fn methods(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines = bytes.split(|&byte| byte == b'\n');
    lines
        .filter(|line| contains(line, b" HTTP/1."))
        .filter_map(|line| line.split(|&byte| byte == b' ').next())
        .map(<[u8]>::to_vec)
        .collect()
}

fn judge(received: &Received, requests: &[Request]) -> Result<(), String> {
    for request in requests {
        let line = show(&request.line());
        if let Some(fault) = request.lint.faults.first() {
            return Err(format!("malformed towards the origin ({line}): {fault}"));
        }
        if contains(&request.target, b"/hidden") && request.get("x-forwarded-for").is_none() {
            return Err(format!("SMUGGLED past the parser: {line}"));
        }
    }
    let seen: Vec<_> = received.finals.iter().filter_map(|one| one.get("x-seen")).collect();
    let sent: Vec<_> =
        requests.iter().filter(|request| request.complete).map(Request::line).collect();
    if seen.len() > sent.len() || seen.iter().zip(&sent).any(|(seen, sent)| seen != sent) {
        return Err(format!(
            "answers {:?} to {:?}",
            seen.iter().map(|s| show(s)).collect::<Vec<_>>(),
            sent.iter().map(|s| show(s)).collect::<Vec<_>>()
        ));
    }
    Ok(())
}

mod io_uring {
    #[test]
    fn smugglers() {
        super::suite("io_uring", &super::smugglers());
    }

    #[test]
    fn mutations() {
        super::suite("io_uring", &super::mutations(super::MUTATIONS));
    }
}

mod epoll {
    #[test]
    fn smugglers() {
        super::suite("epoll", &super::smugglers());
    }

    #[test]
    fn mutations() {
        super::suite("epoll", &super::mutations(super::MUTATIONS));
    }
}

/// Mutations of a run: a few seconds on two cores.
const MUTATIONS: usize = 20_000;

/// Every disguise is there, and hides a request.
#[test]
fn mutants_are_many_and_hide_something() {
    let mutants = smugglers();
    assert!(mutants.len() > 1_500, "{} mutants", mutants.len());
    assert!(mutants.iter().all(|mutant| contains(&mutant.bytes, b"/hidden-@")), "all hide one");
}
