//! Smooth weighted round robin: every endpoint gets its share, and heavy ones do not come in runs.

/// The state of one balancer. Where weights differ it is nginx's algorithm: each pick raises every
/// endpoint by its weight and lowers the chosen one by the sum. Where they do not, that comes down to
/// taking turns, and a pick looks at no endpoint but the next.
#[derive(Debug, Default)]
pub struct RoundRobin {
    entries: Vec<Entry>,
    total: i64,
    /// Whose turn it is, while all that have a weight have the same.
    turns: Option<Turns>,
}

#[derive(Debug)]
struct Entry {
    weight: i64,
    current: i64,
}

/// Endpoints of one weight.
#[derive(Debug)]
struct Turns {
    weight: i64,
    ring: Vec<u32>,
    next: usize,
    /// Who is next to take the turn of one that is not usable: a neighbour would get all of them.
    spare: usize,
}

impl RoundRobin {
    /// A balancer over endpoints with these weights.
    pub fn new(weights: impl Iterator<Item = u64>) -> RoundRobin {
        let entry = |weight: u64| Entry { weight: signed(weight), current: 0 };
        let entries: Vec<Entry> = weights.map(entry).collect();
        let total = entries.iter().map(|entry| entry.weight).sum();
        let mut balance = RoundRobin { entries, total, turns: None };
        balance.turns = Turns::over(&balance.entries);
        balance
    }

    /// Gives the same endpoints other weights, and the turn goes on where it stood.
    pub fn set_weights(&mut self, weights: &[u64]) {
        assert_eq!(self.entries.len(), weights.len(), "the same endpoints");
        if let Some(turns) = self.turns.take() {
            turns.write_down(&mut self.entries);
        }
        self.total = weights.iter().map(|weight| signed(*weight)).sum();
        for (entry, weight) in self.entries.iter_mut().zip(weights) {
            entry.weight = signed(*weight);
            // What was owed by larger weights would take long to be paid back by smaller ones.
            entry.current = entry.current.clamp(-self.total, entry.weight);
        }
        self.turns = Turns::over(&self.entries);
    }

    /// The same for a request that was sent elsewhere before: it takes nobody's turn. Otherwise a retry
    /// behind each failure would bring the turn back to the endpoint that fails.
    pub fn pick_again(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        match &mut self.turns {
            Some(turns) => turns.pick_spare(usable),
            None => self.pick(usable),
        }
    }

    /// The next endpoint among those that `usable` lets through; weight 0 is never chosen.
    pub fn pick(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        if let Some(turns) = &mut self.turns {
            return turns.pick(usable);
        }
        let mut best: Option<usize> = None;
        let mut total = 0;
        for index in 0..self.entries.len() {
            if self.entries[index].weight == 0 || !usable(index) {
                continue;
            }
            total += self.entries[index].weight;
            self.entries[index].current += self.entries[index].weight;
            if best.is_none_or(|best| self.entries[index].current > self.entries[best].current) {
                best = Some(index);
            }
        }
        let best = best?;
        self.entries[best].current -= total;
        debug_assert!(total <= self.total, "no more than all of them");
        Some(best)
    }
}

impl Turns {
    /// Turns over those that have a weight, if all of them have the same. The one that is owed most is
    /// next.
    fn over(entries: &[Entry]) -> Option<Turns> {
        let indexed = || (0_u32..).zip(entries).filter(|(_, entry)| entry.weight > 0);
        let weight = indexed().next()?.1.weight;
        if indexed().any(|(_, entry)| entry.weight != weight) {
            return None;
        }
        let ring: Vec<u32> = indexed().map(|(index, _)| index).collect();
        let owed = |place: &usize| entries[ring[*place] as usize].current;
        let next = (0..ring.len()).rev().max_by_key(owed)?;
        Some(Turns { weight, ring, next, spare: next })
    }

    #[inline]
    fn pick(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let picked = self.ring[self.next] as usize;
        self.next = self.after(self.next);
        if usable(picked) { Some(picked) } else { self.pick_spare(usable) }
    }

    fn pick_spare(&mut self, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let mut place = self.spare;
        for _ in 0..self.ring.len() {
            let index = self.ring[place] as usize;
            place = self.after(place);
            if usable(index) {
                self.spare = place;
                return Some(index);
            }
        }
        None
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.ring.len() { 0 } else { place + 1 }
    }

    /// What nginx's algorithm would have written down by now.
    fn write_down(&self, entries: &mut [Entry]) {
        let (count, had) = (signed(self.ring.len() as u64), signed(self.next as u64));
        entries.iter_mut().for_each(|entry| entry.current = 0);
        for (place, index) in self.ring.iter().enumerate() {
            let turns = if place < self.next { had - count } else { had };
            entries[*index as usize].current = turns * self.weight;
        }
    }
}

