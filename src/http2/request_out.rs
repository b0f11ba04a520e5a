//! A request's head for an origin that speaks HTTP/2 (RFC 9113 section 8.3.1): the same fields go on
//! and the same are added as in HTTP/1 (`http/passing`).

use bytes::{Bytes, BytesMut};
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri, Version};

use crate::error::ErrorKind;
use crate::http::edit::RequestEdit;
use crate::http::head::list_members;
use crate::http::passing::{Kept, Lines, add_lines, takes_trailers};
use crate::http::{BodyFraming, Known, RequestHead};

/// Encodes a request's head for the upstream; `scheme` is what the client was asked by. A WebSocket
/// that is asked for becomes an extended CONNECT (RFC 8441 section 4); other upgrades do not exist in
/// HTTP/2 (RFC 9113 section 8.6).
///
/// # Errors
/// `HostInvalid`, `UriTooLong`, `TargetInvalid` or `HeadMalformed`, for what HTTP/2 cannot say.
pub fn encode_request(
    head: &RequestHead,
    edit: &RequestEdit<'_>,
    scheme: &str,
) -> Result<Request<()>, ErrorKind> {
    let websocket = asks_for_websocket(head, edit.upgrade);
    let mut request = Request::new(());
    *request.uri_mut() = uri(head, edit, scheme)?;
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = match websocket {
        true => Method::CONNECT,
        false => {
            Method::from_bytes(head.text(head.method)).map_err(|_| ErrorKind::MethodRefused)?
        }
    };
    if websocket {
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    let mut fields = Fields::with_capacity(head.fields.len() + head.added.len() + ADDED_LINES);
    copy_fields(&mut fields, head, edit, websocket)?;
    for (name, value) in head.added.iter() {
        fields.append(name, Bytes::copy_from_slice(value))?;
    }
    if let BodyFraming::Length(length) = edit.framing
        && !websocket
    {
        fields.map.append(CONTENT_LENGTH, HeaderValue::from(length));
    }
    // RFC 9113 section 8.2.2: the one thing that TE may say.
    if takes_trailers(head) {
        fields.map.append(TE, HeaderValue::from_static("trailers"));
    }
    add_lines(&mut fields, head, edit);
    *request.headers_mut() = fields.finish()?;
    Ok(request)
}

/// Whether a request is the handshake of a WebSocket (RFC 6455 section 4.1): GET, and WebSocket among
/// the protocols that may be switched to.
pub fn asks_for_websocket(head: &RequestHead, protocols: Option<&[u8]>) -> bool {
    head.text(head.method) == b"GET" && protocols.is_some_and(offers_websocket)
}

fn offers_websocket(protocols: &[u8]) -> bool {
    list_members(protocols).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// Fields that are added at most: forwarding, identity, Via, framing.
const ADDED_LINES: usize = 9;

/// The fields that are kept. Their values share one copy of the head.
fn copy_fields(
    fields: &mut Fields,
    head: &RequestHead,
    edit: &RequestEdit<'_>,
    websocket: bool,
) -> Result<(), ErrorKind> {
    let bytes = head.bytes.filled();
    let shared = Bytes::copy_from_slice(&bytes[..head.head_len]);
    let kept = Kept::of(head, edit);
    for field in &head.fields {
        // :authority stands for Host (RFC 9113 section 8.3.1); the length is told by the framing.
        if matches!(field.known, Known::Host | Known::ContentLength) || !kept.keeps(field, bytes) {
            continue;
        }
        let name = field.name.of(bytes);
        // RFC 8441 section 5: the key has no meaning where nothing is upgraded.
        if websocket && name.eq_ignore_ascii_case(b"sec-websocket-key") {
            continue;
        }
        let value = shared.slice(field.value.start as usize..field.value.end as usize);
        fields.append(name, value)?;
    }
    Ok(())
}

fn uri(head: &RequestHead, edit: &RequestEdit<'_>, scheme: &str) -> Result<Uri, ErrorKind> {
    let host = edit.host.or_else(|| head.value(Known::Host)).unwrap_or_default();
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::try_from(scheme).map_err(|_| ErrorKind::TargetInvalid)?);
    parts.authority = Some(Authority::try_from(host).map_err(|_| ErrorKind::HostInvalid)?);
    parts.path_and_query = Some(path_and_query(edit)?);
    Uri::from_parts(parts).map_err(|_| ErrorKind::TargetInvalid)
}

fn path_and_query(edit: &RequestEdit<'_>) -> Result<PathAndQuery, ErrorKind> {
    let query = edit.query.map_or(0, |query| query.len() + 1);
    let length = edit.path.len() + query;
    // What the library can address.
    if length > usize::from(u16::MAX) - 1 {
        return Err(ErrorKind::UriTooLong);
    }
    let mut target = BytesMut::with_capacity(length);
    target.extend_from_slice(edit.path);
    if let Some(query) = edit.query {
        target.extend_from_slice(b"?");
        target.extend_from_slice(query);
    }
    let target = target.freeze();
    // A byte that RFC 3986 keeps out of targets is escaped where the library does not let it pass.
    PathAndQuery::from_maybe_shared(target.clone())
        .or_else(|_| PathAndQuery::from_maybe_shared(escaped(&target)))
        .map_err(|_| ErrorKind::TargetInvalid)
}

fn escaped(target: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(target.len() + 32);
    for byte in target {
        match byte {
            b'"'
            | b'<'
            | b'>'
            | b'`'
            | b'{'
            | b'|'
            | b'}'
            | b'^'
            | b'\\'
            | b'#'
            | 0..=b' '
            | 0x7F.. => {
                let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value & 0xF)];
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(*byte)]);
            }
            plain => out.extend_from_slice(&[*plain]),
        }
    }
    out.freeze()
}

