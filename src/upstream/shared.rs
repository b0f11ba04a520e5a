//! Connections of one endpoint on one core that speak HTTP/2: many requests share each.
//!
//! Requests that find no place while a connection is being made wait for that one, so that a burst
//! does not open as many connections as it has requests.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::connect::{NoConnection, Spoken, dial};
use super::group::Endpoint;
use super::pool::Lease;
use crate::error::ErrorKind;
use crate::http2::Incident;
use crate::http2::client::SharedStream;
use crate::http2::origin::{Origin, drive};
use crate::io::runtime::{catch_panic, within};
use crate::io::{sleep_ms, spawn};
use crate::limits::{
    UPSTREAM_HTTP2_CLOSE_MS, UPSTREAM_HTTP2_STILLBORN_MAX, UPSTREAM_HTTP2_STREAMS_MAX,
    UPSTREAM_HTTP2_WAITS_MAX,
};

/// The HTTP/2 connections of one endpoint.
pub(super) struct SharedPool {
    /// The fullest first, as far as they are filled from the front.
    open: RefCell<Vec<Rc<Origin>>>,
    making: RefCell<Vec<Rc<Making>>>,
    /// Streams that a new connection is expected to take: what the last one did.
    expected: Cell<usize>,
    closed: Cell<bool>,
}

impl Default for SharedPool {
    fn default() -> SharedPool {
        SharedPool {
            open: RefCell::default(),
            making: RefCell::default(),
            expected: Cell::new(UPSTREAM_HTTP2_STREAMS_MAX),
            closed: Cell::new(false),
        }
    }
}

/// A connection that is being made, and who waits for it.
#[derive(Default)]
struct Making {
    outcome: RefCell<Option<Made>>,
    wakers: RefCell<Vec<Waker>>,
    waiting: Cell<usize>,
    /// Its failure, which all that wait for it share.
    failure: Incident,
}

/// What came of it: none where the endpoint speaks HTTP/1.
type Made = Result<Option<Rc<Origin>>, ErrorKind>;

impl SharedPool {
    /// A place on a connection that has one, and whether it was used before.
    pub(super) fn take(&self) -> Option<(SharedStream, bool)> {
        self.open.borrow().iter().find_map(Origin::take)
    }

    /// Looks after each connection and drops those that begin no stream any more.
    pub(super) fn sweep(&self, now_ms: u64, idle_timeout_ms: u64, idle_max: usize) {
        self.open.borrow_mut().retain(|origin| origin.sweep(now_ms, idle_timeout_ms));
        self.trim(idle_max);
    }

    /// Closes idle connections beyond `idle_max`.
    pub(super) fn trim(&self, idle_max: usize) {
        let mut idle = 0;
        self.open.borrow_mut().retain(|origin| {
            idle += usize::from(origin.is_idle());
            let kept = !origin.is_idle() || idle <= idle_max;
            if !kept {
                origin.close();
            }
            kept && origin.is_open()
        });
    }

    /// Begins no stream on them any more; those that are under way end in their own time.
    pub(super) fn clear(&self) {
        for origin in self.open.take() {
            origin.close();
        }
    }

    /// The same, for good.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.clear();
    }

    fn put(&self, origin: Rc<Origin>) {
        self.expected.set(origin.streams_max());
        self.open.borrow_mut().push(origin.clone());
        if self.closed.get() {
            // Whoever waits for it still gets a place, and it ends behind the last of them.
            spawn(async move {
                sleep_ms(UPSTREAM_HTTP2_CLOSE_MS).await;
                origin.close();
            });
        }
    }

    fn remove(&self, gone: &Rc<Origin>) {
        self.open.borrow_mut().retain(|origin| !Rc::ptr_eq(origin, gone));
    }

    /// A connection that is being made and has a place to be waited for.
    fn awaited(&self) -> Option<Rc<Making>> {
        let making = self.making.borrow();
        making.iter().find(|making| making.waiting.get() < self.expected.get()).cloned()
    }
}

