//! A request of HTTP/2 as a head (RFC 9113 section 8.3): written like one of HTTP/1, so that routes,
//! filters, logs and the encoder know one form only.
//!
//! Whatever another parser could read differently in that form is refused here.

use std::cell::RefCell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::ext::Protocol;
use http::{HeaderMap, Method, request};

use crate::base::buffer::Buf;
use crate::base::random::Random;
use crate::error::ErrorKind;
use crate::http::{Field, HeadLimits, Known, RequestHead, Span, Version};
use crate::limits::METHOD_BYTES_MAX;

/// Writes the head of a request into `head`, whose spans point to what has been written.
///
/// # Errors
/// What is refused: it reaches no route.
pub fn read_request(
    parts: &request::Parts,
    head: &mut RequestHead,
    limits: &HeadLimits,
) -> Result<(), ErrorKind> {
    let websocket = asks_for_websocket(parts)?;
    let method = if websocket { "GET" } else { parts.method.as_str() };
    let target = target(parts)?;
    if target.len() > limits.uri_bytes_max {
        return Err(ErrorKind::UriTooLong);
    }
    let mut writer = Writer::begin(head, limits);
    writer.request_line(method, target)?;
    writer.host(parts)?;
    if websocket {
        writer.handshake(&parts.headers)?;
    }
    for (name, value) in &parts.headers {
        let name = name.as_str().as_bytes();
        let known = Known::of(name);
        match known {
            // Written already, and compared.
            Known::Host if parts.uri.authority().is_some() => {}
            Known::Te => writer.te(value.as_bytes())?,
            Known::Cookie => writer.cookie(value.as_bytes())?,
            _ if is_connection_specific(known) => return Err(ErrorKind::HeadMalformed),
            // RFC 8441 section 5: the key is of HTTP/1.1 alone.
            _ if websocket && name == b"sec-websocket-key" => {}
            _ => writer.field(name, value.as_bytes(), known)?,
        }
    }
    writer.end()
}

/// RFC 8441 section 4: CONNECT with a protocol. CONNECT without one is for forward proxies.
fn asks_for_websocket(parts: &request::Parts) -> Result<bool, ErrorKind> {
    if parts.method.as_str().len() > METHOD_BYTES_MAX {
        return Err(ErrorKind::MethodRefused);
    }
    match parts.extensions.get::<Protocol>() {
        Some(protocol) if parts.method == Method::CONNECT && protocol.as_str() == "websocket" => {
            Ok(true)
        }
        Some(_) => Err(ErrorKind::MethodRefused),
        None if parts.method == Method::CONNECT => Err(ErrorKind::MethodRefused),
        None => Ok(false),
    }
}

/// RFC 9113 section 8.3.1: a path and maybe a query, or `*` for OPTIONS. Fragments never get here:
/// the URI's parser cuts them off.
fn target(parts: &request::Parts) -> Result<&str, ErrorKind> {
    if parts.uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(ErrorKind::TargetInvalid);
    }
    let target = parts.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let formed = target.starts_with('/') || (target == "*" && parts.method == Method::OPTIONS);
    // A space would end the target in the request line, a `#` it for some origins.
    let clean = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if formed && clean { Ok(target) } else { Err(ErrorKind::TargetInvalid) }
}

/// RFC 9113 section 8.2.2: a request with one of these is malformed.
fn is_connection_specific(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
    )
}

/// Appends to a head, keeping its bounds.
struct Writer<'a> {
    head: &'a mut RequestHead,
    limits: &'a HeadLimits,
}

