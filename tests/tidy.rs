//! Holds what docs/architecture.md and the style promise: layers, sizes, file headers, bans.
//!
//! Plain scanning of lines and braces, over text from which comments and literals were taken.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers; a module imports only from rows above its own.
const ROWS: &[&[&str]] = &[
    &["limits", "error", "base"],
    &["io", "observe", "http", "config"],
    &["http1", "http2", "proxy_protocol", "tls"],
    &["context"],
    &["route", "upstream", "filter"],
    &["snapshot", "state"],
    &["proxy"],
    &["worker"],
    &["control"],
    &["cli", "main"],
];

/// Imports inside a row that are right: who, what, why. Only shrinks.
const SIBLINGS: &[(&str, &str, &str)] = &[
    ("base", "limits::", "bounds are constants that everything may read"),
    ("error", "limits::", "bounds are constants that everything may read"),
    ("http", "error::", "parsers say what is wrong in the words of row 0"),
    ("route", "upstream::UpstreamId", "a route names its upstream by id and touches nothing of it"),
    ("route", "upstream::{EndpointId", "and an endpoint in the same way"),
    ("state", "snapshot::", "state is kept for the ids of the plans of the snapshot in force"),
];

/// Functions that may be longer than [`FUNCTION_LINES_MAX`]: file, name, why. Only shrinks.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Files that may be longer than [`FILE_LINES_MAX`]: file, why. Only shrinks.
const LONG_FILES: &[(&str, &str)] = &[];

/// Modules that run on control, helper or log threads and may hold locks.
const OFF_THE_WORKERS: &[&str] = &["config", "snapshot", "control", "cli", "main"];

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// Directories with our Rust.
const RUST: &[&str] = &["src", "tests", "benches", "perf", "fuzz"];

/// Directories whose every text is ours.
const TEXT: &[&str] = &["src", "tests", "benches", "perf", "fuzz", "docs", "configs", ".ci"];

#[test]
fn layers() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        let module = module_of(&source.name);
        if module == "lib" {
            continue;
        }
        for (line, import) in imports(&source.code) {
            if let Err(why) = may_import(&module, &import) {
                wrong.push(format!("{}:{line}: crate::{import}: {why}", source.name));
            }
        }
    }
    report("layers", wrong);
}

#[test]
fn sizes() {
    let mut wrong = Vec::new();
    for source in sources(RUST) {
        let lines = source.text.lines().count();
        let named = LONG_FILES.iter().any(|(file, _)| *file == source.name);
        if (lines > FILE_LINES_MAX) != named {
            wrong.push(format!("{}: {lines} lines, in the list: {named}", source.name));
        }
        for (name, line, length) in functions(&source.code) {
            let listed = |entry: &&(&str, &str, &str)| entry.0 == source.name && entry.1 == name;
            let named = LONG_FUNCTIONS.iter().any(|entry| listed(&entry));
            if length > FUNCTION_LINES_MAX && !named {
                wrong.push(format!("{}:{line}: fn {name} has {length} lines", source.name));
            }
        }
    }
    report("sizes", wrong);
}

#[test]
fn headers() {
    let bare = |source: &Source| !source.text.starts_with("//!");
    let wrong = sources(RUST).into_iter().filter(bare).map(|source| source.name);
    report("files that do not begin with what they are for", wrong.collect());
}

/// P1: no lock in what a worker runs; P5: nothing that blocks it.
#[test]
fn bans() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        let module = module_of(&source.name);
        let code = without_tests(&source.code);
        for (word, allowed_in, why) in BANS {
            if allowed_in.contains(&module.as_str()) {
                continue;
            }
            for line in lines_with(&code, word) {
                wrong.push(format!("{}:{line}: {word}: {why}", source.name));
            }
        }
        if !OFF_THE_WORKERS.contains(&module.as_str()) {
            for word in ["Mutex", "RwLock"] {
                for line in lines_with(&code, word) {
                    wrong.push(format!("{}:{line}: {word} on the request path", source.name));
                }
            }
        }
    }
    report("bans", wrong);
}

/// Words that do not stand in src/, the modules where they may, and why.
const BANS: &[(&str, &[&str], &str)] = &[
    ("monoio", &["io"], "only io names the runtime, so that it can be replaced"),
    ("monoio_http", &["io"], "only io names the runtime, so that it can be replaced"),
    // main: one call of the allocator's that its wrapper does not offer; idle memory is a third of
    // what it is without (perf/idle).
    ("unsafe", &["io", "main"], "only io may, with a SAFETY comment and a measured reason"),
    (".unwrap()", &[], "say with expect why it holds"),
    ("todo!", &[], "unfinished"),
    ("unimplemented!", &[], "unfinished"),
    ("dbg!", &[], "left over"),
    ("println!", &["cli"], "standard output belongs to the command line"),
    ("print!", &["cli"], "standard output belongs to the command line"),
    ("eprintln!", &["cli"], "the log belongs to tracing"),
    ("thread::sleep", &[], "a worker never blocks; elsewhere wait for an event"),
];

