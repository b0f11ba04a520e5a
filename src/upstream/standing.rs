//! How much of its share an endpoint or an upstream takes now (docs/decisions/0016).

use std::sync::{Arc, OnceLock};

use super::heads::{Heads, HeadsView};
use super::plan::{EndpointId, UpstreamId};
use crate::observe::Counter;

/// A whole share, in thousandths.
pub const WHOLE_PERMILLE: u16 = 1000;

/// What health, breakers and slow start say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Thousandths of its share: of its weight for an endpoint, of its requests for an upstream.
    pub share_permille: u16,
    /// Takes one request at a time on each worker, to see whether it has recovered.
    pub probing: bool,
}

impl Standing {
    /// Nothing is wrong.
    pub const WHOLE: Standing = Standing { share_permille: WHOLE_PERMILLE, probing: false };
    /// Takes nothing.
    pub const OUT: Standing = Standing { share_permille: 0, probing: false };
    /// Takes one request at a time.
    pub const PROBING: Standing = Standing { share_permille: 0, probing: true };

    /// A part of its share.
    pub const fn part(share_permille: u16) -> Standing {
        Standing { share_permille, probing: false }
    }
}

impl Default for Standing {
    fn default() -> Standing {
        Standing::WHOLE
    }
}

/// The standings that are not whole; whatever is not named is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// Of upstreams.
    pub upstreams: Vec<(UpstreamId, Standing)>,
    /// Of endpoints.
    pub endpoints: Vec<(EndpointId, Standing)>,
}

/// What one worker counts of the tries at one endpoint. Only that worker writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    /// Tries that an answer came of which is no failure.
    pub succeeded: Counter,
    /// Tries that failed: no connection, no answer in time, none that can be used, or one whose
    /// status is that of a failed gateway (502, 503, 504).
    pub failed: Counter,
    /// Times that the worker isolated it for consecutive failures.
    pub isolated: Counter,
    /// How long the heads of answers took; there once one was counted.
    heads: OnceLock<Box<Heads>>,
}

impl Tally {
    /// Counts how long the head of an answer took, where thresholds depend on that.
    #[inline]
    pub fn head_took(&self, us: u64) {
        self.heads.get_or_init(Box::default).record(us);
    }
}

/// The tallies of an endpoint, one of each worker; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Tallies(Arc<OnceLock<Box<[Tally]>>>);

impl Tallies {
    /// That of one of `workers` workers. The first that asks makes them all.
    ///
    /// # Panics
    /// There is no such worker.
    pub fn of(&self, worker: usize, workers: usize) -> &Tally {
        let all = self.0.get_or_init(|| (0..workers).map(|_| Tally::default()).collect());
        &all[worker]
    }

    /// The sum over all workers.
    pub fn totals(&self) -> Totals {
        let all = self.0.get().map_or(&[][..], |all| all);
        all.iter().fold(Totals::default(), |sum, tally| Totals {
            succeeded: sum.succeeded + tally.succeeded.get(),
            failed: sum.failed + tally.failed.get(),
            isolated: sum.isolated + tally.isolated.get(),
        })
    }

    /// How many workers count: all, once one has begun.
    pub fn workers(&self) -> usize {
        self.0.get().map_or(0, |all| all.len())
    }

    /// How long heads took, on all workers.
    pub fn heads(&self) -> HeadsView {
        let mut sum = HeadsView::default();
        let all = self.0.get().map_or(&[][..], |all| all);
        all.iter().filter_map(|tally| tally.heads.get()).for_each(|heads| sum.read(heads));
        sum
    }
}

/// What all workers have counted of an endpoint since it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// See [`Tally::succeeded`].
    pub succeeded: u64,
    /// See [`Tally::failed`].
    pub failed: u64,
    /// See [`Tally::isolated`].
    pub isolated: u64,
}

// What every try writes is one cache line.
const _: () = assert!(size_of::<Tally>() == 64);
