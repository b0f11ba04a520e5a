//! Routing from configuration to decision: order, hosts, conditions, targets, and what is said of
//! routes that are wrong.

#[path = "routing/findings.rs"]
mod findings;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ringway::config::Source;
use ringway::context::RequestContext;
use ringway::context::condition::slot;
use ringway::context::source::scans;
use ringway::limits;
use ringway::route::Action;
use ringway::snapshot::explain::{Query, explain};
use ringway::snapshot::{Ids, Snapshot, compile};
use serde_json::Value;

const TOP: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n\
    [upstream.u]\nendpoints = [\n  { address = \"127.0.0.1:9001\", zone = \"a\" },\n  \
    { address = \"127.0.0.1:9002\", zone = \"b\" },\n]\n";

/// Routes, each an id and its lines but for the upstream.
fn file(routes: &[(&str, &str)]) -> String {
    let route = |(id, lines): &(&str, &str)| {
        let acts = ["upstream =", "targets =", "redirect =", "respond ="];
        let upstream =
            if acts.iter().any(|act| lines.contains(act)) { "" } else { "upstream = \"u\"" };
        format!("[[route]]\nid = \"{id}\"\n{lines}\n{upstream}\n")
    };
    TOP.to_owned() + &routes.iter().map(route).collect::<String>()
}

fn taken(routes: &[(&str, &str)]) -> Snapshot {
    let text = file(routes);
    match compile(&text, &mut Ids::default(), 1) {
        Ok((snapshot, warnings)) => {
            assert!(warnings.is_empty(), "{}", render(&warnings, &text));
            snapshot
        }
        Err(errors) => panic!("{}", render(&errors, &text)),
    }
}

fn said(routes: &[(&str, &str)]) -> String {
    let text = file(routes);
    match compile(&text, &mut Ids::default(), 1) {
        Ok((_, found)) | Err(found) => render(&found, &text),
    }
}

fn render(found: &ringway::config::Diagnostics, text: &str) -> String {
    found.render(&Source::toml("x.toml", text).into(), false)
}

fn context(line: &str, host: &str, fields: &str) -> RequestContext {
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    let (mut context, _) = RequestContext::of_head(head.as_bytes()).expect("a valid head");
    context.client.address = IpAddr::from([192, 0, 2, 7]);
    context
}

fn id<'a>(snapshot: &'a Snapshot, context: &RequestContext) -> &'a str {
    snapshot.routes.find(context).map_or("-", |route| &route.id)
}

fn got<'a>(snapshot: &'a Snapshot, path: &str) -> &'a str {
    id(snapshot, &context(&format!("GET {path}"), "any.test", ""))
}

fn of_host<'a>(snapshot: &'a Snapshot, host: &str) -> &'a str {
    id(snapshot, &context("GET /x", host, ""))
}

/// R1, R2, R15: exact, then the longest way through the tree, then expressions in their order.
#[test]
fn paths_are_tried_in_the_documented_order() {
    let snapshot = taken(&[
        ("any-regex", "regex = '.*'"),
        ("user", "prefix = \"/user/\""),
        ("param", "path = \"/user/{id}/orders\""),
        ("rest", "path = \"/user/{id}/files/{*rest}\""),
        ("literal", "path = \"/user/me/{what}\""),
        ("exact", "path = \"/user/7/orders\""),
        ("deep", "prefix = \"/user/me/orders\""),
        ("encoded", "path = \"/a%2Fb\""),
    ]);
    for (path, route) in [
        ("/user/7/orders", "exact"),
        ("/user/8/orders", "param"),
        ("/user/8/orders/", "user"),
        ("/user//orders", "user"),
        ("/user/me/orders", "deep"),
        ("/user/me/other", "literal"),
        ("/user/me/orders/5", "deep"),
        ("/user/8/files/a/b", "rest"),
        ("/user/8/files/", "user"),
        ("/user", "user"),
        ("/users/x/5", "any-regex"),
        ("/a%2Fb", "encoded"),
        ("/a%2fb", "any-regex"),
    ] {
        assert_eq!(got(&snapshot, path), route, "{path}");
    }
}

