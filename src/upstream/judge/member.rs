//! An endpoint as the judge sees it.

use super::breaker::{Breaker, Look, State};
use super::event::{Event, Tier, What};
use super::tail::Tail;
use super::window::{Outcomes, Window};
use crate::limits::{BREAKER_SETTLE_MS, BREAKER_TAIL_LOOKS_MIN, JUDGE_MS};
use crate::observe::render::EndpointStanding;
use crate::upstream::heads::HeadsView;
use crate::upstream::plan::{EndpointId, EndpointPlan, UpstreamPlan};
use crate::upstream::standing::{Standing, Totals};

/// One endpoint.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub id: EndpointId,
    /// Which of the group's zones it is in, where that tier is on.
    pub zone: Option<usize>,
    /// What was read last.
    totals: Totals,
    /// What became of requests since the look before.
    pub new: Outcomes,
    pub window: Window,
    /// How long the heads of its answers took, where thresholds are adaptive.
    tail: Option<Box<Tail>>,
    pub breaker: Breaker,
    health: Health,
    /// What its breaker and its checks say.
    pub own: Standing,
    /// What holds, its zone and the floor included.
    pub standing: Standing,
    /// Whether it took requests other than probes before this look, so that its failures count for
    /// its service and its zone.
    pub counts: bool,
    /// Its checks say something new that no event tells.
    pub news: bool,
}

/// What active checks say.
#[derive(Clone, Debug, Default)]
struct Health {
    /// None until it was checked for the first time.
    up: Option<bool>,
    /// Results in a row that say otherwise.
    otherwise: u32,
    /// Checks in a row that passed.
    passes: u32,
    /// Whether one failed before those.
    failed: bool,
    /// When so many passed in a row last, after one that failed, that it would be up had it been down.
    recovered_at_ms: Option<u64>,
    /// Of the last failure.
    reason: Box<str>,
}

/// When a look is taken, and at what part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub now_ms: u64,
    /// Endpoints are read by turns over so many looks.
    pub stride: usize,
    /// Which of them is read in this one.
    pub at: usize,
}

impl Turn {
    /// Whether it is the turn of an endpoint.
    fn is_of(self, endpoint: EndpointId) -> bool {
        endpoint.0 as usize % self.stride == self.at % self.stride
    }

    /// How long a window of times to heads is: histograms are larger than counters, and read by turns
    /// too.
    pub fn tail_ms(self, plan: &UpstreamPlan) -> u64 {
        plan.breaker.window_ms.max(self.stride as u64 * JUDGE_MS * BREAKER_TAIL_LOOKS_MIN)
    }

    /// For how long after a change outcomes may be those of requests that were sent before.
    pub fn settle_ms(self) -> u64 {
        BREAKER_SETTLE_MS + (self.stride as u64 - 1) * JUDGE_MS
    }
}

impl Member {
    /// One that nothing is known of; what was counted before is no news.
    pub fn new(plan: &EndpointPlan, window_ms: u64) -> Member {
        Member {
            id: plan.id,
            zone: None,
            totals: plan.tallies.totals(),
            new: Outcomes::default(),
            window: Window::new(window_ms),
            tail: None,
            breaker: Breaker::default(),
            health: Health::default(),
            own: Standing::WHOLE,
            standing: Standing::WHOLE,
            counts: true,
            news: false,
        }
    }

    /// Follows a reload: what it says no more is forgotten.
    pub fn follow(&mut self, before: &UpstreamPlan, now: &UpstreamPlan) {
        if before.breaker.window_ms != now.breaker.window_ms {
            self.window = Window::new(now.breaker.window_ms);
        }
        if !now.breaker.adaptive {
            self.tail = None;
        }
        if now.breaker.endpoint.is_off() && !before.breaker.endpoint.is_off() {
            self.breaker = Breaker::default();
        }
        if now.health.is_none() {
            self.health = Health::default();
        }
    }

    /// Whether a look at it may be short: nothing is remembered of it.
    fn is_calm(&self) -> bool {
        self.breaker.is_calm() && self.window.sum() == Outcomes::default()
    }

    /// Reads what the workers have counted where it is its turn, and judges it.
    pub fn look(
        &mut self,
        turn: Turn,
        plan: &UpstreamPlan,
        endpoint: &EndpointPlan,
        events: &mut Vec<Event>,
    ) {
        let (now_ms, due) = (turn.now_ms, turn.is_of(self.id));
        let isolated = due && self.read(endpoint);
        if !due {
            self.new = Outcomes::default();
        }
        self.counts = self.standing.share_permille > 0;
        self.window.add(now_ms, self.new);
        let ended = plan.breaker.adaptive && self.read_tail(turn, plan, endpoint);
        if !isolated && self.is_calm() {
            return;
        }
        let terms = plan.breaker.endpoint;
        let look = Look {
            new: self.new,
            window: self.window.sum(),
            percent: terms.error_percent,
            isolated: isolated && terms.consecutive > 0,
            half_open: false,
            settle_ms: turn.settle_ms(),
        };
        if terms.is_off() && self.breaker.state() == State::Closed {
            // It may still be in a slow start.
            self.breaker.look(now_ms, plan, Look { percent: 0, ..look });
            return;
        }
        if self.breaker.awaits_checks(now_ms).is_some_and(|since| self.passes_again(since)) {
            self.breaker.believe_checks(now_ms, &plan.breaker);
        }
        if let Some(from) = self.breaker.look(now_ms, plan, look) {
            self.forget();
            let what = What::Breaker(Tier::Endpoint, from, self.breaker.state());
            events.push(event(plan, endpoint, what, self.breaker.reason()));
        }
        let percent = self.breaker.percent(look.percent, &plan.breaker);
        let tail = self.tail.as_ref().filter(|_| ended);
        if let Some(new) =
            tail.and_then(|tail| self.breaker.adapt(&plan.breaker, &look, tail.window()))
        {
            let what = What::Threshold(Tier::Endpoint, percent, new);
            events.push(event(plan, endpoint, what, &format!("{percent} % -> {new} %")));
        }
    }