#[test]
fn words_that_stay_out() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let places = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
    let mut wrong = Vec::new();
    for (name, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            let unfinished = words.iter().find(|word| has_word(line, word));
            let machine = places.iter().find(|place| line.contains(**place));
            if let Some(found) = unfinished.or(machine) {
                wrong.push(format!("{name}:{}: {found}", number + 1));
            }
        }
    }
    report("unfinished work, or a path of somebody's machine", wrong);
}

/// Every exception is still needed, so that the lists only shrink.
#[test]
fn exceptions_are_needed() {
    let sources = sources(&["src"]);
    let mut wrong = Vec::new();
    for (file, name, _) in LONG_FUNCTIONS {
        let source = sources.iter().find(|source| source.name == *file);
        let long = source.is_some_and(|source| {
            functions(&source.code).iter().any(|f| f.0 == *name && f.2 > FUNCTION_LINES_MAX)
        });
        if !long {
            wrong.push(format!("{file}: fn {name} fits"));
        }
    }
    report("exceptions that nobody needs", wrong);
}

struct Source {
    name: String,
    text: String,
    /// The text with comments and the insides of literals blanked.
    code: String,
}

fn sources(directories: &[&str]) -> Vec<Source> {
    let files = directories.iter().flat_map(walk);
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let text = fs::read_to_string(root().join(&path)).expect("a source file is text");
            let code = scrub(&text);
            Source { name: path.to_string_lossy().into_owned(), text, code }
        })
        .collect()
}

fn texts() -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = TEXT.iter().flat_map(walk).collect();
    files.extend(["README.md", "Cargo.toml", "clippy.toml"].map(PathBuf::from));
    // A flame graph carries a script of the tool that drew it.
    files.retain(|path| path.extension().is_none_or(|extension| extension != "svg"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some((path.to_string_lossy().into_owned(), text))
    };
    files.into_iter().filter_map(read).collect()
}

/// Files below a directory, by name, without what builds leave behind.
fn walk(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join(&directory)) else { return Vec::new() };
    let mut out = Vec::new();
    for entry in entries.flatten() {
        let path = directory.as_ref().join(entry.file_name());
        let skipped = ["target", "corpus", "artifacts", "tmp", "__pycache__"];
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                if !skipped.iter().any(|name| entry.file_name() == *name) {
                    out.extend(walk(&path));
                }
            }
            _ => out.push(path),
        }
    }
    out.sort();
    out
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn report(what: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{what}: {} found\n{}", wrong.len(), wrong.join("\n"));
}

/// `src/http1/conn.rs` is in `http1`, `src/error.rs` in `error`.
fn module_of(name: &str) -> String {
    let inner = name.strip_prefix("src/").unwrap_or(name);
    let first = inner.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

fn row_of(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module))
}

fn may_import(module: &str, import: &str) -> Result<(), String> {
    let target = import.split("::").next().unwrap_or_default();
    if target == module || target.is_empty() {
        return Ok(());
    }
    let Some(own) = row_of(module) else { return Err(format!("{module} stands in no row")) };
    // What is not a module is a macro or a re-export of lib.rs, of which there are none.
    let Some(row) = row_of(target) else { return Err(format!("{target} stands in no row")) };
    let sibling = |entry: &&(&str, &str, &str)| entry.0 == module && import.starts_with(entry.1);
    if row < own || row == own && SIBLINGS.iter().any(|entry| sibling(&entry)) {
        Ok(())
    } else {
        Err(format!("{module} (row {own}) must not know {target} (row {row})"))
    }
}

/// What stands behind every `crate::`, with its line; a list in braces is one for each element.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            out.extend(split_list(list).into_iter().map(|import| (line, import)));
        } else {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || "_:{".contains(c)));
            out.push((line, rest[..end.unwrap_or(rest.len())].to_owned()));
        }
    }
    out
}

/// The elements of a list at its outermost level, up to the brace that closes it.
fn split_list(list: &str) -> Vec<String> {
    let (mut out, mut depth, mut element) = (Vec::new(), 0, String::new());
    for c in list.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => out.push(std::mem::take(&mut element)),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                if !c.is_whitespace() {
                    element.push(c);
                }
            }
        }
    }
    out.push(element);
    out.retain(|element| !element.is_empty());
    out
}

/// Functions with bodies: name, first line, number of lines.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = body_start(rest).filter(|_| !name.is_empty()) else { continue };
        let Some(close) = matching(&rest[open..]) else { continue };
        let lines = rest[..open + close].matches('\n').count() + 1;
        out.push((name, code[..at].matches('\n').count() + 1, lines));
    }
    out
}

