//! How a line of the access log looks.

use super::record::{AccessRecord, AnnouncedTexts};
use super::text::{DateText, address, cut, hex_escaped, json_escaped, number};
use crate::limits::{
    ACCESS_LOG_CHUNK_BYTES, ACCESS_LOG_NAME_BYTES_MAX, ACCESS_LOG_TEXT_BYTES_MAX,
    ACCESS_LOG_WORD_BYTES_MAX,
};

/// The format of an access log. A record is one line, whatever its fields hold; target, referer and
/// user agent are cut at [`ACCESS_LOG_TEXT_BYTES_MAX`] bytes, other texts at
/// [`ACCESS_LOG_NAME_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The line that Apache's and nginx's analysers read:
    /// `client - - [date] "method target version" status bytes "referer" "user-agent"`.
    ///
    /// The date is that of the request's complete head, in UTC; `bytes` are those of the answer's body.
    /// What is missing is `-`; a byte outside printable ASCII, a quote and a backslash are `\xHH`.
    Combined,
    /// One JSON object (RFC 8259), every key but the last row's always there; a text that is missing is `""`, a number
    /// that is missing `null`.
    ///
    /// | key | holds |
    /// |---|---|
    /// | `ts` | when the request's head was complete: RFC 3339 with microseconds, UTC |
    /// | `request_id` | the id under which the upstream knows the request |
    /// | `client` | address of the client |
    /// | `method`, `host` | as received |
    /// | `path`, `query` | the target as received, up to its first `?` and behind it |
    /// | `protocol` | `HTTP/1.1` |
    /// | `status` | status of the answer, or that of the error where none was begun |
    /// | `bytes_in`, `bytes_out` | bytes of the request's and of the answer's body |
    /// | `listener`, `route`, `upstream`, `endpoint` | names as configured |
    /// | `retries` | times that the request was sent again |
    /// | `hedge` | where two endpoints were asked: `won` if the second answered, else `lost`; `null` where one was |
    /// | `t_total_us` | from then to the answer's last byte, in microseconds |
    /// | `t_gw_us` | the part of it that the upstream had no part in |
    /// | `t_up_connect_us` | time to connect, `null` on a connection that was at hand |
    /// | `t_up_head_us` | from when the upstream's connection was asked for to the head of its answer |
    /// | `error` | code of the error (docs/errors.md), or `null` |
    /// | `config_version` | version of the configuration that served it |
    /// | `worker` | index of the worker that served it |
    /// | `referer`, `user_agent` | as received |
    /// | `proxy_authority`, `proxy_unique_id`, `proxy_alpn`, `proxy_ssl_version`, `proxy_ssl_cn` | what a PROXY header told of the client; only where it did |
    /// | `tls_version`, `tls_cipher`, `tls_sni` | of the client's TLS; empty where it speaks none |
    /// | `client_cert_subject` | subject of the client's certificate, which was verified |
    Json,
}

impl Format {
    /// Appends one record and its line end: at most [`RECORD_BYTES_MAX`] bytes.
    #[inline]
    pub fn write(self, record: &AccessRecord<'_>, dates: &mut DateText, out: &mut Vec<u8>) {
        let before = out.len();
        match self {
            Format::Combined => combined(record, dates, out),
            Format::Json => json(record, dates, out),
        }
        debug_assert!(out.len() - before <= RECORD_BYTES_MAX, "the bound on a record holds");
    }
}

fn combined(record: &AccessRecord<'_>, dates: &mut DateText, out: &mut Vec<u8>) {
    address(out, record.client);
    out.extend_from_slice(b" - - ");
    out.extend_from_slice(dates.combined(record.started_us));
    out.extend_from_slice(b" \"");
    request_line(record, out);
    out.extend_from_slice(b"\" ");
    match record.status {
        0 => out.push(b'-'),
        status => number(out, u64::from(status)),
    }
    out.push(b' ');
    number(out, record.response_body_bytes);
    out.extend_from_slice(b" \"");
    text_or_dash(out, record.referer);
    out.extend_from_slice(b"\" \"");
    text_or_dash(out, record.user_agent);
    out.extend_from_slice(b"\"\n");
}

