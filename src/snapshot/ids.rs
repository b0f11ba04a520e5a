//! Identities that outlive reloads.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::filter::{FilterId, Kept};
use crate::route::RouteId;
use crate::upstream::{EndpointAddress, EndpointId, UpstreamId};

/// Identity of a listener: its name and its address as configured, so that one whose port the system
/// chose keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// Hands out ids: the same thing has the same id in every snapshot, and no id ever means another
/// thing. Numbers are dense and not used again.
#[derive(Debug, Default)]
pub struct Ids {
    listeners: HashMap<(Box<str>, SocketAddr), ListenerId>,
    upstreams: HashMap<Box<str>, UpstreamId>,
    routes: HashMap<Box<str>, RouteId>,
    filters: HashMap<Box<str>, FilterId>,
    /// State of filters.
    pub kept: Kept,
    endpoints: HashMap<(UpstreamId, EndpointAddress), EndpointId>,
}

impl Ids {
    /// The id of the listener called `name` at `address`.
    pub fn listener(&mut self, name: &str, address: SocketAddr) -> ListenerId {
        let next = ListenerId(dense(self.listeners.len()));
        *self.listeners.entry((name.into(), address)).or_insert(next)
    }

    /// The id of the upstream called `name`.
    pub fn upstream(&mut self, name: &str) -> UpstreamId {
        let next = UpstreamId(dense(self.upstreams.len()));
        *self.upstreams.entry(name.into()).or_insert(next)
    }

    /// The id of the route called `name`.
    pub fn route(&mut self, name: &str) -> RouteId {
        let next = RouteId(dense(self.routes.len()));
        *self.routes.entry(name.into()).or_insert(next)
    }

    /// The id of the filter called `name`.
    pub fn filter(&mut self, name: &str) -> FilterId {
        let next = FilterId(dense(self.filters.len()));
        *self.filters.entry(name.into()).or_insert(next)
    }

    /// The id of the endpoint at `address` of an upstream.
    pub fn endpoint(&mut self, upstream: UpstreamId, address: &EndpointAddress) -> EndpointId {
        let next = EndpointId(dense(self.endpoints.len()));
        *self.endpoints.entry((upstream, address.clone())).or_insert(next)
    }
}

fn dense(length: usize) -> u32 {
    u32::try_from(length).expect("fewer identities than bytes of configuration read so far")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_its_id_and_no_other_gets_it() {
        let mut ids = Ids::default();
        let at = |port| EndpointAddress::Name("a".into(), port);
        let (one, two) = (ids.upstream("one"), ids.upstream("two"));
        assert_ne!(one, two);
        assert_eq!(ids.upstream("one"), one);
        let first = ids.endpoint(one, &at(1));
        assert_ne!(ids.endpoint(two, &at(1)), first, "another upstream");
        assert_ne!(ids.endpoint(one, &at(2)), first, "another address");
        assert_eq!(ids.endpoint(one, &at(1)), first);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let public = ids.listener("public", address(80));
        assert_ne!(ids.listener("public", address(81)), public, "another address");
        assert_ne!(ids.listener("other", address(80)), public, "another name");
        assert_eq!(ids.listener("public", address(80)), public);
    }
}
