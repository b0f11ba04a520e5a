//! What routes have to do with each other and with upstreams: names, duplicates, shadows.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::routes::{Rule, warn_of_redirect};
use crate::config::decode::hint;
use crate::config::diagnostic::Span;
use crate::config::tree::Spanned;
use crate::config::written::{self, Config};
use crate::config::{Diagnostic, Diagnostics};
use crate::limits::{PRIORITY_DEFAULT, ROUTE_PATTERNS_MAX};
use crate::route::{Host, Matcher};

/// Routes whose own values are right, as written and compiled, in the order of the configuration.
pub(super) type Rules<'c, 't> = [(&'c written::Route<'t>, &'c Rule)];

/// Host and path: what routes must have in common to be rivals.
type Place<'r> = (Option<&'r Host>, (u8, Cow<'r, str>));

/// Names come from a file that its writer may fill with collisions: a seeded hash.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Ids differ, no two routes are the same (R3), and upstreams and zones exist.
pub(super) fn check(config: &Config<'_>, rules: &Rules<'_, '_>, found: &mut Diagnostics) {
    let mut ids: Map<&str, Span> = Map::default();
    ids.reserve(config.routes.len());
    for route in &config.routes {
        let id = &*route.id.value;
        if let Some(first) = ids.insert(id, route.id.span()) {
            found.push(
                Diagnostic::error(route.id.span(), format!("two routes have the id `{id}`"))
                    .label("the second")
                    .other(first, "the first")
                    .remedy("give each route an id of its own"),
            );
        }
        check_weights(route, found);
    }
    check_upstreams(config, found);
    check_duplicates(rules, found);
    let mut patterns = rules.iter().filter(|(_, rule)| matches!(rule.matcher, Matcher::Regex(_)));
    if let Some((route, _)) = patterns.nth(ROUTE_PATTERNS_MAX) {
        let message = format!("more than {ROUTE_PATTERNS_MAX} routes have a `regex`");
        let error = Diagnostic::error(route.matcher.span(), message).label("one too many");
        found.push(error.remedy("use `path` with {name} segments, or `prefix`"));
    }
}

fn check_weights(route: &written::Route<'_>, found: &mut Diagnostics) {
    let written::Action::Targets(targets) = &route.action else { return };
    if !targets.value.is_empty() && targets.value.iter().all(|target| target.weight == Some(0)) {
        let message = format!("every weight of route `{}` is 0", route.id.value);
        let remedy = "give one target at least a weight above 0";
        let error = Diagnostic::error(targets.span(), message).label("nobody takes its requests");
        found.push(error.remedy(remedy));
    }
}

fn check_upstreams(config: &Config<'_>, found: &mut Diagnostics) {
    let known: HashSet<&str> = config.upstream_names.iter().map(|name| &**name).collect();
    for name in config.routes.iter().flat_map(written::Route::upstreams) {
        let upstream = &*name.value;
        if known.contains(upstream) {
            continue;
        }
        found.push_with(|| {
            let known = config.upstream_names.iter().map(|name| &**name);
            let message = format!("there is no upstream `{}`", upstream.escape_debug());
            Diagnostic::error(name.span(), message).label("not defined").remedy(hint(
                upstream,
                known,
                "upstreams of this file",
            ))
        });
    }
    let mut zones: HashMap<&str, HashSet<&str>> = HashMap::new();
    // Of one that discovers its endpoints nobody knows the zones yet.
    for upstream in config.upstreams.iter().filter(|upstream| upstream.discover.is_none()) {
        let zones = zones.entry(&*upstream.name.value).or_default();
        let usable = upstream.endpoints.value.iter().filter(|one| one.weight != Some(0));
        zones.extend(usable.filter_map(|endpoint| endpoint.zone.as_deref()));
    }
    for route in &config.routes {
        let own = match &route.action {
            written::Action::Targets(targets) => &*targets.value,
            _ => &[],
        };
        let pairs = own.iter().map(|target| (&target.upstream, target.zone.as_ref()));
        let whole = match &route.action {
            written::Action::Upstream(upstream) => Some((upstream, None)),
            _ => None,
        };
        for (upstream, zone) in pairs.chain(whole) {
            let zone = zone.or(route.zone.as_ref());
            let (Some(zone), Some(known)) = (zone, zones.get(&*upstream.value)) else { continue };
            if !known.contains(&*zone.value) {
                found.push(no_zone(upstream, zone, known));
            }
        }
    }
}

fn no_zone(
    upstream: &Spanned<Box<str>>,
    zone: &Spanned<Box<str>>,
    known: &HashSet<&str>,
) -> Diagnostic {
    let message =
        format!("no endpoint of upstream `{}` is in zone `{}`", upstream.value, zone.value);
    let mut known: Vec<&str> = known.iter().copied().collect();
    known.sort_unstable();
    let remedy = match known.is_empty() {
        true => "give endpoints a `zone`, and a weight above 0".to_owned(),
        false => hint(&zone.value, known.into_iter(), "zones of its endpoints"),
    };
    let error = Diagnostic::error(zone.span(), message).label("nobody takes these requests");
    error.other(upstream.span(), "of this upstream").remedy(remedy)
}

/// Two routes with the same host, path, priority and conditions: the second is never reached.
fn check_duplicates(rules: &Rules<'_, '_>, found: &mut Diagnostics) {
    let mut seen: Map<(Place<'_>, u32, Vec<String>), usize> = Map::default();
    seen.reserve(rules.len());
    for (index, (route, rule)) in rules.iter().enumerate() {
        let mut said = false;
        for place in places(rule) {
            let key = (place, priority(route), words(rule));
            // A host that stands twice on one route is told of where hosts are read.
            let first = seen.insert(key, index).filter(|first| *first != index);
            let Some(first) = first else { continue };
            if std::mem::replace(&mut said, true) {
                continue;
            }
            found.push_with(|| {
                let (id, first) = (&route.id.value, rules[first].0);
                let message = format!("routes `{}` and `{id}` take the same paths", first.id.value);
                let remedy =
                    "remove one of them, or change its path, hosts, conditions or priority";
                Diagnostic::error(route.matcher.span(), message)
                    .label(format!("route `{id}`"))
                    .other(first.matcher.span(), format!("route `{}`", first.id.value))
                    .remedy(remedy)
            });
        }
    }
}

/// Routes that no request can reach.
pub(super) fn warnings(rules: &Rules<'_, '_>, warnings: &mut Diagnostics) {
    // The first route of each place that takes every request.
    let mut takes_all: Map<Place<'_>, usize> = Map::default();
    takes_all.reserve(rules.len());
    let order = |index: usize| (priority(rules[index].0), index);
    for (index, (_, rule)) in rules.iter().enumerate() {
        if !rule.conditions.is_empty() {
            continue;
        }
        for place in places(rule) {
            let first = takes_all.entry(place).or_insert(index);
            if order(index) < order(*first) {
                *first = index;
            }
        }
    }
    for (index, (route, rule)) in rules.iter().enumerate() {
        let rivals: Vec<_> = places(rule).map(|place| takes_all.get(&place).copied()).collect();
        let before = |rival: &Option<usize>| rival.is_some_and(|one| order(one) < order(index));
        if rivals.iter().all(before) {
            let first = rivals.into_iter().flatten().next().map(|first| rules[first].0);
            warnings.push_with(|| shadowed(route, first));
        }
        contradiction(route, rule, warnings);
        warn_of_redirect(route, rule, warnings);
    }
    covered(rules, warnings);
}

/// Expressions are asked last: one whose paths all have a beginning that a route without conditions
/// takes is never asked.
fn covered(rules: &Rules<'_, '_>, warnings: &mut Diagnostics) {
    if !rules.iter().any(|(_, rule)| matches!(rule.matcher, Matcher::Regex(_))) {
        return;
    }
    // By host and text up to the last slash; true where something has to follow that.
    let mut covers: Map<(Option<&Host>, &str, bool), usize> = Map::default();
    for (index, (_, rule)) in rules.iter().enumerate().filter(|(_, (_, r))| r.conditions.is_empty())
    {
        let Some((text, more)) = rule.matcher.covered_beginning() else { continue };
        for host in hosts(rule) {
            covers.entry((host, text, more)).or_insert(index);
        }
    }
    for (route, rule) in rules {
        let Matcher::Regex(pattern) = &rule.matcher else { continue };
        let literal = pattern.literal_beginning();
        let cover = |host| {
            // Every path begins with a slash, whatever the expression says.
            let slashes = literal.match_indices('/').map(|(at, _)| at);
            let mut ways = slashes.map(|at| (&literal[..at], at + 1 < literal.len()));
            let root = covers.get(&(host, "", false)).copied();
            root.or_else(|| {
                ways.find_map(|(text, more)| {
                    let prefix = covers.get(&(host, text, false));
                    prefix.or_else(|| more.then(|| covers.get(&(host, text, true)))?).copied()
                })
            })
        };
        let first: Option<Vec<usize>> = hosts(rule).map(cover).collect();
        if let Some(first) = first.and_then(|all| all.first().copied()) {
            warnings.push_with(|| never_asked(route, rules[first].0));
        }
    }
}

fn never_asked(route: &written::Route<'_>, first: &written::Route<'_>) -> Diagnostic {
    let id = &route.id.value;
    let label = format!("route `{}` takes these paths and has no conditions", first.id.value);
    Diagnostic::warning(route.matcher.span(), format!("route `{id}` is never reached"))
        .label("expressions are asked after `path` and `prefix`")
        .other(first.matcher.span(), label)
        .remedy("write it as `path` with {name} segments or as a longer `prefix`")
}

fn shadowed(route: &written::Route<'_>, first: Option<&written::Route<'_>>) -> Diagnostic {
    let id = &route.id.value;
    let warning =
        Diagnostic::warning(route.matcher.span(), format!("route `{id}` is never reached"))
            .label("every request takes the other")
            .remedy("give it a smaller `priority` than the other, or remove it");
    match first {
        Some(first) => {
            let label = format!("route `{}` comes first and has no conditions", first.id.value);
            warning.other(first.matcher.span(), label)
        }
        None => warning,
    }
}

fn contradiction(route: &written::Route<'_>, rule: &Rule, warnings: &mut Diagnostics) {
    let conditions = &rule.conditions;
    let pairs = conditions
        .iter()
        .enumerate()
        .flat_map(|(at, one)| conditions[at + 1..].iter().map(move |other| (one, other)));
    let clash = pairs.into_iter().find(|(one, other)| one.contradicts(other));
    if let (Some((one, other)), Some(when)) = (clash, route.when) {
        let message = format!("no request meets the conditions of route `{}`", route.id.value);
        warnings.push(
            Diagnostic::warning(when.span.clone(), message)
                .label(format!("\"{one}\" against \"{other}\""))
                .other(route.id.span(), "never reached")
                .remedy("all conditions of a route must hold; make two routes of it for \"or\""),
        );
    }
}

fn priority(route: &written::Route<'_>) -> u32 {
    route.priority.unwrap_or(PRIORITY_DEFAULT)
}

fn places(rule: &Rule) -> impl Iterator<Item = Place<'_>> {
    hosts(rule).map(|host| (host, rule.matcher.key()))
}

/// The hosts of a route; none is any.
fn hosts(rule: &Rule) -> impl Iterator<Item = Option<&Host>> {
    let any = rule.hosts.is_empty().then_some(None);
    any.into_iter().chain(rule.hosts.iter().map(Some))
}

/// Conditions in one order: what they are does not depend on it.
fn words(rule: &Rule) -> Vec<String> {
    let mut words: Vec<String> = rule.conditions.iter().map(ToString::to_string).collect();
    words.sort_unstable();
    words.dedup();
    words
}
