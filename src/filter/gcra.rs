//! The generic cell rate algorithm (ITU-T I.371, annex A) over a fixed table in shared memory.
//!
//! Of each key one number is kept: the theoretical arrival time of its next request, which is when
//! its bucket is full again. A request moves it by one interval, and may pass if it is then at most
//! a burst of intervals ahead. A key whose time has passed is as good as one never seen: it can be
//! thrown out and nothing is lost. So the table needs no sweeper and no clock but that of whoever
//! comes.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use crate::base::random::Random;
use crate::limits::{RATE_REFILL_S_MAX, RATE_RENEW_S, RATE_TABLES_KEPT_MAX};

/// Ticks of a second. An interval is a whole number of them: at 50,000 a second it is right to
/// 0.2 %, at 20,000 a second and at most round rates it is exact.
pub const TICKS_PER_S: u64 = 16_000_000;

/// How much a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Ticks between two requests of the rate.
    pub interval: u64,
    /// Requests that may come at once.
    pub burst: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whether it may pass.
    pub allowed: bool,
    /// How many more may pass at this moment.
    pub remaining: u64,
    /// Ticks until another may pass; 0 where one may now.
    pub wait: u64,
    /// Ticks until the bucket is full.
    pub full: u64,
}

/// Whose share of a table: which of how many parts. Parts share no bucket, and no cache line where
/// the table was made for so many ([`Shape`]).
pub type Part = (usize, usize);

/// What the buckets of a limiter are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Keys that are told apart at a time.
    pub keys: usize,
    /// Parts: each has a set of its own at least.
    pub parts: usize,
    /// Ticks between two requests of the rate.
    pub interval: u64,
    /// Ticks that an empty bucket takes to fill, at most.
    pub refill: u64,
}

/// The buckets of one limiter. They outlive reloads, also those that change rate, burst or size.
///
/// What stays is how many requests are spent, and they come back at the new rate: where the rate
/// changes, times are carried over into a table of their own, each as far ahead as that many
/// intervals of the new rate. One that is farther ahead than a burst of the new limit is a bucket
/// that is empty now. So no reload gives anybody a burst that was already spent, and none holds
/// anybody to the pace of before.
#[derive(Debug)]
pub struct Buckets {
    table: Arc<Table>,
    /// Tables of other sizes or rates whose times may still count, the newest first.
    before: Vec<Former>,
    /// When no table before counts any more; 0 where there is none.
    before_until: u64,
    /// When the times that former limits left in the table have passed.
    former_until: u64,
    shape: Shape,
    base: Base,
}

/// A table that was in use.
#[derive(Clone, Debug)]
struct Former {
    table: Arc<Table>,
    /// When no time in it counts any more.
    until: u64,
    /// The interval that its times are made of.
    interval: u64,
}

/// What all tables of a limiter have in common.
#[derive(Clone, Copy, Debug)]
struct Base {
    seed: [u8; 16],
    epoch: Instant,
}

impl Buckets {
    /// Empty ones.
    pub fn new(shape: Shape) -> Buckets {
        let random = Random::new();
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&random.next().to_le_bytes());
        seed[8..].copy_from_slice(&random.next().to_le_bytes());
        let base = Base { seed, epoch: Instant::now() };
        Buckets {
            table: Arc::new(Table::new(sets_of(shape))),
            before: Vec::new(),
            before_until: 0,
            former_until: 0,
            shape,
            base,
        }
    }

    /// The same buckets, for another limit and in a table of another shape.
    pub fn renewed(&self, shape: Shape) -> Buckets {
        self.renewed_at(shape, self.now())
    }

    fn renewed_at(&self, shape: Shape, now: u64) -> Buckets {
        // Workers go on with the limit of today until they have taken the new one.
        let own_until = now + self.shape.refill.min(AHEAD_MAX) + RATE_RENEW_S * TICKS_PER_S;
        let mut former_until = self.former_until.max(own_until);
        let mut before: Vec<_> =
            self.before.iter().filter(|former| former.until > now).cloned().collect();
        let same = sets_of(shape) == self.table.sets.len() && shape.interval == self.shape.interval;
        let table = match same {
            true => self.table.clone(),
            false => {
                let (table, interval) = (self.table.clone(), self.shape.interval);
                before.insert(0, Former { table, until: former_until, interval });
                before.truncate(RATE_TABLES_KEPT_MAX);
                former_until = 0;
                Arc::new(Table::new(sets_of(shape)))
            }
        };
        let before_until = before.iter().map(|former| former.until).max().unwrap_or(0);
        // What is carried over has the times of former limits.
        let former_until = former_until.max(before_until);
        Buckets { table, before, before_until, former_until, shape, base: self.base }
    }

    /// The time now, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        ticks(self.base.epoch.elapsed())
    }

    /// The hash of a key, which nobody outside can foresee.
    #[inline]
    pub fn hash(&self, kind: u8, value: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.base.seed);
        hasher.write_u8(kind);
        hasher.write(value);
        hasher.finish()
    }

    /// Charges the key with this hash for one request.
    #[inline]
    pub fn charge(&self, hash: u64, part: Part, now: u64, limit: Limit) -> Charge {
        let hash = own_of(hash, part);
        if now < self.before_until {
            self.carry_over(hash, part, now);
        }
        self.table.charge(hash, part, now, limit)
    }

    /// Moves a key's time from a table of another size or rate: as many requests as were spent.
    #[cold]
    fn carry_over(&self, hash: u64, part: Part, now: u64) {
        let before = self.before.iter().filter(|former| now < former.until);
        let known = before.filter_map(|former| {
            let spent = ahead(former.table.take(hash, part, now)?, now);
            let interval = u128::from(self.shape.interval);
            let scaled = u128::from(spent) * interval / u128::from(former.interval.max(1));
            Some(u64::try_from(scaled).unwrap_or(AHEAD_MAX).min(AHEAD_MAX))
        });
        if let Some(ahead) = known.max() {
            self.table.put(hash, part, now, now.wrapping_add(ahead) & TIME);
        }
    }

    /// How often a key had to share.
    pub fn crowded(&self) -> u64 {
        self.table.crowded.load(Ordering::Relaxed)
    }
}

