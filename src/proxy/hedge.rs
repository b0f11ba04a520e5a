//! A second try at another endpoint while the first has no answer yet (docs/decisions/0020).
//!
//! Both are whole tries, each with a lease, an answer and a copy of what is in hand of the body. They
//! share the client, to which only the one writes that has won: the first that has a head to pass on.
//! The other is dropped in that moment, and its connection or stream with it.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::exchange::{Answer, Exchange, Matched, Upload};
use super::forward::{Attempt, Job, Place};
use super::retry::{self, Failed};
use super::serve::Next;
use super::{Downstream, target, tunnel};
use crate::base::buffer::Buf;
use crate::context::{Hedge, RequestContext};
use crate::error::{ErrorKind, Side};
use crate::http1::body::Body;
use crate::io::wait::Timer;
use crate::io::{Cancel, Handle, Shutdown, sleep_ms};
use crate::limits::HEDGES_IN_FLIGHT_MAX;
use crate::observe::series::InFlight;
use crate::state::Core;
use crate::upstream::trial::Alone;
use crate::upstream::{Endpoint, Upstream};

/// After how long another endpoint is asked as well, if the try that is about to begin at `endpoint` has
/// no head of an answer by then; none where it is alone. It stands on the path of every request.
#[inline]
pub(super) fn after_ms(exchange: &mut Exchange, endpoint: &Rc<Endpoint>) -> Option<u64> {
    let after_ms = retry::plan(&exchange.matched).hedge_after_ms?;
    if !may_be_hedged(exchange) {
        return None;
    }
    let matched = &mut exchange.matched;
    matched.alone = Alone::of(endpoint, matched.settings().consecutive);
    matched.alone.is_none().then_some(after_ms)
}

/// Whether it may be sent twice at once: it does no more than once (RFC 9110 section 9.2.2), all of it
/// is in hand, it opens no tunnel and has a try left. What is to show whether an endpoint has recovered
/// has to wait for its answer, and an upstream that is let have only some requests is not sent more.
fn may_be_hedged(exchange: &Exchange) -> bool {
    let Exchange { context, upload, matched, .. } = exchange;
    context.facts.idempotent
        && retry::plan(matched).takes(retry::method(context))
        && upload.whole
        && context.facts.upgrade.is_none()
        && !tunnel::is_connect(context)
        && context.timing.hedge.is_none()
        && retry::has_tries_left(retry::plan(matched), context, false)
        && matched.probe.is_none()
        && matched.trial.is_none()
        && matched.upstream.as_ref().is_some_and(|upstream| upstream.is_whole())
}

/// One of two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    First,
    Second,
}

impl Which {
    fn other(self) -> Which {
        match self {
            Which::First => Which::Second,
            Which::Second => Which::First,
        }
    }
}

/// What two tries of one request share.
struct Race<'a> {
    down: &'a Downstream,
    total: Option<&'a Timer>,
    /// The deadline of the try that does not lead; there is none before there are two.
    spare: OnceCell<Timer>,
    /// Whose waits the connection's own deadline bounds, by which one is told that the client has
    /// gone, and that of the whole request.
    leader: Cell<Which>,
    /// Which of them go on.
    goes_on: [Cell<bool>; 2],
    /// Their connections.
    handles: [RefCell<Option<Handle>>; 2],
    won: Cell<Option<Which>>,
}

