//! The spanned tree that every source of configuration becomes before it is decoded.

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::json;
use super::source::Kind;
use crate::limits::CONFIG_DEPTH_MAX;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it stands; of a table with a header, the header.
    pub span: Span,
    /// The value.
    pub value: Value,
    /// What was written, where the value holds environment variables.
    pub written: Option<Box<str>>,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    String(Box<str>),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A date or time; no key takes one.
    Datetime,
    /// A list.
    Array(Vec<Node>),
    /// Keys and values in the order of the source.
    Table(Vec<Entry>),
}

/// A key of a table and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Box<str>,
    /// Where it stands.
    pub key_span: Span,
    /// Its value.
    pub value: Node,
}

/// A decoded value and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

impl<T> Spanned<T> {
    /// `value`, which stands at `span`.
    pub fn new(value: T, span: &Span) -> Spanned<T> {
        Spanned { value, start: span.start, end: span.end }
    }

    /// Where it stands.
    pub fn span(&self) -> Span {
        self.start..self.end
    }
}

impl Node {
    /// `value`, which stands at `span` as it is.
    pub fn new(span: Span, value: Value) -> Node {
        Node { span, value, written: None }
    }

    /// Parses a text whose first address is `base`. What is wrong is added to `found`.
    pub fn parse(kind: Kind, text: &str, base: usize, found: &mut Diagnostics) -> Option<Node> {
        let before = found.count();
        let node = match kind {
            Kind::Toml => parse_toml(text, base, found),
            Kind::Json => json::parse(text, base, found),
        };
        node.filter(|_| found.count() == before)
    }

    /// Parses TOML that stands alone. What is wrong is added to `found`.
    pub fn parse_toml(text: &str, found: &mut Diagnostics) -> Option<Node> {
        Node::parse(Kind::Toml, text, 0, found)
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a boolean",
            Value::Datetime => "a date or time",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

/// Every syntax error is reported.
fn parse_toml(text: &str, base: usize, found: &mut Diagnostics) -> Option<Node> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut again = None;
    for error in &errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        if error.message().starts_with("duplicate key") {
            // With a table that stands twice, each of its keys does.
            let before = text.get(..span.start).unwrap_or_default();
            let line = before.rfind('\n').map_or(0, |newline| newline + 1);
            let header = text[line..].trim_start().starts_with('[');
            if !header && again.is_some_and(|again| !text[again..line].contains("\n[")) {
                continue;
            }
            again = if header { Some(line) } else { again };
        }
        found.push_with(|| syntax_error(text, base, span, error.message()));
    }
    let mut reader = Toml { base, found };
    let value = errors.is_empty().then(|| reader.table(document.into_inner(), 0))?;
    Some(Node::new(base..base, value))
}

fn syntax_error(text: &str, base: usize, span: Span, message: &str) -> Diagnostic {
    let place = base + span.start..base + span.end;
    if message.starts_with("duplicate key") {
        let key = text.get(span.clone()).unwrap_or_default();
        let error = Diagnostic::error(place, format!("`{}` stands twice", key.escape_debug()))
            .label("the second")
            .remedy("remove one of them, or give it another name");
        return match first_of(text, &span) {
            Some(first) => error.other(base + first.start..base + first.end, "the first"),
            None => error,
        };
    }
    Diagnostic::error(place, message)
        .label("not valid TOML")
        .remedy("write `key = value`, text in double quotes, and close every bracket and quote")
}

/// Where the key at `span` stood first: on a line that begins in the same way, and within the same
/// table unless the key is that of a table.
fn first_of(text: &str, span: &Span) -> Option<Span> {
    let line = text.get(..span.start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let before = text[line..span.start].trim_start();
    let key = text.get(span.clone())?;
    let mut end = line;
    while end > 0 {
        let start = text[..end - 1].rfind('\n').map_or(0, |newline| newline + 1);
        let indent = text[start..end].len() - text[start..end].trim_start().len();
        let here = &text[start + indent..end];
        let rest = here.strip_prefix(before).and_then(|rest| rest.strip_prefix(key));
        let more = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || "_-".contains(c));
        if rest.is_some_and(|rest| !more(rest)) {
            let at = start + indent + before.len();
            return Some(at..at + key.len());
        }
        if !before.starts_with('[') && here.starts_with('[') {
            return None;
        }
        end = start;
    }
    None
}

/// Makes nodes of what the parser gives.
struct Toml<'d> {
    base: usize,
    found: &'d mut Diagnostics,
}

