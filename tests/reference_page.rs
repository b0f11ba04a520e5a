//! The pages that describe the configuration say what the code does: keys, bounds, examples, errors.
//! `UPDATE_EXPECTED=1` rewrites what is generated in docs/configuration.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringway::config::decode::Decoder;
use ringway::config::reference::SECTIONS;
use ringway::config::tree::{Entry, Node, Value};
use ringway::filter::KINDS;
use ringway::limits;
use ringway::observe::access_log::{AccessRecord, AnnouncedTexts, DateText, Format};
use ringway::observe::render::ProcessView;
use ringway::snapshot::{Ids, compile_tree, load_text};

const FULL: &str = include_str!("../configs/full.toml");
const REFERENCE: &str = include_str!("../docs/configuration.md");
const OPERATIONS: &str = include_str!("../docs/operations.md");
const PAGE: &str = "docs/configuration.md";

/// The twelve kinds of broken configuration that the page shows, with their files in tests/broken.
const BROKEN: &[(&str, &str)] = &[
    ("An unknown key", "unknown-key"),
    ("An unknown reference", "unknown-reference"),
    ("Syntax", "syntax"),
    ("A duplicate", "duplicate"),
    ("A bad duration", "bad-duration"),
    ("A bad address", "bad-address"),
    ("Weights of zero", "zero-weights"),
    ("A bad pattern", "bad-pattern"),
    ("A bad network", "bad-network"),
    ("Several at once", "several-at-once"),
    ("A route without a path", "route-without-a-path"),
    ("A missing file", "missing-include"),
];

/// Every key that is asked for while `text` is compiled: section and name, joined by a dot.
fn asked(text: &str) -> BTreeSet<String> {
    // Files of a text without a name are relative to the working directory.
    let text = &text.replace("\"tls/", "\"configs/tls/");
    let mut decoder = Decoder::recording();
    let tree = Node::parse_toml(text, &mut decoder.found).expect("valid TOML");
    let compiled = compile_tree(&tree, true, &mut decoder, &mut Ids::default(), 1);
    assert!(compiled.is_ok(), "{compiled:?}");
    decoder.keys.iter().map(|(section, key)| joined(section, key)).collect()
}

fn joined(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// Every key that is written in `node`, under the names of the reference.
fn written(node: &Node, section: &str, keys: &mut BTreeSet<String>) {
    match &node.value {
        Value::Array(items) => items.iter().for_each(|item| written(item, section, keys)),
        Value::Table(entries) => {
            let filter = ["filter.NAME", "route.filters"].contains(&section);
            let own = kind(entries).filter(|_| filter).map(|kind| format!("filter.{kind}"));
            let section = own.as_deref().unwrap_or(section);
            for entry in entries {
                if ["listener", "upstream", "filter"].contains(&section) {
                    written(&entry.value, &format!("{section}.NAME"), keys);
                    continue;
                }
                let key = joined(section, &entry.key);
                // The keys of this table are zones.
                if key == "upstream.NAME.shard.zones" {
                    keys.insert(key);
                    continue;
                }
                if !FIELDS.contains(&&*entry.key) || !section.starts_with("filter.headers") {
                    let below = if &*entry.key == "when" { "when" } else { &key };
                    written(&entry.value, below, keys);
                }
                keys.insert(key);
            }
        }
        _ => {}
    }
}

/// Tables of `filter.headers` whose keys are names of fields.
const FIELDS: &[&str] = &["set", "add"];

fn kind(entries: &[Entry]) -> Option<&str> {
    let entry = entries.iter().find(|entry| &*entry.key == "kind")?;
    if let Value::String(kind) = &entry.value.value { Some(kind) } else { None }
}

/// The page with what is generated written anew.
fn page() -> String {
    let mut page = REFERENCE.to_owned();
    for section in SECTIONS {
        let name = if section.name.is_empty() { "a file" } else { section.name };
        replace(&mut page, &format!("<!-- keys of {name} -->\n"), &section.table());
    }
    let broken = BROKEN.iter().map(|(title, file)| {
        let said = fs::read_to_string(format!("tests/broken/{file}.txt")).expect(file);
        format!("### {title}\n\n```text\n{}\n```\n", said.trim_end())
    });
    let broken = broken.collect::<Vec<_>>().join("\n");
    replace(&mut page, "<!-- broken files -->\n", &broken);
    page
}

/// Puts `text` between `begin` and the next end.
fn replace(page: &mut String, begin: &str, text: &str) {
    let start = page.find(begin).unwrap_or_else(|| panic!("{begin} stands in the page"));
    let start = start + begin.len();
    let length = page[start..].find("<!-- end -->").expect("an end");
    page.replace_range(start..start + length, text);
}

#[test]
fn what_is_generated_in_the_page_is_what_the_code_says() {
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE), page).expect("written");
    } else {
        assert!(page == REFERENCE, "run UPDATE_EXPECTED=1 cargo test --test reference_page");
    }
}

