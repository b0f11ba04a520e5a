//! Run-time state of an upstream and its endpoints on one core.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::balance::RoundRobin;
use super::budget::Budget;
use super::bulkhead::Bulkhead;
use super::connect::Spoken;
use super::plan::{EndpointAddress, EndpointId, EndpointPlan, Protocol, UpstreamId, UpstreamPlan};
use super::pool::Pool;
use super::shared::SharedPool;
use super::standing::Standing;
use crate::context::RetryPlan;
use crate::error::ErrorKind;
use crate::io::Stream;
use crate::limits::POOL_IDLE_DEFAULT;
use crate::observe::WorkerCounters;

/// An upstream as this core sees it. Its endpoints keep their state over reloads.
pub struct Upstream {
    /// Identity over reloads.
    pub id: UpstreamId,
    /// Name in the configuration.
    pub name: Box<str>,
    settings: RefCell<Rc<Settings>>,
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    balance: RefCell<RoundRobin>,
    /// Places for its requests in flight.
    pub bulkhead: Bulkhead,
    standing: Cell<Standing>,
    /// What its requests may cost it that are tried again.
    pub budget: Budget,
}

/// An endpoint as this core sees it: what a configuration says of it, and its state.
pub struct Endpoint {
    /// Identity over reloads.
    pub id: EndpointId,
    /// What the configuration says of it.
    pub plan: EndpointPlan,
    state: Rc<EndpointState>,
}

/// What an endpoint keeps over reloads, whatever is said of it.
pub struct EndpointState {
    /// Addresses of its name; one if it is an address already.
    addresses: RefCell<Vec<SocketAddr>>,
    next_address: Cell<usize>,
    /// Its connections that wait for a request.
    pub(super) pool: Pool,
    /// Its connections that many requests share.
    pub(super) shared: SharedPool,
    /// What was spoken on its last connection.
    spoken: Cell<Option<Spoken>>,
    /// Whether its last answer was too large for a head buffer: the next is read into a larger one.
    pub large_answers: Cell<bool>,
    /// Counters of the core.
    pub(super) counters: Arc<WorkerCounters>,
    /// How much of its share it takes, as the control thread says.
    pub(super) standing: Cell<Standing>,
}

/// The numbers of an [`UpstreamPlan`], shared by this core's requests without an atomic count.
#[derive(Debug)]
pub struct Settings {
    /// See [`UpstreamPlan::connect_timeout_ms`].
    pub connect_timeout_ms: u64,
    /// See [`UpstreamPlan::response_timeout_ms`].
    pub response_timeout_ms: u64,
    /// See [`UpstreamPlan::body_timeout_ms`].
    pub body_timeout_ms: u64,
    /// See [`UpstreamPlan::tunnel_timeout_ms`].
    pub tunnel_timeout_ms: u64,
    /// See [`UpstreamPlan::tunnel_total_timeout_ms`].
    pub tunnel_total_timeout_ms: Option<u64>,
    /// See [`UpstreamPlan::idle_connections_max`].
    pub idle_connections_max: usize,
    /// See [`UpstreamPlan::retry`].
    pub retry: RetryPlan,
}

impl Settings {
    fn of(plan: &UpstreamPlan) -> Settings {
        Settings {
            connect_timeout_ms: plan.connect_timeout_ms,
            response_timeout_ms: plan.response_timeout_ms,
            body_timeout_ms: plan.body_timeout_ms,
            tunnel_timeout_ms: plan.tunnel_timeout_ms,
            tunnel_total_timeout_ms: plan.tunnel_total_timeout_ms,
            idle_connections_max: plan.idle_connections_max,
            retry: plan.retry,
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.name)
    }
}

impl Upstream {
    /// An upstream without endpoints; [`Upstream::apply`] gives it some.
    pub fn new(plan: &UpstreamPlan) -> Rc<Upstream> {
        Rc::new(Upstream {
            id: plan.id,
            name: plan.name.clone(),
            settings: RefCell::new(Rc::new(Settings::of(plan))),
            endpoints: RefCell::default(),
            balance: RefCell::default(),
            bulkhead: Bulkhead::default(),
            standing: Cell::default(),
            budget: Budget::default(),
        })
    }

    /// Takes a plan over. `endpoints` are those of the plan, in its order.
    /// [`Bulkhead::configure`] takes its places over.
    pub fn apply(&self, plan: &UpstreamPlan, endpoints: Vec<Rc<Endpoint>>) {
        let same = {
            let before = self.endpoints.borrow();
            before.len() == endpoints.len()
                && before.iter().zip(&endpoints).all(|(a, b)| a.id == b.id)
        };
        let weights = plan.endpoints.iter().map(|endpoint| endpoint.weight);
        if !same || !self.balance.borrow().has_weights(weights.clone()) {
            self.balance.replace(RoundRobin::new(weights));
        }
        self.budget.set_percent(plan.budget_percent);
        self.endpoints.replace(endpoints);
        self.settings.replace(Rc::new(Settings::of(plan)));
    }

