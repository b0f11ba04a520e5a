//! What holds of every kind of filter: its example is taken, its keys are those that it reads, and
//! docs/filters.md tells of it. `UPDATE_EXPECTED=1` rewrites that page.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use ringway::config::decode::{Decoder, Fields};
use ringway::config::tree::{Node, Value};
use ringway::config::{Diagnostics, Source, Sources};
use ringway::filter::{Build, FilterId, KINDS, Kept, Kind, Phase};
use ringway::snapshot::{Ids, compile};

const PAGE: &str = "docs/filters.md";
const BEGIN: &str = "<!-- generated: kinds -->\n";
const END: &str = "<!-- end of what is generated -->\n";

/// Those that are part of the product.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().filter(|kind| !kind.name.starts_with("test_"))
}

/// An example with the smallest rest, and a route that names its filter.
fn whole(example: &str) -> String {
    let name = example.strip_prefix("[filter.").and_then(|rest| rest.split(']').next());
    let name = name.expect("an example begins with the table of a filter");
    format!(
        "{example}\n[listener.a]\naddress = \"127.0.0.1:0\"\n\n\
         [upstream.u]\nendpoints = [{{ address = \"127.0.0.1:9001\" }}]\n\n\
         [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\nfilters = [\"{name}\"]\n"
    )
}

#[test]
fn every_example_is_taken_without_a_warning() {
    for kind in KINDS {
        let text = whole(kind.example);
        let source = Sources::new(Source::toml(kind.name, &text));
        let (snapshot, warnings) = compile(&text, &mut Ids::default(), 1)
            .unwrap_or_else(|found| panic!("{}", found.render(&source, false)));
        assert!(warnings.is_empty(), "{}", warnings.render(&source, false));
        let names: Vec<_> = snapshot.chains[0].names().collect();
        assert_eq!(names.len(), 1, "{}", kind.name);
    }
}

/// The keys that a kind's decoder asks for over its own example.
fn asked(kind: &Kind) -> BTreeSet<String> {
    let mut decoder = Decoder::recording();
    let tree = Node::parse_toml(kind.example, &mut decoder.found).expect("TOML");
    let inner = |node: &Node| match &node.value {
        Value::Table(entries) => entries[0].value.clone(),
        _ => panic!("a table"),
    };
    let table = inner(&inner(&tree));
    let section = kind.keys.first().map_or(kind.name, |key| key.section);
    let mut f = Fields::of(section, &table, &mut decoder).expect("a table");
    let (mut kept, mut warnings) = (Kept::default(), Diagnostics::default());
    let id = FilterId(0);
    let mut build = Build { id, name: "it", workers: 2, kept: &mut kept, warnings: &mut warnings };
    assert!((kind.decode)(&mut f, &mut build).is_some(), "{}", kind.name);
    // Not `finish`: the keys that all filters have are read by `snapshot`.
    drop(f);
    decoder.keys.iter().map(|(section, key)| format!("{section}.{key}")).collect()
}

#[test]
fn every_key_is_described_and_no_other() {
    for kind in KINDS {
        let described: BTreeSet<String> =
            kind.keys.iter().map(|key| format!("{}.{}", key.section, key.name)).collect();
        assert_eq!(described, asked(kind), "{}", kind.name);
        assert_eq!(described.len(), kind.keys.len(), "{}: no key twice", kind.name);
        for key in kind.keys {
            let own = format!("filter.{}", kind.name);
            assert!(key.section.starts_with(&own), "{}", key.section);
            let texts = [key.kind, key.default, key.meaning];
            assert!(
                texts.iter().all(|text| !text.is_empty() && !text.contains('|')),
                "{}",
                key.name
            );
            let in_example = kind.example.contains(&format!("{} = ", key.name));
            assert!(in_example, "the example of {} has no `{}`", kind.name, key.name);
        }
    }
}

#[test]
fn kinds_are_told_apart() {
    let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), KINDS.len());
    for name in names {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/filter/{name}.rs"));
        assert!(file.exists(), "one filter, one file: {name}");
    }
}

/// The part of the page that the list of kinds gives.
fn reference() -> String {
    let mut out = String::new();
    for kind in kinds() {
        let phase = match kind.phase {
            Phase::Access => "access",
            Phase::Transform => "transform",
            Phase::Upstream => "upstream",
        };
        let waits = if kind.waits { "; waits, so that `on_error` must be given" } else { "" };
        let _ = write!(
            out,
            "\n### {}\n\nPhase: {phase}{waits}.\n\n{}\n\n```toml\n{}```\n\n\
             | key | type | default | meaning |\n|---|---|---|---|\n",
            kind.name,
            wrapped(kind.about),
            kind.example,
        );
        for key in kind.keys {
            let (section, name) = (key.section, key.name);
            let own = format!("filter.{}", kind.name);
            let inner = section.strip_prefix(&own).unwrap_or(section).trim_start_matches('.');
            let name = if inner.is_empty() { name.into() } else { format!("{inner}.{name}") };
            let _ =
                writeln!(out, "| `{name}` | {} | {} | {} |", key.kind, key.default, key.meaning);
        }
    }
    out.push('\n');
    out
}