impl<'a> Race<'a> {
    fn new(down: &'a Downstream, total: Option<&'a Timer>) -> Race<'a> {
        Race {
            down,
            total,
            spare: OnceCell::new(),
            leader: Cell::new(Which::First),
            goes_on: [Cell::new(true), Cell::new(false)],
            handles: Default::default(),
            won: Cell::new(None),
        }
    }

    fn goes_on(&self, which: Which) -> bool {
        self.goes_on[which as usize].get()
    }

    /// The second try begins.
    fn begin_second(&self, place: &Place<'_>) {
        let spare = Timer::new(&place.core.deadlines, self.down.target(None));
        assert!(self.spare.set(spare).is_ok(), "there is one second try");
        self.goes_on[Which::Second as usize].set(true);
    }

    /// One of two is over: what is left of it is shut down, and the other leads.
    fn retire(&self, which: Which) {
        self.goes_on[which as usize].set(false);
        if let Some(handle) = self.handles[which as usize].take() {
            handle.shutdown(Shutdown::Both);
        }
        let Some(spare) = self.spare.get() else { return };
        if self.leader.get() != which {
            return spare.disarm();
        }
        self.leader.set(which.other());
        self.down.timer.take_over(spare);
        if let Some(total) = self.total {
            total.set_upstream(self.handles[which.other() as usize].borrow().clone());
        }
    }

    /// What becomes of the request once a client of HTTP/2 has reset its stream before it was told
    /// anything: both are over. Deadlines tell only the one that leads, and none that connects.
    fn taken_back(&self, context: &mut Context<'_>) -> Option<Result<Next, Failed>> {
        let client = self.down.http2().filter(|_| self.won.get().is_none())?;
        if client.poll_reset(context).is_pending() {
            return None;
        }
        self.retire(Which::First);
        self.retire(Which::Second);
        Some(Err(Failed::of(ErrorKind::ClientAborted)))
    }
}

/// One of two tries, as its pumps see it.
pub(super) struct Runner<'a> {
    race: &'a Race<'a>,
    which: Which,
    /// What its endpoint is sent as Host, where that differs from what the first one is sent.
    host: Option<&'a [u8]>,
}

impl Runner<'_> {
    /// The deadline of its waits.
    pub fn timer(&self) -> &Timer {
        match self.race.spare.get() {
            Some(spare) if !self.leads() => spare,
            _ => &self.race.down.timer,
        }
    }

    /// Whether the deadlines of the connection and of the request are its own.
    pub fn leads(&self) -> bool {
        self.race.leader.get() == self.which
    }

    /// It has a connection, or has none any more.
    pub fn set_upstream(&self, handle: Option<Handle>) {
        self.race.handles[self.which as usize].replace(handle);
    }

    /// Whether the other goes on.
    fn has_rival(&self) -> bool {
        self.race.goes_on(self.which.other())
    }

    /// It has the head of an answer for the client: the other is over. Whether it had not won before.
    fn claim(&self) -> bool {
        let before = self.race.won.replace(Some(self.which));
        match before {
            None => self.race.retire(self.which.other()),
            Some(won) => assert_eq!(won, self.which, "what has lost is not polled again"),
        }
        before.is_none()
    }
}

impl Attempt<'_> {
    /// Whether it was begun while another went on.
    pub(super) fn is_hedge(&self) -> bool {
        self.runner.is_some_and(|runner| runner.which == Which::Second)
    }

    /// Whether another try goes on, so that this one need not be the answer.
    pub(super) fn has_rival(&self) -> bool {
        self.runner.is_some_and(Runner::has_rival)
    }

    /// Whether the request has been sent to two endpoints at once.
    pub(super) fn was_hedged(&self) -> bool {
        let here = self.runner.is_some_and(|runner| runner.race.spare.get().is_some());
        here || self.context.timing.hedge.is_some()
    }

    /// What a route writes as Host for the endpoint; empty where it does not.
    pub(super) fn host_rewritten(&self) -> &[u8] {
        let own = self.runner.and_then(|runner| runner.host);
        own.unwrap_or(&self.context.target.host_rewritten)
    }

    /// Runs it and counts what became of it.
    async fn counted(&self, upload: &mut Upload, answer: &mut Answer) -> Result<Next, Failed> {
        let tried = self.run(upload, answer).await;
        self.finish(upload, answer, tried.as_ref().err());
        tried
    }
}

