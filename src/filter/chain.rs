//! The filters of one route, phase by phase.

use std::sync::Arc;

use super::{AnswerCall, Call, Decision, Filter, FilterId, Hooks, Phase, Reply, Verdict, Waiting};
use crate::context::RequestContext;
use crate::context::condition::{Condition, all_hold};
use crate::limits::FILTERS_PER_ROUTE_MAX;

/// What becomes of a request whose filter failed or did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is answered with an error.
    Reject,
    /// It goes on as if the filter were not there (B8, C21).
    Skip,
}

/// A filter on a route.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Identity over reloads.
    pub id: FilterId,
    /// Name in metrics and messages.
    pub name: Box<str>,
    /// When its hook on the request runs.
    pub phase: Phase,
    /// Which of its hooks do anything.
    pub hooks: Hooks,
    /// What must hold of a request to pass it at all.
    pub when: Arc<[Condition]>,
    /// For filters that wait.
    pub on_error: OnError,
    /// How long it may wait.
    pub timeout_ms: u64,
    /// The filter.
    pub filter: Arc<dyn Filter>,
}

/// All filters of a route, in the order in which requests pass them.
#[derive(Debug, Default)]
pub struct FilterChain {
    entries: Vec<Entry>,
    /// Those with a hook on answers, in the order of the configuration.
    response: Vec<u8>,
    /// The same for logs.
    log: Vec<u8>,
}

/// How far a request has come in its chain.
///
/// `when` is evaluated once for each filter: when the request gets there, or, if it was answered
/// before, at the answer. What it said then holds for the other hooks too, so that no filter sees
/// half a request, whatever filters changed in between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// How many filters it has come to.
    reached: u32,
    /// How many have been asked for their `when`.
    asked: u32,
    /// For which of those it held.
    holds: u64,
}

const _: () = assert!(FILTERS_PER_ROUTE_MAX <= u64::BITS as usize, "a bit for each filter");

/// What became of a request in its chain.
pub enum Passed {
    /// It has passed the filters of the phases that were asked for.
    Through,
    /// A filter answered it.
    Answered(FilterId, Reply),
    /// A filter waits.
    Waits(Pending),
}

/// A filter that waits.
pub struct Pending {
    /// Which.
    pub id: FilterId,
    /// What it waits for.
    pub waiting: Waiting,
    /// What becomes of the request if that fails.
    pub on_error: OnError,
    /// How long it may wait.
    pub timeout_ms: u64,
}

impl FilterChain {
    /// A chain of `entries`, at most [`FILTERS_PER_ROUTE_MAX`], in the order of the configuration.
    pub fn new(entries: Vec<Entry>) -> FilterChain {
        assert!(entries.len() <= FILTERS_PER_ROUTE_MAX, "the configuration was checked");
        let mut order: Vec<usize> = (0..entries.len()).collect();
        // Stable: inside a phase the order of the configuration holds.
        order.sort_by_key(|index| entries[*index].phase);
        let with = |hook: fn(&Hooks) -> bool| -> Vec<u8> {
            (0..entries.len())
                .filter(|index| hook(&entries[*index].hooks))
                .filter_map(|index| order.iter().position(|place| *place == index))
                .filter_map(|place| u8::try_from(place).ok())
                .collect()
        };
        FilterChain {
            response: with(|hooks| hooks.response),
            log: with(|hooks| hooks.log),
            entries: order.iter().map(|index| entries[*index].clone()).collect(),
        }
    }

    /// Whether there are none: then nothing of it costs anything (C16).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The filters in the order in which requests pass them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Lets a request pass the filters of the phases up to `last` that it has not come to yet, until
    /// one of them answers or waits. `decided` is told what limiters decide.
    #[inline]
    pub fn on_request(
        &self,
        progress: &mut Progress,
        last: Phase,
        call: &mut Call<'_>,
        mut decided: impl FnMut(FilterId, Decision),
    ) -> Passed {
        while let Some(entry) = self.entries.get(progress.reached as usize) {
            if entry.phase > last {
                break;
            }
            let index = progress.reached;
            progress.reached += 1;
            if !progress.applies(index, entry, call.context) || !entry.hooks.request {
                continue;
            }
            let verdict = entry.filter.on_request(call);
            if let Some(decision) = call.decision.take() {
                decided(entry.id, decision);
            }
            match verdict {
                Verdict::Continue => {}
                Verdict::Respond(reply) => return Passed::Answered(entry.id, reply),
                Verdict::Wait(waiting) => {
                    let Entry { id, on_error, timeout_ms, .. } = *entry;
                    return Passed::Waits(Pending { id, waiting, on_error, timeout_ms });
                }
            }
        }
        Passed::Through
    }

