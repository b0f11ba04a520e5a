//! What the judge has to tell.

use std::fmt;

use super::breaker::State;

/// Which breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Of one endpoint.
    Endpoint,
    /// Of a whole upstream.
    Service,
    /// Of one zone of an upstream.
    Zone,
}

impl Tier {
    /// As labels, events and docs/health.md name it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Endpoint => "endpoint",
            Tier::Service => "service",
            Tier::Zone => "zone",
        }
    }
}

/// Something that happened: a log line, an event and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name of the upstream.
    pub upstream: Box<str>,
    /// The endpoint or the zone; empty where it is the upstream.
    pub subject: Box<str>,
    /// What happened.
    pub what: What,
    /// Why.
    pub reason: Box<str>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A breaker went from one state to another.
    Breaker(Tier, State, State),
    /// An endpoint's checks say that it is up, or not.
    Health(bool),
    /// Standings of endpoints are heeded no more, or again.
    Floor(bool),
    /// An adaptive threshold went from one percentage to another.
    Threshold(Tier, u64, u64),
}

impl Event {
    /// Whether somebody may have to do something.
    pub fn is_bad(&self) -> bool {
        match self.what {
            What::Breaker(_, from, to) => from == State::Closed || to == State::Open,
            What::Health(up) => !up,
            What::Floor(reached) => reached,
            What::Threshold(_, from, to) => to < from,
        }
    }

    /// What kind of thing it is about, and what that was and is, in a word each.
    pub fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self.what {
            What::Breaker(tier, from, to) => (tier.name(), from.name(), to.name()),
            What::Health(true) => ("health", "down", "up"),
            What::Health(false) => ("health", "up", "down"),
            What::Floor(true) => ("floor", "heeded", "reached"),
            What::Floor(false) => ("floor", "reached", "heeded"),
            What::Threshold(_, from, to) if to < from => ("threshold", "usual", "lowered"),
            What::Threshold(..) => ("threshold", "lowered", "raised"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (upstream, subject, (kind, from, to)) = (&self.upstream, &self.subject, self.words());
        write!(f, "upstream {upstream}")?;
        match self.what {
            What::Breaker(Tier::Service, ..) => write!(f, ": breaker {from} -> {to}")?,
            What::Breaker(..) => write!(f, ": breaker of {kind} {subject} {from} -> {to}")?,
            What::Health(_) => write!(f, ": endpoint {subject} is {to}")?,
            What::Floor(true) => {
                write!(f, ": floor reached, its endpoints' standings are not heeded")?
            }
            What::Floor(false) => {
                write!(f, ": above the floor, its endpoints' standings are heeded")?
            }
            What::Threshold(tier, ..) => {
                write!(f, ": threshold of {} {subject} {to}", tier.name())?;
            }
        }
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}
