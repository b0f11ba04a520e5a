//! What is wrong with a configuration, and how it is shown: message, place, remedy.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::source::{Source, Sources};
use crate::limits::CONFIG_ERRORS_MAX;

/// Bytes of the source text; in a configuration of several files, of [`Sources`].
pub type Span = Range<usize>;

/// Whether the configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is refused.
    Error,
    /// It is taken, but is hardly what was meant.
    Warning,
}

/// One finding in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it refuses the configuration.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where; none is the file as a whole.
    pub span: Option<Span>,
    /// What stands there.
    pub label: String,
    /// What to do about it; may be empty.
    pub remedy: String,
    /// A second place that has to do with it, and what stands there.
    pub other: Option<(Span, String)>,
}

/// Findings, of which at most [`CONFIG_ERRORS_MAX`] are kept; the others are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    kept: Vec<Diagnostic>,
    dropped: usize,
    /// Strings with environment variables, by their first byte.
    expansions: BTreeMap<usize, Expansion>,
    /// What was written for their values, as messages would quote them.
    written: BTreeMap<String, Box<str>>,
}

/// What became of a string with environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expansion {
    /// A variable is not set, which has been said: what follows from it is not.
    Unknown,
    /// The value may be a secret: messages show what was written.
    Known {
        value: Box<str>,
        written: Box<str>,
        /// Values of its variables as messages would quote them, and what was written for each.
        parts: Vec<(Box<str>, Box<str>)>,
    },
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            span: Some(span),
            label: String::new(),
            remedy: String::new(),
            other: None,
        }
    }

    /// A warning at `span`.
    pub fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) }
    }

    /// An error of the file as a whole.
    pub fn whole_file(message: impl Into<String>) -> Diagnostic {
        Diagnostic { span: None, ..Diagnostic::error(0..0, message) }
    }

    /// With what stands at the place.
    pub fn label(self, label: impl Into<String>) -> Diagnostic {
        Diagnostic { label: label.into(), ..self }
    }

    /// With what to do about it.
    pub fn remedy(self, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic { remedy: remedy.into(), ..self }
    }

    /// With a second place.
    pub fn other(self, span: Span, label: impl Into<String>) -> Diagnostic {
        Diagnostic { other: Some((span, label.into())), ..self }
    }

    fn render(&self, sources: &Sources, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str());
        let group = match &self.span {
            Some(span) => title.elements(self.snippets(span, sources)),
            None => title.element(Origin::path(sources.first().name.as_str())),
        };
        let remedy = (!self.remedy.is_empty()).then(|| Level::HELP.message(self.remedy.as_str()));
        let report: [Group<'_>; 1] = [group.elements(remedy)];
        renderer.render(&report)
    }

    /// One snippet, or two where the second place is in another file.
    fn snippets<'a>(
        &'a self,
        span: &Span,
        sources: &'a Sources,
    ) -> Vec<Snippet<'a, Annotation<'a>>> {
        let (file, span) = sources.place(span);
        let here = Mark { kind: AnnotationKind::Primary, span, label: &self.label };
        let Some((span, label)) = &self.other else { return vec![snippet(file, &[here])] };
        let (elsewhere, span) = sources.place(span);
        let there = Mark { kind: AnnotationKind::Context, span, label };
        match std::ptr::eq(file, elsewhere) {
            true => vec![snippet(file, &[here, there])],
            false => vec![snippet(file, &[here]), snippet(elsewhere, &[there])],
        }
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let other = self.other.iter_mut().map(|(_, label)| label);
        [&mut self.message, &mut self.label, &mut self.remedy].into_iter().chain(other)
    }
}

