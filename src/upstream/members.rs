//! The endpoints of an upstream on one core, and which of them a request goes to: one that it names,
//! the one of its cookie, the one of its key, or one by the balancer of its zone.

use std::rc::Rc;
use std::sync::Arc;

use super::balance::hash::Shares;
use super::balance::{Balancer, View};
use super::group::Endpoint;
use super::plan::{BalancePlan, EndpointId, StickyPlan, Token, UpstreamPlan};
use super::reserve;
use super::standing::{Standing, WHOLE_PERMILLE};
use crate::base::random::Random;
use crate::limits::LOCALITY_SPARE_PERMILLE;

/// What a request asks of an upstream's choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// Only endpoints of this zone, by its route (R17) or its shard (G14).
    pub zone: Option<&'a str>,
    /// This endpoint (R18).
    pub endpoint: Option<EndpointId>,
    /// Another one, where that is not usable.
    pub fallback: bool,
    /// The endpoint that its cookie names, while that is usable.
    pub token: Option<Token>,
    /// The hash of its key.
    pub key: Option<u64>,
    /// What it is kept from.
    pub avoid: Avoid<'a>,
    /// Milliseconds since the core started.
    pub now_ms: u64,
}

/// Endpoints that a request is kept from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Avoid<'a> {
    /// It was sent there before.
    pub tried: &'a [EndpointId],
    /// Those that are probed or take a part of their share: it has failed once and is not to show
    /// whether one has recovered.
    pub unsound: bool,
}

/// The endpoints of an upstream, and the balancers over them.
#[derive(Default)]
pub(super) struct Members {
    roster: Roster,
    all: Set,
    zones: Vec<(Box<str>, Set)>,
    local: Option<Local>,
    /// Cookies' tokens, sorted, and whose they are.
    tokens: Vec<(u64, u32)>,
    /// Ids, sorted, and whose they are.
    ids: Vec<(EndpointId, u32)>,
    worker: (usize, usize),
}

/// The endpoints and what they take now.
#[derive(Default)]
struct Roster {
    endpoints: Vec<Rc<Endpoint>>,
    weights: Vec<u32>,
    plan: Arc<BalancePlan>,
    floor_percent: u64,
    /// Whether zones that fail are left to others.
    leaves_zones: bool,
    /// Whether what this worker has isolated is out: not where nobody else is in.
    isolates: bool,
    /// Whether some stand in for others, and up to which priority number they take requests.
    has_reserve: bool,
    reach: Option<u16>,
}

/// Some of the endpoints, and a balancer over them.
#[derive(Default)]
struct Set {
    /// Every endpoint of it.
    members: Vec<u32>,
    /// Those that this worker uses.
    used: Vec<u32>,
    balancer: Option<Balancer>,
    /// Sum of what all of them take now.
    effective: u64,
}

/// This node's zone, and what is elsewhere.
struct Local {
    zone: Box<str>,
    others: Set,
    /// Thousandths of the requests that stay.
    stays_permille: u64,
}

impl Members {
    /// The endpoints of a plan, in its order; `worker` is which of how many asks.
    pub fn new(
        plan: &UpstreamPlan,
        endpoints: Vec<Rc<Endpoint>>,
        worker: (usize, usize),
    ) -> Members {
        let indexed = |index: usize| u32::try_from(index).expect("at most ENDPOINTS_MAX");
        let numbered = || endpoints.iter().enumerate().map(|(index, it)| (indexed(index), it));
        let zone_of = |it: &Endpoint| it.plan.zone.clone();
        let set = |keep: &dyn Fn(&Endpoint) -> bool| {
            let members = numbered().filter(|(_, it)| keep(it)).map(|(index, _)| index).collect();
            Set::new(members, plan.balance.subset, worker)
        };
        let mut names: Vec<Box<str>> = endpoints.iter().filter_map(|it| zone_of(it)).collect();
        names.sort_unstable();
        names.dedup();
        let of_zone = |name: Box<str>| {
            let set = set(&|it| it.plan.zone.as_ref() == Some(&name));
            (name, set)
        };
        let local = plan.balance.locality.clone().map(|zone| {
            let others = set(&|it| it.plan.zone.as_ref() != Some(&zone));
            Local { zone, others, stays_permille: 0 }
        });
        let mut ids: Vec<_> = numbered().map(|(index, it)| (it.id, index)).collect();
        ids.sort_unstable();
        let token = |it: &Endpoint| StickyPlan::token(&plan.name, &it.plan.authority);
        let mut tokens: Vec<_> = match plan.balance.sticky {
            Some(_) => numbered().map(|(index, it)| (token(it), index)).collect(),
            None => Vec::new(),
        };
        tokens.sort_unstable();
        let mut members = Members {
            all: set(&|_| true),
            zones: names.into_iter().map(of_zone).collect(),
            local,
            tokens,
            ids,
            worker,
            roster: Roster {
                weights: plan.endpoints.iter().map(|endpoint| endpoint.weight).collect(),
                plan: plan.balance.clone(),
                floor_percent: plan.breaker.floor_percent,
                leaves_zones: plan.breaker.zone_error_percent > 0,
                isolates: true,
                has_reserve: reserve::has_reserve(&plan.endpoints),
                reach: None,
                endpoints,
            },
        };
        members.refresh();
        members
    }

