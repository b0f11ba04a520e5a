//! Configuration files from the outside: what is taken, and what is said of what is not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use ringway::config::Source;
use ringway::context::RequestContext;
use ringway::limits;
use ringway::route::{Action, RoutePlan};
use ringway::snapshot::{AdminPlan, Ids, Snapshot, compile, load};

fn found<'a>(snapshot: &'a Snapshot, path: &str) -> &'a Arc<RoutePlan> {
    let mut context = RequestContext::default();
    context.target.normalised = path.into();
    context.target.changed = true;
    snapshot.routes.find(&context).expect("a route")
}

const FULL: &str = include_str!("../configs/full.toml");
/// The full file as a text of its own: its files are relative to the working directory.
fn full() -> String {
    FULL.replace("\"tls/", "\"configs/tls/")
}

const MINIMAL: &str = include_str!("../configs/minimal.toml");

const LISTENER: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n";
const UPSTREAM: &str = "[upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n";
const ROUTE: &str = "[[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n";

/// The snapshot of a text that must be taken without a warning.
fn taken(text: &str) -> Snapshot {
    match compile(text, &mut Ids::default(), 1) {
        Ok((snapshot, warnings)) => {
            assert!(warnings.is_empty(), "{warnings:?}");
            snapshot
        }
        Err(errors) => panic!("{}", render(&errors, text)),
    }
}

/// Everything that is said of a text.
fn said(text: &str) -> String {
    match compile(text, &mut Ids::default(), 1) {
        Ok((_, warnings)) => render(&warnings, text),
        Err(errors) => render(&errors, text),
    }
}

fn render(found: &ringway::config::Diagnostics, text: &str) -> String {
    found.render(&Source::toml("x.toml", text).into(), false)
}

/// The files of configs, and what each of them has and the smallest one has not.
const SCENARIOS: &[(&str, &[&str])] = &[
    ("minimal", &[]),
    (
        "balancing",
        &["least_request", "max_load_percent", "sticky", "locality", "shard", "fallback"],
    ),
    ("full", &["[admin]", "[access_log]", "[filter.", "targets", "redirect"]),
    ("access-log", &["[access_log]", "format = "]),
    ("behind-a-proxy", &["trusted_proxies", "client = ["]),
    ("bulkheads", &["in_flight_max", "queue = {"]),
    ("canary", &["x-canary", "priority", "weight"]),
    ("cors", &["kind = \"cors\""]),
    ("discovery", &["dns = ", "srv = ", "file = ", "resolver = "]),
    ("environment", &["${WORKERS:-1}", "${PORT:-8080}"]),
    ("experiment", &["hash = \"cookie:uid\"", "slots"]),
    ("headers", &["kind = \"headers\""]),
    ("health", &["health = ", "breaker", "slow_start"]),
    ("grpc", &["kind = \"grpc_web\"", "protocol = \"http2\"", "response = \"1h\""]),
    ("http2-upstream", &["protocol = \"http2\"", "protocol = \"auto\""]),
    ("http2", &["h2c = true", "streams_max", "window = "]),
    ("ip-list", &["kind = \"ip_list\""]),
    ("mutual-tls", &["client_ca", "client_auth", "client_cert"]),
    ("tls", &["certs = [", "tls = \"version\""]),
    ("upstream-tls", &["sni = ", "ca = "]),
    ("outgoing", &["send_proxy = ", "source_address = ", "tcp_keepalive = "]),
    ("many-files", &["include = [", ".json", "*.toml"]),
    ("proxy-protocol", &["proxy_protocol = \"required\"", "${proxy.unique_id}"]),
    ("rate-limit", &["kind = \"rate_limit\""]),
    ("redirects", &["redirect = ", "respond = ", "${request.uri}"]),
    ("hedging", &["hedge_after = ", "budget_percent"]),
    ("retries", &["retry]", "budget_percent", "methods = "]),
    ("routing", &["hosts", "regex", "{*name}", "rewrite"]),
    ("zones", &["zone = ", "weight = ", "targets"]),
];