impl Diagnostics {
    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.push_with(|| diagnostic);
    }

    /// Adds a finding that is dear to make: only counted where it would not be kept.
    pub fn push_with(&mut self, diagnostic: impl FnOnce() -> Diagnostic) {
        let full = self.kept.len() >= CONFIG_ERRORS_MAX;
        if full && self.expansions.is_empty() {
            self.dropped += 1;
            return;
        }
        let mut found = diagnostic();
        if !self.expansions.is_empty() && !self.conceal(&mut found) {
            return;
        }
        match full {
            true => self.dropped += 1,
            false => self.kept.push(found),
        }
    }

    /// Puts what was written in place of values of environment variables: at their own places
    /// wherever they stand, elsewhere where they are quoted. No: it is not to be said at all.
    fn conceal(&self, found: &mut Diagnostic) -> bool {
        let places = [found.span.clone(), found.other.as_ref().map(|(span, _)| span.clone())];
        for span in places.into_iter().flatten() {
            match self.expansions.get(&span.start) {
                None => {}
                Some(Expansion::Unknown) => return false,
                Some(Expansion::Known { value, written, parts }) => {
                    for text in found.texts() {
                        *text = replace_words(text, value, written);
                        parts.iter().for_each(|part| conceal_quoted(text, part));
                    }
                }
            }
        }
        for text in found.texts().filter(|text| text.contains('`')) {
            let quoted = |part| self.written.get(part).map_or(part, |written| &**written);
            *text = text.split('`').map(quoted).collect::<Vec<&str>>().join("`");
        }
        true
    }

    /// A finding that is kept elsewhere, without the values of environment variables known here.
    /// None: it is not to be said at all.
    pub fn concealed(&self, mut found: Diagnostic) -> Option<Diagnostic> {
        self.conceal(&mut found).then_some(found)
    }

    /// Adds what stands in `others`, without the values of environment variables known here.
    pub fn append(&mut self, others: Diagnostics) {
        others.kept.into_iter().for_each(|found| self.push(found));
        self.dropped += others.dropped;
    }

    /// The string at `span` comes from the environment: messages about it show `written`.
    /// `parts` are the values of its variables, and what was written for each.
    pub fn expanded(&mut self, span: &Span, value: &str, written: &str, parts: &[(String, &str)]) {
        let escaped = |text: &str| text.escape_debug().to_string().into();
        let parts: Vec<(Box<str>, Box<str>)> =
            parts.iter().map(|(value, written)| (escaped(value), (*written).into())).collect();
        for (value, written) in parts.iter().filter(|(value, _)| value.len() >= SHARED_BYTES_MIN) {
            self.written.insert(value.to_string(), written.clone());
        }
        let known = Expansion::Known { value: value.into(), written: written.into(), parts };
        self.expansions.insert(span.start, known);
        if !value.is_empty() {
            self.written.insert(value.escape_debug().to_string(), written.into());
        }
    }

    /// The string at `span` is not known, which has been said: nothing else is said of it.
    pub fn silence(&mut self, span: &Span) {
        self.expansions.insert(span.start, Expansion::Unknown);
    }

    /// Whether the string at `span` has a value.
    pub fn is_known(&self, span: &Span) -> bool {
        self.expansions.get(&span.start) != Some(&Expansion::Unknown)
    }

    /// Forgets what has no place, but for the first `from`: of a part of a configuration nothing is
    /// known to be missing.
    pub fn retain_placed(&mut self, from: usize) {
        let later = self.kept.split_off(from.min(self.kept.len()));
        self.kept.extend(later.into_iter().filter(|found| found.span.is_some()));
    }

    /// How many there are, those not kept included.
    pub fn count(&self) -> usize {
        self.kept.len() + self.dropped
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Those that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.kept.iter()
    }

    /// All of them as text, in the order of the files; `styled` is for terminals.
    pub fn render(&self, sources: &Sources, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let mut sorted: Vec<&Diagnostic> = self.kept.iter().collect();
        sorted.sort_by_key(|found| found.span.as_ref().map(|span| span.start));
        let mut text = String::new();
        for found in sorted {
            text += &found.render(sources, &renderer);
            text += "\n\n";
        }
        if self.dropped > 0 {
            text += &format!("and {} more\n", self.dropped);
        }
        text
    }
}

