//! What is wrong with a configuration, and how it is shown: message, place, remedy.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::limits::CONFIG_ERRORS_MAX;

/// Bytes of the source text.
pub type Span = Range<usize>;

/// A text to read a configuration from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of the file, as messages show it.
    pub name: String,
    /// Its content.
    pub text: String,
}

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

    fn render(&self, source: &Source, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str());
        let group = match &self.span {
            Some(span) => title.element(self.snippet(span, source)),
            None => title.element(Origin::path(source.name.as_str())),
        };
        let remedy = (!self.remedy.is_empty()).then(|| Level::HELP.message(self.remedy.as_str()));
        let report: [Group<'_>; 1] = [group.elements(remedy)];
        renderer.render(&report)
    }

    /// Only the lines between the places: the file may have many.
    fn snippet<'a>(
        &'a self,
        span: &Span,
        source: &'a Source,
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let text = source.text.as_str();
        let span = first_line(text, span);
        let other = self.other.as_ref().map(|(span, label)| (first_line(text, span), label));
        let first = other.iter().fold(span.start, |first, (other, _)| first.min(other.start));
        let last = other.iter().fold(span.end, |last, (other, _)| last.max(other.end));
        let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[last..].find('\n').map_or(text.len(), |newline| last + newline);
        let here = |span: &Span| span.start - start..span.end - start;
        let label = (!self.label.is_empty()).then_some(self.label.as_str());
        Snippet::source(&text[start..end])
            .path(source.name.as_str())
            .line_start(1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..start]).count())
            .annotation(AnnotationKind::Primary.span(here(&span)).label(label))
            .annotations(other.iter().map(|(other, label)| {
                AnnotationKind::Context.span(here(other)).label(label.as_str())
            }))
    }
}

impl Diagnostics {
    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.push_with(|| diagnostic);
    }

    /// Adds a finding that is dear to make: only counted where it would not be kept.
    pub fn push_with(&mut self, diagnostic: impl FnOnce() -> Diagnostic) {
        match self.kept.len() < CONFIG_ERRORS_MAX {
            true => self.kept.push(diagnostic()),
            false => self.dropped += 1,
        }
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

    /// All of them as text, in the order of the file; `styled` is for terminals.
    pub fn render(&self, source: &Source, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let mut sorted: Vec<&Diagnostic> = self.kept.iter().collect();
        sorted.sort_by_key(|found| found.span.as_ref().map(|span| span.start));
        let mut text = String::new();
        for found in sorted {
            text += &found.render(source, &renderer);
            text += "\n\n";
        }
        if self.dropped > 0 {
            text += &format!("and {} more\n", self.dropped);
        }
        text
    }
}

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

    fn source() -> Source {
        Source { name: "a.toml".into(), text: "one = 1\ntwö = [\n2,\n]\r\nthree = 3\n".into() }
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
        let length = source().text.len();
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
}
