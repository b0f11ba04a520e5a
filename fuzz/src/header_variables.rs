//! Texts with variables, put into a head that is sent: whatever a request holds, its lines stay the
//! lines that were configured.

use std::net::{Ipv4Addr, SocketAddr};

use ringway::base::buffer::Buf;
use ringway::context::template::{Availability, Template};
use ringway::context::{Matched, RequestContext, Scope};
use ringway::http::{BodyFraming, Forwarding, HeadLimits, RequestHead};
use ringway::http1::encode::{RequestEdit, encode_request};
use ringway::http1::head::RequestParser;

/// The field that the text becomes.
const NAME: &str = "x-made";
const ALL: [Availability; 4] =
    [Availability::Request, Availability::Upstream, Availability::Endpoint, Availability::Response];

/// `data` is a text, a line feed and the head of a request.
pub fn header_variables(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (text, head) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let parsed = ALL.map(|known| Template::parse(text, known));
    // What is known early is known late; what a text needs is where it begins to be taken.
    for (known, template) in ALL.into_iter().zip(&parsed) {
        let last = parsed[3].as_ref();
        assert_eq!(template.is_ok(), last.is_ok_and(|template| template.needs() <= known));
        if let Err(error) = template {
            assert!(!error.message.is_empty() && !error.remedy.is_empty());
            assert!(text.get(error.range.clone()).is_some(), "a part of the text");
        }
    }
    let (Ok(template), Ok((mut context, _))) = (&parsed[3], RequestContext::of_head(head)) else {
        return;
    };
    context.request.remove(NAME);
    context.attributes.set("user", b"an\r\nattribute\0");
    let mut value = Vec::new();
    template.expand(&scope(&context), &mut value);
    if let Some(expected) = naive(text, &context) {
        assert_eq!(value, expected);
    }
    assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "no value ends a line");
    if let Some(plain) = template.plain() {
        assert_eq!(plain, value);
    }
    sent(context, &value);
}

fn scope(context: &RequestContext) -> Scope<'_> {
    let matched = Matched { route: "r1", ..Matched::default() };
    let (listener, upstream, endpoint) = ("main", "orders", "127.0.0.1:9001");
    Scope { listener, upstream, endpoint, status: 201, ..Scope::of_request(context, matched) }
}

/// The head with the field, encoded and parsed again, has that one line more.
fn sent(mut context: RequestContext, value: &[u8]) {
    let before = encoded(&context);
    let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(value);
    context.request.added.push_unless_empty(NAME.as_bytes(), write);
    let after = encoded(&context);
    let is_kept = |byte: &u8| !byte.is_ascii_control() || *byte == b'\t';
    let kept: Vec<u8> = value.iter().copied().filter(is_kept).collect();
    let made: Vec<&[u8]> = after.values_named(NAME).collect();
    match kept.trim_ascii().is_empty() {
        true => assert!(made.is_empty()),
        // White space round a value belongs to no value (RFC 9110 section 5.5).
        false => assert_eq!(made, [kept.trim_ascii()]),
    }
    assert_eq!(after.fields.len(), before.fields.len() + made.len());
    assert_eq!(after.text(after.target), before.text(before.target));
}

fn encoded(context: &RequestContext) -> RequestHead {
    let edit = RequestEdit {
        path: b"/",
        query: None,
        host: Some(b"a.test"),
        host_named: None,
        framing: BodyFraming::None,
        forwarding: &Forwarding::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), 80, false),
        request_id: b"id",
        upgrade: None,
        via: false,
        forwarded: false,
    };
    let mut out = Buf::for_head();
    encode_request(&mut out, &context.request, &edit);
    let mut head = RequestHead { bytes: out, ..RequestHead::default() };
    let limits = HeadLimits { head_bytes_max: 1 << 20, headers_max: 256, uri_bytes_max: 8 << 10 };
    let parsed = RequestParser::default().parse(&mut head, &limits);
    assert_eq!(parsed, Ok(true), "{:?}", String::from_utf8_lossy(head.bytes.filled()));
    head
}

/// The text with its variables replaced by plain scanning; none where it has others than these.
fn naive(text: &str, context: &RequestContext) -> Option<Vec<u8>> {
    let request = &context.request;
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find("${") {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        if out.last() == Some(&b'$') {
            out.push(b'{');
            rest = &rest[at + 2..];
            continue;
        }
        let (name, behind) = rest[at + 2..].split_once('}')?;
        rest = behind;
        match name {
            "request.method" => out.extend_from_slice(request.text(request.method)),
            "request.target" => out.extend_from_slice(request.text(request.target)),
            "route.id" => out.extend_from_slice(b"r1"),
            "upstream.name" => out.extend_from_slice(b"orders"),
            "endpoint.address" => out.extend_from_slice(b"127.0.0.1:9001"),
            "response.status" => out.extend_from_slice(b"201"),
            "attribute.user" => out.extend_from_slice(b"anattribute"),
            _ => {
                let name = name.strip_prefix("request.header.")?;
                let values: Vec<&[u8]> = request.values_named(name).collect();
                out.extend(values.join(&b", "[..]).iter().filter(|byte| **byte != 0));
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}
