//! Identities that outlive reloads.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Discovered;
use crate::filter::{FilterId, Kept};
use crate::limits::DISCOVERY_GONE_MAX;
use crate::observe::Names;
use crate::route::RouteId;
use crate::tls;
use crate::upstream::balance::{HashTable, Seat};
use crate::upstream::{EndpointAddress, EndpointId, Outgoing, Protocol, Tallies, UpstreamId};

/// Identity of a listener: its name and its address as configured, so that one whose port the system
/// chose keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// Hands out ids: what stays has the same id in the next snapshot, and no id ever means another
/// thing. Numbers come from counters and are not used again.
///
/// Known are the ids of the snapshot in force and of the one that was compiled last
/// ([`Ids::keep_only`]), so that names that come and go take no memory.
#[derive(Debug, Default)]
pub struct Ids {
    listeners: Given<(Box<str>, SocketAddr)>,
    upstreams: Given<Box<str>>,
    routes: Given<Box<str>>,
    filters: Given<Box<str>>,
    endpoints: Given<(UpstreamId, EndpointAddress, Spoken)>,
    tallies: HashMap<EndpointId, Tallies>,
    hash_tables: HashMap<UpstreamId, Arc<HashTable>>,
    /// Discovered endpoints that have gone and may come back, the longest gone first.
    gone: VecDeque<EndpointId>,
    /// The endpoints that are known of upstreams that discover theirs.
    pub discovered: Discovered,
    /// State of filters.
    pub kept: Kept,
    /// Ticket keys and sessions to upstreams.
    pub tls: tls::Kept,
}

impl Ids {
    /// The id of the listener called `name` at `address`.
    pub fn listener(&mut self, name: &str, address: SocketAddr) -> ListenerId {
        ListenerId(self.listeners.of((name.into(), address)))
    }

    /// The id of the upstream called `name`.
    pub fn upstream(&mut self, name: &str) -> UpstreamId {
        UpstreamId(self.upstreams.of(name.into()))
    }

    /// The id of the route called `name`.
    pub fn route(&mut self, name: &str) -> RouteId {
        RouteId(self.routes.of(name.into()))
    }

    /// The id of the filter called `name`.
    pub fn filter(&mut self, name: &str) -> FilterId {
        FilterId(self.filters.of(name.into()))
    }

    /// The id of the endpoint at `address` of an upstream, which is spoken to in this way.
    pub fn endpoint(
        &mut self,
        upstream: UpstreamId,
        address: &EndpointAddress,
        spoken: Spoken,
    ) -> EndpointId {
        EndpointId(self.endpoints.of((upstream, address.clone(), spoken)))
    }

    /// Where the workers count what becomes of tries at an endpoint.
    pub fn tallies(&mut self, endpoint: EndpointId) -> Tallies {
        self.tallies.entry(endpoint).or_default().clone()
    }

    /// Where the keys of an upstream's requests fall to: made anew only where its endpoints or their
    /// weights are others.
    pub fn hash_table(&mut self, upstream: UpstreamId, seats: Vec<Seat>) -> Arc<HashTable> {
        match self.hash_tables.get(&upstream) {
            Some(table) if table.is_of(&seats) => table.clone(),
            _ => {
                let table = Arc::new(HashTable::new(seats));
                self.hash_tables.insert(upstream, table.clone());
                table
            }
        }
    }

    /// Forgets everything that the snapshot in force, which these are the names of, does not use:
    /// what came in with one that was compiled and then could not take force, and what was in force
    /// before. Comes before a compilation.
    pub fn keep_only(&mut self, in_force: &Names) {
        self.listeners.retain(|id| in_force.listeners.holds(id));
        self.upstreams.retain(|id| in_force.upstreams.holds(id));
        self.routes.retain(|id| in_force.routes.holds(id));
        self.filters.retain(|id| in_force.filters.holds(id));
        let gone = &self.gone;
        let known = |id| in_force.endpoints.holds(id) || gone.contains(&EndpointId(id));
        self.endpoints.retain(known);
        self.tallies.retain(|id, _| known(id.0));
        self.hash_tables.retain(|id, _| in_force.upstreams.holds(id.0));
    }

    /// Keeps the id of a discovered endpoint that has gone: those of a service that is restarted one by
    /// one come back.
    pub(super) fn has_gone(&mut self, endpoint: EndpointId) {
        self.gone.retain(|known| *known != endpoint);
        self.gone.push_back(endpoint);
        if self.gone.len() > DISCOVERY_GONE_MAX {
            self.gone.pop_front();
        }
    }

    /// How many things have an id, of all kinds.
    pub fn count(&self) -> usize {
        let names = self.upstreams.ids.len() + self.routes.ids.len() + self.filters.ids.len();
        self.listeners.ids.len() + self.endpoints.ids.len() + names
    }

    /// A compilation begins.
    pub(super) fn begin(&mut self) {
        self.listeners.begin();
        self.upstreams.begin();
        self.routes.begin();
        self.filters.begin();
        self.endpoints.begin();
        self.kept.forget_made();
    }

    /// What is being compiled is refused: what came in with it never was.
    pub(super) fn refuse(&mut self) {
        self.listeners.refuse();
        self.upstreams.refuse();
        self.routes.refuse();
        self.filters.refuse();
        self.endpoints.refuse();
        self.kept.forget_made();
    }
}

/// The protocol, over TLS [`tls::ClientTls::identity`] and the host that the certificate is for, and how
/// connections are made. Two names may have one address, and what one of them proved is nothing for the
/// other.
type Spoken = (Protocol, Option<([u8; 32], Box<str>)>, Outgoing);

