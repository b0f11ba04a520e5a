//! The spanned tree that every source of configuration becomes before it is decoded.

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::limits::CONFIG_DEPTH_MAX;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it stands; of a table with a header, the header.
    pub span: Span,
    /// The value.
    pub value: Value,
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
    /// Parses TOML. Every syntax error is added to `found`.
    pub fn parse_toml(text: &str, found: &mut Diagnostics) -> Option<Node> {
        let before = found.count();
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let span = error.span().unwrap_or(text.len()..text.len());
            found.push(Diagnostic::error(span, error.message()).label("not valid TOML"));
        }
        if found.count() > before {
            return None;
        }
        let node = Node { span: 0..0, value: table(document.into_inner(), 0, found) };
        (found.count() == before).then_some(node)
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

fn table(table: DeTable<'_>, depth: usize, found: &mut Diagnostics) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            key_span: key.span(),
            key: key.into_inner().into(),
            value: node(value, depth + 1, found),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Table(entries)
}

fn node(value: toml::Spanned<DeValue<'_>>, depth: usize, found: &mut Diagnostics) -> Node {
    let span = value.span();
    if depth > CONFIG_DEPTH_MAX {
        let message = format!("tables and arrays are nested more than {CONFIG_DEPTH_MAX} deep");
        found.push(Diagnostic::error(span.clone(), message).remedy("no key needs that depth"));
        return Node { span, value: Value::Table(Vec::new()) };
    }
    let value = match value.into_inner() {
        DeValue::String(text) => Value::String(text.into()),
        DeValue::Integer(digits) => integer(&digits, &span, found),
        DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Bool(flag),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => {
            Value::Array(items.into_iter().map(|item| node(item, depth + 1, found)).collect())
        }
        DeValue::Table(entries) => table(entries, depth, found),
    };
    Node { span, value }
}

fn integer(digits: &toml::de::DeInteger<'_>, span: &Span, found: &mut Diagnostics) -> Value {
    let number = i64::from_str_radix(digits.as_str(), digits.radix());
    Value::Integer(number.unwrap_or_else(|_| {
        let message = format!("`{digits}` is not a number of 64 bits with a sign");
        found.push(Diagnostic::error(span.clone(), message).remedy("write a smaller number"));
        0
    }))
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
}