    /// Takes a plan over: where nothing changed that balancers remember, they go on where they were.
    pub fn apply(
        &mut self,
        plan: &UpstreamPlan,
        endpoints: Vec<Rc<Endpoint>>,
        worker: (usize, usize),
    ) {
        let (before, now) = (&self.roster.plan, &plan.balance);
        let alike = |(a, b): (&Rc<Endpoint>, &Rc<Endpoint>)| {
            a.id == b.id && a.plan.zone == b.plan.zone && a.plan.authority == b.plan.authority
        };
        let same = self.roster.endpoints.len() == endpoints.len()
            && self.worker == worker
            && self.roster.endpoints.iter().zip(&endpoints).all(alike)
            && before.policy == now.policy
            && before.subset == now.subset
            && before.locality == now.locality
            && before.sticky.is_some() == now.sticky.is_some();
        if !same {
            *self = Members::new(plan, endpoints, worker);
            return;
        }
        let Roster { weights, plan: balance, floor_percent, leaves_zones, .. } = &mut self.roster;
        *balance = now.clone();
        *floor_percent = plan.breaker.floor_percent;
        *leaves_zones = plan.breaker.zone_error_percent > 0;
        weights.clear();
        weights.extend(plan.endpoints.iter().map(|endpoint| endpoint.weight));
        self.roster.endpoints = endpoints;
        self.roster.has_reserve = reserve::has_reserve(&plan.endpoints);
        self.refresh();
    }

    /// Takes over what endpoints take now: after a change of weights, standings or isolation.
    pub fn refresh(&mut self) {
        let Members { roster, all, zones, local, .. } = self;
        let mut weighted = roster.endpoints.iter().zip(&roster.weights);
        roster.isolates = weighted.any(|(it, weight)| *weight > 0 && it.is_in());
        roster.reach = roster.reached();
        all.refresh(roster);
        zones.iter_mut().for_each(|(_, set)| set.refresh(roster));
        if let Some(local) = local {
            local.others.refresh(roster);
            let own = zones.iter().find(|(name, _)| *name == local.zone);
            local.stays_permille = own.map_or(0, |(_, set)| set.stays_permille(roster));
        }
    }

    /// The endpoint for a request; `in_flight` are those of the whole upstream, this one included.
    pub fn pick(&mut self, wish: &Wish<'_>, in_flight: usize, random: &Random) -> Option<usize> {
        if let Some(wanted) = wish.endpoint {
            let named = self.ids.binary_search_by_key(&wanted, |(id, _)| *id).ok();
            let named = named.map(|at| self.ids[at].1 as usize);
            match named.filter(|index| self.roster.takes(*index, wish)) {
                None if !wish.fallback => return None,
                None => {}
                found => return found,
            }
        }
        if let Some(Token(token)) = wish.token
            && let Ok(at) = self.tokens.binary_search_by_key(&token, |(token, _)| *token)
        {
            let index = self.tokens[at].1 as usize;
            if self.roster.takes(index, wish) {
                return Some(index);
            }
        }
        let Members { roster, all, zones, local, .. } = self;
        let zone = wish.zone.or(local.as_ref().map(|local| &*local.zone));
        let named = zones.iter_mut().find(|(name, _)| Some(&**name) == zone).map(|(_, set)| set);
        let roster = &*roster;
        let picked = match (wish.zone, local) {
            (Some(_), _) => named.and_then(|set| set.pick(roster, wish, in_flight, random)),
            (None, None) => all.pick(roster, wish, in_flight, random),
            (None, Some(local)) => {
                // A key goes the same way each time, as long as the shares are the same.
                let dice = wish.key.map_or_else(|| random.next(), |key| key.rotate_left(32));
                let permille = ((u128::from(dice) * 1_000) >> 64) as u64;
                let stays = permille < local.stays_permille;
                let set = if stays { named } else { Some(&mut local.others) };
                let found = set.and_then(|set| set.pick(roster, wish, in_flight, random));
                found.or_else(|| all.pick(roster, wish, in_flight, random))
            }
        };
        // Who is choosy asks once more, for one of those that are preferred and in doubt.
        let stand_in = || if wish.avoid.unsound { None } else { roster.stand_in(wish, random) };
        picked.or_else(stand_in)
    }

