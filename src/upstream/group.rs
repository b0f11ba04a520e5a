//! Run-time state of an upstream and its endpoints on one core.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::balance::Policy;
use super::balance::ewma::PeakEwma;
use super::budget::Budget;
use super::bulkhead::Bulkhead;
use super::connect::Spoken;
use super::incident::Incidents;
use super::members::{Members, Wish};
use super::plan::{
    BalancePlan, EndpointAddress, EndpointId, EndpointPlan, Protocol, UpstreamId, UpstreamPlan,
};
use super::pool::Pool;
use super::shared::SharedPool;
use super::standing::{Standing, Tally};
use super::trial::{Cuts, LetIn, Trials};
use crate::base::random::Random;
use crate::context::RetryPlan;
use crate::error::ErrorKind;
use crate::io::Stream;
use crate::limits::{EWMA_FAILURE_US, POOL_IDLE_DEFAULT};
use crate::observe::WorkerCounters;

/// An upstream as this core sees it. Its endpoints keep their state over reloads.
pub struct Upstream {
    /// Identity over reloads.
    pub id: UpstreamId,
    /// Name in the configuration.
    pub name: Box<str>,
    settings: RefCell<Rc<Settings>>,
    members: RefCell<Members>,
    random: Random,
    /// Places for its requests in flight.
    pub bulkhead: Bulkhead,
    /// What its requests may cost it that are tried again.
    pub budget: Budget,
    /// How much of its requests it takes, as the control thread says.
    pub(super) trials: Trials,
    /// Endpoints that are isolated on this worker.
    isolated: Cell<u32>,
}

/// What became of one try at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer that is no failure; the time to its head, in microseconds, where it is known.
    Succeeded(Option<u64>),
    /// No answer, none in time, or that of a failed gateway.
    Failed,
    /// The same, by what failed other tries at once; `first` is the one that counts for it.
    FailedTogether {
        /// Whether none was counted before.
        first: bool,
    },
    /// It says nothing of the endpoint.
    Neither,
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
    in_flight: Cell<u32>,
    /// Of these, how many are to see whether it has recovered.
    probes: Cell<u32>,
    /// Failures in a row.
    failures: Cell<u32>,
    /// Tries that were cut off for a hedge.
    pub(super) cuts: Cuts,
    let_in: LetIn,
    /// Failures of many requests at once.
    incidents: Cell<Incidents>,
    /// Until when it is isolated on this worker for those.
    isolated_until_ms: Cell<Option<u64>>,
    latency: Cell<PeakEwma>,
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
    /// See [`UpstreamPlan::balance`].
    pub balance: Arc<BalancePlan>,
    /// Failures in a row that isolate an endpoint at once, 0 where none do.
    pub consecutive: u32,
    /// For how long at most.
    pub open_ms: u64,
    /// See [`super::plan::BreakerPlan::adaptive`].
    pub adaptive: bool,
    /// How long failures count.
    pub window_ms: u64,
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
            balance: plan.balance.clone(),
            consecutive: plan.breaker.endpoint.consecutive,
            open_ms: plan.breaker.open_ms,
            adaptive: plan.breaker.adaptive && !plan.breaker.is_off(),
            window_ms: plan.breaker.window_ms,
            retry: plan.retry,
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.name)
    }
}

/// A try in flight at an endpoint, until it is dropped.
pub struct Busy<'a>(&'a EndpointState);

impl Upstream {
    /// An upstream without endpoints; [`Upstream::apply`] gives it some.
    pub fn new(plan: &UpstreamPlan) -> Rc<Upstream> {
        Rc::new(Upstream {
            id: plan.id,
            name: plan.name.clone(),
            settings: RefCell::new(Rc::new(Settings::of(plan))),
            members: RefCell::default(),
            random: Random::new(),
            bulkhead: Bulkhead::default(),
            budget: Budget::default(),
            trials: Trials::default(),
            isolated: Cell::new(0),
        })
    }

    /// Takes a plan over. `endpoints` are those of the plan, in its order; `worker` is which of how
    /// many. [`Bulkhead::configure`] takes its places over.
    pub fn apply(&self, plan: &UpstreamPlan, endpoints: Vec<Rc<Endpoint>>, worker: (usize, usize)) {
        self.budget.set_percent(plan.budget_percent);
        let isolated = endpoints.iter().filter(|endpoint| endpoint.is_isolated()).count();
        self.isolated.set(u32::try_from(isolated).expect("at most ENDPOINTS_MAX"));
        self.members.borrow_mut().apply(plan, endpoints, worker);
        self.settings.replace(Rc::new(Settings::of(plan)));
    }

