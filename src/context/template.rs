//! Texts with variables: `"${request.header.x-user} of ${route.id}"`.

use std::io::Write;
use std::ops::Range;

use Availability::{Endpoint, Request, Response, Upstream};

use super::RequestContext;
use super::source::{Matched, Source};
use crate::config::decode::{Decoder, hint};
use crate::config::diagnostic::Diagnostic;
use crate::config::read::string;
use crate::config::tree::Node;
use crate::http::host::host_name;
use crate::limits::{TEMPLATE_BYTES_MAX, TEMPLATE_VARIABLES_MAX};
use crate::proxy_protocol::Fact;
use crate::tls::TlsFact;

/// A text with variables, checked when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    Variable(Variable),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Variable {
    Fixed(Fixed),
    /// `${request.header.NAME}`, `.cookie.`, `.query.`; `${path.NAME}`; `${tls.NAME}`,
    /// `${client_cert.NAME}`
    Named(Source),
    /// `${attribute.NAME}`
    Attribute(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fixed {
    RequestId,
    Method,
    Path,
    Query,
    Uri,
    Target,
    Host,
    Scheme,
    ClientAddress,
    ClientPort,
    Announced(Fact),
    Listener,
    Route,
    Upstream,
    Endpoint,
    Status,
    UpstreamTime,
}

/// From when on in a request's life a variable has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// Once its route is known.
    Request,
    /// Once its upstream is chosen.
    Upstream,
    /// Once its endpoint is chosen, which each try does anew.
    Endpoint,
    /// Once the answer's head is known.
    Response,
}

/// What the variables of a text stand for.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The request.
    pub context: &'a RequestContext,
    /// The route's id, and the parameters of its path.
    pub matched: Matched<'a>,
    /// The listener's name.
    pub listener: &'a str,
    /// The upstream's name, empty before it is known.
    pub upstream: &'a str,
    /// The endpoint's address as written, empty before it is known.
    pub endpoint: &'a str,
    /// The answer's status, 0 before it is known.
    pub status: u16,
    /// Time from asking the upstream to the head of its answer, once there is one.
    pub upstream_ms: Option<u64>,
}

/// What is wrong with a text, where in it, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
    /// Bytes of the text.
    pub range: Range<usize>,
    /// How to mend it.
    pub remedy: String,
}

impl<'a> Scope<'a> {
    /// The scope of a request whose route is known.
    pub fn of_request(context: &'a RequestContext, matched: Matched<'a>) -> Scope<'a> {
        Scope {
            context,
            matched,
            listener: "",
            upstream: "",
            endpoint: "",
            status: 0,
            upstream_ms: None,
        }
    }
}

impl Template {
    /// Reads a text whose variables must be known when it is used.
    ///
    /// # Errors
    /// An unknown variable, one that is not known yet at that time, or a byte that no field value
    /// and no target may have.
    pub fn parse(text: &str, known: Availability) -> Result<Template, TemplateError> {
        let all = 0..text.len();
        let error =
            |message: String, range, remedy: String| Err(TemplateError { message, range, remedy });
        if text.len() > TEMPLATE_BYTES_MAX {
            let message = format!("the text is longer than {TEMPLATE_BYTES_MAX} bytes");
            return error(message, all, "write a shorter text".into());
        }
        if let Some(at) = text.bytes().position(is_forbidden) {
            let message = "a line break or NUL cannot stand here".into();
            return error(message, at..at + 1, "leave it out".into());
        }
        let (mut parts, mut plain) = (Vec::new(), Vec::new());
        let (mut at, mut variables) = (0, 0);
        while let Some(found) = text[at..].find("${").map(|found| at + found) {
            plain.extend_from_slice(&text.as_bytes()[at..found]);
            if plain.last() == Some(&b'$') {
                // `$${` is a `${` that begins no variable.
                plain.extend_from_slice(b"{");
                at = found + 2;
                continue;
            }
            let Some(end) = text[found..].find('}').map(|end| found + end) else {
                let message = "a variable has no end".into();
                return error(message, found..text.len(), "add }, or write $${ for ${".into());
            };
            let name = &text[found + 2..end];
            at = end + 1;
            if is_environment(name) {
                plain.extend_from_slice(&text.as_bytes()[found..at]);
                continue;
            }
            let variable = variable(name, known);
            let variable = variable.map_err(|(message, remedy)| TemplateError {
                message,
                range: found..at,
                remedy,
            })?;
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(Part::Variable(variable));
            variables += 1;
        }
        plain.extend_from_slice(&text.as_bytes()[at..]);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        if variables > TEMPLATE_VARIABLES_MAX {
            let message = format!("the text has more than {TEMPLATE_VARIABLES_MAX} variables");
            return error(message, all, "use fewer".into());
        }
        Ok(Template { parts: parts.into() })
    }

