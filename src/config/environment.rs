//! Environment variables in strings: `${NAME}`, `${NAME:-default}`.
//!
//! Other `${...}` are variables of a request and belong to the filters; `$${NAME}` writes `${NAME}`.

use std::ffi::OsString;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::tree::{Node, Value};
use crate::limits::ENVIRONMENT_BYTES_MAX;

/// Tells what a variable holds.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Expands the strings of one configuration.
pub struct Environment<'a> {
    lookup: Lookup<'a>,
    /// Bytes of strings made so far.
    bytes: usize,
}

/// Why a variable has no value.
#[derive(Debug, PartialEq, Eq)]
enum Failed<'t> {
    Unset(&'t str),
    NotText(&'t str),
}

/// `${NAME}` or `${NAME:-default}`
struct Reference<'t> {
    name: &'t str,
    default: Option<&'t str>,
    length: usize,
}

impl<'a> Environment<'a> {
    /// With variables from `lookup`.
    pub fn new(lookup: Lookup<'a>) -> Environment<'a> {
        Environment { lookup, bytes: 0 }
    }

    /// Expands every string in `node`. A variable that is not set is an error at the string.
    pub fn expand(&mut self, node: &mut Node, found: &mut Diagnostics) {
        match &mut node.value {
            Value::String(text) if memchr::memchr(b'$', text.as_bytes()).is_some() => {
                let written = text.clone();
                if let Some(value) = self.string(node, &written, found) {
                    node.value = Value::String(value);
                    node.written = Some(written);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.expand(item, found)),
            Value::Table(entries) => {
                entries.iter_mut().for_each(|entry| self.expand(&mut entry.value, found));
            }
            _ => {}
        }
    }

    /// What `text` becomes; none where it stays as it is.
    fn string(&mut self, node: &Node, text: &str, found: &mut Diagnostics) -> Option<Box<str>> {
        let Expanded { text: value, failed, parts } = expanded(text, self.lookup);
        let span = &node.span;
        for failed in &failed {
            found.push(failed.diagnostic(node));
        }
        if !failed.is_empty() {
            found.silence(span);
            return None;
        }
        if value == text {
            return None;
        }
        self.bytes += value.len();
        if self.bytes > ENVIRONMENT_BYTES_MAX {
            let message = "environment variables make the configuration too large";
            let remedy =
                format!("strings with variables may have {ENVIRONMENT_BYTES_MAX} bytes in all");
            found.push(Diagnostic::error(span.clone(), message).remedy(remedy));
            found.silence(span);
            return None;
        }
        found.expanded(span, &value, text, &parts);
        Some(value.into())
    }
}

impl Failed<'_> {
    fn diagnostic(&self, node: &Node) -> Diagnostic {
        match self {
            Failed::Unset(name) => {
                let message = format!("environment variable `{name}` is not set");
                let remedy =
                    format!("set {name} where ringway is started, or write ${{{name}:-default}}");
                Diagnostic::error(node.span.clone(), message).label("has no value").remedy(remedy)
            }
            Failed::NotText(name) => {
                let message = format!("environment variable `{name}` is not UTF-8");
                Diagnostic::error(node.span.clone(), message)
                    .label("cannot be used")
                    .remedy(format!("set {name} to text in UTF-8"))
            }
        }
    }
}

/// Whether all of `text` is one variable without a default: it shows nothing of the value.
pub fn is_reference(text: &str) -> bool {
    reference(text).is_some_and(|found| found.default.is_none() && found.length == text.len())
}

/// Whether a variable stands in `text`.
pub fn has_reference(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| reference(&text[at..]).is_some())
}

/// What a string becomes.
struct Expanded<'t> {
    text: String,
    failed: Vec<Failed<'t>>,
    /// Values that went into it, each with the reference that stood for it.
    parts: Vec<(String, &'t str)>,
}

fn expanded<'t>(text: &'t str, lookup: Lookup<'_>) -> Expanded<'t> {
    let (mut out, mut failed, mut parts) = (String::with_capacity(text.len()), vec![], vec![]);
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out += &rest[..dollar];
        rest = &rest[dollar..];
        let escaped = rest.strip_prefix('$').and_then(|inner| Some((inner, reference(inner)?)));
        if let Some((inner, literal)) = escaped {
            out += &inner[..literal.length];
            rest = &inner[literal.length..];
        } else if let Some(variable) = reference(rest) {
            match (value(&variable, lookup), variable.name) {
                (Ok(value), _) => {
                    out += &value;
                    parts.push((value, &rest[..variable.length]));
                }
                (Err(why), name) => failed.push(why(name)),
            }
            rest = &rest[variable.length..];
        } else {
            out += "$";
            rest = &rest[1..];
        }
    }
    Expanded { text: out + rest, failed, parts }
}