    /// Lets every filter on responses change an answer's head.
    #[inline]
    pub fn on_response(&self, progress: &mut Progress, answer: &mut AnswerCall<'_>) {
        for index in &self.response {
            let entry = &self.entries[usize::from(*index)];
            progress.ask_up_to(u32::from(*index), &self.entries, answer.context);
            if progress.held(*index) {
                entry.filter.on_response(answer);
            }
        }
    }

    /// Tells every filter on logs how it ended.
    #[inline]
    pub fn on_log(&self, progress: &mut Progress, context: &RequestContext, status: u16) {
        for index in &self.log {
            let entry = &self.entries[usize::from(*index)];
            progress.ask_up_to(u32::from(*index), &self.entries, context);
            if progress.held(*index) {
                entry.filter.on_log(context, status);
            }
        }
    }

    /// Names and phases in the order in which requests pass them.
    pub fn names(&self) -> impl Iterator<Item = (&str, Phase)> {
        self.entries.iter().map(|entry| (&*entry.name, entry.phase))
    }
}

impl Progress {
    /// Whether it has come to a filter at all.
    #[inline]
    pub fn has_begun(self) -> bool {
        self.reached > 0
    }

    /// Asks the next filter for its `when`.
    #[inline]
    fn applies(&mut self, index: u32, entry: &Entry, context: &RequestContext) -> bool {
        let applies = entry.when.is_empty() || all_hold(&entry.when, context);
        self.holds |= u64::from(applies) << index;
        self.asked = index + 1;
        applies
    }

    /// Asks the filters up to this one that have not been asked.
    #[inline]
    fn ask_up_to(&mut self, index: u32, entries: &[Entry], context: &RequestContext) {
        while self.asked <= index {
            self.applies(self.asked, &entries[self.asked as usize], context);
        }
    }