/// Fields that are being collected.
struct Fields {
    map: HeaderMap,
    name: &'static str,
    value: BytesMut,
    failed: bool,
}

impl Fields {
    fn with_capacity(fields: usize) -> Fields {
        let map = HeaderMap::with_capacity(fields);
        Fields { map, name: "", value: BytesMut::new(), failed: false }
    }

    fn append(&mut self, name: &[u8], value: Bytes) -> Result<(), ErrorKind> {
        // Names are told in lower case (RFC 9113 section 8.2.1), whatever case they came in.
        let name = HeaderName::from_bytes(name).map_err(|_| ErrorKind::HeadMalformed)?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| ErrorKind::HeadMalformed)?;
        self.map.try_append(name, value).map_err(|_| ErrorKind::HeadTooLarge)?;
        Ok(())
    }

    fn finish(self) -> Result<HeaderMap, ErrorKind> {
        if self.failed { Err(ErrorKind::HeadMalformed) } else { Ok(self.map) }
    }
}

impl Lines for Fields {
    fn begin(&mut self, name: &'static str) {
        self.name = name;
        self.value = BytesMut::new();
    }

    fn part(&mut self, value: &[u8]) {
        self.value.extend_from_slice(value);
    }

    fn end(&mut self) {
        let value = std::mem::take(&mut self.value).freeze();
        self.failed |= self.append(self.name.as_bytes(), value).is_err();
    }

    fn ready(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let colon = memchr::memchr(b':', line).unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
            let appended = self.append(&line[..colon], Bytes::copy_from_slice(value));
            self.failed |= appended.is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::base::buffer::Buf;
    use crate::http::{Forwarding, HeadLimits};

    /// A head as the HTTP/1 parser would leave it: request line, then `name: value` lines.
    fn head(text: &str) -> RequestHead {
        let mut head = RequestHead { bytes: Buf::from(text.as_bytes()), ..RequestHead::default() };
        let bytes = text.as_bytes();
        let mut slots = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut slots);
        let parsed = request.parse(bytes).expect("well formed");
        let at = |part: &[u8]| part.as_ptr().addr() - bytes.as_ptr().addr();
        let span = |part: &[u8]| crate::http::Span::new(at(part), at(part) + part.len());
        head.method = span(request.method.expect("a method").as_bytes());
        for field in request.headers.iter() {
            let known = Known::of(field.name.as_bytes());
            let value = match field.value {
                [] => crate::http::Span::default(),
                value => span(value),
            };
            let name = span(field.name.as_bytes());
            head.fields.push(crate::http::Field { name, value, line_end: 0, known });
        }
        head.head_len = parsed.unwrap();
        assert!(head.head_len <= HeadLimits::default().head_bytes_max);
        head
    }

