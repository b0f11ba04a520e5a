//! The engine against the reference parser: generated messages and what is left of them after a few
//! mutations, whole and in pieces.

#[path = "../fuzz/src/lib.rs"]
mod harness;

use harness::reference::{Bounds, FieldLine, body, request, response};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const BOUNDS: Bounds = Bounds { head_bytes: 16 * 1024, fields: 100, target_bytes: 8 * 1024 };

/// One change to a message.
#[derive(Clone, Debug)]
enum Mutation {
    Insert(prop::sample::Index, &'static [u8]),
    Delete(prop::sample::Index, usize),
    Replace(prop::sample::Index, u8),
    /// Sends a line again in another place.
    Repeat(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Mutation::Insert(at, bit) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, bit.iter().copied());
            }
            Mutation::Delete(at, count) => {
                let at = at.index(bytes.len() + 1);
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Mutation::Replace(at, byte) => {
                let len = bytes.len();
                if len > 0 {
                    bytes[at.index(len)] = *byte;
                }
            }
            Mutation::Repeat(from, to) => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                if !lines.is_empty() {
                    let line = lines[from.index(lines.len())].clone();
                    lines.insert(to.index(lines.len()), line);
                }
                *bytes = lines.concat();
            }
            Mutation::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        }
    }
}

