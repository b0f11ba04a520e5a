//! What the configuration says of an upstream's balancing (docs/balancing.md).

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use crate::context::Source;
use crate::context::condition::value_hash;
use crate::limits::SHARD_BUCKETS;
use crate::upstream::balance::{HashTable, Policy};

/// How an upstream's requests are spread.
#[derive(Clone, Debug, Default)]
pub struct BalancePlan {
    /// `balance`
    pub policy: Policy,
    /// `hash`, where the policy is that.
    pub hash: Option<HashPlan>,
    /// `sticky`
    pub sticky: Option<StickyPlan>,
    /// `subset`: endpoints that one worker uses, 0 where it uses all.
    pub subset: usize,
    /// `locality`: this node's zone, whose endpoints come first.
    pub locality: Option<Box<str>>,
    /// `shard`
    pub shard: Option<ShardPlan>,
}

/// `hash`
#[derive(Clone, Debug)]
pub struct HashPlan {
    /// `key`: requests without it go anywhere.
    pub key: Source,
    /// `max_load_percent`: the most that an endpoint has in flight, of its part by weight.
    pub max_load_percent: u64,
    /// Where keys fall to, of the upstream's endpoints in their order.
    pub table: Arc<HashTable>,
}

/// `sticky`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyPlan {
    /// `cookie`
    pub cookie: Source,
    /// Its name.
    pub name: Box<str>,
    /// `ttl`, in seconds; none lasts as long as the client's session.
    pub ttl_s: Option<u64>,
}

/// `shard`: a key decides the zone (G14).
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// `key`: requests without it go to any zone.
    pub key: Source,
    /// The zones.
    pub zones: Vec<Box<str>>,
    /// Which of them each of the [`SHARD_BUCKETS`] buckets belongs to.
    pub buckets: Box<[u8]>,
}

impl HashPlan {
    /// What a key is looked up by: the same on every node, in every release.
    pub fn hash(value: &[u8]) -> u64 {
        value_hash("balance", value)
    }
}

impl StickyPlan {
    /// What the cookie calls an endpoint.
    pub fn token(upstream: &str, authority: &str) -> u64 {
        value_hash(upstream, authority.as_bytes())
    }

    /// Writes a Set-Cookie (RFC 6265 section 4.1) that names an endpoint.
    pub fn write_cookie(&self, token: Token, secure: bool, out: &mut Vec<u8>) {
        let secure = if secure { "; Secure" } else { "" };
        // Writing to memory cannot fail.
        let _ = write!(out, "{}={token}; Path=/; HttpOnly; SameSite=Lax{secure}", self.name);
        if let Some(ttl_s) = self.ttl_s {
            let _ = write!(out, "; Max-Age={ttl_s}");
        }
    }
}

/// The value of a cookie for an endpoint, and of an endpoint for a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// Reads it; what we did not write names nobody.
    pub fn parse(value: &[u8]) -> Option<Token> {
        let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = std::str::from_utf8(value).ok()?;
        (value.len() == 16 && value.iter().all(lower))
            .then(|| u64::from_str_radix(text, 16).ok().map(Token))
            .flatten()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ShardPlan {
    /// The bucket of a key: the same on every node, for every upstream, in every release.
    pub fn bucket(value: &[u8]) -> usize {
        let hash = value_hash("shard", value);
        ((u128::from(hash) * SHARD_BUCKETS as u128) >> 64) as usize
    }

    /// The zone of a bucket.
    pub fn zone(&self, bucket: usize) -> &str {
        &self.zones[usize::from(self.buckets[bucket])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for token in [0, 1, u64::MAX, StickyPlan::token("app", "127.0.0.1:80")] {
            assert_eq!(Token::parse(Token(token).to_string().as_bytes()), Some(Token(token)));
        }
        for bad in [
            "",
            "0",
            "+000000000000001",
            "000000000000000G",
            "000000000000000F",
            "00000000000000000",
        ] {
            assert_eq!(Token::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_ne!(StickyPlan::token("a", "x:1"), StickyPlan::token("b", "x:1"));
    }

    #[test]
    fn a_cookie_is_secure_over_tls() {
        let cookie = |ttl_s, secure| {
            let plan = StickyPlan { cookie: Source::Client, name: "srv".into(), ttl_s };
            let mut out = Vec::new();
            plan.write_cookie(Token(255), secure, &mut out);
            String::from_utf8(out).expect("ascii")
        };
        let plain = "srv=00000000000000ff; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(cookie(None, false), plain);
        assert_eq!(cookie(Some(60), true), format!("{plain}; Secure; Max-Age=60"));
    }

    /// What is written down here is what operators have moved data by: it never changes.
    #[test]
    fn a_key_keeps_its_bucket() {
        let buckets: Vec<usize> =
            ["", "1", "42", "alice"].iter().map(|key| ShardPlan::bucket(key.as_bytes())).collect();
        assert_eq!(buckets, BUCKETS);
        let mut counts = vec![0u32; SHARD_BUCKETS];
        (0..100_000u32).for_each(|key| counts[ShardPlan::bucket(key.to_string().as_bytes())] += 1);
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
    }

    const BUCKETS: [usize; 4] = [88, 873, 907, 753];
}