/// The ids of one kind of thing.
#[derive(Debug)]
struct Given<K> {
    ids: HashMap<K, u32>,
    next: u32,
    /// The first of the compilation that goes on, or was the last.
    first_new: u32,
}

impl<K: Eq + Hash> Given<K> {
    fn of(&mut self, key: K) -> u32 {
        *self.ids.entry(key).or_insert_with(|| {
            let id = self.next;
            self.next = id.checked_add(1).expect("a restart before four billion names");
            id
        })
    }

    fn begin(&mut self) {
        self.first_new = self.next;
    }

    fn refuse(&mut self) {
        let first_new = self.first_new;
        if self.next > first_new {
            self.retain(|id| id < first_new);
        }
    }

    fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.ids.retain(|_, id| keep(*id));
        if self.ids.capacity() > 4 * self.ids.len() {
            self.ids.shrink_to(2 * self.ids.len());
        }
    }
}

impl<K> Default for Given<K> {
    fn default() -> Given<K> {
        Given { ids: HashMap::new(), next: 0, first_new: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Matched, RequestContext};
    use crate::filter::testing::call;
    use crate::filter::{Call, Verdict};
    use crate::snapshot::{Snapshot, compile};

    #[test]
    fn an_identity_keeps_its_id_and_no_other_gets_it() {
        let mut ids = Ids::default();
        let at = |port| EndpointAddress::Name("a".into(), port);
        let (one, two) = (ids.upstream("one"), ids.upstream("two"));
        assert_ne!(one, two);
        assert_eq!(ids.upstream("one"), one);
        let plain = Outgoing::default();
        let clear = (Protocol::Http1, None, plain);
        let over_tls = |host: &str| (Protocol::Http1, Some(([0; 32], host.into())), plain);
        let told = Outgoing { send_proxy: Some(crate::proxy_protocol::Version::V1), ..plain };
        let first = ids.endpoint(one, &at(1), clear.clone());
        assert_ne!(ids.endpoint(two, &at(1), clear.clone()), first, "another upstream");
        assert_ne!(ids.endpoint(one, &at(2), clear.clone()), first, "another address");
        assert_ne!(
            ids.endpoint(one, &at(1), (Protocol::Http2, None, plain)),
            first,
            "another protocol"
        );
        assert_ne!(
            ids.endpoint(one, &at(1), (Protocol::Http1, None, told)),
            first,
            "with a header"
        );
        let tls = ids.endpoint(one, &at(1), over_tls("a.test"));
        assert_ne!(tls, first, "over TLS");
        assert_ne!(ids.endpoint(one, &at(1), over_tls("b.test")), tls, "of another name");
        assert_eq!(ids.endpoint(one, &at(1), clear.clone()), first);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let public = ids.listener("public", address(80));
        assert_ne!(ids.listener("public", address(81)), public, "another address");
        assert_ne!(ids.listener("other", address(80)), public, "another name");
        assert_eq!(ids.listener("public", address(80)), public);
    }

    #[test]
    fn what_nobody_uses_is_forgotten_and_its_id_is_not_given_again() {
        let mut ids = Ids::default();
        let (stays, goes) = (ids.route("stays"), ids.route("goes"));
        let mut in_force = Names::default();
        in_force.routes.set(stays.0, "stays".into());
        ids.keep_only(&in_force);
        assert_eq!(ids.count(), 1);
        ids.begin();
        let refused = ids.route("refused");
        assert_eq!(ids.route("stays"), stays);
        ids.refuse();
        assert_eq!(ids.count(), 1);
        ids.begin();
        let again = ids.route("goes");
        assert!(![stays, goes, refused].contains(&again));
        assert_eq!(ids.route("stays"), stays);
    }

    const REST: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n[upstream.u]\n\
        endpoints = [{ address = \"127.0.0.1:9\" }]\n";

    /// One limited route; whether it lets another request through is its state.
    fn limited(filter: &str) -> String {
        format!(
            "{REST}[[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n\
             filters = [{{ kind = \"rate_limit\", key = \"route\", rate = \"{filter}\" }}]\n"
        )
    }

    fn passes(snapshot: &Snapshot) -> bool {
        let (mut context, _) =
            RequestContext::of_head(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("valid");
        let verdict = snapshot.filters[0].filter.on_request(&mut Call {
            route: Matched { route: "r", ..Matched::default() },
            ..call(&mut context)
        });
        matches!(verdict, Verdict::Continue)
    }

    #[test]
    fn state_of_a_filter_that_stays_is_kept_over_what_was_refused_between() {
        let mut ids = Ids::default();
        let (first, _) = compile(&limited("1/h"), &mut ids, 1).expect("taken");
        assert!(passes(&first));
        let other = limited("1/h").replace("\"r\"", "\"q\"");
        let refused = limited("1/h") + "[[route]]\nid = \"new\"\n";
        for between in [refused, limited("nonsense"), other.clone()] {
            ids.keep_only(&first.names);
            let count = ids.count();
            match compile(&between, &mut ids, 2) {
                // What it compiled to cannot take force.
                Ok((snapshot, _)) => assert!(ids.count() > count && passes(&snapshot)),
                Err(_) => assert_eq!(ids.count(), count, "nothing came in"),
            }
        }
        ids.keep_only(&first.names);
        let (second, _) = compile(&limited("2/h"), &mut ids, 2).expect("taken");
        assert_eq!(first.filters[0].id, second.filters[0].id);
        assert_eq!(first.plans[0].number, second.plans[0].number);
        assert!(!passes(&second), "what was spent is spent");
        drop(first);
        ids.keep_only(&second.names);
        assert!(!passes(&compile(&limited("1/h"), &mut ids, 3).expect("taken").0));
    }
}
