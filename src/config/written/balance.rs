//! How `[upstream.NAME]` spreads its requests, as it is written.

use super::super::decode::{Decode, Decoder, Fields, named};
use super::super::diagnostic::Span;
use super::super::read::{boolean, choice, duration, integer, spanned, string};
use super::super::tree::{Node, Spanned};
use crate::limits::*;

/// The keys of an upstream that say which endpoint a request goes to.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    /// `balance`
    pub policy: Option<Spanned<Policy>>,
    /// `hash`
    pub hash: Option<Spanned<Hash>>,
    /// `sticky`
    pub sticky: Option<Sticky>,
    /// `subset`
    pub subset: Option<Spanned<usize>>,
    /// `locality`
    pub locality: Option<Spanned<bool>>,
    /// `shard`
    pub shard: Option<Shard>,
}

/// `upstream.NAME.balance`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// "round_robin"
    #[default]
    RoundRobin,
    /// "least_request"
    LeastRequest,
    /// "ewma"
    Ewma,
    /// "hash"
    Hash,
    /// "random"
    Random,
}

/// `upstream.NAME.hash`
#[derive(Clone, Debug)]
pub struct Hash {
    /// `key`
    pub key: Spanned<Box<str>>,
    /// `max_load_percent`
    pub max_load_percent: Option<usize>,
}

/// `upstream.NAME.sticky`
#[derive(Clone, Debug)]
pub struct Sticky {
    /// `cookie`
    pub cookie: Spanned<Box<str>>,
    /// `ttl`, in milliseconds
    pub ttl_ms: Option<u64>,
}

/// `upstream.NAME.shard`
#[derive(Clone, Debug)]
pub struct Shard {
    /// `key`
    pub key: Spanned<Box<str>>,
    /// `zones`, each with its ranges of buckets.
    pub zones: Vec<(Text, Text)>,
    /// Where `zones` stands.
    pub zones_span: Span,
}

/// A text, and where it stands.
type Text = Spanned<Box<str>>;

impl Balance {
    /// Asks an upstream's table for them.
    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Balance {
        Balance {
            policy: f.optional("balance", spanned(choice(POLICIES))),
            hash: f.optional("hash", spanned(Hash::decode)),
            sticky: f.optional("sticky", Sticky::decode),
            subset: f.optional("subset", spanned(integer(1..=ENDPOINTS_MAX))),
            locality: f.optional("locality", spanned(boolean)),
            shard: f.optional("shard", Shard::decode),
        }
    }
}

impl Decode for Hash {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Hash> {
        let mut f = Fields::of("upstream.NAME.hash", node, decoder)?;
        let key = f.required("key", "\"header:x-user-id\"", text);
        let (least, most) = HASH_MAX_LOAD_PERCENT_RANGE;
        let max_load_percent = f.optional("max_load_percent", integer(least..=most));
        f.finish();
        Some(Hash { key: key?, max_load_percent })
    }
}

impl Decode for Sticky {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Sticky> {
        let mut f = Fields::of("upstream.NAME.sticky", node, decoder)?;
        let cookie = f.required("cookie", "\"srv\"", text);
        let ttl_ms = f.optional("ttl", duration);
        f.finish();
        Some(Sticky { cookie: cookie?, ttl_ms })
    }
}

impl Decode for Shard {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Shard> {
        let mut f = Fields::of("upstream.NAME.shard", node, decoder)?;
        let key = f.required("key", "\"cookie:uid\"", text);
        let example = "{ a = \"0-499\", b = \"500-999\" }";
        let zones = f.required("zones", example, |node, decoder| {
            let ranges = named(node, decoder).into_iter();
            let ranges = ranges.map(|(name, node)| Some((name, text(node, decoder)?)));
            Some((ranges.collect::<Option<Vec<_>>>()?, node.span.clone()))
        });
        f.finish();
        let (zones, zones_span) = zones?;
        Some(Shard { key: key?, zones, zones_span })
    }
}

fn text(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    Some(Spanned::new(Box::from(string(node, decoder)?), &node.span))
}

const POLICIES: &[(&str, Policy)] = &[
    ("round_robin", Policy::RoundRobin),
    ("least_request", Policy::LeastRequest),
    ("ewma", Policy::Ewma),
    ("hash", Policy::Hash),
    ("random", Policy::Random),
];