/// Where the body of a function begins; none where it has none.
fn body_start(signature: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in signature.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Where the brace that opens `code` is closed.
fn matching(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Blanks the modules of unit tests, so that lines keep their numbers.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(at) = out.find("#[cfg(test)]") {
        let Some(open) = body_start(&out[at..].replacen("#[cfg(test)]", "            ", 1)) else {
            out.replace_range(at..at + 12, &" ".repeat(12));
            continue;
        };
        let end = matching(&out[at + open..]).map_or(out.len(), |close| at + open + close + 1);
        let blank: String =
            out[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(at..end, &blank);
    }
    out
}

/// Numbers of the lines in which a word stands.
fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let found = code.lines().enumerate().filter(|(_, line)| has_word(line, word));
    found.map(|(number, _)| number + 1).collect()
}

/// Whether a word stands in a line, and not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = !word.starts_with(part) || !line[..at].ends_with(part);
        let after = !word.ends_with(part) || !line[at + word.len()..].starts_with(part);
        before && after
    })
}

/// Blanks comments and the insides of strings and characters, byte for byte and line for line.
fn scrub(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + literal_length(bytes, at);
        if end == at {
            // A whole character, so that no other is cut.
            let c = text[at..].chars().next().expect("there is a character at every boundary");
            out.push(if c.is_ascii() { c } else { '_' });
            at += c.len_utf8();
            continue;
        }
        out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Bytes of the comment or literal that begins here; 0 where none does.
fn literal_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => comment_length(rest),
        [b'"', ..] => string_length(rest),
        [b'r', b'"' | b'#', ..] if !word_before => raw_length(rest, 1),
        [b'b', b'r', b'"' | b'#', ..] if !word_before => raw_length(rest, 2),
        // A character, and not a lifetime.
        [b'\'', b'\\', _, tail @ ..] => {
            tail.iter().position(|&byte| byte == b'\'').map_or(0, |end| end + 4)
        }
        [b'\'', tail @ ..] => {
            let width = tail.first().map_or(0, |&first| match first {
                0..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            });
            if tail.get(width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += 1 + usize::from(rest[at] == b'\\');
    }
    (at + 1).min(rest.len())
}

fn raw_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return 0;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let end = rest[open + 1..].windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| open + 1 + end + close.len())
}

#[test]
fn scrubbing_takes_comments_and_literals_and_keeps_lines() {
    let text = "a // unsafe\nb /* x /* y */\nz */ c \"d\\\"{\" r#\"e\"f\"# 'g' '\\'' &'h i b'{' é";
    let code = scrub(text);
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(!code.contains("unsafe") && !code.contains('{') && !code.contains('z'), "{code}");
    for kept in ["a ", "b ", " c ", "&'h i"] {
        assert!(code.contains(kept), "{kept} in {code}");
    }
}

#[test]
fn functions_are_measured_from_name_to_brace() {
    let code =
        "fn a() {}\nfn b(x: [u8; 4]) -> T\nwhere T: U,\n{\n  if c {\n  }\n}\ntrait V { fn w(); }";
    assert_eq!(functions(code), [("a".to_owned(), 1, 1), ("b".to_owned(), 2, 6)]);
}

#[test]
fn imports_are_found_in_lists_and_inline() {
    let code =
        "use crate::a::B;\nuse crate::{c, d::{E, F}};\nlet x = crate::g::h();\n$crate::i!();";
    let found: BTreeMap<String, usize> = imports(code).into_iter().map(|(l, i)| (i, l)).collect();
    let wanted = [("a::B", 1), ("c", 2), ("d::{E,F}", 2), ("g::h", 3)];
    assert_eq!(found, wanted.map(|(import, line)| (import.to_owned(), line)).into());
}

#[test]
fn layers_hold_both_ways() {
    assert!(may_import("proxy", "upstream::pool").is_ok());
    assert!(may_import("http1", "http1::head").is_ok());
    assert!(may_import("upstream", "proxy::serve").is_err());
    assert!(may_import("route", "upstream::UpstreamId").is_ok());
    assert!(may_import("route", "upstream::pool::Pool").is_err());
    assert!(may_import("upstream", "route::RouteTable").is_err());
    assert!(may_import("nowhere", "limits::X").is_err());
    assert_eq!(module_of("src/http1/conn.rs"), "http1");
    assert_eq!(module_of("src/error.rs"), "error");
}

#[test]
fn words_are_whole_and_test_modules_are_left_out() {
    assert!(has_word("x.unwrap();", ".unwrap()") && !has_word("x.unwrap_or(1)", ".unwrap()"));
    assert!(has_word("unsafe {", "unsafe") && !has_word("allow(unsafe_code)", "unsafe"));
    assert!(has_word("use monoio::net", "monoio") && !has_word("monoio_http::h1", "monoio"));
    let code = "a();\n#[cfg(test)]\nmod tests {\n  b.unwrap();\n}\nc();";
    let kept = without_tests(code);
    assert!(kept.contains("a();") && kept.contains("c();") && !kept.contains("unwrap"));
    assert_eq!(kept.lines().count(), code.lines().count());
    assert_eq!(without_tests("#[cfg(test)]\nuse a::b;\nfn c() {}").trim(), "use a::b;\nfn c() {}");
}