    #[inline]
    fn held(&self, index: u8) -> bool {
        self.holds >> index & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::config::decode::Decoder;
    use crate::config::tree::{Node, Value};
    use crate::filter::testing::{answer_call, call};
    use crate::http::ResponseHead;

    /// Notes its name at every hook, and does what it is told.
    #[derive(Debug)]
    struct Note {
        name: &'static str,
        hooks: Hooks,
        notes: Sender<String>,
        act: fn(&mut Call<'_>) -> Verdict,
    }

    impl Note {
        fn note(&self, hook: &str) {
            self.notes.send(format!("{hook} {}", self.name)).expect("somebody reads");
        }
    }

    impl Filter for Note {
        fn hooks(&self) -> Hooks {
            self.hooks
        }

        fn on_request(&self, call: &mut Call<'_>) -> Verdict {
            self.note("request");
            (self.act)(call)
        }

        fn on_response(&self, _answer: &mut AnswerCall<'_>) {
            self.note("response");
        }

        fn on_log(&self, _context: &RequestContext, _status: u16) {
            self.note("log");
        }
    }

    const ALL: Hooks = Hooks { request: true, response: true, log: true };

    struct Chain {
        notes: (Sender<String>, Receiver<String>),
        entries: Vec<Entry>,
    }

    impl Chain {
        fn new() -> Chain {
            Chain { notes: channel(), entries: Vec::new() }
        }

        fn with(
            mut self,
            name: &'static str,
            phase: Phase,
            when: &str,
            act: fn(&mut Call<'_>) -> Verdict,
        ) -> Chain {
            let filter = Arc::new(Note { name, hooks: ALL, notes: self.notes.0.clone(), act });
            self.entries.push(Entry {
                id: FilterId(self.entries.len() as u32),
                name: name.into(),
                phase,
                hooks: filter.hooks(),
                when: conditions(when).into(),
                on_error: OnError::Reject,
                timeout_ms: 1,
                filter,
            });
            self
        }

        /// Runs everything over a request; what was noted.
        fn run(self) -> (Vec<String>, Vec<(FilterId, Decision)>) {
            let chain = FilterChain::new(self.entries);
            let mut progress = Progress::default();
            let head = b"GET / HTTP/1.1\r\nHost: a.test\r\nx-one: 1\r\n\r\n";
            let (mut context, _) = RequestContext::of_head(head).expect("valid");
            let mut decisions = Vec::new();
            let mut call = call(&mut context);
            for last in [Phase::Transform, Phase::Upstream] {
                let decided = |id, decision| decisions.push((id, decision));
                match chain.on_request(&mut progress, last, &mut call, decided) {
                    Passed::Through => {}
                    Passed::Answered(..) | Passed::Waits(_) => break,
                }
            }
            let mut head = ResponseHead::default();
            let mut answer = answer_call(&context, &mut head);
            chain.on_response(&mut progress, &mut answer);
            chain.on_log(&mut progress, &context, 200);
            (self.notes.1.try_iter().collect(), decisions)
        }
    }

    fn conditions(when: &str) -> Vec<Condition> {
        let mut decoder = Decoder::default();
        let tree = Node::parse_toml(&format!("when = [{when}]"), &mut decoder.found);
        let tree = tree.expect("valid");
        let Value::Table(entries) = &tree.value else { panic!("a table") };
        if when.is_empty() {
            return Vec::new();
        }
        Condition::decode_all(&entries[0].value, &mut decoder).expect("conditions")
    }

    fn go_on(_call: &mut Call<'_>) -> Verdict {
        Verdict::Continue
    }

    /// P6: phase by phase, inside one as configured; answers and logs as configured.
    #[test]
    fn phases_order_requests_and_the_configuration_the_rest() {
        let (notes, _) = Chain::new()
            .with("a", Phase::Upstream, "", go_on)
            .with("b", Phase::Transform, "", go_on)
            .with("c", Phase::Access, "", go_on)
            .with("d", Phase::Access, "", go_on)
            .run();
        let wanted = "request c, request d, request b, request a, \
                      response a, response b, response c, response d, log a, log b, log c, log d";
        assert_eq!(notes.join(", "), wanted);
    }

    /// A filter that changes what another's `when` asks for: the other sees the change if it comes
    /// later, and what it saw then holds to the end.
    #[test]
    fn no_filter_sees_half_a_request() {
        let drop_one = |call: &mut Call<'_>| {
            call.context.request.remove("x-one");
            Verdict::Continue
        };
        let has_one = "{ header = \"x-one\", present = true }";
        let (notes, _) = Chain::new()
            .with("before", Phase::Access, has_one, go_on)
            .with("drops", Phase::Access, "", drop_one)
            .with("behind", Phase::Access, has_one, go_on)
            .run();
        let wanted =
            "request before, request drops, response before, response drops, log before, log drops";
        assert_eq!(notes.join(", "), wanted);
    }

    /// P7: an answer stops the request's filters; those on answers and logs run, if `when` holds.
    #[test]
    fn an_answer_stops_requests_and_nothing_else() {
        let answer = |_: &mut Call<'_>| Verdict::Respond(Reply::of(403));
        let (notes, _) = Chain::new()
            .with("denies", Phase::Access, "", answer)
            .with("holds", Phase::Access, "{ method = \"GET\" }", go_on)
            .with("not", Phase::Access, "{ method = \"POST\" }", go_on)
            .run();
        let wanted = "request denies, response denies, response holds, log denies, log holds";
        assert_eq!(notes.join(", "), wanted);
    }

    #[test]
    fn decisions_are_told_with_the_filter() {
        let allow = |call: &mut Call<'_>| {
            call.decide(true);
            Verdict::Continue
        };
        let limit = |call: &mut Call<'_>| {
            call.decide(false);
            Verdict::Respond(Reply::of(429))
        };
        let (_, decisions) = Chain::new()
            .with("a", Phase::Access, "", allow)
            .with("b", Phase::Access, "", go_on)
            .with("c", Phase::Access, "", limit)
            .run();
        let wanted = [(FilterId(0), Decision::Allowed), (FilterId(2), Decision::Limited)];
        assert_eq!(decisions, wanted);
    }

    #[test]
    fn a_full_chain_has_a_bit_for_everybody() {
        let mut chain = Chain::new();
        for index in 0..FILTERS_PER_ROUTE_MAX {
            let odd = "{ method = \"POST\" }";
            chain = chain.with("x", Phase::Access, if index % 2 == 1 { odd } else { "" }, go_on);
        }
        assert_eq!(chain.run().0.len(), 3 * FILTERS_PER_ROUTE_MAX / 2);
    }
}
