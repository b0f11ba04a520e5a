//! A whole configuration: the file that was named and those that it includes, merged.

use std::collections::HashMap;
use std::fs::{FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::decode::{Decoder, mismatch};
use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::environment::{Environment, Lookup};
use super::merge::Merged;
use super::read::list;
use super::source::{Kind, Source, Sources};
use super::tree::{Entry, Node, Spanned, Value};
use crate::limits::{CONFIG_BYTES_MAX, CONFIG_FILES_MAX, INCLUDE_DEPTH_MAX};

/// A configuration that was read.
#[derive(Debug)]
pub struct Gathered {
    /// Every file.
    pub sources: Sources,
    /// All files as one table, as far as they could be read.
    pub tree: Node,
    /// Whether all of them could be read: else nothing is known to be missing.
    pub complete: bool,
    /// What is wrong so far.
    pub decoder: Decoder,
    /// What is hardly meant that way.
    pub warnings: Diagnostics,
}

impl Gathered {
    /// Reads the file at `path` and those that it includes, with variables from `lookup`.
    pub fn from_file(path: &Path, lookup: Lookup<'_>) -> Gathered {
        let text = read(path, CONFIG_BYTES_MAX);
        let (name, kind) = (path.display().to_string(), Kind::of(path));
        let source = |text| Source { name: name.clone(), text, kind };
        let text = match text {
            Ok(text) => text,
            Err(why) => {
                let mut gathering = Gathering::new(source(String::new()), lookup);
                gathering.decoder.found.push(why.of_the_first());
                gathering.complete = false;
                return gathering.end();
            }
        };
        let mut gathering = Gathering::new(source(text), lookup);
        // What could be read has a canonical path, unless it has just gone.
        if let Ok(canonical) = path.canonicalize() {
            gathering.seen.insert(canonical, Seen { name, span: None, open: Some(0) });
        }
        gathering.add(0, Some(path), 0);
        gathering.end()
    }

    /// Reads texts that have been taken once more, with variables from `lookup`: files that they
    /// include are among them.
    pub fn again(sources: &Sources, lookup: Lookup<'_>) -> Gathered {
        let mut gathering = Gathering::new(sources.first().clone(), lookup);
        for (base, source) in sources.iter() {
            if base > 0 {
                gathering.sources.add(source.clone());
            }
            let found = &mut gathering.decoder.found;
            let parsed = Node::parse(source.kind, &source.text, base, found);
            let Some(mut node) = parsed else {
                gathering.complete = false;
                continue;
            };
            gathering.environment.expand(&mut node, found);
            let Value::Table(mut entries) = node.value else { continue };
            entries.retain(|entry| &*entry.key != INCLUDE);
            gathering.merged.add(entries, found);
        }
        gathering.end()
    }

    /// Reads a text, which cannot include files, with variables from `lookup`.
    pub fn from_source(source: Source, lookup: Lookup<'_>) -> Gathered {
        let mut gathering = Gathering::new(source, lookup);
        gathering.add(0, None, 0);
        gathering.end()
    }
}

/// The texts of a configuration that was taken, as one table; variables stand as written.
pub fn merge(sources: &Sources) -> Node {
    let (mut merged, mut found) = (Merged::default(), Diagnostics::default());
    for (base, source) in sources.iter() {
        let parsed = Node::parse(source.kind, &source.text, base, &mut found);
        if let Some(Node { value: Value::Table(mut entries), .. }) = parsed {
            entries.retain(|entry| &*entry.key != INCLUDE);
            merged.add(entries, &mut found);
        }
    }
    merged.into_node()
}

struct Gathering<'a> {
    sources: Sources,
    environment: Environment<'a>,
    merged: Merged,
    complete: bool,
    decoder: Decoder,
    warnings: Diagnostics,
    /// The files so far, by canonical path.
    seen: HashMap<PathBuf, Seen>,
    /// The strings that led to the file at hand, outermost first.
    open: Vec<Span>,
}

