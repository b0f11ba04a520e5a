//! A core's run-time state: what outlives a snapshot.
//!
//! Owned by the worker and lent to `serve`. Pools, balancers and counts are keyed by ids that the
//! control thread assigns from identity, so that the same id keeps its state over a reload.

pub mod gates;
pub mod held;

pub use gates::Gates;
pub use held::{Held, Holders, Plans};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::base::by_id::ById;
use crate::base::random::Random;
use crate::io::wait::Deadlines;
use crate::limits::POOL_PEEKS_PER_SWEEP;
use crate::observe::access_log::LogBuffer;
use crate::observe::{WorkerCounters, WorkerSeries};
use crate::snapshot::Snapshot;
use crate::upstream::bulkhead::share;
use crate::upstream::{Endpoint, EndpointId, Standings, Upstream, UpstreamId};

/// One core's state.
pub struct Core {
    /// Counters that only this core writes.
    pub counters: Arc<WorkerCounters>,
    /// What it counts of routes, upstreams, endpoints, filters and listeners.
    pub series: WorkerSeries,
    /// Deadlines of all its connections.
    pub deadlines: Rc<Deadlines>,
    /// For request ids and jitter.
    pub random: Random,
    /// Whether it is draining: every answer ends its connection.
    pub draining: Cell<bool>,
    /// Its lines of the access log.
    pub log: RefCell<LogBuffer>,
    /// Which worker it is.
    pub index: usize,
    /// How many workers share the caps.
    pub workers: usize,
    snapshot: RefCell<Rc<Pinned>>,
    upstreams: RefCell<ById<Rc<Upstream>>>,
    endpoints: RefCell<ById<Rc<Endpoint>>>,
    /// What names resolved to, for endpoints that a snapshot is yet to bring in.
    resolved: RefCell<Vec<(EndpointId, Vec<SocketAddr>)>>,
    date: Cell<[u8; 29]>,
    date_at_ms: Cell<u64>,
    started: Instant,
    /// The exchanges that may hold a snapshot.
    pub holders: Holders,
    /// Requests in flight on the routes that bound them.
    pub gates: Gates,
    /// Requests for which two tries go on at once.
    pub hedges: Cell<usize>,
}

/// A snapshot on this core: cloning the `Rc` is how an exchange pins it, without an atomic count.
#[derive(Debug)]
pub struct Pinned(Arc<Snapshot>);

impl std::ops::Deref for Pinned {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl Core {
    /// The state of a core that starts with `snapshot`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        counters: Arc<WorkerCounters>,
        log: LogBuffer,
        series: WorkerSeries,
        index: usize,
        workers: usize,
    ) -> Rc<Core> {
        let core = Rc::new(Core {
            counters,
            series,
            deadlines: Deadlines::new(),
            random: Random::new(),
            draining: Cell::new(false),
            log: RefCell::new(log),
            index,
            workers,
            snapshot: RefCell::new(Rc::new(Pinned(snapshot.clone()))),
            upstreams: RefCell::default(),
            endpoints: RefCell::default(),
            resolved: RefCell::default(),
            date: Cell::new([0; 29]),
            date_at_ms: Cell::new(0),
            started: Instant::now(),
            holders: Holders::default(),
            gates: Gates::default(),
            hedges: Cell::new(0),
        });
        core.apply(snapshot);
        core.refresh_date(0);
        core
    }

    /// The snapshot in force, pinned for as long as the value lives.
    #[inline]
    pub fn snapshot(&self) -> Rc<Pinned> {
        self.snapshot.borrow().clone()
    }

