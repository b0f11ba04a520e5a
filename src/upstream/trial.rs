//! What a breaker lets through: a part of an upstream's requests, or one at a time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use super::group::{Endpoint, Upstream};
use super::standing::{Standing, WHOLE_PERMILLE};
use crate::error::ErrorKind;
use crate::limits::HEDGE_CUTS_MAX;

/// What an upstream takes of its requests on this core.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// As the control thread says.
    pub standing: Cell<Standing>,
    pub let_in: LetIn,
    /// What its requests have added to a share of less than all, in thousandths of a request.
    admitted_permille: Cell<u16>,
    /// Requests in flight that are to show whether it has recovered.
    probes: Cell<u32>,
}

/// A request that is to show whether its upstream has recovered, until it is dropped.
pub struct Trial(Rc<Upstream>, Cell<bool>);

/// The same of an endpoint.
pub struct Probe(Rc<Endpoint>, Cell<bool>);

/// What is known of tries at an endpoint that were cut off, because another one answered first.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// So many in a row, with no answer between them.
    pub in_a_row: Cell<u32>,
    /// Tries in flight that are not to be cut off.
    alone: Cell<u32>,
}

/// A try that is waited for to its end, until it is dropped. What is cut off says nothing of its
/// endpoint: one that hangs would be hedged for ever, and never be found.
pub struct Alone(Rc<Endpoint>);

impl Alone {
    /// A try that is not to be hedged: behind some that were cut off in a row one, and once that has
    /// failed as many as it takes to find the endpoint failing (`consecutive`).
    pub fn of(endpoint: &Rc<Endpoint>, consecutive: u32) -> Option<Alone> {
        let Cuts { in_a_row, alone } = &endpoint.cuts;
        let most = match endpoint.failures() {
            0 => 1,
            failures => consecutive.saturating_sub(failures).max(1),
        };
        (in_a_row.get() >= HEDGE_CUTS_MAX && alone.get() < most).then(|| {
            alone.set(alone.get() + 1);
            Alone(endpoint.clone())
        })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let alone = &self.0.cuts.alone;
        alone.set(alone.get() - 1);
    }
}

/// When an endpoint or an upstream was last let have more than probes again.
#[derive(Debug, Default)]
pub(super) struct LetIn(Cell<Option<Instant>>);

impl LetIn {
    /// It stands otherwise now.
    pub fn follow(&self, before: Standing, now: Standing) {
        if before.share_permille == 0 && now.share_permille > 0 {
            self.0.set(Some(Instant::now()));
        }
    }

    /// Whether a try that was begun then was sent before its last rest.
    pub fn is_after(&self, began: Instant) -> bool {
        self.0.get().is_some_and(|at| began < at)
    }
}

impl Trial {
    /// It has shown that: the next one may come.
    pub fn settle(&self) {
        if !self.1.replace(true) {
            self.0.trials.probes.set(0);
        }
    }
}

impl Probe {
    /// A try at an endpoint that is to show whether it has recovered; none where that is not asked.
    #[inline]
    pub fn of(endpoint: &Rc<Endpoint>) -> Option<Probe> {
        endpoint.is_probing().then(|| {
            endpoint.add_probe();
            Probe(endpoint.clone(), Cell::new(false))
        })
    }

    /// As [`Trial::settle`].
    pub fn settle(&self) {
        if !self.1.replace(true) {
            self.0.remove_probe();
        }
    }
}

impl Upstream {
    /// Whether a request may go on. One that is a probe holds its trial.
    ///
    /// # Errors
    /// [`ErrorKind::BreakerOpen`] for what is beyond its share.
    #[inline]
    pub fn pass_breaker(self: &Rc<Self>) -> Result<Option<Trial>, ErrorKind> {
        match self.trials.standing.get() {
            Standing::WHOLE => Ok(None),
            standing => self.try_out(standing),
        }
    }

    /// Whether requests are let through only to see whether it has recovered.
    #[inline]
    pub fn is_probing(&self) -> bool {
        self.trials.standing.get().probing
    }

    /// Whether a try that was begun then was sent before it was given its last rest.
    pub fn rested_since(&self, began: Instant) -> bool {
        self.trials.let_in.is_after(began)
    }

    /// Whether it takes all of its requests.
    pub fn is_whole(&self) -> bool {
        self.trials.standing.get() == Standing::WHOLE
    }

    /// Whether it takes nothing but probes.
    pub fn is_shut(&self) -> bool {
        self.trials.standing.get().share_permille == 0
    }

    fn try_out(self: &Rc<Self>, standing: Standing) -> Result<Option<Trial>, ErrorKind> {
        let Trials { admitted_permille, probes, .. } = &self.trials;
        if standing.probing {
            if probes.get() > 0 {
                return Err(ErrorKind::BreakerOpen);
            }
            probes.set(1);
            return Ok(Some(Trial(self.clone(), Cell::new(false))));
        }
        let sum = admitted_permille.get() + standing.share_permille.min(WHOLE_PERMILLE);
        let whole = sum >= WHOLE_PERMILLE;
        admitted_permille.set(if whole { sum - WHOLE_PERMILLE } else { sum });
        if whole { Ok(None) } else { Err(ErrorKind::BreakerOpen) }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.settle();
    }
}