fn value<'t>(
    variable: &Reference<'t>,
    lookup: Lookup<'_>,
) -> Result<String, fn(&'t str) -> Failed<'t>> {
    // As in a shell, a default stands in for an empty value too.
    let set = (lookup)(variable.name).filter(|set| variable.default.is_none() || !set.is_empty());
    match (set, variable.default) {
        (Some(set), _) => set.into_string().map_err(|_| Failed::NotText as fn(&'t str) -> _),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Failed::Unset),
    }
}

/// The reference that `text` begins with.
fn reference(text: &str) -> Option<Reference<'_>> {
    let inner = text.strip_prefix("${")?;
    let digits = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let name = &inner[..inner.bytes().take_while(|b| digits(*b)).count()];
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    let rest = &inner[name.len()..];
    let (default, behind) = match rest.strip_prefix(":-") {
        Some(rest) => {
            let (default, behind) = rest.split_once('}')?;
            (Some(default), behind)
        }
        None => (None, rest.strip_prefix('}')?),
    };
    Some(Reference { name, default, length: text.len() - behind.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn lookup(name: &str) -> Option<OsString> {
        match name {
            "A" => Some("one".into()),
            "_B2" => Some("${A}".into()),
            "EMPTY" => Some("".into()),
            "LATIN" => Some(OsString::from_vec(vec![0xe9])),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_what_is_left_alone() {
        for (text, value) in [
            ("${A}", "one"),
            ("x${A}y${A}", "xoneyone"),
            ("${_B2}", "${A}"),
            ("${EMPTY}", ""),
            ("${EMPTY:-two}", "two"),
            ("${NONE:-}", ""),
            ("${NONE:-a b:-$c}", "a b:-$c"),
            ("${A:-two}", "one"),
            ("$${A}", "${A}"),
            ("$${NONE:-x}", "${NONE:-x}"),
            ("$$${A}", "$${A}"),
            ("${request.id}", "${request.id}"),
            ("$${request.id}", "$${request.id}"),
            ("${a}${Ab}${1A}${}${A", "${a}${Ab}${1A}${}${A"),
            ("${A:?x}${A-x}${A:-x", "${A:?x}${A-x}${A:-x"),
            ("$ $$ $A é$", "$ $$ $A é$"),
        ] {
            let Expanded { text: out, failed, .. } = expanded(text, &lookup);
            assert_eq!((out.as_str(), failed), (value, vec![]), "{text}");
        }
    }

    #[test]
    fn every_variable_without_a_value_is_named() {
        let all = expanded("${NONE}${A}${LATIN}${NONE2:-}", &lookup);
        assert_eq!(all.failed, [Failed::Unset("NONE"), Failed::NotText("LATIN")]);
        assert_eq!(all.parts, [("one".into(), "${A}"), ("".into(), "${NONE2:-}")]);
    }

    #[test]
    fn strings_remember_what_was_written() {
        let mut found = Diagnostics::default();
        let text = "a = [{ b = \"${A}\" }, \"${x}\"]\nc = \"${NONE}\"\n";
        let mut tree = Node::parse_toml(text, &mut found).expect("valid");
        Environment::new(&lookup).expand(&mut tree, &mut found);
        let shown = format!("{tree:?}");
        assert_eq!(shown.matches("written: Some(\"${A}\")").count(), 1, "{shown}");
        assert_eq!(shown.matches("written: Some").count(), 1, "{shown}");
        assert_eq!(found.count(), 1);
        assert!(found.iter().all(|found| found.remedy.contains("${NONE:-default}")));
    }

    #[test]
    fn what_variables_add_is_bounded() {
        let text: String = (0..20).map(|i| format!("a{i} = \"${{BIG}}\"\n")).collect();
        let mut found = Diagnostics::default();
        let mut tree = Node::parse_toml(&text, &mut found).expect("valid");
        let big = |_: &str| Some(OsString::from("x".repeat(ENVIRONMENT_BYTES_MAX / 19)));
        Environment::new(&big).expand(&mut tree, &mut found);
        assert_eq!(found.count(), 1);
    }

    #[test]
    fn a_reference_alone_shows_nothing() {
        assert!(is_reference("${A}"));
        assert!(has_reference("x${a}${A}") && !has_reference("x${a} ${A"));
        assert!(!is_reference("${A:-secret}") && !is_reference("x${A}") && !is_reference("${a}"));
    }
}