    /// Whether enough stays in without one of its endpoints. A zone that fails counts as far as it
    /// takes requests: one that is left to others is nothing that could take more.
    pub fn may_isolate(&self, endpoint: EndpointId) -> bool {
        let Roster { endpoints, weights, floor_percent, leaves_zones, .. } = &self.roster;
        let share = |index: u32| endpoints[index as usize].standing.get().share_permille;
        let mut shares = vec![WHOLE_PERMILLE; endpoints.len()];
        for (_, set) in self.zones.iter().filter(|_| *leaves_zones) {
            let weighs = |index: &u32| weights[*index as usize] > 0;
            let taken = set.members.iter().copied().filter(weighs).map(share).max().unwrap_or(0);
            set.members.iter().for_each(|index| shares[*index as usize] = taken);
        }
        let (mut left, mut total) = (0, 0);
        for ((it, weight), share) in endpoints.iter().zip(weights).zip(shares) {
            let load = u64::from(*weight) * u64::from(share);
            total += load;
            left += if it.id != endpoint && it.is_in() { load } else { 0 };
        }
        // Where too little is left, those that stand in for them do.
        left > 0 && left * 100 >= floor_percent * total || self.roster.stand_ins().next().is_some()
    }

    /// All of them, in the order of the plan.
    pub fn endpoints(&self) -> &[Rc<Endpoint>] {
        &self.roster.endpoints
    }
}

impl Roster {
    /// Up to which priority number endpoints take requests, as far as that is to be asked.
    fn reached(&self) -> Option<u16> {
        if !self.has_reserve {
            return None;
        }
        let taken = |it: &Endpoint| if it.is_in() { it.standing.get().share_permille } else { 0 };
        let all = self.endpoints.iter().zip(&self.weights);
        let all = all.map(|(it, weight)| (it.plan.priority, *weight, taken(it)));
        reserve::reach(all, self.floor_percent)
    }

    /// Whether it only stands in for others, which take all requests.
    fn stands_by(&self, endpoint: &Endpoint) -> bool {
        self.reach.is_some_and(|reach| endpoint.plan.priority > reach)
    }

    /// Those that could stand in for the ones that take all requests.
    fn stand_ins(&self) -> impl Iterator<Item = usize> {
        let all = self.endpoints.iter().zip(&self.weights).enumerate();
        let able = |it: &Endpoint, weight: u32| weight > 0 && it.is_in() && self.stands_by(it);
        all.filter(move |(_, (it, weight))| able(it, **weight)).map(|(index, _)| index)
    }

    /// One that stands in for all that a request may go to otherwise, of the lowest priority number.
    fn stand_in(&self, wish: &Wish<'_>, random: &Random) -> Option<usize> {
        let priority = |index: &usize| self.endpoints[*index].plan.priority;
        let here = |index: &usize| {
            let zone = self.endpoints[*index].plan.zone.as_deref();
            (wish.zone.is_none() || zone == wish.zone) && self.is_free(*index, wish)
        };
        let first = self.stand_ins().filter(here).map(|index| priority(&index)).min()?;
        let able = || self.stand_ins().filter(here).filter(|index| priority(index) == first);
        able().nth(random.below(able().count() as u64) as usize)
    }

    /// Thousandths of its share that an endpoint takes.
    fn share(&self, index: usize) -> u16 {
        let endpoint = &self.endpoints[index];
        match endpoint.standing.get() {
            _ if self.isolates && endpoint.is_isolated() => 0,
            _ if self.stands_by(endpoint) => 0,
            // Its share of the probes: one at a time.
            standing if standing.probing => WHOLE_PERMILLE,
            standing => standing.share_permille,
        }
    }

    fn effective(&self, index: usize) -> u64 {
        u64::from(self.weights[index]) * u64::from(self.share(index))
    }

    /// Whether it can take this request, if it has a share.
    fn is_free(&self, index: usize, wish: &Wish<'_>) -> bool {
        let endpoint = &self.endpoints[index];
        let standing = endpoint.standing.get();
        let probed = standing.probing && endpoint.is_probed();
        let Avoid { tried, unsound } = wish.avoid;
        let avoided = tried.contains(&endpoint.id)
            || unsound && (standing != Standing::WHOLE || endpoint.is_isolated());
        endpoint.is_reachable() && !probed && !avoided
    }

    /// Whether it takes a request that asks for it. A weight of 0 keeps away only those that do not.
    fn takes(&self, index: usize, wish: &Wish<'_>) -> bool {
        let zone = self.endpoints[index].plan.zone.as_deref();
        let here = wish.zone.is_none() || zone == wish.zone;
        here && self.share(index) > 0 && self.is_free(index, wish)
    }
}

