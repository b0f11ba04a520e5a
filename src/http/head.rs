//! Heads without copies: one byte buffer and a reused list of spans into it.
//!
//! Order, case and white space of the fields stay as they came, so that a proxy can pass on what it
//! has no reason to touch.

use super::added::Added;
use crate::base::buffer::Buf;

/// A range of a head's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From offsets, which `limits` keeps below 32 bits.
    #[inline]
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Span { start: start as u32, end: end as u32 }
    }

    /// Bytes covered.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it covers nothing.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// What it covers of `bytes`.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// Field names that a proxy acts upon, told apart once when a head is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Known {
    /// Any other name.
    Other,
    /// `Accept`
    Accept,
    /// `Authorization`
    Authorization,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Cookie`
    Cookie,
    /// `Date`
    Date,
    /// `Expect`
    Expect,
    /// `Forwarded`
    Forwarded,
    /// `Host`
    Host,
    /// `HTTP2-Settings`
    Http2Settings,
    /// `Keep-Alive`
    KeepAlive,
    /// `Referer`
    Referer,
    /// `User-Agent`
    UserAgent,
    /// `Proxy-Authenticate`
    ProxyAuthenticate,
    /// `Proxy-Authorization`
    ProxyAuthorization,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `TE`
    Te,
    /// `Trailer`
    Trailer,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Upgrade`
    Upgrade,
    /// `Via`
    Via,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `X-Forwarded-Host`
    XForwardedHost,
    /// `X-Forwarded-Port`
    XForwardedPort,
    /// `X-Forwarded-Proto`
    XForwardedProto,
    /// `X-Request-Id`
    XRequestId,
}

impl Known {
    /// Tells a field name apart, in any case (RFC 9110 section 5.1).
    #[inline]
    pub fn of(name: &[u8]) -> Known {
        // The length leaves at most a few candidates, so that most names cost one comparison.
        let candidates: &[(&str, Known)] = match name.len() {
            2 => &[("te", Known::Te)],
            3 => &[("via", Known::Via)],
            4 => &[("host", Known::Host), ("date", Known::Date)],
            6 => &[("accept", Known::Accept), ("cookie", Known::Cookie), ("expect", Known::Expect)],
            7 => &[
                ("upgrade", Known::Upgrade),
                ("trailer", Known::Trailer),
                ("referer", Known::Referer),
            ],
            9 => &[("forwarded", Known::Forwarded)],
            10 => &[
                ("connection", Known::Connection),
                ("user-agent", Known::UserAgent),
                ("keep-alive", Known::KeepAlive),
            ],
            12 => &[("x-request-id", Known::XRequestId)],
            13 => &[("authorization", Known::Authorization)],
            14 => &[
                ("content-length", Known::ContentLength),
                ("http2-settings", Known::Http2Settings),
            ],
            15 => &[("x-forwarded-for", Known::XForwardedFor)],
            16 => &[
                ("x-forwarded-host", Known::XForwardedHost),
                ("x-forwarded-port", Known::XForwardedPort),
                ("proxy-connection", Known::ProxyConnection),
            ],
            17 => &[
                ("transfer-encoding", Known::TransferEncoding),
                ("x-forwarded-proto", Known::XForwardedProto),
            ],
            18 => &[("proxy-authenticate", Known::ProxyAuthenticate)],
            19 => &[("proxy-authorization", Known::ProxyAuthorization)],
            _ => &[],
        };
        for (text, known) in candidates {
            let text = text.as_bytes();
            // The first letter settles nearly all of the rest.
            if name[0] | 0x20 == text[0] && name.eq_ignore_ascii_case(text) {
                return *known;
            }
        }
        Known::Other
    }
}

/// One field line.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name; the line begins with it.
    pub name: Span,
    /// The value, without white space round it.
    pub value: Span,
    /// One past the line's CRLF.
    pub line_end: u32,
    /// Which name it is.
    pub known: Known,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