#[test]
fn hosts_go_before_paths() {
    let snapshot = taken(&[
        ("any", "prefix = \"/\""),
        ("name", "prefix = \"/\"\nhosts = [\"API.example.com\", \"[2001:db8:0::1]\"]"),
        ("wild", "prefix = \"/\"\nhosts = [\"*.example.com\"]"),
        ("longer", "prefix = \"/x\"\nhosts = [\"*.b.example.com\"]"),
        ("narrow", "path = \"/y\"\nhosts = [\"c.example.com\"]"),
    ]);
    for (host, route) in [
        ("api.example.com", "name"),
        ("Api.Example.Com.:8080", "name"),
        ("[2001:db8::1]:80", "name"),
        ("[2001:db8::2]", "any"),
        ("www.example.com", "wild"),
        ("a.b.c.example.com", "wild"),
        ("a.b.example.com", "longer"),
        ("b.example.com", "wild"),
        ("example.com", "any"),
        ("xexample.com", "any"),
        (".example.com", "any"),
        ("c.example.com", "wild"),
        ("127.0.0.1:80", "any"),
    ] {
        assert_eq!(of_host(&snapshot, host), route, "{host}");
    }
    let bare = RequestContext::of_head(b"GET /x HTTP/1.0\r\n\r\n").expect("valid").0;
    assert_eq!(id(&snapshot, &bare), "any", "without Host only routes without hosts");
}

/// R13: a canary rule goes before the main one, by its priority; R12: by header, method, client.
#[test]
fn conditions_choose_among_routes_by_priority() {
    let snapshot = taken(&[
        ("main", "prefix = \"/user/\""),
        (
            "canary",
            "prefix = \"/user/\"\npriority = 10\nwhen = [{ header = \"x-canary\", equals = \"true\" }]",
        ),
        ("inner", "prefix = \"/user/\"\npriority = 20\nwhen = [{ client = [\"10.0.0.0/8\"] }]"),
        ("post", "path = \"/user/new\"\nwhen = [{ method = [\"POST\", \"PUT\"] }]"),
    ]);
    let find = |line: &str, fields: &str| id(&snapshot, &context(line, "a", fields)).to_owned();
    assert_eq!(find("GET /user/1", ""), "main");
    assert_eq!(find("GET /user/1", "X-Canary: true\r\n"), "canary");
    assert_eq!(find("GET /user/1", "X-Canary: no\r\nx-canary: true\r\n"), "canary", "any line");
    assert_eq!(find("POST /user/new", ""), "post");
    assert_eq!(find("GET /user/new", ""), "main", "on to the next pattern");
    let mut inside = context("GET /user/1", "a", "");
    inside.client.address = IpAddr::from([10, 1, 2, 3]);
    assert_eq!(id(&snapshot, &inside), "inner");
}

#[test]
fn every_comparator_and_its_negation() {
    let fields = "X-A: one-two\r\nCookie: a=1; uid=\"u 7\"; a=2\r\n";
    let holds = |condition: &str| {
        let when = format!("prefix = \"/\"\nwhen = [{{ {condition} }}]");
        let not = format!("prefix = \"/\"\nwhen = [{{ {condition}, not = true }}]");
        let asked = context("GET /p?q=a%20b&q=c+d&%65=1&empty", "a.test", fields);
        let yes = id(&taken(&[("r", &when)]), &asked) == "r";
        assert_ne!(yes, id(&taken(&[("r", &not)]), &asked) == "r", "{condition}");
        yes
    };
    for (condition, wanted) in [
        ("header = 'x-a', equals = 'one-two'", true),
        ("header = 'X-A', equals = 'one-TWO'", false),
        ("header = 'x-a', in = ['x', 'one-two']", true),
        ("header = 'x-a', prefix = 'one'", true),
        ("header = 'x-a', prefix = 'two'", false),
        ("header = 'x-a', suffix = 'two'", true),
        ("header = 'x-a', contains = 'e-t'", true),
        ("header = 'x-a', matches = '^[a-z]+-two$'", true),
        ("header = 'x-a', matches = 'thr'", false),
        ("header = 'x-a', present = true", true),
        ("header = 'x-b', present = true", false),
        ("header = 'x-b', present = false", true),
        ("header = 'x-b', equals = ''", false),
        ("cookie = 'a', equals = '2'", true),
        ("cookie = 'uid', equals = 'u 7'", true),
        ("cookie = 'A', present = true", false),
        ("query = 'q', equals = 'a b'", true),
        ("query = 'q', equals = 'c d'", true),
        ("query = 'e', equals = '1'", true),
        ("query = 'empty', equals = ''", true),
        ("query = 'none', present = true", false),
        ("method = 'GET'", true),
        ("method = ['POST']", false),
        ("client = ['192.0.2.0/24']", true),
        ("client = ['192.0.3.0/24', '::/0']", false),
        ("hash = 'cookie:uid', slots = [0, 10000]", true),
        ("hash = 'cookie:none', slots = [0, 10000]", false),
    ] {
        assert_eq!(holds(condition), wanted, "{condition}");
    }
}

