//! Values of a request that a configuration names: `"header:x-user"`, `"cookie:uid"`, `"client"`.
//!
//! Cookies and the query are not parsed before somebody asks, and then only scanned for the one
//! name (P10).

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::thread::LocalKey;

use super::RequestContext;
use super::pattern::Pattern;
use crate::config::decode::{Decoder, hint};
use crate::config::diagnostic::Diagnostic;
use crate::config::read::string;
use crate::config::tree::Node;
use crate::http::Known;
use crate::http::uri::decode_digits;
use crate::proxy_protocol::Fact;
use crate::tls::TlsFact;

/// Which value of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `"client"`: the client's address, behind believed proxies.
    Client,
    /// `"route"`: the id of the route.
    Route,
    /// `"header:NAME"`; the name in lower case.
    Header(Box<str>),
    /// `"cookie:NAME"`
    Cookie(Box<str>),
    /// `"query:NAME"`; the value with its escapes decoded.
    Query(Box<str>),
    /// `"proxy_authority"` and the like: what a PROXY header told of the client.
    Announced(Fact),
    /// `"path:NAME"`: a parameter of the route's path, as it stands in the normalised path.
    Path(Box<str>),
    /// `"scheme"`: `https` where the client speaks TLS, else `http`.
    Scheme,
    /// `"tls:NAME"` and `"client_cert:NAME"`.
    Tls(TlsFact),
}

/// The route that a request took, as far as values depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Matched<'a> {
    /// Its id.
    pub route: &'a str,
    /// The parameters of its path.
    pub params: Params<'a>,
}

/// The parameters of a path: found when they are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub enum Params<'a> {
    /// There are none.
    #[default]
    None,
    /// Segments of a path.
    Segments(&'a [Param], &'a [u8]),
    /// Groups of an expression.
    Groups(&'a Pattern, &'a [u8]),
}

/// A parameter of a path with `{name}` segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// Its name.
    pub name: Box<str>,
    /// Number of its segment, from 0.
    pub segment: u16,
    /// Whether it takes all that follows: `{*name}`.
    pub rest: bool,
}

impl Source {
    /// Reads `"client"`, `"route"`, a fact of a PROXY header or `"KIND:NAME"`.
    ///
    /// # Errors
    /// How to mend it.
    pub fn parse(text: &str) -> Result<Source, String> {
        match text {
            "client" => return Ok(Source::Client),
            "route" => return Ok(Source::Route),
            "scheme" => return Ok(Source::Scheme),
            _ => {}
        }
        if let Some(fact) = Fact::named(text) {
            return Ok(Source::Announced(fact));
        }
        let Some((kind, name)) = text.split_once(':') else {
            let words = [
                "client",
                "route",
                "scheme",
                "header:NAME",
                "cookie:NAME",
                "query:NAME",
                "path:NAME",
                "tls:NAME",
                "client_cert:NAME",
            ];
            let words = words.into_iter().chain(Fact::ALL.map(Fact::name));
            return Err(hint(text, words, "write one of"));
        };
        let of: fn(Box<str>) -> Source = match kind {
            "header" => Source::Header,
            "cookie" => Source::Cookie,
            "query" => Source::Query,
            "path" => Source::Path,
            "tls" | "client_cert" => {
                let unknown = || hint(name, TlsFact::names(kind), "write one of");
                return TlsFact::of(kind, name).map(Source::Tls).ok_or_else(unknown);
            }
            _ => {
                let kinds = ["header", "cookie", "query", "path", "tls", "client_cert"];
                return Err(hint(kind, kinds.into_iter(), "the kinds of named values"));
            }
        };
        let source = of(name.into());
        source.check_name().map(|()| source.lower_case())
    }

