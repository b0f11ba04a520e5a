//! Structs from the tree: all mistakes at once, each with its place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::tree::{Entry, Node, Spanned, Value};
use crate::limits::NAME_BYTES_MAX;

/// What decoding gathers on its way.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What is wrong.
    pub found: Diagnostics,
    /// Every key that was asked for, with its section, where that is recorded: what the reference
    /// must describe.
    pub keys: BTreeSet<(&'static str, &'static str)>,
    /// Every parameter of a route's path that a text asks for, and where.
    pub params: Vec<(Box<str>, Span)>,
    /// The folders of the files, by the first address of each.
    pub(super) folders: Vec<(usize, PathBuf)>,
    recording: bool,
}

impl Decoder {
    /// One that records the keys. Others do not: with many routes it would take a third of the time.
    pub fn recording() -> Decoder {
        Decoder { recording: true, ..Decoder::default() }
    }

    /// A path that the string at `span` names: relative to the file that it stands in, as that of an
    /// include is; in a text without a file to the working directory.
    pub fn resolve(&self, span: &Span, path: &str) -> PathBuf {
        let behind = self.folders.partition_point(|(base, _)| *base <= span.start);
        let folder = behind.checked_sub(1).map(|last| &*self.folders[last].1);
        folder.unwrap_or(Path::new("")).join(path)
    }
}

/// A type that is read from a table.
pub trait Decode: Sized {
    /// Reads it. `None` after something was added to `decoder.found`.
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Self>;
}

/// The keys of one table: asks for each, then reports those that nobody asked for.
pub struct Fields<'t, 'd> {
    section: &'static str,
    span: &'t Span,
    entries: &'t [Entry],
    decoder: &'d mut Decoder,
    asked: Vec<&'static str>,
}

impl<'t, 'd> Fields<'t, 'd> {
    /// The keys of `node`, which must be a table. `section` is its name in the reference.
    pub fn of(
        section: &'static str,
        node: &'t Node,
        decoder: &'d mut Decoder,
    ) -> Option<Fields<'t, 'd>> {
        let Value::Table(entries) = &node.value else {
            decoder.found.push(mismatch(node, "a table").remedy(match section {
                "route" => "write [[route]]".into(),
                "upstream.NAME.endpoints" => "write { address = \"127.0.0.1:9001\" }".into(),
                section => format!("write [{section}], or {{ key = value, ... }} on one line"),
            }));
            return None;
        };
        let asked = Vec::with_capacity(KEYS_USUAL);
        Some(Fields { section, span: &node.span, entries, decoder, asked })
    }

    /// The value of `key`, if it is there and right.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'t Node, &mut Decoder) -> Option<T>,
    ) -> Option<T> {
        let entry = self.ask(key)?;
        read(&entry.value, self.decoder)
    }

    /// The value of `key`; `example` is a value that would do.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&'t Node, &mut Decoder) -> Option<T>,
    ) -> Option<T> {
        if self.ask(key).is_none() {
            let missing = Diagnostic::error(self.span.clone(), format!("key `{key}` is missing"))
                .label(format!("needs `{key}`"))
                .remedy(format!("add {key} = {example}"));
            self.decoder.found.push(missing);
            return None;
        }
        self.optional(key, read)
    }

    /// Which of two keys is given, with its value: exactly one must be.
    pub fn either<T>(
        &mut self,
        first: &'static str,
        second: &'static str,
        read: impl FnOnce(&'static str, &'t Node, &mut Decoder) -> Option<T>,
    ) -> Option<T> {
        self.one_of(&[first, second], read)
    }

    /// Which of some keys is given, with its value: exactly one must be.
    pub fn one_of<T>(
        &mut self,
        keys: &[&'static str],
        read: impl FnOnce(&'static str, &'t Node, &mut Decoder) -> Option<T>,
    ) -> Option<T> {
        let given: Vec<(&'static str, &'t Entry)> =
            keys.iter().filter_map(|key| Some((*key, self.ask(key)?))).collect();
        match given.as_slice() {
            [(key, entry)] => read(key, &entry.value, self.decoder),
            [] => {
                let all = alternatives(keys);
                let message = format!("key {all} is missing");
                let neither = Diagnostic::error(self.span.clone(), message)
                    .label(format!("needs {all}"))
                    .remedy("give exactly one of them");
                self.decoder.found.push(neither);
                None
            }
            [(first, one), (second, two), ..] => {
                let message = format!("`{first}` and `{second}` exclude each other");
                let both = Diagnostic::error(two.key_span.clone(), message)
                    .label("the second")
                    .other(one.key_span.clone(), "the first")
                    .remedy("keep one of them");
                self.decoder.found.push(both);
                None
            }
        }
    }

    /// Adds something that is wrong with the table as a whole; it is given the table's place.
    pub fn complain(&mut self, diagnostic: impl FnOnce(Span) -> Diagnostic) {
        let found = diagnostic(self.span.clone());
        self.decoder.found.push(found);
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(self) {
        for entry in self.entries {
            if !self.asked.contains(&&*entry.key) {
                self.decoder.found.push_with(|| {
                    let unknown = format!("unknown key `{}`", entry.key.escape_debug());
                    Diagnostic::error(entry.key_span.clone(), unknown)
                        .label("not a key here")
                        .remedy(hint(&entry.key, self.asked.iter().copied(), "known keys"))
                });
            }
        }
    }

    fn ask(&mut self, key: &'static str) -> Option<&'t Entry> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
            if self.decoder.recording {
                self.decoder.keys.insert((self.section, key));
            }
        }
        self.entries.iter().find(|entry| &*entry.key == key)
    }
}

