//! Configurations: the same bytes as TOML and as JSON.

use std::ffi::OsString;

use ringway::config::tree::{Node, Value};
use ringway::config::{Diagnostics, Gathered, Kind, Source};
use ringway::snapshot::{Ids, compile_tree, effective};

/// `data` is a text. It is taken or refused with messages that can be shown; no message and no view
/// of the configuration holds a value from the environment.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kind in [Kind::Toml, Kind::Json] {
        compiled(text, kind);
        shown(text, kind);
    }
    strict(text);
}

fn environment(name: &str) -> Option<OsString> {
    match name {
        "SECRET" => Some(SECRET.into()),
        "PORT" => Some("9001".into()),
        "EMPTY" => Some("".into()),
        _ => None,
    }
}

fn compiled(text: &str, kind: Kind) {
    let source = Source { name: "config".into(), text: text.into(), kind };
    let gathered = Gathered::from_source(source, &environment);
    let Gathered { sources, tree, complete, mut decoder, warnings } = gathered;
    let known = decoder.found.count();
    let compiled = compile_tree(&tree, complete, &mut decoder, &mut Ids::default(), 1);
    let found = match &compiled {
        Ok((_, warnings)) => {
            assert!(complete && known == 0);
            warnings
        }
        Err(errors) => {
            assert!(!errors.is_empty() && errors.count() >= known);
            errors
        }
    };
    for found in [found, &warnings] {
        let plain = found.render(&sources, false);
        assert!(
            found.is_empty()
                || plain.contains(if compiled.is_ok() { "warning: " } else { "error: " })
        );
        assert!(found.iter().all(|found| !found.remedy.is_empty()), "each has a remedy:\n{plain}");
        assert!(plain.matches(" config").count() >= found.iter().count(), "and a place:\n{plain}");
        assert!(found.render(&sources, true).len() >= plain.len());
        assert!(text.contains(SECRET) || !plain.contains(SECRET), "{plain}");
    }
    if compiled.is_ok() {
        assert!(matches!(effective(&sources), serde_json::Value::Object(_)));
    }
}

/// What is shown can be read again and is then shown in the same way.
fn shown(text: &str, kind: Kind) {
    let mut found = Diagnostics::default();
    let Some(mut tree) = Node::parse(kind, text, 0, &mut found) else { return };
    assert!(found.is_empty());
    let as_written = tree.to_json();
    ringway::config::environment::Environment::new(&environment).expand(&mut tree, &mut found);
    let json = tree.to_json();
    assert_eq!(json, as_written, "as written");
    let again = json.to_string();
    assert!(text.contains(SECRET) || !again.contains(SECRET));
    if !has_date(&tree) {
        let mut found = Diagnostics::default();
        let tree = Node::parse(Kind::Json, &again, 0, &mut found);
        assert_eq!(tree.map(|tree| tree.to_json()), Some(json), "{again}: {found:?}");
    }
}

/// What is taken as JSON is JSON to another parser, with the same values.
fn strict(text: &str) {
    let mut found = Diagnostics::default();
    let Some(tree) = Node::parse(Kind::Json, text, 0, &mut found) else { return };
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(value) => same(&tree, &value),
        Err(error) => assert!(error.to_string().contains("number out of range"), "{error}"),
    }
}

fn same(node: &Node, value: &serde_json::Value) {
    match (&node.value, value) {
        (Value::String(ours), serde_json::Value::String(theirs)) => assert_eq!(**ours, **theirs),
        (Value::Integer(ours), theirs) => assert_eq!(Some(*ours), theirs.as_i64()),
        (Value::Float(_), theirs) => assert!(theirs.is_f64()),
        (Value::Bool(ours), theirs) => assert_eq!(Some(*ours), theirs.as_bool()),
        (Value::Array(ours), serde_json::Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len());
            ours.iter().zip(theirs).for_each(|(ours, theirs)| same(ours, theirs));
        }
        (Value::Table(ours), serde_json::Value::Object(theirs)) => {
            assert_eq!(ours.len(), theirs.len());
            ours.iter().for_each(|entry| same(&entry.value, &theirs[&*entry.key]));
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs}"),
    }
}

fn has_date(node: &Node) -> bool {
    match &node.value {
        Value::Datetime => true,
        Value::Array(items) => items.iter().any(has_date),
        Value::Table(entries) => entries.iter().any(|entry| has_date(&entry.value)),
        _ => false,
    }
}

/// The value of a variable.
const SECRET: &str = "hunter2.hunter2";