impl<'a> Writer<'a> {
    fn begin(head: &'a mut RequestHead, limits: &'a HeadLimits) -> Writer<'a> {
        head.reset();
        head.bytes = Buf::for_head();
        head.version = Version::Http2;
        Writer { head, limits }
    }

    fn request_line(&mut self, method: &str, target: &str) -> Result<(), ErrorKind> {
        let head = &mut *self.head;
        head.method = Span::new(0, method.len());
        head.target = Span::new(method.len() + 1, method.len() + 1 + target.len());
        for part in [method, " ", target, " HTTP/2.0\r\n"] {
            head.bytes.extend(part.as_bytes());
        }
        head.fields_start = head.bytes.len();
        self.bounded()
    }

    /// RFC 9113 section 8.3.1: `:authority` stands for Host, and the two must not differ.
    fn host(&mut self, parts: &request::Parts) -> Result<(), ErrorKind> {
        let Some(authority) = parts.uri.authority() else { return Ok(()) };
        let authority = authority.as_str().as_bytes();
        let clean = authority.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'@');
        let same = parts
            .headers
            .get_all(http::header::HOST)
            .iter()
            .all(|host| host.as_bytes().eq_ignore_ascii_case(authority));
        if !clean || !same {
            return Err(ErrorKind::HostInvalid);
        }
        self.field(b"host", authority, Known::Host)
    }

    /// What asks for a WebSocket in HTTP/1.1 (RFC 6455 section 4.1).
    fn handshake(&mut self, fields: &HeaderMap) -> Result<(), ErrorKind> {
        self.field(b"upgrade", b"websocket", Known::Upgrade)?;
        self.field(b"connection", b"Upgrade", Known::Connection)?;
        self.field(b"sec-websocket-key", made_key().as_bytes(), Known::Other)?;
        match fields.contains_key(http::header::SEC_WEBSOCKET_VERSION) {
            true => Ok(()),
            false => self.field(b"sec-websocket-version", b"13", Known::Other),
        }
    }

    /// RFC 9113 section 8.2.2: nothing but `trailers`.
    fn te(&mut self, value: &[u8]) -> Result<(), ErrorKind> {
        match value.eq_ignore_ascii_case(b"trailers") {
            true => self.field(b"te", value, Known::Te),
            false => Err(ErrorKind::HeadMalformed),
        }
    }

    /// RFC 9113 section 8.2.3: crumbs become one field. Fields of one name come in a row.
    fn cookie(&mut self, crumb: &[u8]) -> Result<(), ErrorKind> {
        let Some(before) = self.head.fields.pop_if(|field| field.known == Known::Cookie) else {
            return self.field(b"cookie", crumb, Known::Cookie);
        };
        check_value(crumb)?;
        let bytes = &mut self.head.bytes;
        bytes.truncate(before.value.end as usize);
        // Beside an empty crumb the separator would end in whitespace that is no part of a value.
        if !crumb.is_empty() && !before.value.is_empty() {
            bytes.extend(b"; ");
        }
        bytes.extend(crumb);
        let value = Span::new(before.value.start as usize, bytes.len());
        self.push(before.name, value, Known::Cookie)
    }

    fn field(&mut self, name: &[u8], value: &[u8], known: Known) -> Result<(), ErrorKind> {
        check_value(value)?;
        let bytes = &mut self.head.bytes;
        let start = bytes.len();
        bytes.extend(name);
        let name = Span::new(start, bytes.len());
        bytes.extend(b": ");
        let start = bytes.len();
        bytes.extend(value);
        let value = Span::new(start, bytes.len());
        self.push(name, value, known)
    }

    fn push(&mut self, name: Span, value: Span, known: Known) -> Result<(), ErrorKind> {
        let head = &mut *self.head;
        head.bytes.extend(b"\r\n");
        let line_end = value.end + 2;
        if head.fields.len() == self.limits.headers_max {
            return Err(ErrorKind::HeadTooLarge);
        }
        head.fields.push(Field { name, value, line_end, known });
        self.bounded()
    }

    fn end(&mut self) -> Result<(), ErrorKind> {
        self.head.bytes.extend(b"\r\n");
        self.head.head_len = self.head.bytes.len();
        self.bounded()
    }

    fn bounded(&self) -> Result<(), ErrorKind> {
        match self.head.bytes.len() > self.limits.head_bytes_max {
            true => Err(ErrorKind::HeadTooLarge),
            false => Ok(()),
        }
    }
}

