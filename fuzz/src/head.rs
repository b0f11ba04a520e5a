//! Request and response heads.

use ringway::error::ErrorKind;
use ringway::http::{Field, HeadLimits, Known, RequestHead, ResponseHead, Version};
use ringway::http1::head::{RequestParser, ResponseParser};

use super::outline;
use super::reference::{self, Bounds, FieldLine};

/// Small bounds, so that inputs reach them, and those of the product.
pub const LIMITS: [HeadLimits; 2] = [
    HeadLimits { head_bytes_max: 160, headers_max: 5, uri_bytes_max: 24 },
    HeadLimits { head_bytes_max: 16 * 1024, headers_max: 100, uri_bytes_max: 8 * 1024 },
];

/// What is compared of a request.
type Request = (Vec<u8>, Vec<u8>, u8, Vec<FieldLine>, usize, usize);
/// What is compared of a response.
type Response = (u16, Vec<u8>, u8, Vec<FieldLine>, usize);

/// `data` is the start of a client's connection.
pub fn request_head(data: &[u8]) {
    for limits in LIMITS {
        let whole = parse_request(data, &limits, data.len());
        for split in [1, 7] {
            assert_eq!(parse_request(data, &limits, split), whole, "in pieces of {split}");
        }
        let bounds = bounds(&limits);
        let expected = reference::request(data, bounds).map(|request| {
            let reference::Request { skipped, method, target, minor_version, fields, len } =
                request;
            (method, target, minor_version, fields, skipped, len)
        });
        assert_eq!(outline(&whole), expected.as_ref().map(|_| ()).map_err(|stop| *stop));
        let (Ok(Some(request)), Ok(expected)) = (whole, expected) else { continue };
        assert_eq!(request, expected);
        request_elsewhere(&data[request.4..], &request);
    }
}

/// `data` is what an upstream answers.
pub fn response_head(data: &[u8]) {
    for limits in LIMITS {
        let whole = parse_response(data, &limits, data.len());
        for split in [1, 7] {
            assert_eq!(parse_response(data, &limits, split), whole, "in pieces of {split}");
        }
        let expected = reference::response(data, bounds(&limits)).map(|response| {
            let reference::Response { status, reason, minor_version, fields, len } = response;
            (status, reason, minor_version, fields, len)
        });
        assert_eq!(outline(&whole), expected.as_ref().map(|_| ()).map_err(|stop| *stop));
        let (Ok(Some(response)), Ok(expected)) = (whole, expected) else { continue };
        assert_eq!(response, expected);
        response_elsewhere(data, &response);
    }
}

fn bounds(limits: &HeadLimits) -> Bounds {
    Bounds {
        head_bytes: limits.head_bytes_max,
        fields: limits.headers_max,
        target_bytes: limits.uri_bytes_max,
    }
}

/// Feeds `split` bytes at a time and looks at the head when it is complete.
fn parse_request(
    data: &[u8],
    limits: &HeadLimits,
    split: usize,
) -> Result<Option<Request>, ErrorKind> {
    let mut head = RequestHead::default();
    let mut parser = RequestParser::default();
    let mut fed = 0;
    for piece in data.chunks(split.max(1)) {
        head.bytes.extend(piece);
        fed += piece.len();
        if parser.parse(&mut head, limits)? {
            let fields = lines(&head.fields, head.bytes.filled(), head.fields_start, head.head_len);
            let minor = u8::from(head.version == Version::Http11);
            let skipped = fed - head.bytes.len();
            let method = head.text(head.method).to_vec();
            let target = head.text(head.target).to_vec();
            assert_eq!(head.rest(), &data[skipped + head.head_len..fed]);
            return Ok(Some((method, target, minor, fields, skipped, head.head_len)));
        }
    }
    Ok(None)
}

fn parse_response(
    data: &[u8],
    limits: &HeadLimits,
    split: usize,
) -> Result<Option<Response>, ErrorKind> {
    let mut head = ResponseHead::default();
    let mut parser = ResponseParser::default();
    for piece in data.chunks(split.max(1)) {
        head.bytes.extend(piece);
        if parser.parse(&mut head, limits)? {
            let fields = lines(&head.fields, head.bytes.filled(), head.fields_start, head.head_len);
            let minor = u8::from(head.version == Version::Http11);
            let reason = head.text(head.reason).to_vec();
            return Ok(Some((head.status, reason, minor, fields, head.head_len)));
        }
    }
    Ok(None)
}

