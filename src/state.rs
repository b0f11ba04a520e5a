//! A core's run-time state: what outlives a snapshot.
//!
//! Owned by the worker and lent to `serve`. Pools, balancers and counts are keyed by ids that the
//! control thread assigns from identity, so that the same id keeps its state over a reload.

pub mod held;

pub use held::{Held, Holders, Plans};

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::base::random::Random;
use crate::io::wait::Deadlines;
use crate::limits::POOL_PEEKS_PER_SWEEP;
use crate::observe::access_log::LogBuffer;
use crate::observe::{WorkerCounters, WorkerSeries};
use crate::snapshot::Snapshot;
use crate::upstream::{Endpoint, EndpointId, Upstream, UpstreamId};

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
    upstreams: RefCell<Vec<Option<Rc<Upstream>>>>,
    endpoints: RefCell<Vec<Option<Rc<Endpoint>>>>,
    /// What names resolved to, for endpoints that a snapshot is yet to bring in.
    resolved: RefCell<Vec<(EndpointId, Vec<SocketAddr>)>>,
    date: Cell<[u8; 29]>,
    date_at_ms: Cell<u64>,
    started: Instant,
    /// The exchanges that may hold a snapshot.
    pub holders: Holders,
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
        let mut upstreams: Vec<Option<Rc<Upstream>>> = Vec::new();
        let mut endpoints: Vec<Option<Rc<Endpoint>>> = Vec::new();
        for plan in &snapshot.upstreams {
            let members: Vec<Rc<Endpoint>> = plan
                .endpoints
                .iter()
                .map(|endpoint| {
                    let member = match self.endpoint(endpoint.id) {
                        Some(kept) => kept.renewed(endpoint),
                        None => Endpoint::new(endpoint.clone(), self.counters.clone()),
                    };
                    put(&mut endpoints, endpoint.id.0, member.clone());
                    member
                })
                .collect();
            let upstream = self.upstream(plan.id).unwrap_or_else(|| Upstream::new(plan));
            upstream.apply(plan, members, self.workers);
            put(&mut upstreams, plan.id.0, upstream);
        }
        for gone in self.endpoints.borrow().iter().flatten() {
            if !matches!(endpoints.get(gone.id.0 as usize), Some(Some(_))) {
                gone.retire();
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
        self.counters.snapshot_version.set(snapshot.version);
        self.snapshot.replace(Rc::new(Pinned(snapshot)));
        self.holders.unpin_all(&|id| before.get(id.0 as usize).cloned().flatten());
    }

    /// The upstream with this id, while some snapshot in force names it.
    #[inline]
    pub fn upstream(&self, id: UpstreamId) -> Option<Rc<Upstream>> {
        self.upstreams.borrow().get(id.0 as usize).cloned().flatten()
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
            for endpoint in plan.endpoints.iter().filter_map(|plan| self.endpoint(plan.id)) {
                peeks_left -= endpoint.sweep(now_ms, plan.idle_timeout_ms, peeks_left);
            }
        }
    }

    fn endpoint(&self, id: EndpointId) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().get(id.0 as usize).cloned().flatten()
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

fn put<T>(list: &mut Vec<Option<T>>, index: u32, value: T) {
    let index = index as usize;
    if list.len() <= index {
        list.resize_with(index + 1, || None);
    }
    list[index] = Some(value);
}