    /// Reads it from a string of the configuration.
    pub fn decode(node: &Node, decoder: &mut Decoder) -> Option<Source> {
        let text = string(node, decoder)?;
        let parsed = Source::parse(text);
        parsed
            .map_err(|remedy| {
                let message = format!("`{}` is no value of a request", text.escape_debug());
                decoder.found.push(
                    Diagnostic::error(node.span.clone(), message)
                        .label("not a value that a request has")
                        .remedy(remedy),
                );
            })
            .ok()
    }

    /// Its value, of several the first.
    pub fn value<'a>(
        &self,
        context: &'a RequestContext,
        matched: Matched<'a>,
    ) -> Option<Cow<'a, [u8]>> {
        self.scan(context, matched, &mut |value| Some(value))
    }

    /// Gives its value, of several the first, to `act`; the client's address takes no memory.
    pub fn with<T>(
        &self,
        context: &RequestContext,
        matched: Matched<'_>,
        act: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        if let Source::Client = self {
            let mut text = AddressText { bytes: [0; ADDRESS_BYTES_MAX], length: 0 };
            return Some(act(text.of(context.client.address)));
        }
        self.value(context, matched).map(|value| act(&value))
    }

    /// Whether any of its values passes `test`: a field may stand in several lines.
    pub fn any(&self, context: &RequestContext, mut test: impl FnMut(&[u8]) -> bool) -> bool {
        let mut visit = |value: Cow<'_, [u8]>| test(&value).then_some(());
        self.scan(context, Matched::default(), &mut visit).is_some()
    }

    fn scan<'a, T>(
        &self,
        context: &'a RequestContext,
        matched: Matched<'a>,
        visit: &mut dyn FnMut(Cow<'a, [u8]>) -> Option<T>,
    ) -> Option<T> {
        let mut seen = |value: &'a [u8]| visit(Cow::Borrowed(value));
        match self {
            Source::Client => {
                let text = context.client.address.to_canonical().to_string();
                visit(Cow::Owned(text.into_bytes()))
            }
            Source::Route => seen(matched.route.as_bytes()),
            Source::Announced(fact) => context.announced(*fact).and_then(seen),
            Source::Scheme => seen(context.scheme().as_bytes()),
            Source::Tls(fact) => context.tls_fact(*fact).map(str::as_bytes).and_then(seen),
            Source::Path(name) => matched.params.get(name).and_then(seen),
            Source::Header(name) => headers(context, name).find_map(seen),
            Source::Cookie(name) => cookies(context, name.as_bytes()).find_map(seen),
            Source::Query(name) => queries(context, name.as_bytes()).find_map(visit),
        }
    }

    fn check_name(&self) -> Result<(), String> {
        let (name, fits): (&str, fn(u8) -> bool) = match self {
            Source::Client
            | Source::Route
            | Source::Scheme
            | Source::Announced(_)
            | Source::Tls(_) => return Ok(()),
            Source::Header(name) | Source::Cookie(name) => (name, is_token),
            Source::Query(name) => (name, |byte| !byte.is_ascii_control()),
            Source::Path(name) => (name, |byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        };
        match name.is_empty() || !name.bytes().all(fits) {
            true => Err("write a name behind the colon, such as \"header:x-user\"".into()),
            false => Ok(()),
        }
    }

    fn lower_case(self) -> Source {
        match self {
            Source::Header(name) => Source::Header(name.to_ascii_lowercase().into()),
            other => other,
        }
    }
}

/// As written in a configuration.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Client => f.write_str("client"),
            Source::Route => f.write_str("route"),
            Source::Announced(fact) => f.write_str(fact.name()),
            Source::Scheme => f.write_str("scheme"),
            Source::Tls(fact) => {
                let (kind, name) = fact.name();
                write!(f, "{kind}:{name}")
            }
            Source::Header(name) => write!(f, "header:{name}"),
            Source::Cookie(name) => write!(f, "cookie:{name}"),
            Source::Query(name) => write!(f, "query:{name}"),
            Source::Path(name) => write!(f, "path:{name}"),
        }
    }
}

