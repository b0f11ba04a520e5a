//! Encoding heads: what is kept is copied as it came, in runs; what is hop by hop is left out
//! (RFC 9110 section 7.6.1), and the proxy's own fields are added at the end.

use crate::base::buffer::Buf;
pub use crate::http::edit::{Persistence, RequestEdit, ResponseEdit};
use crate::http::head::list_members;
use crate::http::passing::{
    Kept, Lines, NamedFields, add_lines, has_leading_zero, is_hop_by_hop, takes_trailers, via,
};
use crate::http::{BodyFraming, Field, Known, RequestHead, ResponseHead};

/// Encodes a request's head for the upstream.
pub fn encode_request(out: &mut Buf, head: &RequestHead, edit: &RequestEdit<'_>) {
    let bytes = head.bytes.filled();
    out.extend(head.method.of(bytes));
    out.extend(b" ");
    out.extend(edit.path);
    if let Some(query) = edit.query {
        out.extend(b"?");
        out.extend(query);
    }
    // Whatever version the client spoke, this hop speaks its own (RFC 9110 section 2.5).
    out.extend(b" HTTP/1.1\r\n");
    if let Some(host) = edit.host {
        line(out, b"Host", host);
    }
    let kept = Kept::of(head, edit);
    copy_fields(out, bytes, &head.fields, |field| kept.keeps(field, bytes));
    out.extend(head.added.bytes());
    framing_lines(out, head.values(Known::ContentLength), edit.framing);
    upgrade_lines(out, head, edit);
    add_lines(out, head, edit);
    out.extend(b"\r\n");
}

/// Encodes a response's head, whose spans lie in `bytes`, for the client.
pub fn encode_response(out: &mut Buf, bytes: &[u8], head: &ResponseHead, edit: &ResponseEdit<'_>) {
    out.extend(b"HTTP/1.1 ");
    out.extend(&status_digits(head.status));
    out.extend(b" ");
    out.extend(head.reason.of(bytes));
    out.extend(b"\r\n");
    let values = |known| head.fields.iter().filter(move |field| field.known == known);
    let named = NamedFields::of(values(Known::Connection).map(|field| field.value.of(bytes)));
    let (mut dated, mut identified) = (false, false);
    for field in &head.fields {
        dated |= field.known == Known::Date;
        identified |= field.known == Known::XRequestId;
    }
    for (name, _) in head.added.iter() {
        dated |= name.eq_ignore_ascii_case(b"date");
        identified |= name.eq_ignore_ascii_case(b"x-request-id");
    }
    copy_fields(out, bytes, &head.fields, |field| match field.known {
        Known::Other | Known::Referer | Known::UserAgent => !named.contains(field.name.of(bytes)),
        Known::ContentLength => !edit.drop_content_length,
        // Authentication of the client by the origin passes a gateway.
        Known::ProxyAuthenticate => true,
        known => !is_hop_by_hop(known),
    });
    out.extend(head.added.bytes());
    if edit.framing == BodyFraming::Chunked {
        out.extend(b"Transfer-Encoding: chunked\r\n");
    }
    let switches = head.status == 426 && values(Known::Upgrade).next().is_some();
    match edit.persistence {
        // RFC 9110 section 15.5.22: an answer that asks for another protocol names it.
        Persistence::Open | Persistence::KeepAlive | Persistence::Close if switches => {
            let close = edit.persistence == Persistence::Close;
            out.extend(if close {
                b"Connection: Upgrade, close\r\n"
            } else {
                b"Connection: Upgrade\r\n"
            });
            for field in values(Known::Upgrade) {
                line(out, b"Upgrade", field.value.of(bytes));
            }
        }
        Persistence::Open => {}
        Persistence::KeepAlive => out.extend(b"Connection: keep-alive\r\n"),
        Persistence::Close => out.extend(b"Connection: close\r\n"),
        Persistence::Upgrade => {
            out.extend(b"Connection: Upgrade\r\n");
            for field in values(Known::Upgrade) {
                line(out, b"Upgrade", field.value.of(bytes));
            }
        }
    }
    if let Some(date) = edit.date.filter(|_| !dated) {
        line(out, b"Date", date);
    }
    if let Some(request_id) = edit.request_id.filter(|_| !identified) {
        line(out, b"X-Request-Id", request_id);
    }
    if edit.via {
        line(out, b"Via", via(head.version));
    }
    out.extend(b"\r\n");
}