/// What there was of it: a head that broke off may have brought less.
fn request_line(record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    if record.method.is_empty() && record.target.is_empty() {
        return out.push(b'-');
    }
    hex_escaped(out, cut(record.method, ACCESS_LOG_NAME_BYTES_MAX));
    out.push(b' ');
    hex_escaped(out, cut(record.target, ACCESS_LOG_TEXT_BYTES_MAX));
    if !record.version.is_empty() {
        out.push(b' ');
        out.extend_from_slice(record.version.as_bytes());
    }
}

fn text_or_dash(out: &mut Vec<u8>, text: &[u8]) {
    if text.is_empty() {
        return out.push(b'-');
    }
    hex_escaped(out, cut(text, ACCESS_LOG_TEXT_BYTES_MAX));
}

fn json(record: &AccessRecord<'_>, dates: &mut DateText, out: &mut Vec<u8>) {
    let target = cut(record.target, ACCESS_LOG_TEXT_BYTES_MAX);
    let question = memchr::memchr(b'?', target).unwrap_or(target.len());
    let status = (record.status != 0).then_some(u64::from(record.status));

    out.extend_from_slice(b"{\"ts\":\"");
    out.extend_from_slice(dates.rfc3339(record.started_us));
    name(out, b"\",\"request_id\":\"", record.request_id);
    out.extend_from_slice(b"\",\"client\":\"");
    address(out, record.client);
    name(out, b"\",\"method\":\"", record.method);
    name(out, b"\",\"host\":\"", record.host);
    text(out, b"\",\"path\":\"", &target[..question]);
    text(out, b"\",\"query\":\"", target.get(question + 1..).unwrap_or_default());
    name(out, b"\",\"protocol\":\"", record.version.as_bytes());
    optional(out, b"\",\"status\":", status);
    integer(out, b",\"bytes_in\":", record.request_body_bytes);
    integer(out, b",\"bytes_out\":", record.response_body_bytes);
    name(out, b",\"listener\":\"", record.listener.as_bytes());
    name(out, b"\",\"route\":\"", record.route.as_bytes());
    name(out, b"\",\"upstream\":\"", record.upstream.as_bytes());
    name(out, b"\",\"endpoint\":\"", record.endpoint.as_bytes());
    integer(out, b"\",\"retries\":", u64::from(record.retries));
    word(out, b",\"hedge\":", record.hedge);
    integer(out, b",\"t_total_us\":", record.total_us);
    integer(out, b",\"t_gw_us\":", record.gateway_us);
    optional(out, b",\"t_up_connect_us\":", record.connect_us);
    optional(out, b",\"t_up_head_us\":", record.upstream_head_us);
    word(out, b",\"error\":", record.error);
    integer(out, b",\"config_version\":", record.config_version);
    integer(out, b",\"worker\":", record.worker as u64);
    text(out, b",\"referer\":\"", record.referer);
    text(out, b"\",\"user_agent\":\"", record.user_agent);
    name(out, b"\",\"tls_version\":\"", record.tls.version.as_bytes());
    name(out, b"\",\"tls_cipher\":\"", record.tls.cipher.as_bytes());
    name(out, b"\",\"tls_sni\":\"", record.tls.sni.as_bytes());
    name(out, b"\",\"client_cert_subject\":\"", record.tls.client_subject.as_bytes());
    announced(out, &record.announced);
    out.extend_from_slice(b"\"}\n");
}

/// What a PROXY header told, behind an open string.
fn announced(out: &mut Vec<u8>, told: &AnnouncedTexts<'_>) {
    let word = |text| cut(text, ACCESS_LOG_WORD_BYTES_MAX);
    for (key, value) in [
        (&b"\",\"proxy_authority\":\""[..], told.authority),
        (b"\",\"proxy_unique_id\":\"", told.unique_id),
        (b"\",\"proxy_alpn\":\"", word(told.alpn)),
        (b"\",\"proxy_ssl_version\":\"", word(told.ssl_version)),
        (b"\",\"proxy_ssl_cn\":\"", told.ssl_cn),
    ] {
        if !value.is_empty() {
            name(out, key, value);
        }
    }
}

#[inline]
fn name(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(key);
    json_escaped(out, cut(value, ACCESS_LOG_NAME_BYTES_MAX));
}

#[inline]
fn text(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(key);
    json_escaped(out, cut(value, ACCESS_LOG_TEXT_BYTES_MAX));
}

#[inline]
fn integer(out: &mut Vec<u8>, key: &[u8], value: u64) {
    out.extend_from_slice(key);
    number(out, value);
}

