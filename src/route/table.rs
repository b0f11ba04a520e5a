//! The route table: host, then exact path by hash, then a tree of segments, then expressions (R2,
//! R15).
//!
//! Everything lies in a few flat lists and two hash tables, so that 50,000 routes are built and
//! freed in milliseconds; a look-up allocates nothing.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

use super::path::Matcher;
use super::plan::RoutePlan;
use crate::context::RequestContext;
use crate::http::host::HostText;

/// All routes of a snapshot.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// In the order of the configuration.
    pub(super) routes: Vec<Arc<RoutePlan>>,
    pub(super) hasher: RandomState,
    /// The tiers of hosts; the first is that of any host.
    pub(super) tiers: Vec<Tier>,
    /// Hosts by name.
    pub(super) names: HashMap<Box<[u8]>, u32, RandomState>,
    /// Hosts by what follows their `*.`.
    pub(super) wildcards: HashMap<Box<[u8]>, u32, RandomState>,
    /// Most labels that follow a `*.`: how much of a host is looked at.
    pub(super) wildcard_labels_max: usize,
    /// Tier and path to routes.
    pub(super) exact: HashTable<Keyed<Candidates>>,
    /// The trees of all tiers.
    pub(super) nodes: Vec<Node>,
    /// Node and segment to node.
    pub(super) edges: HashTable<Keyed<u32>>,
    /// Expressions, of one tier in the order of the configuration.
    pub(super) patterns: Vec<Regexes>,
    /// The keys of both hash tables.
    pub(super) text: Vec<u8>,
    /// Routes with the same host and path, in the order in which they are tried.
    pub(super) lists: Vec<Vec<u32>>,
}

/// What one host, or any, has beyond exact paths.
#[derive(Debug)]
pub(super) struct Tier {
    /// As written; empty is any.
    pub(super) host: Box<str>,
    /// The root of its tree, or [`NONE`].
    pub(super) root: u32,
    /// Those of [`RouteTable::patterns`] that are its own.
    pub(super) patterns: Vec<u32>,
}

/// A key of a hash table: a number and bytes of [`RouteTable::text`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed<T> {
    pub(super) number: u32,
    pub(super) start: u32,
    pub(super) length: u32,
    pub(super) value: T,
}

/// A place in a tree: so many segments of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Whether it has edges of literal segments.
    pub(super) literals: bool,
    /// The node behind a `{name}` segment, or [`NONE`].
    pub(super) param: u32,
    /// Patterns that end here.
    pub(super) ends: Candidates,
    /// Patterns that end here with `{*name}`.
    pub(super) rests: Candidates,
    /// Prefixes that end here.
    pub(super) prefixes: Candidates,
}

/// Routes with one expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regexes {
    /// One of them: where the expression is.
    pub(super) route: u32,
    pub(super) candidates: Candidates,
}

/// Routes with the same host and path: none, one, or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidates(u32);

impl Candidates {
    pub(super) const EMPTY: Candidates = Candidates(u32::MAX);
    const LIST: u32 = 1 << 31;
    /// Of a single route: it has conditions, so that a plain one is found without a look at it.
    const CONDITIONAL: u32 = 1 << 30;
    /// Routes and lists that can be told apart.
    pub(super) const MAX: usize = (1 << 30) - 1;

    pub(super) fn one(route: u32, conditional: bool) -> Candidates {
        Candidates(route | if conditional { Candidates::CONDITIONAL } else { 0 })
    }

    pub(super) fn list(index: u32) -> Candidates {
        Candidates(index | Candidates::LIST)
    }

    pub(super) fn as_list(self) -> Option<u32> {
        let list = self != Candidates::EMPTY && self.0 & Candidates::LIST != 0;
        list.then_some(self.0 & !Candidates::LIST)
    }

    pub(super) fn as_one(self) -> Option<u32> {
        (self.0 & Candidates::LIST == 0).then_some(self.0 & !Candidates::CONDITIONAL)
    }

    fn is_plain(self) -> bool {
        self.0 & (Candidates::LIST | Candidates::CONDITIONAL) == 0
    }
}

/// What a walk shows on its way: tier and candidates. It ends where something is returned.
type Visit<'v> = &'v mut dyn FnMut(u32, Candidates) -> Option<u32>;

impl RouteTable {
    /// The route of a request; none is 404 (R1).
    #[inline]
    pub fn find(&self, context: &RequestContext) -> Option<&Arc<RoutePlan>> {
        let found = self.walk(context, &mut |_, candidates| self.first(candidates, context));
        found.map(|index| &self.routes[index as usize])
    }

