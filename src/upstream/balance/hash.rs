//! Consistent hashing: a table after Maglev (Eisenbud et al. 2016), with bounded load (Mirrokni et al.
//! 2018): a key that falls to a loaded endpoint goes to the next one in the table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::View;
use crate::limits::HASH_STEPS_MAX;

/// An endpoint as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its address as written: what its places in the table come from, on every node the same.
    pub name: Box<str>,
    /// Its weight; 0 has no place.
    pub weight: u32,
}

/// Which endpoint a key falls to. Built where configurations are compiled, shared by the workers.
#[derive(Debug)]
pub struct HashTable {
    seats: Vec<Seat>,
    places: Box<[u16]>,
}

/// How much of its keys and of the load an endpoint takes now.
pub trait Shares: View {
    /// Thousandths of its keys that it takes.
    fn share_permille(&self, index: usize) -> u16;

    /// Whether another request there would be more than its part of the load.
    fn is_loaded(&self, index: usize) -> bool;
}

impl HashTable {
    /// The table of these endpoints.
    pub fn new(seats: Vec<Seat>) -> HashTable {
        let places = fill(&seats);
        HashTable { seats, places }
    }

    /// Whether it is the table of these.
    pub fn is_of(&self, seats: &[Seat]) -> bool {
        self.seats == seats
    }

    /// The endpoint for a key. One that takes a part of its keys only takes always the same ones.
    pub fn pick(&self, key: u64, view: &impl Shares) -> Option<usize> {
        let (size, mut last, mut loaded) = (self.places.len(), usize::MAX, None);
        let mut place = scaled(key, size);
        for _ in 0..size.min(HASH_STEPS_MAX) {
            let index = usize::from(self.places[place]);
            place = if place + 1 == size { 0 } else { place + 1 };
            if index == last || !takes(key, index, view) {
                continue;
            }
            if !view.is_loaded(index) {
                return Some(index);
            }
            (last, loaded) = (index, loaded.or(Some(index)));
        }
        let all = || (0..self.seats.len()).filter(|index| self.seats[*index].weight > 0);
        let usable = || all().filter(|index| takes(key, *index, view));
        let free = usable().find(|index| !view.is_loaded(*index)).or(loaded);
        // What takes only other keys is better than nothing.
        let any = || all().find(|it| view.share_permille(*it) > 0 && view.is_usable(*it));
        free.or_else(|| usable().next()).or_else(any)
    }
}

fn takes(key: u64, index: usize, view: &impl Shares) -> bool {
    let share = usize::from(view.share_permille(index));
    // The same keys stay, and they are others for each endpoint.
    let stays = || share >= 1_000 || scaled(mixed(key, index as u64), 1_000) < share;
    share > 0 && stays() && view.is_usable(index)
}

/// A number below `bound` out of the whole range.
fn scaled(hash: u64, bound: usize) -> usize {
    ((u128::from(hash) * bound as u128) >> 64) as usize
}