impl Set {
    /// Each worker uses as many as `subset` says and as are needed so that all workers together use
    /// all, beginning where its turn is: every endpoint is used by as many workers as any other, give
    /// or take one.
    fn new(members: Vec<u32>, subset: usize, (worker, workers): (usize, usize)) -> Set {
        let count = members.len();
        let size = if subset == 0 { count } else { subset.max(count.div_ceil(workers)).min(count) };
        let first = worker * count / workers;
        let used = (0..size).map(|step| members[(first + step) % count]).collect();
        Set { members, used, balancer: None, effective: 0 }
    }

    fn refresh(&mut self, roster: &Roster) {
        let effective = |index: &u32| roster.effective(*index as usize);
        let weights: Vec<u64> = self.used.iter().map(effective).collect();
        self.effective = self.members.iter().map(effective).sum();
        match &mut self.balancer {
            Some(balancer) => balancer.set_weights(&weights),
            none => *none = Some(Balancer::new(roster.plan.policy, &weights)),
        }
    }

    fn pick(
        &mut self,
        roster: &Roster,
        wish: &Wish<'_>,
        in_flight: usize,
        random: &Random,
    ) -> Option<usize> {
        if let (Some(hash), Some(key)) = (&roster.plan.hash, wish.key) {
            let load = in_flight as u64 * hash.max_load_percent;
            let keyed = Keyed { roster, wish, set: self, load };
            return hash.table.pick(key, &keyed);
        }
        let look = Look { roster, wish, used: &self.used };
        let picked = self.balancer.as_mut()?.pick(&look, random);
        if let Some(place) = picked {
            return Some(self.used[place] as usize);
        }
        // Nobody of this worker's part is usable: anybody, from a random one on.
        let count = if self.used.len() < self.members.len() { self.members.len() } else { 0 };
        let first = if count == 0 { 0 } else { random.below(count as u64) as usize };
        let indices = (0..count).map(|step| self.members[(first + step) % count] as usize);
        let mut usable =
            indices.filter(|it| roster.effective(*it) > 0 && roster.is_free(*it, wish));
        usable.next()
    }

    /// Thousandths of the requests that stay in this zone: all, as long as it has as much as it needs
    /// of its capacity.
    fn stays_permille(&self, roster: &Roster) -> u64 {
        let weight = |index: &u32| u64::from(roster.weights[*index as usize]);
        let full: u64 = self.members.iter().map(weight).sum();
        match full {
            0 => 0,
            full => (LOCALITY_SPARE_PERMILLE * self.effective / (full * 1_000)).min(1_000),
        }
    }
}

/// A balancer's view of a set: by places in it.
struct Look<'a> {
    roster: &'a Roster,
    wish: &'a Wish<'a>,
    used: &'a [u32],
}

impl View for Look<'_> {
    fn is_retry(&self) -> bool {
        !self.wish.avoid.tried.is_empty()
    }

    fn is_usable(&self, place: usize) -> bool {
        self.roster.is_free(self.used[place] as usize, self.wish)
    }

    fn in_flight(&self, place: usize) -> u32 {
        self.roster.endpoints[self.used[place] as usize].in_flight()
    }

    fn latency_us(&self, place: usize) -> f64 {
        self.roster.endpoints[self.used[place] as usize].latency_us(self.wish.now_ms)
    }
}

/// A hash table's view: by places in the plan.
struct Keyed<'a> {
    roster: &'a Roster,
    wish: &'a Wish<'a>,
    set: &'a Set,
    /// Requests in flight times `max_load_percent`.
    load: u64,
}

impl View for Keyed<'_> {
    fn is_usable(&self, index: usize) -> bool {
        let here = self.set.members.len() == self.roster.endpoints.len()
            || self.set.members.binary_search(&(index as u32)).is_ok();
        here && self.roster.is_free(index, self.wish)
    }

    fn in_flight(&self, index: usize) -> u32 {
        self.roster.endpoints[index].in_flight()
    }

    fn latency_us(&self, index: usize) -> f64 {
        self.roster.endpoints[index].latency_us(self.wish.now_ms)
    }
}

impl Shares for Keyed<'_> {
    fn share_permille(&self, index: usize) -> u16 {
        self.roster.share(index)
    }

    fn is_loaded(&self, index: usize) -> bool {
        let part = self.load as f64 / 100.0 * self.roster.effective(index) as f64;
        f64::from(self.in_flight(index)) >= (part / self.set.effective.max(1) as f64).ceil()
    }
}

#[cfg(test)]
mod tests;