/// The keys of the kinds themselves stand in docs/filters.md, from the same list as here.
#[test]
fn the_reference_has_every_key_and_no_other() {
    let mut described: BTreeSet<String> = SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(|key| joined(section.name, key.name)))
        .collect();
    let sections = SECTIONS.iter().filter_map(|section| section.name.split('.').next());
    described.extend(sections.filter(|name| !["", "when"].contains(name)).map(str::to_owned));
    for kind in KINDS.iter().filter(|kind| FULL.contains(&format!("\"{}\"", kind.name))) {
        described.extend(kind.keys.iter().map(|key| joined(key.section, key.name)));
        for key in ["kind", "when"] {
            described.insert(format!("filter.{}.{key}", kind.name));
        }
        // Those of kinds that wait are asked for where there is one.
        assert!(!kind.waits, "the full file has one: take its `on_error` and `timeout` in here");
    }
    let mut asked = asked(FULL);
    for key in ["kind", "when", "on_error", "timeout"] {
        asked.insert(format!("filter.NAME.{key}"));
    }
    assert_eq!(described, asked);
}

/// A kind that waits is part of builds with fail points only.
#[cfg(feature = "failpoint")]
#[test]
fn a_filter_that_waits_has_its_keys() {
    let filter = "[filter.slow]\nkind = \"test_wait\"\non_error = \"skip\"\n";
    let asked = asked(&format!("{FULL}\n{filter}"));
    for key in ["kind", "when", "on_error", "timeout"] {
        assert!(asked.contains(&format!("filter.test_wait.{key}")), "{key}");
    }
}

/// The row of a key.
fn row(key: &str) -> &str {
    let begin = format!("| `{key}` |");
    REFERENCE.lines().find(|line| line.starts_with(&begin)).expect("a row")
}

/// A duration of whole seconds, as a default is written.
fn seconds(ms: u64) -> String {
    format!("`\"{}s\"`", ms / 1_000)
}

#[test]
fn the_reference_has_the_bounds_and_defaults_of_health_and_breakers() {
    for (key, part) in [
        ("upstream.NAME.health.interval", seconds(limits::HEALTH_INTERVAL_MS)),
        ("upstream.NAME.health.timeout", seconds(limits::HEALTH_TIMEOUT_MS)),
        ("upstream.NAME.health.rise", format!("| `{}` |", limits::HEALTH_RISE)),
        ("upstream.NAME.health.fall", format!("| `{}` |", limits::HEALTH_FALL)),
        ("upstream.NAME.health.statuses", format!("1 to {},", limits::HEALTH_STATUSES_MAX)),
        ("upstream.NAME.health.body", format!("1 to {} ", limits::HEALTH_TEXT_BYTES_MAX)),
        ("upstream.NAME.breaker.window", seconds(limits::BREAKER_WINDOW_MS)),
        ("upstream.NAME.breaker.requests_min", format!("| `{}` |", limits::BREAKER_REQUESTS_MIN)),
        ("upstream.NAME.breaker.open", seconds(limits::BREAKER_OPEN_MS)),
        ("upstream.NAME.breaker.open_max", "`open` to 10 h".to_owned()),
        ("upstream.NAME.breaker.probes", format!("| `{}` |", limits::BREAKER_PROBES)),
        ("upstream.NAME.breaker.trickle_percent", format!("`{}`", limits::BREAKER_TRICKLE_PERCENT)),
        ("upstream.NAME.breaker.trickle", seconds(limits::BREAKER_TRICKLE_MS)),
        ("upstream.NAME.breaker.floor_percent", format!("`{}`", limits::BREAKER_FLOOR_PERCENT)),
        (
            "upstream.NAME.breaker.endpoint.consecutive",
            format!("`{}`", limits::BREAKER_CONSECUTIVE),
        ),
        ("upstream.NAME.breaker.endpoint.error_percent", "| `30` | 0 to 100".to_owned()),
        ("upstream.NAME.breaker.service.error_percent", "| `10` | 1 to 100".to_owned()),
        ("upstream.NAME.breaker.zone", format!("2 to {} zones", limits::ZONES_MAX)),
        ("upstream.NAME.breaker.zone.error_percent", "| `50` | 1 to 100".to_owned()),
    ] {
        assert!(row(key).contains(&part), "{part:?} in {}", row(key));
    }
}