/// R17: slots are the same everywhere and always, and evenly used.
#[test]
fn slots_are_stable_and_even() {
    // Fixed for ever: a release that changes them moves users between experiments.
    for (salt, value, fixed) in [
        ("", "", 4088),
        ("exp-1", "user-1", 4155),
        ("exp-2", "user-1", 188),
        ("exp-1", "10.0.0.1", 1325),
    ] {
        assert_eq!(slot(salt, value.as_bytes()), fixed, "{salt} {value}");
    }
    assert_ne!(slot("ab", b"c"), slot("a", b"bc"), "salt and value are told apart");
    const VALUES: u32 = 1_000_000;
    let mut counts = vec![0u32; usize::from(limits::SLOTS)];
    for value in 0..VALUES {
        counts[usize::from(slot("exp-1", value.to_string().as_bytes()))] += 1;
    }
    let expected = f64::from(VALUES) / f64::from(limits::SLOTS);
    let chi: f64 =
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    // 9,999 degrees of freedom: mean 9,999, standard deviation 141; five of them on each side.
    assert!((9_290.0..10_710.0).contains(&chi), "{chi}");
    let share: u32 = counts[..1_000].iter().sum();
    assert!(share.abs_diff(VALUES / 10) < VALUES / 1_000, "a tenth within 1 %: {share}");
}

/// P10: who asks for neither cookies nor the query makes nobody parse them.
#[test]
fn cookies_and_query_are_scanned_only_where_a_route_asks() {
    let snapshot = taken(&[
        ("plain", "path = \"/plain\""),
        ("header", "path = \"/header\"\nwhen = [{ header = \"x\", present = false }]"),
        ("cookie", "path = \"/cookie\"\nwhen = [{ cookie = \"a\", equals = \"1\" }]"),
        ("query", "path = \"/query\"\nwhen = [{ query = \"a\", equals = \"1\" }]"),
    ]);
    let scanned = |path: &str| {
        let asked = context(&format!("GET {path}?a=1"), "a", "Cookie: a=1\r\n");
        let before = scans();
        assert_eq!(id(&snapshot, &asked), &path[1..]);
        (scans().0 - before.0, scans().1 - before.1)
    };
    assert_eq!(scanned("/plain"), (0, 0));
    assert_eq!(scanned("/header"), (0, 0));
    assert_eq!(scanned("/cookie"), (1, 0));
    assert_eq!(scanned("/query"), (0, 1));
}

/// R17: weights, and a zone of the route or of the target.
#[test]
fn targets_have_weights_and_zones() {
    let targets = "prefix = \"/\"\nzone = \"a\"\ntargets = [{ upstream = \"u\", weight = 90 }, \
        { upstream = \"u\", weight = 10, zone = \"b\" }, { upstream = \"u\", weight = 0 }]";
    let snapshot = taken(&[("r", targets)]);
    let route = snapshot.routes.get(0).expect("a route");
    let Action::Forward(targets) = &route.action else { panic!("forwarded") };
    let zones: Vec<_> = targets.all().iter().map(|target| target.zone.as_deref()).collect();
    assert_eq!(zones, [Some("a"), Some("b"), Some("a")]);
    assert_eq!(route.zone(1), Some("b"));
    let mut counts = BTreeMap::new();
    for step in 0..1_000u64 {
        *counts.entry(targets.choose_index(step * (u64::MAX / 1_000))).or_insert(0) += 1;
    }
    assert!((899..=901).contains(&counts[&0]) && !counts.contains_key(&2), "{counts:?}");
}