    /// All routes, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RoutePlan>> {
        self.routes.iter()
    }

    /// The route at a place in the configuration.
    pub fn get(&self, index: usize) -> Option<&Arc<RoutePlan>> {
        self.routes.get(index)
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The first of some routes whose conditions hold.
    #[inline]
    fn first(&self, candidates: Candidates, context: &RequestContext) -> Option<u32> {
        if candidates.is_plain() {
            return Some(candidates.0);
        }
        self.members(&candidates).find(|route| self.routes[*route as usize].holds(context))
    }

    /// Some routes in the order in which they are tried.
    pub(super) fn members(&self, candidates: &Candidates) -> impl Iterator<Item = u32> {
        let list = candidates.as_list().map(|index| self.lists[index as usize].as_slice());
        let one = candidates.as_one();
        one.into_iter().chain(list.unwrap_or_default().iter().copied())
    }

    /// Visits all routes whose host and path take a request, in the order of the look-up.
    #[inline]
    pub(super) fn walk(&self, context: &RequestContext, visit: Visit<'_>) -> Option<u32> {
        let path = context.path();
        if !(self.names.is_empty() && self.wildcards.is_empty())
            && let Some(host) = context.host().and_then(HostText::of)
        {
            let found = self.walk_hosts(host.bytes(), path, visit);
            if found.is_some() {
                return found;
            }
        }
        self.walk_tier(0, path, visit)
    }

    /// The host itself, then wildcards, the longest first.
    fn walk_hosts(&self, host: &[u8], path: &[u8], visit: Visit<'_>) -> Option<u32> {
        if let Some(tier) = self.names.get(host) {
            let found = self.walk_tier(*tier, path, visit);
            if found.is_some() {
                return found;
            }
        }
        // An IP literal has no labels.
        if self.wildcards.is_empty() || host.starts_with(b"[") {
            return None;
        }
        let dots = memchr::memchr_iter(b'.', host);
        let labels = dots.clone().count();
        // What stands before the first dot is taken by the star, and must not be nothing.
        for dot in dots.skip(labels.saturating_sub(self.wildcard_labels_max)).filter(|dot| *dot > 0)
        {
            if let Some(tier) = self.wildcards.get(&host[dot + 1..]) {
                let found = self.walk_tier(*tier, path, visit);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Exact path, tree, expressions.
    #[inline]
    fn walk_tier(&self, number: u32, path: &[u8], visit: Visit<'_>) -> Option<u32> {
        if let Some(candidates) = self.value(&self.exact, number, path) {
            let found = visit(number, candidates);
            if found.is_some() {
                return found;
            }
        }
        let tier = self.tiers.get(number as usize)?;
        if tier.root != NONE {
            let found = self.descend(number, tier.root, path.get(1..), visit);
            if found.is_some() {
                return found;
            }
        }
        for index in &tier.patterns {
            let Regexes { route, candidates } = self.patterns[*index as usize];
            let Matcher::Regex(pattern) = &self.routes[route as usize].matcher else { continue };
            if pattern.matches(path) {
                let found = visit(number, candidates);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Literal before parameter before shorter; `rest` is what follows the slash behind the node's
    /// segments. A node has one parent, so that a walk comes to it at most once; segments, and with
    /// them depth, are bounded by `ROUTE_SEGMENTS_MAX`.
    fn descend(
        &self,
        tier: u32,
        number: u32,
        rest: Option<&[u8]>,
        visit: Visit<'_>,
    ) -> Option<u32> {
        let node = &self.nodes[number as usize];
        let mut found = None;
        if let Some(rest) = rest {
            let end = memchr::memchr(b'/', rest);
            let segment = &rest[..end.unwrap_or(rest.len())];
            let after = end.map(|end| &rest[end + 1..]);
            if node.literals
                && let Some(child) = self.value(&self.edges, number, segment)
            {
                found = self.descend(tier, child, after, visit);
            }
            if found.is_none() && node.param != NONE && !segment.is_empty() {
                found = self.descend(tier, node.param, after, visit);
            }
            if found.is_none() && node.rests != Candidates::EMPTY && !rest.is_empty() {
                found = visit(tier, node.rests);
            }
        } else if node.ends != Candidates::EMPTY {
            found = visit(tier, node.ends);
        }
        if found.is_none() && node.prefixes != Candidates::EMPTY {
            found = visit(tier, node.prefixes);
        }
        found
    }

    #[inline]
    fn value<T: Copy>(&self, table: &HashTable<Keyed<T>>, number: u32, key: &[u8]) -> Option<T> {
        if table.is_empty() {
            return None;
        }
        let same = |entry: &Keyed<T>| entry.number == number && self.key(entry) == key;
        table.find(self.hash(number, key), same).map(|entry| entry.value)
    }

    pub(super) fn key<T>(&self, entry: &Keyed<T>) -> &[u8] {
        let start = entry.start as usize;
        &self.text[start..start + entry.length as usize]
    }

    #[inline]
    pub(super) fn hash(&self, number: u32, key: &[u8]) -> u64 {
        hash_of(&self.hasher, number, key)
    }

    /// The host of a tier, as written; empty is any.
    pub(super) fn host_of(&self, tier: u32) -> &str {
        self.tiers.get(tier as usize).map_or("", |tier| &tier.host)
    }
}

/// The hash of a key, in both hash tables.
#[inline]
pub(super) fn hash_of(hasher: &RandomState, number: u32, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.write_u32(number);
    hasher.finish()
}

/// No node.
pub(super) const NONE: u32 = u32::MAX;