/// A place in a file and what stands there.
struct Mark<'a> {
    kind: AnnotationKind,
    span: Span,
    label: &'a str,
}

/// Only the lines between the marks: the file may have many.
fn snippet<'a>(source: &'a Source, marks: &[Mark<'a>]) -> Snippet<'a, Annotation<'a>> {
    let text = source.text.as_str();
    let places = || marks.iter().map(|mark| first_line(text, &mark.span));
    let first = places().map(|span| span.start).min().unwrap_or(0);
    let last = places().map(|span| span.end).max().unwrap_or(0);
    let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[last..].find('\n').map_or(text.len(), |newline| last + newline);
    Snippet::source(&text[start..end])
        .path(source.name.as_str())
        .line_start(1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..start]).count())
        .annotations(places().zip(marks).map(|(span, mark)| {
            let label = (!mark.label.is_empty()).then_some(mark.label);
            mark.kind.span(span.start - start..span.end - start).label(label)
        }))
}

/// `word` becomes `with` wherever it does not continue to the left or right.
fn replace_words(text: &str, word: &str, with: &str) -> String {
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    if word.is_empty() {
        return text.to_owned();
    }
    for (at, _) in text.match_indices(word) {
        let end = at + word.len();
        let whole = !text[..at].ends_with(char::is_alphanumeric)
            && !text[end..].starts_with(char::is_alphanumeric);
        if whole {
            out += &text[done..at];
            out += with;
            done = end;
        }
    }
    out + &text[done..]
}

/// In what a text quotes, everything that it shares with a value becomes what was written for it.
fn conceal_quoted(text: &mut String, (value, written): &(Box<str>, Box<str>)) {
    if value.is_empty() || !text.contains('`') {
        return;
    }
    let shared: HashSet<&[u8]> = value.as_bytes().windows(SHARED_BYTES_MIN).collect();
    let concealed = |part: &str| match part == &**value {
        true => written.to_string(),
        false => without(part, &shared, written),
    };
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 1 { concealed(part) } else { part.to_owned() });
    *text = parts.collect::<Vec<_>>().join("`");
}

/// `text` with each run of bytes that `shared` covers replaced.
fn without(text: &str, shared: &HashSet<&[u8]>, with: &str) -> String {
    let mut covered = vec![false; text.len()];
    for (at, window) in text.as_bytes().windows(SHARED_BYTES_MIN).enumerate() {
        if shared.contains(window) {
            covered[at..at + SHARED_BYTES_MIN].fill(true);
        }
    }
    let (mut out, mut inside) = (String::with_capacity(text.len()), false);
    for (at, char) in text.char_indices() {
        let hidden = covered[at..at + char.len_utf8()].contains(&true);
        match (hidden, inside) {
            (true, false) => out += with,
            (true, true) => {}
            (false, _) => out.push(char),
        }
        inside = hidden;
    }
    out
}

/// Bytes that a quoted text and a value of the environment must share at least to be told by it.
const SHARED_BYTES_MIN: usize = 4;