    /// Takes over what the control thread says of it. Comes after what it says of its endpoints.
    pub fn set_standing(&self, standing: Standing) {
        let before = self.trials.standing.replace(standing);
        self.trials.let_in.follow(before, standing);
    }

    /// Takes over what its endpoints take now.
    pub fn refresh(&self) {
        let mut members = self.members.borrow_mut();
        let isolated = members.endpoints().iter().filter(|it| it.is_isolated()).count();
        self.isolated.set(u32::try_from(isolated).expect("at most ENDPOINTS_MAX"));
        members.refresh();
    }

    /// The same, where some of `changed` are its own.
    pub fn refresh_for(&self, changed: &BTreeSet<EndpointId>) {
        let own = |it: &Rc<Endpoint>| changed.contains(&it.id);
        if self.members.borrow().endpoints().iter().any(own) {
            self.refresh();
        }
    }

    /// Lets endpoints back in whose isolation has lasted long enough.
    pub fn sweep(&self, now_ms: u64) {
        if self.isolated.get() == 0 {
            return;
        }
        let is_over =
            |it: &&Rc<Endpoint>| it.isolated_until_ms.get().is_some_and(|at| at <= now_ms);
        let over = {
            let members = self.members.borrow();
            let over = members.endpoints().iter().filter(is_over);
            over.map(|endpoint| endpoint.isolated_until_ms.set(None)).count()
        };
        if over > 0 {
            self.refresh();
        }
    }

    /// Counts what became of a try at one of its endpoints; a run of failures isolates it at once.
    pub fn finish(&self, endpoint: &Endpoint, outcome: Outcome, tally: &Tally, now_ms: u64) {
        let settings = self.settings.borrow();
        match outcome {
            Outcome::Neither => {}
            Outcome::Succeeded(head_us) => {
                tally.succeeded.increment();
                endpoint.failures.set(0);
                endpoint.cuts.in_a_row.set(0);
                if let (Some(us), true) = (head_us, settings.adaptive) {
                    tally.head_took(us);
                }
                if let (Some(us), Policy::Ewma) = (head_us, settings.balance.policy) {
                    endpoint.observe(us, now_ms);
                }
            }
            Outcome::Failed => {
                tally.failed.increment();
                self.fail(endpoint, tally, now_ms);
            }
            Outcome::FailedTogether { first } => {
                let mut incidents = endpoint.incidents.get();
                tally.failed.add(incidents.count(first, now_ms, settings.window_ms));
                endpoint.incidents.set(incidents);
                if first {
                    self.fail(endpoint, tally, now_ms);
                }
            }
        }
    }

    /// A try at one of its endpoints was cut off after so many microseconds: it would have taken longer.
    pub fn cut_off(&self, endpoint: &Endpoint, us: u64, now_ms: u64) {
        endpoint.cuts.in_a_row.set(endpoint.cuts.in_a_row.get().saturating_add(1));
        if self.settings.borrow().balance.policy == Policy::Ewma {
            endpoint.observe(us, now_ms);
        }
    }

    /// One failure more in a row.
    fn fail(&self, endpoint: &Endpoint, tally: &Tally, now_ms: u64) {
        let settings = self.settings.borrow();
        endpoint.failures.set(endpoint.failures.get().saturating_add(1));
        endpoint.observe(EWMA_FAILURE_US, now_ms);
        let run = settings.consecutive > 0 && endpoint.failures.get() >= settings.consecutive;
        if run && !endpoint.is_isolated() && self.members.borrow().may_isolate(endpoint.id) {
            tally.isolated.increment();
            endpoint.isolated_until_ms.set(Some(now_ms + settings.open_ms));
            self.refresh();
        }
    }

    /// Whether anything depends on how long answers take.
    #[inline]
    pub fn wants_times(&self) -> bool {
        let settings = self.settings.borrow();
        settings.adaptive || settings.balance.policy == Policy::Ewma
    }