    /// Reads what the workers have counted; true where one of them has isolated it.
    fn read(&mut self, endpoint: &EndpointPlan) -> bool {
        let (totals, before) = (endpoint.tallies.totals(), self.totals);
        // Nothing ever counts down, but a reader may see two counters at different times.
        let since = |of: fn(&Totals) -> u64| of(&totals).saturating_sub(of(&before));
        self.new = Outcomes { succeeded: since(|it| it.succeeded), failed: since(|it| it.failed) };
        self.totals = totals;
        since(|it| it.isolated) > 0
    }

    /// Looks how long the heads of its answers took; true where a window of them has ended.
    fn read_tail(&mut self, turn: Turn, plan: &UpstreamPlan, endpoint: &EndpointPlan) -> bool {
        let (now_ms, window_ms) = (turn.now_ms, turn.tail_ms(plan));
        match &mut self.tail {
            Some(tail) => tail.look(endpoint, now_ms, window_ms),
            none => {
                *none = Some(Box::new(Tail::new(endpoint, now_ms, window_ms)));
                false
            }
        }
    }

    /// Forgets what became of its requests.
    pub fn forget(&mut self) {
        self.window.clear();
        if let Some(tail) = &mut self.tail {
            tail.clear();
        }
    }

    /// How long the heads of its answers took in the last window that has ended.
    pub fn heads(&self) -> Option<&HeadsView> {
        self.tail.as_ref().map(|tail| tail.window())
    }

    /// Whether its checks say that it is up.
    pub fn is_up(&self) -> bool {
        self.health.up == Some(true)
    }

    /// Whether its checks say that it has recovered since then: they failed, and no longer do.
    pub fn passes_again(&self, since_ms: u64) -> bool {
        let Health { passes, recovered_at_ms, .. } = &self.health;
        self.is_up() && *passes > 0 && recovered_at_ms.is_some_and(|at_ms| at_ms > since_ms)
    }

    /// Takes in the result of a check. The first decides, later ones as `rise` and `fall` say.
    pub fn on_check(
        &mut self,
        now_ms: u64,
        plan: &UpstreamPlan,
        endpoint: &EndpointPlan,
        result: Result<(), Box<str>>,
    ) -> Option<Event> {
        let terms = plan.health.as_ref()?;
        let passed = result.is_ok();
        let health = &mut self.health;
        match result {
            Ok(()) => health.passes = health.passes.saturating_add(1),
            Err(reason) => (health.passes, health.reason, health.failed) = (0, reason, true),
        }
        if health.failed && health.passes == terms.rise {
            health.recovered_at_ms = Some(now_ms);
        }
        let enough = match health.up {
            None => 1,
            Some(true) => terms.fall,
            Some(false) => terms.rise,
        };
        if health.up == Some(passed) {
            health.otherwise = 0;
            return None;
        }
        health.otherwise += 1;
        if health.otherwise < enough {
            return None;
        }
        health.otherwise = 0;
        let first = health.up.replace(passed).is_none();
        self.news = true;
        if passed && first {
            return None;
        }
        self.forget();
        if passed && self.breaker.state() == State::Closed {
            self.breaker.slow_start(now_ms, plan);
        }
        let reason = if passed { "" } else { &self.health.reason };
        Some(event(plan, endpoint, What::Health(passed), reason))
    }

    /// What its breaker and its checks say.
    pub fn own(&self, now_ms: u64, plan: &UpstreamPlan) -> Standing {
        match self.health.up {
            Some(false) => Standing::OUT,
            _ => self.breaker.standing(now_ms, plan),
        }
    }

    /// Whether so many of its requests fail that its own breaker would act, were they more.
    pub fn is_suspect(&self, plan: &UpstreamPlan) -> bool {
        let percent = self.breaker.percent(plan.breaker.endpoint.error_percent, &plan.breaker);
        let window = self.window.sum();
        percent > 0 && window.fails(percent) && window.requests() < plan.breaker.requests_min
    }

    /// What is shown of it; `zone` is what its zone says.
    pub fn view(
        &self,
        plan: &UpstreamPlan,
        endpoint: &EndpointPlan,
        zone: &str,
    ) -> EndpointStanding {
        let breaker = (!plan.breaker.endpoint.is_off())
            .then(|| super::breaker_view(&self.breaker, plan.breaker.endpoint.error_percent, plan));
        let reason = match self.health.up {
            Some(false) => format!("down: {}", self.health.reason),
            _ if self.breaker.state() != State::Closed => {
                format!("{}: {}", self.breaker.state().name(), self.breaker.reason())
            }
            _ if self.standing == Standing::WHOLE => String::new(),
            _ if self.own != Standing::WHOLE => "slow start".to_owned(),
            _ => zone.to_owned(),
        };
        EndpointStanding {
            address: endpoint.authority.clone(),
            up: self.health.up,
            breaker,
            share_permille: self.standing.share_permille,
            probing: self.standing.probing,
            reason: reason.into(),
        }
    }
}

fn event(plan: &UpstreamPlan, endpoint: &EndpointPlan, what: What, reason: &str) -> Event {
    let subject = endpoint.authority.clone();
    Event { upstream: plan.name.clone(), subject, what, reason: reason.into() }
}