#[test]
fn every_file_in_configs_is_taken_and_shows_what_its_name_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    for entry in std::fs::read_dir(folder).expect("configs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy();
        let parts = SCENARIOS.iter().find(|(known, _)| *known == name);
        let (_, parts) = parts.unwrap_or_else(|| panic!("{name} stands in SCENARIOS"));
        let loaded = load(&path, &mut Ids::default(), 1).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(loaded.warnings_text(false), "", "{name}");
        assert_eq!(loaded.sources.count() > 1, name == "many-files");
        let text = &loaded.sources.first().text;
        assert!(text.starts_with("# "), "{name} says what it is for");
        for part in *parts {
            assert!(text.contains(part) && !MINIMAL.contains(part), "{part} in {name}");
        }
    }
}

#[test]
fn a_configuration_of_many_files_is_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/many-files.toml");
    let snapshot = load(&path, &mut Ids::default(), 1).unwrap_or_else(|e| panic!("{e}")).snapshot;
    assert_eq!(snapshot.upstreams.len(), 2, "of the JSON file");
    assert_eq!(&*found(&snapshot, "/orders/7").id, "orders");
    assert_eq!(&*found(&snapshot, "/users").id, "users");
}

#[test]
fn the_smallest_file_gets_the_defaults() {
    let snapshot = taken(MINIMAL);
    assert_eq!(snapshot.version, 1);
    assert_eq!(snapshot.runtime.workers, Some(1));
    assert_eq!(snapshot.runtime.drain_ms, limits::DRAIN_MS);
    assert_eq!(snapshot.admin, AdminPlan::Default);
    assert!(!snapshot.fine_timeouts);
    let listener = &snapshot.listeners[0];
    assert_eq!(listener.head, Default::default());
    assert_eq!(listener.head_timeout_ms, limits::HEAD_TIMEOUT_MS);
    let upstream = &snapshot.upstreams[0];
    assert_eq!(upstream.endpoints[0].weight, limits::WEIGHT_DEFAULT);
    assert_eq!(upstream.in_flight_max, 0);
    let Action::Forward(targets) = &snapshot.plans[0].action else { panic!("forwarded") };
    assert_eq!(targets.all()[0].upstream, upstream.id);
}

/// A file that is wrong in one way: text, line and column, and parts of what is said.
type Broken = (String, (usize, usize), &'static [&'static str]);

/// `section` and its line 3 on, with the other two sections behind it.
fn listener(rest: &str) -> String {
    format!("{LISTENER}{rest}\n{UPSTREAM}{ROUTE}")
}

fn upstream(endpoints: &str, rest: &str) -> String {
    format!("[upstream.u]\nendpoints = {endpoints}\n{rest}\n{LISTENER}{ROUTE}")
}

fn route(lines: &str) -> String {
    format!("[[route]]\n{lines}\n{LISTENER}{UPSTREAM}")
}

fn runtime(line: &str) -> String {
    format!("[runtime]\n{line}\n{LISTENER}{UPSTREAM}{ROUTE}")
}

fn admin(lines: &str) -> String {
    format!("[admin]\n{lines}\n[listener.a]\naddress = \"127.0.0.1:80\"\n{UPSTREAM}{ROUTE}")
}