/// The protocols of an Upgrade field that are passed on: not `h2c` and `HTTP/*`, which would let a
/// client speak past the parser. `None` where nothing is left.
pub fn upgrade_protocols(head: &RequestHead) -> Option<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for protocol in head.values(Known::Upgrade).flat_map(list_members) {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or(protocol);
        if !name.eq_ignore_ascii_case(b"h2c") && !name.eq_ignore_ascii_case(b"http") {
            kept.push(protocol);
        }
    }
    if kept.is_empty() { None } else { Some(kept.join(&b", "[..])) }
}

/// Whether `Connection` names this option (RFC 9110 section 7.6.1).
pub fn names_connection_option(head: &RequestHead, option: &[u8]) -> bool {
    let mut options = head.values(Known::Connection).flat_map(list_members);
    options.any(|named| named.eq_ignore_ascii_case(option))
}

/// Appends one field line.
pub fn line(out: &mut Buf, name: &[u8], value: &[u8]) {
    out.extend(name);
    out.extend(b": ");
    out.extend(value);
    out.extend(b"\r\n");
}

/// A status code in decimal.
pub fn status_digits(status: u16) -> [u8; 3] {
    let digit = |value: u16| b'0' + (value % 10) as u8;
    [digit(status / 100), digit(status / 10), digit(status)]
}

/// Copies the field lines that are kept, neighbours in one run.
fn copy_fields(out: &mut Buf, bytes: &[u8], fields: &[Field], keep: impl Fn(&Field) -> bool) {
    let mut run: Option<(u32, u32)> = None;
    let mut copy = |run: &mut Option<(u32, u32)>| {
        if let Some((start, end)) = run.take() {
            out.extend(&bytes[start as usize..end as usize]);
        }
    };
    for field in fields {
        // A filter may have taken the line between out of the list.
        if run.is_some_and(|(_, end)| end != field.name.start) {
            copy(&mut run);
        }
        if keep(field) {
            let start = run.map_or(field.name.start, |(start, _)| start);
            run = Some((start, field.line_end));
        } else {
            copy(&mut run);
        }
    }
    copy(&mut run);
}

fn framing_lines<'a>(
    out: &mut Buf,
    mut lengths: impl Iterator<Item = &'a [u8]>,
    framing: BodyFraming,
) {
    match framing {
        BodyFraming::Chunked => out.extend(b"Transfer-Encoding: chunked\r\n"),
        BodyFraming::None | BodyFraming::Length(_) => {
            if let Some(length) = lengths.find(|length| has_leading_zero(length)) {
                let zeros = length.iter().take_while(|digit| **digit == b'0').count();
                let digits = &length[zeros.min(length.len() - 1)..];
                line(out, b"Content-Length", digits);
            }
        }
        BodyFraming::UntilClose => {}
    }
}

fn upgrade_lines(out: &mut Buf, head: &RequestHead, edit: &RequestEdit<'_>) {
    // RFC 9110 section 10.1.4: TE goes with a Connection option, and a proxy answers for itself.
    match (edit.upgrade, takes_trailers(head)) {
        (Some(protocols), _) => {
            out.extend(b"Connection: Upgrade\r\n");
            line(out, b"Upgrade", protocols);
        }
        (None, true) => out.extend(b"TE: trailers\r\nConnection: TE\r\n"),
        (None, false) => {}
    }
}

impl Lines for Buf {
    #[inline]
    fn begin(&mut self, name: &'static str) {
        self.extend(name.as_bytes());
        self.extend(b": ");
    }

    #[inline]
    fn part(&mut self, value: &[u8]) {
        self.extend(value);
    }

    #[inline]
    fn end(&mut self) {
        self.extend(b"\r\n");
    }

    #[inline]
    fn ready(&mut self, lines: &[u8]) {
        self.extend(lines);
    }
}
