//! The route table: exact paths by hash, then the longest prefix on a segment boundary.

use std::collections::HashMap;
use std::sync::Arc;

use super::plan::{Matcher, RoutePlan};
use crate::context::{RequestContext, SentPath};

/// All routes of a snapshot.
#[derive(Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Box<str>, Arc<RoutePlan>, foldhash::fast::RandomState>,
    /// Longest first.
    prefixes: Vec<(Box<[u8]>, Arc<RoutePlan>)>,
}

impl RouteTable {
    /// A table of `routes`, whose matchers the caller has checked to differ.
    pub fn new(routes: impl IntoIterator<Item = Arc<RoutePlan>>) -> RouteTable {
        let mut table = RouteTable::default();
        for route in routes {
            match &route.matcher {
                Matcher::Exact(path) => drop(table.exact.insert(path.clone(), route.clone())),
                Matcher::Prefix(prefix) => {
                    let segment = prefix.strip_suffix('/').unwrap_or(prefix);
                    table.prefixes.push((segment.as_bytes().into(), route.clone()));
                }
            }
        }
        table.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        table
    }

    /// The route of a normalised path without its query; none is 404 (R1).
    #[inline]
    pub fn find(&self, context: &RequestContext) -> Option<&Arc<RoutePlan>> {
        self.find_path(context.path())
    }

    fn find_path(&self, path: &[u8]) -> Option<&Arc<RoutePlan>> {
        if !self.exact.is_empty() {
            let exact = std::str::from_utf8(path).ok().and_then(|path| self.exact.get(path));
            if exact.is_some() {
                return exact;
            }
        }
        // A prefix of `/user/` takes `/user` too, but not `/users`.
        self.prefixes
            .iter()
            .find(|(prefix, _)| {
                path.starts_with(prefix) && matches!(path.get(prefix.len()), None | Some(b'/'))
            })
            .map(|(_, route)| route)
    }

    /// All routes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RoutePlan>> {
        self.exact.values().chain(self.prefixes.iter().map(|(_, route)| route))
    }
}

impl RoutePlan {
    /// Writes down what the upstream is sent for the request's path.
    pub fn edit_target(&self, context: &mut RequestContext) {
        let path = context.path();
        let stripped = self.strip(path);
        context.target.sent = match path.len() - stripped.len() {
            _ if self.skip_segments > 0 && stripped == b"/" => SentPath::Root,
            skipped => SentPath::From(skipped),
        };
    }

    /// The path without its first [`RoutePlan::skip_segments`] segments (R4).
    pub fn strip<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let mut rest = path;
        for _ in 0..self.skip_segments {
            match memchr::memchr(b'/', &rest[1.min(rest.len())..]) {
                Some(slash) => rest = &rest[slash + 1..],
                None => return b"/",
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Action, PathPolicy, RouteId};

    fn route(id: &str, matcher: Matcher, skip_segments: usize) -> Arc<RoutePlan> {
        Arc::new(RoutePlan {
            id: id.into(),
            matcher,
            number: RouteId(0),
            index: 0,
            action: Action::Forward(Vec::new()),
            skip_segments,
            path_policy: PathPolicy::default(),
            body_bytes_max: None,
            response_timeout_ms: None,
            total_timeout_ms: None,
        })
    }

    fn found<'a>(table: &'a RouteTable, path: &str) -> Option<&'a str> {
        table.find_path(path.as_bytes()).map(|route| &*route.id)
    }

    /// R1: what is not registered is not found.
    #[test]
    fn exact_goes_before_the_longest_prefix_on_a_segment_boundary() {
        let table = RouteTable::new([
            route("exact", Matcher::Exact("/user/login".into()), 0),
            route("user", Matcher::Prefix("/user/".into()), 0),
            route("orders", Matcher::Prefix("/user/orders".into()), 0),
        ]);
        assert_eq!(found(&table, "/user/login"), Some("exact"));
        assert_eq!(found(&table, "/user/login/x"), Some("user"));
        assert_eq!(found(&table, "/user"), Some("user"));
        assert_eq!(found(&table, "/user/orders/7"), Some("orders"));
        assert_eq!(found(&table, "/users"), None);
        assert_eq!(found(&table, "/"), None);
        let all = RouteTable::new([route("all", Matcher::Prefix("/".into()), 0)]);
        assert_eq!(found(&all, "/anything"), Some("all"));
    }

    /// R4: the upstream sees the path without the skipped segments.
    #[test]
    fn skipped_segments_are_not_seen_upstream() {
        let strip = |skip, path: &str| {
            let route = route("r", Matcher::Prefix("/".into()), skip);
            String::from_utf8(route.strip(path.as_bytes()).to_vec()).expect("ascii")
        };
        assert_eq!(strip(3, "/api/v1/app/order/detail"), "/order/detail");
        assert_eq!(strip(0, "/a/b"), "/a/b");
        assert_eq!(strip(1, "/a/"), "/");
        assert_eq!(strip(5, "/a/b"), "/");
    }
}