    /// Takes over what the control thread says of it.
    pub fn set_standing(&self, standing: Standing) {
        self.standing.set(standing);
    }

    /// Its timeouts and bounds.
    #[inline]
    pub fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    /// Another endpoint than the one that could not be reached, if there is one; only of `zone`,
    /// where one is given.
    pub fn pick_other(&self, failed: EndpointId, zone: Option<&str>) -> Option<Rc<Endpoint>> {
        self.choose(zone, |endpoint| endpoint.id != failed)
    }

    /// The endpoint for the next request; only of `zone`, where one is given (R17).
    ///
    /// # Errors
    /// [`ErrorKind::NoEndpoint`] when none has an address.
    pub fn pick(&self, zone: Option<&str>) -> Result<Rc<Endpoint>, ErrorKind> {
        self.choose(zone, |_| true).ok_or(ErrorKind::NoEndpoint)
    }

    fn choose(
        &self,
        zone: Option<&str>,
        usable: impl Fn(&Endpoint) -> bool,
    ) -> Option<Rc<Endpoint>> {
        let endpoints = self.endpoints.borrow();
        let usable = |index: usize| {
            let endpoint: &Endpoint = &endpoints[index];
            let here = zone.is_none() || endpoint.plan.zone.as_deref() == zone;
            here && endpoint.is_reachable() && usable(endpoint)
        };
        self.balance.borrow_mut().pick(usable).map(|index| endpoints[index].clone())
    }
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(plan: EndpointPlan, counters: Arc<WorkerCounters>) -> Rc<Endpoint> {
        let addresses = match &plan.address {
            EndpointAddress::Socket(address) => vec![*address],
            EndpointAddress::Name(..) | EndpointAddress::Unix(_) => Vec::new(),
        };
        Rc::new(Endpoint {
            id: plan.id,
            plan,
            state: Rc::new(EndpointState {
                addresses: RefCell::new(addresses),
                next_address: Cell::new(0),
                pool: Pool::default(),
                shared: SharedPool::default(),
                spoken: Cell::default(),
                large_answers: Cell::new(false),
                counters,
                standing: Cell::default(),
            }),
        })
    }

    /// The same endpoint with the same state, of which the configuration says this now. Requests
    /// that are under way keep what was said before.
    pub fn renewed(self: Rc<Self>, plan: &EndpointPlan) -> Rc<Endpoint> {
        assert_eq!(self.id, plan.id, "an endpoint keeps its identity");
        if self.plan.authority == plan.authority && self.plan.zone == plan.zone {
            return self;
        }
        Rc::new(Endpoint { id: self.id, plan: plan.clone(), state: self.state.clone() })
    }

    /// Takes over what the control thread says of it.
    pub fn set_standing(&self, standing: Standing) {
        self.standing.set(standing);
    }

    /// Takes over what its name resolved to. Connections to an address that has gone are closed
    /// when they are next idle.
    pub fn set_addresses(&self, addresses: &[SocketAddr]) {
        if *self.addresses.borrow() != addresses {
            self.addresses.replace(addresses.to_vec());
            self.pool.clear(&self.counters);
            self.shared.clear();
        }
    }

    /// What will be spoken on its next connection, as far as one can tell.
    pub(super) fn spoken(&self) -> Spoken {
        match self.plan.protocol {
            Protocol::Http1 => Spoken::Http1,
            Protocol::Http2 => Spoken::Http2,
            Protocol::Auto => self.spoken.get().unwrap_or(Spoken::Http2),
        }
    }

    /// What it has chosen to speak.
    pub(super) fn set_spoken(&self, spoken: Spoken) {
        self.spoken.set(Some(spoken));
    }

    /// Keeps a connection that was made for others than who asked for it.
    pub(super) fn keep_fresh(&self, stream: Stream) {
        self.pool.put_fresh(stream, POOL_IDLE_DEFAULT, &self.counters);
    }

    /// Addresses to try in turn, beginning where the last turn ended.
    pub(super) fn next_address(&self) -> Option<SocketAddr> {
        let addresses = self.addresses.borrow();
        let turn = self.next_address.get();
        self.next_address.set(turn.wrapping_add(1));
        addresses.get(turn % addresses.len().max(1)).copied()
    }

    /// How many addresses it has.
    pub(super) fn address_count(&self) -> usize {
        self.addresses.borrow().len()
    }

    fn is_reachable(&self) -> bool {
        matches!(self.plan.address, EndpointAddress::Unix(_)) || self.address_count() > 0
    }