impl Toml<'_> {
    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Value {
        let mut entries: Vec<Entry> = table
            .into_iter()
            .map(|(key, value)| Entry {
                key_span: self.place(key.span()),
                key: key.into_inner().into(),
                value: self.node(value, depth + 1),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_span.start);
        Value::Table(entries)
    }

    fn node(&mut self, value: toml::Spanned<DeValue<'_>>, depth: usize) -> Node {
        let span = self.place(value.span());
        if depth > CONFIG_DEPTH_MAX {
            self.found.push(too_deep(&span));
            return Node::new(span, Value::Table(Vec::new()));
        }
        let value = match value.into_inner() {
            DeValue::String(text) => Value::String(text.into()),
            DeValue::Integer(digits) => {
                let number = i64::from_str_radix(digits.as_str(), digits.radix());
                Value::Integer(number.unwrap_or_else(|_| {
                    self.found.push(too_large(&span, &digits.to_string()));
                    0
                }))
            }
            DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Value::Bool(flag),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.node(item, depth + 1)).collect())
            }
            DeValue::Table(entries) => self.table(entries, depth),
        };
        Node::new(span, value)
    }

    fn place(&self, span: Span) -> Span {
        self.base + span.start..self.base + span.end
    }
}

/// What is said of a table or array that is nested too deeply.
pub(super) fn too_deep(span: &Span) -> Diagnostic {
    let message = format!("tables and arrays are nested more than {CONFIG_DEPTH_MAX} deep");
    Diagnostic::error(span.clone(), message).remedy("no key needs that depth")
}

/// What is said of a number that is none of 64 bits.
pub(super) fn too_large(span: &Span, digits: &str) -> Diagnostic {
    let message = format!("`{digits}` is not a number of 64 bits with a sign");
    Diagnostic::error(span.clone(), message).remedy("write a smaller number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_spans_are_kept() {
        let text = "b = 1\n[z]\nk = \"v\"\n[a]\nx = { y = [true] }\n";
        let mut found = Diagnostics::default();
        let tree = Node::parse_toml(text, &mut found).expect("valid");
        let Value::Table(entries) = tree.value else { panic!("a table") };
        let keys: Vec<&str> = entries.iter().map(|entry| &text[entry.key_span.clone()]).collect();
        assert_eq!(keys, ["b", "z", "a"]);
        let Value::Table(inner) = &entries[1].value.value else { panic!("a table") };
        assert_eq!(&text[inner[0].value.span.clone()], "\"v\"");
    }

    #[test]
    fn every_syntax_error_is_reported() {
        let mut found = Diagnostics::default();
        assert_eq!(Node::parse_toml("a = \nb = 1\nc = [\n", &mut found), None);
        assert!(found.count() >= 2, "{found:?}");
    }

    #[test]
    fn depth_is_bounded_on_both_sides() {
        let nested = |depth: usize| format!("a = {}{}", "[".repeat(depth), "]".repeat(depth));
        let errors = |depth| {
            let mut found = Diagnostics::default();
            Node::parse_toml(&nested(depth), &mut found);
            found.count()
        };
        assert_eq!(errors(CONFIG_DEPTH_MAX), 0);
        assert_eq!(errors(CONFIG_DEPTH_MAX + 1), 1);
        assert!(errors(100_000) > 0);
    }

    #[test]
    fn numbers_beyond_64_bits_are_errors() {
        let mut found = Diagnostics::default();
        assert_eq!(Node::parse_toml("a = 9_223_372_036_854_775_808", &mut found), None);
        assert_eq!(found.count(), 1);
    }

    #[test]
    fn a_key_that_stands_twice_is_shown_with_the_first() {
        let first = |text: &str| {
            let mut found = Diagnostics::default();
            assert_eq!(Node::parse_toml(text, &mut found), None);
            let error = found.iter().next().expect("an error").clone();
            error.other.map(|(span, _)| span)
        };
        assert_eq!(first("[u]\nab = 1\na = 2\na = 3\n"), Some(11..12));
        assert_eq!(first("[l.u]\na = 1\n[u.u]\na = 2\n[l.u]\nb = 3\n"), Some(3..4));
        assert_eq!(first("a = { b = 1, b = 2 }\n"), None, "on one line");
    }

    #[test]
    fn spans_begin_at_the_base() {
        let mut found = Diagnostics::default();
        let tree = Node::parse(Kind::Toml, "a = [1]", 100, &mut found).expect("valid");
        let Value::Table(entries) = tree.value else { panic!("a table") };
        assert_eq!(
            (entries[0].key_span.clone(), entries[0].value.span.clone()),
            (100..101, 104..107)
        );
        Node::parse(Kind::Toml, "a = ", 100, &mut found);
        assert_eq!(found.iter().next().and_then(|found| found.span.clone()), Some(104..104));
    }
}
