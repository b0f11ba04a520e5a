//! Health, breakers and slow start, decided for the whole node (docs/health.md, decision 0016).
//!
//! Totals of the workers, results of checks and the time go in; standings and events come out. Does
//! no I/O, so that hours of it are a loop.

pub mod adaptive;
pub mod breaker;
pub mod event;
pub mod window;

mod group;
mod member;
mod tail;

pub use breaker::State;
pub use event::{Event, Tier, What};

use std::collections::HashMap;
use std::sync::Arc;

use super::plan::{EndpointId, UpstreamId, UpstreamPlan};
use super::standing::Standings;
use crate::limits::JUDGE_TALLIES_MAX;
use crate::observe::render::{BreakerView, UpstreamStanding, UsualView};
use breaker::Breaker;
use group::Group;
use member::Turn;

/// Judges every upstream that has a breaker or checks; the others are whole.
#[derive(Debug, Default)]
pub struct Judge {
    groups: Vec<Group>,
    /// Where an endpoint is: its group, and its place there.
    places: HashMap<EndpointId, (usize, usize)>,
    events: Vec<Event>,
    standings: Standings,
    changed: bool,
    /// Something that is shown has changed.
    news: bool,
    /// Looks that were taken.
    looks: usize,
}

impl Judge {
    /// Follows a configuration that takes force: what keeps its identity keeps what is known of it.
    pub fn follow(&mut self, plans: &[Arc<UpstreamPlan>], now_ms: u64) {
        let mut known: HashMap<UpstreamId, Group> =
            self.groups.drain(..).map(|group| (group.plan.id, group)).collect();
        let judged = plans.iter().filter(|plan| !plan.breaker.is_off() || plan.health.is_some());
        self.groups = judged
            .map(|plan| match known.remove(&plan.id) {
                Some(group) => group.follow(plan),
                None => Group::new(plan),
            })
            .collect();
        let places = self.groups.iter().enumerate().flat_map(|(at, group)| {
            group.members.iter().enumerate().map(move |(place, it)| (it.id, (at, place)))
        });
        self.places = places.collect();
        self.standings(now_ms);
        // Workers may have been told of endpoints before they had them.
        self.changed = true;
        self.news = true;
    }

    /// Whether there is nothing to judge.
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes the result of an active check; a failure says why.
    pub fn on_check(&mut self, endpoint: EndpointId, result: Result<(), Box<str>>, now_ms: u64) {
        let Some((group, place)) = self.places.get(&endpoint) else { return };
        let group = &mut self.groups[*group];
        let (plan, member) = (&group.plan, &mut group.members[*place]);
        self.events.extend(member.on_check(now_ms, plan, &plan.endpoints[*place], result));
        self.news |= std::mem::take(&mut member.news);
    }

    /// Looks at what the workers have counted. `now_ms` never goes back.
    pub fn tick(&mut self, now_ms: u64) {
        let tallies: usize = self.groups.iter().map(Group::tallies).sum();
        let stride = tallies.div_ceil(JUDGE_TALLIES_MAX).max(1);
        let turn = Turn { now_ms, stride, at: self.looks };
        self.looks = self.looks.wrapping_add(1);
        for group in &mut self.groups {
            self.news |= group.look(turn, &mut self.events);
        }
        self.standings(now_ms);
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What is to be told to the workers, if it is something else than before.
    pub fn take_changed(&mut self) -> Option<Standings> {
        std::mem::take(&mut self.changed).then(|| self.standings.clone())
    }

    /// What is shown.
    pub fn view(&self, now_ms: u64) -> Vec<UpstreamStanding> {
        self.groups.iter().map(|group| group.view(now_ms)).collect()
    }

    /// Whether that has changed since the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn standings(&mut self, now_ms: u64) {
        let mut standings = Standings::default();
        self.groups.iter().for_each(|group| group.standings(now_ms, &mut standings));
        let changed = standings != self.standings;
        self.changed |= changed;
        self.news |= changed || !self.events.is_empty();
        self.standings = standings;
    }
}

/// What is shown of a breaker, whose configured threshold is `percent`.
fn breaker_view(breaker: &Breaker, percent: u64, plan: &UpstreamPlan) -> BreakerView {
    BreakerView {
        state: breaker.state() as u8,
        name: breaker.state().name(),
        transitions: breaker.transitions(),
        error_percent: breaker.percent(percent, &plan.breaker),
        usual: breaker.usual(&plan.breaker).map(|usual| UsualView {
            error_percent: usual.errors * 100.0,
            head_p99_ms: usual.tail_us.map(|us| us / 1_000.0),
        }),
        reason: breaker.reason().into(),
    }
}

#[cfg(test)]
mod tests;
