//! A worker's end: blocks by id, made on the first hit.

use std::cell::RefCell;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::blocks::{
    Birth, Block, EndpointSeries, FilterSeries, HANDSHAKES, ListenerSeries, ROOMS, Room,
    RouteSeries, UpstreamSeries,
};
use super::names::Names;
use super::proxy_protocol::ProxyProtocolResult;
use crate::base::by_id::ById;
use crate::limits::{SERIES_BESIDE_ROUTES_MAX, SERIES_MAX};
use crate::observe::{Counter, Gauge};

/// The blocks of one worker. Ids come from the configuration compiler: out of a counter, and the same
/// over reloads for as long as the thing stays.
#[derive(Debug)]
pub struct WorkerSeries {
    routes: Slots<RouteSeries>,
    upstreams: Slots<UpstreamSeries>,
    endpoints: Slots<EndpointSeries>,
    filters: Slots<FilterSeries>,
    listeners: Slots<ListenerSeries>,
    unmatched: Arc<RouteSeries>,
    births: Births,
}

/// One exchange that is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finished {
    /// The route; none where none matched or the head was refused.
    pub route: Option<u32>,
    /// The upstream that the route, or its choice of targets, named.
    pub upstream: Option<u32>,
    /// The endpoint that was tried last.
    pub endpoint: Option<u32>,
    /// Status of the final answer; 0 where none was begun.
    pub status: u16,
    /// From the whole head to the last byte of the answer; for a tunnel to its switch.
    pub total_us: u64,
    /// From asking for a connection, the last time, to the head of the final answer, if one came.
    pub upstream_head_us: Option<u64>,
    /// Body bytes from the client.
    pub request_body_bytes: u64,
    /// Body bytes to the client.
    pub response_body_bytes: u64,
}

/// Blocks that every worker has from the start, beside those that it makes: the control thread
/// holds them too.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub totals: Arc<Totals>,
    pub unmatched: Arc<RouteSeries>,
    pub other_routes: Arc<RouteSeries>,
    pub other_upstreams: Arc<UpstreamSeries>,
    pub other_endpoints: Arc<EndpointSeries>,
    pub other_filters: Arc<FilterSeries>,
    pub other_listeners: Arc<ListenerSeries>,
}

/// How many blocks there are.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Totals {
    pub routes: Gauge,
    pub beside_routes: Gauge,
    pub dropped: Counter,
}

impl Totals {
    /// How many blocks there are of all kinds.
    pub fn made(&self) -> u64 {
        self.routes.get() + self.beside_routes.get()
    }

    fn of(&self, room: Room) -> &Gauge {
        match room {
            Room::Routes => &self.routes,
            Room::BesideRoutes => &self.beside_routes,
        }
    }
}

impl WorkerSeries {
    pub(super) fn new(standing: &Standing, births: [Sender<Birth>; ROOMS]) -> WorkerSeries {
        WorkerSeries {
            routes: Slots::new(&standing.other_routes),
            upstreams: Slots::new(&standing.other_upstreams),
            endpoints: Slots::new(&standing.other_endpoints),
            filters: Slots::new(&standing.other_filters),
            listeners: Slots::new(&standing.other_listeners),
            unmatched: standing.unmatched.clone(),
            births: Births { senders: births, totals: standing.totals.clone() },
        }
    }

    /// Counts an exchange that is over.
    #[inline]
    pub fn finish(&self, done: &Finished) {
        match done.route {
            Some(id) => self.routes.with(&self.births, id, |block| block.finish(done)),
            None => self.unmatched.finish(done),
        }
        if let Some(id) = done.upstream {
            self.upstreams.with(&self.births, id, |block| block.finish(done));
        }
        if let Some(id) = done.endpoint {
            self.endpoints.with(&self.births, id, |block| block.finish(done));
        }
    }

    /// Counts a request as in flight to an upstream and an endpoint for as long as the value lives.
    #[inline]
    pub fn in_flight(&self, upstream: u32, endpoint: u32) -> InFlight<'_> {
        self.upstreams.with(&self.births, upstream, |block| block.in_flight.increment());
        self.endpoints.with(&self.births, endpoint, |block| block.in_flight.increment());
        InFlight { series: self, upstream, endpoint }
    }

    /// Counts something of an upstream. `record` only counts: it must not come back here.
    #[inline]
    pub fn upstream(&self, id: u32, record: impl FnOnce(&UpstreamSeries)) {
        self.upstreams.with(&self.births, id, record);
    }

    /// Counts something of an endpoint. `record` only counts: it must not come back here.
    #[inline]
    pub fn endpoint(&self, id: u32, record: impl FnOnce(&EndpointSeries)) {
        self.endpoints.with(&self.births, id, record);
    }

    /// Counts something of a filter, in the same way.
    #[inline]
    pub fn filter(&self, id: u32, record: impl FnOnce(&FilterSeries)) {
        self.filters.with(&self.births, id, record);
    }

    /// Counts a connection that a listener took.
    #[inline]
    pub fn connection_opened(&self, listener: u32) {
        self.listeners.with(&self.births, listener, |block| {
            block.accepted.increment();
            block.open.increment();
        });
    }

    /// Counts a TLS handshake of a client: one of [`HANDSHAKES`], or it is `other`.
    pub fn handshake(&self, listener: u32, result: &str) {
        let at = HANDSHAKES.iter().position(|known| *known == result);
        let at = at.unwrap_or(HANDSHAKES.len() - 1);
        self.listeners.with(&self.births, listener, |block| block.handshakes[at].increment());
    }

    /// Counts the end of a connection, once for each that was opened.
    #[inline]
    pub fn connection_closed(&self, listener: u32) {
        self.listeners.with(&self.births, listener, |block| block.open.decrement());
    }

    /// Counts how a connection of a listener with `proxy_protocol` began.
    pub fn proxy_protocol(&self, listener: u32, result: ProxyProtocolResult) {
        self.listeners.with(&self.births, listener, |block| {
            block.proxy_protocol[result as usize].increment();
        });
    }

    /// Lets go of what a new configuration does not name any more; what stays goes on counting.
    /// A block that still counts something in flight is kept until the next time.
    pub fn retain(&self, names: &Names) {
        let births = &self.births;
        self.routes.release(births, |id| names.routes.holds(id));
        self.upstreams.release(births, |id| names.upstreams.holds(id));
        self.endpoints.release(births, |id| names.endpoints.holds(id));
        self.filters.release(births, |id| names.filters.holds(id));
        self.listeners.release(births, |id| names.listeners.holds(id));
        if births.has_room(Room::Routes) {
            self.routes.try_again();
        }
        if births.has_room(Room::BesideRoutes) {
            self.upstreams.try_again();
            self.endpoints.try_again();
            self.filters.try_again();
            self.listeners.try_again();
        }
    }
}

