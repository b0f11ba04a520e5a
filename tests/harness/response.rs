//! A strict reader of the bytes that a client received.

use super::grammar::{Field, Framing, Lint, decimal, fields, hexadecimal, values};
use super::show;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// FIN.
    Finished,
    /// RST.
    Reset,
}

/// A response as a client understands it.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Status; 0 when the status line cannot be read.
    pub status: u16,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Trailer fields in order.
    pub trailers: Vec<Field>,
    /// Body.
    pub body: Vec<u8>,
    /// Whether it ended where its framing says.
    pub complete: bool,
    /// How its end is found.
    pub framing: Framing,
    /// Departures from the grammar.
    pub lint: Lint,
}

impl Response {
    /// Value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        values(&self.fields, name).first().copied()
    }

    /// Whether it says that the connection ends.
    pub fn closes(&self) -> bool {
        values(&self.fields, "connection").iter().any(|value| value.eq_ignore_ascii_case(b"close"))
    }

    /// The stable code of an answer that the proxy made itself.
    pub fn code(&self) -> Option<String> {
        let status = String::from_utf8_lossy(self.get("proxy-status")?).into_owned();
        let (_, rest) = status.split_once("details=\"")?;
        Some(rest.split('"').next()?.to_owned())
    }
}

/// All that one connection brought.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Final responses; the last may be incomplete.
    pub finals: Vec<Response>,
    /// Interim responses.
    pub interims: Vec<Response>,
    /// Bytes that no response accounts for; after a 101, those of the tunnel.
    pub rest: Vec<u8>,
}

impl Received {
    /// Complete final responses.
    pub fn complete(&self) -> usize {
        self.finals.iter().filter(|response| response.complete).count()
    }
}

/// Reads `data`; `methods` are those of the requests, in order, GET where there are no more.
pub fn parse(data: &[u8], methods: &[Vec<u8>], end: Option<End>) -> Received {
    let mut received = Received::default();
    let mut rest = data;
    while !rest.is_empty() {
        let Some((mut response, after)) = head(rest) else { break };
        rest = after;
        if (100..200).contains(&response.status) && response.status != 101 {
            response.complete = true;
            received.interims.push(response);
            continue;
        }
        let method = methods.get(received.finals.len()).map_or(&b"GET"[..], |method| &method[..]);
        response.framing = framing(&mut response, method);
        let tunnel = response.status == 101;
        rest = body(&mut response, rest, end);
        let more = response.complete && !tunnel && response.status != 0;
        received.finals.push(response);
        if !more {
            break;
        }
    }
    received.rest = rest.to_vec();
    received
}

/// A status line and fields, if they are all there.
fn head(data: &[u8]) -> Option<(Response, &[u8])> {
    let mut response = Response::default();
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        // Without an end it is incomplete, unless it cannot become a head at all.
        if data.starts_with(&b"HTTP/1."[..data.len().min(7)]) {
            return None;
        }
        response.lint.fault(format!("not a response: {}", show(data)));
        return Some((response, &[]));
    };
    let mut lines = data[..end + 2].split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec);
    let line = lines.next().unwrap_or_default();
    response.status = status(&line).unwrap_or_else(|| {
        response.lint.fault(format!("status line: {}", show(&line)));
        0
    });
    response.fields = fields(&lines.collect::<Vec<_>>(), "response field", &mut response.lint);
    Some((response, &data[end + 4..]))
}

/// RFC 9112 section 4. The space before an absent reason phrase is required.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, reason) = rest.split_at_checked(3)?;
    let status = decimal(digits).filter(|status| (100..1000).contains(status))?;
    matches!(reason, [b' ', .., b'\r', b'\n']).then(|| u16::try_from(status).ok()).flatten()
}

/// RFC 9112 section 6.3.
fn framing(response: &mut Response, method: &[u8]) -> Framing {
    let lengths = values(&response.fields, "content-length");
    let codings = values(&response.fields, "transfer-encoding");
    let length = lengths.first().map(|value| decimal(value));
    let chunked = codings.last().is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
    let mut faults = Vec::new();
    if !lengths.is_empty() && !codings.is_empty() {
        faults.push("Content-Length together with Transfer-Encoding".to_owned());
    }
    if lengths.len() > 1 || length == Some(None) {
        faults.push(format!("Content-Length fields: {}", show(&lengths.concat())));
    }
    if !codings.is_empty() && (response.status < 200 || response.status == 204) {
        faults.push("Transfer-Encoding where there is no body".to_owned());
    }
    response.lint.faults.append(&mut faults);
    let connect = method == b"CONNECT" && (200..300).contains(&response.status);
    if method == b"HEAD" || connect || matches!(response.status, 0 | 101 | 204 | 304) {
        Framing::None
    } else if chunked {
        Framing::Chunked
    } else if let Some(Some(length)) = length {
        Framing::Length(length)
    } else {
        Framing::Close
    }
}

/// Takes the body off `data` and returns what follows.
fn body<'d>(response: &mut Response, data: &'d [u8], end: Option<End>) -> &'d [u8] {
    match response.framing {
        Framing::None => {
            response.complete = true;
            data
        }
        Framing::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (body, rest) = data.split_at(length.min(data.len()));
            response.body = body.to_vec();
            response.complete = body.len() == length;
            rest
        }
        Framing::Close => {
            response.body = data.to_vec();
            response.complete = end == Some(End::Finished);
            &[]
        }
        Framing::Chunked => chunks(response, data),
    }
}

fn chunks<'d>(response: &mut Response, mut data: &'d [u8]) -> &'d [u8] {
    loop {
        let Some((line, rest)) = take_line(data) else { return data };
        let size = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let Some(size) = hexadecimal(size).and_then(|size| usize::try_from(size).ok()) else {
            response.lint.fault(format!("chunk-size: {}", show(line)));
            return data;
        };
        if size == 0 {
            return trailers(response, rest);
        }
        let (piece, rest) = rest.split_at(size.min(rest.len()));
        response.body.extend_from_slice(piece);
        if rest.len() < 2 {
            return &[];
        }
        let Some(rest) = rest.strip_prefix(b"\r\n") else {
            response.lint.fault(format!("{} instead of CRLF after a chunk", show(rest)));
            return rest;
        };
        data = rest;
    }
}

fn trailers<'d>(response: &mut Response, mut data: &'d [u8]) -> &'d [u8] {
    let mut lines = Vec::new();
    loop {
        let Some((line, rest)) = take_line(data) else { return data };
        data = rest;
        if line.is_empty() {
            response.trailers = fields(&lines, "response trailer", &mut response.lint);
            response.complete = true;
            return data;
        }
        lines.push([line, b"\r\n"].concat());
    }
}

/// The text up to CRLF, and what follows.
fn take_line(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = data.windows(2).position(|two| two == b"\r\n")?;
    Some((&data[..end], &data[end + 2..]))
}