fn broken_sections() -> Vec<Broken> {
    vec![
        (runtime("workers = 0"), (2, 11), &["0 is out of bounds", "from 1 to 1024"]),
        (runtime("workers = 1025"), (2, 11), &["1025 is out of bounds"]),
        (runtime("workers = \"4\""), (2, 11), &["expected \"auto\" or a number", "unquoted"]),
        (runtime("driver = \"iouring\""), (2, 10), &["`iouring`", "did you mean `io_uring`?"]),
        (runtime("drain = 30"), (2, 9), &["expected a duration, found an integer", "\"10s\""]),
        (runtime("drain = \"2d\""), (2, 9), &["too long", "\"1d\""]),
        (runtime("connections_max = 1.5"), (2, 19), &["a whole number, found a float"]),
        (
            runtime("[access_logs]"),
            (2, 2),
            &["unknown key `access_logs`", "did you mean `access_log`?"],
        ),
        (admin("listen = \"0.0.0.0:1\"\nsocket = \"/a\""), (3, 1), &["exclude each other"]),
        (admin(""), (1, 1), &["`listen` or `socket` is missing"]),
        (admin("socket = \"a.sock\""), (2, 10), &["not the path of a socket", "absolute"]),
        (
            admin("listen = \"127.0.0.1:80\""),
            (4, 11),
            &["127.0.0.1:80 is listened on twice", "2 | listen"],
        ),
        (listener("adress = 1"), (3, 1), &["unknown key `adress`", "did you mean `address`?"]),
        (listener("via = \"yes\""), (3, 7), &["expected true or false, found a string"]),
        (listener("trusted_proxies = \"::1\""), (3, 19), &["expected an array"]),
        (listener("trusted_proxies = [\"::1\", \"lo\"]"), (3, 27), &["`lo` is not a network"]),
        (listener("timeouts = { head = \"9ms\" }"), (3, 21), &["shorter than 10 ms", "swept"]),
        (listener("timeouts = 3"), (3, 12), &["expected a table", "{ key = value, ... }"]),
        (listener("head_bytes_max = \"512KiB\""), (3, 18), &["out of bounds", "1024 to 262144"]),
        (listener("head_bytes_max = \"16k\""), (3, 18), &["`16k` is not a size", "16KiB"]),
        (listener("headers_max = 257"), (3, 15), &["257 is out of bounds"]),
        (
            listener("uri_bytes_max = \"16KiB\""),
            (3, 17),
            &["`uri_bytes_max` must be below `head_bytes_max`", "at most 16384 bytes"],
        ),
        (
            format!("[listener.\"a b\"]\naddress = \"[::]:80\"\n{UPSTREAM}{ROUTE}"),
            (1, 11),
            &["`a b` is not a name", "1 to 64"],
        ),
        (
            format!("[listener.a]\naddress = \"localhost:80\"\n{UPSTREAM}{ROUTE}"),
            (2, 11),
            &["`localhost:80` is not an address to listen on", "0.0.0.0:8080"],
        ),
        (
            format!("[listener.a]\n{UPSTREAM}{ROUTE}"),
            (1, 1),
            &["key `address` is missing", "add address = \"0.0.0.0:8080\""],
        ),
        (
            format!("listener = 1\n{UPSTREAM}{ROUTE}"),
            (1, 12),
            &["expected a table of names", "[upstream.orders]"],
        ),
    ]
}

fn broken_upstreams() -> Vec<Broken> {
    vec![
        (upstream("[]", ""), (2, 13), &["items, 0, is out of bounds", "1 to 4096"]),
        (upstream("[\"a:1\"]", ""), (2, 14), &["expected a table", "write { address"]),
        (upstream("[{}]", ""), (2, 14), &["key `address` is missing"]),
        (
            upstream("[{ address = \"http://a:1/\" }]", ""),
            (2, 26),
            &["not the address of an endpoint", "leave out the scheme"],
        ),
        (
            upstream("[{ address = \"a:1\", weight = 65536 }]", ""),
            (2, 42),
            &["65536 is out of bounds"],
        ),
        (
            upstream("[{ address = \"a:1\", weight = 0 }]", ""),
            (2, 13),
            &["every weight of upstream `u` is 0"],
        ),
        (
            upstream("[{ address = \"a:1\" }, { address = \"A:1\" }]", ""),
            (2, 47),
            &["endpoint `A:1` stands twice", "the first", "the second"],
        ),
        (
            upstream("[{ address = \"a:1\" }]", "balance = \"least\""),
            (3, 11),
            &["`least` is not possible here", "round_robin"],
        ),
        (
            upstream("[{ address = \"a:1\" }]", "colour = {}"),
            (3, 1),
            &["unknown key `colour`", "known keys: balance"],
        ),
    ]
}

