//! The pages that describe the configuration say what the code does: keys, bounds, examples, errors.

use std::collections::BTreeSet;
use std::path::Path;

use ringway::config::Config;
use ringway::config::decode::Decoder;
use ringway::config::reference::SECTIONS;
use ringway::config::tree::Node;
use ringway::limits;
use ringway::snapshot::{Ids, load_text};

const FULL: &str = include_str!("../configs/full.toml");
const REFERENCE: &str = include_str!("../docs/configuration.md");

/// Every key that is asked for while the full file is read.
fn keys() -> BTreeSet<String> {
    let mut decoder = Decoder::recording();
    let tree = Node::parse_toml(FULL, &mut decoder.found).expect("full.toml is valid");
    Config::decode(&tree, &mut decoder);
    let full = |(section, key): &(&str, &str)| match *section {
        "" => (*key).to_owned(),
        section => format!("{section}.{key}"),
    };
    decoder.keys.iter().map(full).collect()
}

/// The tables of the page are those of `config::reference`; with UPDATE_EXPECTED=1 they are written.
#[test]
fn the_page_has_the_tables_of_the_reference() {
    let mut page = REFERENCE.to_owned();
    for section in SECTIONS {
        let begin = format!("<!-- keys of {} -->\n", section.name);
        let start = page.find(&begin).unwrap_or_else(|| panic!("{begin} stands in the page"));
        let start = start + begin.len();
        let length = page[start..].find("<!-- end -->").expect("a table has an end");
        page.replace_range(start..start + length, &section.table());
    }
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
        std::fs::write(path, page).expect("written");
    } else {
        assert!(page == REFERENCE, "run UPDATE_EXPECTED=1 cargo test --test reference_page");
    }
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let described: BTreeSet<String> = SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(|key| format!("{}.{}", section.name, key.name)))
        .collect();
    let asked: BTreeSet<String> = keys().into_iter().filter(|key| key.contains('.')).collect();
    let asked: BTreeSet<String> =
        asked.into_iter().filter(|key| !key.starts_with("filter.")).collect();
    assert_eq!(described, asked);
}

#[test]
fn the_reference_has_the_bounds_and_defaults_of_the_code() {
    let row = |key: &str| {
        let begin = format!("| `{key}` |");
        REFERENCE.lines().find(|line| line.starts_with(&begin)).expect("a row").to_owned()
    };
    let seconds = |ms: u64| format!("`\"{}s\"`", ms / 1_000);
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
        ("upstream.NAME.idle_connections_max", format!("| `{}` |", limits::POOL_IDLE_DEFAULT)),
        ("upstream.NAME.idle_connections_max", format!("0 to {} ", limits::POOL_IDLE_MAX)),
        ("upstream.NAME.timeouts.connect", seconds(limits::CONNECT_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.response", seconds(limits::RESPONSE_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.body", seconds(limits::UPSTREAM_BODY_TIMEOUT_MS)),
        ("upstream.NAME.timeouts.idle", seconds(limits::UPSTREAM_IDLE_TIMEOUT_MS)),
        ("route.id", format!("1 to {} ", limits::ROUTE_ID_BYTES_MAX)),
        ("route.skip_segments", format!("0 to {} ", limits::SKIP_SEGMENTS_MAX)),
    ] {
        assert!(row(key).contains(&part), "{part:?} in {}", row(key));
    }
}

#[test]
fn the_full_file_has_every_key() {
    for key in keys().iter().filter_map(|key| key.rsplit('.').next()) {
        let assigned = [format!("{key} ="), format!("[{key}"), format!(".{key}]")];
        let commented = key == "socket" && FULL.contains("or socket = ");
        assert!(commented || assigned.iter().any(|text| FULL.contains(text)), "{key}");
    }
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