/// Ticks of a duration.
fn ticks(duration: Duration) -> u64 {
    duration.as_secs() * TICKS_PER_S + u64::from(duration.subsec_nanos()) * 2 / 125
}

/// Sets of [`WAYS`] entries, one set a cache line.
#[derive(Debug)]
struct Table {
    sets: Box<[Set]>,
    crowded: AtomicU64,
}

/// Entries of 16 bits of the hash and 48 bits of time in one word, so that a compare-and-swap
/// changes both. 0 is empty.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// Where a key's time is to be put.
struct Place<'t> {
    slot: &'t AtomicU64,
    entry: u64,
    tag: u64,
    time: u64,
}

fn sets_of(shape: Shape) -> usize {
    shape.keys.div_ceil(WAYS).max(shape.parts).max(1)
}

/// The hash of a key in a part. Where there are more parts than sets, keys of several parts lie in
/// one: that their tags differ makes them different keys.
#[inline]
fn own_of(hash: u64, (index, _): Part) -> u64 {
    hash ^ (index as u64).wrapping_mul(PART_TAGS)
}

impl Table {
    fn new(sets: usize) -> Table {
        let sets = (0..sets).map(|_| Set::default()).collect();
        Table { sets, crowded: AtomicU64::new(0) }
    }

    #[inline]
    fn charge(&self, hash: u64, part: Part, now: u64, limit: Limit) -> Charge {
        let set = self.set(hash, part);
        let tolerance = limit.burst * limit.interval;
        // Not bounded, and yet nobody is stuck: one that has to go round again lost to one that
        // went through.
        loop {
            let Place { slot, entry, tag, time } = self.place(set, hash, now);
            let before = ahead(time, now);
            let ahead = before.min(tolerance);
            let after = ahead + limit.interval;
            if after > tolerance {
                if before > tolerance {
                    // Farther ahead than the limit of today allows: empty from now on.
                    let cut = pack(tag, now + tolerance);
                    let _ = slot.compare_exchange(entry, cut, ORDER, ORDER);
                }
                let wait = after - tolerance;
                return Charge { allowed: false, remaining: 0, wait, full: ahead };
            }
            let charged = pack(tag, now + after);
            if slot.compare_exchange_weak(entry, charged, ORDER, ORDER).is_ok() {
                let remaining = (tolerance - after) / limit.interval;
                let wait = (after + limit.interval).saturating_sub(tolerance);
                return Charge { allowed: true, remaining, wait, full: after };
            }
        }
    }