    /// Its timeouts and bounds.
    #[inline]
    pub fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    /// The endpoint for a request.
    ///
    /// # Errors
    /// [`ErrorKind::NoEndpoint`] when none of those that it may go to is usable.
    pub fn pick(&self, wish: &Wish<'_>) -> Result<Rc<Endpoint>, ErrorKind> {
        let mut members = self.members.borrow_mut();
        let in_flight = self.bulkhead.taken().max(1);
        let picked = members.pick(wish, in_flight, &self.random).ok_or(ErrorKind::NoEndpoint)?;
        Ok(members.endpoints()[picked].clone())
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
                in_flight: Cell::default(),
                probes: Cell::default(),
                failures: Cell::default(),
                cuts: Cuts::default(),
                let_in: LetIn::default(),
                incidents: Cell::default(),
                isolated_until_ms: Cell::default(),
                latency: Cell::default(),
            }),
        })
    }

    /// The same endpoint with the same state, of which the configuration says this now. Requests
    /// that are under way keep what was said before.
    pub fn renewed(self: Rc<Self>, plan: &EndpointPlan) -> Rc<Endpoint> {
        assert_eq!(self.id, plan.id, "an endpoint keeps its identity");
        if self.plan.authority == plan.authority
            && self.plan.zone == plan.zone
            && self.plan.priority == plan.priority
        {
            return self;
        }
        Rc::new(Endpoint { id: self.id, plan: plan.clone(), state: self.state.clone() })
    }

    /// Takes over what the control thread says of it; where that is something, it holds in place of
    /// what this worker has seen. [`Upstream::refresh`] follows where it says that something changed.
    pub fn set_standing(&self, standing: Standing) -> bool {
        let before = self.standing.replace(standing);
        let changed = before != standing;
        self.let_in.follow(before, standing);
        if changed && standing != Standing::WHOLE {
            self.isolated_until_ms.set(None);
            // What it is let try afterwards is judged by what comes of that.
            self.failures.set(0);
            self.cuts.in_a_row.set(0);
            self.incidents.take();
        }
        changed
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

    pub(super) fn is_reachable(&self) -> bool {
        matches!(self.plan.address, EndpointAddress::Unix(_)) || self.address_count() > 0
    }

    /// A try begins.
    pub fn begin(&self) -> Busy<'_> {
        self.in_flight.set(self.in_flight.get() + 1);
        Busy(&self.state)
    }

    /// Whether requests come only to see whether it has recovered.
    #[inline]
    pub fn is_probing(&self) -> bool {
        self.standing.get().probing
    }

    pub(super) fn add_probe(&self) {
        self.probes.set(self.probes.get() + 1);
    }

    pub(super) fn remove_probe(&self) {
        self.probes.set(self.probes.get() - 1);
    }

    /// Whether a try that was begun then was sent before it was given its last rest.
    pub fn rested_since(&self, began: Instant) -> bool {
        self.let_in.is_after(began)
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures.get()
    }

    /// Tries in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Whether a request is under way that is to see whether it has recovered.
    pub(super) fn is_probed(&self) -> bool {
        self.probes.get() > 0
    }

    /// Whether it is isolated on this worker, for failures in a row.
    pub(super) fn is_isolated(&self) -> bool {
        self.isolated_until_ms.get().is_some()
    }

    /// Whether it takes requests other than probes.
    pub(super) fn is_in(&self) -> bool {
        !self.is_isolated() && self.standing.get().share_permille > 0
    }

    /// How long it has taken to the head of an answer, in microseconds.
    pub(super) fn latency_us(&self, now_ms: u64) -> f64 {
        self.latency.get().at(now_ms)
    }

    fn observe(&self, us: u64, now_ms: u64) {
        let mut latency = self.latency.get();
        latency.observe(us, now_ms);
        self.latency.set(latency);
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

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::members::Avoid;
    use crate::upstream::testing::plan;

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
        upstream.apply(&plan, plan.endpoints.iter().map(endpoint).collect(), (0, 1));
        let in_zone = |zone| Wish { zone, ..Wish::default() };
        let mut counts = [0; 4];
        for _ in 0..8 {
            let picked = upstream.pick(&in_zone(Some("b"))).expect("two are there");
            counts[picked.id.0 as usize] += 1;
        }
        assert_eq!(counts, [0, 6, 2, 0]);
        assert_eq!(upstream.pick(&in_zone(Some("c"))).err(), Some(ErrorKind::NoEndpoint));
        let other = |failed, zone| {
            let tried = [EndpointId(failed)];
            let avoid = Avoid { tried: &tried, unsound: false };
            let wish = Wish { avoid, ..in_zone(zone) };
            upstream.pick(&wish).map(|e| e.id).ok()
        };
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
        for (authority, zone) in [("unix:/0", Some("a")), ("unix:/Other", None)] {
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
            upstream.apply(&plan(&weights), endpoints.clone(), (0, 1));
            let picks =
                (0..4).map(|_| upstream.pick(&Wish::default()).expect("both are reachable").id);
            assert_eq!(picks.filter(|id| *id == EndpointId(1)).count(), share, "{weights:?}");
        }
    }
}
