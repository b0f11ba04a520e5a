//! What the tests of filters share: a filter from its text, as `snapshot` makes it.

use std::sync::Arc;

use super::{AnswerCall, Build, Call, Filter, FilterId, KINDS, Kept};
use crate::base::random::Random;
use crate::config::decode::{Decoder, Fields};
use crate::config::tree::Node;
use crate::config::{Diagnostics, Source};
use crate::context::{Matched, RequestContext};
use crate::http::ResponseHead;

/// Workers that filters are made for.
pub const WORKERS: usize = 16;

/// A filter, or everything that is said of its text; and its warnings.
pub fn decode(
    kind: &str,
    text: &str,
    kept: &mut Kept,
) -> Result<(Arc<dyn Filter>, String), String> {
    let kind = KINDS.iter().find(|known| known.name == kind).expect("a kind");
    let mut decoder = Decoder::default();
    let shown = |found: &Diagnostics| found.render(&Source::toml("x.toml", text).into(), false);
    let Some(node) = Node::parse_toml(text, &mut decoder.found) else {
        return Err(shown(&decoder.found));
    };
    let mut f = Fields::of("filter", &node, &mut decoder).expect("a table");
    let mut warnings = Diagnostics::default();
    let id = FilterId(7);
    let mut build = Build { id, name: "it", workers: WORKERS, kept, warnings: &mut warnings };
    let filter = (kind.decode)(&mut f, &mut build);
    f.finish();
    match filter.filter(|_| decoder.found.is_empty()) {
        Some(filter) => {
            kept.take_over();
            Ok((filter, shown(&warnings)))
        }
        None => Err(shown(&decoder.found)),
    }
}

/// A filter whose text is right.
pub fn decoded(kind: &str, text: &str) -> Arc<dyn Filter> {
    decode(kind, text, &mut Kept::default()).unwrap_or_else(|said| panic!("{said}")).0
}

/// What is said of a text that is wrong.
pub fn refused(kind: &str, text: &str) -> String {
    let said = decode(kind, text, &mut Kept::default()).err();
    said.unwrap_or_else(|| panic!("taken: {text}"))
}

/// A request on its way through a filter: on no route and to no upstream, unless a test says so.
pub fn call(context: &mut RequestContext) -> Call<'_> {
    Call {
        context,
        route: Matched::default(),
        listener: "",
        upstream: "",
        // A test's own, for as long as it likes.
        random: Box::leak(Box::new(Random::new())),
        worker: (0, 1),
        decision: None,
    }
}

/// The same for an answer.
pub fn answer_call<'a>(context: &'a RequestContext, head: &'a mut ResponseHead) -> AnswerCall<'a> {
    AnswerCall {
        context,
        head,
        route: Matched::default(),
        listener: "",
        upstream: "",
        endpoint: "",
        upstream_ms: None,
    }
}