    /// Reads one from a string of the configuration.
    pub fn decode(known: Availability) -> impl FnOnce(&Node, &mut Decoder) -> Option<Template> {
        move |node, decoder| {
            let text = string(node, decoder)?;
            let parsed = Template::parse(text, known);
            let template = parsed.map_err(|error| decoder.found.push(error.at(node, text))).ok()?;
            let asked = template.params().map(|name| (name.into(), node.span.clone()));
            decoder.params.extend(asked);
            Some(template)
        }
    }

    /// Writes the text with its variables replaced behind `out`. A value that is missing is empty;
    /// CR, LF and NUL are left out of values.
    #[inline]
    pub fn expand(&self, scope: &Scope<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Variable(variable) => variable.expand(scope, out),
            }
        }
    }

    /// The text, where it has no variables.
    pub fn plain(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// What stands before the first variable.
    pub fn beginning(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => b"",
        }
    }

    /// Whether it begins with the normalised path of the request.
    pub fn begins_with_path(&self) -> bool {
        let is_path = |fixed: &Fixed| matches!(fixed, Fixed::Path | Fixed::Uri);
        matches!(self.parts.first(), Some(Part::Variable(Variable::Fixed(fixed))) if is_path(fixed))
    }

    /// The texts between its variables.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Variable(_) => None,
        })
    }

    /// The first variable by which a request decides on the authority of the URI that it begins
    /// with, other than by its own host: as written, without braces.
    pub fn asked_for_authority(&self) -> Option<String> {
        let mut behind_scheme = false;
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    let scheme = memchr::memmem::find(text, b"://").filter(|_| !behind_scheme);
                    let rest = match scheme {
                        Some(at) => &text[at + 3..],
                        None => text,
                    };
                    behind_scheme |= scheme.is_some();
                    if !behind_scheme || rest.iter().any(|byte| b"/?#".contains(byte)) {
                        return None;
                    }
                }
                Part::Variable(_) if !behind_scheme => return None,
                // It begins with a slash.
                Part::Variable(Variable::Fixed(Fixed::Path | Fixed::Uri)) => return None,
                Part::Variable(variable) => {
                    if let Some(name) = variable.chosen_by_request() {
                        return Some(name);
                    }
                }
            }
        }
        None
    }

    /// From when on all of its variables are known.
    pub fn needs(&self) -> Availability {
        let of = |part: &Part| match part {
            Part::Variable(Variable::Fixed(fixed)) => {
                FIXED.iter().find(|(_, known, _)| known == fixed).map(|(_, _, from)| *from)
            }
            Part::Text(_) | Part::Variable(_) => None,
        };
        self.parts.iter().filter_map(of).max().unwrap_or(Request)
    }

    /// The path parameters that it asks for: the route must have them.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(Variable::Named(Source::Path(name))) => Some(&**name),
            _ => None,
        })
    }
}

impl TemplateError {
    /// As a finding about the string at `node`; exact where the string has no escapes.
    pub fn at(self, node: &Node, text: &str) -> Diagnostic {
        // The node spans the quotes; escapes would move what follows them.
        let verbatim = node.span.len() == text.len() + 2;
        let span = match verbatim {
            true => node.span.start + 1 + self.range.start..node.span.start + 1 + self.range.end,
            false => node.span.clone(),
        };
        Diagnostic::error(span, self.message).label("cannot be used here").remedy(self.remedy)
    }
}