/// Lines of at most a hundred characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= 100 {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines.join("\n")
}

#[test]
fn the_page_is_what_the_kinds_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("where it begins");
    let (_, after) = rest.split_once(END).expect("where it ends");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", reference());
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &wanted).expect("written");
        return;
    }
    assert!(page == wanted, "{PAGE} is behind: UPDATE_EXPECTED=1 cargo test --test filters");
}

/// Examples of the page outside of what is generated.
#[test]
fn the_examples_of_the_page_are_taken() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(path).expect("the page");
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|example| example.contains("[[route]]"))
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        let text = format!(
            "{example}\n[listener.a]\naddress = \"127.0.0.1:0\"\n\n\
             [upstream.main]\nendpoints = [{{ address = \"127.0.0.1:9001\" }}]\n"
        );
        let source = Sources::new(Source::toml(PAGE, &text));
        let taken = compile(&text, &mut Ids::default(), 1);
        let (_, warnings) =
            taken.unwrap_or_else(|found| panic!("{}", found.render(&source, false)));
        assert!(warnings.is_empty(), "{}", warnings.render(&source, false));
    }
}

/// Keys that all filters have, and what is wrong with a filter as a whole.
#[test]
fn what_is_wrong_with_a_filter_is_said() {
    let said = |filter: &str| {
        let text = whole(&format!("[filter.x]\n{filter}\n"));
        let source = Sources::new(Source::toml("x.toml", &text));
        match compile(&text, &mut Ids::default(), 1) {
            Ok((_, warnings)) => warnings.render(&source, false),
            Err(found) => found.render(&source, false),
        }
    };
    for (filter, part) in [
        ("set = { a = \"b\" }", "key `kind` is missing"),
        ("kind = \"header\"", "did you mean `headers`?"),
        ("kind = \"headers\"\nset = { a = \"b\" }\nwhen = []", "out of bounds"),
        ("kind = \"headers\"\nset = { a = \"b\" }\nwhen = [{ heder = \"x\" }]", "`header`"),
        ("kind = \"headers\"\nset = { a = \"b\" }\non_error = \"skip\"", "unknown key `on_error`"),
        ("kind = \"headers\"\nset = { a = \"b\" }\nwen = []", "did you mean `when`?"),
        ("kind = \"rate_limit\"\nkey = \"client\"\nrate = \"1/s\"\nburst = 20", "lets far more"),
    ] {
        assert!(said(filter).contains(part), "{filter}:\n{}", said(filter));
    }
    let text = whole("[filter.x]\nkind = \"ip_list\"\ndeny = [\"::1\"]\n");
    let text = text.replace("[\"x\"]", "[\"x\", \"x\"]");
    let (_, warnings) = compile(&text, &mut Ids::default(), 1).expect("taken");
    let source = Sources::new(Source::toml("x.toml", &text));
    assert!(warnings.render(&source, false).contains("`x` stands twice on one route"));
    let when = "when = [{ method = \"POST\" }, { header = \"x-a\", present = true, not = true }]";
    assert_eq!(said(&format!("kind = \"headers\"\nset = {{ a = \"b\" }}\n{when}")), "");
}

#[test]
fn a_route_that_is_wrong_has_its_filters_checked() {
    let rest = "[listener.a]\naddress = \"127.0.0.1:0\"\n\n\
        [upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n\n[[route]]\nid = \"r\"\n\
        filters = [\"nope\"]\nwhen = [{ header = \"x\" }]\n";
    for (route, parts) in [
        ("prefix = \"api\"\nupstream = \"uu\"", &["path `api`", "no upstream `uu`"][..]),
        ("regex = \"(\"\nupstream = \"u\"\nzone = \"z\"", &["expression", "in zone `z`"]),
        ("upstream = \"uu\"\nrewrite = \"/{a}\"", &["is missing", "no upstream `uu`"]),
        ("path = \"/\"\nupstream = 1\nzone = \"z\"", &["a string"]),
        (
            "path = \"/\"\nredirect = { to = \"/x\", status = 200 }\nhosts = [\"a..b\"]",
            &["no redirect", "`a..b` is not a host"],
        ),
        (
            "prefix = \"api\"\nskip_segments = 1",
            &["path `api`", "`redirect` or `respond` is missing"],
        ),
    ] {
        let text = format!("{rest}{route}\n");
        let found = compile(&text, &mut Ids::default(), 1).expect_err("errors");
        let said = found.render(&Source::toml("x.toml", &text).into(), false);
        let parts: Vec<&str> =
            parts.iter().copied().chain(["no filter `nope`", "needs "]).collect();
        for part in &parts {
            assert!(said.contains(part), "{route}: {part}: {said}");
        }
        assert_eq!(said.matches("error: ").count(), parts.len(), "{route}: {said}");
    }
}