#[test]
fn what_is_wrong_with_a_route_is_said() {
    let prefix = |lines: &str| format!("prefix = \"/\"\n{lines}");
    let when = |condition: &str| prefix(&format!("when = [{condition}]"));
    for (lines, parts) in [
        ("upstream = \"u\"".to_owned(), &["`path`, `prefix` or `regex` is missing"][..]),
        ("path = \"/\"\nregex = \"/\"".into(), &["`path` and `regex` exclude each other"]),
        ("prefix = \"/{a}\"".into(), &["a prefix has no parameters", "{*rest}"]),
        ("path = \"/a/{b}c\"".into(), &["a parameter is a whole segment"]),
        ("path = \"/%41\"".into(), &["no request has the path", "write \"A\""]),
        ("path = \"/%4\"".into(), &["two hexadecimal digits"]),
        ("regex = \"/a(\"".into(), &["not a regular expression", "unclosed group"]),
        (prefix("hosts = []"), &["out of bounds"]),
        (prefix("hosts = [\"a:80\"]"), &["`a:80` is not a host", "without it"]),
        (prefix("hosts = [\"a.*.b\"]"), &["whole first label"]),
        (prefix("hosts = [\"http://a\"]"), &["is not a host"]),
        (prefix("hosts = [\"*.\"]"), &["is not a host"]),
        (
            prefix("hosts = [\"a.b\", \"c\", \"A.b.\"]"),
            &["the host `a.b` stands twice", "the first"],
        ),
        (
            "path = \"/{id}\"\nfilters = [{ kind = \"headers\", set = { x = \"${path.idd}\" } }]"
                .into(),
            &["has no parameter `idd`", "did you mean `id`?"],
        ),
        (prefix("priority = -1"), &["out of bounds"]),
        (prefix("when = []"), &["out of bounds"]),
        (when("{}"), &["key `method`, `header`", "is missing"]),
        (when("{ header = \"a\" }"), &["key `equals`, `in`", "`present` is missing"]),
        (when("{ header = \"a b\", present = true }"), &["not the name of a header"]),
        (when("{ header = \"a\", equals = \"b\", prefix = \"c\" }"), &["exclude each other"]),
        (when("{ header = \"a\", cookie = \"b\" }"), &["exclude each other"]),
        (when("{ method = \"get\" }"), &["in capitals: \"GET\""]),
        (when("{ method = \"GET\", equals = \"x\" }"), &["unknown key `equals`"]),
        (when("{ client = [\"10.0.0.0/33\"] }"), &["not a network"]),
        (when("{ header = \"a\", matches = \"(\" }"), &["not a regular expression"]),
        (when("{ hash = \"cookie\", slots = [0, 1] }"), &["is no value of a request"]),
        (when("{ hash = \"client\" }"), &["key `slots` is missing"]),
        (when("{ hash = \"path:id\", slots = [0, 1] }"), &["`path:id` depends on the route"]),
        (prefix("hosts = [\"*.[::1]\"]"), &["is not a host"]),
        (when("{ hash = \"client\", slots = [5, 5] }"), &["no slot is in [5, 5]", "[5, 6]"]),
        (when("{ hash = \"client\", slots = [0, 10001] }"), &["10001 is out of bounds"]),
        (prefix("upstream = \"uu\""), &["there is no upstream `uu`", "`u`"]),
        (prefix("zone = \"frankfurt\""), &["`u` is in zone `frankfurt`", "its endpoints: a, b"]),
        (prefix("targets = []"), &["out of bounds"]),
        (
            prefix("targets = [{ upstream = \"u\", weight = 0 }]"),
            &["every weight of route `r` is 0"],
        ),
        (prefix("rewrite = \"/x/{a}\""), &["prefix has no parameter `a`"]),
        (prefix("rewrite = \"x\""), &["`x` is not a path", "begin with"]),
        (prefix("rewrite = \"/x\"\nskip_segments = 1"), &["exclude each other"]),
        (prefix("host_rewrite = \"a b\""), &["this is not a host"]),
        (prefix("host_rewrite = \"${response.status}\""), &["not known before"]),
        (prefix("host_rewrite = \"${path.a}\""), &["prefix has no parameter `a`"]),
        (prefix("redirect = { to = \"x\" }"), &["not a place to go to", "https://"]),
        (prefix("redirect = { to = \"/\", status = 300 }"), &["300 is no redirect"]),
        (prefix("redirect = { to = \"/${requst.path}\" }"), &["did you mean `request.path`?"]),
        (prefix("redirect = { to = \"/\" }\nzone = \"a\""), &["`zone` does nothing"]),
        (prefix("respond = { status = 99 }"), &["99 is out of bounds"]),
        (prefix("respond = { status = 204, body = \"x\" }"), &["has no body"]),
        (prefix("respond = {}"), &["key `status` is missing"]),
    ] {
        let message = said(&[("r", &lines)]);
        assert_eq!(message.matches("error: ").count(), 1, "{lines}:\n{message}");
        for part in parts.iter().copied().chain(["help: ", "x.toml:"]) {
            assert!(message.contains(part), "{part:?} of {lines} in\n{message}");
        }
    }
}

