//! `[[route]]` as it is written.

use super::{Retry, identifier};
use crate::config::decode::{Decode, Decoder, Fields};
use crate::config::diagnostic::Diagnostic;
use crate::config::read::{
    Address, boolean, choice, endpoint_address, integer, list, nodes, size, spanned, string,
    timeout,
};
use crate::config::tree::{Node, Spanned};
use crate::limits::*;

/// `[[route]]`
#[derive(Clone, Debug)]
pub struct Route<'t> {
    /// `id`
    pub id: Spanned<Box<str>>,
    /// `path`, `prefix` or `regex`; none if it could not be read, which has been said: the rest of
    /// the route is checked all the same.
    pub matcher: Spanned<Option<Matcher>>,
    /// `hosts`; none is any.
    pub hosts: Vec<Spanned<Box<str>>>,
    /// `priority`
    pub priority: Option<u32>,
    /// `when`: read by `snapshot`, as the other nodes are.
    pub when: Option<&'t Node>,
    /// `upstream`, `targets`, `redirect` or `respond`
    pub action: Action<'t>,
    /// `zone`
    pub zone: Option<Spanned<Box<str>>>,
    /// `endpoint`
    pub endpoint: Option<Spanned<Address>>,
    /// `fallback`
    pub fallback: Option<Spanned<bool>>,
    /// `skip_segments`
    pub skip_segments: Option<Spanned<usize>>,
    /// `rewrite`
    pub rewrite: Option<&'t Node>,
    /// `host_rewrite`
    pub host_rewrite: Option<&'t Node>,
    /// `body_bytes_max`
    pub body_bytes_max: Option<u64>,
    /// `timeouts.response`
    pub response_ms: Option<u64>,
    /// `timeouts.total`
    pub total_ms: Option<u64>,
    /// `in_flight_max`
    pub in_flight_max: Option<Spanned<usize>>,
    /// `retry`
    pub retry: Option<Spanned<Retry>>,
    /// `path_policy`
    pub path_policy: PathPolicy,
    /// `filters`: names, or tables of their own; read by `snapshot`.
    pub filters: Vec<&'t Node>,
}

/// `path`, `prefix` or `regex` of a route
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// `path`
    Path(Box<str>),
    /// `prefix`
    Prefix(Box<str>),
    /// `regex`
    Regex(Box<str>),
}

/// `upstream`, `targets`, `redirect` or `respond` of a route
#[derive(Clone, Debug)]
pub enum Action<'t> {
    /// `upstream`
    Upstream(Spanned<Box<str>>),
    /// `targets`, and where they stand.
    Targets(Spanned<Vec<Target>>),
    /// `redirect`
    Redirect(Redirect<'t>),
    /// `respond`
    Respond(Respond),
    /// None that could be read, which has been said.
    Unread,
}

/// One of `route.targets`
#[derive(Clone, Debug)]
pub struct Target {
    /// `upstream`
    pub upstream: Spanned<Box<str>>,
    /// `weight`
    pub weight: Option<usize>,
    /// `zone`
    pub zone: Option<Spanned<Box<str>>>,
    /// `endpoint`
    pub endpoint: Option<Spanned<Address>>,
    /// `fallback`
    pub fallback: Option<Spanned<bool>>,
}

/// `route.redirect`
#[derive(Clone, Debug)]
pub struct Redirect<'t> {
    /// `to`
    pub to: &'t Node,
    /// `status`
    pub status: u16,
}

/// `route.respond`
#[derive(Clone, Debug)]
pub struct Respond {
    /// `status`
    pub status: u16,
    /// `body`
    pub body: Option<Box<str>>,
    /// `content_type`
    pub content_type: Option<Box<str>>,
}

