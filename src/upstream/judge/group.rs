//! An upstream as the judge sees it: its endpoints, its zones and itself.

use std::collections::HashMap;
use std::sync::Arc;

use super::breaker::{Breaker, Look, State};
use super::event::{Event, Tier, What};
use super::member::{Member, Turn};
use super::tail::next_turn_ms;
use super::window::Outcomes;
use crate::limits::ZONES_MAX;
use crate::observe::render::UpstreamStanding;
use crate::upstream::heads::HeadsView;
use crate::upstream::plan::UpstreamPlan;
use crate::upstream::reserve;
use crate::upstream::standing::{Standing, Standings};

/// One upstream.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub plan: Arc<UpstreamPlan>,
    /// In the order of the plan.
    pub members: Vec<Member>,
    /// Where the zone tier is on.
    zones: Vec<Zone>,
    service: Breaker,
    /// Whether too little would be left in.
    floor: bool,
    /// When adaptive thresholds of the service and of zones are looked at again.
    adapt_at_ms: u64,
}

/// A zone of an upstream.
#[derive(Clone, Debug)]
struct Zone {
    name: Box<str>,
    breaker: Breaker,
}

impl Group {
    /// One that nothing is known of.
    pub fn new(plan: &Arc<UpstreamPlan>) -> Group {
        let window_ms = plan.breaker.window_ms;
        Group {
            members: plan.endpoints.iter().map(|it| Member::new(it, window_ms)).collect(),
            zones: zones(plan, Vec::new()),
            plan: plan.clone(),
            service: Breaker::default(),
            floor: false,
            adapt_at_ms: 0,
        }
        .placed()
    }

    /// Tells each member which zone it is in.
    fn placed(mut self) -> Group {
        for (member, endpoint) in self.members.iter_mut().zip(&self.plan.endpoints) {
            let zone = endpoint.zone.as_deref();
            member.zone = self.zones.iter().position(|it| Some(&*it.name) == zone);
        }
        self
    }

    /// Follows a reload: what has the same identity keeps what is known of it.
    pub fn follow(self, plan: &Arc<UpstreamPlan>) -> Group {
        let Group { plan: before, members, zones: known, service, floor, adapt_at_ms } = self;
        let mut kept: HashMap<_, _> = members.into_iter().map(|it| (it.id, it)).collect();
        let members = plan.endpoints.iter().map(|endpoint| match kept.remove(&endpoint.id) {
            Some(mut member) => {
                member.follow(&before, plan);
                member
            }
            None => Member::new(endpoint, plan.breaker.window_ms),
        });
        let members = members.collect();
        let on = plan.breaker.service_error_percent > 0;
        let service = if on { service } else { Breaker::default() };
        let zones = zones(plan, known);
        Group { plan: plan.clone(), members, zones, service, floor, adapt_at_ms }.placed()
    }

    /// How many counters there are to be read: one for each worker and endpoint, as of the first.
    pub fn tallies(&self) -> usize {
        let first = self.plan.endpoints.iter().map(|it| it.tallies.workers()).find(|it| *it > 0);
        self.members.len() * first.unwrap_or(0)
    }

    /// Judges endpoints, then the service, then zones, and what follows for each endpoint. True where
    /// something has changed that is shown and that no event tells.
    pub fn look(&mut self, turn: Turn, events: &mut Vec<Event>) -> bool {
        let (plan, now_ms) = (self.plan.clone(), turn.now_ms);
        for (member, endpoint) in self.members.iter_mut().zip(&plan.endpoints) {
            member.look(turn, &plan, endpoint, events);
            member.own = member.own(now_ms, &plan);
        }
        let adapts = plan.breaker.adaptive && now_ms >= self.adapt_at_ms;
        if adapts {
            self.adapt_at_ms = next_turn_ms(plan.id.0, now_ms, turn.tail_ms(&plan));
        }
        if plan.breaker.service_error_percent > 0 {
            self.look_service((turn, adapts), events);
        }
        for zone in 0..self.zones.len() {
            self.look_zone(zone, (turn, adapts), events);
        }
        self.settle(now_ms, events);
        adapts
    }

    fn look_service(&mut self, (turn, adapts): (Turn, bool), events: &mut Vec<Event>) {
        let plan = self.plan.clone();
        let percent = plan.breaker.service_error_percent;
        let look = Look { half_open: true, ..self.look_at(|_| true, percent, turn) };
        let heads = adapts.then(|| self.heads(|_| true));
        let since_ms = self.service.awaits_checks(turn.now_ms);
        if since_ms.is_some_and(|since_ms| self.passes_again(|_| true, since_ms)) {
            self.service.believe_checks(turn.now_ms, &plan.breaker);
        }
        let seen = (look, heads.as_ref());
        if step(&mut self.service, (turn.now_ms, &plan), seen, (Tier::Service, ""), events) {
            self.members.iter_mut().for_each(Member::forget);
        }
    }