fn broken_routes() -> Vec<Broken> {
    vec![
        (
            route("id = \"r\"\nprefix = \"/\"\nupstream = \"uu\""),
            (4, 12),
            &["there is no upstream `uu`", "did you mean `u`?"],
        ),
        (
            route("id = \"r r\"\nprefix = \"/\"\nupstream = \"u\""),
            (2, 6),
            &["`r r` cannot be used as a name", "without spaces"],
        ),
        (
            route("id = \"r\"\nprefix = \"/\"\npath = \"/\"\nupstream = \"u\""),
            (3, 1),
            &["`path` and `prefix` exclude each other"],
        ),
        (route("id = \"r\"\nupstream = \"u\""), (1, 1), &["key `path`, `prefix` or `regex`"]),
        (route("path = \"/\"\nupstream = \"u\""), (1, 1), &["key `id` is missing"]),
        (
            route("id = \"r\"\npath = \"/\"\nupstream = \"u\"\npath_policy = { nul = \"no\" }"),
            (5, 23),
            &["`no` is not possible here", "keep, refuse"],
        ),
        (
            format!("{LISTENER}{UPSTREAM}{ROUTE}{}", ROUTE.replace("\"/\"", "\"/a\"")),
            (10, 6),
            &["two routes have the id `r`", "x.toml:10:6"],
        ),
        (
            format!("route = {{}}\n{LISTENER}{UPSTREAM}"),
            (1, 9),
            &["expected an array of tables", "write [[route]]"],
        ),
    ]
}

