//! What of a head is passed on, whatever version the next hop speaks: which fields are kept, and
//! which are added (RFC 9110 section 7.6).

use super::edit::RequestEdit;
use super::head::list_members;
use super::{Field, Forwarding, Known, RequestHead, Version};

/// Where added fields go. A value is told in parts, so that none has to be put together first.
pub trait Lines {
    /// A field begins.
    fn begin(&mut self, name: &'static str);

    /// A part of its value.
    fn part(&mut self, value: &[u8]);

    /// The field ends.
    fn end(&mut self);

    /// Whole lines, each with its CRLF.
    fn ready(&mut self, lines: &[u8]);

    /// A field with its value.
    fn line(&mut self, name: &'static str, value: &[u8]) {
        self.begin(name);
        self.part(value);
        self.end();
    }
}

/// Which fields of a request are kept.
pub struct Kept<'a> {
    named: NamedFields<'a>,
    http10: bool,
    host: bool,
    trusted: bool,
}

impl<'a> Kept<'a> {
    /// Those of `head`.
    pub fn of(head: &'a RequestHead, edit: &RequestEdit<'_>) -> Kept<'a> {
        Kept {
            named: NamedFields::of(head.values(Known::Connection)),
            http10: head.version == Version::Http10,
            host: edit.host.is_none(),
            trusted: edit.forwarding.trusted,
        }
    }

    /// Whether this one goes on as it came; `bytes` are those of its head.
    #[inline]
    pub fn keeps(&self, field: &Field, bytes: &[u8]) -> bool {
        match field.known {
            Known::Other | Known::Accept | Known::Referer | Known::UserAgent => {
                !self.named.contains(field.name.of(bytes))
            }
            Known::Host => self.host,
            // RFC 9110 section 10.1.1: no expectation from an HTTP/1.0 client.
            Known::Expect => !self.http10,
            Known::ContentLength => !has_leading_zero(field.value.of(bytes)),
            Known::XForwardedProto | Known::XForwardedPort | Known::XForwardedHost => self.trusted,
            Known::Forwarded => self.trusted,
            // Both are written anew, by `add_lines`.
            Known::XForwardedFor | Known::XRequestId => false,
            known => !is_hop_by_hop(known),
        }
    }
}

/// Adds what a proxy says of a request and its client: the forwarding fields, X-Request-Id and Via.
pub fn add_lines(out: &mut impl Lines, head: &RequestHead, edit: &RequestEdit<'_>) {
    forwarding_lines(out, head, edit);
    out.line("X-Request-Id", edit.request_id);
    if edit.via {
        out.line("Via", via(head.version));
    }
}

/// What Via says of a message that came in this version (RFC 9110 section 7.6.3).
pub fn via(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"1.0 ringway",
        Version::Http11 => b"1.1 ringway",
        Version::Http2 => b"2.0 ringway",
    }
}

/// Whether the client takes trailers (RFC 9110 section 10.1.4).
pub fn takes_trailers(head: &RequestHead) -> bool {
    let mut codings = head.values(Known::Te).flat_map(list_members);
    codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// A length with leading zeros is legal, and some origins take it for octal: it is written anew.
pub fn has_leading_zero(length: &[u8]) -> bool {
    length.len() > 1 && length[0] == b'0'
}

/// Fields that concern one hop only (RFC 9110 section 7.6.1).
pub fn is_hop_by_hop(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::Http2Settings
    )
}

/// The fields that `Connection` names. Names that have a [`Known`] of their own are never looked up
/// here, so that a client cannot strip Host, forwarding or authentication fields.
pub struct NamedFields<'a> {
    values: Vec<&'a [u8]>,
}

impl<'a> NamedFields<'a> {
    /// Those that these values of `Connection` name.
    pub fn of(values: impl Iterator<Item = &'a [u8]>) -> NamedFields<'a> {
        // An empty Vec owns no memory: the ordinary request allocates nothing.
        let names_a_field = |value: &&[u8]| {
            list_members(value).any(|option| {
                !option.eq_ignore_ascii_case(b"keep-alive")
                    && !option.eq_ignore_ascii_case(b"close")
            })
        };
        NamedFields { values: values.filter(names_a_field).collect() }
    }

    /// Whether this name is among them.
    #[inline]
    pub fn contains(&self, name: &[u8]) -> bool {
        let mut options = self.values.iter().flat_map(|value| list_members(value));
        options.any(|option| option.eq_ignore_ascii_case(name))
    }
}

fn forwarding_lines(out: &mut impl Lines, head: &RequestHead, edit: &RequestEdit<'_>) {
    let facts = edit.forwarding;
    if facts.trusted {
        trusted_forwarding_lines(out, head, facts);
    } else {
        out.ready(&facts.lines);
    }
    let told = facts.trusted && head.value(Known::XForwardedHost).is_some();
    if let Some(host) = edit.host_named.filter(|_| !told) {
        out.line("X-Forwarded-Host", host);
    }
    if edit.forwarded {
        out.begin("Forwarded");
        out.part(b"for=");
        out.part(facts.node().as_bytes());
        if let Some(host) = edit.host_named {
            out.part(b";host=\"");
            out.part(host);
            out.part(b"\"");
        }
        out.part(b";proto=http");
        out.end();
    }
}

/// Behind a proxy that is believed: its list goes on, and what it said of the first hop stays.
fn trusted_forwarding_lines(out: &mut impl Lines, head: &RequestHead, facts: &Forwarding) {
    out.begin("X-Forwarded-For");
    for hops in head.values(Known::XForwardedFor).filter(|hops| !hops.is_empty()) {
        out.part(hops);
        out.part(b", ");
    }
    out.part(facts.client_text.as_bytes());
    out.end();
    if head.value(Known::XForwardedProto).is_none() {
        out.line("X-Forwarded-Proto", b"http");
    }
    if head.value(Known::XForwardedPort).is_none() {
        out.line("X-Forwarded-Port", itoa::Buffer::new().format(facts.port).as_bytes());
    }
}