    fn look_zone(&mut self, index: usize, (turn, adapts): (Turn, bool), events: &mut Vec<Event>) {
        let (plan, now_ms) = (self.plan.clone(), turn.now_ms);
        let name = self.zones[index].name.clone();
        let inside = |member: &Member| member.zone == Some(index);
        let mut look = self.look_at(inside, plan.breaker.zone_error_percent, turn);
        let heads = adapts.then(|| self.heads(inside));
        let elsewhere = self.has_in(|member| !inside(member));
        let closed = self.zones[index].breaker.state() == State::Closed;
        if !elsewhere && closed {
            // Nobody could take over.
            look.percent = 0;
        }
        let since_ms = self.zones[index].breaker.awaits_checks(now_ms);
        if since_ms.is_some_and(|since_ms| self.passes_again(inside, since_ms)) {
            self.zones[index].breaker.believe_checks(now_ms, &plan.breaker);
        }
        // One without any weight is being drained, not dead.
        if elsewhere && closed && !self.has_in(inside) && self.weighs(inside) {
            let breaker = &mut self.zones[index].breaker;
            breaker.open(now_ms, &plan.breaker, "none of its endpoints is in".into());
            let what = What::Breaker(Tier::Zone, State::Closed, State::Open);
            events.push(event(&plan, &name, what, breaker.reason()));
        } else {
            let breaker = &mut self.zones[index].breaker;
            let seen = (look, heads.as_ref());
            if !step(breaker, (now_ms, &plan), seen, (Tier::Zone, &name), events) {
                return;
            }
        }
        self.members.iter_mut().filter(|it| inside(it)).for_each(Member::forget);
    }

    /// Whether checks say that some of those endpoints have recovered since then, and so many are up
    /// that what checks say is heeded: those that are down get no probe.
    fn passes_again(&self, among: impl Fn(&Member) -> bool, since_ms: u64) -> bool {
        let (mut weight, mut up, mut again) = (0, 0, false);
        for (member, endpoint) in self.members.iter().zip(&self.plan.endpoints) {
            if endpoint.weight == 0 || !among(member) {
                continue;
            }
            weight += u64::from(endpoint.weight);
            up += u64::from(endpoint.weight) * u64::from(member.is_up());
            again |= member.passes_again(since_ms);
        }
        again && up * 100 >= self.plan.breaker.floor_percent * weight
    }

    /// How long the heads of answers took in the last window, of all endpoints that [`Group::look_at`]
    /// counts.
    fn heads(&self, among: impl Fn(&Member) -> bool) -> HeadsView {
        let mut sum = HeadsView::default();
        let counted = self.members.iter().filter(|it| among(it) && it.counts && !self.isolates(it));
        counted.filter_map(Member::heads).for_each(|heads| sum.add(heads));
        sum
    }

    /// Whether it gets nothing but probes for what is its own.
    fn isolates(&self, member: &Member) -> bool {
        member.own.share_permille == 0 && !self.floor
    }

    fn weighs(&self, among: impl Fn(&Member) -> bool) -> bool {
        let mut members = self.members.iter().zip(&self.plan.endpoints);
        members.any(|(member, endpoint)| among(member) && endpoint.weight > 0)
    }

    /// Whether some endpoint with a weight, of those, takes requests as far as it is concerned.
    fn has_in(&self, among: impl Fn(&Member) -> bool) -> bool {
        let mut members = self.members.iter().zip(&self.plan.endpoints);
        members.any(|(member, endpoint)| {
            among(member) && endpoint.weight > 0 && member.own.share_permille > 0
        })
    }

    /// What became of the requests to some endpoints. Failures of those that are isolated say nothing,
    /// nor do those of a few suspects: what is wrong with them is theirs.
    fn look_at(&self, among: impl Fn(&Member) -> bool, percent: u64, turn: Turn) -> Look {
        let mut look = Look {
            new: Outcomes::default(),
            window: Outcomes::default(),
            percent,
            isolated: false,
            half_open: false,
            settle_ms: turn.settle_ms(),
        };
        let (mut suspects, mut weight, mut suspect_weight) = (Outcomes::default(), 0, 0);
        let members = self.members.iter().zip(&self.plan.endpoints);
        for (member, endpoint) in members.filter(|(member, _)| among(member)) {
            let isolated = self.isolates(member);
            // Probes that an endpoint passes are passed for all.
            look.new += match isolated {
                true => Outcomes { failed: 0, ..member.new },
                false => member.new,
            };
            if isolated || !member.counts {
                continue;
            }
            let window = member.window.sum();
            weight += u64::from(endpoint.weight);
            if member.is_suspect(&self.plan) {
                suspect_weight += u64::from(endpoint.weight);
                suspects += window;
            } else {
                look.window += window;
            }
        }
        if suspect_weight * 2 > weight {
            look.window += suspects;
        }
        look
    }

