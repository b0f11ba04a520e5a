//! `[[route]]` as it is written.

use super::identifier;
use crate::config::decode::{Decode, Decoder, Fields};
use crate::config::diagnostic::Diagnostic;
use crate::config::read::{choice, integer, nodes, size, spanned, string, timeout};
use crate::config::tree::{Node, Spanned};
use crate::limits::{FILTERS_PER_ROUTE_MAX, ROUTE_ID_BYTES_MAX, SKIP_SEGMENTS_MAX};

/// `[[route]]`
#[derive(Clone, Debug)]
pub struct Route<'t> {
    /// `id`
    pub id: Spanned<Box<str>>,
    /// `path` or `prefix`
    pub matcher: Spanned<Matcher>,
    /// `upstream`
    pub upstream: Spanned<Box<str>>,
    /// `skip_segments`
    pub skip_segments: usize,
    /// `body_bytes_max`
    pub body_bytes_max: Option<u64>,
    /// `timeouts.response`
    pub response_ms: Option<u64>,
    /// `timeouts.total`
    pub total_ms: Option<u64>,
    /// `path_policy`
    pub path_policy: PathPolicy,
    /// `filters`: names, or tables of their own; read by `snapshot`.
    pub filters: Vec<&'t Node>,
}

/// `path` or `prefix` of a route
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// `path`
    Path(Box<str>),
    /// `prefix`
    Prefix(Box<str>),
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
        let matcher = f.either("path", "prefix", |key, node, decoder| {
            let path = path(node, decoder)?;
            let kind = if key == "path" { Matcher::Path } else { Matcher::Prefix };
            Some(Spanned::new(kind(path), &node.span))
        });
        let upstream = f.required("upstream", "\"NAME\"", |node, decoder| {
            Some(Spanned::new(Box::from(string(node, decoder)?), &node.span))
        });
        let skip_segments = f.optional("skip_segments", integer(0..=SKIP_SEGMENTS_MAX));
        let body_bytes_max = f.optional("body_bytes_max", size(0..=i64::MAX as u64));
        let timeouts = f.optional("timeouts", route_timeouts);
        let path_policy = f.optional("path_policy", PathPolicy::decode);
        let filters = f.optional("filters", nodes(FILTERS_PER_ROUTE_MAX));
        f.finish();
        let (response_ms, total_ms) = timeouts.unwrap_or_default();
        Some(Route {
            id: id?,
            matcher: matcher?,
            upstream: upstream?,
            skip_segments: skip_segments.unwrap_or(0),
            body_bytes_max,
            response_ms,
            total_ms,
            path_policy: path_policy.unwrap_or_default(),
            filters: filters.unwrap_or_default(),
        })
    }
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
    let odd = |b: u8| !b.is_ascii_graphic() || b"%?#\\".contains(&b);
    let remedy = if !text.starts_with('/') {
        "begin with \"/\""
    } else if text.contains("//") {
        "write one slash: requests are normalised before they are routed"
    } else if text.split('/').any(|segment| segment == "." || segment == "..") {
        "leave out the dot segments: requests are normalised before they are routed"
    } else if text.bytes().any(odd) {
        "write printable ASCII without spaces, \"%\", \"?\", \"#\" and \"\\\""
    } else {
        return Some(text.into());
    };
    let message = format!("no request has the path `{}`", text.escape_debug());
    decoder.found.push(
        Diagnostic::error(node.span.clone(), message).label("not in normal form").remedy(remedy),
    );
    None
}

const TREATMENTS: &[(&str, Treatment)] =
    &[("keep", Treatment::Keep), ("refuse", Treatment::Refuse)];
