//! Why a request gets the route that it gets, and which it nearly got.

use super::path::Matcher;
use super::plan::{Host, RoutePlan};
use super::table::RouteTable;
use crate::context::RequestContext;
use crate::http::host::HostText;
use crate::limits::NEAR_MISSES_MAX;

/// What the look-up did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The routes whose host and path took the request, in the order in which they were tried; the
    /// last is the one that was found.
    pub steps: Vec<Step>,
    /// Steps that are left out because there are too many.
    pub more: usize,
    /// The place of the route in the configuration, if one was found.
    pub found: Option<usize>,
    /// Where one was found: others that take this host and path, but come behind it.
    pub later: Vec<usize>,
    /// Where none was found: the routes that were nearest.
    pub near: Vec<NearMiss>,
}

/// A route whose host and path took a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Its place in the configuration.
    pub route: usize,
    /// The host by which it was found, as written; empty is any.
    pub host: String,
    /// Its first condition that did not hold, and why; none for the route that was found.
    pub failed: Option<String>,
}

/// A route that nearly took a request.
#[derive(Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// Its place in the configuration.
    pub route: usize,
    /// What kept it from taking the request.
    pub why: String,
}

impl RouteTable {
    /// Looks a request up as [`RouteTable::find`] does and says what happened on the way.
    pub fn explain(&self, context: &RequestContext) -> Explanation {
        let mut explanation = Explanation::default();
        let found = self.walk(context, &mut |tier, candidates| {
            for number in self.members(&candidates) {
                let route = &self.routes[number as usize];
                let failed = route.conditions().iter().find(|one| !one.holds(context));
                let failed = failed.map(|condition| condition.failure(context));
                let found = failed.is_none();
                if found || explanation.steps.len() < STEPS_MAX {
                    let host = self.host_of(tier).to_owned();
                    explanation.steps.push(Step { route: number as usize, host, failed });
                } else {
                    explanation.more += 1;
                }
                if found {
                    return Some(number);
                }
            }
            None
        });
        explanation.found = found.map(|number| number as usize);
        match explanation.found {
            Some(index) => explanation.later = self.later(context, index, &explanation.steps),
            None => explanation.near = self.near_misses(context),
        }
        explanation
    }

    /// Routes that the look-up did not come to.
    fn later(&self, context: &RequestContext, found: usize, steps: &[Step]) -> Vec<usize> {
        let asked = |index: usize| steps.iter().any(|step| step.route == index);
        let takes = |route: &RoutePlan| {
            takes_host(route.hosts(), context) && route.matcher.takes(context.path())
        };
        let others = self.routes.iter().enumerate().filter(|(_, route)| takes(route));
        let unasked = others.map(|(index, _)| index).filter(|index| !asked(*index));
        // Steps that are left out were asked too; then nothing is said rather than something wrong.
        let all_known = steps.len() < STEPS_MAX;
        unasked.filter(|index| all_known && *index != found).take(LATER_SHOWN).collect()
    }

    fn near_misses(&self, context: &RequestContext) -> Vec<NearMiss> {
        let asked = Asked::of(context);
        let mut near: Vec<(u32, NearMiss)> = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            let Some((rank, why)) = nearness(route, &asked) else { continue };
            near.push((rank, NearMiss { route: index, why }));
            if near.len() > 64 * NEAR_MISSES_MAX {
                near.sort_by_key(|(rank, _)| *rank);
                near.truncate(NEAR_MISSES_MAX);
            }
        }
        // Stable: in the order of the configuration where they are as near.
        near.sort_by_key(|(rank, _)| *rank);
        near.into_iter().take(NEAR_MISSES_MAX).map(|(_, near)| near).collect()
    }
}

/// A request, and what nearly is its path.
struct Asked<'a> {
    context: &'a RequestContext,
    path: &'a [u8],
    /// With a slash at the end, or without.
    turned: Vec<u8>,
    lower: Vec<u8>,
}