/// The part of a span on its first line, on character boundaries whatever the span is.
fn first_line(text: &str, span: &Span) -> Span {
    let floor = |at: usize| {
        let at = at.min(text.len());
        (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
    };
    let start = floor(span.start);
    let end = floor(span.end.max(start));
    let line_end = text[start..end].find(['\n', '\r']).map_or(end, |newline| start + newline);
    start..line_end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Sources {
        Source::toml("a.toml", "one = 1\ntwö = [\n2,\n]\r\nthree = 3\n").into()
    }

    fn plain(found: Diagnostic) -> String {
        let mut all = Diagnostics::default();
        all.push(found);
        all.render(&source(), false)
    }

    #[test]
    fn shows_message_place_label_remedy_and_the_second_place() {
        let text = plain(
            Diagnostic::error(15..22, "wrong").label("this").remedy("do that").other(0..3, "that"),
        );
        for part in ["error: wrong", "--> a.toml:2:7", "this", "that", "help: do that"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("\x1b"), "plain");
        assert!(plain(Diagnostic::warning(0..3, "odd")).starts_with("warning: odd"));
        assert!(plain(Diagnostic::whole_file("gone")).contains("--> a.toml"));
    }

    #[test]
    fn any_span_is_shown() {
        let length = source().bytes();
        for start in 0..length + 3 {
            for end in 0..length + 3 {
                let found = Diagnostic::error(start..end, "x").other(end..start, "y");
                assert!(plain(found).contains("--> a.toml:"));
            }
        }
    }

    #[test]
    fn the_number_kept_is_bounded_and_the_rest_counted() {
        let mut all = Diagnostics::default();
        for _ in 0..CONFIG_ERRORS_MAX + 7 {
            all.push(Diagnostic::error(0..1, "x"));
        }
        assert_eq!(all.iter().count(), CONFIG_ERRORS_MAX);
        assert_eq!(all.count(), CONFIG_ERRORS_MAX + 7);
        assert!(all.render(&source(), false).ends_with("and 7 more\n"));
    }

    #[test]
    fn a_second_place_in_another_file_is_shown_with_that_file() {
        let mut sources = source();
        let base = sources.add(Source::toml("b/c.toml", "\nfour = 4\n"));
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error(base + 1..base + 5, "twice").label("here").other(0..3, "there"));
        let text = all.render(&sources, false);
        for part in ["--> b/c.toml:2:1", "four = 4", "here", "::: a.toml:1:1", "one = 1", "there"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn values_of_the_environment_are_concealed() {
        let mut all = Diagnostics::default();
        all.expanded(&(0..3), "hunter2", "${PASSWORD}", &[]);
        all.silence(&(8..11));
        all.push(Diagnostic::error(0..3, "`hunter2` is bad, hunter22 is not").label("hunter2"));
        all.push(Diagnostic::error(8..11, "follows from what has been said"));
        all.push(Diagnostic::error(12..13, "two").other(0..3, "not `hunter2`"));
        all.push(Diagnostic::error(12..13, "three `hunter2`"));
        let text = all.render(&source(), false);
        assert!(text.contains("`${PASSWORD}` is bad, hunter22 is not"), "{text}");
        assert!(!text.contains("hunter2`") && !text.contains("follows"), "{text}");
        assert_eq!(all.count(), 3);
        let mut more = Diagnostics::default();
        more.push(Diagnostic::warning(0..3, "hunter2"));
        all.append(more);
        assert!(all.iter().all(|found| found.message != "hunter2"));
    }

    #[test]
    fn quoted_parts_of_values_are_concealed() {
        let mut all = Diagnostics::default();
        let parts = [("hunter2/é".to_owned(), "${S}"), ("a".to_owned(), "${T}")];
        all.expanded(&(0..3), "/{hunter2/é}/a", "/{${S}}/${T}", &parts);
        all.push(Diagnostic::error(0..3, "`hunter2` stands twice in `/x/hunter2/é-hunt`"));
        all.push(Diagnostic::error(0..3, "no `a`").remedy("write `abc` in a hunt for hunter2"));
        all.push(Diagnostic::error(9..10, "no `hunter2/é`").label("not `a`"));
        let texts: Vec<_> = all.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(texts, ["`${S}` stands twice in `/x/${S}-${S}`", "no `${T}`", "no `${S}`"]);
        let others: Vec<_> = all.iter().map(|it| (&*it.label, &*it.remedy)).collect();
        assert_eq!(others[1].1, "write `abc` in a hunt for hunter2", "only what is quoted");
        assert_eq!(others[2].0, "not `a`", "too short to be told elsewhere");
    }
}