/// A request's head, and whatever was read behind it.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// What was read: the head, then the first bytes of the body or of the next request.
    pub bytes: Buf,
    /// The method, case kept.
    pub method: Span,
    /// The target as it came.
    pub target: Span,
    /// The version.
    pub version: Version,
    /// The fields in order.
    pub fields: Vec<Field>,
    /// Where the fields begin, behind the request line.
    pub fields_start: usize,
    /// Bytes of the head with its last CRLF; what follows in `bytes` is not part of it.
    pub head_len: usize,
    /// Lines that filters added.
    pub added: Added,
}

/// A response's head, and whatever was read behind it.
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// What was read: the head, then the first bytes of the body.
    pub bytes: Buf,
    /// The status code.
    pub status: u16,
    /// The reason phrase, maybe empty.
    pub reason: Span,
    /// The version.
    pub version: Version,
    /// The fields in order.
    pub fields: Vec<Field>,
    /// Where the fields begin, behind the status line.
    pub fields_start: usize,
    /// Bytes of the head with its last CRLF.
    pub head_len: usize,
    /// Lines that filters added.
    pub added: Added,
}

impl RequestHead {
    /// Panics where a test build was asked to, by `x-ringway-failpoint: POINT`.
    #[inline]
    pub fn failpoint(&self, _point: &str) {
        #[cfg(feature = "failpoint")]
        for asked in self.values_named("x-ringway-failpoint") {
            assert!(asked != _point.as_bytes(), "fail point {_point}");
        }
    }
}

macro_rules! shared {
    ($($head:ty),*) => {$(
        impl $head {
            /// The bytes a span covers.
            #[inline]
            pub fn text(&self, span: Span) -> &[u8] {
                span.of(self.bytes.filled())
            }

            /// What was read behind the head.
            #[inline]
            pub fn rest(&self) -> &[u8] {
                &self.bytes.filled()[self.head_len..]
            }

            /// Values of the fields with a known name, in order.
            #[inline]
            pub fn values(&self, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
                let bytes = self.bytes.filled();
                self.fields.iter().filter(move |f| f.known == known).map(move |f| f.value.of(bytes))
            }

            /// Value of the first field with a known name.
            #[inline]
            pub fn value(&self, known: Known) -> Option<&[u8]> {
                self.values(known).next()
            }

            /// Values of the fields with any name, in order, added ones last.
            pub fn values_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
                let bytes = self.bytes.filled();
                self.fields
                    .iter()
                    .filter(move |f| f.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()))
                    .map(move |f| f.value.of(bytes))
                    .chain(self.added.values(name.as_bytes()))
            }

            /// Adds a field line.
            pub fn add(&mut self, name: &str, value: &[u8]) {
                self.added.push(name.as_bytes(), value);
            }

            /// Puts one field line in the place of all that have this name.
            pub fn set(&mut self, name: &str, value: &[u8]) {
                self.remove(name);
                self.add(name, value);
            }

            /// Removes the field lines with this name. Whether there were some.
            pub fn remove(&mut self, name: &str) -> bool {
                let bytes = self.bytes.filled();
                let before = self.fields.len();
                self.fields
                    .retain(|f| !f.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()));
                let parsed = self.fields.len() < before;
                self.added.remove(name.as_bytes()) || parsed
            }

            /// Gives the buffer back and forgets the spans; the list's memory stays.
            pub fn reset(&mut self) {
                let mut fields = std::mem::take(&mut self.fields);
                fields.clear();
                let mut added = std::mem::take(&mut self.added);
                added.clear();
                *self = Self { fields, added, ..Self::default() };
            }
        }
    )*};
}
shared!(RequestHead, ResponseHead);

/// Members of a comma-separated list field (RFC 9110 section 5.6.1), empty ones left out.
pub fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_in_any_case() {
        assert_eq!(Known::of(b"HOST"), Known::Host);
        assert_eq!(Known::of(b"transfer-Encoding"), Known::TransferEncoding);
        assert_eq!(Known::of(b"transfer_encoding"), Known::Other);
        assert_eq!(Known::of(b""), Known::Other);
    }

    #[test]
    fn list_members_leave_out_the_empty_ones() {
        let members: Vec<_> = list_members(b" close,, keep-alive ,").collect();
        assert_eq!(members, [b"close".as_slice(), b"keep-alive"]);
    }
}
