//! The states of one breaker: of an endpoint, of a zone, or of a whole upstream.
//!
//! Closed opens when too many requests of the window fail, or so many in a row on one worker; a
//! service goes to Probing the first time. Open ends with its time, Probing with enough successes in
//! a row, Trickle with its time; a failing probe or a bad trickle opens again, for longer. Checks that
//! pass again end Open early.

use super::adaptive::{Adaptive, Usual};
use super::window::Outcomes;
use crate::limits::*;
use crate::upstream::heads::HeadsView;
use crate::upstream::plan::{BreakerPlan, UpstreamPlan};
use crate::upstream::standing::{Standing, WHOLE_PERMILLE};

/// Where a breaker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Requests pass: all, or in a slow start ever more of them.
    #[default]
    Closed = 0,
    /// None does.
    Open = 1,
    /// One at a time does, on each worker.
    Probing = 2,
    /// A few in a hundred do.
    Trickle = 3,
}

impl State {
    /// As events, `status` and docs/health.md name it.
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::Probing => "probing",
            State::Trickle => "trickle",
        }
    }
}

/// What a breaker is told at each look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// What became of requests since the last one.
    pub new: Outcomes,
    /// What is in the window.
    pub window: Outcomes,
    /// The configured threshold, in percent; 0 is none.
    pub percent: u64,
    /// A worker has isolated it for failures in a row.
    pub isolated: bool,
    /// Whether it goes to probes at once, the first time.
    pub half_open: bool,
    /// For how long after that outcomes may be those of requests that were sent before.
    pub settle_ms: u64,
}

/// One breaker.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    state: State,
    /// When Open and Trickle end, and until when Probing looks at nothing.
    until_ms: u64,
    /// Successes among probes, and everything in a trickle.
    seen: Outcomes,
    /// How often it has opened, less once for every [`CALM`] that it was closed.
    openings: u32,
    /// It went to probes at once, and has not been calm since.
    half_opened: bool,
    /// Since when it is closed, or one opening is forgotten.
    calm_since_ms: u64,
    ramp: Option<Ramp>,
    adaptive: Adaptive,
    /// Since when a recovery that checks see is one of the outage that it is open for.
    failing_since_ms: u64,
    /// Before this time, checks that pass again are not believed once more.
    believes_at_ms: u64,
    /// How often they were, less as openings are forgotten.
    believed: u32,
    /// Why it left Closed.
    reason: Box<str>,
    transitions: u64,
}

/// A slow start.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    since_ms: u64,
    first_permille: u16,
}

impl Breaker {
    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it is not closed; empty where it is.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How many times it changed.
    pub fn transitions(&self) -> u64 {
        self.transitions
    }

    /// Whether it lets nothing through but probes.
    pub fn isolates(&self) -> bool {
        matches!(self.state, State::Open | State::Probing)
    }

    /// Whether nothing is to be seen of it, and nothing will happen without requests.
    pub fn is_calm(&self) -> bool {
        let remembers = self.openings > 0 || self.half_opened;
        self.state == State::Closed && self.ramp.is_none() && !remembers
    }

    /// What it says.
    pub fn standing(&self, now_ms: u64, plan: &UpstreamPlan) -> Standing {
        match self.state {
            State::Open => Standing::OUT,
            State::Probing => Standing::PROBING,
            State::Trickle => Standing::part(plan.breaker.trickle_permille),
            State::Closed => self.ramp.map_or(Standing::WHOLE, |ramp| {
                Standing::part(ramp.permille(now_ms, plan.slow_start_ms))
            }),
        }
    }

    /// The threshold that holds now, in percent.
    pub fn percent(&self, configured: u64, plan: &BreakerPlan) -> u64 {
        if plan.adaptive { self.adaptive.percent(configured) } else { configured }
    }

    /// What is usual, where its threshold follows that.
    pub fn usual(&self, plan: &BreakerPlan) -> Option<Usual> {
        self.adaptive.usual().filter(|_| plan.adaptive)
    }

    /// Begins a slow start, where there is one: what it stands for has come back.
    pub fn slow_start(&mut self, now_ms: u64, plan: &UpstreamPlan) {
        let first_permille = SLOW_START_FIRST_PERMILLE;
        self.ramp = (plan.slow_start_ms > 0).then_some(Ramp { since_ms: now_ms, first_permille });
    }

    /// Takes a look; returns where it was before where it changed.
    pub fn look(&mut self, now_ms: u64, plan: &UpstreamPlan, look: Look) -> Option<State> {
        let (before, terms) = (self.state, &plan.breaker);
        match before {
            State::Closed => self.look_closed(now_ms, plan, look),
            State::Open if now_ms >= self.until_ms => self.enter(State::Probing, now_ms),
            State::Open => {}
            // What ends right after a change from Closed was sent before it.
            State::Probing if now_ms < self.until_ms => {}
            State::Probing if look.new.failed > 0 || look.isolated => {
                self.open(now_ms, terms, "a probe failed".into());
            }
            State::Probing => {
                self.seen += look.new;
                if self.seen.succeeded >= terms.probes {
                    self.enter(State::Trickle, now_ms);
                    self.until_ms = now_ms + terms.trickle_ms;
                }
            }
            State::Trickle => self.look_trickle(now_ms, plan, look),
        }
        (self.state != before).then_some(before)
    }

    /// Opens it for another reason than what it sees itself.
    pub fn open(&mut self, now_ms: u64, terms: &BreakerPlan, reason: Box<str>) {
        self.until_ms = now_ms + doubled(terms, self.openings);
        // One more than the longest time needs, and no more: each is to be forgotten again.
        let enough = self.openings > 0 && doubled(terms, self.openings - 1) == terms.open_max_ms;
        self.openings += u32::from(!enough);
        self.enter(State::Open, now_ms);
        self.reason = reason;
    }