    /// Takes a snapshot into force. What keeps its id keeps its state; what is gone closes its idle
    /// connections and lets busy ones end.
    pub fn apply(&self, snapshot: Arc<Snapshot>) {
        let mut upstreams: ById<Rc<Upstream>> = ById::default();
        let mut endpoints: ById<Rc<Endpoint>> = ById::default();
        for plan in &snapshot.upstreams {
            let members: Vec<Rc<Endpoint>> = plan
                .endpoints
                .iter()
                .map(|endpoint| {
                    let member = match self.endpoint(endpoint.id) {
                        Some(kept) => kept.renewed(endpoint),
                        None => Endpoint::new(endpoint.clone(), self.counters.clone()),
                    };
                    endpoints.set(endpoint.id.0, member.clone());
                    member
                })
                .collect();
            let upstream = self.upstream(plan.id).unwrap_or_else(|| Upstream::new(plan));
            upstream.apply(plan, members, (self.index, self.workers));
            let adaptive = upstream.bulkhead.is_adaptive();
            upstream.bulkhead.configure(plan, self.index, self.workers);
            if adaptive && !upstream.bulkhead.is_adaptive() {
                self.series.upstream(plan.id.0, |it| it.limit.set(0));
            }
            upstreams.set(plan.id.0, upstream);
        }
        for (id, endpoint) in self.endpoints.borrow().iter() {
            if !endpoints.holds(id) {
                endpoint.retire();
            }
        }
        self.endpoints.replace(endpoints);
        let before = self.upstreams.replace(upstreams);
        for (id, addresses) in self.resolved.borrow().iter() {
            if let Some(endpoint) = self.endpoint(*id) {
                endpoint.set_addresses(addresses);
            }
        }
        let format = snapshot.access_log.as_ref().map(|plan| plan.format);
        self.log.borrow_mut().set_format(format);
        self.series.retain(&snapshot.names);
        self.gates.retain(|route| snapshot.names.routes.holds(route));
        self.counters.snapshot_version.set(snapshot.version);
        self.snapshot.replace(Rc::new(Pinned(snapshot)));
        self.holders.unpin_all(&|id| before.get(id.0).cloned());
    }

    /// The upstream with this id, while some snapshot in force names it.
    #[inline]
    pub fn upstream(&self, id: UpstreamId) -> Option<Rc<Upstream>> {
        self.upstreams.borrow().get(id.0).cloned()
    }

    /// Takes over what names resolved to: all of them, each time.
    pub fn set_addresses(&self, resolved: &[(EndpointId, Vec<SocketAddr>)]) {
        for (id, addresses) in resolved {
            if let Some(endpoint) = self.endpoint(*id) {
                endpoint.set_addresses(addresses);
            }
        }
        self.resolved.replace(resolved.to_vec());
    }

    /// Takes over how much of their shares upstreams and endpoints take: all of them, each time.
    pub fn set_standings(&self, standings: &Standings) {
        let (upstreams, endpoints) = (self.upstreams.borrow(), self.endpoints.borrow());
        let named: BTreeMap<_, _> = standings.upstreams.iter().copied().collect();
        for (id, upstream) in upstreams.iter() {
            upstream.set_standing(named.get(&UpstreamId(id)).copied().unwrap_or_default());
        }
        let named: BTreeMap<_, _> = standings.endpoints.iter().copied().collect();
        let standing = |id: u32| named.get(&EndpointId(id)).copied().unwrap_or_default();
        let changed: BTreeSet<_> = (endpoints.iter())
            .filter(|(id, endpoint)| endpoint.set_standing(standing(*id)))
            .map(|(id, _)| EndpointId(id))
            .collect();
        // A slow start changes a few of them ten times a second, and leaves the others alone.
        if !changed.is_empty() {
            upstreams.iter().for_each(|(_, it)| it.refresh_for(&changed));
        }
    }

    /// What this core has of a number for all workers, and at least one.
    pub fn share(&self, all: usize) -> usize {
        share(all, self.index, self.workers)
    }

