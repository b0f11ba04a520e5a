//! One request and its answer: the state that lives only while it is served, pooled per core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use super::kept::Kept;
use crate::base::buffer::Buf;
use crate::context::{RequestContext, RetryPlan};
use crate::error::ErrorKind;
use crate::filter::Progress;
use crate::http::{BodyFraming, ResponseHead};
use crate::http1::body::Body;
use crate::http1::head::{RequestParser, ResponseParser};
use crate::io::Cancel;
use crate::limits::{EXCHANGE_BYTES_KEPT, EXCHANGES_KEPT};
use crate::route::RoutePlan;
use crate::state::gates::Passage;
use crate::state::{Core, Held};
use crate::upstream::bulkhead::Permit;
use crate::upstream::trial::{Alone, Probe, Trial};
use crate::upstream::{Endpoint, EndpointId, Settings, Upstream};

/// A request being served.
pub struct Exchange {
    /// The facts of the request.
    pub context: RequestContext,
    /// Where the parser of its head stands.
    pub parser: RequestParser,
    /// Where its body stands.
    pub upload: Upload,
    /// The answer.
    pub answer: Answer,
    /// What was found for it.
    pub matched: Matched,
}

/// What was found for a request: its route, and who serves it.
pub struct Matched {
    /// The route and its filters.
    pub held: Rc<Held>,
    /// What the route says of bounds.
    pub terms: Terms,
    /// How far it has come in the route's filters.
    pub progress: Cell<Progress>,
    /// Which of the route's targets was chosen.
    pub target: usize,
    /// Whether the answer has to name the endpoint by a cookie.
    pub names_endpoint: bool,
    /// The upstream, once it is chosen.
    pub upstream: Option<Rc<Upstream>>,
    /// Its numbers as they stood then.
    pub settings: Option<Rc<Settings>>,
    /// The endpoint of the last try.
    pub endpoint: Option<Rc<Endpoint>>,
    /// The endpoints of tries that failed.
    pub tried: Vec<EndpointId>,
    /// Whether the next try is to have a connection that is new.
    pub anew: bool,
    /// Its place in flight on the route.
    pub passage: Option<Passage>,
    /// Its place in flight at the upstream.
    pub permit: Option<Permit>,
    /// What it holds where it is to show whether the upstream has recovered.
    pub trial: Option<Trial>,
    /// The same of the endpoint of this try.
    pub probe: Option<Probe>,
    /// What it holds where it is waited for, though it could be hedged.
    pub alone: Option<Alone>,
    /// Whether the outcome of this try has been counted.
    pub counted: Cell<bool>,
}

impl Matched {
    fn new(core: &Core) -> Matched {
        Matched {
            held: core.holders.place(),
            terms: Terms::default(),
            progress: Cell::default(),
            target: 0,
            names_endpoint: false,
            upstream: None,
            settings: None,
            endpoint: None,
            tried: Vec::new(),
            anew: false,
            passage: None,
            permit: None,
            trial: None,
            probe: None,
            alone: None,
            counted: Cell::new(false),
        }
    }

    /// The numbers of the upstream.
    ///
    /// # Panics
    /// None is chosen yet.
    pub fn settings(&self) -> &Settings {
        self.settings.as_ref().expect("a request is forwarded once its upstream is chosen")
    }

    /// Name of the upstream; empty before it is chosen.
    pub fn upstream_name(&self) -> &str {
        self.upstream.as_ref().map_or("", |upstream| &upstream.name)
    }

    /// Address of the endpoint of the last try; empty before there is one.
    pub fn endpoint_name(&self) -> &str {
        self.endpoint.as_ref().map_or("", |endpoint| &endpoint.plan.authority)
    }

    /// A try at an endpoint begins.
    pub fn begin_try(&mut self, endpoint: &Rc<Endpoint>) {
        self.probe = Probe::of(endpoint);
        self.alone = None;
        self.counted.set(false);
    }

    /// Gives its places in flight back.
    pub fn leave(&mut self) {
        self.permit = None;
        self.trial = None;
        self.probe = None;
        self.alone = None;
        self.passage = None;
    }

    fn reset(&mut self) {
        self.held.clear();
        self.terms = Terms::default();
        self.progress.take();
        self.names_endpoint = false;
        self.upstream = None;
        self.settings = None;
        self.endpoint = None;
        self.tried.clear();
        self.anew = false;
        self.leave();
    }
}

/// The bounds of a route, copied so that nothing is held over a wait for their sake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// See [`RoutePlan::body_bytes_max`].
    pub body_bytes_max: Option<u64>,
    /// See [`RoutePlan::response_timeout_ms`].
    pub response_timeout_ms: Option<u64>,
    /// See [`RoutePlan::total_timeout_ms`].
    pub total_timeout_ms: Option<u64>,
    /// Whether that is what the client gives it, and says nothing of who is slow.
    pub total_of_client: bool,
    /// See [`RoutePlan::in_flight_max`].
    pub in_flight_max: Option<usize>,
    /// `retry` of the route.
    pub retry: Option<RetryPlan>,
}

impl Terms {
    /// Bounds the whole request by what its client gives it, where the route does not more.
    pub fn bound(&mut self, total_ms: u64) {
        let given = self.total_timeout_ms.unwrap_or(u64::MAX);
        self.total_of_client = total_ms < given;
        self.total_timeout_ms = Some(given.min(total_ms));
    }