impl Variable {
    /// Its name, if whoever sends the request chooses its value freely.
    fn chosen_by_request(&self) -> Option<String> {
        match self {
            Variable::Fixed(fixed) => {
                let free = matches!(fixed, Fixed::Method | Fixed::Query | Fixed::Target);
                let named = FIXED.iter().find(|(_, known, _)| free && known == fixed);
                named.map(|(name, _, _)| (*name).to_owned())
            }
            Variable::Named(source @ Source::Path(_)) => {
                Some(source.to_string().replacen(':', ".", 1))
            }
            // What was verified is not chosen freely; what a client asks for is.
            Variable::Named(Source::Tls(fact)) => {
                (*fact == TlsFact::Sni).then(|| "tls.sni".to_owned())
            }
            Variable::Named(source) => {
                Some(format!("request.{}", source.to_string().replacen(':', ".", 1)))
            }
            // What a filter leaves there, the filter answers for.
            Variable::Attribute(_) => None,
        }
    }

    fn expand(&self, scope: &Scope<'_>, out: &mut Vec<u8>) {
        let context = scope.context;
        match self {
            Variable::Fixed(fixed) => fixed.expand(scope, out),
            Variable::Attribute(name) => {
                push(out, context.attributes.get(name).unwrap_or_default());
            }
            // RFC 9110 section 5.3: several lines are one list.
            Variable::Named(source @ Source::Header(_)) => {
                let mut first = true;
                source.any(context, |value| {
                    if !std::mem::take(&mut first) {
                        out.extend_from_slice(b", ");
                    }
                    push(out, value);
                    false
                });
            }
            Variable::Named(source) => {
                source.with(context, scope.matched, |value| push(out, value));
            }
        }
    }
}

impl Fixed {
    fn expand(self, scope: &Scope<'_>, out: &mut Vec<u8>) {
        let context = scope.context;
        let request = &context.request;
        let query = context.target.query.map(|query| request.text(query));
        match self {
            Fixed::RequestId => push(out, context.request_id.text(request)),
            Fixed::Method => push(out, request.text(request.method)),
            Fixed::Path => push(out, context.path()),
            Fixed::Query => push(out, query.unwrap_or_default()),
            Fixed::Uri => {
                push(out, context.path());
                if let Some(query) = query {
                    out.push(b'?');
                    push(out, query);
                }
            }
            Fixed::Target => push(out, request.text(request.target)),
            Fixed::Host => {
                let host = host_name(context.host().unwrap_or_default());
                out.extend(host.iter().map(u8::to_ascii_lowercase));
            }
            Fixed::Scheme => push(out, context.scheme().as_bytes()),
            Fixed::ClientAddress => {
                Source::Client.with(context, scope.matched, |address| push(out, address));
            }
            Fixed::ClientPort => number(out, u64::from(context.client.peer.port())),
            Fixed::Announced(fact) => push(out, context.announced(fact).unwrap_or_default()),
            Fixed::Listener => push(out, scope.listener.as_bytes()),
            Fixed::Route => push(out, scope.matched.route.as_bytes()),
            Fixed::Upstream => push(out, scope.upstream.as_bytes()),
            Fixed::Endpoint => push(out, scope.endpoint.as_bytes()),
            Fixed::Status if scope.status == 0 => {}
            Fixed::Status => number(out, u64::from(scope.status)),
            Fixed::UpstreamTime => {
                if let Some(ms) = scope.upstream_ms {
                    number(out, ms);
                }
            }
        }
    }
}