/// `route.path_policy`
#[derive(Clone, Copy, Debug, Default)]
pub struct PathPolicy {
    /// `encoded_slash`
    pub encoded_slash: Option<Treatment>,
    /// `backslash`
    pub backslash: Option<Treatment>,
    /// `dot_dot_semicolon`
    pub dot_dot_semicolon: Option<Treatment>,
    /// `nul`
    pub nul: Option<Treatment>,
}

/// "keep" or "refuse"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Passed as sent.
    Keep,
    /// 400.
    Refuse,
}

impl<'t> Route<'t> {
    /// Reads one.
    pub(super) fn decode(node: &'t Node, decoder: &mut Decoder) -> Option<Route<'t>> {
        let mut f = Fields::of("route", node, decoder)?;
        let id = f.required(
            "id",
            "\"NAME\"",
            spanned(|node, decoder| identifier(node, ROUTE_ID_BYTES_MAX, decoder)),
        );
        let matcher = f.one_of(&["path", "prefix", "regex"], |key, node, decoder| {
            Some(Spanned::new(Matcher::decode(key, node, decoder), &node.span))
        });
        let hosts = f.optional("hosts", list(1..=ROUTE_HOSTS_MAX, text));
        let priority = f.optional("priority", integer(0..=PRIORITY_MAX));
        let when = f.optional("when", |node, _| Some(node));
        let action = f.one_of(&["upstream", "targets", "redirect", "respond"], Action::decode);
        let zone = f.optional("zone", zone);
        let endpoint = f.optional("endpoint", spanned(endpoint_address));
        let fallback = f.optional("fallback", spanned(boolean));
        let skip_segments = f.optional("skip_segments", spanned(integer(0..=SKIP_SEGMENTS_MAX)));
        let rewrite = f.optional("rewrite", |node, _| Some(node));
        let host_rewrite = f.optional("host_rewrite", |node, _| Some(node));
        let body_bytes_max = f.optional("body_bytes_max", size(0..=i64::MAX as u64));
        let timeouts = f.optional("timeouts", route_timeouts);
        let in_flight_max = f.optional("in_flight_max", spanned(integer(1..=CONNECTIONS_MAX)));
        let retry = f.optional("retry", spanned(Retry::of_route));
        let path_policy = f.optional("path_policy", PathPolicy::decode);
        let filters = f.optional("filters", nodes(FILTERS_PER_ROUTE_MAX));
        f.finish();
        let (response_ms, total_ms) = timeouts.unwrap_or_default();
        Some(Route {
            id: id?,
            matcher: matcher.unwrap_or_else(|| Spanned::new(None, &node.span)),
            hosts: hosts.unwrap_or_default(),
            priority: priority.and_then(|priority| u32::try_from(priority).ok()),
            when,
            action: action.unwrap_or(Action::Unread),
            zone,
            endpoint,
            fallback,
            skip_segments,
            rewrite,
            host_rewrite,
            body_bytes_max,
            response_ms,
            total_ms,
            in_flight_max,
            retry,
            path_policy: path_policy.unwrap_or_default(),
            filters: filters.unwrap_or_default(),
        })
    }

    /// The upstreams that it names.
    pub fn upstreams(&self) -> impl Iterator<Item = &Spanned<Box<str>>> {
        let (one, many) = match &self.action {
            Action::Upstream(upstream) => (Some(upstream), &[][..]),
            Action::Targets(targets) => (None, &*targets.value),
            Action::Redirect(_) | Action::Respond(_) | Action::Unread => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().map(|target| &target.upstream))
    }

    /// The upstreams that choose an endpoint for it, and whether it names the zone.
    pub fn choosing(&self) -> impl Iterator<Item = (&Spanned<Box<str>>, bool)> {
        let own = match &self.action {
            Action::Targets(targets) => &*targets.value,
            _ => &[],
        };
        let own = own.iter().filter(|target| target.endpoint.is_none());
        let own = own.map(|target| (&target.upstream, target.zone.is_some()));
        let whole = match &self.action {
            Action::Upstream(upstream) => Some((upstream, false)),
            _ => None,
        };
        let all = own.chain(whole).filter(|_| self.endpoint.is_none());
        all.map(|(upstream, zoned)| (upstream, zoned || self.zone.is_some()))
    }

    /// The upstreams of which it names an endpoint, and that.
    pub fn directed(&self) -> impl Iterator<Item = (&Spanned<Box<str>>, &Spanned<Address>)> {
        let own = match &self.action {
            Action::Targets(targets) => &*targets.value,
            _ => &[],
        };
        let own = own.iter().map(|target| (&target.upstream, target.endpoint.as_ref()));
        let whole = match &self.action {
            Action::Upstream(upstream) => Some((upstream, None)),
            _ => None,
        };
        let all = own.chain(whole);
        all.filter_map(|(upstream, own)| Some((upstream, own.or(self.endpoint.as_ref())?)))
    }
}

impl Matcher {
    fn decode(key: &str, node: &Node, decoder: &mut Decoder) -> Option<Matcher> {
        match key {
            "regex" => string(node, decoder).map(|text| Matcher::Regex(text.into())),
            "prefix" => {
                let prefix = path(node, decoder)?;
                if !prefix.contains(['{', '}']) {
                    return Some(Matcher::Prefix(prefix));
                }
                decoder.found.push(
                    Diagnostic::error(node.span.clone(), "a prefix has no parameters")
                        .label("braces stand in a prefix")
                        .remedy("write path = \"/a/{name}/{*rest}\""),
                );
                None
            }
            _ => path(node, decoder).map(Matcher::Path),
        }
    }
}

impl<'t> Action<'t> {
    fn decode(key: &'static str, node: &'t Node, decoder: &mut Decoder) -> Option<Action<'t>> {
        match key {
            "upstream" => text(node, decoder).map(Action::Upstream),
            "targets" => {
                spanned(list(1..=TARGETS_MAX, Target::decode))(node, decoder).map(Action::Targets)
            }
            "redirect" => Redirect::decode(node, decoder).map(Action::Redirect),
            _ => Respond::decode(node, decoder).map(Action::Respond),
        }
    }
}

