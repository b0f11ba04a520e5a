//! Configurations of several files, in TOML and JSON, with environment variables; and what is said
//! of broken ones (tests/broken: each file with the text that it gives beside it).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use ringway::config::{Gathered, Source, Sources};
use ringway::limits::{CONFIG_FILES_MAX, INCLUDE_DEPTH_MAX};
use ringway::snapshot::{
    Ids, ListenerId, ListenerPlan, Loaded, Rejected, Snapshot, compile_tree, effective, load,
    load_source,
};
use serde_json::json;

#[path = "../fuzz/src/config.rs"]
mod fuzz;

const LISTENER: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n";
const UPSTREAM: &str = "[upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n";
const ROUTE: &str = "[[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n";

/// A folder of files that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let name = format!("ringway-sources-{}-{name}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("below a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    fn load(&self) -> Result<Loaded, Box<Rejected>> {
        load(&self.0.join("main.toml"), &mut Ids::default(), 1)
    }

    fn taken(&self) -> Loaded {
        self.load().unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Everything that is said of it, with paths relative to it.
    fn refused(&self) -> String {
        self.without_path(&self.load().expect_err("refused").to_string())
    }

    fn without_path(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn route(id: &str) -> String {
    format!("[[route]]\nid = \"{id}\"\npath = \"/{id}\"\nupstream = \"u\"\n")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

/// `UPDATE_EXPECTED=1` writes what is said.
#[test]
fn broken_files_say_what_stands_beside_them() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir("tests/broken").expect("a folder") {
        let path = entry.expect("an entry").path();
        if !path.extension().is_some_and(|kind| kind == "toml" || kind == "json") {
            continue;
        }
        let refused = load(&path, &mut Ids::default(), 1).expect_err("broken");
        let said = refused.to_string().replace("tests/broken/", "");
        let expected = path.with_extension("txt");
        if update {
            fs::write(&expected, &said).expect("written");
        }
        assert_eq!(fs::read_to_string(&expected).ok(), Some(said.clone()), "{}", path.display());
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        has(&said, &["error: ", "help: ", "-->", &format!(" {name}:")]);
        assert_eq!(said.matches("error: ").count(), refused.count(), "{said}");
        kinds.insert(path.file_stem().expect("a name").to_string_lossy().into_owned());
    }
    for kind in KINDS {
        assert!(kinds.contains(*kind), "{kind}");
    }
}

const KINDS: &[&str] = &[
    "unknown-key",
    "unknown-reference",
    "syntax",
    "duplicate",
    "duplicate-key",
    "bad-duration",
    "bad-address",
    "zero-weights",
    "bad-pattern",
    "bad-network",
    "several-at-once",
    "route-without-a-path",
    "missing-include",
    "unset-variable",
    "json-syntax",
    "json-duplicate-key",
    "json-null",
    "include-cycle",
    "name-in-two-files",
];

#[test]
fn files_are_united_in_the_order_of_their_names() {
    let main = format!("include = [\"routes/*.toml\", \"up?.json\"]\n{LISTENER}{}", route("first"));
    let folder = Folder::new(
        "united",
        &[
            ("main.toml", &main),
            ("routes/b.toml", &route("b")),
            ("routes/a.toml", &format!("include = [\"more/c.toml\"]\n{}", route("a"))),
            ("routes/more/c.toml", &route("c")),
            ("routes/.hidden.toml", "broken"),
            ("routes/b.toml~", "broken"),
            ("ups.json", r#"{"upstream": {"u": {"endpoints": [{"address": "127.0.0.1:9001"}]}}}"#),
        ],
    );
    let loaded = folder.taken();
    assert_eq!(loaded.warnings_text(false), "");
    let names: Vec<String> = loaded.sources.iter().map(|(_, source)| source.name.clone()).collect();
    let names = folder.without_path(&names.join(" "));
    assert_eq!(names, "main.toml routes/a.toml routes/more/c.toml routes/b.toml ups.json");
    let json = effective(&loaded.sources);
    let ids = json["route"].as_array().expect("routes").iter().map(|route| &route["id"]);
    assert!(ids.eq(["first", "a", "c", "b"].iter()), "{json}");
    assert_eq!(json["upstream"]["u"]["endpoints"][0]["address"], "127.0.0.1:9001");
    assert!(json.get("include").is_none());
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text = include_str!("../configs/full.toml").replace("\"tls/", "\"configs/tls/");
    let text = &*text;
    let json = effective(&Source::toml("full.toml", text).into());
    let source = Source::json("full.json", json.to_string());
    assert_eq!(effective(&source.clone().into()), json);
    let compiled = |source| load_source(source, &mut Ids::default(), 1).expect("taken").snapshot;
    let (again, first) = (compiled(source), compiled(Source::toml("full.toml", text)));
    // Ids are given in the order of the file, and JSON sorts names.
    let outline = |snapshot: Snapshot| {
        let listeners = snapshot
            .listeners
            .iter()
            .map(|listener| ListenerPlan { id: ListenerId(0), ..ListenerPlan::clone(listener) });
        let mut listeners: Vec<String> = listeners.map(|plan| format!("{plan:?}")).collect();
        let mut names: Vec<&str> = snapshot.upstreams.iter().map(|u| &*u.name).collect();
        let routes: Vec<&str> = snapshot.plans.iter().map(|route| &*route.id).collect();
        let chains: Vec<Vec<_>> =
            snapshot.chains.iter().map(|chain| chain.names().collect()).collect();
        listeners.sort();
        names.sort();
        let runtime = (&snapshot.runtime, &snapshot.admin, &snapshot.access_log);
        format!("{runtime:?} {listeners:?} {names:?} {routes:?} {chains:?}")
    };
    assert_eq!(outline(again), outline(first));
}

#[test]
fn an_error_names_the_file_in_which_it_stands() {
    let main = format!("include = [\"a.toml\", \"b.json\"]\n{LISTENER}");
    let folder = Folder::new(
        "places",
        &[
            ("main.toml", &main),
            ("a.toml", "\n[upstream.u]\nendpoints = [{ adress = \"127.0.0.1:1\" }]\n"),
            (
                "b.json",
                "{\n  \"route\": [\n    {\"id\": \"r\", \"prefix\": \"/\", \"upstream\": \"v\"}\n  ]\n}",
            ),
        ],
    );
    let said = folder.refused();
    has(&said, &["--> a.toml:3:16", "--> a.toml:3:14", "--> b.json:3:44", "no upstream `v`"]);
    assert_eq!(folder.load().expect_err("refused").count(), 3);
}

#[test]
fn names_and_sections_stand_in_one_file() {
    let rest = format!("[runtime]\nworkers = 1\n{LISTENER}{UPSTREAM}{ROUTE}");
    let main = format!("include = [\"a.toml\"]\n{rest}");
    let folder = Folder::new("once", &[("main.toml", &main), ("a.toml", &rest)]);
    let said = folder.refused();
    has(
        &said,
        &[
            "`runtime` stands in two files",
            "--> a.toml:1:2",
            "::: main.toml:2:2",
            "listener `a` is defined twice",
            "--> a.toml:3:11",
            "upstream `u` is defined twice",
            "::: main.toml:6:11",
            "two routes have the id `r`",
        ],
    );
    folder.write("a.toml", b"upstream = 1\nroute = 2\n");
    has(&folder.refused(), &["a table of names", "an array of tables", "--> a.toml:2:9"]);
    folder.write(
        "main.toml",
        format!("include = [\"a.toml\"]\nupstream = 1\n{LISTENER}{ROUTE}").as_bytes(),
    );
    folder.write("a.toml", UPSTREAM.as_bytes());
    has(&folder.refused(), &["a table of names", "--> main.toml:2:12"]);
}

#[test]
fn files_that_cannot_be_included_are_errors_at_their_names() {
    let include = |list: &str| format!("include = {list}\n{LISTENER}{UPSTREAM}{ROUTE}");
    let folder = Folder::new("broken", &[("a.toml", ""), ("sub/b.toml", "")]);
    folder.write("latin.toml", b"# caf\xe9");
    let fifo = Command::new("mkfifo").arg(folder.0.join("fifo")).status();
    assert!(fifo.is_ok_and(|status| status.success()), "a FIFO");
    let refused = load(&folder.0.join("fifo"), &mut Ids::default(), 1).expect_err("a FIFO");
    has(&refused.to_string(), &["it is a FIFO", "name a regular file with --config FILE"]);
    for (list, parts) in [
        ("[\"no.toml\"]", &["there is no file `no.toml`", "main.toml:1:12", "create it"][..]),
        ("[\"sub\"]", &["`sub` cannot be read: it is a directory", "main.toml:1:12", "pattern"]),
        ("[\"fifo\"]", &["`fifo` cannot be read: it is a FIFO", "regular file"]),
        ("[\"a.toml\", \"./a.toml\"]", &["included twice", "main.toml:1:22", "the first"]),
        (
            "[\"a.toml\", \"*.toml\"]",
            &["`a.toml` is included twice", "`main.toml` includes itself"],
        ),
        ("[\"main.toml\"]", &["`main.toml` includes itself", "its own `include`"]),
        ("[\"s*/b.toml\"]", &["wildcards in the name of a folder", "main.toml:1:12"]),
        ("[\"latin.toml\"]", &["line 1 of `latin.toml` is not UTF-8", "at byte 5"]),
        ("\"a.toml\"", &["expected an array", "main.toml:1:11"]),
        ("[1]", &["expected the path of a file, a string", "main.toml:1:12", "include = ["]),
        ("[{a=2}]", &["expected the path of a file, a string", "include = ["]),
        ("[\"\"]", &["the path of a file is empty", "main.toml:1:12", "include = ["]),
        ("[\"${RINGWAY_TEST_UNSET}/x.toml\"]", &["`RINGWAY_TEST_UNSET` is not set"]),
    ] {
        folder.write("main.toml", include(list).as_bytes());
        let said = folder.refused();
        has(&said, parts);
        has(&said, &["help: "]);
    }
}

#[test]
fn all_that_is_certain_is_said_although_a_file_is_missing() {
    let main = format!("include = [\"no.toml\", \"bad.toml\"]\n[runtime]\nwrkers = 1\n{ROUTE}");
    let folder = Folder::new("certain", &[("main.toml", &main), ("bad.toml", "a = \n")]);
    let said = folder.refused();
    has(&said, &["no file `no.toml`", "bad.toml:1:5", "unknown key `wrkers`"]);
    assert_eq!(said.matches("error: ").count(), 3, "nothing follows from what is missing:\n{said}");
}

#[test]
fn a_pattern_that_matches_nothing_is_a_warning() {
    let main = format!("include = [\"*.json\", \"none/*\"]\n{LISTENER}{UPSTREAM}{ROUTE}");
    let folder = Folder::new("nothing", &[("main.toml", &main)]);
    let warnings = folder.without_path(&folder.taken().warnings_text(false));
    has(
        &warnings,
        &["warning: no file matches `*.json`", "main.toml:1:12", "`none/*`", "help: put"],
    );
    let hidden = format!("include = [\"${{PASSWORD}}/*\"]\n{LISTENER}{UPSTREAM}{ROUTE}");
    folder.write("main.toml", hidden.as_bytes());
    let gathered = Gathered::from_file(&folder.0.join("main.toml"), &environment);
    let said = gathered.warnings.render(&gathered.sources, false);
    assert!(said.contains("no file matches") && !said.contains("hunter2"), "{said}");
    folder.write("main.toml", b"include = [\"*.json\"]\n");
    let refused = folder.load().expect_err("refused");
    has(&refused.to_string(), &["there is no route", "no file matches"]);
    assert_eq!(refused.count(), 3, "warnings are not counted");
}

#[test]
fn a_cycle_names_both_places() {
    let main = format!("include = [\"a.toml\"]\n{LISTENER}{UPSTREAM}{ROUTE}");
    let folder = Folder::new(
        "cycle",
        &[
            ("main.toml", &main),
            ("a.toml", "include = [\"b.toml\"]\n"),
            ("b.toml", "\ninclude = [\"a.toml\"]\n"),
        ],
    );
    let said = folder.refused();
    has(&said, &["`a.toml` includes itself", "--> b.toml:2:12", "::: a.toml:1:12", "leads here"]);
}

#[test]
fn depth_and_number_of_files_are_bounded() {
    let chain = |depth: usize| {
        let folder = Folder::new("deep", &[]);
        let rest = format!("{LISTENER}{UPSTREAM}{ROUTE}");
        folder.write("main.toml", format!("include = [\"1.toml\"]\n{rest}").as_bytes());
        for level in 1..depth {
            let text = format!("include = [\"{}.toml\"]\n", level + 1);
            folder.write(&format!("{level}.toml"), text.as_bytes());
        }
        folder.write(&format!("{depth}.toml"), b"");
        folder.load().map(|_| ()).map_err(|refused| folder.without_path(&refused.to_string()))
    };
    assert_eq!(chain(INCLUDE_DEPTH_MAX), Ok(()));
    let said = chain(INCLUDE_DEPTH_MAX + 1).expect_err("too deep");
    has(&said, &["more than 8 deep", &format!("--> {INCLUDE_DEPTH_MAX}.toml:1:12")]);

    let main = format!("include = [\"d/*\"]\n{LISTENER}{UPSTREAM}{ROUTE}");
    let folder = Folder::new("many", &[("main.toml", &main)]);
    (1..CONFIG_FILES_MAX).for_each(|i| folder.write(&format!("d/{i}.toml"), b""));
    assert_eq!(folder.taken().sources.count(), CONFIG_FILES_MAX);
    folder.write("d/more.toml", b"");
    has(&folder.refused(), &["more than 1024 files"]);
}

fn environment(name: &str) -> Option<OsString> {
    match name {
        "PORT" => Some("9001".into()),
        "WORKERS" => Some("3".into()),
        "PASSWORD" => Some("hunter2".into()),
        "OFF" => Some("false".into()),
        _ => None,
    }
}

/// The snapshot, or everything that is said.
fn with_environment(text: &str) -> Result<Snapshot, String> {
    let gathered = Gathered::from_source(Source::toml("x.toml", text), &environment);
    let Gathered { sources, tree, complete, mut decoder, .. } = gathered;
    let compiled = compile_tree(&tree, complete, &mut decoder, &mut Ids::default(), 1);
    compiled.map(|(snapshot, _)| snapshot).map_err(|errors| errors.render(&sources, false))
}

#[test]
fn variables_are_expanded_in_strings() {
    let text = format!(
        "[runtime]\nworkers = \"${{WORKERS}}\"\n{LISTENER}{}{ROUTE}",
        UPSTREAM.replace("127.0.0.1:9001", "${HOST:-127.0.0.1}:${PORT}")
    );
    let snapshot = with_environment(&text).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(snapshot.runtime.workers, Some(3));
    assert_eq!(&*snapshot.upstreams[0].endpoints[0].authority, "127.0.0.1:9001");
    let json = effective(&Source::toml("x.toml", text).into());
    assert_eq!(json["runtime"], json!({ "workers": "${WORKERS}" }));
    let shown = &json["upstream"]["u"]["endpoints"][0]["address"];
    assert_eq!(shown, "${HOST:-127.0.0.1}:${PORT}");
}

/// Where a flag or a table may stand, the environment gives the flag as everywhere else.
#[test]
fn variables_switch_tiers_off() {
    let with = |breaker: &str| {
        let endpoints = "{ address = \"127.0.0.1:1\" }, { address = \"127.0.0.1:2\" }";
        let upstream = format!("[upstream.u]\nendpoints = [{endpoints}]\n");
        with_environment(&format!("{LISTENER}{upstream}breaker = {{ {breaker} }}\n{ROUTE}"))
    };
    let off = with("endpoint = \"${OFF}\", adaptive = \"${OFF}\"").expect("taken");
    assert!(off.upstreams[0].breaker.endpoint.is_off());
    let on = with("adaptive = \"${OFF}\"").expect("taken");
    assert!(!on.upstreams[0].breaker.endpoint.is_off());
    for breaker in ["endpoint = \"false\"", "endpoint = \"${PASSWORD}\""] {
        let said = with(breaker).expect_err("refused");
        has(&said, &["false or a table", "write false, or a table such as"]);
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn values_of_variables_stand_in_no_message() {
    let text = format!(
        "{LISTENER}timeouts = {{ head = \"${{PASSWORD}}\" }}\n\
         [upstream.u]\nendpoints = [{{ address = \"${{PASSWORD}}\", zone = \"${{PASSWORD}} \" }}]\n\
         {}{}",
        route("a").replace("\"u\"", "\"${PASSWORD}\"").replace("\"/a\"", "\"${PASSWORD}\""),
        route("${PASSWORD}").replace("\"/${", "\"/x${"),
    );
    let said = with_environment(&text).expect_err("refused");
    assert!(!said.contains("hunter2"), "{said}");
    has(&said, &["`${PASSWORD}` is not a duration", "`${PASSWORD}` is not the address"]);
    // One more, with what is checked once all values are right.
    let twice = format!("{LISTENER}{UPSTREAM}{}{}", route("${PASSWORD}"), route("${PASSWORD}"));
    let said = with_environment(&twice).expect_err("refused");
    assert!(!said.contains("hunter2"), "{said}");
    has(&said, &["two routes have the id `${PASSWORD}`"]);
    // Parts of values.
    let path =
        |path: &str| format!("{LISTENER}{UPSTREAM}{}", ROUTE.replace("prefix = \"/\"", path));
    for text in [
        path("path = \"/{${PASSWORD}}/{${PASSWORD}}\""),
        path("path = \"/{id}\"\nrewrite = \"/${path.${PASSWORD}}\""),
    ] {
        let said = with_environment(&text).expect_err("refused");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn what_follows_from_an_unset_variable_is_not_said() {
    let text = format!(
        "[runtime]\nwrkers = 1\n{LISTENER}{}{}",
        UPSTREAM.replace("127.0.0.1:9001", "${NO_HOST}"),
        ROUTE.replace("\"u\"", "\"${NO_UPSTREAM}\"")
    );
    let said = with_environment(&text).expect_err("refused");
    assert_eq!(said.matches("error: ").count(), 3, "{said}");
    has(&said, &["`NO_HOST` is not set", "`NO_UPSTREAM` is not set", "unknown key `wrkers`"]);
}

#[test]
fn a_text_includes_no_files() {
    let said = with_environment("include = [\"/etc/passwd\"]\n").expect_err("refused");
    has(&said, &["a text cannot include files", "x.toml:1:1", "--config"]);
}

/// JSON says what TOML says, of the same mistakes.
#[test]
fn json_has_the_same_schema_and_messages() {
    let source = |listener: &str| {
        Source::json(
            "x.json",
            format!(
                "{{\n\"listener\": {{\"a\": {listener}}},\n\
                 \"upstream\": {{\"u\": {{\"endpoints\": [{{\"address\": \"127.0.0.1:1\"}}]}}}},\n\
                 \"route\": [{{\"id\": \"r\", \"prefix\": \"/\", \"upstream\": \"u\"}}]\n}}"
            ),
        )
    };
    let load = |listener: &str| load_source(source(listener), &mut Ids::default(), 1);
    let taken = load("{\"address\": \"127.0.0.1:0\", \"headers_max\": 7}").expect("taken");
    assert_eq!(taken.snapshot.listeners[0].head.headers_max, 7);
    for (listener, parts) in [
        ("{\"adress\": \"127.0.0.1:0\"}", &["unknown key `adress`", "x.json:2:20"][..]),
        ("{\"address\": \"localhost\"}", &["not an address to listen on", "x.json:2:31"]),
        ("{\"address\": null}", &["`address` is null", "x.json:2:31"]),
        ("{\"address\": \"[::]:0\", \"headers_max\": 7.5}", &["found a float"]),
        ("{\"address\": \"[::]:0\", \"headers_max\": 7e99}", &["found a float"]),
        ("7", &["expected a table", "x.json:2:19"]),
    ] {
        has(&load(listener).expect_err("refused").to_string(), parts);
    }
}

#[test]
fn check_counts_the_errors_of_all_files_and_shows_paths_as_given() {
    let main = format!("include = [\"parts/*.toml\"]\n{LISTENER}via = 1\n");
    let folder = Folder::new(
        "check",
        &[("main.toml", &main), ("parts/a.toml", "[upstream.u]\n"), ("parts/b.toml", ROUTE)],
    );
    let output = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(["check", "--config", "./main.toml"])
        .current_dir(&folder.0)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr);
    has(&said, &["--> ./main.toml:4:7", "--> ./parts/a.toml:1:1", "not valid: 2 errors"]);
    let name = "../".to_owned() + &folder.0.file_name().expect("a name").to_string_lossy();
    let output = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .args(["check", "--config", &format!("{name}/main.toml")])
        .current_dir(&folder.0)
        .output()
        .expect("the binary runs");
    has(&String::from_utf8_lossy(&output.stderr), &[&format!("--> {name}/parts/a.toml:1:1")]);
}

#[test]
fn sources_keep_what_was_read() {
    let folder = Folder::new("kept", &[("main.toml", &format!("{LISTENER}{UPSTREAM}{ROUTE}"))]);
    let loaded = folder.taken();
    let before = effective(&loaded.sources);
    folder.write("main.toml", b"changed since");
    assert_eq!(effective(&loaded.sources), before);
    let refused: Sources = Sources::clone(&folder.load().expect_err("refused").sources);
    assert_eq!(refused.first().text, "changed since");
}

/// A seed of the fuzz target, with pieces of others and words put into it.
fn mutated() -> impl Strategy<Value = String> {
    let seeds = || {
        let files = fs::read_dir("fuzz/corpus/config").expect("seeds");
        let mut paths: Vec<PathBuf> = files.map(|file| file.expect("an entry").path()).collect();
        paths.sort();
        let texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
        texts.collect::<Vec<String>>()
    };
    let piece = prop_oneof![
        prop::sample::select(WORDS).prop_map(str::to_owned),
        "[ -~\n]{0,6}",
        (prop::sample::select(seeds()), any::<prop::sample::Index>(), 0usize..60).prop_map(
            |(text, at, length)| {
                let at = at.index(text.len() + 1);
                text.get(at..(at + length).min(text.len())).unwrap_or_default().to_owned()
            }
        ),
    ];
    let edit = (any::<prop::sample::Index>(), 0usize..12, piece);
    (prop::sample::select(seeds()), prop::collection::vec(edit, 0..6)).prop_map(
        |(mut text, edits)| {
            for (at, length, piece) in edits {
                let at = at.index(text.len() + 1);
                let end = (at + length).min(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(end) {
                    text.replace_range(at..end, &piece);
                }
            }
            text
        },
    )
}

const WORDS: &[&str] = &[
    "${SECRET}",
    "${PORT}",
    "${EMPTY:-x}",
    "${NONE}",
    "$${SECRET}",
    "include = [\"a\"]\n",
    "\"include\": [], ",
    "null",
    "1e999",
    "9223372036854775808",
    "\"\"\"",
    "\\u00e9",
    "\\ud800",
    "\u{1}",
    "\u{b}",
    "\u{a0}",
    "\u{feff}",
    "é",
    "[[",
    "{",
    "\r\n",
    "authorization",
    "://u@",
    "`",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_near_a_seed_passes_the_fuzz_target(text in mutated()) {
        fuzz::config(text.as_bytes());
    }
}
