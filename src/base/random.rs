//! A small, fast generator for choices that need no secrecy: balancing, request ids, jitter.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A generator of 64-bit numbers (SplitMix64, Steele et al. 2014).
pub struct Random {
    state: Cell<u64>,
}

impl Random {
    /// The same numbers for the same seed.
    pub fn seeded(seed: u64) -> Random {
        Random { state: Cell::new(seed) }
    }

    /// Seeded from the operating system's randomness, as the standard hasher is.
    pub fn new() -> Random {
        Random::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// The next number.
    #[inline]
    pub fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "a choice among nothing");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}