    /// What holds for each endpoint: the least of what its own state and its zone say, or all where
    /// less than the floor would be left.
    fn settle(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        let plan = self.plan.clone();
        let isolated =
            |member: &Member| member.zone.is_some_and(|at| self.zones[at].breaker.isolates());
        // A zone is only left where something outside of all such zones is in.
        let heeded = self.has_in(|member| !isolated(member));
        let (mut weight, mut weight_in) = (0, 0);
        for (member, endpoint) in self.members.iter().zip(&plan.endpoints) {
            if !(heeded && isolated(member)) {
                weight += u64::from(endpoint.weight);
                weight_in += u64::from(endpoint.weight) * u64::from(member.own.share_permille > 0);
            }
        }
        let floor = weight_in * 100 < plan.breaker.floor_percent * weight && !self.stands_in();
        if floor != self.floor {
            self.floor = floor;
            let percent = weight_in * 100 / weight.max(1);
            let reason = format!("{percent} % of the weight would be in");
            events.push(event(&plan, "", What::Floor(floor), &reason));
        }
        let of_zone = |zone: &Zone| zone.breaker.standing(now_ms, &plan);
        let of_zones: Vec<_> = self.zones.iter().map(of_zone).collect();
        for member in &mut self.members {
            let zone = member.zone.filter(|_| heeded);
            let zone = zone.map_or(Standing::WHOLE, |at| of_zones[at]);
            let own = if floor { Standing::WHOLE } else { member.own };
            member.standing = lesser(own, zone);
        }
    }

    /// Whether enough of some priority number is in, so that those take the requests of the others.
    fn stands_in(&self) -> bool {
        let plan = &*self.plan;
        let all = self.members.iter().zip(&plan.endpoints);
        let all = all.map(|(it, plan)| (plan.priority, plan.weight, it.own.share_permille));
        reserve::has_reserve(&plan.endpoints)
            && reserve::reach(all, plan.breaker.floor_percent).is_some()
    }

    /// Adds those of its standings that are not whole.
    pub fn standings(&self, now_ms: u64, standings: &mut Standings) {
        let service = self.service.standing(now_ms, &self.plan);
        if service != Standing::WHOLE {
            standings.upstreams.push((self.plan.id, service));
        }
        let members = self.members.iter().filter(|it| it.standing != Standing::WHOLE);
        standings.endpoints.extend(members.map(|it| (it.id, it.standing)));
    }

    /// What is shown of it.
    pub fn view(&self, now_ms: u64) -> UpstreamStanding {
        let (plan, terms) = (&*self.plan, &self.plan.breaker);
        let shown = |breaker, percent| super::breaker_view(breaker, percent, plan);
        let service = (terms.service_error_percent > 0)
            .then(|| shown(&self.service, terms.service_error_percent));
        let zones = self.zones.iter();
        let zones = zones.map(|it| (it.name.clone(), shown(&it.breaker, terms.zone_error_percent)));
        let endpoints = self.members.iter().zip(&plan.endpoints).map(|(member, endpoint)| {
            let zone = member.zone.map(|at| &self.zones[at]);
            let zone = zone.map_or(String::new(), |zone| {
                format!("zone {} is {}", zone.name, zone.breaker.state().name())
            });
            member.view(plan, endpoint, &zone)
        });
        UpstreamStanding {
            name: plan.name.clone(),
            share_permille: self.service.standing(now_ms, plan).share_permille,
            service,
            floor: self.floor,
            zones: zones.collect(),
            endpoints: endpoints.collect(),
        }
    }
}

/// Has a breaker take a look, and tells of what came of it; true where its state changed.
fn step(
    breaker: &mut Breaker,
    (now_ms, plan): (u64, &UpstreamPlan),
    (look, heads): (Look, Option<&HeadsView>),
    (tier, subject): (Tier, &str),
    events: &mut Vec<Event>,
) -> bool {
    let changed = breaker.look(now_ms, plan, look);
    if let Some(from) = changed {
        let what = What::Breaker(tier, from, breaker.state());
        events.push(event(plan, subject, what, breaker.reason()));
    }
    let percent = breaker.percent(look.percent, &plan.breaker);
    if let Some(new) = heads.and_then(|heads| breaker.adapt(&plan.breaker, &look, heads)) {
        let what = What::Threshold(tier, percent, new);
        events.push(event(plan, subject, what, &format!("{percent} % -> {new} %")));
    }
    changed.is_some()
}

/// The zones of a plan, where that tier is on, with what is known of them.
fn zones(plan: &UpstreamPlan, mut known: Vec<Zone>) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    if plan.breaker.zone_error_percent == 0 {
        return zones;
    }
    for name in plan.endpoints.iter().filter_map(|endpoint| endpoint.zone.as_ref()) {
        if zones.len() == ZONES_MAX || zones.iter().any(|zone| zone.name == *name) {
            continue;
        }
        let kept = known.iter().position(|zone| zone.name == *name);
        zones.push(match kept {
            Some(at) => known.swap_remove(at),
            None => Zone { name: name.clone(), breaker: Breaker::default() },
        });
    }
    zones
}

/// The one of two that lets less through.
fn lesser(one: Standing, other: Standing) -> Standing {
    // Nothing at all is less than a probe.
    let rank = |it: &Standing| (it.share_permille, it.probing);
    if rank(&other) < rank(&one) { other } else { one }
}

fn event(plan: &UpstreamPlan, subject: &str, what: What, reason: &str) -> Event {
    Event { upstream: plan.name.clone(), subject: subject.into(), what, reason: reason.into() }
}