/// A request in flight to an upstream and one of its endpoints.
#[derive(Debug)]
#[must_use = "it counts for as long as it lives"]
pub struct InFlight<'a> {
    series: &'a WorkerSeries,
    upstream: u32,
    endpoint: u32,
}

impl InFlight<'_> {
    /// The request goes to another endpoint.
    pub fn move_to(&mut self, endpoint: u32) {
        let WorkerSeries { endpoints, births, .. } = self.series;
        endpoints.with(births, self.endpoint, |block| block.in_flight.decrement());
        endpoints.with(births, endpoint, |block| block.in_flight.increment());
        self.endpoint = endpoint;
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        // The blocks that were counted up are still those of these ids: see `Slots::release`.
        let WorkerSeries { upstreams, endpoints, births, .. } = self.series;
        upstreams.with(births, self.upstream, |block| block.in_flight.decrement());
        endpoints.with(births, self.endpoint, |block| block.in_flight.decrement());
    }
}

/// Blocks of one kind.
#[derive(Debug)]
struct Slots<T> {
    blocks: RefCell<ById<Arc<T>>>,
    /// Stands in the place of every block that was not made because there were too many.
    other: Arc<T>,
}

impl<T: Block> Slots<T> {
    fn new(other: &Arc<T>) -> Slots<T> {
        Slots { blocks: RefCell::default(), other: other.clone() }
    }

    /// An index and two checks; no reference count is touched.
    #[inline]
    fn with(&self, births: &Births, id: u32, record: impl FnOnce(&T)) {
        if let Some(block) = self.blocks.borrow().get(id) {
            return record(block);
        }
        record(&self.make(births, id));
    }

    #[cold]
    fn make(&self, births: &Births, id: u32) -> Arc<T> {
        let block = births.make(id).unwrap_or_else(|| self.other.clone());
        self.blocks.borrow_mut().set(id, block.clone());
        block
    }

    /// Lets blocks go whose id is not in use. One that holds a gauge above zero stays, so that it
    /// is counted down where it was counted up.
    fn release(&self, births: &Births, in_use: impl Fn(u32) -> bool) {
        self.blocks.borrow_mut().retain(|id, block| {
            let kept = in_use(id) || !block.is_idle();
            if !kept && !Arc::ptr_eq(block, &self.other) {
                births.totals.of(T::ROOM).decrement();
            }
            kept
        });
    }

    /// Forgets who was refused a block, so that the next hit asks again.
    fn try_again(&self) {
        if self.other.is_idle() {
            self.blocks.borrow_mut().retain(|_, block| !Arc::ptr_eq(block, &self.other));
        }
    }
}

/// Makes blocks and tells the control thread.
#[derive(Debug)]
struct Births {
    /// By [`Room`]. Without a bound of their own, so that nothing is set aside for it: `has_room`
    /// bounds them.
    senders: [Sender<Birth>; ROOMS],
    totals: Arc<Totals>,
}

impl Births {
    fn make<T: Block>(&self, id: u32) -> Option<Arc<T>> {
        if !self.has_room(T::ROOM) {
            self.totals.dropped.increment();
            return None;
        }
        let block = Arc::new(T::default());
        self.totals.of(T::ROOM).increment();
        // Fails only when the control thread is gone, and nobody asks any more.
        let _ = self.senders[T::ROOM as usize].send(T::birth(id, block.clone()));
        Some(block)
    }

    /// Whether there are less than the bound, alive and on their way. Of routes there may be any
    /// number, and many that come once: what else there is, is few and has room whatever they take.
    fn has_room(&self, room: Room) -> bool {
        let most = match room {
            Room::Routes => SERIES_MAX,
            Room::BesideRoutes => SERIES_BESIDE_ROUTES_MAX,
        };
        self.totals.of(room).get() < most as u64 && self.senders[room as usize].len() < most
    }
}