impl<'a> Params<'a> {
    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        match *self {
            Params::None => None,
            Params::Groups(pattern, path) => pattern.group(name, path),
            Params::Segments(params, path) => {
                let param = params.iter().find(|param| *param.name == *name)?;
                let start = match param.segment {
                    0 => 1,
                    n => 1 + memchr::memchr_iter(b'/', path.get(1..)?).nth(usize::from(n) - 1)? + 1,
                };
                let rest = path.get(start..)?;
                let end = if param.rest { None } else { memchr::memchr(b'/', rest) };
                Some(&rest[..end.unwrap_or(rest.len())])
            }
        }
    }
}

/// Whether a byte may stand in a token (RFC 9110 section 5.6.2): field names, methods, cookie names.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Values of the fields called `name`, in order, those that filters added last; of fields that the
/// gateway answers for, what it goes by, and not what anybody may claim.
fn headers<'a>(context: &'a RequestContext, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let (instead, as_sent) = match Known::of(name.as_bytes()) {
        // RFC 9112 section 3.2.2: beside an absolute target the Host that came is ignored.
        Known::Host => (context.host(), false),
        Known::XRequestId => (Some(context.request_id.text(&context.request)), false),
        Known::Forwarded
        | Known::XForwardedFor
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedProto => (None, context.client.trusted),
        _ => (None, true),
    };
    let sent = as_sent.then(|| context.request.values_named(name));
    instead.into_iter().chain(sent.into_iter().flatten())
}

/// Values of the cookies called `name` (RFC 6265 section 4.2.1), without quotes round them. A name
/// keeps its case.
fn cookies<'a>(context: &'a RequestContext, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    note(&COOKIE_SCANS);
    let lines = context.request.values_named("cookie");
    lines.flat_map(|line| line.split(|byte| *byte == b';')).filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let at = memchr::memchr(b'=', pair)?;
        let value = pair[at + 1..].trim_ascii();
        let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (pair[..at].trim_ascii() == name).then_some(bare.unwrap_or(value))
    })
}

/// Values of the parameters called `name`, decoded as forms are: `%XX`, and `+` for a space.
fn queries<'a>(context: &'a RequestContext, name: &[u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
    note(&QUERY_SCANS);
    let query = context.target.query.map(|span| context.request.text(span)).unwrap_or_default();
    query.split(|byte| *byte == b'&').filter_map(move |pair| {
        let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let (key, value) = (&pair[..end], pair.get(end + 1..).unwrap_or_default());
        let same = key == name || needs_decoding(key) && *form_decoded(key) == *name;
        (same && !pair.is_empty()).then(|| form_decoded(value))
    })
}

fn needs_decoding(text: &[u8]) -> bool {
    memchr::memchr2(b'%', b'+', text).is_some()
}

/// A text with `%XX` decoded, and `+` for a space.
pub fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !needs_decoding(text) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let decoded = match rest {
            [b'%', high, low, after @ ..] => decode_digits(*high, *low).map(|byte| (byte, after)),
            _ => None,
        };
        let plain = if *byte == b'+' { b' ' } else { *byte };
        let (byte, after) = decoded.unwrap_or((plain, after));
        out.push(byte);
        rest = after;
    }
    Cow::Owned(out)
}

/// An address as text, on the stack.
struct AddressText {
    bytes: [u8; ADDRESS_BYTES_MAX],
    length: usize,
}

impl AddressText {
    fn of(&mut self, address: IpAddr) -> &[u8] {
        // The longest address fits: 39 digits and colons, or 45 with an IPv4 address at its end.
        let _ = fmt::write(self, format_args!("{}", address.to_canonical()));
        &self.bytes[..self.length]
    }
}

impl fmt::Write for AddressText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

const ADDRESS_BYTES_MAX: usize = 46;