fn mixed(key: u64, salt: u64) -> u64 {
    let hash = (key ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Endpoints take places in turns, each the first free one of its own permutation; whose turn it is
/// the weights say.
fn fill(seats: &[Seat]) -> Box<[u16]> {
    let size = PLACES;
    let mut turns: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, seat) in seats.iter().enumerate().filter(|(_, seat)| seat.weight > 0) {
        turns.push(Reverse((STRIDE / u64::from(seat.weight), index)));
    }
    if turns.is_empty() {
        return Box::default();
    }
    let mut walks: Vec<Walk> = seats.iter().map(|seat| Walk::new(&seat.name, size)).collect();
    let mut places: Vec<Option<u16>> = vec![None; size];
    for _ in 0..size {
        let Some(Reverse((due, index))) = turns.pop() else { break };
        let free = walks[index].find(|place| places[*place].is_none());
        let place = free.expect("a permutation comes by every place");
        places[place] = Some(u16::try_from(index).expect("at most ENDPOINTS_MAX"));
        turns.push(Reverse((due + STRIDE / u64::from(seats[index].weight), index)));
    }
    places.into_iter().map(|place| place.expect("a turn for each")).collect()
}

/// The permutation of one endpoint.
struct Walk {
    next: usize,
    skip: usize,
    size: usize,
}

impl Walk {
    fn new(name: &str, size: usize) -> Walk {
        let hash = |salt: u8| {
            let mut hasher = SipHasher13::new();
            hasher.write(name.as_bytes());
            hasher.write(&[0, salt]);
            hasher.finish()
        };
        Walk { next: scaled(hash(1), size), skip: 1 + scaled(hash(2), size - 1), size }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = self.next;
        self.next = (place + self.skip) % self.size;
        Some(place)
    }
}

/// Places, 128 KiB of them, a prime. The same for few endpoints: a table of another size would move
/// every key when one more endpoint comes.
const PLACES: usize = 65_537;

/// Time between two turns of weight 1.
const STRIDE: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;
    use crate::base::random::Random;

    struct Keys {
        view: Fake,
        shares: Vec<u16>,
        /// Most requests in flight on each.
        most: Vec<u32>,
    }

    impl View for Keys {
        fn is_usable(&self, index: usize) -> bool {
            self.view.is_usable(index)
        }

        fn in_flight(&self, index: usize) -> u32 {
            self.view.in_flight(index)
        }

        fn latency_us(&self, _: usize) -> f64 {
            0.0
        }
    }

    impl Shares for Keys {
        fn share_permille(&self, index: usize) -> u16 {
            self.shares[index]
        }

        fn is_loaded(&self, index: usize) -> bool {
            self.in_flight(index) >= self.most[index]
        }
    }

    fn keys(count: usize) -> Keys {
        Keys { view: Fake::default(), shares: vec![1_000; count], most: vec![u32::MAX; count] }
    }

    fn seats(weights: &[u32]) -> Vec<Seat> {
        let seat = |(index, weight): (usize, &u32)| Seat {
            name: format!("10.0.0.{index}:80").into(),
            weight: *weight,
        };
        weights.iter().enumerate().map(seat).collect()
    }

    fn all(table: &HashTable, view: &Keys) -> Vec<usize> {
        let random = Random::seeded(11);
        (0..20_000).map(|_| table.pick(random.next(), view).expect("somebody")).collect()
    }

    fn moved(before: &[usize], after: &[usize]) -> f64 {
        let moved = before.iter().zip(after).filter(|(a, b)| a != b).count();
        moved as f64 / before.len() as f64
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let table = HashTable::new(seats(&[100, 100, 200, 0, 400]));
        let mut counts = [0u32; 5];
        all(&table, &keys(5)).iter().for_each(|index| counts[*index] += 1);
        for (count, wanted) in counts.iter().zip([0.125, 0.125, 0.25, 0.0, 0.5]) {
            let share = f64::from(*count) / 20_000.0;
            assert!((share - wanted).abs() < 0.015, "{counts:?}");
        }
        assert_eq!(HashTable::new(seats(&[0])).pick(1, &keys(1)), None);
        // The longest of all, with the most uneven weights, is built in no time.
        let mut many = vec![1; 4_096];
        many[0] = 65_535;
        assert!(HashTable::new(seats(&many)).pick(7, &keys(4_096)).is_some());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(20))]
        /// Where an endpoint goes, or is out, its own keys move and at most 2 % of the others.
        #[test]
        fn few_keys_move(count in 3usize..40, gone in 0usize..40) {
            let gone = gone % count;
            let before = HashTable::new(seats(&vec![100; count]));
            let placed = all(&before, &keys(count));
            let own = placed.iter().filter(|index| **index == gone).count() as f64 / 20_000.0;
            let mut view = keys(count);
            view.shares[gone] = 0;
            proptest::prop_assert!(moved(&placed, &all(&before, &view)) <= own);
            let mut left = seats(&vec![100; count]);
            left.remove(gone);
            let after: Vec<usize> = all(&HashTable::new(left), &keys(count - 1))
                .iter()
                .map(|index| index + usize::from(*index >= gone))
                .collect();
            let moved = moved(&placed, &after);
            proptest::prop_assert!(moved <= own + 0.02, "{} of {}", moved, own);
        }

        /// No endpoint has more than its bound while another has room.
        #[test]
        fn the_load_is_bounded(count in 2usize..12, seed in 0u64..1_000) {
            let table = HashTable::new(seats(&vec![1; count]));
            let random = Random::seeded(seed);
            let mut view = keys(count);
            view.view.in_flight = vec![0; count];
            for total in 1..300u32 {
                let bound = (f64::from(total) * 1.25 / count as f64).ceil() as u32;
                view.most = vec![bound; count];
                // One key in two is the same: it alone would overload its endpoint.
                let key = if random.below(2) == 0 { 42 } else { random.next() };
                let index = table.pick(key, &view).expect("somebody");
                view.view.in_flight[index] += 1;
                proptest::prop_assert!(view.view.in_flight[index] <= bound);
            }
        }
    }

    #[test]
    fn a_part_of_the_keys_is_always_the_same_part() {
        let table = HashTable::new(seats(&[100; 5]));
        let placed = all(&table, &keys(5));
        let mut view = keys(5);
        let mut kept_before: Vec<bool> = vec![false; placed.len()];
        for share in [0, 50, 500, 900] {
            view.shares[2] = share;
            let now = all(&table, &view);
            assert!(placed.iter().zip(&now).all(|(was, is)| was == is || *was == 2));
            let kept: Vec<bool> = now.iter().map(|index| *index == 2).collect();
            assert!(kept_before.iter().zip(&kept).all(|(before, now)| !before || *now));
            let of = placed.iter().filter(|index| **index == 2).count() as f64;
            let part = kept.iter().filter(|kept| **kept).count() as f64 / of;
            assert!((part - f64::from(share) / 1_000.0).abs() < 0.03, "{share}: {part}");
            kept_before = kept;
        }
        view.view.out = vec![0, 1, 3, 4];
        assert!(all(&table, &view).iter().all(|index| *index == 2), "nobody else is there");
    }
}