    /// Those of a route.
    pub fn of(route: &RoutePlan) -> Terms {
        Terms {
            body_bytes_max: route.body_bytes_max,
            response_timeout_ms: route.response_timeout_ms,
            total_timeout_ms: route.total_timeout_ms,
            total_of_client: false,
            in_flight_max: route.in_flight_max(),
            retry: route.extra.as_ref().and_then(|extra| extra.retry),
        }
    }
}

/// A request's body on its way to the upstream.
pub struct Upload {
    /// Where it stands.
    pub body: Body,
    /// Bytes behind the head that belong to the body.
    pub in_hand: usize,
    /// Whether the bytes behind the head have been looked at.
    pub looked_at: bool,
    /// How many of those are passed on as they are.
    pub relay: usize,
    /// Whether the body ended within them.
    pub whole: bool,
    /// What was read behind the body: the beginning of the next request.
    pub behind: Buf,
    /// Whether more of the body was taken than can be sent a second time.
    pub spent: bool,
    /// What was taken, where it is kept for another try.
    pub kept: Option<Box<Kept>>,
    /// Body bytes taken from the client.
    pub bytes: u64,
    /// Ends the read of the upload when the answer is over.
    pub cancel: Cancel,
}

/// An answer on its way to the client.
#[derive(Default)]
pub struct Answer {
    /// Its head.
    pub head: ResponseHead,
    /// Where the parser of its head stands.
    pub parser: ResponseParser,
    /// Where its body stands.
    pub body: Body,
    /// Heads are encoded in here.
    pub scratch: Buf,
    /// Status of the final answer once it is begun, 0 before.
    pub status: u16,
    /// Whether an interim answer was passed on.
    pub interim: bool,
    /// The error that ended the exchange, if one did.
    pub error: Option<ErrorKind>,
    /// Body bytes given to the client.
    pub bytes: u64,
    /// When an upstream's connection was asked for, the last time, where that was not at once.
    pub asked_at: Option<Instant>,
    /// Time to connect, in microseconds, where a connection was made.
    pub connect_us: Option<u64>,
    /// When the head of the upstream's final answer had come.
    pub head_at: Option<Instant>,
    /// When the end of its body had, where it did not come with the head.
    pub body_at: Option<Instant>,
}

/// An exchange on loan; goes back to the pool of its core on drop.
pub struct Pooled(Option<Box<Exchange>>);

thread_local! {
    // Boxed, so that one taken for a request is not moved byte by byte.
    #[allow(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

impl Exchange {
    /// A free exchange, from the pool where it has one.
    pub fn take(core: &Core) -> Pooled {
        let pooled = POOL.with(|pool| pool.borrow_mut().pop());
        Pooled(Some(pooled.unwrap_or_else(|| Box::new(Exchange::new(core)))))
    }

    fn new(core: &Core) -> Exchange {
        Exchange {
            context: RequestContext::default(),
            parser: RequestParser::default(),
            upload: Upload {
                body: Body::Done,
                in_hand: 0,
                looked_at: false,
                relay: 0,
                whole: true,
                spent: false,
                kept: None,
                behind: Buf::empty(),
                bytes: 0,
                cancel: Cancel::default(),
            },
            answer: Answer::default(),
            matched: Matched::new(core),
        }
    }

    /// What was read of the next request, once this one is over.
    pub fn take_behind(&mut self) -> Buf {
        if self.upload.behind.capacity() > 0 {
            return std::mem::take(&mut self.upload.behind);
        }
        let request = &mut self.context.request;
        request.bytes.consume(request.head_len + self.upload.in_hand);
        std::mem::take(&mut request.bytes)
    }

    fn reset(&mut self) {
        self.context.reset();
        self.upload.body = Body::new(BodyFraming::None);
        self.upload.behind = Buf::empty();
        self.upload.in_hand = 0;
        self.upload.looked_at = false;
        self.upload.relay = 0;
        self.upload.whole = true;
        self.upload.spent = false;
        self.upload.kept = None;
        self.upload.bytes = 0;
        self.answer.head.reset();
        self.answer.body = Body::Done;
        self.answer.scratch = Buf::empty();
        self.answer.status = 0;
        self.answer.interim = false;
        self.answer.error = None;
        self.answer.bytes = 0;
        self.answer.asked_at = None;
        self.answer.connect_us = None;
        self.answer.head_at = None;
        self.answer.body_at = None;
        self.matched.reset();
    }
}

impl std::ops::Deref for Pooled {
    type Target = Exchange;

    fn deref(&self) -> &Exchange {
        self.0.as_ref().expect("held until it is dropped")
    }
}

impl std::ops::DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Exchange {
        self.0.as_mut().expect("held until it is dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(mut exchange) = self.0.take() else { return };
        exchange.reset();
        // What a large request made grow is given back.
        let memory = exchange.context.memory() + exchange.answer.head.added.memory();
        POOL.with(|pool| {
            let pool = &mut *pool.borrow_mut();
            if pool.len() < EXCHANGES_KEPT && memory <= EXCHANGE_BYTES_KEPT {
                pool.push(exchange);
            }
        });
    }
}
