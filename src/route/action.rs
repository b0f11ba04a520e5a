//! What becomes of a request that takes a route.

use crate::context::{Scope, Template};
use crate::error::ErrorKind;
use crate::http::uri::valid_host;
use crate::upstream::{EndpointId, UpstreamId};

/// What becomes of a request that takes a route.
#[derive(Debug)]
pub enum Action {
    /// It goes to one of these upstreams, by weight.
    Forward(Targets),
    /// It is answered with another place.
    Redirect(Box<Redirect>),
    /// It is answered with this.
    Respond(Box<Respond>),
}

/// The upstreams of a route.
#[derive(Debug)]
pub enum Targets {
    /// Only this one.
    One(Target),
    /// One of these, by weight; at least one has a weight.
    Weighted(Box<[Target]>),
}

/// One upstream of a route (R17).
#[derive(Clone, Debug)]
pub struct Target {
    /// Where to.
    pub upstream: UpstreamId,
    /// Share of the requests; 0 gets none.
    pub weight: u32,
    /// Only endpoints of this zone, where given.
    pub zone: Option<Box<str>>,
    /// This endpoint, where given.
    pub directed: Option<Directed>,
}

/// `endpoint` and `fallback` of a target (R18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directed {
    /// Which one.
    pub endpoint: EndpointId,
    /// Whether another one takes its requests where it cannot.
    pub fallback: bool,
}

/// `redirect`
#[derive(Debug)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: u16,
    to: Template,
}

/// `respond`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// The status.
    pub status: u16,
    /// The body; empty where the status allows none.
    pub body: Box<[u8]>,
    /// Its Content-Type.
    pub content_type: Box<str>,
}

impl Targets {
    /// All of them.
    pub fn all(&self) -> &[Target] {
        match self {
            Targets::One(target) => std::slice::from_ref(target),
            Targets::Weighted(targets) => targets,
        }
    }

    /// The one that a random number falls to: each as often as its weight says.
    #[inline]
    pub fn choose(&self, random: u64) -> &Target {
        &self.all()[self.choose_index(random)]
    }

    /// Which one that is.
    #[inline]
    pub fn choose_index(&self, random: u64) -> usize {
        match self {
            Targets::One(_) => 0,
            Targets::Weighted(targets) => weighted(targets, random),
        }
    }
}

fn weighted(targets: &[Target], random: u64) -> usize {
    let total: u64 = targets.iter().map(|target| u64::from(target.weight)).sum();
    let mut left = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (index, target) in targets.iter().enumerate() {
        match left.checked_sub(u64::from(target.weight)) {
            Some(rest) => left = rest,
            None => return index,
        }
    }
    unreachable!("some target has a weight, and the number is below their sum")
}

impl Redirect {
    /// A redirect to a text that is an absolute or a path-absolute URI whatever its variables are.
    ///
    /// # Errors
    /// How to mend it.
    pub fn new(status: u16, to: Template) -> Result<Redirect, String> {
        let beginning = to.beginning();
        let absolute = beginning.starts_with(b"http://") || beginning.starts_with(b"https://");
        let path = beginning.starts_with(b"/") && !beginning.starts_with(b"//");
        if !absolute && !path && !to.begins_with_path() {
            return Err("begin with \"https://\", \"/\", ${request.path} or ${request.uri}".into());
        }
        if !to.texts().all(|text| text.iter().all(|byte| stands(*byte))) {
            return Err("encode spaces and other characters that no URI has as %XX".into());
        }
        Ok(Redirect { status, to })
    }

    /// Puts the Location into `out`, which is cleared. Bytes that no URI has are encoded.
    ///
    /// # Errors
    /// `HostInvalid` where variables leave it without a host.
    pub fn location(&self, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<(), ErrorKind> {
        out.clear();
        self.to.expand(scope, out);
        if !out.iter().all(|byte| stands(*byte)) {
            *out = encoded(out);
        }
        if out.starts_with(b"/") {
            // Two slashes would name another host (RFC 3986 section 4.2).
            let slashes = out.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
            out.drain(..slashes - 1);
            return Ok(());
        }
        let start = memchr::memmem::find(out, b"://").map_or(0, |at| at + 3);
        let rest = &out[start..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        match valid_host(&rest[..end.unwrap_or(rest.len())]) {
            true => Ok(()),
            false => Err(ErrorKind::HostInvalid),
        }
    }

    /// The text.
    pub fn to(&self) -> &Template {
        &self.to
    }
}

/// Whether a byte may stand in a URI (RFC 3986 section 2), or in what servers take for one.
fn stands(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)
}

fn encoded(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len() + 16);
    for byte in text {
        match stands(*byte) {
            true => out.push(*byte),
            false => {
                let digit = |half: u8| DIGITS[usize::from(half)];
                out.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::template::Availability;
    use crate::context::{Matched, RequestContext};

    fn targets(weights: &[u32]) -> Targets {
        let target = |(index, weight): (usize, &u32)| Target {
            upstream: UpstreamId(index as u32),
            weight: *weight,
            zone: None,
            directed: None,
        };
        Targets::Weighted(weights.iter().enumerate().map(target).collect())
    }

    /// R17: each target gets its share, and weight 0 none.
    #[test]
    fn targets_are_chosen_by_weight() {
        let targets = targets(&[0, 90, 10, 0]);
        let mut counts = [0u32; 4];
        for step in 0..10_000u64 {
            let chosen = targets.choose(step * (u64::MAX / 10_000));
            counts[chosen.upstream.0 as usize] += 1;
        }
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!(counts[1].abs_diff(9_000) <= 1, "{counts:?}");
        assert_eq!(targets.choose(0).upstream, UpstreamId(1));
        assert_eq!(targets.choose(u64::MAX).upstream, UpstreamId(2));
    }

    fn location(to: &str, head: &[u8]) -> Result<String, ErrorKind> {
        let template = Template::parse(to, Availability::Request).expect("valid");
        let redirect = Redirect::new(308, template).expect("a place");
        let (context, _) = RequestContext::of_head(head).expect("valid");
        let mut out = Vec::new();
        let scope = Scope::of_request(&context, Matched::default());
        redirect.location(&scope, &mut out).map(|()| String::from_utf8(out).expect("ascii"))
    }

    #[test]
    fn a_location_is_always_a_valid_one() {
        let head = b"GET /a/b?q=%0d%0a/ HTTP/1.1\r\nHost: A.test:80\r\nX-To: /evil.test\r\n\r\n";
        let to = |text| location(text, head).expect("a location");
        assert_eq!(to("https://${request.host}${request.uri}"), "https://a.test/a/b?q=%0d%0a/");
        assert_eq!(to("/new?${request.query}"), "/new?q=%0d%0a/");
        assert_eq!(to("${request.path}"), "/a/b");
        assert_eq!(to("/${request.header.x-to}"), "/evil.test");
        assert_eq!(to("/?${request.query.q}"), "/?/");
        let bare = b"GET /a HTTP/1.0\r\n\r\n";
        assert_eq!(location("https://${request.host}/", bare), Err(ErrorKind::HostInvalid));
        for bad in ["evil", "//evil", "ftp://a/", "${request.header.x}", "", "/a b", "/\u{e9}"] {
            let template = Template::parse(bad, Availability::Request).expect("valid");
            assert!(Redirect::new(308, template).is_err(), "{bad}");
        }
    }
}