/// A file that was included.
struct Seen {
    /// What messages call it.
    name: String,
    /// By which string; none is the first file.
    span: Option<Span>,
    /// How deep, while what it includes is being read.
    open: Option<usize>,
}

impl<'a> Gathering<'a> {
    fn new(first: Source, lookup: Lookup<'a>) -> Gathering<'a> {
        Gathering {
            sources: Sources::new(first),
            environment: Environment::new(lookup),
            merged: Merged::default(),
            complete: true,
            decoder: Decoder::default(),
            warnings: Diagnostics::default(),
            seen: HashMap::new(),
            open: Vec::new(),
        }
    }

    fn end(self) -> Gathered {
        let Gathering { sources, merged, complete, mut decoder, warnings, .. } = self;
        let folder = |name: &str| Path::new(name).with_file_name("");
        decoder.folders =
            sources.iter().map(|(base, source)| (base, folder(&source.name))).collect();
        Gathered { sources, tree: merged.into_node(), complete, decoder, warnings }
    }

    /// Adds the text at `base`, then the files that it includes.
    fn add(&mut self, base: usize, path: Option<&Path>, depth: usize) {
        let (source, _) = self.sources.place(&(base..base));
        let found = &mut self.decoder.found;
        let Some(mut node) = Node::parse(source.kind, &source.text, base, found) else {
            self.complete = false;
            return;
        };
        self.environment.expand(&mut node, found);
        let Value::Table(mut entries) = node.value else { return };
        let include = entries.iter().position(|entry| &*entry.key == INCLUDE);
        let include = include.map(|at| entries.remove(at));
        self.merged.add(entries, found);
        let Some(include) = include else { return };
        match path {
            Some(path) => self.include(&include, path, depth),
            None => {
                let error = Diagnostic::error(include.key_span, "a text cannot include files");
                self.fail(error.remedy("include files in a file that --config names"));
            }
        }
    }

    fn include(&mut self, include: &Entry, from: &Path, depth: usize) {
        let patterns = list(0..=CONFIG_FILES_MAX, pattern)(&include.value, &mut self.decoder);
        let Some(patterns) = patterns else {
            self.complete = false;
            return;
        };
        if let Value::Array(items) = &include.value.value
            && items.len() > patterns.len()
        {
            self.complete = false;
        }
        for pattern in patterns {
            // What is not known has been said to be so.
            let known = self.decoder.found.is_known(&pattern.span());
            let (span, written) = (pattern.span(), Path::new(&*pattern.value));
            if !known {
                self.complete = false;
            } else if !has_wildcard(written) {
                self.file(&from.with_file_name("").join(written), &span, depth + 1);
            } else {
                self.pattern(from, written, &span, depth + 1);
            }
        }
    }

    /// Every file that a pattern matches, sorted by name.
    fn pattern(&mut self, from: &Path, pattern: &Path, span: &Span, depth: usize) {
        let folder = from.with_file_name("").join(pattern.parent().unwrap_or(Path::new("")));
        let last = pattern.file_name().and_then(|name| name.to_str());
        let Some(last) = last.filter(|_| !pattern.parent().is_some_and(has_wildcard)) else {
            let error = Diagnostic::error(span.clone(), "wildcards in the name of a folder");
            let error = error.label("only a file's name may have them");
            self.fail(error.remedy("list one pattern for each folder"));
            return;
        };
        match matching(&folder, last) {
            Ok(names) if names.is_empty() => {
                let message = format!("no file matches `{}`", pattern.display());
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
                let remedy =
                    format!("put files into `{}`, or remove the pattern", folder.display());
                let warning = Diagnostic::warning(span.clone(), message).label("includes nothing");
                // The values of variables are known where the errors are gathered.
                if let Some(warning) = self.decoder.found.concealed(warning.remedy(remedy)) {
                    self.warnings.push(warning);
                }
            }
            Ok(names) => names.iter().for_each(|name| self.file(&folder.join(name), span, depth)),
            Err(error) => {
                let message = format!("folder `{}` cannot be read: {error}", folder.display());
                let error = Diagnostic::error(span.clone(), message);
                self.fail(error.remedy("let the user that ringway runs as read it"));
            }
        }
    }

    /// One file, which the string at `span` includes.
    fn file(&mut self, path: &Path, span: &Span, depth: usize) {
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(seen) = self.seen.get(&canonical) {
            let error = self.seen_before(seen, span);
            return self.fail(error);
        }
        let bound = match () {
            () if depth > INCLUDE_DEPTH_MAX => {
                format!("files include each other more than {INCLUDE_DEPTH_MAX} deep")
            }
            () if self.sources.count() >= CONFIG_FILES_MAX => {
                format!("the configuration has more than {CONFIG_FILES_MAX} files")
            }
            () => String::new(),
        };
        if !bound.is_empty() {
            let error = Diagnostic::error(span.clone(), bound).label("one too many");
            return self.fail(error.remedy("write fewer, larger files"));
        }
        let left = CONFIG_BYTES_MAX.saturating_sub(self.sources.bytes() as u64);
        let text = match read(path, left) {
            Ok(text) => text,
            Err(why) => return self.fail(why.of_an_included(path, span)),
        };
        let name = path.display().to_string();
        let source = Source { name: name.clone(), text, kind: Kind::of(path) };
        let base = self.sources.add(source);
        let seen = Seen { name, span: Some(span.clone()), open: Some(depth) };
        self.seen.insert(canonical.clone(), seen);
        self.open.push(span.clone());
        self.add(base, Some(path), depth);
        self.open.pop();
        if let Some(seen) = self.seen.get_mut(&canonical) {
            seen.open = None;
        }
    }

    /// A cycle, or a file that is included twice.
    fn seen_before(&self, seen: &Seen, span: &Span) -> Diagnostic {
        let name = &seen.name;
        if let Some(depth) = seen.open {
            let error = Diagnostic::error(span.clone(), format!("`{name}` includes itself"))
                .label("leads back to it")
                .remedy("remove one of the two from its `include`");
            return match self.open.get(depth) {
                Some(way) => error.other(way.clone(), "leads here"),
                None => error.remedy("remove it from its own `include`"),
            };
        }
        let error = Diagnostic::error(span.clone(), format!("`{name}` is included twice"))
            .label("the second")
            .remedy("include it in one place");
        match seen.span.as_ref().filter(|first| *first != span) {
            Some(first) => error.other(first.clone(), "the first"),
            None => error,
        }
    }

    fn fail(&mut self, error: Diagnostic) {
        self.complete = false;
        self.decoder.found.push(error);
    }
}

fn pattern(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let remedy = r#"write the path of a file in quotes: include = ["upstreams.toml"]"#;
    match &node.value {
        Value::String(text) if !text.is_empty() => {
            return Some(Spanned::new(text.clone(), &node.span));
        }
        Value::String(_) => {
            let empty = Diagnostic::error(node.span.clone(), "the path of a file is empty");
            decoder.found.push(empty.label("names no file").remedy(remedy));
        }
        _ => decoder.found.push(mismatch(node, "the path of a file, a string").remedy(remedy)),
    }
    None
}

fn has_wildcard(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|byte| WILDCARDS.contains(byte))
}

