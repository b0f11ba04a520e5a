//! A table from routes.

use std::sync::Arc;

use super::path::{Matcher, Segment};
use super::plan::{Host, RoutePlan};
use super::table::{Candidates, Keyed, NONE, Node, Regexes, RouteTable, Tier, hash_of};

impl RouteTable {
    /// A table of `routes`, in the order of the configuration. Those with the same host, path,
    /// conditions and priority have been refused before; here the first of them would win.
    pub fn new(routes: impl IntoIterator<Item = Arc<RoutePlan>>) -> RouteTable {
        let mut table = RouteTable::default();
        table.tiers.push(Tier { host: Box::default(), root: NONE, patterns: Vec::new() });
        table.routes = routes.into_iter().collect();
        assert!(table.routes.len() < Candidates::MAX, "routes are fewer than bytes of their file");
        let exact = |route: &&Arc<RoutePlan>| matches!(route.matcher, Matcher::Exact(_));
        let exacts = table.routes.iter().filter(exact);
        let (count, bytes) = exacts
            .fold((0, 0), |(count, bytes), route| (count + 1, bytes + route.matcher.text().len()));
        table.exact.reserve(count, |_| 0);
        table.text.reserve(bytes);
        for number in 0..table.routes.len() as u32 {
            // The list is only lent away from the table while it grows.
            let route = table.routes[number as usize].clone();
            match route.hosts() {
                [] => table.insert(0, number, &route),
                hosts => {
                    for host in hosts {
                        let tier = table.tier(host);
                        table.insert(tier, number, &route);
                    }
                }
            }
        }
        let RouteTable { lists, routes, .. } = &mut table;
        for list in lists {
            // Stable: routes of one priority stay in the order of the configuration.
            list.sort_by_key(|route| routes[*route as usize].priority);
        }
        table
    }

    /// The tier of a host, made where there is none.
    fn tier(&mut self, host: &Host) -> u32 {
        let next = index(self.tiers.len());
        let tier = match host {
            Host::Name(name) => *self.names.entry(name.as_bytes().into()).or_insert(next),
            Host::Wildcard(rest) => {
                let labels = 1 + rest.bytes().filter(|byte| *byte == b'.').count();
                self.wildcard_labels_max = self.wildcard_labels_max.max(labels);
                *self.wildcards.entry(rest.as_bytes().into()).or_insert(next)
            }
        };
        if tier == next {
            let host = host.to_string().into();
            self.tiers.push(Tier { host, root: NONE, patterns: Vec::new() });
        }
        tier
    }

    fn insert(&mut self, tier: u32, number: u32, route: &RoutePlan) {
        match &route.matcher {
            Matcher::Exact(path) => self.insert_exact(tier, path.as_bytes(), number),
            Matcher::Regex(pattern) => self.insert_pattern(tier, pattern.text(), number),
            Matcher::Prefix(_) | Matcher::Segments(_) => {
                let mut node = self.root(tier);
                for segment in route.matcher.segments().into_iter().flatten() {
                    node = match segment {
                        Segment::Literal(text) => self.literal(node, text.as_bytes()),
                        Segment::Param => self.param(node),
                        Segment::Rest => {
                            let rests = self.nodes[node as usize].rests;
                            self.nodes[node as usize].rests = self.with(rests, number);
                            return;
                        }
                    };
                }
                let prefix = matches!(route.matcher, Matcher::Prefix(_));
                let Node { prefixes, ends, .. } = self.nodes[node as usize];
                let candidates = self.with(if prefix { prefixes } else { ends }, number);
                let node = &mut self.nodes[node as usize];
                *(if prefix { &mut node.prefixes } else { &mut node.ends }) = candidates;
            }
        }
    }

    fn insert_exact(&mut self, tier: u32, path: &[u8], route: u32) {
        let hash = self.hash(tier, path);
        let RouteTable { exact, text, .. } = &*self;
        let known = exact.find(hash, |entry| same(entry, text, tier, path));
        let before = known.map_or(Candidates::EMPTY, |entry| entry.value);
        let candidates = self.with(before, route);
        let RouteTable { exact, text, hasher, .. } = self;
        match exact.find_mut(hash, |entry| same(entry, text, tier, path)) {
            Some(entry) => entry.value = candidates,
            None => {
                let entry = keyed(text, tier, path, candidates);
                let rehash = |entry: &Keyed<_>| hash_of(hasher, entry.number, bytes(entry, text));
                exact.insert_unique(hash, entry, rehash);
            }
        }
    }

    fn insert_pattern(&mut self, tier: u32, text: &str, route: u32) {
        let known = self.tiers[tier as usize].patterns.iter().copied().find(|pattern| {
            let first = self.patterns[*pattern as usize].route;
            self.routes[first as usize].matcher.text() == text
        });
        let pattern = known.unwrap_or_else(|| {
            let next = index(self.patterns.len());
            self.patterns.push(Regexes { route, candidates: Candidates::EMPTY });
            self.tiers[tier as usize].patterns.push(next);
            next
        });
        let candidates = self.with(self.patterns[pattern as usize].candidates, route);
        self.patterns[pattern as usize].candidates = candidates;
    }

    fn root(&mut self, tier: u32) -> u32 {
        if self.tiers[tier as usize].root == NONE {
            self.tiers[tier as usize].root = self.node();
        }
        self.tiers[tier as usize].root
    }

    fn param(&mut self, node: u32) -> u32 {
        if self.nodes[node as usize].param == NONE {
            self.nodes[node as usize].param = self.node();
        }
        self.nodes[node as usize].param
    }

    fn literal(&mut self, node: u32, segment: &[u8]) -> u32 {
        let hash = self.hash(node, segment);
        let RouteTable { edges, text, .. } = &*self;
        if let Some(edge) = edges.find(hash, |edge| same(edge, text, node, segment)) {
            return edge.value;
        }
        let child = self.node();
        self.nodes[node as usize].literals = true;
        let RouteTable { edges, text, hasher, .. } = self;
        let edge = keyed(text, node, segment, child);
        edges.insert_unique(hash, edge, |edge| hash_of(hasher, edge.number, bytes(edge, text)));
        child
    }

    fn node(&mut self) -> u32 {
        let empty = Candidates::EMPTY;
        let node =
            Node { literals: false, param: NONE, ends: empty, rests: empty, prefixes: empty };
        self.nodes.push(node);
        index(self.nodes.len() - 1)
    }

    /// `candidates` and one more route.
    fn with(&mut self, candidates: Candidates, route: u32) -> Candidates {
        if candidates == Candidates::EMPTY {
            let conditional = !self.routes[route as usize].conditions().is_empty();
            return Candidates::one(route, conditional);
        }
        let list = candidates.as_list().unwrap_or_else(|| {
            self.lists.push(candidates.as_one().into_iter().collect());
            index(self.lists.len() - 1)
        });
        self.lists[list as usize].push(route);
        Candidates::list(list)
    }
}

fn bytes<'t, T>(entry: &Keyed<T>, text: &'t [u8]) -> &'t [u8] {
    &text[entry.start as usize..][..entry.length as usize]
}

fn same<T>(entry: &Keyed<T>, text: &[u8], number: u32, key: &[u8]) -> bool {
    entry.number == number && bytes(entry, text) == key
}

fn keyed<T>(text: &mut Vec<u8>, number: u32, key: &[u8], value: T) -> Keyed<T> {
    let start = index(text.len());
    text.extend_from_slice(key);
    Keyed { number, start, length: index(key.len()), value }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("a configuration has fewer bytes")
}