impl Job<'_> {
    /// From here on the client is told something: of two tries this one has won.
    #[inline]
    pub(super) fn claim(&self) {
        let Some(runner) = self.runner else { return };
        let wins = runner.claim() && runner.which == Which::Second;
        if let (true, Some(upstream)) = (wins, &self.matched.upstream) {
            self.core.series.upstream(upstream.id.0, |it| it.hedges_won.increment());
        }
    }
}

/// A request of which a try may be hedged.
pub(super) struct Hedged<'a, 'b> {
    pub place: &'a Place<'a>,
    pub total: Option<&'a Timer>,
    /// Where it counts as in flight.
    pub in_flight: &'a mut InFlight<'b>,
}

impl Hedged<'_, '_> {
    /// Tries an endpoint, and another one with it if the first takes longer than `after_ms`. The
    /// endpoint that is left in `endpoint` is the one that answered, or failed last.
    ///
    /// # Errors
    /// Why the last of them failed.
    pub async fn run(
        self,
        exchange: &mut Exchange,
        endpoint: &mut Rc<Endpoint>,
        after_ms: u64,
    ) -> Result<Next, Failed> {
        let mut second = None;
        let Exchange { context, upload, answer, matched, .. } = &mut *exchange;
        let began = Instant::now();
        let first = First { context, matched, endpoint, after_ms, began };
        let (which, tried) = self.race(first, upload, answer, &mut second).await;
        let Some(second) = second else { return tried };
        let won = which == Which::Second && second.answer.is_begun();
        // What is tried after it is tried alone.
        exchange.context.timing.hedge = Some(if won { Hedge::Won } else { Hedge::Lost });
        let other = match which {
            Which::First => second.endpoint.id,
            Which::Second => endpoint.id,
        };
        exchange.matched.tried.push(other);
        if which == Which::Second {
            *endpoint = second.endpoint.clone();
            second.adopt(exchange);
            exchange.context.timing.raced_at = Some(began);
        }
        tried
    }

    async fn race(
        self,
        first: First<'_>,
        upload: &mut Upload,
        answer: &mut Answer,
        second: &mut Option<Box<Second>>,
    ) -> (Which, Result<Next, Failed>) {
        let Hedged { place, total, in_flight } = self;
        let First { context, matched, endpoint, after_ms, began } = first;
        let in_hand = upload.in_hand;
        let race = Race::new(place.down, total);
        let runner = Runner { race: &race, which: Which::First, host: None };
        let attempt = Attempt { place, endpoint, context, matched, total, runner: Some(&runner) };
        let mut first_run = pin!(Some(attempt.counted(upload, answer)));
        if let Some(tried) = bounded(first_run.as_mut(), &race, after_ms).await {
            return (Which::First, tried);
        }
        // It may have won in the turn in which the time passed.
        let begun = match race.won.get() {
            None => Second::begin(&attempt, in_hand),
            Some(_) => None,
        };
        let Some(begun) = begun else {
            return (Which::First, alone(first_run).await);
        };
        race.begin_second(place);
        let Second { endpoint: other, matched, host, upload, answer } = &mut **second.insert(begun);
        let other: &Rc<Endpoint> = other;
        let counted = InFlightToo::new(place.core, other);
        let runner = Runner { race: &race, which: Which::Second, host: host.as_deref() };
        let runner = Some(&runner);
        let attempt = Attempt { place, endpoint: other, context, matched, total, runner };
        let second_run = Box::pin(attempt.counted(upload, answer));
        let mut both = Both {
            race: &race,
            slow: Slow { place, matched, endpoint, began },
            first: first_run,
            second: Some(second_run),
            in_flight,
            counted: Some(counted),
        };
        poll_fn(|context| both.poll(context)).await
    }
}

/// The try that was begun first.
struct First<'a> {
    context: &'a RequestContext,
    matched: &'a Matched,
    endpoint: &'a Rc<Endpoint>,
    after_ms: u64,
    began: Instant,
}