impl Decode for Target {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Target> {
        let mut f = Fields::of("route.targets", node, decoder)?;
        let upstream = f.required("upstream", "\"NAME\"", text);
        let weight = f.optional("weight", integer(0..=WEIGHT_MAX as usize));
        let zone = f.optional("zone", zone);
        let endpoint = f.optional("endpoint", spanned(endpoint_address));
        let fallback = f.optional("fallback", spanned(boolean));
        f.finish();
        Some(Target { upstream: upstream?, weight, zone, endpoint, fallback })
    }
}

impl<'t> Redirect<'t> {
    fn decode(node: &'t Node, decoder: &mut Decoder) -> Option<Redirect<'t>> {
        let mut f = Fields::of("route.redirect", node, decoder)?;
        let example = "\"https://${request.host}${request.uri}\"";
        let to = f.required("to", example, |node, _| Some(node));
        let status = f.optional("status", |node, decoder| {
            let status = integer(100..=999)(node, decoder)?;
            if REDIRECTS.contains(&status) {
                return u16::try_from(status).ok();
            }
            let message = format!("{status} is no redirect");
            let remedy = "write 301, 302, 303, 307 or 308";
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            None
        });
        f.finish();
        Some(Redirect { to: to?, status: status.unwrap_or(308) })
    }
}

impl Decode for Respond {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Respond> {
        let mut f = Fields::of("route.respond", node, decoder)?;
        let status = f.required("status", "200", integer(200..=599));
        let body = f.optional("body", |node, decoder| {
            let text = string(node, decoder)?;
            if text.len() <= RESPOND_BODY_BYTES_MAX {
                return Some(Spanned::new(Box::from(text), &node.span));
            }
            let message = format!("the body has {} bytes", text.len());
            let remedy = format!("write at most {RESPOND_BODY_BYTES_MAX}, or serve it upstream");
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            None
        });
        let content_type = f.optional("content_type", |node, decoder| {
            let text = string(node, decoder)?;
            if !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                return Some(Box::from(text));
            }
            let message = format!("`{}` is no media type", text.escape_debug());
            let remedy = "write \"text/plain\" or \"application/json\"";
            decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
            None
        });
        f.finish();
        let status = u16::try_from(status?).ok()?;
        // RFC 9110 section 6.4.1.
        if let (204 | 205 | 304, Some(body)) = (status, &body) {
            decoder.found.push(
                Diagnostic::error(
                    body.span(),
                    format!("an answer with status {status} has no body"),
                )
                .label("never sent")
                .remedy("leave out the body, or write another status"),
            );
        }
        Some(Respond { status, body: body.map(|body| body.value), content_type })
    }
}