/// Pieces that have been misread by somebody.
const BITS: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\x85",
    b"\xff",
    b":",
    b",",
    b";",
    b"#",
    b"%",
    b"%2e",
    b"/../",
    b"0",
    b"-",
    b"+",
    b"0x",
    b"chunked",
    b"identity",
    b"close",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"0\r\n\r\n",
    b"ffffffffffffffff",
    b"http://a.test",
];

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let index = any::<prop::sample::Index>;
    let one = prop_oneof![
        (index(), select(BITS)).prop_map(|(at, bit)| Mutation::Insert(at, bit)),
        (index(), 1usize..5).prop_map(|(at, count)| Mutation::Delete(at, count)),
        (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (index(), index()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
        index().prop_map(Mutation::Cut),
    ];
    vec(one, 1..4)
}

fn mutated(bytes: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
    bytes
}

fn field() -> impl Strategy<Value = (FieldLine, String)> {
    let known = select(vec![
        ("Host", "a.test"),
        ("Content-Length", "5"),
        ("content-length", "0010"),
        ("Transfer-Encoding", "chunked"),
        ("transfer-encoding", "Chunked"),
        ("Transfer-Encoding", "gzip, chunked"),
        ("Connection", "close"),
        ("Connection", "keep-alive, x"),
        ("Expect", "100-continue"),
    ]);
    let known = known.prop_map(|(name, value)| (name.to_owned(), value.to_owned()));
    let other = ("[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", "([!-~]([ -~\u{e9}]{0,12}[!-~])?)?")
        .prop_map(|(name, value)| (name, value));
    let spaces = select(vec!["", " ", "\t", "  \t"]);
    (prop_oneof![known, other], spaces.clone(), spaces).prop_map(
        |((name, value), before, after)| {
            let line = format!("{name}:{before}{value}{after}\r\n");
            ((name.into_bytes(), value.into_bytes()), line)
        },
    )
}

fn head(start_line: &str, fields: &[(FieldLine, String)]) -> (Vec<u8>, Vec<FieldLine>) {
    let lines: String = fields.iter().map(|(_, line)| line.as_str()).collect();
    let fields = fields.iter().map(|(field, _)| field.clone()).collect();
    (format!("{start_line}\r\n{lines}\r\n").into_bytes(), fields)
}

fn chunked_body() -> impl Strategy<Value = Vec<u8>> {
    let extension = select(vec!["", ";a", ";a=b;c=\"d;e\"", "; \t\u{e9}"]);
    let chunk = (vec(any::<u8>(), 1..40), 0usize..4, extension, any::<bool>()).prop_map(
        |(data, zeros, extension, upper)| {
            let size = format!("{}{:x}", "0".repeat(zeros), data.len());
            let size = if upper { size.to_uppercase() } else { size };
            [format!("{size}{extension}\r\n").as_bytes(), &data, b"\r\n"].concat()
        },
    );
    let trailer = prop_oneof![
        field().prop_map(|(_, line)| line),
        Just("X-Checksum: 1\r\n".to_owned()),
        Just("grpc-status: 0\r\n".to_owned()),
    ];
    (vec(chunk, 0..5), vec(trailer, 0..4)).prop_map(|(chunks, trailers)| {
        [chunks.concat().as_slice(), b"0\r\n", trailers.concat().as_bytes(), b"\r\n"].concat()
    })
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    let piece = select(vec![
        "/", "/", "/", "a", "b.c", ".", "..", "%2e", "%2E", "%2f", "%5c", "%00", "%41", "%zz", "%",
        "\\", ";", "?", "#", "*", "http://", "HTTP://", "a.test", ":80", ":99999", "[::1]", "@",
        "[v1.a]", "1:2::", "\u{e9}",
    ]);
    let method = select(vec!["GET ", "OPTIONS ", "CONNECT "]);
    (method, vec(piece, 0..12))
        .prop_map(|(method, pieces)| [&[method], &*pieces].concat().concat())
        .prop_map(String::into_bytes)
}

/// Pieces of texts with variables.
const VARIABLES: &[&str] = &[
    "a",
    " ",
    "$",
    "${",
    "}",
    "$${",
    "${request.method}",
    "${request.target}",
    "${request.uri}",
    "${request.header.x-two}",
    "${request.header.x-made}",
    "${request.cookie.uid}",
    "${request.query.q}",
    "${request.query.e}",
    "${attribute.user}",
    "${route.id}",
    "${upstream.name}",
    "${endpoint.address}",
    "${response.status}",
    "${HOME}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// RFC 9112 sections 3 and 5
    #[test]
    fn a_valid_request_is_read_as_written(
        fields in vec(field(), 0..8),
        method in "[A-Z]{1,8}",
        path in "/[!-~]{0,30}",
        minor in 0u8..2,
    ) {
        let (bytes, fields) = head(&format!("{method} {path} HTTP/1.{minor}"), &fields);
        let read = request(&bytes, BOUNDS).expect("valid");
        prop_assert_eq!((read.method, read.target), (method.into_bytes(), path.into_bytes()));
        prop_assert_eq!((read.fields, read.minor_version), (fields, minor));
        harness::request_head(&bytes);
        harness::framing(&bytes);
    }

    /// RFC 9112 sections 4 and 5
    #[test]
    fn a_valid_response_is_read_as_written(
        fields in vec(field(), 0..8),
        status in prop_oneof![select(vec![100u16, 101, 200, 204, 304]), 100u16..1000],
        reason in "[ -~]{0,12}",
    ) {
        let (bytes, fields) = head(&format!("HTTP/1.1 {status} {reason}"), &fields);
        let read = response(&bytes, BOUNDS).expect("valid");
        prop_assert_eq!((read.status, read.reason), (status, reason.into_bytes()));
        prop_assert_eq!(read.fields, fields);
        harness::response_head(&bytes);
        harness::framing(&bytes);
    }

    #[test]
    fn a_mutated_head_gets_the_same_verdict_however_it_comes(
        fields in vec(field(), 0..5),
        line in select(vec!["GET / HTTP/1.1", "POST /a?b HTTP/1.0", "HTTP/1.1 200 OK"]),
        mutations in mutations(),
    ) {
        let bytes = mutated(&head(line, &fields).0, &mutations);
        harness::request_head(&bytes);
        harness::response_head(&bytes);
        harness::framing(&bytes);
    }

    /// RFC 9112 section 7.1
    #[test]
    fn a_valid_chunked_body_is_relayed(bytes in chunked_body(), rest in vec(any::<u8>(), 0..9)) {
        let read = body::chunked(&bytes).expect("valid");
        prop_assert_eq!(read.len, bytes.len());
        harness::chunked(&[bytes, rest].concat());
    }

    #[test]
    fn a_mutated_chunked_body_gets_the_same_verdict_however_it_comes(
        bytes in chunked_body(),
        mutations in mutations(),
    ) {
        harness::chunked(&mutated(&bytes, &mutations));
    }

    #[test]
    fn a_text_with_variables_stays_one_line(
        pieces in vec(select(VARIABLES.to_vec()), 0..6),
        changes in mutations(),
    ) {
        let head = "\nGET /a?q=%0d%0a&e=%01 HTTP/1.1\r\nHost: a.test\r\nX-Two: 1\r\nx-two: 2\r\n\
                    Cookie: uid=\"q\"\r\nConnection: x-made\r\n\r\n";
        let text = pieces.concat() + head;
        harness::header_variables(text.as_bytes());
        harness::header_variables(&mutated(text.as_bytes(), &changes));
    }

    /// RFC 9112 section 3.2, RFC 3986 section 6.2.2
    #[test]
    fn a_target_is_understood_as_the_reference_does(bytes in target()) {
        harness::target(&bytes);
    }

    /// R2, R12, R13, R15: the table finds what a scan over all routes finds.
    #[test]
    fn a_table_finds_what_a_scan_finds(choices in vec(any::<u8>(), 0..400)) {
        harness::routes(&choices);
    }
}
