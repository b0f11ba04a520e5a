//! Routes: what is wrong with them, and their plans.

use std::collections::{HashMap, HashSet};

use super::Ids;
use crate::config::decode::hint;
use crate::config::diagnostic::Span;
use crate::config::written::{self, Config, Matcher, Treatment};
use crate::config::{Diagnostic, Diagnostics};
use crate::http::uri::{Allow, Deny};
use crate::route::{self, Action, PathPolicy, RoutePlan, Target};
use crate::upstream::UpstreamId;

/// Ids and matchers differ (R3), and upstreams exist.
pub(super) fn check(config: &Config<'_>, found: &mut Diagnostics) {
    let upstreams: HashSet<&str> = config.upstream_names.iter().map(|name| &**name).collect();
    let mut ids: HashMap<&str, Span> = HashMap::new();
    let mut matchers: HashMap<route::Matcher, &written::Route> = HashMap::new();
    for route in &config.routes {
        let id = &*route.id.value;
        if let Some(first) = ids.insert(id, route.id.span()) {
            found.push(
                Diagnostic::error(route.id.span(), format!("two routes have the id `{id}`"))
                    .label("the second")
                    .other(first, "the first")
                    .remedy("give each route an id of its own"),
            );
        }
        if let Some(first) = matchers.insert(same_paths(&route.matcher.value), route) {
            let message = format!("routes `{}` and `{id}` take the same paths", first.id.value);
            found.push(
                Diagnostic::error(route.matcher.span(), message)
                    .label(format!("route `{id}`"))
                    .other(first.matcher.span(), format!("route `{}`", first.id.value))
                    .remedy("remove one of them, or change its path"),
            );
        }
        let upstream = &*route.upstream.value;
        if !upstreams.contains(upstream) {
            found.push_with(|| {
                let known = config.upstream_names.iter().map(|name| &**name);
                let message = format!("there is no upstream `{}`", upstream.escape_debug());
                Diagnostic::error(route.upstream.span(), message).label("not defined").remedy(hint(
                    upstream,
                    known,
                    "upstreams of this file",
                ))
            });
        }
    }
}

/// What two matchers have in common when they take the same paths: `/a` and `/a/` as prefixes do.
fn same_paths(matcher: &Matcher) -> route::Matcher {
    match matcher {
        Matcher::Path(path) => route::Matcher::Exact(path.clone()),
        Matcher::Prefix(path) => {
            route::Matcher::Prefix(path.strip_suffix('/').unwrap_or(path).into())
        }
    }
}

/// The plan of a route that was checked.
pub(super) fn plan(
    written: &written::Route<'_>,
    index: usize,
    upstream: UpstreamId,
    ids: &mut Ids,
) -> RoutePlan {
    RoutePlan {
        number: ids.route(&written.id.value),
        index,
        id: written.id.value.clone(),
        matcher: match &written.matcher.value {
            Matcher::Path(path) => route::Matcher::Exact(path.clone()),
            Matcher::Prefix(path) => route::Matcher::Prefix(path.clone()),
        },
        action: Action::Forward(vec![Target { upstream, weight: 1, zone: None }]),
        skip_segments: written.skip_segments,
        path_policy: path_policy(written.path_policy),
        body_bytes_max: written.body_bytes_max,
        response_timeout_ms: written.response_ms,
        total_timeout_ms: written.total_ms,
    }
}

fn path_policy(written: written::PathPolicy) -> PathPolicy {
    let allow = |treatment| match treatment {
        Some(Treatment::Refuse) => Allow::Refuse,
        Some(Treatment::Keep) | None => Allow::Keep,
    };
    let deny = |treatment| match treatment {
        Some(Treatment::Keep) => Deny::Keep,
        Some(Treatment::Refuse) | None => Deny::Refuse,
    };
    PathPolicy {
        encoded_slash: allow(written.encoded_slash),
        backslash: deny(written.backslash),
        dot_dot_semicolon: allow(written.dot_dot_semicolon),
        nul: deny(written.nul),
    }
}