#[test]
fn the_reference_has_the_bounds_and_defaults_of_the_code() {
    let kib = |bytes: usize| format!("{}KiB", bytes >> 10);
    for (key, part) in [
        ("runtime.workers", format!("1 to {} ", limits::WORKERS_MAX)),
        ("runtime.connections_max", format!("1 to {} ", limits::CONNECTIONS_MAX)),
        ("runtime.drain", seconds(limits::DRAIN_MS)),
        ("admin.socket", format!("at most {} bytes", limits::SOCKET_PATH_BYTES_MAX)),
        ("listener.NAME.trusted_proxies", format!("at most {} ", limits::TRUSTED_PROXIES_MAX)),
        ("listener.NAME.head_bytes_max", kib(limits::HEAD_BYTES_DEFAULT)),
        ("listener.NAME.head_bytes_max", format!("to {} KiB", limits::HEAD_BYTES_MAX >> 10)),
        ("listener.NAME.headers_max", format!("`{}` | 1 to 256", limits::HEADERS_DEFAULT)),
        ("listener.NAME.uri_bytes_max", kib(limits::URI_BYTES_DEFAULT)),
        ("listener.NAME.uri_bytes_max", format!("| {} bytes", limits::URI_BYTES_MIN)),
        ("listener.NAME.timeouts.head", seconds(limits::HEAD_TIMEOUT_MS)),
        ("listener.NAME.timeouts.body", seconds(limits::BODY_TIMEOUT_MS)),
        ("listener.NAME.timeouts.idle", seconds(limits::IDLE_TIMEOUT_MS)),
        ("listener.NAME.timeouts.write", seconds(limits::WRITE_TIMEOUT_MS)),
        ("upstream.NAME.endpoints", format!("1 to {},", limits::ENDPOINTS_MAX)),
        ("upstream.NAME.endpoints.weight", format!("| `{}` |", limits::WEIGHT_DEFAULT)),
        ("upstream.NAME.endpoints.weight", format!("0 to {},", limits::WEIGHT_MAX)),
        ("upstream.NAME.tcp_keepalive", format!("| {} s to ", limits::TCP_KEEPALIVE_MS.0 / 1_000)),
        ("upstream.NAME.tcp_keepalive", format!("{} h |", limits::TCP_KEEPALIVE_MS.1 / 3_600_000)),
        ("listener.NAME.tcp_keepalive", format!("{} h |", limits::TCP_KEEPALIVE_MS.1 / 3_600_000)),
        ("upstream.NAME.idle_connections_max", format!("| `{}` |", limits::POOL_IDLE_DEFAULT)),
        ("upstream.NAME.idle_connections_max", format!("0 to {} ", limits::POOL_IDLE_MAX)),
        ("upstream.NAME.timeouts.connect", seconds(limits::CONNECT_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.response", seconds(limits::RESPONSE_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.body", seconds(limits::UPSTREAM_BODY_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.idle", seconds(limits::UPSTREAM_IDLE_TIMEOUT_MS)),
        ("route.id", format!("1 to {} ", limits::ROUTE_ID_BYTES_MAX)),
        ("include", format!("{} files, ", limits::CONFIG_FILES_MAX)),
        ("include", format!(" {} deep", limits::INCLUDE_DEPTH_MAX)),
        ("route.skip_segments", format!("0 to {} ", limits::SKIP_SEGMENTS_MAX)),
        ("route.hosts", format!("1 to {} ", limits::ROUTE_HOSTS_MAX)),
        ("route.priority", format!("| `{}` | 0 to ", limits::PRIORITY_DEFAULT)),
        ("route.priority", format!("0 to {} ", limits::PRIORITY_MAX)),
        ("route.when", format!("1 to {} ", limits::CONDITIONS_MAX)),
        ("route.targets", format!("1 to {} ", limits::TARGETS_MAX)),
        ("route.filters", format!("at most {} ", limits::FILTERS_PER_ROUTE_MAX)),
        ("route.respond.body", format!("{} KiB", limits::RESPOND_BODY_BYTES_MAX >> 10)),
        ("when.method", format!("1 to {} ", limits::CONDITIONS_MAX)),
        ("when.client", format!("1 to {} ", limits::CONDITION_VALUES_MAX)),
        ("when.in", format!("1 to {} ", limits::CONDITION_VALUES_MAX)),
        ("when.slots", format!("0 to {} ", limits::SLOTS)),
        ("filter.NAME.timeout", seconds(limits::FILTER_TIMEOUT_MS)),
    ] {
        assert!(row(key).contains(&part), "{part:?} in {}", row(key));
    }
}

#[test]
fn the_full_file_has_every_key() {
    let mut found = Default::default();
    let tree = Node::parse_toml(FULL, &mut found).expect("valid TOML");
    let mut keys = BTreeSet::new();
    written(&tree, "", &mut keys);
    for (key, comment) in [("include", "# include = ["), ("admin.socket", "or socket = ")] {
        assert!(FULL.contains(comment), "{key} in a comment");
        keys.insert(key.to_owned());
    }
    // On what a route brings along, and on two kinds, it is the same as on the one that has it.
    let common = |key: &str| key.starts_with("filter.") && key.ends_with(".when");
    let asked: BTreeSet<String> = asked(FULL).into_iter().filter(|key| !common(key)).collect();
    keys.retain(|key| !common(key));
    assert_eq!(keys, asked);
}

#[test]
fn the_examples_of_the_reference_are_taken() {
    let examples = REFERENCE.split("```toml\n").skip(1);
    let examples: Vec<&str> = examples.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        taken(example);
    }
}

#[test]
fn the_error_that_the_reference_shows_is_the_one_that_is_shown() {
    let text = REFERENCE.split("```toml\n").nth(1).expect("the smallest file");
    let text = text.split("```").next().expect("its end").replace("= \"main\"", "= \"mian\"");
    let refused = load_text("ringway.toml", &text, &mut Ids::default(), 1).expect_err("refused");
    let message = refused.render(false);
    assert!(REFERENCE.contains(&format!("```\n{}\n```\n", message.trim_end())), "{message}");
}

fn taken(text: &str) {
    if let Err(refused) = load_text("x.toml", text, &mut Ids::default(), 1) {
        panic!("{refused}");
    }
}

/// The words in the first column of a table of docs/operations.md, which begins with `heading`.
fn first_column(heading: &str) -> BTreeSet<String> {
    let table = OPERATIONS.split(heading).nth(1).expect(heading);
    let rows = table.lines().skip(1).take_while(|line| line.starts_with("| "));
    let words = |row: &str| {
        let cell = row.split('|').nth(1).unwrap_or_default().to_owned();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<String>>()
    };
    rows.flat_map(words).collect()
}

fn keys_of(json: &serde_json::Value) -> BTreeSet<String> {
    json.as_object().expect("an object").keys().cloned().collect()
}

#[test]
fn operations_has_the_keys_of_the_access_log_and_of_the_status() {
    let record = AccessRecord {
        started_us: 0,
        client: std::net::Ipv4Addr::LOCALHOST.into(),
        method: b"GET",
        target: b"/",
        version: "HTTP/1.1",
        host: b"",
        referer: b"",
        user_agent: b"",
        status: 200,
        request_body_bytes: 0,
        response_body_bytes: 0,
        request_id: b"",
        listener: "",
        route: "",
        upstream: "",
        endpoint: "",
        retries: 0,
        hedge: None,
        total_us: 0,
        gateway_us: 0,
        connect_us: None,
        upstream_head_us: None,
        error: None,
        tls: Default::default(),
        config_version: 1,
        worker: 0,
        announced: AnnouncedTexts {
            authority: b"a.test",
            unique_id: b"17",
            alpn: b"h2",
            ssl_version: b"TLSv1.3",
            ssl_cn: b"alice",
        },
    };
    let mut line = Vec::new();
    Format::Json.write(&record, &mut DateText::new(), &mut line);
    let line = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(first_column("| key | holds |\n"), keys_of(&line));

    let mut status = keys_of(&ProcessView::default().status());
    status.insert("access_log".to_owned());
    assert_eq!(first_column("| keys of `/v1/status` | hold |\n"), status);
}

/// Every page for people, by its path in the repository.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = vec![PathBuf::from("README.md"), "tests/README.md".into()];
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(folder).expect(folder).map(|entry| entry.expect("an entry"));
        paths.extend(entries.map(|entry| entry.path()).filter(|path| is_page(path)));
    }
    let text = |path: &PathBuf| fs::read_to_string(path).expect("text");
    paths.iter().map(|path| (path.clone(), text(path))).collect()
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The anchors of a page's headings, as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let plain = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(plain).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = pages();
    for (path, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let folder = path.parent().expect("a folder");
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            assert!(target.exists(), "{link} in {}", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                assert!(anchors(&text).contains(anchor), "{link} in {}", path.display());
            }
        }
    }
}

#[test]
fn the_suites_and_pages_are_listed() {
    let listed = fs::read_to_string("tests/README.md").expect("text");
    for entry in fs::read_dir("tests").expect("tests") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name.ends_with(".rs") {
            assert!(listed.contains(&format!("`{name}`")), "{name} stands in tests/README.md");
        }
    }
    let linked: String = pages().iter().map(|(_, text)| &**text).collect();
    for (path, _) in pages().iter().filter(|(path, _)| path.starts_with("docs")) {
        let name = path.file_name().expect("a name").to_string_lossy();
        assert!(linked.contains(&format!("{name})")), "{name} is linked from nowhere");
    }
}
