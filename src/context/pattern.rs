//! Regular expressions of a configuration, as automata that every worker shares.
//!
//! The table of a deterministic automaton is read only: a search takes linear time, no lock and no
//! memory. The engines of the `regex` crate keep caches in a pool that threads share.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, HirKind, Look};

use super::groups::Groups;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_TABLE_BYTES_MAX};

/// A compiled expression and its text, cheap to clone. Letters, digits and classes mean ASCII; `.` is any byte but
/// a line feed.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
    automaton: dense::DFA<Vec<u32>>,
    whole: bool,
    /// Finds the groups, where there are named ones; the table only says yes or no.
    groups: Option<Groups>,
    literal: Box<str>,
}

impl Pattern {
    /// A pattern that a value must match as a whole.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn whole(text: &str) -> Result<Pattern, String> {
        Pattern::compile(text, true)
    }

    /// A pattern that may match anywhere in a value.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn anywhere(text: &str) -> Result<Pattern, String> {
        Pattern::compile(text, false)
    }

    fn compile(text: &str, whole: bool) -> Result<Pattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let error = |error: &dyn fmt::Display| reason(&error.to_string());
        let mut tree = syntax::parse_with(text, &syntax).map_err(|found| error(&found))?;
        if whole {
            tree = Hir::concat(vec![Hir::look(Look::Start), tree, Hir::look(Look::End)]);
        }
        let too_large = "its automaton is too large";
        let states = |captures| {
            let config = thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(PATTERN_TABLE_BYTES_MAX))
                .which_captures(captures);
            let built = thompson::Compiler::new().configure(config).build_from_hir(&tree);
            built.map_err(|_| too_large.to_owned())
        };
        let start = if whole { StartKind::Anchored } else { StartKind::Unanchored };
        let config = dense::Config::new()
            .start_kind(start)
            .dfa_size_limit(Some(PATTERN_TABLE_BYTES_MAX))
            .determinize_size_limit(Some(4 * PATTERN_TABLE_BYTES_MAX));
        let automaton = dense::Builder::new()
            .configure(config)
            .build_from_nfa(&states(WhichCaptures::None)?)
            .map_err(|_| too_large.to_owned())?;
        let groups = match whole {
            true => Groups::of(states(WhichCaptures::All)?).map_err(|_| too_large.to_owned())?,
            false => None,
        };
        let literal = if whole { beginning(&tree) } else { Box::default() };
        Ok(Pattern(Arc::new(Compiled { text: text.into(), automaton, whole, groups, literal })))
    }

    /// Whether `value` matches.
    #[inline]
    pub fn matches(&self, value: &[u8]) -> bool {
        let anchored = if self.0.whole { Anchored::Yes } else { Anchored::No };
        let input = Input::new(value).anchored(anchored).earliest(true);
        // A search of a table without quit bytes cannot give up.
        matches!(self.0.automaton.try_search_fwd(&input), Ok(Some(_)))
    }

    /// The names of its groups; none of a pattern that may match anywhere.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.groups.iter().flat_map(Groups::names)
    }

    /// What the group called `name` matched of `value`.
    pub fn group<'a>(&self, name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
        self.0.groups.as_ref()?.find(name, value)
    }

    /// What everything that it takes as a whole begins with.
    pub fn literal_beginning(&self) -> &str {
        &self.0.literal
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text() == other.text() && self.0.whole == other.0.whole
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

/// The text that all matches of a whole pattern begin with, as far as that is easy to see.
fn beginning(tree: &Hir) -> Box<str> {
    fn add(tree: &Hir, out: &mut Vec<u8>) -> bool {
        match tree.kind() {
            HirKind::Look(Look::Start) | HirKind::Empty => true,
            HirKind::Literal(literal) => {
                out.extend_from_slice(&literal.0);
                true
            }
            HirKind::Capture(capture) => add(&capture.sub, out),
            HirKind::Concat(parts) => parts.iter().all(|part| add(part, out)),
            _ => false,
        }
    }
    let mut out = Vec::new();
    add(tree, &mut out);
    let valid = out.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    valid.into()
}

/// The last line of a syntax error says what is wrong; those before draw the pattern.
fn reason(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_pattern_takes_the_whole_value() {
        let pattern = Pattern::whole("/v[0-9]+/(?<what>[a-z]+)").expect("valid");
        assert!(pattern.matches(b"/v12/users"));
        for other in [&b"/v1/"[..], b"x/v1/a", b"/v1/a/", b"/v1/a\n", b""] {
            assert!(!pattern.matches(other), "{other:?}");
        }
        assert_eq!(pattern.names().collect::<Vec<_>>(), ["what"]);
        assert_eq!(pattern.group("what", b"/v12/users"), Some(&b"users"[..]));
        assert_eq!(pattern.group("what", b"/w"), None);
        let alternatives = Pattern::whole("^/a|/b$").expect("valid");
        assert!(alternatives.matches(b"/a") && !alternatives.matches(b"/ab"));
    }

    #[test]
    fn what_matches_begin_with_is_known() {
        for (text, beginning) in [
            ("/v[0-9]+", "/v"),
            ("/(?<a>user/.*)", "/user/"),
            ("/a", "/a"),
            ("(/a|/b)", "/"),
            (".*", ""),
            ("/a|/b.*", "/"),
            ("(?i)/a", "/"),
            ("/a?", "/"),
            ("(/a/)+", ""),
        ] {
            let pattern = Pattern::whole(text).expect("valid");
            let known = pattern.literal_beginning();
            assert!(beginning.starts_with(known), "{text}: {known}");
            assert!(known == beginning || text.contains('|'), "{text}: {known}");
        }
    }

    #[test]
    fn a_pattern_may_match_anywhere_and_any_byte() {
        let pattern = Pattern::anywhere("(?i)mobile|.\\xff$").expect("valid");
        assert!(pattern.matches(b"x MOBILE y") && pattern.matches(b"\xe9\xff"));
        assert!(!pattern.matches(b"mobil"));
        assert!(Pattern::anywhere("").expect("valid").matches(b""));
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        assert!(Pattern::whole("/a(").expect_err("refused").contains("unclosed group"));
        assert_eq!(
            Pattern::anywhere("a.{500}b.{500}c").expect_err("refused"),
            "its automaton is too large"
        );
        assert!(Pattern::whole(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert!(Pattern::whole(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        for tricky in ["(?x)a # b", "a\\", "a(?#", "a)|(b"] {
            if let Ok(pattern) = Pattern::whole(tricky) {
                assert!(pattern.matches(b"a") && !pattern.matches(b"xa"), "{tricky}");
            }
        }
    }
}
