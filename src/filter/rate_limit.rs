//! `kind = "rate_limit"`: so many requests of each key in so much time.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use super::gcra::{AHEAD_MAX, Buckets, Charge, Limit, Part, Shape, TICKS_PER_S};
use super::{AnswerCall, Build, Call, Filter, Hooks, Key, Kind, Phase, Reply, Verdict};
use crate::config::Diagnostic;
use crate::config::decode::{Decoder, Fields};
use crate::config::read::{boolean, choice, integer, spanned, string};
use crate::config::tree::{Node, Spanned};
use crate::context::Source;
use crate::error::ErrorKind;
use crate::limits::*;

/// Limits on rates.
pub const KIND: Kind = Kind {
    name: "rate_limit",
    phase: Phase::Access,
    waits: false,
    about: "Lets so many requests of each key through in so much time, and a burst at once; the \
            others are answered with 429, the code `rate_limited` and Retry-After. RateLimit-Policy \
            and RateLimit (draft-ietf-httpapi-ratelimit-headers-09) tell clients where they stand. \
            A filter with a name is one limit for all routes that name it. Buckets outlive reloads: \
            what is spent stays spent, and comes back at the new rate; a raised burst adds its \
            difference, and a changed scope starts afresh. Keys are counted in a table of fixed size; \
            where more than fit are active at a time, some share a bucket (`keys_max`). From 100 \
            requests a second on the rate is kept within 2 % over ten seconds, by all workers \
            together; below that within one request and the burst.",
    example: "[filter.per-key]\nkind = \"rate_limit\"\nkey = \"header:x-api-key\"\n\
              rate = \"1000/s\"\nburst = 2000\nmissing = \"client\"\nscope = \"node\"\n\
              headers = true\nkeys_max = 65_536\n",
    keys: &[
        Key::of("filter.rate_limit", 
            "key",
            "value",
            "required",
            "whose requests are counted together: `\"client\"` (the address behind trusted proxies; \
             of IPv6 its /64, which one customer has), `\"header:NAME\"`, `\"cookie:NAME\"`, \
             `\"query:NAME\"` or `\"route\"`",
        ),
        Key::of("filter.rate_limit", "rate", "rate", "required", "`\"100/s\"`, `\"6000/m\"`, `\"10/h\"` or `\"1000/d\"`"),
        Key::of("filter.rate_limit", 
            "burst",
            "number",
            "a second of the rate, at least 1",
            "requests that may come at once after a pause; 1.5 to 2 seconds of the rate suit most",
        ),
        Key::of("filter.rate_limit", 
            "missing",
            "word",
            "`\"client\"`",
            "a request without the key: `\"client\"` counts it by its address, `\"share\"` counts \
             all of them together, `\"allow\"` lets it pass",
        ),
        Key::of("filter.rate_limit", 
            "scope",
            "word",
            "`\"node\"`",
            "`\"node\"` counts for all workers together; `\"core\"` gives each worker its part of \
             rate and burst, and shares nothing",
        ),
        Key::of("filter.rate_limit", "headers", "flag", "`true`", "whether answers to allowed requests tell the limit too"),
        Key::of("filter.rate_limit", 
            "keys_max",
            "number",
            "`65536`; `512` for `key = \"route\"`",
            "keys that are told apart at a time, 8 bytes each; more share buckets. With \
             `scope = \"core\"` those of all workers together, and 8 for each worker at least",
        ),
    ],
    decode,
};



#[derive(Debug)]
struct RateLimit {
    key: Source,
    limit: Limit,
    missing: Missing,
    per_core: bool,
    headers: bool,
    buckets: Arc<Buckets>,
    /// Name of the attribute that carries the RateLimit field to the answer.
    attribute: Box<str>,
    /// `"name"`, a string of RFC 9651.
    quoted: Box<str>,
    /// `"name";q=100;w=60`
    policy: Box<str>,
}

/// What becomes of a request without the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Missing {
    /// It is counted by its address, as in APISIX and Kong: leaving the key out is no way round.
    #[default]
    Client,
    /// All of them are counted together.
    Share,
    /// It is not counted, as in nginx and Envoy.
    Allow,
}

/// So many requests in a unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    count: u64,
    seconds: u64,
}

impl Filter for RateLimit {
    fn hooks(&self) -> Hooks {
        Hooks { request: true, response: true, log: false }
    }

    fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        let Some(hash) = self.hash(call) else {
            call.decide(true);
            return Verdict::Continue;
        };
        let (part, limit) = self.share(call.worker);
        let charge = self.buckets.charge(hash, part, self.buckets.now(), limit);
        call.decide(charge.allowed);
        if self.headers || !charge.allowed {
            self.tell(&charge, call);
        }
        if charge.allowed {
            return Verdict::Continue;
        }
        let wait = seconds(charge.wait).to_string();
        Verdict::Respond(Reply::error(ErrorKind::RateLimited).field("Retry-After", wait))
    }

    fn on_response(&self, answer: &mut AnswerCall<'_>) {
        // Absent where another filter answered before, or nobody is to be told.
        if let Some(state) = answer.context.attributes.get(&self.attribute) {
            answer.head.add("RateLimit-Policy", self.policy.as_bytes());
            answer.head.add("RateLimit", state);
        }
    }

    fn crowded(&self) -> Option<u64> {
        Some(self.buckets.crowded())
    }
}

impl RateLimit {
    /// The hash of the request's key; none where it is not counted.
    fn hash(&self, call: &Call<'_>) -> Option<u64> {
        let found = match &self.key {
            Source::Client => return Some(self.hash_client(call.context.client.address)),
            source => source.with(call.context, call.matched(), |value| {
                (!value.is_empty()).then(|| self.buckets.hash(VALUE, value))
            }),
        };
        match (found.flatten(), self.missing) {
            (Some(hash), _) => Some(hash),
            (None, Missing::Client) => Some(self.hash_client(call.context.client.address)),
            (None, Missing::Share) => Some(self.buckets.hash(NOBODY, b"")),
            (None, Missing::Allow) => None,
        }
    }

    fn hash_client(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.buckets.hash(CLIENT, &address.octets()),
            // A customer has a whole /64 and picks addresses in it as it likes (RFC 6177).
            IpAddr::V6(address) => self.buckets.hash(CLIENT, &address.octets()[..8]),
        }
    }

    /// A worker's part of the table, and of the limit.
    fn share(&self, worker: (usize, usize)) -> (Part, Limit) {
        if !self.per_core {
            return ((0, 1), self.limit);
        }
        (worker, part_of(self.limit, worker.1))
    }

    /// Notes the RateLimit field for the answer.
    fn tell(&self, charge: &Charge, call: &mut Call<'_>) {
        let reset = if charge.allowed { charge.full } else { charge.wait };
        call.context.attributes.set_with(&self.attribute, |out| {
            let (name, left, reset) = (&self.quoted, charge.remaining, seconds(reset));
            // Writing to memory cannot fail.
            let _ = write!(out, "{name};r={left};t={reset}");
        });
    }
}

/// The limit of each of so many workers.
fn part_of(limit: Limit, workers: usize) -> Limit {
    let workers = workers as u64;
    let interval = (limit.interval * workers).min(AHEAD_MAX);
    Limit { interval, burst: limit.burst.div_ceil(workers).min(AHEAD_MAX / interval) }
}

/// Whole seconds, rounded up.
fn seconds(ticks: u64) -> u64 {
    ticks.div_ceil(TICKS_PER_S)
}