/// R3: duplicates are refused with both names; what only looks alike is taken.
#[test]
fn the_same_route_twice_is_refused() {
    let same = |one: &str, two: &str| said(&[("one", one), ("two", two)]);
    for (one, two) in [
        ("path = \"/{a}/x\"", "path = \"/{b}/x\""),
        ("regex = '/a'", "regex = '/a'"),
        ("prefix = \"/\"\nhosts = [\"a\", \"b\"]", "prefix = \"/\"\nhosts = [\"c\", \"B\"]"),
        (
            "path = \"/\"\nwhen = [{ method = 'GET' }, { header = 'A', present = true }]",
            "path = \"/\"\nwhen = [{ header = 'a', present = true }, { method = 'GET' }]",
        ),
    ] {
        let message = same(one, two);
        assert!(message.contains("routes `one` and `two` take the same paths"), "{message}");
    }
    for (one, two) in [
        ("path = \"/{a}/x\"", "path = \"/{*b}\""),
        ("prefix = \"/\"\nhosts = [\"a\"]", "prefix = \"/\""),
        ("path = \"/\"\nwhen = [{ method = 'GET' }]", "path = \"/\""),
    ] {
        assert_eq!(same(one, two), "", "{one} {two}");
    }
}

#[test]
fn routes_that_cannot_match_are_warnings_with_both_places() {
    let shadowed = said(&[
        ("all", "prefix = \"/a\""),
        ("never", "prefix = \"/a/\"\nwhen = [{ method = 'GET' }]"),
    ]);
    for part in
        ["warning: route `never` is never reached", "route `all` comes first", "x.toml:14:10"]
    {
        assert!(shadowed.contains(part), "{part} in\n{shadowed}");
    }
    let first = [("all", "path = \"/a\""), ("never", "path = \"/a\"\npriority = 101")];
    assert!(said(&first).contains("route `never` is never reached"));
    taken(&[
        ("all", "path = \"/a\""),
        ("first", "path = \"/a\"\npriority = 99\nwhen = [{ method = 'GET' }]"),
    ]);
    for conditions in [
        "{ method = 'GET' }, { method = ['PUT', 'POST'] }",
        "{ header = 'a', present = false }, { header = 'a', equals = 'x' }",
        "{ cookie = 'a', equals = 'x' }, { cookie = 'a', equals = 'x', not = true }",
        "{ hash = 'client', slots = [0, 5] }, { hash = 'client', slots = [5, 9] }",
    ] {
        let message = said(&[("r", &format!("path = \"/a\"\nwhen = [{conditions}]"))]);
        assert!(message.contains("no request meets the conditions of route `r`"), "{message}");
    }
}

fn explained(snapshot: &Snapshot, query: &Query) -> Value {
    explain(snapshot, query).expect("a question")
}

#[test]
fn an_explanation_says_why() {
    let snapshot = taken(&[
        (
            "canary",
            "prefix = \"/user/\"\npriority = 10\nwhen = [{ method = 'GET' }, { header = 'x-canary', equals = 'true' }]",
        ),
        (
            "user",
            "prefix = \"/user/\"\nskip_segments = 1\ntimeouts = { response = \"1s\" }\nzone = \"b\"\nhost_rewrite = \"${upstream.name}.test\"",
        ),
        ("order", "path = \"/Order/{id}\"\nhosts = [\"api.test\"]"),
        ("old", "prefix = \"/old\"\nredirect = { to = \"https://${request.host}/new\" }"),
        ("up", "path = \"/up\"\nrespond = { status = 200, body = \"up\" }"),
    ]);
    let mut query = Query::new("GET", "http://any.test/x/../user/7?a=b");
    query.add_header("X-Canary: no").expect("valid");
    let answer = explained(&snapshot, &query);
    assert_eq!(answer["path"], "/user/7");
    let failed = "wants header x-canary equals \"true\"; the request has \"no\"";
    assert_eq!(answer["steps"][0]["failed"], failed);
    assert_eq!(answer["steps"][1]["failed"], Value::Null);
    assert_eq!(answer["route"]["id"], "user");
    assert_eq!(answer["upstream_target"], "/7?a=b");
    assert_eq!(answer["upstream_host"], "u.test");
    let target = &answer["targets"][0];
    assert_eq!(target["endpoints"].as_array().map(Vec::len), Some(1));
    assert_eq!(target["endpoints"][0]["address"], "127.0.0.1:9002");
    assert_eq!(target["timeouts_ms"]["response"], 1_000);

    let near = |url: &str| explained(&snapshot, &Query::new("GET", url))["near"].to_string();
    assert!(near("http://b.test/Order/7").contains("it is for the host api.test"));
    assert!(near("http://api.test/order/7").contains("the case of letters differs"));
    assert!(near("http://api.test/Order/7/").contains("no slash at the end"));
    assert!(near("http://api.test/Order/7/x").contains("only the first 2 segments"));
    assert!(near("http://api.test/up/").contains("no slash at the end"));
    assert_eq!(near("http://api.test/zzz"), "[]");

    let answer = explained(&snapshot, &Query::new("GET", "http://a.test/old/x"));
    assert_eq!(answer["redirect"]["location"], "https://a.test/new");
    let answer = explained(&snapshot, &Query::new("GET", "/up"));
    assert_eq!(answer["respond"]["status"], 200);
    let answer = explained(&snapshot, &Query::new("GET", "/user/%00"));
    assert_eq!(answer["refused"]["code"], "path_refused");
    let answer = explained(&snapshot, &Query::new("GET", "/a%zz"));
    assert_eq!((&answer["matched"], &answer["refused"]["status"]), (&false.into(), &400.into()));
}

