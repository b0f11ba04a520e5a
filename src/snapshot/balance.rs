//! How upstreams spread their requests: what is wrong with it, and the plans.

use std::collections::HashMap;
use std::sync::Arc;

use super::Ids;
use super::routes::{Rule, add_param};
use crate::config::decode::hint;
use crate::config::read::Address;
use crate::config::tree::Spanned;
use crate::config::written::balance::{Hash, Policy as Written, Shard};
use crate::config::written::{self, Config};
use crate::config::{Diagnostic, Diagnostics};
use crate::context::Source;
use crate::limits::*;
use crate::upstream::balance::{HashTable, Seat};
use crate::upstream::{
    BalancePlan, EndpointPlan, HashPlan, Policy, ShardPlan, StickyPlan, UpstreamPlan,
};

/// Keys exist and fit together, and every bucket of a shard has one zone.
pub(super) fn check(config: &Config<'_>, found: &mut Diagnostics) {
    for upstream in &config.upstreams {
        check_hash(upstream, found);
        let balance = &upstream.balance;
        if let Some(sticky) = &balance.sticky {
            source(&sticky.cookie, Some("cookie:"), found);
        }
        if let Some(locality) = balance.locality.as_ref().filter(|flag| flag.value)
            && config.runtime.zone.is_none()
        {
            let error = Diagnostic::error(locality.span(), "`locality` needs to know the zone");
            let remedy = "add zone = \"...\" under [runtime]: where this node is";
            found.push(error.label("of which node?").remedy(remedy));
        }
        if let Some(shard) = &balance.shard {
            source(&shard.key, None, found);
            // Zones of endpoints that are yet to be found are not known.
            if upstream.discover.is_none() {
                check_zones(upstream, shard, found);
            }
            buckets(shard, found);
        }
    }
    check_directed(config, found);
}