fn signed(weight: u64) -> i64 {
    i64::try_from(weight).expect("a weight times a thousand fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights_without_runs() {
        let mut balance = RoundRobin::new([5, 1, 1].into_iter());
        let picks: Vec<_> = (0..7).filter_map(|_| balance.pick(|_| true)).collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn an_unusable_or_weightless_endpoint_is_never_chosen() {
        let mut balance = RoundRobin::new([1, 0, 1].into_iter());
        for _ in 0..10 {
            assert_eq!(balance.pick(|index| index != 0), Some(2));
        }
        assert_eq!(balance.pick(|_| false), None);
        assert_eq!(RoundRobin::new([0].into_iter()).pick(|_| true), None);
    }

    #[test]
    fn a_weight_that_comes_back_slowly_gets_its_share_at_once() {
        let mut balance = RoundRobin::new([1_000, 1_000].into_iter());
        balance.pick(|_| true);
        for (permille, wanted) in [(0, 0), (50, 5), (500, 33)] {
            balance.set_weights(&[1_000, permille]);
            let picked = (0..100).filter(|_| balance.pick(|_| true) == Some(1)).count();
            assert!(picked.abs_diff(wanted) <= 1, "{permille}: {picked}");
        }
    }

    #[test]
    fn equal_weights_take_turns_and_share_the_turn_of_one_that_is_not_usable() {
        let mut balance = RoundRobin::new([3, 0, 3, 3, 3].into_iter());
        let picks: Vec<_> = (0..6).filter_map(|_| balance.pick(|_| true)).collect();
        assert_eq!(picks, [0, 2, 3, 4, 0, 2]);
        let mut counts = [0; 5];
        (0..400).filter_map(|_| balance.pick(|index| index != 3)).for_each(|it| counts[it] += 1);
        assert!(counts[1] == 0 && counts[3] == 0, "{counts:?}");
        assert!([0, 2, 4].iter().all(|it| (132..=135).contains(&counts[*it])), "{counts:?}");
    }

    /// One of three that fails gets a third of the first tries, whatever is tried again elsewhere.
    #[test]
    fn retries_take_nobodys_turn() {
        for weights in [[1, 1, 1], [1, 2, 3]] {
            let mut balance = RoundRobin::new(weights.into_iter());
            let (mut first, mut second) = ([0_usize; 3], [0; 3]);
            for _ in 0..120 {
                let picked = balance.pick(|_| true).expect("all are usable");
                first[picked] += 1;
                if picked == 0 {
                    second[balance.pick_again(|index| index != 0).expect("two are")] += 1;
                }
            }
            let sum: u64 = weights.iter().sum();
            let share = 120 / sum as usize;
            assert!(first[0].abs_diff(share) <= 1, "{weights:?}: {first:?}");
            assert!(second[0] == 0 && second[1] > 0 && second[2] > 0, "{weights:?}: {second:?}");
        }
    }

    #[test]
    fn a_change_of_weights_goes_on_with_the_same_turn() {
        let mut balance = RoundRobin::new([2, 2, 2].into_iter());
        balance.pick(|_| true);
        balance.set_weights(&[2, 2, 1]);
        assert_eq!(balance.pick(|_| true), Some(1));
        balance.set_weights(&[5, 5, 5]);
        assert_eq!(balance.pick(|_| true), Some(2));
    }

    #[test]
    fn one_of_a_thousand_equals_is_looked_at() {
        let mut balance = RoundRobin::new(std::iter::repeat_n(100, 1_000));
        let looks = std::cell::Cell::new(0);
        let usable = |index: usize| {
            looks.set(looks.get() + 1);
            index.is_multiple_of(2)
        };
        (0..10_000).for_each(|_| assert!(balance.pick(usable).is_some()));
        assert!(looks.get() <= 10_000 * 2 + 1_000, "{}", looks.get());
    }

    proptest::proptest! {
        /// Over one whole turn each endpoint is chosen exactly as often as its weight says.
        #[test]
        fn one_turn_is_exact(weights in proptest::collection::vec(0u64..20, 1..8)) {
            let turn: u64 = weights.iter().sum();
            let mut balance = RoundRobin::new(weights.iter().copied());
            let mut picked = vec![0; weights.len()];
            for _ in 0..turn {
                picked[balance.pick(|_| true).expect("some weight")] += 1;
            }
            proptest::prop_assert_eq!(picked, weights);
        }
    }
}
