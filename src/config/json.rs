//! JSON (RFC 8259) of the same schema, as a spanned tree.

use std::collections::HashMap;

use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::{CollectOptions, ParseOptions, ast};
use serde::de::IgnoredAny;

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::tree::{Entry, Node, Value, too_deep, too_large};
use crate::limits::CONFIG_DEPTH_MAX;

/// Parses a text whose first address is `base`. What is wrong is added to `found`.
pub(super) fn parse(text: &str, base: usize, found: &mut Diagnostics) -> Option<Node> {
    // A byte order mark may be ignored (RFC 8259 section 8.1).
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let base = base + text.len() - json.len();
    let parsed = match jsonc_parser::parse_to_ast(json, &CollectOptions::default(), &STRICT) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            found.push(syntax_error(base, &error));
            return None;
        }
    };
    // What keeps the places lets through a little that is no JSON, such as raw control characters.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(json) {
        found.push(strict_error(json, base, &error));
        return None;
    }
    let mut reader = Reader { base, found };
    let node = reader.node(parsed?, "", 0);
    if let Value::Table(_) = node.value {
        return Some(node);
    }
    let message = format!("expected an object, found {}", node.kind());
    let error = Diagnostic::error(node.span, message).label("the whole text");
    found.push(error.remedy("write { \"listener\": { ... }, ... }"));
    None
}

fn syntax_error(base: usize, error: &ParseError) -> Diagnostic {
    let range = error.range();
    let remedy = match error.kind() {
        ParseErrorKind::CommentsNotAllowed => "remove it, or write TOML, which has comments",
        ParseErrorKind::TrailingCommasNotAllowed => "remove the comma before the bracket",
        ParseErrorKind::ExpectedComma => "write a comma between two items",
        ParseErrorKind::UnterminatedObject => "close it with }",
        ParseErrorKind::UnterminatedArray => "close it with ]",
        ParseErrorKind::NestingDepthExceeded => "no key needs that depth",
        _ => REMEDY,
    };
    not_json(base + range.start..base + range.end, &error.kind().to_string(), remedy)
}

fn strict_error(text: &str, base: usize, error: &serde_json::Error) -> Diagnostic {
    let before: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
    let at = base + before + error.column().saturating_sub(1);
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    not_json(at..at + 1, message, REMEDY)
}

fn not_json(span: Span, message: &str, remedy: &str) -> Diagnostic {
    let mut message = message.to_owned();
    // But not an abbreviation, such as EOF.
    if !message.as_bytes().get(1).is_some_and(|second| second.is_ascii_uppercase())
        && let Some(first) = message.get_mut(..1)
    {
        first.make_ascii_lowercase();
    }
    Diagnostic::error(span, message).label("not valid JSON").remedy(remedy)
}

/// Makes nodes of what the parser gives.
struct Reader<'d> {
    base: usize,
    found: &'d mut Diagnostics,
}

impl Reader<'_> {
    /// `key` is the name that leads here.
    fn node(&mut self, value: ast::Value<'_>, key: &str, depth: usize) -> Node {
        let span = self.place(ast_range(&value));
        if depth > CONFIG_DEPTH_MAX {
            self.found.push(too_deep(&span));
            return Node::new(span, Value::Table(Vec::new()));
        }
        let value = match value {
            ast::Value::StringLit(text) => Value::String(text.value.into()),
            ast::Value::NumberLit(number) => self.number(number.value, &span),
            ast::Value::BooleanLit(flag) => Value::Bool(flag.value),
            ast::Value::Object(object) => self.table(object, depth),
            ast::Value::Array(array) => {
                let items = array.elements.into_iter();
                Value::Array(items.map(|item| self.node(item, key, depth + 1)).collect())
            }
            ast::Value::NullKeyword(_) => {
                self.found.push(
                    Diagnostic::error(span.clone(), format!("`{}` is null", key.escape_debug()))
                        .label("no value")
                        .remedy("leave the key out, or give it a value"),
                );
                Value::Table(Vec::new())
            }
        };
        Node::new(span, value)
    }

    fn table(&mut self, object: ast::Object<'_>, depth: usize) -> Value {
        let properties = object.properties.into_iter();
        let entries: Vec<Entry> = properties
            .map(|property| {
                let (key, range) = match property.name {
                    ast::ObjectPropName::String(text) => (text.value.into(), text.range),
                    ast::ObjectPropName::Word(word) => (Box::from(word.value), word.range),
                };
                let value = self.node(property.value, &key, depth + 1);
                Entry { key, key_span: self.place(range), value }
            })
            .collect();
        self.duplicates(&entries);
        Value::Table(entries)
    }

    /// Names within an object should be unique (RFC 8259 section 4); here they are.
    fn duplicates(&mut self, entries: &[Entry]) {
        if entries.len() <= FEW {
            for (at, entry) in entries.iter().enumerate() {
                if let Some(first) = entries[..at].iter().find(|first| first.key == entry.key) {
                    self.duplicate(first, entry);
                }
            }
            return;
        }
        let mut seen: HashMap<&str, &Entry> = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(first) = seen.insert(&entry.key, entry) {
                self.duplicate(first, entry);
            }
        }
    }

    fn duplicate(&mut self, first: &Entry, second: &Entry) {
        self.found.push_with(|| {
            let message = format!("`{}` stands twice", second.key.escape_debug());
            Diagnostic::error(second.key_span.clone(), message)
                .label("the second")
                .other(first.key_span.clone(), "the first")
                .remedy("remove one of them, or give it another name")
        });
    }

    fn number(&mut self, digits: &str, span: &Span) -> Value {
        if digits.contains(['.', 'e', 'E']) {
            return Value::Float(digits.parse().unwrap_or(f64::NAN));
        }
        Value::Integer(digits.parse().unwrap_or_else(|_| {
            self.found.push(too_large(span, digits));
            0
        }))
    }

    fn place(&self, range: jsonc_parser::common::Range) -> Span {
        self.base + range.start..self.base + range.end
    }
}

