//! An endpoint as the judge sees it.

use super::breaker::{Breaker, Look, State};
use super::event::{Event, Tier, What};
use super::window::{Outcomes, Window};
use crate::observe::render::EndpointStanding;
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
    /// Of the last failure.
    reason: Box<str>,
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

    /// Reads what the workers have counted, and judges it.
    pub fn look(
        &mut self,
        now_ms: u64,
        plan: &UpstreamPlan,
        endpoint: &EndpointPlan,
        events: &mut Vec<Event>,
    ) {
        let (totals, before) = (endpoint.tallies.totals(), self.totals);
        // Nothing ever counts down, but a reader may see two counters at different times.
        let since = |of: fn(&Totals) -> u64| of(&totals).saturating_sub(of(&before));
        self.new = Outcomes {
            succeeded: since(|it| it.succeeded),
            failed: since(|it| it.failed),
            head_us: since(|it| it.head_us),
        };
        let isolated = since(|it| it.isolated) > 0;
        self.totals = totals;
        self.counts = self.standing.share_permille > 0;
        self.window.add(now_ms, self.new);
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
        };
        if terms.is_off() && self.breaker.state() == State::Closed {
            // It may still be in a slow start.
            self.breaker.look(now_ms, plan, Look { percent: 0, ..look });
            return;
        }
        if let Some(from) = self.breaker.look(now_ms, plan, look) {
            self.window.clear();
            let what = What::Breaker(Tier::Endpoint, from, self.breaker.state());
            events.push(event(plan, endpoint, what, self.breaker.reason()));
        }
        let percent = self.breaker.percent(look.percent, &plan.breaker);
        if let Some(new) = self.breaker.adapt(now_ms, &plan.breaker, &look) {
            let what = What::Threshold(Tier::Endpoint, percent, new);
            events.push(event(plan, endpoint, what, &format!("{percent} % -> {new} %")));
        }
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
        if let Err(reason) = result {
            self.health.reason = reason;
        }
        let health = &mut self.health;
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
        self.window.clear();
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