/// Copies the fields out; their lines must fill the head without a gap.
fn lines(fields: &[Field], bytes: &[u8], start: usize, head_len: usize) -> Vec<FieldLine> {
    let mut at = start;
    let mut lines = Vec::new();
    for field in fields {
        let (name, value) = (field.name.of(bytes), field.value.of(bytes));
        assert_eq!(field.name.start as usize, at, "a line begins with its name");
        at = field.line_end as usize;
        assert!(bytes[..at].ends_with(b"\r\n") && (field.value.end as usize) < at);
        assert!(field.name.end < field.value.start);
        assert_eq!(field.known, Known::of(name));
        lines.push((name.to_vec(), value.to_vec()));
    }
    assert_eq!(&bytes[at..head_len], b"\r\n");
    lines
}

/// Everything that we accept, httparse and the types of `http` accept too, and see the same.
fn request_elsewhere(data: &[u8], (method, target, minor, fields, _, len): &Request) {
    let mut slots = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut slots);
    assert_eq!(request.parse(data), Ok(httparse::Status::Complete(*len)));
    assert_eq!(request.method.map(str::as_bytes), Some(method.as_slice()));
    assert_eq!(request.path.map(str::as_bytes), Some(target.as_slice()));
    assert_eq!(request.version, Some(*minor));
    same_fields(request.headers, fields);
    assert!(http::Method::from_bytes(method).is_ok());
    #[cfg(feature = "demo")]
    monoio::request(data, method, *minor, fields);
}

fn response_elsewhere(data: &[u8], (status, _, minor, fields, len): &Response) {
    let mut slots = [httparse::EMPTY_HEADER; 256];
    let mut response = httparse::Response::new(&mut slots);
    assert_eq!(response.parse(data), Ok(httparse::Status::Complete(*len)));
    assert_eq!((response.code, response.version), (Some(*status), Some(*minor)));
    same_fields(response.headers, fields);
    assert!(http::StatusCode::from_u16(*status).is_ok());
    #[cfg(feature = "demo")]
    monoio::response(data, *status, fields);
}

fn same_fields(theirs: &[httparse::Header<'_>], ours: &[FieldLine]) {
    let theirs: Vec<FieldLine> = theirs
        .iter()
        .map(|header| (header.name.as_bytes().to_vec(), header.value.to_vec()))
        .collect();
    assert_eq!(theirs, ours);
    for (name, value) in ours {
        assert!(http::HeaderName::from_bytes(name).is_ok());
        assert!(http::HeaderValue::from_bytes(value).is_ok());
    }
}

/// monoio-http's decoder, compared only where it accepts what we accept. Known to differ: at most
/// 96 fields, targets that `http::Uri` does not take, names in lower case.
#[cfg(feature = "demo")]
mod monoio {
    use std::panic::catch_unwind;

    use bytes::BytesMut;
    use http::HeaderMap;
    use monoio_codec::{Decoded, Decoder};
    use monoio_http::h1::codec::decoder::{RequestHeadDecoder, ResponseHeadDecoder};

    use super::FieldLine;

    pub fn request(data: &[u8], method: &[u8], minor: u8, fields: &[FieldLine]) {
        let decoded = catch_unwind(|| RequestHeadDecoder.decode(&mut BytesMut::from(data)));
        if let Ok(Ok(Decoded::Some(head))) = decoded {
            assert_eq!(head.method.as_str().as_bytes(), method);
            assert_eq!(head.version == http::Version::HTTP_11, minor == 1);
            same_fields(&head.headers, fields);
        }
    }

    pub fn response(data: &[u8], status: u16, fields: &[FieldLine]) {
        let decoded = catch_unwind(|| ResponseHeadDecoder.decode(&mut BytesMut::from(data)));
        if let Ok(Ok(Decoded::Some(head))) = decoded {
            assert_eq!(head.status.as_u16(), status);
            same_fields(&head.headers, fields);
        }
    }

    fn same_fields(theirs: &HeaderMap, ours: &[FieldLine]) {
        assert_eq!(theirs.len(), ours.len());
        for name in theirs.keys() {
            let same = |field: &&FieldLine| field.0.eq_ignore_ascii_case(name.as_str().as_bytes());
            let ours = ours.iter().filter(same).map(|field| field.1.as_slice());
            assert!(theirs.get_all(name).iter().map(|value| value.as_bytes()).eq(ours));
        }
    }
}