    /// Milliseconds since the core started, by the clock.
    pub fn clock_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since the core started, as of the last sweep.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.deadlines.now_ms()
    }

    /// The date as HTTP writes it, as of the last sweep (RFC 9110 section 5.6.7).
    pub fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// Work of a sweep beyond deadlines: the date, and idle upstream connections.
    pub fn sweep(&self, now_ms: u64) {
        if now_ms >= self.date_at_ms.get() + 500 {
            self.refresh_date(now_ms);
        }
        self.log.borrow_mut().flush();
        let mut peeks_left = POOL_PEEKS_PER_SWEEP;
        for plan in &self.snapshot().upstreams {
            if let Some(upstream) = self.upstream(plan.id) {
                upstream.sweep(now_ms);
            }
            for endpoint in plan.endpoints.iter().filter_map(|plan| self.endpoint(plan.id)) {
                peeks_left -= endpoint.sweep(now_ms, plan, peeks_left);
            }
        }
    }

    fn endpoint(&self, id: EndpointId) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().get(id.0).cloned()
    }

    fn refresh_date(&self, now_ms: u64) {
        let mut date = [0; 29];
        // Into an array: a sweep is no reason to allocate either.
        write!(&mut date[..], "{}", httpdate::HttpDate::from(SystemTime::now()))
            .expect("a date takes 29 bytes");
        self.date.set(date);
        self.date_at_ms.set(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::access_log::log_queue;
    use crate::observe::series::SeriesRegistry;
    use crate::observe::series::worker::Finished;
    use crate::snapshot::{Ids, compile};

    /// One upstream, route and limiter that stay, and of each some that only this version has.
    fn text(version: u32) -> String {
        let mut text =
            "[runtime]\nworkers = 1\n[listener.a]\naddress = \"127.0.0.1:0\"\n".to_owned();
        let names = (0..NEW).map(|new| format!("n{version}x{new}")).chain(["stays".to_owned()]);
        for name in names {
            text += &format!(
                "[upstream.{name}]\nendpoints = [{{ address = \"{name}.test:80\" }}]\n\
                 [[route]]\nid = \"{name}\"\npath = \"/{name}\"\nupstream = \"{name}\"\n\
                 filters = [{{ kind = \"rate_limit\", key = \"route\", rate = \"1/h\" }}]\n"
            );
        }
        text
    }

    /// Names that come and go leave nothing behind, on a worker and beside it.
    #[test]
    fn memory_is_bounded_over_reloads_with_ever_new_names() {
        let (mut ids, mut registry) = (Ids::default(), SeriesRegistry::default());
        let (first, _) = compile(&text(0), &mut ids, 1).expect("taken");
        let mut in_force = Arc::new(first);
        let (log, _queue) = log_queue();
        let series = registry.add_worker();
        let core = Core::new(in_force.clone(), Arc::default(), log, series, 0, 1);
        let stays = |snapshot: &Snapshot| {
            let plan = snapshot.upstreams.iter().find(|plan| &*plan.name == "stays");
            let plan = plan.expect("it is there");
            let filter = snapshot.filters.last().expect("there is one");
            let route = snapshot.plans.last().expect("there is one");
            (plan.id, plan.endpoints[0].id, route.number, filter.id)
        };
        let first = stays(&in_force);
        let state = core.endpoint(first.1).expect("it is in force");
        for version in 1..=300 {
            ids.keep_only(&in_force.names);
            // One that cannot take force comes first.
            compile(&text(1_000 + version), &mut ids, version.into()).expect("taken");
            ids.keep_only(&in_force.names);
            in_force =
                Arc::new(compile(&text(version), &mut ids, version.into()).expect("taken").0);
            core.apply(in_force.clone());
            for plan in &in_force.plans {
                let route = Some(plan.number.0);
                core.series.finish(&Finished { route, status: 200, ..Finished::default() });
            }
            registry.settle(&in_force.names);
            assert_eq!(stays(&in_force), first);
            assert!(Rc::ptr_eq(&state, &core.endpoint(first.1).expect("it stays")));
            // A listener, and of each version upstreams, endpoints, routes and filters.
            assert!(ids.count() <= 1 + 2 * 4 * (NEW as usize + 1), "{version}: {}", ids.count());
            let pages = [core.upstreams.borrow().pages(), core.endpoints.borrow().pages()];
            assert!(pages.iter().all(|pages| *pages <= 3), "{version}: {pages:?}");
            assert!(registry.held() <= 2 * (NEW as usize + 1));
        }
        let view = registry.collect(&in_force.names);
        let counted = view.routes.iter().find(|entry| &*entry.name == "stays");
        assert_eq!(counted.map(|entry| entry.numbers.answers[1]), Some(300));
    }

    const NEW: u32 = 20;
}
