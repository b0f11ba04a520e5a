//! Lines of the access log: whatever the fields hold, a record is one line that says the same.
#![allow(dead_code, reason = "tests that include this crate use a part of it")]

use std::net::IpAddr;

use ringway::observe::AccessRecord;
use ringway::observe::access_log::format::RECORD_BYTES_MAX;
use ringway::observe::access_log::{AnnouncedTexts, DateText, Format};

/// `data` is a row of fields, each a length, in sixteens, and so many bytes, as far as there are any;
/// the numbers come from the first.
pub fn access_log(data: &[u8]) {
    let mut rest = data;
    let numbers = take(&mut rest);
    let number = |at: usize| {
        let bytes = numbers.get(at * 8..).unwrap_or_default();
        let first = |i: usize| u64::from(bytes.get(i).copied().unwrap_or(0));
        (0..8).fold(0, |sum, i| sum << 8 | first(i))
    };
    let octets: [u8; 16] = std::array::from_fn(|at| numbers.get(at).copied().unwrap_or(0));
    let v4 = [octets[0], octets[1], octets[2], octets[3]];
    let fields: [&[u8]; 7] = std::array::from_fn(|_| take(&mut rest));
    let names: [String; 4] =
        std::array::from_fn(|_| String::from_utf8_lossy(take(&mut rest)).into_owned());
    let record = AccessRecord {
        started_us: number(0),
        client: if number(1) % 2 == 0 { IpAddr::from(v4) } else { IpAddr::from(octets) },
        method: fields[0],
        target: fields[1],
        version: ["HTTP/1.1", "HTTP/1.0", ""][number(2) as usize % 3],
        host: fields[2],
        referer: fields[3],
        user_agent: fields[4],
        status: number(3) as u16,
        request_body_bytes: number(4),
        response_body_bytes: number(5),
        request_id: fields[5],
        listener: &names[0],
        route: &names[1],
        upstream: &names[2],
        endpoint: &names[3],
        retries: number(6) as u32,
        hedge: (number(6) % 2 == 0).then_some("won"),
        total_us: number(7),
        gateway_us: number(8),
        connect_us: (number(9) % 2 == 0).then_some(number(9)),
        upstream_head_us: (number(10) % 2 == 0).then_some(number(10)),
        error: (number(11) % 2 == 0).then_some("client_aborted"),
        tls: Default::default(),
        config_version: number(12),
        worker: number(13) as usize,
        announced: AnnouncedTexts {
            authority: fields[0],
            unique_id: fields[1],
            alpn: fields[2],
            ssl_version: fields[3],
            ssl_cn: fields[4],
        },
    };
    combined(&record);
    json(&record);
}

fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, behind)) = rest.split_first() else { return &[] };
    let (field, left) = behind.split_at(behind.len().min(16 * usize::from(*length)));
    *rest = left;
    field
}

/// Writes the record behind another line, which must stay as it is.
fn line(format: Format, record: &AccessRecord<'_>) -> Vec<u8> {
    let mut out = b"before\n".to_vec();
    format.write(record, &mut DateText::new(), &mut out);
    let line = out.strip_prefix(b"before\n").expect("only appended to");
    assert!(line.len() <= RECORD_BYTES_MAX);
    let (end, line) = line.split_last().expect("a line");
    assert_eq!(*end, b'\n');
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    line.to_vec()
}

fn combined(record: &AccessRecord<'_>) {
    let line = line(Format::Combined, record);
    assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b'"').collect();
    let [begin, request, numbers, referer, b" ", user_agent, b""] = parts[..] else {
        panic!("{} quotes", parts.len() - 1)
    };
    let begin = std::str::from_utf8(begin).expect("ASCII");
    let client = begin.strip_suffix(" +0000] ").and_then(|begin| begin.split_once(" - - ["));
    let (client, date) = client.expect("a client and a date");
    assert_eq!(client.parse(), Ok(record.client.to_canonical()));
    assert_eq!(date.len(), "30/Nov/2026:00:38:29".len());
    let status = if record.status == 0 { "-".to_owned() } else { record.status.to_string() };
    assert_eq!(numbers, format!(" {status} {} ", record.response_body_bytes).as_bytes());
    for (shown, given) in [(referer, record.referer), (user_agent, record.user_agent)] {
        let given = if given.is_empty() { b"-" } else { given };
        assert_eq!(unescaped(shown), cut(given, 2048));
    }
    let mut expected = [cut(record.method, 256), b" ", cut(record.target, 2048)].concat();
    if !record.version.is_empty() {
        expected.push(b' ');
        expected.extend_from_slice(record.version.as_bytes());
    }
    if record.method.is_empty() && record.target.is_empty() {
        expected = b"-".to_vec();
    }
    assert_eq!(unescaped(request), expected);
}