/// Runs the first try for so long; none where it goes on. Once it has won there is nothing to bound.
async fn bounded<F: Future<Output = Result<Next, Failed>>>(
    mut first: Pin<&mut Option<F>>,
    race: &Race<'_>,
    after_ms: u64,
) -> Option<F::Output> {
    let mut time = Box::pin(sleep_ms(after_ms));
    poll_fn(|context| {
        if let Poll::Ready(tried) = poll_run(first.as_mut(), context) {
            return Poll::Ready(Some(tried));
        }
        if race.won.get().is_some() {
            return Poll::Ready(None);
        }
        // Nothing is begun for a client that has gone.
        time.as_mut().poll(context).map(|()| race.taken_back(context))
    })
    .await
}

/// Runs what is left to its end.
async fn alone<F: Future>(mut run: Pin<&mut Option<F>>) -> F::Output {
    poll_fn(|context| poll_run(run.as_mut(), context)).await
}

/// Polls a run that is there; one that is not never ends.
fn poll_run<F: Future>(run: Pin<&mut Option<F>>, context: &mut Context<'_>) -> Poll<F::Output> {
    run.as_pin_mut().map_or(Poll::Pending, |run| run.poll(context))
}

/// The first try, where the second one wins: it took at least as long as until then, which a balancer
/// by latency has to learn, or the endpoint would look fast by what it answers in time. Too many of them
/// in a row, and one is waited for.
struct Slow<'a> {
    place: &'a Place<'a>,
    matched: &'a Matched,
    endpoint: &'a Endpoint,
    began: Instant,
}

impl Slow<'_> {
    fn observe(&self) {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(upstream) = &self.matched.upstream {
            upstream.cut_off(self.endpoint, us, self.place.core.now_ms());
        }
    }
}

/// Two tries that go on.
struct Both<'a, 'b, F, S> {
    race: &'a Race<'a>,
    slow: Slow<'a>,
    first: Pin<&'a mut Option<F>>,
    second: Option<Pin<Box<S>>>,
    in_flight: &'a mut InFlight<'b>,
    counted: Option<InFlightToo<'a>>,
}

impl<F, S> Both<'_, '_, F, S>
where
    F: Future<Output = Result<Next, Failed>>,
    S: Future<Output = Result<Next, Failed>>,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Which, Result<Next, Failed>)> {
        if let Some(ended) = self.race.taken_back(context) {
            return Poll::Ready((Which::First, ended));
        }
        if let Poll::Ready(tried) = poll_run(self.first.as_mut(), context) {
            self.end(Which::First);
            if self.decides(Which::First, &tried) {
                return Poll::Ready((Which::First, tried));
            }
        }
        if self.race.won.get() == Some(Which::First) {
            self.end(Which::Second);
        }
        let polled = self.second.as_mut().map(|second| second.as_mut().poll(context));
        if self.race.won.get() == Some(Which::Second) && self.first.is_some() {
            self.slow.observe();
            self.end(Which::First);
        }
        if let Some(Poll::Ready(tried)) = polled {
            self.end(Which::Second);
            if self.decides(Which::Second, &tried) {
                return Poll::Ready((Which::Second, tried));
            }
        }
        Poll::Pending
    }

    /// Drops a try that is over, or has lost. Its read, if one is pending, is dropped with it: what
    /// that connection still brings is nobody's.
    fn end(&mut self, which: Which) {
        match which {
            Which::First => {
                self.first.set(None);
                if let Some(counted) = self.counted.take() {
                    self.in_flight.move_to(counted.endpoint);
                }
            }
            Which::Second => {
                self.second = None;
                self.counted = None;
            }
        }
    }

    /// Whether what has become of a try is what becomes of the request.
    fn decides(&mut self, which: Which, tried: &Result<Next, Failed>) -> bool {
        let ended = match tried {
            Ok(_) => true,
            Err(failed) => {
                failed.kind.side() == Side::Client || failed.kind == ErrorKind::TotalTimeout
            }
        };
        let alone = !self.race.goes_on(which.other());
        self.race.retire(if ended { which.other() } else { which });
        ended || alone
    }
}