/// What stands between the braces; an error is what is wrong and how to mend it.
fn variable(name: &str, known: Availability) -> Result<Variable, (String, String)> {
    let unknown = || {
        let near = FIXED.iter().map(|(known, _, _)| *known).chain(NAMED.iter().copied());
        let remedy = hint(name, near, "variables") + "; write $${ for a ${ that is no variable";
        (format!("there is no variable `{}`", name.escape_debug()), remedy)
    };
    if let Some((_, fixed, from)) = FIXED.iter().find(|(known, _, _)| *known == name) {
        if *from > known {
            let when = match from {
                Availability::Response => "the answer has come",
                Availability::Endpoint => "an endpoint was chosen",
                Availability::Upstream | Availability::Request => "an upstream was chosen",
            };
            let message = format!("`{name}` is not known before {when}");
            return Err((message, "use it later, or leave it out here".into()));
        }
        return Ok(Variable::Fixed(*fixed));
    }
    if let Some(attribute) = name.strip_prefix("attribute.").filter(|name| !name.is_empty()) {
        return Ok(Variable::Attribute(attribute.into()));
    }
    if let Some((kind @ ("tls" | "client_cert"), fact)) = name.split_once('.') {
        let source = TlsFact::of(kind, fact).map(Source::Tls);
        return source.map(Variable::Named).ok_or_else(unknown);
    }
    let (kind, named) = match name.strip_prefix("request.") {
        Some(rest) => rest.split_once('.').ok_or_else(unknown)?,
        None => name.strip_prefix("path.").map(|rest| ("path", rest)).ok_or_else(unknown)?,
    };
    let of_request = matches!(kind, "header" | "cookie" | "query");
    if !(of_request || kind == "path" && !name.starts_with("request.")) {
        return Err(unknown());
    }
    let source = Source::parse(&format!("{kind}:{named}")).map_err(|_| {
        let message = format!("`{}` is not the name of a {kind}", named.escape_debug());
        (message, format!("write a name, such as ${{request.{kind}.user}}"))
    })?;
    Ok(Variable::Named(source))
}

/// Environment variables were replaced before; one that is left is text.
fn is_environment(name: &str) -> bool {
    let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.bytes().all(upper)
}

/// RFC 9110 section 5.5: what ends a field line cannot stand in a value.
fn is_forbidden(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

fn push(out: &mut Vec<u8>, value: &[u8]) {
    if value.iter().any(|byte| is_forbidden(*byte)) {
        out.extend(value.iter().filter(|byte| !is_forbidden(**byte)));
    } else {
        out.extend_from_slice(value);
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{number}");
}

const FIXED: &[(&str, Fixed, Availability)] = &[
    ("request.id", Fixed::RequestId, Request),
    ("request.method", Fixed::Method, Request),
    ("request.path", Fixed::Path, Request),
    ("request.query", Fixed::Query, Request),
    ("request.uri", Fixed::Uri, Request),
    ("request.target", Fixed::Target, Request),
    ("request.host", Fixed::Host, Request),
    ("request.scheme", Fixed::Scheme, Request),
    ("client.address", Fixed::ClientAddress, Request),
    ("client.port", Fixed::ClientPort, Request),
    ("proxy.authority", Fixed::Announced(Fact::Authority), Request),
    ("proxy.unique_id", Fixed::Announced(Fact::UniqueId), Request),
    ("proxy.alpn", Fixed::Announced(Fact::Alpn), Request),
    ("proxy.ssl_version", Fixed::Announced(Fact::SslVersion), Request),
    ("proxy.ssl_cn", Fixed::Announced(Fact::SslCn), Request),
    ("listener.name", Fixed::Listener, Request),
    ("route.id", Fixed::Route, Request),
    ("upstream.name", Fixed::Upstream, Upstream),
    ("endpoint.address", Fixed::Endpoint, Endpoint),
    ("response.status", Fixed::Status, Response),
    ("upstream.time_ms", Fixed::UpstreamTime, Response),
];

/// As hints show them.
const NAMED: &[&str] = &[
    "request.header.NAME",
    "request.cookie.NAME",
    "request.query.NAME",
    "path.NAME",
    "attribute.NAME",
    "tls.NAME",
    "client_cert.NAME",
];

#[cfg(test)]
mod tests;
