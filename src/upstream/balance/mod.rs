//! Balancers: weights, loads and random numbers go in, an index comes out. None does I/O, none reads a
//! clock, and none allocates while it picks.

mod alias;
pub mod ewma;
pub mod hash;
pub mod least_request;
pub mod random;
pub mod round_robin;

pub use alias::Alias;
pub use hash::{HashTable, Seat};
pub use round_robin::RoundRobin;

use crate::base::random::Random;

/// What a balancer asks about its endpoints, by their place in it.
pub trait View {
    /// Whether it can take this request.
    fn is_usable(&self, index: usize) -> bool;

    /// Whether the request was sent elsewhere before.
    fn is_retry(&self) -> bool {
        false
    }

    /// Requests in flight there.
    fn in_flight(&self, index: usize) -> u32;

    /// How long it has taken to the head of an answer, in microseconds; see [`ewma::PeakEwma`].
    fn latency_us(&self, index: usize) -> f64;
}

/// `balance`, as far as it chooses by weight; a hash looks at keys first and falls back to random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// "round_robin"
    #[default]
    RoundRobin,
    /// "least_request"
    LeastRequest,
    /// "ewma"
    Ewma,
    /// "hash", for requests with a key
    Hash,
    /// "random"
    Random,
}

impl Policy {
    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round_robin",
            Policy::LeastRequest => "least_request",
            Policy::Ewma => "ewma",
            Policy::Hash => "hash",
            Policy::Random => "random",
        }
    }
}

/// A balancer over some endpoints.
#[derive(Debug)]
pub struct Balancer {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    RoundRobin(RoundRobin),
    LeastRequest(Alias),
    Ewma(Alias),
    Random(Alias),
}

impl Balancer {
    /// A balancer over endpoints with these weights.
    pub fn new(policy: Policy, weights: &[u64]) -> Balancer {
        let kind = match policy {
            Policy::RoundRobin => Kind::RoundRobin(RoundRobin::new(weights.iter().copied())),
            Policy::LeastRequest => Kind::LeastRequest(Alias::new(weights)),
            Policy::Ewma => Kind::Ewma(Alias::new(weights)),
            Policy::Hash | Policy::Random => Kind::Random(Alias::new(weights)),
        };
        Balancer { kind }
    }

    /// Gives the same endpoints other weights.
    pub fn set_weights(&mut self, weights: &[u64]) {
        match &mut self.kind {
            Kind::RoundRobin(turns) => turns.set_weights(weights),
            Kind::LeastRequest(alias) | Kind::Ewma(alias) | Kind::Random(alias) => {
                alias.set_weights(weights);
            }
        }
    }

    /// The endpoint for a request, of those that are usable and have a weight.
    #[inline]
    pub fn pick(&mut self, view: &impl View, random: &Random) -> Option<usize> {
        match &mut self.kind {
            Kind::RoundRobin(turns) if view.is_retry() => {
                turns.pick_again(|index| view.is_usable(index))
            }
            Kind::RoundRobin(turns) => turns.pick(|index| view.is_usable(index)),
            Kind::LeastRequest(alias) => least_request::pick(alias, view, random),
            Kind::Ewma(alias) => ewma::pick(alias, view, random),
            Kind::Random(alias) => random::pick(alias, view, random),
        }
    }
}

/// Two endpoints at random by their weights, and of them the one that costs less. The load that a
/// choice of one would pile up somewhere grows with the logarithm of the number of endpoints, that of
/// a choice of two with the logarithm of that (Mitzenmacher 2001).
fn of_two(
    alias: &Alias,
    view: &impl View,
    random: &Random,
    cost: impl Fn(usize) -> f64,
) -> Option<usize> {
    let first = alias.pick(random, |index| view.is_usable(index))?;
    let other = |_| Some(alias.sample(random)).filter(|index| *index != first);
    let second = (0..SECONDS_TRIED_MAX).find_map(other).filter(|index| view.is_usable(*index));
    match second {
        Some(second) if cost(second) < cost(first) => Some(second),
        _ => Some(first),
    }
}

/// Samples for a second endpoint that is not the first.
const SECONDS_TRIED_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Half of a thousand endpoints, and how often one was asked about.
    struct Half(Cell<usize>);

    impl View for Half {
        fn is_usable(&self, index: usize) -> bool {
            self.0.set(self.0.get() + 1);
            index.is_multiple_of(2)
        }

        fn in_flight(&self, _: usize) -> u32 {
            0
        }

        fn latency_us(&self, _: usize) -> f64 {
            1.0
        }
    }

    #[test]
    fn a_thousand_endpoints_are_not_looked_at_for_a_request() {
        let (weights, random) = (vec![100; 1_000], Random::seeded(1));
        for policy in [Policy::LeastRequest, Policy::Ewma, Policy::Random, Policy::Hash] {
            let mut balancer = Balancer::new(policy, &weights);
            let half = Half(Cell::new(0));
            for _ in 0..10_000 {
                assert!(balancer.pick(&half, &random).is_some_and(|index| index.is_multiple_of(2)));
            }
            let looks = half.0.get() / 10_000;
            assert!(looks <= 4, "{policy:?}: {looks}");
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::View;

    /// Endpoints as a test has them.
    #[derive(Default)]
    pub struct Fake {
        pub out: Vec<usize>,
        pub in_flight: Vec<u32>,
        pub latency_us: Vec<f64>,
    }

    impl View for Fake {
        fn is_usable(&self, index: usize) -> bool {
            !self.out.contains(&index)
        }

        fn in_flight(&self, index: usize) -> u32 {
            self.in_flight.get(index).copied().unwrap_or(0)
        }

        fn latency_us(&self, index: usize) -> f64 {
            self.latency_us.get(index).copied().unwrap_or(0.0)
        }
    }
}