#[inline]
fn optional(out: &mut Vec<u8>, key: &[u8], value: Option<u64>) {
    out.extend_from_slice(key);
    match value {
        Some(value) => number(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

/// One of our own words, which needs no escape.
fn word(out: &mut Vec<u8>, key: &[u8], value: Option<&str>) {
    out.extend_from_slice(key);
    match value {
        Some(word) => {
            name(out, b"\"", word.as_bytes());
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// Bytes of the longest record: every byte of every text as `\u00XX`, and room for what is not text.
pub const RECORD_BYTES_MAX: usize = 6
    * (3 * ACCESS_LOG_TEXT_BYTES_MAX
        + NAMES * ACCESS_LOG_NAME_BYTES_MAX
        + WORDS * ACCESS_LOG_WORD_BYTES_MAX)
    + FIXED_BYTES_MAX;
/// Texts of a JSON record that are cut as names.
const NAMES: usize = 16;
/// Texts of a JSON record that are cut as words.
const WORDS: usize = 2;
/// Bytes of the keys, dates, numbers and the address of a JSON record.
const FIXED_BYTES_MAX: usize = 1024;

const _: () = assert!(RECORD_BYTES_MAX <= ACCESS_LOG_CHUNK_BYTES, "a chunk holds any record");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::access_log::TlsRecord;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn record() -> AccessRecord<'static> {
        AccessRecord {
            started_us: 1_795_999_109_004_217,
            client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
            method: b"GET",
            target: b"/orders/17?full=1",
            version: "HTTP/1.1",
            host: b"shop.example.com",
            referer: b"https://shop.example.com/",
            user_agent: b"curl/8.5.0",
            status: 200,
            request_body_bytes: 0,
            response_body_bytes: 1024,
            request_id: b"018f3c2e6d1a7c3b",
            listener: "public",
            route: "orders",
            upstream: "orders",
            endpoint: "127.0.0.1:9001",
            retries: 1,
            hedge: None,
            total_us: 1_250,
            gateway_us: 50,
            connect_us: None,
            upstream_head_us: Some(1_100),
            error: None,
            tls: TlsRecord::default(),
            config_version: 3,
            worker: 1,
            announced: AnnouncedTexts::default(),
        }
    }

    fn line(format: Format, record: &AccessRecord<'_>) -> String {
        let mut out = Vec::new();
        format.write(record, &mut DateText::new(), &mut out);
        let line = String::from_utf8(out).expect("a line is text");
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        line.trim_end().to_owned()
    }

    #[test]
    fn combined_is_what_analysers_expect() {
        assert_eq!(
            line(Format::Combined, &record()),
            "192.0.2.7 - - [30/Nov/2026:00:38:29 +0000] \"GET /orders/17?full=1 HTTP/1.1\" 200 \
             1024 \"https://shop.example.com/\" \"curl/8.5.0\""
        );
    }

    #[test]
    fn combined_says_what_is_missing() {
        let broken = AccessRecord {
            client: IpAddr::V6(Ipv6Addr::LOCALHOST),
            method: b"",
            target: b"",
            version: "",
            referer: b"",
            user_agent: b"",
            status: 0,
            response_body_bytes: 0,
            ..record()
        };
        let begins = "::1 - - [30/Nov/2026:00:38:29 +0000]";
        assert_eq!(line(Format::Combined, &broken), format!("{begins} \"-\" - 0 \"-\" \"-\""));
        let half = AccessRecord { method: b"GET", target: b"/a", ..broken };
        assert_eq!(line(Format::Combined, &half), format!("{begins} \"GET /a\" - 0 \"-\" \"-\""));
    }

    #[test]
    fn combined_stays_one_quoted_line() {
        let hostile = AccessRecord {
            target: b"/\"\\\n\xff",
            referer: b"\" 200 1 \"",
            user_agent: "grün\r\n".as_bytes(),
            ..record()
        };
        assert_eq!(
            line(Format::Combined, &hostile),
            "192.0.2.7 - - [30/Nov/2026:00:38:29 +0000] \"GET /\\x22\\x5C\\x0A\\xFF HTTP/1.1\" 200 \
             1024 \"\\x22 200 1 \\x22\" \"gr\\xC3\\xBCn\\x0D\\x0A\""
        );
    }

    #[test]
    fn json_has_every_key_in_order() {
        assert_eq!(
            line(Format::Json, &record()),
            "{\"ts\":\"2026-11-30T00:38:29.004217Z\",\"request_id\":\"018f3c2e6d1a7c3b\",\
             \"client\":\"192.0.2.7\",\"method\":\"GET\",\"host\":\"shop.example.com\",\
             \"path\":\"/orders/17\",\"query\":\"full=1\",\"protocol\":\"HTTP/1.1\",\
             \"status\":200,\"bytes_in\":0,\"bytes_out\":1024,\"listener\":\"public\",\
             \"route\":\"orders\",\"upstream\":\"orders\",\"endpoint\":\"127.0.0.1:9001\",\
             \"retries\":1,\"hedge\":null,\"t_total_us\":1250,\"t_gw_us\":50,\"t_up_connect_us\":null,\
             \"t_up_head_us\":1100,\"error\":null,\"config_version\":3,\"worker\":1,\
             \"referer\":\"https://shop.example.com/\",\"user_agent\":\"curl/8.5.0\",\"tls_version\":\"\",\"tls_cipher\":\"\",\
             \"tls_sni\":\"\",\"client_cert_subject\":\"\"}"
        );
    }

    #[test]
    fn json_tells_errors_and_what_is_missing() {
        let failed = AccessRecord {
            status: 0,
            route: "",
            error: Some("client_aborted"),
            target: b"*",
            connect_us: Some(7),
            ..record()
        };
        let value: serde_json::Value =
            serde_json::from_str(&line(Format::Json, &failed)).expect("JSON");
        assert_eq!(value["status"], serde_json::Value::Null);
        assert_eq!(value["error"], "client_aborted");
        assert_eq!((&value["path"], &value["query"]), (&"*".into(), &"".into()));
        assert_eq!(value["route"], "");
        assert_eq!(value["t_up_connect_us"], 7);
    }

    /// Only where it was told, and only what.
    #[test]
    fn json_shows_what_a_proxy_header_told() {
        let announced = AnnouncedTexts {
            authority: b"shop.example.com",
            ssl_version: b"TLSv1.3",
            ..AnnouncedTexts::default()
        };
        let told = line(Format::Json, &AccessRecord { announced, ..record() });
        let plain = line(Format::Json, &record());
        let more = ",\"proxy_authority\":\"shop.example.com\",\"proxy_ssl_version\":\"TLSv1.3\"}";
        assert_eq!(told, plain.replace('}', more));
    }

    #[test]
    fn the_longest_record_keeps_its_bound() {
        let long = vec![0xff; 2 * ACCESS_LOG_TEXT_BYTES_MAX];
        let names = "\u{1}".repeat(2 * ACCESS_LOG_NAME_BYTES_MAX);
        let record = AccessRecord {
            started_us: u64::MAX,
            client: IpAddr::V6(Ipv6Addr::from([0xab; 16])),
            method: &long,
            target: &long,
            host: &long,
            referer: &long,
            user_agent: &long,
            status: u16::MAX,
            request_body_bytes: u64::MAX,
            response_body_bytes: u64::MAX,
            request_id: &long,
            listener: &names,
            route: &names,
            upstream: &names,
            endpoint: &names,
            retries: u32::MAX,
            hedge: Some("lost"),
            total_us: u64::MAX,
            gateway_us: u64::MAX,
            connect_us: Some(u64::MAX),
            upstream_head_us: Some(u64::MAX),
            tls: TlsRecord { version: &names, cipher: &names, sni: &names, client_subject: &names },
            config_version: u64::MAX,
            worker: usize::MAX,
            announced: AnnouncedTexts {
                authority: &long,
                unique_id: &long,
                alpn: &long,
                ssl_version: &long,
                ssl_cn: &long,
            },
            ..record()
        };
        for format in [Format::Combined, Format::Json] {
            let written = line(format, &record).len() + 1;
            assert!((8_192..=RECORD_BYTES_MAX).contains(&written), "{format:?}: {written}");
        }
        let value: serde_json::Value =
            serde_json::from_str(&line(Format::Json, &record)).expect("JSON");
        let path = value["path"].as_str().expect("a string");
        assert_eq!(path, "\u{ff}".repeat(ACCESS_LOG_TEXT_BYTES_MAX));
        assert_eq!(value["route"].as_str().map(str::len), Some(ACCESS_LOG_NAME_BYTES_MAX));
    }
}