fn ast_range(value: &ast::Value<'_>) -> jsonc_parser::common::Range {
    use jsonc_parser::common::Ranged;
    value.range()
}

/// Keys that are compared with each other faster than they are hashed.
const FEW: usize = 16;

const REMEDY: &str = "keys and text stand in double quotes, a colon between key and value, a comma \
                      between two items";

const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<Diagnostic> {
        let mut found = Diagnostics::default();
        let node = parse(text, 0, &mut found);
        assert!(node.is_some() || !found.is_empty(), "{text}");
        found.iter().cloned().collect()
    }

    #[test]
    fn order_spans_and_types_are_kept() {
        let text = r#"{"b": [1, -2.5, true], "a": {"x\n": "é\u00e9\ud83d\ude00"}}"#;
        let mut found = Diagnostics::default();
        let node = parse(text, 100, &mut found).expect("valid");
        assert_eq!(node.span, 100..100 + text.len());
        let Value::Table(entries) = &node.value else { panic!("a table") };
        assert_eq!(entries[0].key_span, 101..104);
        let list = [Value::Integer(1), Value::Float(-2.5), Value::Bool(true)];
        let Value::Array(items) = &entries[0].value.value else { panic!("an array") };
        assert!(items.iter().map(|item| &item.value).eq(&list));
        let Value::Table(inner) = &entries[1].value.value else { panic!("a table") };
        assert_eq!((&*inner[0].key, &inner[0].value.value), ("x\n", &Value::String("éé😀".into())));
    }

    #[test]
    fn what_is_no_json_is_refused_with_a_remedy() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "{]",
            "{\"a\" 1}",
            "{\"a\": }",
            "{\"a\": 1,}",
            "[1,]",
            "[1 2]",
            "{a: 1}",
            "{'a': 1}",
            "{\"a\": 1} // x",
            "/**/{}",
            "{\"a\": 01}",
            "{\"a\": .5}",
            "{\"a\": 5.}",
            "{\"a\": +5}",
            "{\"a\": 0x5}",
            "{\"a\": NaN}",
            "{} {}",
            "{\"a\": \"\t\"}",
            "{\"a\": \"\\x41\"}",
            "{\"a\":\u{b}1}",
            "{\"a\":\u{a0}1}",
            "{\"a\": \"\\ud800\"}",
            "[]",
            "1",
            "null",
            "{\"a\": \"",
        ] {
            let said = said(text);
            assert!(said.len() == 1 && !said[0].remedy.is_empty(), "{text}: {said:?}");
        }
    }

    #[test]
    fn a_raw_control_character_has_its_place() {
        let said = said("{\n\"a\": \"b\tc\"}");
        let span = said[0].span.clone().expect("a place");
        assert!((8..=9).contains(&span.start), "{said:?}");
    }

    #[test]
    fn null_names_its_key_and_a_key_stands_once() {
        let found = said("{\"a\": {\"zone\": null, \"b\": [null]}}");
        assert_eq!(found[0].message, "`zone` is null");
        assert_eq!(found[1].message, "`b` is null");
        let found = said("{\"a\": 1, \"b\": 2, \"a\": 3}");
        assert_eq!(
            (found[0].span.clone(), found[0].other.clone()),
            (Some(17..20), Some((1..4, "the first".to_owned())))
        );
        let many: String = (0..100).map(|i| format!("\"k{i}\": 1, ")).collect();
        assert_eq!(said(&format!("{{{many}\"k7\": 1}}")).len(), 1);
    }

    #[test]
    fn depth_and_numbers_are_bounded_as_in_toml() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(said(&nested(CONFIG_DEPTH_MAX)).is_empty());
        assert_eq!(said(&nested(CONFIG_DEPTH_MAX + 1)).len(), 1);
        assert_eq!(said(&nested(100_000)).len(), 1);
        assert_eq!(said("{\"a\": 9223372036854775808}").len(), 1);
        assert!(said("{\"a\": 1e999, \"b\": -9223372036854775808}").is_empty());
    }
}