    /// Closes idle connections that are too old or no longer alive, and of those that are shared the
    /// ones beyond `idle_max`; looks at no more than `peeks_max`. Returns how many it looked at.
    pub fn sweep(&self, now_ms: u64, terms: &UpstreamPlan, peeks_max: usize) -> usize {
        if self.plan.protocol != Protocol::Http1 {
            self.shared.sweep(now_ms, terms.idle_timeout_ms, terms.idle_connections_max);
        }
        self.pool.sweep(now_ms, terms.idle_timeout_ms, peeks_max, &self.counters)
    }

    /// Closes all idle connections; busy ones end when they are given back.
    pub fn retire(&self) {
        self.pool.close(&self.counters);
        self.shared.close();
    }
}

impl std::ops::Deref for Endpoint {
    type Target = EndpointState;

    #[inline]
    fn deref(&self) -> &EndpointState {
        &self.state
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::upstream::Tallies;

    pub(in crate::upstream) fn plan(weights: &[u32]) -> UpstreamPlan {
        let endpoint = |(index, weight): (usize, &u32)| EndpointPlan {
            id: EndpointId(index as u32),
            tallies: Tallies::default(),
            address: EndpointAddress::Unix("/nowhere".into()),
            tls: None,
            protocol: Protocol::Http1,
            authority: "unix:/nowhere".into(),
            weight: *weight,
            zone: None,
        };
        UpstreamPlan {
            id: UpstreamId(0),
            name: "app".into(),
            endpoints: weights.iter().enumerate().map(endpoint).collect(),
            tls: None,
            connect_timeout_ms: 1,
            response_timeout_ms: 1,
            body_timeout_ms: 1,
            idle_timeout_ms: 1,
            tunnel_timeout_ms: 1,
            tunnel_total_timeout_ms: None,
            in_flight_max: 0,
            concurrency: None,
            queue_length_max: 0,
            queue_timeout_ms: 1,
            idle_connections_max: 1,
            retry: RetryPlan::default(),
            budget_percent: 20,
        }
    }

    /// R17: a zone limits the endpoints, and shares inside it follow their weights.
    #[test]
    fn a_zone_limits_the_endpoints() {
        let counters = Arc::new(WorkerCounters::default());
        let mut plan = plan(&[1, 3, 1, 1]);
        for (endpoint, zone) in plan.endpoints.iter_mut().zip(["a", "b", "b", ""]) {
            endpoint.zone = Some(zone).filter(|zone| !zone.is_empty()).map(Box::from);
        }
        let upstream = Upstream::new(&plan);
        let endpoint = |plan: &EndpointPlan| Endpoint::new(plan.clone(), counters.clone());
        upstream.apply(&plan, plan.endpoints.iter().map(endpoint).collect());
        let mut counts = [0; 4];
        for _ in 0..8 {
            counts[upstream.pick(Some("b")).expect("two are there").id.0 as usize] += 1;
        }
        assert_eq!(counts, [0, 6, 2, 0]);
        assert_eq!(upstream.pick(Some("c")).err(), Some(ErrorKind::NoEndpoint));
        let other = |failed, zone| upstream.pick_other(EndpointId(failed), zone).map(|e| e.id);
        assert_eq!(other(0, Some("a")), None);
        assert_eq!(other(1, Some("b")), Some(EndpointId(2)));
        assert!(other(1, None).is_some_and(|id| id != EndpointId(1)));
    }

    /// What a reload says of an endpoint holds, and its state stays.
    #[test]
    fn a_renewed_endpoint_keeps_its_state() {
        let first = plan(&[1]).endpoints.remove(0);
        let endpoint = Endpoint::new(first.clone(), Arc::new(WorkerCounters::default()));
        assert!(Rc::ptr_eq(&endpoint, &endpoint.clone().renewed(&first)), "nothing is new");
        endpoint.large_answers.set(true);
        for (authority, zone) in [("unix:/nowhere", Some("a")), ("unix:/Nowhere", None)] {
            let said = EndpointPlan {
                authority: authority.into(),
                zone: zone.map(Box::from),
                ..first.clone()
            };
            let renewed = endpoint.clone().renewed(&said);
            assert_eq!((&*renewed.plan.authority, renewed.plan.zone.as_deref()), (authority, zone));
            assert!(renewed.large_answers.get() && Rc::ptr_eq(&renewed.state, &endpoint.state));
        }
    }

    #[test]
    fn weights_that_come_back_count_again() {
        let counters = Arc::new(WorkerCounters::default());
        let first = plan(&[1, 1]);
        let endpoint = |plan: &EndpointPlan| Endpoint::new(plan.clone(), counters.clone());
        let endpoints: Vec<_> = first.endpoints.iter().map(endpoint).collect();
        let upstream = Upstream::new(&first);
        for (weights, share) in [([1, 1], 2), ([1, 3], 3), ([1, 1], 2)] {
            upstream.apply(&plan(&weights), endpoints.clone());
            let picks = (0..4).map(|_| upstream.pick(None).expect("both are reachable").id);
            assert_eq!(picks.filter(|id| *id == EndpointId(1)).count(), share, "{weights:?}");
        }
    }
}