fn broken() -> impl Iterator<Item = Broken> {
    broken_sections().into_iter().chain(broken_upstreams()).chain(broken_routes())
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_a_remedy() {
    for (text, (line, column), parts) in broken() {
        let errors = compile(&text, &mut Ids::default(), 1).expect_err(&text);
        let message = render(&errors, &text);
        let place = format!("--> x.toml:{line}:{column}\n");
        for part in parts.iter().copied().chain(["help: ", &*place]) {
            assert!(message.contains(part), "{part:?} in\n{message}\nof\n{text}");
        }
    }
}

#[test]
fn a_broken_file_is_said_to_be_broken_once() {
    for (text, _, parts) in broken() {
        let errors = compile(&text, &mut Ids::default(), 1).expect_err(&text);
        // A key of the wrong type for a whole section leaves the section missing too.
        let whole = errors.iter().filter(|error| error.span.is_none()).count();
        assert_eq!(errors.count() - whole, 1, "{parts:?}\n{}", render(&errors, &text));
    }
}

/// R3: two routes for the same requests are refused, and both are named.
#[test]
fn routes_that_take_the_same_paths_are_refused_with_both_places() {
    let two = |one: &str, two: &str| {
        format!(
            "{LISTENER}{UPSTREAM}[[route]]\nid = \"one\"\n{one}\nupstream = \"u\"\n\
             [[route]]\nid = \"two\"\n{two}\nupstream = \"u\"\n"
        )
    };
    for (one, other) in [
        ("path = \"/a\"", "path = \"/a\""),
        ("prefix = \"/a\"", "prefix = \"/a\""),
        ("prefix = \"/a/\"", "prefix = \"/a\""),
    ] {
        let message = said(&two(one, other));
        for part in ["routes `one` and `two` take the same paths", "x.toml:11:", "7 |", "11 |"] {
            assert!(message.contains(part), "{part} in\n{message}");
        }
    }
    taken(&two("path = \"/a\"", "prefix = \"/a\""));
    taken(&two("path = \"/a\"", "path = \"/a/\""));
}

#[test]
fn paths_that_no_request_can_have_are_refused() {
    for path in
        ["a", "", "//", "/a//b", "/a/./b", "/..", "/a?b", "/a#b", "/%41", "/a b", "/é", "/\\\\a"]
    {
        let message = said(&route(&format!("id = \"r\"\npath = \"{path}\"\nupstream = \"u\"")));
        assert!(message.contains("no request has the path"), "{path}: {message}");
        assert!(message.contains("x.toml:3:8"), "{path}: {message}");
    }
    for path in ["/", "/a/", "/a..b", "/...", "/..;/a", "/a;b=c,d:@&+$!*'()~"] {
        taken(&route(&format!("id = \"r\"\npath = \"{path}\"\nupstream = \"u\"")));
    }
}

#[test]
fn an_empty_file_misses_everything() {
    let message = said("");
    for what in ["no listener", "no upstream", "no route"] {
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn all_errors_are_shown_at_once() {
    let message = said(
        "[runtime]\nworkers = 0\ndriver = \"x\"\n[listener.a]\nadress = 1\n\
         [upstream.u]\nendpoints = [{ address = \"x\" }]\n[[route]]\nid = \"r\"\nprefix = \"a\"\n",
    );
    assert_eq!(message.matches("error: ").count(), 7, "{message}");
    let lines = message.lines().filter_map(|line| line.split_once("--> x.toml:"));
    let lines: Vec<u32> =
        lines.filter_map(|(_, place)| place.split(':').next()?.parse().ok()).collect();
    assert_eq!(lines, [2, 3, 4, 5, 7, 8, 10], "in the order of the file:\n{message}");
}

#[test]
fn errors_beyond_the_bound_are_counted() {
    let text: String = (0..limits::CONFIG_ERRORS_MAX + 5).map(|i| format!("x{i} = 1\n")).collect();
    let message = said(&(text + LISTENER + UPSTREAM + ROUTE));
    assert_eq!(message.matches("error: ").count(), limits::CONFIG_ERRORS_MAX);
    assert!(message.ends_with("and 5 more\n"), "{message}");
}

#[test]
fn a_broken_upstream_is_not_called_missing() {
    let message = said(&upstream("[{ address = 1 }]", ""));
    assert_eq!(message.matches("error: ").count(), 1, "{message}");
}

#[test]
fn an_upstream_that_no_route_uses_is_a_warning() {
    let text = format!("{LISTENER}{UPSTREAM}{ROUTE}{}", UPSTREAM.replace(".u]", ".v]"));
    let message = said(&text);
    for part in ["warning: upstream `v` is used by no route", "x.toml:9:11", "never reached"] {
        assert!(message.contains(part), "{part} in\n{message}");
    }
    assert!(compile(&text, &mut Ids::default(), 1).is_ok());
}

/// What a route's path does not have is no key for its requests; the route, the upstream, the key and
/// what to do are named, once for each key.
#[test]
fn a_key_that_a_route_lacks_is_a_warning() {
    let keyed = "balance = \"hash\"\nhash = { key = \"path:user\" }\n\
                 shard = { key = \"path:user\", zones = { a = \"0-999\" } }\n";
    let upstream = format!(
        "[upstream.u]\nendpoints = [{{ address = \"127.0.0.1:1\", zone = \"a\" }}]\n{keyed}"
    );
    let route = |id: &str, rest: &str| format!("[[route]]\nid = \"{id}\"\n{rest}\n");
    let with = |routes: &[String]| format!("{LISTENER}{upstream}{}", routes.concat());
    let good = route("good", "path = \"/u/{user}/x\"\nupstream = \"u\"");
    let zone = route("zone", "path = \"/z/{user}\"\nupstream = \"u\"\nzone = \"a\"");
    let endpoint = "prefix = \"/e/\"\nupstream = \"u\"\nendpoint = \"127.0.0.1:1\"";
    taken(&with(&[good.clone(), zone, route("endpoint", endpoint)]));
    // The zone is the route's word: nobody asks for the shard's key.
    let zone = route("zone", "prefix = \"/z/\"\nupstream = \"u\"\nzone = \"a\"");
    let message = said(&with(&[good.clone(), zone]));
    assert!(message.contains("`hash.key`") && !message.contains("`shard.key`"), "{message}");
    let bad = route("bad", "path = \"/v/{usr}/x\"\ntargets = [{ upstream = \"u\" }]");
    let worse = route("worse", "prefix = \"/w/\"\nupstream = \"u\"");
    let message = said(&with(&[good, bad, worse]));
    assert_eq!(message.matches("warning: ").count(), 2, "{message}");
    for part in [
        "warning: upstream `u`: `hash.key` is empty on route `bad`",
        "warning: upstream `u`: `shard.key` is empty on route `bad`",
        "its requests go anywhere",
        "has no parameter `user`",
        "did you mean `usr`",
    ] {
        assert!(message.contains(part), "{part} in\n{message}");
    }
}

#[test]
fn a_small_head_leaves_the_target_half() {
    let head = taken(&listener("head_bytes_max = \"2KiB\"")).listeners[0].head;
    assert_eq!((head.head_bytes_max, head.uri_bytes_max), (2048, 1024));
    taken(&listener("head_bytes_max = 1024\nuri_bytes_max = 1023"));
    let message = said(&listener("head_bytes_max = 1024\nuri_bytes_max = 1024"));
    assert!(message.contains("the head") && message.contains("x.toml:4:17"), "{message}");
}

#[test]
fn ids_outlive_a_reload_and_a_refused_file_takes_none() {
    let mut ids = Ids::default();
    let other = full().replace("orders.example", "other.example");
    compile(&full().replace("round_robin", "x"), &mut ids, 1).expect_err("refused");
    let (first, _) = compile(&full(), &mut ids, 1).expect("taken");
    let (second, _) = compile(&other, &mut ids, 2).expect("taken");
    assert_eq!(second.version, 2);
    let endpoints = |snapshot: &Snapshot| {
        let all = snapshot.upstreams.iter().flat_map(|upstream| &upstream.endpoints);
        all.map(|endpoint| endpoint.id.0).collect::<Vec<u32>>()
    };
    assert_eq!(first.upstreams[0].id, second.upstreams[0].id);
    assert_eq!(endpoints(&first), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(endpoints(&second), [0, 1, 7, 3, 4, 5, 6]);
}

/// A file of the temporary folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let name = format!("ringway-config-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("a file");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("removed");
    }
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let gone = std::env::temp_dir().join("ringway-config-that-does-not-exist.toml");
    let latin = Scratch::new("latin", b"a = 1\n# caf\xe9\n");
    let syntax = Scratch::new("syntax", b"[listener\naddress = \n");
    for (path, parts) in [
        (gone.as_path(), ["cannot be read", "No such file"]),
        (std::env::temp_dir().as_path(), ["cannot be read", "it is a directory"]),
        (Path::new("/dev/null"), ["cannot be read", "it is a device"]),
        (&latin.0, ["line 2 is not UTF-8", "at byte 11"]),
        (&syntax.0, ["not valid TOML", ":1:10"]),
    ] {
        let refused = load(path, &mut Ids::default(), 1).expect_err("refused");
        let message = refused.to_string();
        for part in parts.into_iter().chain([&*path.display().to_string()]) {
            assert!(message.contains(part), "{part} in\n{message}");
        }
        assert!(refused.count() >= 1);
        assert!(!message.contains('\x1b'), "plain");
        assert!(refused.render(true).contains('\x1b'), "styled on request");
    }
}

#[test]
fn a_file_with_a_byte_order_mark_or_crlf_is_taken() {
    taken(&MINIMAL.replace('\n', "\r\n"));
    taken(&format!("\u{feff}{MINIMAL}"));
}

/// R2: many exact routes are taken at once; only findings are bounded.
#[test]
fn fifty_thousand_routes_are_taken() {
    let route = |i: usize, upstream: &str| {
        format!("[[route]]\nid = \"r{i}\"\npath = \"/api/{i}\"\nupstream = \"{upstream}\"\n")
    };
    let text = |upstream: &str| {
        let routes: String = (0..50_000).map(|i| route(i, upstream)).collect();
        format!("{LISTENER}{UPSTREAM}{routes}")
    };
    assert_eq!(taken(&text("u")).routes.iter().count(), 50_000);
    let errors = compile(&text("v"), &mut Ids::default(), 1).expect_err("no such upstream");
    assert_eq!(errors.count(), 50_000);
    assert!(render(&errors, &text("v")).ends_with("and 49900 more\n"));
}

/// A text near a valid one: some pieces of it cut out, doubled or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~\n]{0,12}",
        Just("\"\"".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("-1".to_owned()),
        Just("[[".to_owned()),
        Just("{ a.b.c = 1 }".to_owned()),
        Just("é\u{0}\u{feff}".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
    ];
    let edit = (any::<prop::sample::Index>(), 0usize..40, piece);
    prop::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut text = full();
        for (at, length, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &piece);
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_taken_or_refused_with_a_message(text in "\\PC{0,200}") {
        said(&text);
    }

    #[test]
    fn any_text_near_a_valid_one_is_taken_or_refused_with_a_message(text in mutated()) {
        let refused = compile(&text, &mut Ids::default(), 1).is_err();
        prop_assert!(!refused || said(&text).contains("error: "));
    }
}
