//! HTTP/2 from a client: one request on its way to HTTP/1.1, and a whole connection.
#![allow(dead_code, reason = "tests that include this crate use a part of it")]

use h2::ext::Protocol;
use http::Request;
use http::request::Parts;
use ringway::base::buffer::Buf;
use ringway::http::edit::RequestEdit;
use ringway::http::{BodyFraming, Forwarding, HeadLimits, Known, RequestHead};
use ringway::http1::encode::{encode_request, upgrade_protocols};
use ringway::http1::framing::request_framing;
use ringway::http1::head::RequestParser;
use ringway::http2::read_request;

use super::connection::{read_knobs, read_steps};
use super::head::LIMITS;
use super::reference::{self, Bounds};
use super::sim::world::World;

/// `data` is method, URI, then names and values, each behind 0xFF but the first; a method that
/// begins with `!` is an extended CONNECT whose protocol is the rest.
pub fn http2_request(data: &[u8]) {
    let Some(parts) = request(data) else { return };
    for limits in LIMITS {
        let mut head = RequestHead::default();
        if read_request(&parts, &mut head, &limits).is_ok() {
            check_head(&head, &limits);
            downgrade(&head);
        }
    }
}

/// What `h2` would hand over, where it would.
fn request(data: &[u8]) -> Option<Parts> {
    let mut pieces = data.split(|byte| *byte == 0xff);
    let (method, uri) = (pieces.next()?, pieces.next()?);
    let mut request = match method.strip_prefix(b"!") {
        Some(protocol) => {
            let protocol = std::str::from_utf8(protocol).ok()?;
            Request::builder().method("CONNECT").extension(Protocol::from(protocol))
        }
        None => Request::builder().method(method),
    };
    request = request.uri(uri);
    while let (Some(name), Some(value)) = (pieces.next(), pieces.next()) {
        request = request.header(name, value);
    }
    Some(request.body(()).ok()?.into_parts().0)
}

/// The head keeps its bounds, and its spans its form.
fn check_head(head: &RequestHead, limits: &HeadLimits) {
    assert_eq!(head.head_len, head.bytes.len());
    assert!(head.head_len <= limits.head_bytes_max && head.fields.len() <= limits.headers_max);
    assert!(head.target.len() <= limits.uri_bytes_max);
    let bytes = head.bytes.filled();
    let mut at = head.fields_start;
    for field in &head.fields {
        assert_eq!(field.name.start as usize, at, "a line begins where the last one ended");
        assert_eq!(field.known, Known::of(field.name.of(bytes)));
        at = field.line_end as usize;
        let line = [field.name.of(bytes), b": ", field.value.of(bytes), b"\r\n"].concat();
        assert_eq!(&bytes[field.name.start as usize..at], line);
    }
    assert_eq!(&bytes[at..], b"\r\n");
}

/// Sent on as HTTP/1.1 it is one request, and the same, to our parser and to the reference.
fn downgrade(head: &RequestHead) {
    let Ok(framing) = request_framing(head) else { return };
    let target = head.text(head.target);
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    let peer = "192.0.2.1:1000".parse().expect("an address");
    let upgrade = upgrade_protocols(head).filter(|_| framing == BodyFraming::None);
    // A body whose length nobody has told goes in chunks.
    let framings = match framing {
        BodyFraming::None => vec![BodyFraming::None, BodyFraming::Chunked],
        told => vec![told],
    };
    for framing in framings {
        let mut out = Buf::for_head();
        let edit = RequestEdit {
            path,
            query,
            host: None,
            host_named: None,
            framing,
            forwarding: &Forwarding::new(peer, 80, true),
            request_id: b"id",
            upgrade: upgrade.as_deref(),
            via: true,
            forwarded: true,
        };
        encode_request(&mut out, head, &edit);
        let length = out.len();
        let bounds = Bounds { head_bytes: length, fields: 512, target_bytes: length };
        let read = reference::request(out.filled(), bounds).expect("one request");
        assert_eq!((read.skipped, read.len), (0, length), "nothing behind it");
        assert_eq!((&read.method[..], &read.target[..]), (head.text(head.method), target));
        let limits = HeadLimits { head_bytes_max: length, headers_max: 256, uri_bytes_max: length };
        let mut again = RequestHead { bytes: out, ..RequestHead::default() };
        assert_eq!(RequestParser::default().parse(&mut again, &limits), Ok(true));
        assert_eq!(again.head_len, length);
        assert_eq!(request_framing(&again), Ok(framing));
        same_fields(head, &again);
    }
}

fn same_fields(sent: &RequestHead, came: &RequestHead) {
    for known in [Known::Host, Known::Cookie, Known::Authorization, Known::Accept] {
        assert!(sent.values(known).eq(came.values(known)), "{known:?}");
    }
    for field in sent.fields.iter().filter(|field| field.known == Known::Other) {
        let name = std::str::from_utf8(sent.text(field.name)).expect("a name is text");
        // What the upgrade names is written anew.
        if !sent.values(Known::Connection).any(|value| value.eq_ignore_ascii_case(name.as_bytes()))
        {
            assert!(sent.values_named(name).eq(came.values_named(name)), "{name}");
        }
    }
}

/// `data` is as for `connection`; what the client sends are frames, the preface included.
pub fn http2_frames(data: &[u8]) {
    let Some((knobs, rest)) = data.split_at_checked(4) else { return };
    let mut world = World::http2(read_knobs(knobs));
    for step in read_steps(rest) {
        world.step(&step);
    }
    world.end();
    assert!(world.is_over(), "the connection outlives its client");
    check_frames(&world.got);
    let counters = world.core.counters.clone();
    assert_eq!(counters.http2_connections.get(), 0, "connections of HTTP/2");
    assert_eq!(counters.http2_streams_open.get(), 0, "streams");
    world.check_rest();
}

/// What the client got are whole frames, of which the first are SETTINGS.
fn check_frames(mut bytes: &[u8]) {
    let mut first = true;
    while let [a, b, c, kind, ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        assert!(length <= 16_384, "no frame is larger than the client takes");
        assert!(!first || *kind == 4, "SETTINGS come first");
        first = false;
        // The last one may be cut where the connection was.
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
}