    /// Since when checks must have seen a recovery, for that to end the time that it is open. None
    /// where that has no end to be brought forward, or was of late, in vain.
    pub fn awaits_checks(&self, now_ms: u64) -> Option<u64> {
        let waits = self.state == State::Open && now_ms < self.until_ms;
        (waits && now_ms >= self.believes_at_ms).then_some(self.failing_since_ms)
    }

    /// Checks pass again: the next probe is due. If requests go on failing, checks are believed
    /// later, each time.
    pub fn believe_checks(&mut self, now_ms: u64, terms: &BreakerPlan) {
        self.until_ms = now_ms;
        self.failing_since_ms = now_ms;
        self.believes_at_ms = now_ms + doubled(terms, self.believed);
        self.believed = (self.believed + 1).min(DOUBLINGS_MAX);
        self.reason = format!("{}; checks pass again", self.reason).into();
    }

    /// Looks at the adaptive threshold after a window; returns it where it has changed.
    pub fn adapt(&mut self, terms: &BreakerPlan, look: &Look, heads: &HeadsView) -> Option<u64> {
        let says = look.percent > 0 && look.window.requests() >= terms.requests_min;
        if !terms.adaptive || self.state != State::Closed || !says {
            return None;
        }
        let before = self.adaptive.percent(look.percent);
        self.adaptive.judge(look.window, heads);
        let after = self.adaptive.percent(look.percent);
        (after != before).then_some(after)
    }

    fn look_closed(&mut self, now_ms: u64, plan: &UpstreamPlan, look: Look) {
        let terms = &plan.breaker;
        self.ramp = self.ramp.filter(|ramp| ramp.since_ms + plan.slow_start_ms > now_ms);
        let percent = self.percent(look.percent, terms);
        let enough = look.window.requests() >= terms.requests_min;
        if look.isolated {
            let reason = format!("{} failures in a row on a worker", terms.endpoint.consecutive);
            self.open(now_ms, terms, reason.into());
        } else if percent > 0 && enough && look.window.fails(percent) {
            let Outcomes { failed, .. } = look.window;
            let requests = look.window.requests();
            let reason = format!("{failed} of {requests} requests failed, {percent} % is too many");
            if look.half_open && self.openings == 0 && !self.half_opened {
                self.half_opened = true;
                self.enter(State::Probing, now_ms);
                self.until_ms = now_ms + look.settle_ms;
                self.reason = reason.into();
            } else {
                self.open(now_ms, terms, reason.into());
            }
        } else if now_ms >= self.calm_since_ms + CALM * terms.open_ms {
            self.half_opened &= self.openings > 0;
            self.openings = self.openings.saturating_sub(1);
            self.believed = self.believed.min(self.openings);
            self.calm_since_ms = now_ms;
        }
    }

    fn look_trickle(&mut self, now_ms: u64, plan: &UpstreamPlan, look: Look) {
        let terms = &plan.breaker;
        self.seen += look.new;
        let percent = match self.percent(look.percent, terms) {
            0 => BREAKER_ENDPOINT_PERCENT,
            percent => percent,
        };
        let over = now_ms >= self.until_ms;
        // So few requests come in a trickle that one failure among them says nothing.
        let bad = self.seen.failed > 1 && self.seen.fails(percent);
        let enough = over || self.seen.requests() >= terms.requests_min;
        if look.isolated || bad && enough {
            let reason = match look.isolated {
                true => "failures in a row in the trickle".to_owned(),
                false => {
                    let (failed, all) = (self.seen.failed, self.seen.requests());
                    format!("{failed} of {all} requests in the trickle failed")
                }
            };
            self.open(now_ms, terms, reason.into());
        } else if over {
            self.enter(State::Closed, now_ms);
            self.calm_since_ms = now_ms;
            self.slow_start(now_ms, plan);
            if let Some(ramp) = &mut self.ramp {
                ramp.first_permille = ramp.first_permille.max(terms.trickle_permille);
            }
        }
    }

    fn enter(&mut self, state: State, now_ms: u64) {
        if self.state == State::Closed {
            self.failing_since_ms = now_ms;
        }
        self.state = state;
        self.seen = Outcomes::default();
        self.transitions += 1;
        self.ramp = None;
        if state == State::Closed {
            self.reason = "".into();
        }
    }
}

impl Ramp {
    /// The share after some of `slow_start_ms`: it grows in steps.
    fn permille(self, now_ms: u64, slow_start_ms: u64) -> u16 {
        let passed = now_ms.saturating_sub(self.since_ms).min(slow_start_ms);
        let rest = u64::from(WHOLE_PERMILLE - self.first_permille.min(WHOLE_PERMILLE));
        let grown = (rest * passed / slow_start_ms.max(1)) as u16;
        let step = SLOW_START_STEP_PERMILLE;
        (self.first_permille + grown / step * step).min(WHOLE_PERMILLE)
    }
}

/// How many `open` times closed make one opening forgotten.
const CALM: u64 = 10;

/// How long what has been open so many times is open now.
fn doubled(terms: &BreakerPlan, times: u32) -> u64 {
    (terms.open_ms << times.min(DOUBLINGS_MAX)).min(terms.open_max_ms)
}

/// Doublings that are remembered: the shortest time open becomes the longest with fewer.
const DOUBLINGS_MAX: u32 = 16;

const _: () = assert!(BREAKER_MS_RANGE.0 << DOUBLINGS_MAX >= BREAKER_OPEN_MAX_MS_RANGE.1);