/// Undoes `\xHH`; there is no other escape.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        if text[at] != b'\\' {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let escape = std::str::from_utf8(&text[at..at + 4]).expect("ASCII");
        let digits = escape.strip_prefix("\\x").expect("the one escape");
        out.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
        at += 4;
    }
    out
}

fn json(record: &AccessRecord<'_>) {
    let line = line(Format::Json, record);
    let text = std::str::from_utf8(&line).expect("UTF-8");
    assert!(!text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')));
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let target = cut(record.target, 2048);
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (halves.next(), halves.next());
    for (key, given) in [
        ("method", cut(record.method, 256)),
        ("path", path.unwrap_or_default()),
        ("query", query.unwrap_or_default()),
        ("protocol", record.version.as_bytes()),
        ("host", cut(record.host, 256)),
        ("request_id", cut(record.request_id, 256)),
        ("referer", cut(record.referer, 2048)),
        ("user_agent", cut(record.user_agent, 2048)),
        ("listener", cut(record.listener.as_bytes(), 256)),
        ("route", cut(record.route.as_bytes(), 256)),
        ("upstream", cut(record.upstream.as_bytes(), 256)),
        ("endpoint", cut(record.endpoint.as_bytes(), 256)),
        ("tls_version", cut(record.tls.version.as_bytes(), 256)),
        ("tls_cipher", cut(record.tls.cipher.as_bytes(), 256)),
        ("tls_sni", cut(record.tls.sni.as_bytes(), 256)),
        ("client_cert_subject", cut(record.tls.client_subject.as_bytes(), 256)),
    ] {
        assert_eq!(value[key].as_str(), Some(&*characters(given)), "{key}");
    }
    for (key, given) in [
        ("status", (record.status != 0).then_some(u64::from(record.status))),
        ("bytes_in", Some(record.request_body_bytes)),
        ("bytes_out", Some(record.response_body_bytes)),
        ("retries", Some(u64::from(record.retries))),
        ("t_total_us", Some(record.total_us)),
        ("t_gw_us", Some(record.gateway_us)),
        ("t_up_connect_us", record.connect_us),
        ("t_up_head_us", record.upstream_head_us),
        ("config_version", Some(record.config_version)),
        ("worker", Some(record.worker as u64)),
    ] {
        assert_eq!(value[key].as_u64(), given, "{key}");
    }
    assert_eq!(value["error"].as_str(), record.error);
    assert_eq!(value["hedge"].as_str(), record.hedge);
    assert_eq!(value["ts"].as_str().map(str::len), Some("2026-11-30T00:38:29.000000Z".len()));
    let told = &record.announced;
    let mut keys = 30;
    for (key, given) in [
        ("proxy_authority", cut(told.authority, 256)),
        ("proxy_unique_id", cut(told.unique_id, 256)),
        ("proxy_alpn", cut(told.alpn, 64)),
        ("proxy_ssl_version", cut(told.ssl_version, 64)),
        ("proxy_ssl_cn", cut(told.ssl_cn, 256)),
    ] {
        let given = (!given.is_empty()).then(|| characters(given));
        assert_eq!(value[key].as_str(), given.as_deref(), "{key}");
        keys += usize::from(given.is_some());
    }
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(keys), "every key is there");
}

/// UTF-8 as it is, any other byte as the character of its value.
fn characters(bytes: &[u8]) -> String {
    let mut out = String::new();
    for piece in bytes.utf8_chunks() {
        out.push_str(piece.valid());
        out.extend(piece.invalid().iter().map(|byte| char::from(*byte)));
    }
    out
}

/// At most so many bytes, ending between characters, where there are any nearby.
fn cut(text: &[u8], bytes_max: usize) -> &[u8] {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while end > bytes_max - 3 && (0x80..0xc0).contains(&text[end]) {
        end -= 1;
    }
    let end = if (0x80..0xc0).contains(&text[end]) { bytes_max } else { end };
    &text[..end]
}