fn text(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    Some(Spanned::new(Box::from(string(node, decoder)?), &node.span))
}

fn zone(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    spanned(|node, decoder| identifier(node, NAME_BYTES_MAX, decoder))(node, decoder)
}

fn route_timeouts(node: &Node, decoder: &mut Decoder) -> Option<(Option<u64>, Option<u64>)> {
    let mut f = Fields::of("route.timeouts", node, decoder)?;
    let timeouts = (f.optional("response", timeout), f.optional("total", timeout));
    f.finish();
    Some(timeouts)
}

impl Decode for PathPolicy {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<PathPolicy> {
        let mut f = Fields::of("route.path_policy", node, decoder)?;
        let policy = PathPolicy {
            encoded_slash: f.optional("encoded_slash", choice(TREATMENTS)),
            backslash: f.optional("backslash", choice(TREATMENTS)),
            dot_dot_semicolon: f.optional("dot_dot_semicolon", choice(TREATMENTS)),
            nul: f.optional("nul", choice(TREATMENTS)),
        };
        f.finish();
        Some(policy)
    }
}

/// A path in the form that requests have after normalisation: any other would never match.
fn path(node: &Node, decoder: &mut Decoder) -> Option<Box<str>> {
    let text = string(node, decoder)?;
    let Some(remedy) = not_in_normal_form(text) else { return Some(text.into()) };
    let message = format!("no request has the path `{}`", text.escape_debug());
    decoder.found.push(
        Diagnostic::error(node.span.clone(), message).label("not in normal form").remedy(remedy),
    );
    None
}

/// How to mend a path that no request has; none if it is in normal form (RFC 3986 section 6.2.2).
pub fn not_in_normal_form(text: &str) -> Option<String> {
    let odd = |b: u8| !b.is_ascii_graphic() || b"?#\\".contains(&b);
    let fixed = if !text.starts_with('/') {
        "begin with \"/\""
    } else if text.contains("//") {
        "write one slash: requests are normalised before they are routed"
    } else if text.split('/').any(|segment| segment == "." || segment == "..") {
        "leave out the dot segments: requests are normalised before they are routed"
    } else if text.bytes().any(odd) {
        "write printable ASCII without spaces, \"?\", \"#\" and \"\\\"; others as %XX"
    } else if text.len() > ROUTE_PATH_BYTES_MAX {
        return Some(format!("write at most {ROUTE_PATH_BYTES_MAX} bytes"));
    } else {
        return text.split('%').skip(1).find_map(|escape| {
            let digits = escape.get(..2).filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
            let Some(byte) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else {
                return Some("write two hexadecimal digits behind \"%\", or %25 for it".into());
            };
            let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            plain.then(|| {
                format!("write \"{}\": requests are decoded before they are routed", byte as char)
            })
        });
    };
    Some(fixed.into())
}

const REDIRECTS: &[usize] = &[301, 302, 303, 307, 308];
const TREATMENTS: &[(&str, Treatment)] =
    &[("keep", Treatment::Keep), ("refuse", Treatment::Refuse)];