/// RFC 9113 section 8.2.1: no NUL, CR or LF, no white space round it. RFC 9110 section 5.5 leaves the
/// tab of the other controls.
fn check_value(value: &[u8]) -> Result<(), ErrorKind> {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    let control = value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
    match control || blank(value.first()) || blank(value.last()) {
        true => Err(ErrorKind::HeadMalformed),
        false => Ok(()),
    }
}

/// RFC 6455 section 4.1: 16 bytes chosen at random; caches are to be told apart, not attackers kept
/// out.
fn made_key() -> String {
    thread_local! {
        static RANDOM: RefCell<Option<Random>> = const { RefCell::new(None) };
    }
    let (first, second) = RANDOM.with_borrow_mut(|random| {
        let random = random.get_or_insert_with(Random::new);
        (random.next(), random.next())
    });
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_le_bytes());
    key[8..].copy_from_slice(&second.to_le_bytes());
    STANDARD.encode(key)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;
    use ErrorKind::*;

    fn read(request: request::Builder) -> Result<RequestHead, ErrorKind> {
        read_within(request, &HeadLimits::default())
    }

    fn read_within(
        request: request::Builder,
        limits: &HeadLimits,
    ) -> Result<RequestHead, ErrorKind> {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let mut head = RequestHead::default();
        read_request(&parts, &mut head, limits).map(|()| head)
    }

    fn text(head: &RequestHead) -> &str {
        std::str::from_utf8(head.bytes.filled()).expect("text")
    }

    fn get(uri: &str) -> request::Builder {
        Request::builder().uri(uri)
    }

    /// RFC 9113 sections 8.2.3 and 8.3.1
    #[test]
    fn a_request_is_written_like_one_of_http_1() {
        let request = get("https://a.example:8443/p?q=1")
            .header("accept", "*/*")
            .header("cookie", "a=1")
            .header("x-a", "1")
            .header("cookie", "b=2")
            .header("x-a", "2")
            .header("te", "trailers");
        let head = read(request).expect("taken");
        assert_eq!(
            text(&head),
            "GET /p?q=1 HTTP/2.0\r\nhost: a.example:8443\r\naccept: */*\r\ncookie: a=1; b=2\r\n\
             x-a: 1\r\nx-a: 2\r\nte: trailers\r\n\r\n"
        );
        assert_eq!(head.version, Version::Http2);
        assert_eq!((head.text(head.method), head.text(head.target)), (&b"GET"[..], &b"/p?q=1"[..]));
        assert_eq!(head.value(Known::Cookie), Some(&b"a=1; b=2"[..]));
        assert_eq!(head.value(Known::Host), Some(&b"a.example:8443"[..]));
        assert_eq!(head.head_len, head.bytes.len());
        for field in &head.fields {
            let line = &head.bytes.filled()[field.name.start as usize..field.line_end as usize];
            assert!(line.ends_with(b"\r\n") && line.starts_with(head.text(field.name)));
        }
    }

    /// RFC 9113 section 8.2.3; a value neither begins nor ends with whitespace (RFC 9110 section 5.5).
    #[test]
    fn empty_crumbs_leave_no_trace() {
        for (crumbs, joined) in
            [(&["", ""][..], ""), (&["", "a=1"], "a=1"), (&["a=1", "", "b=2", ""], "a=1; b=2")]
        {
            let request =
                crumbs.iter().fold(get("http://a/"), |it, crumb| it.header("cookie", *crumb));
            let head = read(request).expect("taken");
            assert_eq!(head.value(Known::Cookie), Some(joined.as_bytes()), "{crumbs:?}");
        }
    }

    /// RFC 9113 sections 8.2.1, 8.2.2, 8.3.1 and 8.5
    #[test]
    fn what_would_be_read_differently_is_refused() {
        let uri = "http://a/";
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a value");
        let cases = [
            (get(uri).header("connection", "close"), HeadMalformed),
            (get(uri).header("transfer-encoding", "chunked"), HeadMalformed),
            (get(uri).header("upgrade", "h2c"), HeadMalformed),
            (get(uri).header("keep-alive", "1"), HeadMalformed),
            (get(uri).header("proxy-connection", "close"), HeadMalformed),
            (get(uri).header("te", "gzip"), HeadMalformed),
            (get(uri).header("x-a", value(b" a")), HeadMalformed),
            (get(uri).header("x-a", value(b"a\t")), HeadMalformed),
            (get(uri).header("host", "b"), HostInvalid),
            (get(uri).header("host", "a").header("host", "b"), HostInvalid),
            (get("http://u@a/"), HostInvalid),
            (get("http://a/\u{e4}"), TargetInvalid),
            (get("ftp://a/"), TargetInvalid),
            (get("http://a").method("CONNECT"), MethodRefused),
            (get(uri).method("A".repeat(METHOD_BYTES_MAX + 1).as_str()), MethodRefused),
            (get(&format!("http://a/{}", "x".repeat(8192))), UriTooLong),
            (get(uri).header("x-a", "x".repeat(16 * 1024)), HeadTooLarge),
        ];
        for (request, expected) in cases {
            let shown = format!("{request:?}");
            assert_eq!(read(request).map(|head| text(&head).to_owned()), Err(expected), "{shown}");
        }
        let asterisk = Request::builder().method("OPTIONS").uri("*").header("host", "a");
        assert!(text(&read(asterisk).expect("taken")).starts_with("OPTIONS * HTTP/2.0\r\n"));
        let get_asterisk = Request::builder().uri("*").header("host", "a");
        assert_eq!(read(get_asterisk).map(|_| ()), Err(TargetInvalid));
    }

    #[test]
    fn the_bounds_of_a_head_hold_on_both_sides() {
        let limits = HeadLimits { headers_max: 2, ..HeadLimits::default() };
        let two = get("http://a/").header("x-a", "1");
        assert!(read_within(two, &limits).is_ok());
        let three = get("http://a/").header("x-a", "1").header("x-a", "2");
        assert_eq!(read_within(three, &limits).map(|_| ()), Err(HeadTooLarge));
        let whole = read(get("http://a/").header("x-a", "1")).expect("taken").head_len;
        let exact = HeadLimits { head_bytes_max: whole, ..HeadLimits::default() };
        assert!(read_within(get("http://a/").header("x-a", "1"), &exact).is_ok());
        let less = HeadLimits { head_bytes_max: whole - 1, ..HeadLimits::default() };
        assert_eq!(
            read_within(get("http://a/").header("x-a", "1"), &less).map(|_| ()),
            Err(HeadTooLarge)
        );
    }

    /// RFC 8441 sections 4 and 5
    #[test]
    fn extended_connect_becomes_an_upgrade() {
        let connect = |protocol: &'static str| {
            get("https://a/chat")
                .method("CONNECT")
                .extension(Protocol::from_static(protocol))
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", "theirs")
                .header("sec-websocket-protocol", "chat")
        };
        let head = read(connect("websocket")).expect("taken");
        let key = head.values_named("sec-websocket-key").next().expect("a key");
        assert_eq!(STANDARD.decode(key).map(|key| key.len()), Ok(16));
        let text = text(&head).replace(std::str::from_utf8(key).expect("text"), "KEY");
        assert_eq!(
            text,
            "GET /chat HTTP/2.0\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-key: KEY\r\nsec-websocket-version: 13\r\nsec-websocket-protocol: chat\r\n\r\n"
        );
        assert_eq!(read(connect("connect-udp")).map(|_| ()), Err(MethodRefused));
    }
}
