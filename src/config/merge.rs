//! One tree of all files: names are united, routes appended, other sections stand in one file.

use std::collections::HashMap;

use super::decode::mismatch;
use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::tree::{Entry, Node, Value};

/// The tables of the files so far.
#[derive(Debug, Default)]
pub struct Merged {
    entries: Vec<Entry>,
    /// Where the sections stand in `entries`.
    sections: HashMap<Box<str>, usize>,
    /// Where names were defined, by section and name.
    names: HashMap<(&'static str, Box<str>), Span>,
}

impl Merged {
    /// Adds the table of a file. Of what stands twice the first is kept.
    pub fn add(&mut self, file: Vec<Entry>, found: &mut Diagnostics) {
        for mut entry in file {
            if let Some(section) = NAMED.iter().find(|section| **section == &*entry.key) {
                self.names(section, &mut entry.value, found);
            }
            match self.sections.get(&entry.key) {
                Some(at) => join(&mut self.entries[*at], entry, found),
                None => {
                    self.sections.insert(entry.key.clone(), self.entries.len());
                    self.entries.push(entry);
                }
            }
        }
    }

    /// All of them as one table; none where there was none.
    pub fn into_node(self) -> Node {
        Node::new(0..0, Value::Table(self.entries))
    }

    /// A name is defined in one file.
    fn names(&mut self, section: &'static str, node: &mut Node, found: &mut Diagnostics) {
        let Value::Table(entries) = &mut node.value else { return };
        entries.retain(|entry| {
            let first = self.names.get(&(section, entry.key.clone()));
            let Some(first) = first.cloned() else {
                self.names.insert((section, entry.key.clone()), entry.key_span.clone());
                return true;
            };
            found.push_with(|| {
                let message = format!("{section} `{}` is defined twice", entry.key.escape_debug());
                Diagnostic::error(entry.key_span.clone(), message)
                    .label("the second")
                    .other(first, "the first")
                    .remedy("remove one of them, or give it another name")
            });
            false
        });
    }
}

/// A section that stood in an earlier file too.
fn join(first: &mut Entry, second: Entry, found: &mut Diagnostics) {
    let named = NAMED.contains(&&*second.key);
    match (&mut first.value.value, second.value.value) {
        (Value::Table(all), Value::Table(more)) if named => all.extend(more),
        (Value::Array(all), Value::Array(more)) if &*second.key == LIST => all.extend(more),
        (_, value) if named || &*second.key == LIST => {
            let expected = if named { "a table of names" } else { "an array of tables" };
            let remedy = if named { "write [SECTION.NAME]" } else { "write [[route]]" };
            // One of the two is of another type.
            let wrong = Node::new(second.value.span, value);
            let right = matches!(wrong.value, Value::Table(_)) && named
                || matches!(wrong.value, Value::Array(_)) && !named;
            let wrong = if right { &first.value } else { &wrong };
            found.push(mismatch(wrong, expected).remedy(remedy));
        }
        _ => {
            let message = format!("`{}` stands in two files", second.key.escape_debug());
            found.push(
                Diagnostic::error(second.key_span, message)
                    .label("the second")
                    .other(first.key_span.clone(), "the first")
                    .remedy("keep it in one of them"),
            );
        }
    }
}

/// Sections that are tables of names.
pub(super) const NAMED: &[&str] = &["listener", "upstream", "filter"];

/// The section that is a list.
const LIST: &str = "route";