    /// The key's entry; else the first free one, so that two who come at once want the same; else
    /// another key's, which both then share.
    #[inline]
    fn place<'t>(&self, set: &'t Set, hash: u64, now: u64) -> Place<'t> {
        let own = tag_of(hash);
        let mut free = None;
        for slot in &set.0 {
            let entry = slot.load(ORDER);
            let live = entry != 0 && ahead_of(entry, now) > 0;
            if live && entry >> TIME_BITS == own {
                return Place { slot, entry, tag: own, time: entry & TIME };
            }
            if !live && free.is_none() {
                free = Some((slot, entry));
            } else if !live && entry != 0 {
                // A time that has passed must not be there when the 48 bits begin again.
                let _ = slot.compare_exchange(entry, 0, ORDER, ORDER);
            }
        }
        if let Some((slot, entry)) = free {
            return Place { slot, entry, tag: own, time: now & TIME };
        }
        self.crowded.fetch_add(1, ORDER);
        let slot = &set.0[own as usize % WAYS];
        let entry = slot.load(ORDER);
        Place { slot, entry, tag: entry >> TIME_BITS, time: entry & TIME }
    }

    /// Takes a key's time out.
    fn take(&self, hash: u64, part: Part, now: u64) -> Option<u64> {
        self.set(hash, part).0.iter().find_map(|slot| {
            let entry = slot.load(ORDER);
            let same = entry != 0 && ahead_of(entry, now) > 0 && entry >> TIME_BITS == tag_of(hash);
            let taken = same && slot.compare_exchange(entry, 0, ORDER, ORDER).is_ok();
            taken.then_some(entry & TIME)
        })
    }

    /// Puts a key's time in, unless a later one is there or there is no room.
    fn put(&self, hash: u64, part: Part, now: u64, time: u64) {
        let set = self.set(hash, part);
        loop {
            let Place { slot, entry, tag, time: held } = self.place(set, hash, now);
            if tag != tag_of(hash) || ahead(held, now) >= ahead(time, now) {
                return;
            }
            if slot.compare_exchange_weak(entry, pack(tag, time), ORDER, ORDER).is_ok() {
                return;
            }
        }
    }

    #[inline]
    fn set(&self, hash: u64, (index, parts): Part) -> &Set {
        let each = (self.sets.len() / parts).max(1);
        // The upper half scaled down: as even as a remainder, without a division.
        let offset = ((hash >> 32) * each as u64) >> 32;
        &self.sets[(index * each + offset as usize) % self.sets.len()]
    }
}

#[inline]
fn tag_of(hash: u64) -> u64 {
    hash & (u64::MAX >> TIME_BITS)
}

#[inline]
fn pack(tag: u64, time: u64) -> u64 {
    tag << TIME_BITS | time & TIME
}

#[inline]
fn ahead_of(entry: u64, now: u64) -> u64 {
    ahead(entry & TIME, now)
}

/// How far a time is ahead; 0 if it has passed. Right over the end of the 48 bits (203 days), since
/// no time is ever farther ahead than [`AHEAD_MAX`].
#[inline]
fn ahead(time: u64, now: u64) -> u64 {
    let ahead = time.wrapping_sub(now) & TIME;
    if ahead <= AHEAD_MAX { ahead } else { 0 }
}

/// Entries of a set.
const WAYS: usize = 8;
const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;
/// Odd, so that no two parts have the same tag of a key; small, so that a key has the same set there.
const PART_TAGS: u64 = 0x9e37;
/// A word is all that is shared: nothing else has to be seen in some order.
const ORDER: Ordering = Ordering::Relaxed;
/// Ticks that a time may be ahead.
pub const AHEAD_MAX: u64 = RATE_REFILL_S_MAX * TICKS_PER_S;

