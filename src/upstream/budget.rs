//! What requests that are tried again may cost an upstream: a bucket that first tries fill.
//!
//! Retries help where few requests fail and multiply an outage where all do. A first try pays a share
//! of a retry in, a retry takes a whole one out: over any number of requests the retries stay below
//! that share. An upstream that has seen nothing yet is lent a few, which its first tries pay back.

use std::cell::Cell;

use crate::limits::{RETRY_BUDGET_LENT, RETRY_BUDGET_WINDOW_MS};

/// The budget of one upstream on one worker. Counts are in hundredths of a retry.
#[derive(Debug, Default)]
pub struct Budget {
    /// What a first try pays in; none when nothing is tried again.
    percent: Cell<u32>,
    balance: Cell<u64>,
    lent: Cell<u64>,
    /// When the window of `paid` began.
    since_ms: Cell<u64>,
    /// What was paid in in this window and in the last one.
    paid: Cell<(u64, u64)>,
}

impl Budget {
    /// How many retries a hundred first tries pay for. What has been paid stays.
    pub fn set_percent(&self, percent: u32) {
        let before = self.percent.replace(percent);
        match (before, percent) {
            (_, 0) => {
                self.balance.set(0);
                self.lent.set(0);
            }
            (0, _) => {
                self.balance.set(LENT);
                self.lent.set(LENT);
            }
            _ => {}
        }
    }

    /// A request is sent for the first time.
    #[inline]
    pub fn pay(&self, now_ms: u64) {
        let paid = u64::from(self.percent.get());
        let back = paid.min(self.lent.get());
        self.lent.set(self.lent.get() - back);
        let (mut now, mut last) = self.paid.get();
        if now_ms.saturating_sub(self.since_ms.get()) >= RETRY_BUDGET_WINDOW_MS {
            self.since_ms.set(now_ms);
            (now, last) = (0, now);
        }
        now += paid;
        self.paid.set((now, last));
        // What is kept follows the load: a second of it, so that no quiet day pays for an outage.
        let most = LENT + now.max(last);
        self.balance.set((self.balance.get() + paid - back).min(most));
        debug_assert!(self.lent.get() <= LENT, "no more is owed than was lent");
    }

    /// Takes one retry out, if there is one.
    pub fn take(&self) -> bool {
        let left = self.balance.get().checked_sub(ONE);
        left.inspect(|left| self.balance.set(*left)).is_some()
    }
}

/// A retry.
const ONE: u64 = 100;
const LENT: u64 = RETRY_BUDGET_LENT * ONE;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `requests` that all fail are tried again.
    fn outage(budget: &Budget, requests: u64, rate_per_ms: u64) -> u64 {
        (0..requests)
            .filter(|number| {
                budget.pay(number / rate_per_ms);
                budget.take()
            })
            .count() as u64
    }

    #[test]
    fn an_outage_costs_its_share_and_not_one_more() {
        for (percent, requests) in [(20, 5_000), (20, 50), (20, 51), (10, 1_000), (100, 700)] {
            let budget = Budget::default();
            budget.set_percent(percent);
            let most = RETRY_BUDGET_LENT.max(requests * u64::from(percent) / 100);
            assert_eq!(outage(&budget, requests, 5), most, "{percent} % of {requests}");
        }
        let none = Budget::default();
        none.set_percent(0);
        assert_eq!(outage(&none, 1_000, 5), 0);
    }

    /// A day without failures pays for no more than the load of a second and what is lent.
    #[test]
    fn what_is_kept_follows_the_load() {
        let budget = Budget::default();
        budget.set_percent(20);
        (0..86_400_u64).for_each(|second| {
            (0..10).for_each(|request| budget.pay(second * 1_000 + request * 100));
        });
        let taken = std::iter::repeat_with(|| budget.take()).take_while(|taken| *taken).count();
        assert_eq!(taken as u64, RETRY_BUDGET_LENT + 2);
    }

    #[test]
    fn a_reload_lends_nothing_anew() {
        let budget = Budget::default();
        budget.set_percent(20);
        while budget.take() {}
        budget.set_percent(30);
        assert!(!budget.take(), "what was spent stays spent");
    }
}