/// A key may be a parameter of a path, which a route that leads to its upstream may not have: the first
/// such route of each key is named.
pub(super) fn warnings(
    config: &Config<'_>,
    rules: &[(&written::Route<'_>, &Rule)],
    warnings: &mut Diagnostics,
) {
    let mut keys: HashMap<&str, Vec<ParamKey<'_>>> = HashMap::new();
    for upstream in &config.upstreams {
        let own = ParamKey::all(upstream);
        if !own.is_empty() {
            keys.insert(&upstream.name.value, own);
        }
    }
    if keys.is_empty() {
        return;
    }
    for (route, rule) in rules {
        let names = rule.matcher.param_names();
        for (upstream, zoned) in route.choosing() {
            let Some(own) = keys.get_mut(&*upstream.value) else { continue };
            // A zone that the route names goes before that of the shard.
            let asks = |key: &ParamKey<'_>| !(zoned && key.of_shard);
            for key in own.extract_if(.., |key| asks(key) && !names.contains(&&*key.param)) {
                warnings.push(key.empty_on(route, upstream, &names));
            }
        }
    }
}

/// A key of an upstream that is a parameter of a path.
struct ParamKey<'c> {
    /// Whether it is `shard.key`, and not `hash.key`.
    of_shard: bool,
    written: &'c Spanned<Box<str>>,
    param: Box<str>,
}

impl<'c> ParamKey<'c> {
    fn all(upstream: &'c written::Upstream) -> Vec<ParamKey<'c>> {
        let balance = &upstream.balance;
        let hash = balance.hash.as_ref().map(|hash| (false, &hash.value.key));
        let shard = balance.shard.as_ref().map(|shard| (true, &shard.key));
        let key =
            |(of_shard, written): (_, &'c Spanned<Box<str>>)| match Source::parse(&written.value) {
                Ok(Source::Path(param)) => Some(ParamKey { of_shard, written, param }),
                _ => None,
            };
        hash.into_iter().chain(shard).filter_map(key).collect()
    }

    fn empty_on(
        &self,
        route: &written::Route<'_>,
        upstream: &Spanned<Box<str>>,
        names: &[&str],
    ) -> Diagnostic {
        let key = if self.of_shard { "shard.key" } else { "hash.key" };
        let (upstream, id) = (&upstream.value, &route.id.value);
        let message = format!("upstream `{upstream}`: `{key}` is empty on route `{id}`");
        Diagnostic::warning(self.written.span(), message)
            .label("its requests go anywhere")
            .other(route.matcher.span(), format!("has no parameter `{}`", self.param))
            .remedy(add_param(&self.param, names))
    }
}

fn check_hash(upstream: &written::Upstream, found: &mut Diagnostics) {
    let balance = &upstream.balance;
    let hashes = balance.policy.as_ref().filter(|policy| policy.value == Written::Hash);
    match (hashes, &balance.hash) {
        (Some(policy), None) => {
            let error = Diagnostic::error(policy.span(), "a hash of what? `hash` is missing");
            let remedy = "add hash = { key = \"header:x-user-id\" }";
            found.push(error.label("needs a key").remedy(remedy));
        }
        (None, Some(hash)) => {
            let error = Diagnostic::error(hash.span(), "`hash` does nothing without its policy");
            found.push(error.label("never used").remedy("write balance = \"hash\", or remove it"));
        }
        _ => {}
    }
    if let Some(hash) = &balance.hash {
        source(&hash.value.key, None, found);
    }
    if let (Some(policy), Some(subset)) = (hashes, &balance.subset) {
        found.push(
            Diagnostic::error(
                subset.span(),
                "`subset` and `balance = \"hash\"` exclude each other",
            )
            .label("each worker would send a key elsewhere")
            .other(policy.span(), "a key has one endpoint")
            .remedy("remove one of them"),
        );
    }
}

/// The value of a request that a text names; `kind` is what the text leaves out.
fn source(text: &Spanned<Box<str>>, kind: Option<&str>, found: &mut Diagnostics) -> Option<Source> {
    let parsed = Source::parse(&format!("{}{}", kind.unwrap_or_default(), text.value));
    let what = if kind.is_some() { "the name of a cookie" } else { "a value of a request" };
    parsed
        .map_err(|remedy| {
            let message = format!("`{}` is not {what}", text.value.escape_debug());
            let error = Diagnostic::error(text.span(), message);
            found.push(error.label("no request has it").remedy(match kind {
                Some(_) => "write letters, digits, `-` and `_`".to_owned(),
                None => remedy,
            }));
        })
        .ok()
}

fn check_zones(upstream: &written::Upstream, shard: &Shard, found: &mut Diagnostics) {
    if shard.zones.len() > SHARD_ZONES_MAX {
        let message = format!("{} zones are too many", shard.zones.len());
        let error = Diagnostic::error(shard.zones_span.clone(), message);
        found.push(error.remedy(format!("name at most {SHARD_ZONES_MAX}")));
    }
    let usable = upstream.endpoints.value.iter().filter(|one| one.weight != Some(0));
    let known: Vec<&str> = usable.filter_map(|one| one.zone.as_deref()).collect();
    for (zone, _) in &shard.zones {
        if known.contains(&&*zone.value) {
            continue;
        }
        let message = format!("no endpoint is in zone `{}`", zone.value.escape_debug());
        let error = Diagnostic::error(zone.span(), message).label("nobody takes these keys");
        found.push(error.other(upstream.endpoints.span(), "the endpoints").remedy(
            match known.is_empty() {
                true => "give endpoints a `zone`, and a weight above 0".to_owned(),
                false => hint(&zone.value, known.iter().copied(), "zones of the endpoints"),
            },
        ));
    }
}

/// Which zone each bucket belongs to: every one to exactly one.
fn buckets(shard: &Shard, found: &mut Diagnostics) -> Option<Box<[u8]>> {
    let before = found.count();
    let mut taken: Vec<Option<u8>> = vec![None; SHARD_BUCKETS];
    for (number, (zone, ranges)) in (0u8..).zip(&shard.zones) {
        for range in ranges.value.split(',') {
            let Some((first, last)) = parse_range(range) else {
                let message = format!("`{}` is no range of buckets", range.trim().escape_debug());
                let remedy =
                    format!("write \"0-499\", \"7\" or \"0-99, 200-299\", from 0 to {LAST}");
                found.push(Diagnostic::error(ranges.span(), message).remedy(remedy));
                continue;
            };
            let twice = (first..=last).find(|bucket| taken[*bucket].is_some());
            if let Some(bucket) = twice {
                let (other, other_ranges) =
                    &shard.zones[usize::from(taken[bucket].unwrap_or_default())];
                let message = format!(
                    "bucket {bucket} belongs to zone `{}` and to zone `{}`",
                    other.value, zone.value
                );
                found.push(
                    Diagnostic::error(ranges.span(), message)
                        .label("the second")
                        .other(other_ranges.span(), "the first")
                        .remedy("give each bucket to one zone: the same key never splits"),
                );
            }
            taken[first..=last].fill(Some(number));
        }
    }
    if found.count() > before {
        return None;
    }
    if let Some(first) = taken.iter().position(Option::is_none) {
        let length = taken[first..].iter().take_while(|bucket| bucket.is_none()).count();
        let last = first + length - 1;
        let range = if first == last { format!("{first}") } else { format!("{first}-{last}") };
        let error =
            Diagnostic::error(shard.zones_span.clone(), format!("no zone has the buckets {range}"));
        let remedy = format!("give each of the buckets 0-{LAST} to one zone");
        found.push(error.label("some keys would go nowhere").remedy(remedy));
        return None;
    }
    taken.into_iter().collect()
}

fn parse_range(text: &str) -> Option<(usize, usize)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number <= LAST)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first.trim())?, number(last.trim())?);
    (first <= last).then_some((first, last))
}

