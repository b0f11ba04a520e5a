//! Heads between the versions: what HTTP/2 is told is what HTTP/1 would have been told, and an
//! answer that came over HTTP/2 reads like one of HTTP/1.

use std::net::SocketAddr;

use proptest::prelude::*;
use ringway::base::buffer::Buf;
use ringway::http::edit::RequestEdit;
use ringway::http::{BodyFraming, Forwarding, HeadLimits, RequestHead, ResponseHead};
use ringway::http1::encode;
use ringway::http1::framing::request_framing;
use ringway::http1::head::{RequestParser, ResponseParser};
use ringway::http2::request_out::encode_request;
use ringway::http2::response_in::read_response;

const LIMITS: HeadLimits =
    HeadLimits { head_bytes_max: 16_384, headers_max: 100, uri_bytes_max: 8_192 };

fn parsed(text: &[u8]) -> Option<RequestHead> {
    let mut head = RequestHead { bytes: Buf::from(text), ..RequestHead::default() };
    let whole = RequestParser::default().parse(&mut head, &LIMITS).ok()?;
    whole.then_some(head)
}

type Fields = Vec<(String, Vec<u8>)>;

/// By name, and under each name in order: all that HTTP/2 keeps of the order.
fn sorted(mut fields: Fields) -> Fields {
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}

/// What an HTTP/1 hop is told, without what only it needs.
fn told_http1(head: &RequestHead, edit: &RequestEdit<'_>) -> (String, Fields) {
    let mut out = Buf::for_head();
    encode::encode_request(&mut out, head, edit);
    let sent = parsed(out.filled()).expect("what is sent is well formed");
    let line = String::from_utf8_lossy(sent.text(sent.method)).into_owned()
        + " "
        + &String::from_utf8_lossy(sent.text(sent.target));
    let fields = sent.fields.iter().map(|field| {
        let name = String::from_utf8_lossy(sent.text(field.name)).to_ascii_lowercase();
        (name, sent.text(field.value).to_vec())
    });
    let own = ["host", "connection", "transfer-encoding"];
    (line, sorted(fields.filter(|(name, _)| !own.contains(&&**name)).collect()))
}

fn field() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[A-Za-z][A-Za-z0-9-]{0,12}",
        prop::sample::select(vec![
            "Connection",
            "Keep-Alive",
            "TE",
            "Upgrade",
            "Proxy-Connection",
            "Cookie",
            "Trailer",
            "Expect",
            "Via",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Request-Id",
            "HTTP2-Settings",
            "Authorization",
            "Accept",
        ])
        .prop_map(str::to_owned),
    ];
    let value = prop_oneof![
        "([!-~]([ -~]{0,20}[!-~])?)?",
        prop::sample::select(vec!["close", "X-A, keep-alive", "trailers", "X-B", "10.0.0.1"])
            .prop_map(str::to_owned),
    ];
    (name, value).prop_map(|(name, value)| format!("{name}: {value}\r\n"))
}

proptest! {
    #[test]
    fn both_versions_are_told_the_same(
        fields in prop::collection::vec(field(), 0..12),
        path in "/[a-zA-Z0-9._~%!$&'()*+,;=:@/-]{0,20}",
        length in prop::option::of(0u64..1_000_000),
        trusted: bool,
        forwarded: bool,
    ) {
        let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
        let text = format!("POST /x HTTP/1.1\r\nHost: a.test\r\n{}{length}\r\n", fields.concat());
        let head = parsed(text.as_bytes());
        prop_assume!(head.is_some());
        let head = head.expect("assumed");
        let framing = request_framing(&head);
        prop_assume!(framing.is_ok());
        let facts = Forwarding::new(SocketAddr::from(([192, 0, 2, 7], 1)), 8080, trusted);
        let edit = RequestEdit {
            path: path.as_bytes(),
            query: None,
            host: None,
            host_named: Some(b"a.test"),
            framing: framing.unwrap_or(BodyFraming::None),
            forwarding: &facts,
            request_id: b"id",
            upgrade: None,
            via: true,
            forwarded,
        };
        let (line, expected) = told_http1(&head, &edit);
        let request = encode_request(&head, &edit, "http").expect("it can be said");
        let told = request.headers().iter().map(|(name, value)| {
            (name.as_str().to_owned(), value.as_bytes().to_vec())
        });
        prop_assert_eq!(format!("POST {path}"), line);
        prop_assert_eq!(request.uri().path(), &path);
        prop_assert_eq!(sorted(told.collect()), expected);
    }

    /// There and back: the text is one that our own strict parser reads in the same way.
    #[test]
    fn an_answer_reads_like_one_of_http1(
        status in 200u16..600,
        fields in prop::collection::vec(
            ("[a-z][a-z0-9-]{0,12}", "([!-~]([\t -~]{0,20}[!-~])?)?"), 0..12)
    ) {
        let mut response = http::Response::builder().status(status);
        for (name, value) in &fields {
            response = response.header(name, value);
        }
        let parts = response.body(()).expect("well formed").into_parts().0;
        let mut head = ResponseHead::default();
        let read = read_response(&parts, &mut head, &LIMITS);
        prop_assume!(read.is_ok());
        let text = head.bytes.filled().to_vec();
        let mut again = ResponseHead { bytes: Buf::from(&text[..]), ..ResponseHead::default() };
        let whole = ResponseParser::default().parse(&mut again, &LIMITS);
        prop_assert_eq!(whole, Ok(true));
        prop_assert_eq!((again.status, again.reason, again.head_len), (head.status, head.reason, head.head_len));
        prop_assert_eq!(again.fields_start, head.fields_start);
        prop_assert_eq!(again.fields.len(), head.fields.len());
        for (one, other) in again.fields.iter().zip(&head.fields) {
            prop_assert_eq!((one.name, one.line_end, one.known), (other.name, other.line_end, other.known));
            prop_assert_eq!(again.text(one.value), head.text(other.value));
        }
    }
}