fn decode(f: &mut Fields<'_, '_>, build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    let key = f.required("key", "\"client\"", spanned(Source::decode));
    let rate = f.required("rate", "\"100/s\"", spanned(rate));
    let burst = f.optional("burst", spanned(integer(1..=BURST_MAX)));
    let missing = f.optional("missing", spanned(choice(MISSING)));
    let scope = f.optional("scope", choice(SCOPES));
    let headers = f.optional("headers", boolean);
    let keys_max = f.optional("keys_max", integer(RATE_KEYS_MIN..=RATE_KEYS_MAX));
    let (key, rate) = (key?, rate?);
    if let Some(missing) = missing.filter(|_| matches!(key.value, Source::Client | Source::Route)) {
        build.warnings.push(
            Diagnostic::warning(missing.span(), "this key is never missing")
                .label("has no effect")
                .other(key.span(), "every request has it")
                .remedy("leave it out"),
        );
    }
    if let Source::Path(_) = key.value {
        f.complain(|_| {
            Diagnostic::error(key.span(), "a limit cannot be by a part of the path")
                .remedy("write \"client\", \"route\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"")
        });
        return None;
    }
    let limit = limit(&rate, burst.as_ref(), f, build)?;
    let of_routes = key.value == Source::Route;
    let keys = keys_max.unwrap_or(if of_routes { RATE_KEYS_OF_ROUTES } else { RATE_KEYS_DEFAULT });
    let per_core = scope.unwrap_or(false);
    let parts = if per_core { build.workers } else { 1 };
    let part = part_of(limit, parts);
    let shape =
        Shape { keys, parts, interval: part.interval, refill: part.interval * part.burst };
    let buckets = build.kept.renew(build.id, |kept: Option<Arc<Buckets>>| {
        Arc::new(kept.map_or_else(|| Buckets::new(shape), |kept| kept.renewed(shape)))
    });
    let quoted = quoted(build.name);
    let Rate { count, seconds } = rate.value;
    Some(Arc::new(RateLimit {
        key: key.value,
        limit,
        missing: missing.map(|missing| missing.value).unwrap_or_default(),
        per_core,
        headers: headers.unwrap_or(true),
        buckets,
        attribute: format!("ratelimit.{}", build.name).into(),
        policy: format!("{quoted};q={count};w={seconds}").into(),
        quoted,
    }))
}

fn limit(
    rate: &Spanned<Rate>,
    burst: Option<&Spanned<usize>>,
    f: &mut Fields<'_, '_>,
    build: &mut Build<'_>,
) -> Option<Limit> {
    let Rate { count, seconds } = rate.value;
    let unit = seconds * TICKS_PER_S;
    // To the nearest tick.
    let interval = (unit + count / 2) / count;
    let of_second = (TICKS_PER_S / interval).max(1);
    let Some(burst) = burst else { return Some(Limit { interval, burst: of_second }) };
    let value = burst.value as u64;
    if value.checked_mul(interval).is_none_or(|full| full > AHEAD_MAX) {
        let days = RATE_REFILL_S_MAX / 86_400;
        f.complain(|_| {
            Diagnostic::error(burst.span(), "this burst would take too long to come back")
                .label(format!("more than {days} days at this rate"))
                .other(rate.span(), "the rate")
                .remedy(format!("write at most {}", AHEAD_MAX / interval))
        });
        return None;
    }
    // L2: one and a half to two seconds of the rate; these are the cases that are hardly meant.
    let large = value / BURST_COUNTS_MAX > count;
    let small = value < of_second / BURST_SHARE_MIN;
    if large || small {
        let message = match large {
            true => "the burst lets far more through than the rate",
            false => "the burst is too small for the rate: what comes together is refused",
        };
        let (low, high) = (of_second + of_second / 2, 2 * of_second);
        build.warnings.push(
            Diagnostic::warning(burst.span(), message)
                .label(format!("{value} at once"))
                .other(rate.span(), "the rate")
                .remedy(format!("{low} to {high} suit most at this rate")),
        );
    }
    Some(Limit { interval, burst: value })
}

/// `"100/s"`
fn rate(node: &Node, decoder: &mut Decoder) -> Option<Rate> {
    let text = string(node, decoder)?;
    let error = |message: String, remedy: String| {
        Diagnostic::error(node.span.clone(), message).label("not a rate").remedy(remedy)
    };
    let parsed = text.split_once('/').and_then(|(count, unit)| {
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = Some(count).filter(|_| digits)?.parse::<u64>().ok()?;
        let seconds = UNITS.iter().find(|(known, _)| *known == unit)?.1;
        Some(Rate { count, seconds })
    });
    let Some(rate) = parsed else {
        let message = format!("`{}` is not a rate", text.escape_debug());
        let remedy = "write \"100/s\", \"6000/m\", \"10/h\" or \"1000/d\"".into();
        decoder.found.push(error(message, remedy));
        return None;
    };
    if rate.count == 0 {
        let message = "a rate of nothing lets nobody through".into();
        let remedy = "write 1 at least, or answer with the route's `respond`".into();
        decoder.found.push(error(message, remedy));
        return None;
    }
    if rate.count > RATE_PER_S_MAX * rate.seconds {
        let message = "the rate is too high to be kept".into();
        decoder.found.push(error(message, format!("write at most \"{RATE_PER_S_MAX}/s\"")));
        return None;
    }
    Some(rate)
}

/// A name as a string of RFC 9651 section 3.3.3.
fn quoted(name: &str) -> Box<str> {
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('_'),
        }
    }
    out.push('"');
    out.into()
}

const MISSING: &[(&str, Missing)] =
    &[("client", Missing::Client), ("share", Missing::Share), ("allow", Missing::Allow)];