impl<'a> Asked<'a> {
    fn of(context: &'a RequestContext) -> Asked<'a> {
        let path = context.path();
        let turned = match path {
            [rest @ .., b'/'] if !rest.is_empty() => rest.to_vec(),
            path => [path, b"/"].concat(),
        };
        Asked { context, path, turned, lower: path.to_ascii_lowercase() }
    }
}

/// How near a route is, 0 the nearest, and what is in the way. What failed by a condition is none:
/// it stands among the steps.
fn nearness(route: &RoutePlan, asked: &Asked<'_>) -> Option<(u32, String)> {
    let Asked { context, path, turned, lower } = asked;
    let matcher = &route.matcher;
    let here = takes_host(route.hosts(), context);
    let elsewhere = |rank: u32| if here { rank } else { rank + FOREIGN };
    let host = || {
        let hosts: Vec<_> = route.hosts().iter().take(HOSTS_SHOWN).map(Host::to_string).collect();
        let has = context.host().map(|host| String::from_utf8_lossy(host).into_owned());
        let has = has.map_or("there is no Host".into(), |host| format!("the host is {host:?}"));
        format!("it is for the host {}; {has}", hosts.join(", "))
    };
    if matcher.takes(path) {
        return (!here).then(|| (0, host()));
    }
    let also = || if here { String::new() } else { format!("; {}", host()) };
    if matcher.takes(turned) {
        let wants = if turned.len() < path.len() { "no slash" } else { "a slash" };
        return Some((elsewhere(1), format!("its path has {wants} at the end{}", also())));
    }
    if takes_in_other_case(matcher, path, lower) {
        return Some((elsewhere(2), format!("the case of letters differs{}", also())));
    }
    let shared = shared_segments(matcher, path);
    let why = || {
        let same = match shared {
            1 => "segment of the path is".to_owned(),
            many => format!("{many} segments of the path are"),
        };
        format!("only the first {same} the same{}", also())
    };
    (shared > 0).then(|| (elsewhere(SHARED - shared.min(SHARED - 3)), why()))
}

fn takes_host(hosts: &[Host], context: &RequestContext) -> bool {
    let Some(host) = context.host().and_then(HostText::of) else { return hosts.is_empty() };
    hosts.is_empty()
        || hosts.iter().any(|known| match known {
            Host::Name(name) => name.as_bytes() == host.bytes(),
            Host::Wildcard(rest) => {
                let labels = host.bytes().strip_suffix(rest.as_bytes());
                labels.is_some_and(|labels| labels.len() > 1 && labels.ends_with(b"."))
            }
        })
}

fn takes_in_other_case(matcher: &Matcher, path: &[u8], lower: &[u8]) -> bool {
    match matcher {
        Matcher::Exact(text) => text.as_bytes().eq_ignore_ascii_case(path),
        Matcher::Prefix(text) => {
            let prefix = text.strip_suffix('/').unwrap_or(text).as_bytes();
            path.split_at_checked(prefix.len()).is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(prefix) && matches!(rest.first(), None | Some(b'/'))
            })
        }
        Matcher::Segments(_) => Matcher::of_path(&matcher.text().to_ascii_lowercase())
            .is_ok_and(|matcher| matcher.takes(lower)),
        Matcher::Regex(_) => false,
    }
}

/// How many segments at the beginning are the same.
fn shared_segments(matcher: &Matcher, path: &[u8]) -> u32 {
    if let Matcher::Regex(_) = matcher {
        return 0;
    }
    let same = |(one, two): &(&[u8], &[u8])| {
        one == two || one.starts_with(b"{") && one.ends_with(b"}") && !two.is_empty()
    };
    let wanted = matcher.text().as_bytes().split(|byte| *byte == b'/').skip(1);
    let has = path.split(|byte| *byte == b'/').skip(1);
    let shared = wanted.filter(|segment| !segment.is_empty()).zip(has).take_while(same).count();
    u32::try_from(shared).unwrap_or(SHARED)
}

/// Steps that an explanation names.
const STEPS_MAX: usize = 100;
/// Routes behind the one that was found that an explanation names.
const LATER_SHOWN: usize = 10;
/// Hosts of a route that an explanation names.
const HOSTS_SHOWN: usize = 4;
/// Ranks: routes of other hosts stand behind those of this one; those that share segments behind
/// those that nearly have the path.
const FOREIGN: u32 = 1 << 20;
const SHARED: u32 = 1 << 10;