/// The members of a table whose keys are names, such as `[upstream.NAME]`, names checked.
pub fn named<'a>(node: &'a Node, decoder: &mut Decoder) -> Vec<(Spanned<Box<str>>, &'a Node)> {
    let Value::Table(entries) = &node.value else {
        let found = mismatch(node, "a table of names");
        decoder.found.push(found.remedy("write a header with a name, such as [upstream.orders]"));
        return Vec::new();
    };
    for entry in entries {
        let fits = (1..=NAME_BYTES_MAX).contains(&entry.key.len());
        if !fits || !entry.key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            let message = format!("`{}` is not a name", entry.key.escape_debug());
            let remedy =
                format!("a name is 1 to {NAME_BYTES_MAX} of the characters a-z A-Z 0-9 _ -");
            decoder.found.push(Diagnostic::error(entry.key_span.clone(), message).remedy(remedy));
        }
    }
    let name = |entry: &'a Entry| Spanned::new(entry.key.clone(), &entry.key_span);
    entries.iter().map(|entry| (name(entry), &entry.value)).collect()
}

/// "`a`, `b` or `c`"
fn alternatives(keys: &[&str]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// "expected X, found Y"
pub fn mismatch(node: &Node, expected: &str) -> Diagnostic {
    let kind = node.kind();
    Diagnostic::error(node.span.clone(), format!("expected {expected}, found {kind}"))
        .label(format!("this is {kind}"))
}

/// A remedy for a word that is not among `known`: the one that was probably meant, or all.
pub fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str>, all: &str) -> String {
    let known: Vec<&str> = known.collect();
    if known.is_empty() {
        return format!("{all}: none");
    }
    let near = known.iter().map(|other| (distance(word, other), other)).min();
    match near {
        Some((steps, other)) if steps <= 1 + word.len().min(16) / 4 => {
            format!("did you mean `{other}`?")
        }
        _ if known.len() > HINTS_MAX => format!("{all}: {} ...", known[..HINTS_MAX].join(", ")),
        _ => format!("{all}: {}", known.join(", ")),
    }
}

/// Insertions, deletions and replacements from one word to the other (Levenshtein, 1965), on their
/// first bytes, without regard to case.
fn distance(one: &str, other: &str) -> usize {
    let bytes = |word: &str| word.bytes().take(NAME_BYTES_MAX).collect::<Vec<u8>>();
    let (one, other) = (bytes(one), bytes(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replace = diagonal + usize::from(!a.eq_ignore_ascii_case(b));
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

/// Keys of a table: room for so many is made at once.
const KEYS_USUAL: usize = 16;

/// Words listed in a remedy.
const HINTS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance() {
        for (one, other, steps) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("adress", "address", 1), ("Via", "via", 0)]
        {
            assert_eq!(distance(one, other), steps, "{one} {other}");
            assert_eq!(distance(other, one), steps, "{other} {one}");
        }
    }

    #[test]
    fn a_near_word_is_hinted_and_a_far_one_gets_the_list() {
        let known = || ["address", "via"].into_iter();
        assert_eq!(hint("adress", known(), "known keys"), "did you mean `address`?");
        assert_eq!(hint("certificate", known(), "known keys"), "known keys: address, via");
        assert_eq!(hint("x", std::iter::empty(), "filters"), "filters: none");
    }
}
