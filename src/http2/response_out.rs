//! An answer's head for a client that speaks HTTP/2 (RFC 9113 section 8.3.2).

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::http::edit::ResponseEdit;
use crate::http::passing::{NamedFields, is_hop_by_hop};
use crate::http::{Field, Known, ResponseHead, Span, Version};

/// Turns a head into one of HTTP/2, by the rules of HTTP/1's encoder: what is hop by hop is left out,
/// and the gateway's own fields are added. `framing` and `persistence` of `edit` say nothing here.
///
/// A field that HTTP/2 cannot carry is left out; what the parser of HTTP/1 takes it can.
pub fn encode_response(head: &ResponseHead, edit: &ResponseEdit<'_>) -> Response<()> {
    let named = NamedFields::of(head.values(Known::Connection));
    let bytes = head.bytes.filled();
    let kept = |field: &&Field| match field.known {
        Known::Other | Known::Referer | Known::UserAgent => !named.contains(field.name.of(bytes)),
        Known::ContentLength => !edit.drop_content_length,
        Known::ProxyAuthenticate => true,
        known => !is_hop_by_hop(known),
    };
    let mut out = Fields::of(head, edit);
    for field in head.fields.iter().filter(kept) {
        out.push(field.name.of(bytes), field.value);
    }
    out.added(head);
    out.own(head, edit);
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = out.map;
    response
}

/// The fields on their way: their values share one piece of memory, in which the head's spans hold.
struct Fields {
    map: HeaderMap,
    values: Bytes,
    /// Where the added lines, and behind them the gateway's own values, begin.
    behind: usize,
}

impl Fields {
    fn of(head: &ResponseHead, edit: &ResponseEdit<'_>) -> Fields {
        let fields = head.fields.iter().map(|field| field.line_end as usize);
        // What came behind the head is no part of it; a head of our own has no lines.
        let behind = fields.max().unwrap_or(0);
        let added = head.added.bytes();
        let (date, id) = (edit.date.unwrap_or_default(), edit.request_id.unwrap_or_default());
        let mut values = BytesMut::with_capacity(behind + added.len() + date.len() + id.len());
        for part in [&head.bytes.filled()[..behind], added, date, id] {
            values.put_slice(part);
        }
        let map = HeaderMap::with_capacity(head.fields.len() + head.added.len() + 3);
        Fields { map, values: values.freeze(), behind }
    }

    fn push(&mut self, name: &[u8], value: Span) {
        let value = self.values.slice(value.start as usize..value.end as usize);
        let value = HeaderValue::from_maybe_shared(value);
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            self.map.append(name, value);
        }
    }

    /// Lines that filters added; each is `name: value` and CRLF.
    fn added(&mut self, head: &ResponseHead) {
        let mut at = self.behind;
        for (name, value) in head.added.iter() {
            let start = at + name.len() + 2;
            at = start + value.len() + 2;
            // A filter may add what a connection of HTTP/1 could carry and a stream cannot.
            if !is_hop_by_hop(Known::of(name)) {
                self.push(name, Span::new(start, start + value.len()));
            }
        }
    }

    fn own(&mut self, head: &ResponseHead, edit: &ResponseEdit<'_>) {
        let mut at = self.behind + head.added.bytes().len();
        for (name, given) in [(header::DATE, edit.date), (REQUEST_ID, edit.request_id)] {
            let Some(given) = given else { continue };
            let value = self.values.slice(at..at + given.len());
            at += given.len();
            if self.map.contains_key(&name) {
                continue;
            }
            if let Ok(value) = HeaderValue::from_maybe_shared(value) {
                self.map.insert(name, value);
            }
        }
        if edit.via {
            let via = match head.version {
                Version::Http10 => "1.0 ringway",
                Version::Http11 => "1.1 ringway",
                Version::Http2 => "2 ringway",
            };
            self.map.append(header::VIA, HeaderValue::from_static(via));
        }
    }
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Buf;
    use crate::http::{BodyFraming, HeadLimits};
    use crate::http1::encode::Persistence;
    use crate::http1::head::ResponseParser;

    const EDIT: ResponseEdit<'static> = ResponseEdit {
        framing: BodyFraming::None,
        drop_content_length: false,
        persistence: Persistence::Open,
        request_id: Some(b"id-1"),
        date: Some(b"Thu, 01 Jan 1970 00:00:00 GMT"),
        via: false,
    };

    fn head(text: &str) -> ResponseHead {
        let mut head =
            ResponseHead { bytes: Buf::from(text.as_bytes()), ..ResponseHead::default() };
        assert_eq!(ResponseParser::default().parse(&mut head, &HeadLimits::default()), Ok(true));
        head
    }

    fn lines(response: &Response<()>) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        response.headers().iter().map(line).collect()
    }

    /// RFC 9110 section 7.6.1, RFC 9113 section 8.2.2
    #[test]
    fn what_is_hop_by_hop_stays_behind() {
        let head = head(
            "HTTP/1.1 207 Multi\r\nContent-Type: text/plain\r\nSet-Cookie: a\r\nX-Hop: 1\r\n\
             Connection: close, x-hop\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\n\
             Upgrade: x\r\nSet-Cookie: b\u{e4}\r\n\r\n4\r\nbody\r\n",
        );
        let response = encode_response(&head, &EDIT);
        assert_eq!(response.status().as_u16(), 207);
        assert_eq!(
            lines(&response),
            [
                "content-type: text/plain",
                "set-cookie: a",
                "set-cookie: b\u{e4}",
                "date: Thu, 01 Jan 1970 00:00:00 GMT",
                "x-request-id: id-1"
            ]
        );
    }

    #[test]
    fn own_fields_are_added_once_and_those_of_filters_always() {
        let mut head = head("HTTP/1.0 200 OK\r\nDate: theirs\r\nContent-Length: 0\r\n\r\n");
        head.add("X-Request-Id", b"filter");
        head.add("X-Two", b"2");
        head.add("Connection", b"close");
        let edit = ResponseEdit { via: true, drop_content_length: true, ..EDIT };
        let response = encode_response(&head, &edit);
        assert_eq!(
            lines(&response),
            ["date: theirs", "x-request-id: filter", "x-two: 2", "via: 1.0 ringway"]
        );
    }

    /// A head of our own has a reason phrase and no lines.
    #[test]
    fn a_head_of_our_own_has_what_was_added() {
        let mut head = ResponseHead { status: 404, ..ResponseHead::default() };
        head.bytes = Buf::from(&b"Not Found"[..]);
        head.add("Content-Type", b"text/plain");
        let response = encode_response(&head, &ResponseEdit { date: None, ..EDIT });
        assert_eq!(lines(&response), ["content-type: text/plain", "x-request-id: id-1"]);
    }
}