/// Whether each worker counts for itself.
const SCOPES: &[(&str, bool)] = &[("node", false), ("core", true)];
const UNITS: &[(&str, u64)] = &[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
/// A burst is bounded by the time that it takes to come back.
const BURST_MAX: usize = u32::MAX as usize;
// What a hash is of, so that a value is never taken for an address.
const CLIENT: u8 = 0;
const VALUE: u8 = 1;
const NOBODY: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::testing::{answer_call, call};
    use crate::context::{Matched, RequestContext};
    use crate::filter::testing::{WORKERS, decode, decoded, refused};
    use crate::filter::{Decision, Kept};
    use crate::http::ResponseHead;

    /// Fields of the answer to a request; a 429 has Retry-After first.
    fn ask(filter: &dyn Filter, head: &str, client: &str, worker: (usize, usize)) -> String {
        let text = format!("GET /a?k=1 HTTP/1.1\r\nHost: a.test\r\n{head}\r\n");
        let (mut context, _) = RequestContext::of_head(text.as_bytes()).expect("valid");
        context.client.address = client.parse().expect("an address");
        let mut call = Call { route: Matched { route: "r1", ..Matched::default() }, worker, ..call(&mut context) };
        let verdict = filter.on_request(&mut call);
        let decision = call.decision;
        let mut head = ResponseHead::default();
        match verdict {
            Verdict::Respond(reply) => {
                assert_eq!((reply.status, decision), (429, Some(Decision::Limited)));
                reply.fields.iter().for_each(|(name, value)| head.add(name, value));
            }
            Verdict::Continue => assert_eq!(decision, Some(Decision::Allowed)),
            Verdict::Wait(_) => panic!("it does not wait"),
        }
        filter.on_response(&mut answer_call(&context, &mut head));
        String::from_utf8_lossy(head.added.bytes()).replace("\r\n", "; ")
    }

    fn passes(filter: &dyn Filter, head: &str, client: &str) -> bool {
        !ask(filter, head, client, (0, 1)).starts_with("Retry-After")
    }

    #[test]
    fn answers_tell_the_limit() {
        let filter = decoded("rate_limit", "key = \"client\"\nrate = \"10/h\"\nburst = 2");
        let ask = || ask(&*filter, "", "192.0.2.1", (0, 1));
        let policy = "RateLimit-Policy: \"it\";q=10;w=3600; RateLimit: \"it\"";
        assert_eq!(ask(), format!("{policy};r=1;t=360; "));
        let second = ask();
        let full = ["720", "719"].map(|t| format!("{policy};r=0;t={t}; "));
        assert!(full.contains(&second), "{second}");
        let wait = ["360", "359"].map(|t| format!("Retry-After: {t}; {policy};r=0;t={t}; "));
        let refused = ask();
        assert!(wait.contains(&refused), "{refused}");
        let quiet = "key = \"client\"\nrate = \"10/h\"\nheaders = false";
        let quiet = decoded("rate_limit", quiet);
        assert_eq!(super::tests::ask(&*quiet, "", "192.0.2.1", (0, 1)), "");
        let refused = super::tests::ask(&*quiet, "", "192.0.2.1", (0, 1));
        assert!(refused.contains("; RateLimit-Policy: ") && refused.contains(";r=0;"), "{refused}");
    }

    #[test]
    fn keys_are_told_apart() {
        for (key, same, other) in [
            ("header:x-key", "X-Key: a\r\n", "X-Key: b\r\n"),
            ("cookie:uid", "Cookie: uid=a\r\n", "Cookie: uid=b\r\n"),
        ] {
            let text = format!("key = \"{key}\"\nrate = \"1/h\"");
            let filter = decoded("rate_limit", &text);
            assert!(passes(&*filter, same, "192.0.2.1"), "{key}");
            assert!(!passes(&*filter, same, "192.0.2.2"), "{key}: whoever sends it");
            assert!(passes(&*filter, other, "192.0.2.1"), "{key}");
        }
        for key in ["query:k", "route"] {
            let filter = decoded("rate_limit", &format!("key = \"{key}\"\nrate = \"1/h\""));
            assert!(passes(&*filter, "", "192.0.2.1") && !passes(&*filter, "", "192.0.2.2"));
        }
        let filter = decoded("rate_limit", "key = \"client\"\nrate = \"1/h\"");
        assert!(passes(&*filter, "", "192.0.2.1"));
        assert!(!passes(&*filter, "", "::ffff:192.0.2.1"), "the same");
        assert!(passes(&*filter, "", "2001:db8::1"));
        assert!(!passes(&*filter, "", "2001:db8::ffff:1"), "the same /64");
        assert!(passes(&*filter, "", "2001:db8:0:1::1"));
    }

    #[test]
    fn a_request_without_the_key_is_counted_as_the_filter_says() {
        let with = |missing: &str| {
            let text = format!("key = \"header:k\"\nrate = \"1/h\"\n{missing}");
            let filter = decoded("rate_limit", &text);
            [("", "192.0.2.1"), ("k:\r\n", "192.0.2.1"), ("", "192.0.2.2")]
                .map(|(head, client)| passes(&*filter, head, client))
        };
        assert_eq!(with(""), [true, false, true]);
        assert_eq!(with("missing = \"client\""), [true, false, true]);
        assert_eq!(with("missing = \"share\""), [true, false, false]);
        assert_eq!(with("missing = \"allow\""), [true, true, true]);
    }

    #[test]
    fn each_core_has_its_part() {
        let text = "key = \"client\"\nrate = \"10/h\"\nburst = 4\nscope = \"core\"";
        let filter = decoded("rate_limit", text);
        let passed = |worker| {
            let refused = |answer: &String| answer.starts_with("Retry-After");
            (0..9).map(|_| ask(&*filter, "", "192.0.2.1", (worker, 2))).filter(|a| !refused(a)).count()
        };
        assert_eq!((passed(0), passed(1)), (2, 2));
        // More workers than the table would have sets.
        let small = format!("{text}\nkeys_max = 8").replace("burst = 4", "burst = 16");
        let filter = decoded("rate_limit", &small);
        let passed = |worker| {
            let answers = (0..9).map(|_| ask(&*filter, "", "192.0.2.1", (worker, WORKERS)));
            answers.filter(|answer| !answer.starts_with("Retry-After")).count()
        };
        assert!((0..WORKERS).all(|worker| passed(worker) == 16 / WORKERS));
        assert_eq!(seconds(3 * TICKS_PER_S + 1), 4);
    }

    #[test]
    fn a_reload_refills_nothing() {
        let mut kept = Kept::default();
        let mut filter = decode("rate_limit", "key = \"client\"\nrate = \"1/h\"", &mut kept);
        assert!(filter.as_ref().is_ok_and(|(filter, _)| passes(&**filter, "", "192.0.2.1")));
        for change in ["", "burst = 2", "keys_max = 1_000", "scope = \"core\""] {
            let text = format!("key = \"client\"\nrate = \"1/h\"\n{change}");
            filter = decode("rate_limit", &text, &mut kept);
            let (filter, _) = filter.as_ref().expect("taken");
            let more = usize::from(change == "burst = 2");
            let passed = (0..5).filter(|_| passes(&**filter, "", "192.0.2.1")).count();
            assert_eq!(passed, more, "{change}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, part) in [
            ("rate = \"1/s\"", "`key` is missing"),
            ("key = \"client\"", "`rate` is missing"),
            ("key = \"cleint\"\nrate = \"1/s\"", "did you mean `client`?"),
            ("key = \"path:id\"\nrate = \"1/s\"", "part of the path"),
            ("key = \"client\"\nrate = \"1\"", "is not a rate"),
            ("key = \"client\"\nrate = \"1/x\"", "6000/m"),
            ("key = \"client\"\nrate = \"+1/s\"", "is not a rate"),
            ("key = \"client\"\nrate = \"0/s\"", "lets nobody through"),
            ("key = \"client\"\nrate = \"1000001/s\"", "too high"),
            ("key = \"client\"\nrate = \"1/s\"\nburst = 0", "out of bounds"),
            ("key = \"client\"\nrate = \"1/d\"\nburst = 31", "write at most 30"),
            ("key = \"client\"\nrate = \"1/s\"\nscope = \"nodes\"", "did you mean `node`?"),
            ("key = \"client\"\nrate = \"1/s\"\nkeys_max = 7", "out of bounds"),
        ] {
            let said = refused("rate_limit", text);
            assert!(said.contains(part), "{text}: {said}");
        }
        let warned = |text: &str| decode("rate_limit", text, &mut Kept::default()).expect("taken").1;
        for (text, part) in [
            ("key = \"client\"\nrate = \"10/s\"\nburst = 110", "15 to 20 suit most"),
            ("key = \"client\"\nrate = \"20000/s\"\nburst = 199", "too small"),
            ("key = \"route\"\nrate = \"1/s\"\nmissing = \"allow\"", "never missing"),
        ] {
            assert!(warned(text).contains(part), "{text}: {}", warned(text));
        }
        for text in [
            "key = \"client\"\nrate = \"10/h\"\nburst = 10",
            "key = \"client\"\nrate = \"1000/s\"\nburst = 2000",
            "key = \"client\"\nrate = \"20000/s\"\nburst = 200",
        ] {
            assert_eq!(warned(text), "", "{text}");
        }
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(&*quoted("a.b-c"), "\"a.b-c\"");
        assert_eq!(&*quoted("a\"\\\u{e9}"), "\"a\\\"\\\\_\"");
    }
}
