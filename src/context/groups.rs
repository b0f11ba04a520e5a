//! The named groups of an expression: what they matched of a path.
//!
//! All groups are found in one run, and the next question about the same path is answered from it.
//! What a run needs is kept by each thread, so that a look-up takes no memory once it is warm.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson::{BuildError, NFA, pikevm};
use regex_automata::util::primitives::{NonMaxUsize, PatternID};
use regex_automata::{Anchored, Input};

use crate::limits::{PATTERN_ENGINES_KEPT, PATTERN_TABLE_BYTES_MAX};

/// Finds the groups of an expression that takes values as a whole.
pub(super) struct Groups {
    /// Tells it from all others of the process.
    number: u64,
    engine: Engine,
    nfa: NFA,
}

enum Engine {
    /// One look at each byte, where no byte leaves a choice.
    OnePass(Box<onepass::DFA>),
    /// All ways at a time.
    Machine(Box<pikevm::PikeVM>),
}

/// What a run needs besides the engine.
enum Cache {
    OnePass(onepass::Cache),
    Machine(pikevm::Cache),
}

/// What a thread keeps.
#[derive(Default)]
struct Kept {
    /// By the number of their groups; the one used last is at the end.
    caches: Vec<(u64, Cache)>,
    /// The last run: whose, of which value, and where its groups begin and end.
    last: u64,
    value: Vec<u8>,
    slots: Vec<Option<NonMaxUsize>>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

impl Groups {
    /// The groups of an automaton; none where none has a name.
    pub(super) fn of(nfa: NFA) -> Result<Option<Groups>, Box<BuildError>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if nfa.group_info().pattern_names(PatternID::ZERO).flatten().next().is_none() {
            return Ok(None);
        }
        let config = onepass::Config::new().size_limit(Some(PATTERN_TABLE_BYTES_MAX));
        let one_pass = onepass::Builder::new().configure(config).build_from_nfa(nfa.clone());
        let engine = match one_pass {
            Ok(engine) => Engine::OnePass(Box::new(engine)),
            Err(_) => Engine::Machine(Box::new(
                pikevm::PikeVM::new_from_nfa(nfa.clone()).map_err(Box::new)?,
            )),
        };
        Ok(Some(Groups { number: NEXT.fetch_add(1, Ordering::Relaxed), engine, nfa }))
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.nfa.group_info().pattern_names(PatternID::ZERO).flatten()
    }

    /// What the group called `name` matched of `value`.
    pub(super) fn find<'a>(&self, name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
        let slot = 2 * self.nfa.group_info().to_index(PatternID::ZERO, name)?;
        KEPT.with_borrow_mut(|kept| {
            if kept.last != self.number || kept.value != value {
                self.run(kept, value);
            }
            let at = |slot: usize| kept.slots.get(slot).copied().flatten().map(NonMaxUsize::get);
            value.get(at(slot)?..at(slot + 1)?)
        })
    }

    fn run(&self, kept: &mut Kept, value: &[u8]) {
        let Kept { caches, slots, .. } = kept;
        let known = caches.iter().position(|(number, _)| *number == self.number);
        let mut cache = match known {
            Some(at) => caches.remove(at).1,
            None => self.engine.cache(),
        };
        slots.clear();
        slots.resize(self.nfa.group_info().slot_len(), None);
        let input = Input::new(value).anchored(Anchored::Yes);
        let found = match (&self.engine, &mut cache) {
            // An anchored search is what it can do: it does not give up.
            (Engine::OnePass(engine), Cache::OnePass(cache)) => {
                engine.try_search_slots(cache, &input, slots).ok().flatten()
            }
            (Engine::Machine(engine), Cache::Machine(cache)) => {
                engine.search_slots(cache, &input, slots)
            }
            _ => unreachable!("a cache is made by the engine whose number it has"),
        };
        if found.is_none() {
            slots.fill(None);
        }
        if caches.len() >= PATTERN_ENGINES_KEPT {
            caches.remove(0);
        }
        caches.push((self.number, cache));
        kept.last = self.number;
        kept.value.clear();
        kept.value.extend_from_slice(value);
    }
}

impl Engine {
    fn cache(&self) -> Cache {
        match self {
            Engine::OnePass(engine) => Cache::OnePass(engine.create_cache()),
            Engine::Machine(engine) => Cache::Machine(engine.create_cache()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::context::pattern::Pattern;
    use crate::limits::PATTERN_ENGINES_KEPT;

    /// Questions about several expressions and values, turn about, on both engines.
    #[test]
    fn groups_are_those_of_the_value_that_is_asked_about() {
        let one_pass = Pattern::whole("/v(?<n>[0-9]+)(?<rest>/.*)?").expect("valid");
        let machine = Pattern::whole("/(?<a>.*)/(?<b>.*)").expect("valid");
        let more: Vec<Pattern> = (0..2 * PATTERN_ENGINES_KEPT)
            .map(|number| Pattern::whole(&format!("/(?<a>x{number}).*")).expect("valid"))
            .collect();
        for _ in 0..3 {
            assert_eq!(one_pass.group("n", b"/v12/x"), Some(&b"12"[..]));
            assert_eq!(one_pass.group("rest", b"/v12/x"), Some(&b"/x"[..]));
            assert_eq!(machine.group("a", b"/v12/x/y"), Some(&b"v12/x"[..]));
            assert_eq!(one_pass.group("rest", b"/v3"), None);
            assert_eq!(one_pass.group("n", b"/v3"), Some(&b"3"[..]));
            assert_eq!(machine.group("b", b"/v12/x/y"), Some(&b"y"[..]));
            assert_eq!(machine.group("a", b"none"), None);
            assert_eq!(machine.group("c", b"/a/b"), None);
            for (number, pattern) in more.iter().enumerate() {
                let value = format!("/x{number}/y");
                let group = pattern.group("a", value.as_bytes());
                assert_eq!(group, Some(format!("x{number}").as_bytes()));
            }
        }
    }
}
