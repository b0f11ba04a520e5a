//! What requests that are tried again may cost an upstream: a bucket that first tries fill.
//!
//! Retries help where few requests fail and multiply an outage where all do. A first try pays a share
//! of a retry in, a retry takes a whole one out. A few are there from the start, and some of what a
//! calm has paid in is kept for a burst of failures; but retries that run ahead of what first tries
//! have paid meanwhile are paid back, so that an outage costs no more than the share of its own
//! requests.

use std::cell::Cell;

use crate::limits::{RETRY_BUDGET_KEPT_MS, RETRY_BUDGET_LENT};

/// The budget of one upstream on one worker. Counts are in two hundredths of a retry.
#[derive(Debug, Default)]
pub struct Budget {
    /// What a first try pays in, in hundredths; none when nothing is tried again.
    percent: Cell<u32>,
    balance: Cell<u64>,
    /// How far retries are ahead of what has been paid in since they began to be.
    ahead: Cell<u64>,
    /// Whether half of what is paid in pays that back.
    repays: Cell<bool>,
    /// When the span of `paid` began.
    since_ms: Cell<u64>,
    /// What was paid in in this span and in the last one.
    paid: Cell<(u64, u64)>,
}

impl Budget {
    /// How many retries a hundred first tries pay for. What has been paid stays.
    pub fn set_percent(&self, percent: u32) {
        let before = self.percent.replace(percent);
        match (before, percent) {
            (_, 0) => self.balance.set(0),
            (0, _) => self.balance.set(LENT),
            _ => {}
        }
    }

    /// A request is sent for the first time.
    #[inline]
    pub fn pay(&self, now_ms: u64) {
        let paid = u64::from(self.percent.get()) * PERCENT;
        let (mut now, mut last) = self.paid.get();
        if now_ms.saturating_sub(self.since_ms.get()) >= RETRY_BUDGET_KEPT_MS {
            self.since_ms.set(now_ms);
            (now, last) = (0, now);
        }
        now += paid;
        self.paid.set((now, last));
        let ahead = self.ahead.get().saturating_sub(paid);
        self.ahead.set(ahead);
        let kept = if self.repays.get() { paid / 2 } else { paid };
        self.repays.set(self.repays.get() && ahead > 0);
        // What is kept follows the load, so that no quiet day pays for an outage.
        let most = LENT + now.max(last);
        self.balance.set((self.balance.get() + kept).min(most));
    }

    /// Takes one retry out, if there is one.
    pub fn take(&self) -> bool {
        let Some(left) = self.balance.get().checked_sub(ONE) else { return false };
        self.balance.set(left);
        self.ahead.set(self.ahead.get() + ONE);
        self.repays.set(self.repays.get() || self.ahead.get() >= LENT);
        true
    }
}

/// A hundredth of a retry: of what is paid in, half may be kept.
const PERCENT: u64 = 2;
/// A retry.
const ONE: u64 = 100 * PERCENT;
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
        for (percent, requests) in [(20, 5_000), (20, 150), (20, 151), (10, 1_000), (100, 700)] {
            let budget = Budget::default();
            budget.set_percent(percent);
            let most = requests * u64::from(percent) / 100;
            let taken = outage(&budget, requests, 5);
            assert!((most - 2..=most + 1).contains(&taken), "{percent} % of {requests}: {taken}");
        }
        let none = Budget::default();
        none.set_percent(0);
        assert_eq!(outage(&none, 1_000, 5), 0);
    }

    /// What a calm has paid in is no more than lent: a second of an outage has paid it back, whatever
    /// its rate, and from then on each retry is paid for by a request of the outage itself.
    #[test]
    fn an_outage_after_a_calm_costs_its_share() {
        for per_second in [200, 1_000, 5_000] {
            let budget = Budget::default();
            budget.set_percent(20);
            let step_ms = |request: u64| request * 1_000 / per_second;
            (0..20 * per_second).for_each(|request| budget.pay(step_ms(request)));
            let mut taken = 0;
            for request in 1..=10 * per_second {
                budget.pay(20_000 + step_ms(request));
                // Each of them is tried as often as it may be.
                taken += (0..3).filter(|_| budget.take()).count() as u64;
                // What is lent to any load takes the slow ones a little longer.
                if step_ms(request) >= 2_000 {
                    assert!(taken * 5 <= request + 5, "{taken} retries of {request} requests");
                }
            }
            assert!(taken * 5 >= 10 * per_second - 10, "{taken}: all that is paid for is used");
        }
    }

    /// Failures within the share are all tried again, and a burst of them as well.
    #[test]
    fn what_is_kept_is_there_for_a_burst() {
        let budget = Budget::default();
        budget.set_percent(20);
        for request in 0..10_000_u64 {
            budget.pay(request);
            if request % 10 == 0 {
                assert!(budget.take(), "one of ten fails: request {request}");
            }
        }
        assert!((0..50).all(|_| budget.take()), "a connection is lost with all its requests");
    }

    /// A day without failures pays for no more than half a second's load and what is lent.
    #[test]
    fn what_is_kept_follows_the_load() {
        let budget = Budget::default();
        budget.set_percent(20);
        (0..86_400_u64).for_each(|second| {
            (0..100).for_each(|request| budget.pay(second * 1_000 + request * 10));
        });
        let taken = std::iter::repeat_with(|| budget.take()).take_while(|taken| *taken).count();
        assert_eq!(taken as u64, RETRY_BUDGET_LENT + 10);
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