const _: () = assert!(AHEAD_MAX < TIME / 4, "what has passed is told apart from what is to come");
const _: () = assert!(size_of::<Set>() == 64, "a set is a cache line");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Part = (0, 1);
    const DAY: u64 = 86_400 * TICKS_PER_S;

    fn keys(keys: usize) -> Shape {
        Shape { keys, parts: 1, interval: TICKS_PER_S, refill: DAY }
    }

    fn shape(keys: usize, limit: Limit) -> Shape {
        Shape { keys, parts: 1, interval: limit.interval, refill: DAY }
    }

    fn limit(per_s: u64, burst: u64) -> Limit {
        Limit { interval: TICKS_PER_S / per_s, burst }
    }

    #[test]
    fn a_burst_passes_then_the_rate() {
        let buckets = Buckets::new(keys(64));
        let (limit, now) = (limit(10, 3), 1_000);
        let charge = |now| buckets.charge(7, ALL, now, limit);
        for left in [2, 1, 0] {
            let charge = charge(now);
            assert!(charge.allowed);
            assert_eq!(charge.remaining, left);
        }
        let refused = charge(now);
        assert_eq!((refused.allowed, refused.wait, refused.remaining), (false, limit.interval, 0));
        assert!(!charge(now + limit.interval - 1).allowed);
        assert!(charge(now + limit.interval).allowed);
        assert!(!charge(now + limit.interval).allowed);
        let full = charge(now + 10 * limit.interval);
        assert_eq!((full.allowed, full.remaining, full.full), (true, 2, limit.interval));
    }

    /// What is spent stays spent, whatever the limit and the size become.
    #[test]
    fn a_reload_refills_nothing() {
        let now = 5_000;
        let old = limit(10, 100);
        let mut buckets = Buckets::new(shape(64, old));
        assert!((0..100).all(|_| buckets.charge(7, ALL, now, old).allowed));
        assert!(!buckets.charge(7, ALL, now, old).allowed);
        for (size, new) in [(64, limit(1_000, 5)), (4_096, limit(1_000, 5)), (8, limit(1, 1))] {
            buckets = buckets.renewed(shape(size, new));
            assert!(!buckets.charge(7, ALL, now, new).allowed, "{size}");
            assert!(buckets.charge(size as u64, ALL, now, new).allowed, "another key");
            // At the new rate, not after the ten seconds that the old one would have taken.
            assert!(buckets.charge(7, ALL, now + new.interval, new).allowed, "{size}");
            assert!(!buckets.charge(7, ALL, now + new.interval, new).allowed, "{size}");
        }
        let more = limit(10, 200);
        let larger = buckets.renewed(shape(64, more));
        let passed = (0..300).filter(|_| larger.charge(7, ALL, now + 1, more).allowed).count();
        assert!(passed <= 200, "{passed}");
    }

    /// What is spent comes back at the new rate, be it higher or lower.
    #[test]
    fn a_changed_rate_is_the_pace_from_now_on() {
        let day = |count: u64, seconds: u64, burst| Limit {
            interval: seconds * TICKS_PER_S / count,
            burst,
        };
        for (old, new) in [(day(10, 1, 100), day(1, 60, 100)), (day(6, 60, 100), day(100, 1, 100))]
        {
            let first = Buckets::new(shape(64, old));
            assert!((0..90).all(|_| first.charge(7, ALL, 1, old).allowed));
            let changed = first.renewed_at(shape(64, new), 1);
            let passed =
                |now| (0..200).filter(|_| changed.charge(7, ALL, now, new).allowed).count();
            assert_eq!(passed(1), 10, "{old:?} to {new:?}");
            assert_eq!(passed(1 + 5 * new.interval), 5, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn tables_of_other_sizes_are_few_and_forgotten_once_they_are_full() {
        let mut buckets = Buckets::new(keys(8));
        for size in [16, 8, 16, 8, 16, 8, 16] {
            buckets = buckets.renewed_at(keys(size), 0);
        }
        assert_eq!(buckets.before.len(), RATE_TABLES_KEPT_MAX);
        let until = DAY + RATE_RENEW_S * TICKS_PER_S;
        assert_eq!(buckets.before_until, until);
        assert_eq!(buckets.renewed_at(keys(16), until - 1).before.len(), RATE_TABLES_KEPT_MAX);
        let later = buckets.renewed_at(keys(16), until);
        assert_eq!((later.before.len(), later.before_until), (0, 0));
    }

    /// A table before is looked into for as long as its own limit takes to fill it, and no longer,
    /// whether a reload comes or not.
    #[test]
    fn an_old_table_counts_as_long_as_its_limit_fills() {
        let (old, new) = (limit(1, 100), limit(1, 200));
        let short = |keys| Shape { refill: 100 * TICKS_PER_S, ..shape(keys, old) };
        let first = Buckets::new(short(64));
        assert!((0..100).all(|_| first.charge(7, ALL, 1, old).allowed));
        let grown = first.renewed_at(short(64), 1).renewed_at(short(4_096), 1);
        let half = 50 * TICKS_PER_S;
        let passed = (0..200).filter(|_| grown.charge(7, ALL, half, new).allowed).count();
        assert_eq!(passed, 149, "what is still spent of a hundred is carried over");
        let until = 1 + (100 + RATE_RENEW_S) * TICKS_PER_S;
        assert_eq!(grown.before_until, until);
        // What comes into the old table late is found up to then.
        let late = |key, now| {
            assert!(grown.before[0].table.charge(key, ALL, now, old).allowed);
            grown.charge(key, ALL, now, new).remaining
        };
        assert_eq!((late(9, until - 1), late(10, until)), (198, 199));
    }

    /// More keys than ways: some share, which is counted, and nobody gets more than a burst.
    #[test]
    fn a_full_set_is_shared() {
        let buckets = Buckets::new(keys(8));
        let limit = limit(1, 2);
        let mut allowed = 0;
        for key in 0..9u64 {
            allowed += u64::from(buckets.charge(key + 1, ALL, 100, limit).allowed);
            allowed += u64::from(buckets.charge(key + 1, ALL, 100, limit).allowed);
        }
        assert_eq!((allowed, buckets.crowded()), (16, 2));
        let later = 100 + 3 * limit.interval;
        assert!(buckets.charge(9, ALL, later, limit).allowed, "passed times give way");
        assert_eq!(buckets.crowded(), 2);
    }

    /// Each worker of `scope = "core"` has a part that no other touches.
    #[test]
    fn parts_share_nothing() {
        let buckets = Buckets::new(keys(64));
        let limit = limit(1, 1);
        assert!((0..4).all(|part| buckets.charge(7, (part, 4), 100, limit).allowed));
        assert!((0..4).all(|part| !buckets.charge(7, (part, 4), 100, limit).allowed));
    }

    /// Also where there are more workers than sets: each has the whole of its part of the limit.
    #[test]
    fn more_parts_than_sets_share_nothing() {
        let limit = limit(1, 2);
        for (size, parts, made_for) in [(8, 64, 64), (512, 1_024, 1_024), (8, 8, 1)] {
            let buckets = Buckets::new(Shape { parts: made_for, ..keys(size) });
            let passed = |part| {
                (0..5).filter(|_| buckets.charge(7, (part, parts), 100, limit).allowed).count()
            };
            assert!((0..parts).all(|part| passed(part) == 2), "{size} keys, {parts} parts");
            assert_eq!(buckets.crowded(), 0);
        }
    }

    #[test]
    fn the_end_of_the_48_bits_is_like_any_other_time() {
        let buckets = Buckets::new(keys(8));
        let limit = limit(1, 5);
        for (key, now) in [(1, TIME - 10), (2, TIME - 10 + (TIME + 1))] {
            let charge = |now| buckets.charge(key, ALL, now, limit).allowed;
            let after = now + limit.interval;
            assert_eq!((0..9).filter(|_| charge(now)).count(), 5, "key {key}");
            assert!(charge(after) && !charge(after));
            assert!(charge(now + 20 * limit.interval));
        }
    }

    /// Four threads at a frozen clock: exactly the burst of each key passes.
    #[test]
    fn threads_admit_exactly() {
        let buckets = Buckets::new(keys(1_024));
        let limit = limit(1, 5_000);
        let keys: Vec<u64> = (0..3).map(|key| buckets.hash(1, &[key])).collect();
        let allowed: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        for (key, allowed) in keys.iter().zip(&allowed) {
                            let charge = buckets.charge(*key, ALL, 77, limit);
                            allowed.fetch_add(u64::from(charge.allowed), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(allowed.iter().all(|allowed| allowed.load(Ordering::Relaxed) == 5_000));
    }

    proptest! {
        /// In any window at most a burst and the rate's share pass; what is refused could pass once
        /// it has waited as long as it was told; numbers fit each other.
        #[test]
        fn no_window_has_more(
            burst in 1u64..20,
            per_s in prop_oneof![1u64..50, 1_000u64..1_000_000],
            pauses in proptest::collection::vec(0u64..3_000, 1..200),
        ) {
            let buckets = Buckets::new(keys(8));
            let limit = limit(per_s, burst);
            let (mut now, mut passed) = (12_345, Vec::new());
            for pause in pauses {
                now += pause * limit.interval / 1_000;
                let charge = buckets.charge(7, ALL, now, limit);
                prop_assert!(charge.remaining < burst || !charge.allowed && charge.remaining == 0);
                prop_assert!(charge.full <= burst * limit.interval);
                if charge.allowed {
                    passed.push(now);
                } else {
                    prop_assert!(charge.wait > 0 && charge.wait <= limit.interval);
                    let probe = buckets.copied();
                    prop_assert!(!probe.charge(7, ALL, now + charge.wait - 1, limit).allowed);
                    prop_assert!(probe.charge(7, ALL, now + charge.wait, limit).allowed);
                }
            }
            for (from, first) in passed.iter().enumerate() {
                for (to, last) in passed.iter().enumerate().skip(from) {
                    let most = burst + (last - first) / limit.interval;
                    prop_assert!((to - from + 1) as u64 <= most);
                }
            }
        }
    }

    impl Buckets {
        fn copied(&self) -> Buckets {
            let table = Table::new(self.table.sets.len());
            for (to, from) in table.sets.iter().zip(&self.table.sets) {
                for (to, from) in to.0.iter().zip(&from.0) {
                    to.store(from.load(ORDER), ORDER);
                }
            }
            Buckets { table: Arc::new(table), before: Vec::new(), ..*self }
        }
    }
}
