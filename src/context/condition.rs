//! What a request must be like beyond its host and path: `when = [{ ... }, ...]` (R12, R17).

use std::fmt;
use std::hash::Hasher;

use ipnet::IpNet;
use siphasher::sip::SipHasher13;

use super::RequestContext;
use super::pattern::Pattern;
use super::source::{Matched, Source, is_token};
use crate::config::decode::{Decoder, Fields, hint, mismatch};
use crate::config::diagnostic::{Diagnostic, Span};
use crate::config::read::{boolean, integer, list, network, string};
use crate::config::tree::{Node, Value};
use crate::limits::{CONDITION_VALUES_MAX, CONDITIONS_MAX, METHOD_BYTES_MAX, SLOTS};
use crate::tls::TlsFact;

/// One condition on a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    test: Test,
    not: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Test {
    /// One of these.
    Method(Vec<Box<str>>),
    /// A value, of several lines of a field any.
    Value(Source, Compare),
    /// The client's address in one of these networks.
    Client(Vec<IpNet>),
    /// The hash of a value in a range of slots, the second not included.
    Slots { of: Source, salt: Box<str>, range: (u16, u16) },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Compare {
    Equals(Box<str>),
    In(Vec<Box<str>>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Contains(Box<str>),
    Matches(Pattern),
    Present(bool),
}

impl Condition {
    /// Reads `when`: a list of conditions, all of which must hold.
    pub fn decode_all(node: &Node, decoder: &mut Decoder) -> Option<Vec<Condition>> {
        let before = decoder.found.count();
        let all = list(1..=CONDITIONS_MAX, Condition::decode)(node, decoder)?;
        (decoder.found.count() == before).then_some(all)
    }

    /// Reads one.
    pub fn decode(node: &Node, decoder: &mut Decoder) -> Option<Condition> {
        let mut f = Fields::of("when", node, decoder)?;
        let subject = f.one_of(SUBJECTS, |key, node, decoder| match key {
            "method" => methods(node, decoder).map(|methods| Subject::Whole(Test::Method(methods))),
            "client" => {
                let networks = list(1..=CONDITION_VALUES_MAX, network)(node, decoder)?;
                Some(Subject::Whole(Test::Client(networks)))
            }
            "hash" => hashed(node, decoder).map(Subject::Hash),
            kind => named(kind, node, decoder).map(Subject::Value),
        });
        let test = match subject {
            Some(Subject::Whole(test)) => Some(test),
            Some(Subject::Value(source)) => {
                f.one_of(COMPARATORS, compare).map(|compare| Test::Value(source, compare))
            }
            Some(Subject::Hash(of)) => {
                let salt = f.optional("salt", string).unwrap_or_default();
                let range = f.required("slots", "[0, 100]", slots);
                let salt = Box::from(salt);
                range.map(|range| Test::Slots { of, salt, range })
            }
            // What is wrong was said; keys that belong to any subject are not unknown.
            None => {
                for key in COMPARATORS.iter().chain(&["salt", "slots"]) {
                    f.optional(key, |_, _| Some(()));
                }
                None
            }
        };
        let not = f.optional("not", boolean).unwrap_or(false);
        f.finish();
        Some(Condition { test: test?, not })
    }

    /// Whether it holds.
    pub fn holds(&self, context: &RequestContext) -> bool {
        self.test.passes(context) != self.not
    }

    /// Why it does not hold, in words: what it wants, and what the request has.
    pub fn failure(&self, context: &RequestContext) -> String {
        let has = match &self.test {
            Test::Method(_) => lossy(context.request.text(context.request.method)),
            Test::Client(_) => context.client.address.to_canonical().to_string(),
            Test::Value(source, _) => {
                let mut values = Vec::new();
                source.any(context, |value| {
                    values.push(format!("{:?}", lossy(value)));
                    values.len() == SHOWN_MAX
                });
                if values.is_empty() { "no such value".into() } else { values.join(", ") }
            }
            Test::Slots { of, salt, .. } => {
                let value = of.with(context, Matched::default(), |value| slot(salt, value));
                value.map_or("no such value".into(), |slot| format!("slot {slot}"))
            }
        };
        format!("wants {self}; the request has {has}")
    }

    /// Whether no request passes both, as far as that is easy to see.
    pub fn contradicts(&self, other: &Condition) -> bool {
        if self.not != other.not {
            return self.test == other.test;
        }
        if self.not {
            return false;
        }
        match (&self.test, &other.test) {
            (Test::Method(one), Test::Method(two)) => !one.iter().any(|name| two.contains(name)),
            (
                Test::Slots { of, salt, range },
                Test::Slots { of: other, salt: salted, range: (first, end) },
            ) => of == other && salt == salted && (range.1 <= *first || *end <= range.0),
            (Test::Value(one, Compare::Present(false)), Test::Value(two, compare))
            | (Test::Value(two, compare), Test::Value(one, Compare::Present(false))) => {
                one == two && *compare != Compare::Present(false)
            }
            _ => false,
        }
    }
}

/// Whether all of them hold.
#[inline]
pub fn all_hold(conditions: &[Condition], context: &RequestContext) -> bool {
    conditions.iter().all(|condition| condition.holds(context))
}

/// The slot of a value, from 0: its [`value_hash`], scaled down.
pub fn slot(salt: &str, value: &[u8]) -> u16 {
    ((u128::from(value_hash(salt, value)) * u128::from(SLOTS)) >> 64) as u16
}

/// SipHash-1-3 with the key 0 over a salt, a zero byte and a value: the same on every node, in every
/// release.
pub fn value_hash(salt: &str, value: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(salt.as_bytes());
    hasher.write(&[0]);
    hasher.write(value);
    hasher.finish()
}

impl Test {
    fn passes(&self, context: &RequestContext) -> bool {
        match self {
            Test::Method(methods) => {
                let method = context.request.text(context.request.method);
                methods.iter().any(|name| name.as_bytes() == method)
            }
            Test::Client(networks) => {
                let address = context.client.address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }
            Test::Value(source, Compare::Present(wanted)) => {
                source.any(context, |_| true) == *wanted
            }
            Test::Value(source, compare) => source.any(context, |value| compare.passes(value)),
            Test::Slots { of, salt, range } => {
                let found = of.with(context, Matched::default(), |value| slot(salt, value));
                found.is_some_and(|slot| (range.0..range.1).contains(&slot))
            }
        }
    }
}

impl Compare {
    fn passes(&self, value: &[u8]) -> bool {
        match self {
            Compare::Equals(text) => text.as_bytes() == value,
            Compare::In(texts) => texts.iter().any(|text| text.as_bytes() == value),
            Compare::Prefix(text) => value.starts_with(text.as_bytes()),
            Compare::Suffix(text) => value.ends_with(text.as_bytes()),
            Compare::Contains(text) => memchr::memmem::find(value, text.as_bytes()).is_some(),
            Compare::Matches(pattern) => pattern.matches(value),
            Compare::Present(_) => true,
        }
    }
}

/// As words; two conditions with the same words are the same.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not {
            f.write_str("not ")?;
        }
        match &self.test {
            Test::Method(methods) => write!(f, "method {}", methods.join(" or ")),
            Test::Client(networks) => {
                let networks: Vec<_> = networks.iter().map(IpNet::to_string).collect();
                write!(f, "client in {}", networks.join(" or "))
            }
            Test::Slots { of, salt, range } => {
                write!(f, "hash of {of} with salt {salt:?} in slots {} to {}", range.0, range.1 - 1)
            }
            Test::Value(source, compare) => {
                write!(f, "{} {compare}", source.to_string().replacen(':', " ", 1))
            }
        }
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compare::Equals(text) => write!(f, "equals {text:?}"),
            Compare::In(texts) => write!(f, "in {texts:?}"),
            Compare::Prefix(text) => write!(f, "prefix {text:?}"),
            Compare::Suffix(text) => write!(f, "suffix {text:?}"),
            Compare::Contains(text) => write!(f, "contains {text:?}"),
            Compare::Matches(pattern) => write!(f, "matches {:?}", pattern.text()),
            Compare::Present(present) => write!(f, "present = {present}"),
        }
    }
}