/// What the second try has of its own.
struct Second {
    endpoint: Rc<Endpoint>,
    matched: Matched,
    host: Option<Vec<u8>>,
    upload: Upload,
    answer: Answer,
}

impl Second {
    /// Another endpoint that is whole, paid for out of the budget; none where the first goes on alone.
    fn begin(first: &Attempt<'_>, in_hand: usize) -> Option<Box<Second>> {
        let Attempt { place, context, matched, .. } = *first;
        let upstream: &Upstream = matched.upstream.as_ref()?;
        let (endpoint, host) = target::pick_beside(first, upstream)?;
        let upload = Upload::again(context, in_hand)?;
        if place.core.hedges.get() >= HEDGES_IN_FLIGHT_MAX || !retry::pays(place, upstream) {
            return None;
        }
        place.core.series.upstream(upstream.id.0, |it| it.hedges.increment());
        let matched = matched.beside(endpoint.clone());
        Some(Box::new(Second { endpoint, matched, host, upload, answer: Answer::default() }))
    }

    /// What became of the request is what became of this try.
    fn adopt(self: Box<Second>, exchange: &mut Exchange) {
        let Second { endpoint, matched, host, upload, answer } = *self;
        exchange.answer = answer;
        exchange.upload.bytes = upload.bytes;
        exchange.matched.endpoint = Some(endpoint);
        exchange.matched.progress.set(matched.progress.get());
        exchange.matched.counted.set(matched.counted.get());
        if let Some(host) = host {
            exchange.context.target.host_rewritten = host;
        }
    }
}

impl Matched {
    /// The same for a try at `endpoint` that goes on beside this one. Places in flight are held once.
    /// A client that has a cookie keeps it: one slow answer does not move it elsewhere.
    fn beside(&self, endpoint: Rc<Endpoint>) -> Matched {
        Matched {
            held: self.held.clone(),
            terms: self.terms,
            progress: self.progress.clone(),
            target: self.target,
            names_endpoint: self.names_endpoint,
            upstream: self.upstream.clone(),
            settings: self.settings.clone(),
            endpoint: Some(endpoint),
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
}

impl Upload {
    /// A body that is whole in hand, from its beginning.
    fn again(context: &RequestContext, in_hand: usize) -> Option<Upload> {
        let mut body = Body::new(context.facts.framing);
        let (mut relay, mut bytes) = (0, 0);
        if in_hand > 0 {
            // It was looked at before, and nothing was wrong with it.
            let step = body.advance(&context.request.rest()[..in_hand]).ok()?;
            (relay, bytes) = (step.relay, step.data as u64);
        }
        Some(Upload {
            body,
            in_hand,
            looked_at: true,
            relay,
            whole: true,
            behind: Buf::empty(),
            spent: false,
            kept: None,
            bytes,
            cancel: Cancel::default(),
        })
    }
}

/// Counts the second try as in flight to its endpoint, as long as there are two; the request is counted
/// where the first one is.
struct InFlightToo<'a> {
    core: &'a Core,
    endpoint: u32,
}

impl<'a> InFlightToo<'a> {
    fn new(core: &'a Core, endpoint: &Endpoint) -> InFlightToo<'a> {
        core.series.endpoint(endpoint.id.0, |it| it.in_flight.increment());
        core.hedges.set(core.hedges.get() + 1);
        InFlightToo { core, endpoint: endpoint.id.0 }
    }
}

impl Drop for InFlightToo<'_> {
    fn drop(&mut self) {
        self.core.series.endpoint(self.endpoint, |it| it.in_flight.decrement());
        self.core.hedges.set(self.core.hedges.get() - 1);
    }
}