/// The files of a folder that `pattern` matches, sorted; a folder that is not there has none.
fn matching(folder: &Path, pattern: &str) -> io::Result<Vec<String>> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match std::fs::read_dir(here) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        // As in a shell, `*` does not match hidden files.
        let hidden = name.starts_with('.') && !pattern.starts_with('.');
        if !hidden && matches(pattern.as_bytes(), name.as_bytes()) && !here.join(&name).is_dir() {
            names.push(name);
        }
    }
    names.sort_unstable();
    // One more than may be, so that it is seen.
    names.truncate(CONFIG_FILES_MAX + 1);
    Ok(names)
}

/// Whether `*` and `?` in `pattern` can stand for parts of `name`: goes back to the last `*` only,
/// so that no pattern takes more than the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(b'?') => {
                // A whole character.
                n += 1;
                while name.get(n).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    n += 1;
                }
                p += 1;
            }
            Some(byte) if *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((behind, at)) = star else { return false };
                star = Some((behind, at + 1));
                (p, n) = (behind, at + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Why a file's text cannot be had.
enum Unreadable {
    Io(io::Error),
    /// What it is instead of a file: reading it might never end.
    NoFile(&'static str),
    TooLarge,
    NotText {
        line: usize,
        at: usize,
    },
}

impl Unreadable {
    fn of_the_first(&self) -> Diagnostic {
        let (message, remedy) = match self {
            Unreadable::Io(error) => (
                format!("the file cannot be read: {error}"),
                "name an existing, readable file with --config FILE",
            ),
            Unreadable::NoFile(kind) => (
                format!("the file cannot be read: it is {kind}"),
                "name a regular file with --config FILE",
            ),
            Unreadable::TooLarge => (
                format!("the file is larger than {CONFIG_BYTES_MAX} bytes"),
                "write a smaller file",
            ),
            Unreadable::NotText { line, at } => (
                format!("line {line} is not UTF-8, at byte {at} of the file"),
                "save the file as UTF-8",
            ),
        };
        Diagnostic::whole_file(message).remedy(remedy)
    }

    fn of_an_included(&self, path: &Path, span: &Span) -> Diagnostic {
        let name = path.display();
        let (message, label, remedy) = match self {
            Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound => (
                format!("there is no file `{name}`"),
                "not found",
                "create it, or correct the path: it is relative to the file it stands in",
            ),
            Unreadable::NoFile(FOLDER) => (
                format!("file `{name}` cannot be read: it is {FOLDER}"),
                "not a file",
                "include its files by a pattern, such as \"NAME/*.toml\"",
            ),
            Unreadable::NoFile(kind) => (
                format!("file `{name}` cannot be read: it is {kind}"),
                "not a file",
                "include a regular file",
            ),
            Unreadable::Io(error) => (
                format!("file `{name}` cannot be read: {error}"),
                "not readable",
                "let the user that ringway runs as read it",
            ),
            Unreadable::TooLarge => (
                format!("with `{name}` the configuration is larger than {CONFIG_BYTES_MAX} bytes"),
                "one too many",
                "write smaller files",
            ),
            Unreadable::NotText { line, at } => (
                format!("line {line} of `{name}` is not UTF-8, at byte {at} of the file"),
                "not a text",
                "save the file as UTF-8",
            ),
        };
        Diagnostic::error(span.clone(), message).label(label).remedy(remedy)
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    // Opening a FIFO would wait for whoever writes to it.
    let nonblocking = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
    let file = nonblocking.map_err(Unreadable::Io)?;
    let kind = file.metadata().map_err(Unreadable::Io)?.file_type();
    if !kind.is_file() {
        return Err(Unreadable::NoFile(kind_name(kind)));
    }
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Unreadable::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + memchr::memchr_iter(b'\n', &error.as_bytes()[..at]).count();
        Unreadable::NotText { line, at }
    })
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => FOLDER,
        kind if kind.is_fifo() => "a FIFO or a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

const FOLDER: &str = "a directory";
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The key that names other files.
pub(super) const INCLUDE: &str = "include";

const WILDCARDS: &[u8] = b"*?";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_any_part_of_a_name() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml~", false),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaxab", true),
            ("*a*b", "xaxac", false),
            ("**", "", true),
            ("?", "", false),
            ("[a]", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let many = "a*".repeat(200) + "b";
        assert!(!matches(many.as_bytes(), "a".repeat(2_000).as_bytes()), "and soon");
    }
}
