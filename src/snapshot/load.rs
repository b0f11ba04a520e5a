//! A snapshot from a file.

use std::fmt;
use std::io::Read;
use std::path::Path;

use super::{Ids, Snapshot, compile};
use crate::config::{Diagnostic, Diagnostics, Source};
use crate::limits::CONFIG_BYTES_MAX;

/// A file that was taken.
#[derive(Debug)]
pub struct Loaded {
    /// What runs.
    pub snapshot: Snapshot,
    /// What is hardly meant that way.
    pub warnings: Diagnostics,
    /// The file.
    pub source: Source,
}

/// A file that was refused. Displayed, it is the plain text of every error.
#[derive(Debug)]
pub struct Rejected {
    /// Every error.
    pub errors: Diagnostics,
    /// The file, empty where it could not be read.
    pub source: Source,
}

/// Reads, checks and compiles the file at `path`. `ids` change only if it is taken.
///
/// # Errors
/// The file cannot be read, or everything that is wrong in it.
pub fn load(path: &Path, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    let name = path.display().to_string();
    match read(path) {
        Ok(text) => load_text(&name, &text, ids, version),
        Err(error) => {
            let mut errors = Diagnostics::default();
            errors.push(*error);
            let source = Source { name, text: String::new() };
            Err(Box::new(Rejected { errors, source }))
        }
    }
}

/// Checks and compiles `text`, which messages call `name`. `ids` change only if it is taken.
///
/// # Errors
/// Everything that is wrong in it.
pub fn load_text(
    name: &str,
    text: &str,
    ids: &mut Ids,
    version: u64,
) -> Result<Loaded, Box<Rejected>> {
    let source = Source { name: name.into(), text: text.into() };
    match compile(&source.text, ids, version) {
        Ok((snapshot, warnings)) => Ok(Loaded { snapshot, warnings, source }),
        Err(errors) => Err(Box::new(Rejected { errors, source })),
    }
}

impl Loaded {
    /// The warnings as text, empty where there are none; `styled` is for terminals.
    pub fn warnings_text(&self, styled: bool) -> String {
        self.warnings.render(&self.source, styled)
    }
}

impl Rejected {
    /// How many errors there are.
    pub fn count(&self) -> usize {
        self.errors.count()
    }

    /// The errors as text; `styled` is for terminals.
    pub fn render(&self, styled: bool) -> String {
        self.errors.render(&self.source, styled)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Rejected {}

fn read(path: &Path) -> Result<String, Box<Diagnostic>> {
    let unreadable = |error: std::io::Error| {
        Diagnostic::whole_file(format!("the file cannot be read: {error}"))
            .remedy("name an existing, readable file with --config FILE")
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        let message = format!("the file is larger than {CONFIG_BYTES_MAX} bytes");
        return Err(Box::new(Diagnostic::whole_file(message).remedy("write a smaller file")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + memchr::memchr_iter(b'\n', &error.as_bytes()[..valid]).count();
        let message = format!("line {line} is not UTF-8, at byte {valid} of the file");
        Box::new(Diagnostic::whole_file(message).remedy("save the file as UTF-8"))
    })
}