    fn forwarding(trusted: bool) -> Forwarding {
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 1);
        Forwarding::new(peer, 8080, trusted)
    }

    fn edit<'a>(path: &'a str, facts: &'a Forwarding) -> RequestEdit<'a> {
        RequestEdit {
            path: path.as_bytes(),
            query: None,
            host: None,
            host_named: Some(b"a.test"),
            framing: BodyFraming::None,
            forwarding: facts,
            request_id: b"id-1",
            upgrade: None,
            via: true,
            forwarded: true,
        }
    }

    fn listed(request: &Request<()>) -> Vec<String> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", text(value));
        request.headers().iter().map(line).collect()
    }

    /// RFC 9113 sections 8.2.2 and 8.3.1
    #[test]
    fn a_head_is_told_in_pseudo_fields_and_lower_case() {
        let head = head(
            "POST /a?b HTTP/1.1\r\nHost: a.test\r\nConnection: X-Gone, keep-alive\r\n\
             X-Gone: 1\r\nX-Stays: \u{e9}\r\nTE: gzip, trailers\r\nKeep-Alive: 5\r\n\
             Content-Length: 007\r\nTransfer-Encoding: x\r\nX-Forwarded-For: 10.0.0.9\r\n\
             Cookie: a=b\r\nCookie: c=d\r\nEmpty:\r\n\r\n",
        );
        let facts = forwarding(false);
        let edit = RequestEdit {
            query: Some(b"b=%20"),
            framing: BodyFraming::Length(7),
            ..edit("/new", &facts)
        };
        let request = encode_request(&head, &edit, "http").expect("it can be said");
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri().to_string(), "http://a.test/new?b=%20");
        assert_eq!(
            listed(&request),
            [
                "x-stays: é",
                "cookie: a=b",
                "cookie: c=d",
                "empty: ",
                "content-length: 7",
                "te: trailers",
                "x-forwarded-for: 192.0.2.7",
                "x-forwarded-proto: http",
                "x-forwarded-port: 8080",
                "x-forwarded-host: a.test",
                "forwarded: for=192.0.2.7;host=\"a.test\";proto=http",
                "x-request-id: id-1",
                "via: 1.1 ringway",
            ]
        );
    }

    #[test]
    fn what_a_believed_proxy_said_goes_on() {
        let mut head = head(
            "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 198.51.100.1\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: b.test\r\n\r\n",
        );
        head.add("X-Added", b"1");
        let facts = forwarding(true);
        let edit = RequestEdit { via: false, forwarded: false, ..edit("/", &facts) };
        let request = encode_request(&head, &edit, "https").expect("it can be said");
        assert_eq!(request.uri().scheme_str(), Some("https"));
        assert_eq!(
            listed(&request),
            [
                "x-forwarded-proto: https",
                "x-forwarded-host: b.test",
                "x-added: 1",
                "x-forwarded-for: 198.51.100.1, 192.0.2.7",
                "x-forwarded-port: 8080",
                "x-request-id: id-1",
            ]
        );
    }

    /// RFC 8441 section 4
    #[test]
    fn a_websocket_is_an_extended_connect() {
        let head = head(
            "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        let facts = forwarding(true);
        let plain =
            RequestEdit { via: false, forwarded: false, host_named: None, ..edit("/chat", &facts) };
        let upgraded = RequestEdit { upgrade: Some(b"websocket"), ..plain };
        let request = encode_request(&head, &upgraded, "http").expect("it can be said");
        assert_eq!(request.method(), Method::CONNECT);
        let protocol = request.extensions().get::<Protocol>().expect("a protocol");
        assert_eq!((protocol.as_str(), request.uri().path()), ("websocket", "/chat"));
        let fields = listed(&request);
        assert_eq!(fields[0], "sec-websocket-version: 13");
        assert!(!fields.iter().any(|field| field.contains("key") || field.contains("upgrade")));
        assert!(!offers_websocket(b"x, websockets") && offers_websocket(b"x, WebSocket"));
    }

    #[test]
    fn every_target_of_a_gateway_can_be_said() {
        let plain = head("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
        let facts = forwarding(false);
        let uri = |path: &str, query: Option<&'static [u8]>| {
            let edit = RequestEdit { query, ..edit(path, &facts) };
            encode_request(&plain, &edit, "http").map(|request| request.uri().to_string())
        };
        assert_eq!(uri("/", None).as_deref(), Ok("http://[::1]:80/"));
        assert_eq!(uri("/a<b`", Some(b"q=\"")).as_deref(), Ok("http://[::1]:80/a%3Cb%60?q=%22"));
        assert_eq!(uri("/é", None).as_deref(), Ok("http://[::1]:80/é"));
        assert_eq!(uri(&"/".repeat(70_000), None), Err(ErrorKind::UriTooLong));
        let options = head("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let request = encode_request(&options, &edit("*", &facts), "http").expect("it can be said");
        assert_eq!(request.uri().path(), "*");
        let mut none = head("GET / HTTP/1.0\r\n\r\n");
        none.version = crate::http::Version::Http10;
        let said = encode_request(&none, &edit("/", &facts), "http");
        assert_eq!(said.err(), Some(ErrorKind::HostInvalid));
        let edit = RequestEdit { host: Some(b"b.test"), ..edit("/", &facts) };
        let request = encode_request(&none, &edit, "http").expect("it can be said");
        assert_eq!(request.uri().host(), Some("b.test"));
        assert!(listed(&request).contains(&"via: 1.0 ringway".to_owned()));
    }

    proptest::proptest! {
        /// Whatever stands in a valid target arrives, escaped where it has to be.
        #[test]
        fn targets_arrive(path in "/[!-~&&[^#?%]]{0,20}", query in "[!-~&&[^#%]]{0,20}") {
            let plain = head("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let facts = forwarding(false);
            let edit = RequestEdit { query: Some(query.as_bytes()), ..edit(&path, &facts) };
            let request = encode_request(&plain, &edit, "http").expect("it can be said");
            let decoded = |text: &str| {
                let mut out = Vec::new();
                let mut bytes = text.bytes();
                while let Some(byte) = bytes.next() {
                    out.push(match byte {
                        b'%' => {
                            let digits = [bytes.next(), bytes.next()].map(|byte| byte.expect("two"));
                            crate::http::uri::decode_digits(digits[0], digits[1]).expect("digits")
                        }
                        plain => plain,
                    });
                }
                String::from_utf8(out).expect("ASCII")
            };
            proptest::prop_assert_eq!(decoded(request.uri().path()), path);
            proptest::prop_assert_eq!(decoded(request.uri().query().expect("one")), query);
        }
    }
}