impl Making {
    /// Waits until the connection is there.
    async fn done(&self) -> Made {
        self.waiting.set(self.waiting.get() + 1);
        let mut registered: Option<Waker> = None;
        poll_fn(|context| {
            if let Some(outcome) = &*self.outcome.borrow() {
                return Poll::Ready(outcome.clone());
            }
            if !registered.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                registered = Some(context.waker().clone());
                self.wakers.borrow_mut().push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn end(&self, outcome: Made) {
        if self.outcome.borrow().is_none() {
            self.outcome.replace(Some(outcome));
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// A place on a connection, made or waited for where there is none, within `timeout_ms`;
/// `connect_ms` is what a connection is given, whoever else waits for it. `None` where the endpoint
/// turned out to speak HTTP/1.
pub(super) async fn connect_shared(
    endpoint: &Rc<Endpoint>,
    connect_ms: u64,
    timeout_ms: u64,
) -> Result<Option<Lease>, NoConnection> {
    let awaited: RefCell<Option<Rc<Making>>> = RefCell::default();
    let waiting = async {
        let mut stillborn = 0;
        for _ in 0..UPSTREAM_HTTP2_WAITS_MAX {
            if let Some(lease) = Lease::pooled(endpoint) {
                return Ok(Some(lease));
            }
            if endpoint.spoken() == Spoken::Http1 {
                return Ok(None);
            }
            let making = match endpoint.shared.awaited() {
                Some(making) => making,
                None => make(endpoint, connect_ms),
            };
            awaited.replace(Some(making.clone()));
            let Some(origin) = making.done().await? else { continue };
            // Others may take its places; one that ended at once would do so again.
            stillborn += usize::from(!origin.is_open());
            if stillborn >= UPSTREAM_HTTP2_STILLBORN_MAX {
                return Err(ErrorKind::ConnectFailed);
            }
        }
        Err(ErrorKind::ConnectTimeout)
    };
    let waited = within(timeout_ms, waiting).await.unwrap_or(Err(ErrorKind::ConnectTimeout));
    waited.map_err(|kind| NoConnection {
        kind,
        incident: awaited.take().map(|making| making.failure.clone()),
    })
}

/// Has a task of its own make a connection and drive it: whoever asked for it may go away.
fn make(endpoint: &Rc<Endpoint>, connect_ms: u64) -> Rc<Making> {
    let making: Rc<Making> = Rc::default();
    endpoint.counters.pool_misses.increment();
    endpoint.shared.making.borrow_mut().push(making.clone());
    let (endpoint, ending) = (endpoint.clone(), making.clone());
    spawn(async move {
        let told = Told { endpoint: endpoint.clone(), making: ending };
        if catch_panic(run(endpoint.clone(), connect_ms, told)).await.is_none() {
            endpoint.counters.panics.increment();
        }
    });
    making
}

async fn run(endpoint: Rc<Endpoint>, connect_ms: u64, told: Told) {
    let began = std::time::Instant::now();
    let (stream, spoken) = match dial(&endpoint, connect_ms, NO_HEADER).await {
        Ok(dialled) => dialled,
        Err(kind) => return told.end(Err(kind)),
    };
    if spoken == Spoken::Http1 {
        // The first that waited takes it from the pool.
        endpoint.keep_fresh(stream);
        return told.end(Ok(None));
    }
    let spent_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let left_ms = connect_ms.saturating_sub(spent_ms).max(1);
    let met: Rc<RefCell<Option<Rc<Origin>>>> = Rc::default();
    let meeting = met.clone();
    let of = endpoint.clone();
    drive(stream, left_ms, endpoint.counters.clone(), move |greeted| {
        told.end(greeted.map(|origin| {
            meeting.replace(Some(origin.clone()));
            of.shared.put(origin.clone());
            Some(origin)
        }));
    })
    .await;
    if let Some(origin) = met.take() {
        endpoint.shared.remove(&origin);
    }
}

/// A connection that is shared begins with no client's header: `check` refuses to send one with HTTP/2.
const NO_HEADER: &[u8] = &[];

/// Those who wait for a connection, told how it ended even if its task panics.
struct Told {
    endpoint: Rc<Endpoint>,
    making: Rc<Making>,
}

impl Told {
    fn end(self, outcome: Made) {
        self.making.end(outcome);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut making = self.endpoint.shared.making.borrow_mut();
        making.retain(|making| !Rc::ptr_eq(making, &self.making));
        drop(making);
        self.making.end(Err(ErrorKind::ConnectFailed));
    }
}
