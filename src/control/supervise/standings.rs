//! The supervisor's judge: when it looks, and who is told what it says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Supervisor;
use crate::control::checks::{self, Checks, Permits};
use crate::control::helper::Event;
use crate::control::process::unix_time_s;
use crate::limits::{EVENTS_KEPT, JUDGE_MS};
use crate::observe::render::EventView;
use crate::upstream::{EndpointId, Judge, JudgeEvent};

/// What is known of upstreams and their endpoints.
#[derive(Debug)]
pub(super) struct Standing {
    judge: Judge,
    checks: Checks,
    permits: Permits,
    /// Where checks report to; none in tests without a runtime.
    reports: Option<mpsc::Sender<Event>>,
    /// When time began.
    began: Instant,
    /// When to look next, while there is anything to judge.
    look_at: Option<Instant>,
    events: Arc<VecDeque<EventView>>,
    events_total: u64,
}

impl Standing {
    /// Nothing is judged yet.
    pub(super) fn new(began: Instant) -> Standing {
        Standing {
            judge: Judge::default(),
            checks: Checks::default(),
            permits: Permits::default(),
            reports: None,
            began,
            look_at: None,
            events: Arc::default(),
            events_total: 0,
        }
    }

    /// When there is something to do again.
    pub(super) fn due(&self) -> Option<Instant> {
        let checks = self.reports.as_ref().and_then(|_| self.checks.due());
        self.look_at.into_iter().chain(checks).min()
    }

    fn ms(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.began).as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// Keeps an event to be shown.
    fn keep(&mut self, event: &JudgeEvent) {
        self.events_total += 1;
        let (tier, from, to) = event.words();
        let events = Arc::make_mut(&mut self.events);
        if events.len() == EVENTS_KEPT {
            events.pop_front();
        }
        events.push_back(EventView {
            number: self.events_total,
            at_s: unix_time_s(),
            upstream: event.upstream.clone(),
            tier,
            subject: event.subject.clone(),
            from,
            to,
            reason: event.reason.clone(),
        });
    }
}

impl Supervisor {
    /// Has endpoints checked where the configuration says so; results come as events.
    pub fn check_endpoints(&mut self, reports: mpsc::Sender<Event>) {
        self.standing.reports = Some(reports);
    }

    /// Follows the configuration that takes force.
    pub(super) fn judge_current(&mut self, now: Instant) {
        let now_ms = self.standing.ms(now);
        self.standing.judge.follow(&self.current.upstreams, now_ms);
        self.standing.checks.follow(&self.current, now);
        self.standing.look_at = (!self.standing.judge.is_idle()).then_some(now);
        self.tell_standings(now);
    }

    /// Takes the result of a check.
    pub(super) fn on_checked(
        &mut self,
        endpoint: EndpointId,
        result: Result<(), Box<str>>,
        now: Instant,
    ) {
        if !self.standing.checks.answered(endpoint) {
            return;
        }
        let failed = usize::from(result.is_err());
        self.view.send_modify(|view| view.standings.checks[failed] += 1);
        let now_ms = self.standing.ms(now);
        self.standing.judge.on_check(endpoint, result, now_ms);
    }

    /// Looks at what workers have counted, where that is due, and begins checks that are.
    pub(super) fn on_standing_due(&mut self, now: Instant) {
        if let Some(due) = self.standing.look_at.filter(|due| *due <= now) {
            let now_ms = self.standing.ms(now);
            self.standing.judge.tick(now_ms);
            // What was missed is not made up for.
            let next = due + Duration::from_millis(JUDGE_MS);
            self.standing.look_at = Some(next.max(now));
            self.tell_standings(now);
        }
        let Some(reports) = &self.standing.reports else { return };
        for target in self.standing.checks.ask(now) {
            let (reports, permits) = (reports.clone(), self.standing.permits.clone());
            let endpoint = target.endpoint.id;
            let addresses = self.names.addresses(endpoint);
            tokio::spawn(async move {
                let result = checks::check(target, addresses, permits).await;
                // Without a supervisor the process is ending.
                let _ = reports.send(Event::Checked(endpoint, result)).await;
            });
        }
    }

    /// Tells workers, the log and whoever looks what has changed.
    fn tell_standings(&mut self, now: Instant) {
        if let Some(standings) = self.standing.judge.take_changed() {
            self.fleet.standings(&Arc::new(standings));
        }
        for event in self.standing.judge.take_events() {
            match event.is_bad() {
                true => tracing::warn!("{event}"),
                false => tracing::info!("{event}"),
            }
            self.standing.keep(&event);
        }
        if self.standing.judge.take_news() {
            let upstreams = self.standing.judge.view(self.standing.ms(now));
            let (events, total) = (self.standing.events.clone(), self.standing.events_total);
            self.view.send_modify(|view| {
                view.standings.upstreams = upstreams;
                view.standings.events = events;
                view.standings.events_total = total;
            });
        }
    }
}