/// How often this thread looked through cookies and queries, in builds with debug assertions.
pub fn scans() -> (u64, u64) {
    (COOKIE_SCANS.get(), QUERY_SCANS.get())
}

thread_local! {
    static COOKIE_SCANS: Cell<u64> = const { Cell::new(0) };
    static QUERY_SCANS: Cell<u64> = const { Cell::new(0) };
}

fn note(scans: &'static LocalKey<Cell<u64>>) {
    if cfg!(debug_assertions) {
        scans.set(scans.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use crate::context::RequestId;
    use crate::tls::TlsFacts;

    fn all(context: &RequestContext, source: &str) -> Vec<String> {
        let mut found = Vec::new();
        Source::parse(source).expect("a source").any(context, |value| {
            found.push(String::from_utf8_lossy(value).into_owned());
            false
        });
        found
    }

    /// RFC 9112 section 3.2.2.
    #[test]
    fn the_host_is_the_one_of_the_target() {
        for (target, host) in
            [("http://a.test/x", "a.test"), ("http://a.test:81", "a.test:81"), ("/x", "evil.test")]
        {
            let head = format!("GET {target} HTTP/1.1\r\nHost: evil.test\r\n\r\n");
            let (context, _) = RequestContext::of_head(head.as_bytes()).expect("valid");
            assert_eq!(all(&context, "header:Host"), [host], "{target}");
        }
    }

    #[test]
    fn facts_of_tls_are_values_and_without_tls_nobody_is_verified() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (mut context, _) = RequestContext::of_head(head).expect("valid");
        for (source, wanted) in
            [("scheme", "http"), ("client_cert:verified", "false"), ("tls:resumed", "false")]
        {
            assert_eq!(all(&context, source), [wanted]);
        }
        assert!(all(&context, "tls:version").is_empty());
        let facts = TlsFacts { version: "TLSv1.3", sni: "a.test".into(), ..TlsFacts::default() };
        context.tls = Some(std::rc::Rc::new(facts));
        assert_eq!(all(&context, "scheme"), ["https"]);
        assert_eq!(all(&context, "tls:version"), ["TLSv1.3"]);
        assert_eq!(all(&context, "tls:sni"), ["a.test"]);
        assert_eq!(all(&context, "client_cert:verified"), ["false"]);
        assert!(all(&context, "client_cert:subject").is_empty());
        for (kind, name, _) in TlsFact::ALL {
            let text = format!("{kind}:{name}");
            assert_eq!(Source::parse(&text).map(|source| source.to_string()), Ok(text));
        }
        assert!(Source::parse("tls:versoin").is_err_and(|hint| hint.contains("`version`")));
        context.reset();
        assert!(context.tls.is_none(), "the next request may come by another connection");
    }

    #[test]
    fn cookies_of_filters_count() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=2\r\n\r\n";
        let (mut context, _) = RequestContext::of_head(head).expect("valid");
        context.request.add("COOKIE", b"c=3; a=4");
        assert_eq!(all(&context, "cookie:a"), ["1", "4"]);
        assert_eq!(all(&context, "cookie:c"), ["3"]);
    }

    #[test]
    fn nobody_is_believed_who_is_not_trusted() {
        let claims = [
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-proto",
            "forwarded",
        ];
        let lines: String = claims.iter().map(|name| format!("{name}: claim\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}X-Request-Id: claim\r\n\r\n");
        let (mut context, _) = RequestContext::of_head(head.as_bytes()).expect("valid");
        context.request_id = RequestId::make(&Random::new());
        for trusted in [false, true] {
            context.client.trusted = trusted;
            for name in claims {
                let wanted: &[&str] = if trusted { &["claim"] } else { &[] };
                assert_eq!(all(&context, &format!("header:{name}")), wanted, "{name}");
            }
        }
        let sent = String::from_utf8_lossy(context.request_id.text(&context.request)).into_owned();
        assert_eq!(all(&context, "header:x-request-id"), [sent]);
    }
}