enum Subject {
    Whole(Test),
    Value(Source),
    Hash(Source),
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `header = "x-canary"` is the source `header:x-canary`.
fn named(kind: &str, node: &Node, decoder: &mut Decoder) -> Option<Source> {
    let name = string(node, decoder)?;
    let source = Source::parse(&format!("{kind}:{name}")).ok();
    if source.is_none() {
        let message = format!("`{}` is not the name of a {kind}", name.escape_debug());
        let remedy = match kind {
            "tls" | "client_cert" => hint(name, TlsFact::names(kind), "write one of"),
            _ => format!("write the name as requests carry it, such as {kind} = \"x-user\""),
        };
        decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
    }
    source
}

/// A value that is known before the route is.
fn hashed(node: &Node, decoder: &mut Decoder) -> Option<Source> {
    let source = Source::decode(node, decoder)?;
    if !matches!(source, Source::Path(_) | Source::Route) {
        return Some(source);
    }
    let error = Diagnostic::error(node.span.clone(), format!("`{source}` depends on the route"));
    decoder.found.push(
        error
            .label("not known while routes are looked for")
            .remedy("write \"header:NAME\", \"cookie:NAME\", \"query:NAME\" or \"client\""),
    );
    None
}

fn compare(key: &'static str, node: &Node, decoder: &mut Decoder) -> Option<Compare> {
    let of: fn(Box<str>) -> Compare = match key {
        "present" => return boolean(node, decoder).map(Compare::Present),
        "in" => {
            let texts = list(1..=CONDITION_VALUES_MAX, string_owned)(node, decoder)?;
            return Some(Compare::In(texts));
        }
        "matches" => {
            let text = string(node, decoder)?;
            return pattern(text, node.span.clone(), decoder, Pattern::anywhere)
                .map(Compare::Matches);
        }
        "equals" => Compare::Equals,
        "prefix" => Compare::Prefix,
        "suffix" => Compare::Suffix,
        _ => Compare::Contains,
    };
    string_owned(node, decoder).map(of)
}

/// A regular expression of the configuration.
pub fn pattern(
    text: &str,
    span: Span,
    decoder: &mut Decoder,
    compile: fn(&str) -> Result<Pattern, String>,
) -> Option<Pattern> {
    let compiled = compile(text);
    compiled
        .map_err(|reason| {
            let message = format!("`{}` is not a regular expression", text.escape_debug());
            let remedy = "see the syntax of the regex crate; a literal string with single quotes \
                          needs no doubled backslashes";
            decoder.found.push(Diagnostic::error(span, message).label(reason).remedy(remedy));
        })
        .ok()
}

fn string_owned(node: &Node, decoder: &mut Decoder) -> Option<Box<str>> {
    string(node, decoder).map(Box::from)
}

/// One method or a list of them. RFC 9110 section 9.1: methods are case-sensitive.
fn methods(node: &Node, decoder: &mut Decoder) -> Option<Vec<Box<str>>> {
    let one = |node: &Node, decoder: &mut Decoder| {
        let name = string(node, decoder)?;
        let fits = (1..=METHOD_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_token);
        let lower = name.bytes().any(|byte| byte.is_ascii_lowercase());
        if fits && !lower {
            return Some(Box::from(name));
        }
        let remedy = match fits {
            true => format!("write it in capitals: \"{}\"", name.to_ascii_uppercase()),
            false => "write \"GET\", or a list such as [\"GET\", \"HEAD\"]".to_owned(),
        };
        let message = format!("`{}` is not a method", name.escape_debug());
        decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
        None
    };
    match &node.value {
        Value::Array(_) => list(1..=CONDITIONS_MAX, one)(node, decoder),
        _ => one(node, decoder).map(|method| vec![method]),
    }
}

/// `[first, end]`, the end not included.
fn slots(node: &Node, decoder: &mut Decoder) -> Option<(u16, u16)> {
    let bound = usize::from(SLOTS);
    let Value::Array(items) = &node.value else {
        decoder.found.push(mismatch(node, "two numbers").remedy("write [0, 100]: one percent"));
        return None;
    };
    let [first, end] = items.as_slice() else {
        let message = format!("a range of slots has two numbers, not {}", items.len());
        let error = Diagnostic::error(node.span.clone(), message);
        decoder.found.push(error.remedy("write [0, 100]: one percent"));
        return None;
    };
    let first = integer(0..=bound - 1)(first, decoder);
    let end = integer(1..=bound)(end, decoder);
    let (first, end) = (first?, end?);
    if first >= end {
        decoder.found.push(
            Diagnostic::error(node.span.clone(), format!("no slot is in [{first}, {end}]"))
                .label("the second number is not included")
                .remedy(format!("write [{first}, {}] for one slot", first + 1)),
        );
        return None;
    }
    Some((u16::try_from(first).ok()?, u16::try_from(end).ok()?))
}

const SUBJECTS: &[&str] =
    &["method", "header", "cookie", "query", "client", "tls", "client_cert", "hash"];
const COMPARATORS: &[&str] =
    &["equals", "in", "prefix", "suffix", "contains", "matches", "present"];
/// Values of a request that an explanation shows.
const SHOWN_MAX: usize = 4;