/// R2: a million routes are one configuration.
#[test]
fn a_great_many_routes_are_found() {
    use ringway::route::{Matcher, RoutePlan, RouteTable, Target, Targets};
    use ringway::upstream::UpstreamId;
    let plan = |index: usize| {
        let target = Target { upstream: UpstreamId(0), weight: 1, zone: None, directed: None };
        let matcher = match index % 4 {
            0 => Matcher::Prefix(format!("/p/{index}/").into()),
            1 => Matcher::of_path(&format!("/q/{{id}}/{index}")).expect("valid"),
            _ => Matcher::Exact(format!("/e/{index}").into()),
        };
        RoutePlan::new(index, format!("r{index}"), matcher, Action::Forward(Targets::One(target)))
    };
    let table = RouteTable::new((0..200_000).map(|index| std::sync::Arc::new(plan(index))));
    for index in (0..200_000).step_by(977) {
        let path = match index % 4 {
            0 => format!("/p/{index}/x"),
            1 => format!("/q/z/{index}"),
            _ => format!("/e/{index}"),
        };
        let asked = context(&format!("GET {path}"), "a", "");
        assert_eq!(table.find(&asked).map(|route| route.index), Some(index), "{path}");
    }
    assert!(table.find(&context("GET /e/200002", "a", "")).is_none());
}

fn ringway(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The page shows what the command prints.
#[test]
fn the_page_shows_a_real_explanation() {
    let page = include_str!("../docs/routing.md");
    let shown =
        page.split("```console\n$ ringway ").nth(1).and_then(|rest| rest.split("```").next());
    let (command, printed) = shown.and_then(|text| text.split_once('\n')).expect("an example");
    let mut arguments = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        match index % 2 {
            0 => arguments.extend(part.split_whitespace()),
            _ => arguments.push(part),
        }
    }
    let (code, out, error) = ringway(&arguments);
    assert_eq!((code, &*error), (Some(0), ""));
    assert_eq!(out, printed);
}

#[test]
fn explain_has_its_exit_codes() {
    let file = "configs/routing.toml";
    let (code, out, _) = ringway(&["explain", "GET", "/Alive", "-c", file]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("the case of letters differs") && out.contains("404 route_missing"));
    let inside = ["explain", "GET", "http://admin.example.com/internal/", "--client", "10.0.0.9"];
    let (code, out, _) = ringway(&[&inside[..], &["--json", "-c", file]].concat());
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &answer["route"]["id"]), (Some(0), &"internal".into()));
    assert_eq!(answer["upstream_host"], "user.internal.example.com");
    for (arguments, wanted) in [
        (&["explain", "GET", "nowhere", "-c", file][..], 2),
        (&["explain", "GET", "/", "-H", "x", "-c", file], 2),
        (&["explain", "GET", "/", "-c", "tests/broken/bad-pattern.toml"], 78),
    ] {
        let (code, _, error) = ringway(arguments);
        assert_eq!(code, Some(wanted), "{arguments:?}: {error}");
        assert!(!error.is_empty(), "{arguments:?}");
    }
}

/// What is said of a broken pattern is what docs and newcomers are shown.
#[test]
fn a_broken_pattern_is_explained() {
    let text = include_str!("broken/bad-pattern.toml");
    let errors = compile(text, &mut Ids::default(), 1).expect_err("refused");
    let source = Source::toml("bad-pattern.toml", text).into();
    assert_eq!(errors.render(&source, false), include_str!("broken/bad-pattern.txt"));
}