/// R18: the endpoint that a route names is one of its upstream's.
fn check_directed(config: &Config<'_>, found: &mut Diagnostics) {
    let upstreams: HashMap<&str, &written::Upstream> =
        config.upstreams.iter().map(|upstream| (&*upstream.name.value, upstream)).collect();
    for (upstream, endpoint) in config.routes.iter().flat_map(written::Route::directed) {
        let Some(known) = upstreams.get(&*upstream.value) else { continue };
        let endpoints = &known.endpoints.value;
        if endpoints.iter().any(|one| one.address.value == endpoint.value) {
            continue;
        }
        let names = endpoints.iter().map(|one| &*one.written);
        let message = format!("upstream `{}` has no such endpoint", upstream.value);
        let error = Diagnostic::error(endpoint.span(), message).label("nobody to be sent to");
        let remedy = hint(&shown(&endpoint.value), names, "its endpoints");
        found.push(error.other(upstream.span(), "of this upstream").remedy(remedy));
    }
}

fn shown(address: &Address) -> String {
    match address {
        Address::Socket(address) => address.to_string(),
        Address::Name(name, port) => format!("{name}:{port}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Everything has been checked: this cannot fail.
pub(super) fn plan(upstream: &written::Upstream, zone: Option<&str>) -> Arc<BalancePlan> {
    let written = &upstream.balance;
    let policy = match written.policy.as_ref().map(|policy| policy.value).unwrap_or_default() {
        Written::RoundRobin => Policy::RoundRobin,
        Written::LeastRequest => Policy::LeastRequest,
        Written::Ewma => Policy::Ewma,
        Written::Hash => Policy::Hash,
        Written::Random => Policy::Random,
    };
    let none = &mut Diagnostics::default();
    let hash = written.hash.as_ref().map(|written| hash(&written.value));
    let sticky = written.sticky.as_ref().map(|sticky| StickyPlan {
        cookie: source(&sticky.cookie, Some("cookie:"), none).expect("checked before"),
        name: sticky.cookie.value.clone(),
        ttl_s: sticky.ttl_ms.map(|ms| ms.div_ceil(1_000)),
    });
    let shard = written.shard.as_ref().map(|shard| ShardPlan {
        key: source(&shard.key, None, none).expect("checked before"),
        zones: shard.zones.iter().map(|(zone, _)| zone.value.clone()).collect(),
        buckets: buckets(shard, none).expect("checked before"),
    });
    let local = written.locality.as_ref().is_some_and(|flag| flag.value);
    Arc::new(BalancePlan {
        policy,
        hash,
        sticky,
        subset: written.subset.as_ref().map_or(0, |subset| subset.value),
        locality: zone.filter(|_| local).map(Box::from),
        shard,
    })
}

fn hash(written: &Hash) -> HashPlan {
    let max_load = written.max_load_percent.map(|percent| percent as u64);
    HashPlan {
        key: source(&written.key, None, &mut Diagnostics::default()).expect("checked before"),
        max_load_percent: max_load.unwrap_or(HASH_MAX_LOAD_PERCENT),
        table: Arc::new(HashTable::new(Vec::new())),
    }
}

/// The balance of an upstream with a seat for each of its endpoints, as they are now.
pub(super) fn seated(plan: &UpstreamPlan, ids: &mut Ids) -> Arc<BalancePlan> {
    let Some(hash) = &plan.balance.hash else { return plan.balance.clone() };
    let seat = |endpoint: &EndpointPlan| Seat {
        name: endpoint.authority.clone(),
        weight: endpoint.weight,
    };
    let table = ids.hash_table(plan.id, plan.endpoints.iter().map(seat).collect());
    let hash = Some(HashPlan { table, ..hash.clone() });
    Arc::new(BalancePlan { hash, ..BalancePlan::clone(&plan.balance) })
}

const LAST: usize = SHARD_BUCKETS - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::compile;

    const REST: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n[[route]]\nid = \"r\"\n\
        prefix = \"/\"\nupstream = \"u\"\n";

    fn with(keys: &str, rest: &str) -> Result<Arc<BalancePlan>, String> {
        let text = format!(
            "{REST}{rest}[upstream.u]\nendpoints = [{{ address = \"127.0.0.1:1\", zone = \"a\" }}, \
             {{ address = \"127.0.0.1:2\", zone = \"b\" }}]\n{keys}\n"
        );
        let compiled = compile(&text, &mut Ids::default(), 1);
        let taken = compiled.map_err(|found| {
            found.iter().map(|one| format!("{}; {}", one.message, one.remedy)).collect::<String>()
        })?;
        Ok(taken.0.upstreams[0].balance.clone())
    }

    #[test]
    fn buckets_are_covered_exactly_once() {
        let shard = |zones: &str| {
            with(&format!("shard = {{ key = \"cookie:uid\", zones = {{ {zones} }} }}"), "")
        };
        let plan = shard("a = \"0-99, 500 - 999\", b = \"100-498,499\"").expect("taken");
        let plan = plan.shard.as_ref().expect("given");
        let zones = [0, 99, 100, 499, 500, 999].map(|bucket| plan.zone(bucket));
        assert_eq!(zones, ["a", "a", "b", "b", "a", "a"]);
        for (zones, said) in [
            ("a = \"0-499\", b = \"501-999\"", "no zone has the buckets 500;"),
            ("a = \"0-499\", b = \"600-999\"", "buckets 500-599;"),
            ("a = \"0-499\", b = \"499-999\"", "bucket 499 belongs to zone `a` and to zone `b`"),
            ("a = \"0-1000\"", "`0-1000` is no range"),
            ("a = \"9-0\"", "`9-0` is no range"),
            ("a = \"\"", "`` is no range"),
            ("a = \"0-999\", c = \"x\"", "no endpoint is in zone `c`"),
        ] {
            let error = shard(zones).expect_err(zones);
            assert!(error.contains(said), "{zones}: {error}");
        }
    }

    #[test]
    fn keys_fit_together() {
        let hash = with("balance = \"hash\"\nhash = { key = \"header:X-User\" }", "");
        let plan = hash.expect("taken");
        let plan = plan.hash.as_ref().expect("given");
        assert_eq!((plan.key.to_string(), plan.max_load_percent), ("header:x-user".into(), 125));
        for (keys, said) in [
            ("balance = \"hash\"", "`hash` is missing"),
            ("hash = { key = \"client\" }", "`hash` does nothing"),
            ("balance = \"hash\"\nsubset = 1\nhash = { key = \"client\" }", "exclude each other"),
            ("balance = \"hash\"\nhash = { key = \"heder:x\" }", "`heder:x` is not a value"),
            ("locality = true", "needs to know the zone"),
            ("sticky = { cookie = \"a b\" }", "`a b` is not the name of a cookie"),
        ] {
            let error = with(keys, "").expect_err(keys);
            assert!(error.contains(said), "{keys}: {error}");
        }
        let local = with("locality = true", "[runtime]\nzone = \"b\"\n").expect("taken");
        assert_eq!(local.locality.as_deref(), Some("b"));
    }

    #[test]
    fn a_route_names_an_endpoint_of_its_upstream() {
        let directed = |keys: &str| {
            let rest = format!("[[route]]\nid = \"d\"\nprefix = \"/d\"\n{keys}\n");
            with("", &rest).map(|_| ())
        };
        assert_eq!(
            directed("upstream = \"u\"\nendpoint = \"127.0.0.1:2\"\nfallback = true"),
            Ok(())
        );
        let target = "targets = [{ upstream = \"u\", endpoint = \"127.0.0.1:9\" }]";
        for (keys, said) in [
            ("upstream = \"u\"\nendpoint = \"127.0.0.1:3\"", "has no such endpoint; did you mean"),
            (target, "has no such endpoint"),
            ("upstream = \"u\"\nfallback = true", "`fallback` does nothing"),
            ("respond = { status = 200 }\nendpoint = \"127.0.0.1:2\"", "`endpoint` does nothing"),
        ] {
            let error = directed(keys).expect_err(keys);
            assert!(error.contains(said), "{keys}: {error}");
        }
    }

    /// What does not change is not made anew.
    #[test]
    fn a_table_is_kept_as_long_as_its_endpoints_are() {
        let mut ids = Ids::default();
        let seats = |weight| vec![Seat { name: "a:1".into(), weight }];
        let id = ids.upstream("u");
        let first = ids.hash_table(id, seats(1));
        assert!(Arc::ptr_eq(&first, &ids.hash_table(id, seats(1))));
        assert!(!Arc::ptr_eq(&first, &ids.hash_table(id, seats(2))));
    }
}
