//! A snapshot from a file and those that it includes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{Ids, Snapshot, compile_tree};
use crate::config::{Diagnostics, Gathered, Source, Sources, include};

/// A configuration that was taken.
#[derive(Debug)]
pub struct Loaded {
    /// What runs.
    pub snapshot: Snapshot,
    /// What is hardly meant that way.
    pub warnings: Diagnostics,
    /// Its texts.
    pub sources: Arc<Sources>,
}

/// A configuration that was refused. Displayed, it is the plain text of everything that was found.
#[derive(Debug)]
pub struct Rejected {
    /// Every error, of all files.
    pub errors: Diagnostics,
    /// What is hardly meant that way, and may explain an error.
    pub warnings: Diagnostics,
    /// Its texts; the first is empty where it could not be read.
    pub sources: Arc<Sources>,
}

/// Reads, checks and compiles the file at `path` and those that it includes. `ids` change only if
/// all of it is taken.
///
/// # Errors
/// The file cannot be read, or everything that is wrong.
pub fn load(path: &Path, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    compiled(Gathered::from_file(path, &|name| std::env::var_os(name)), ids, version)
}

/// Compiles texts that have been taken once more, with the files that they name as they stand now.
/// `ids` change only if it is taken.
///
/// # Errors
/// Everything that is wrong with what they name.
pub fn load_again(sources: &Sources, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    compiled(Gathered::again(sources, &|name| std::env::var_os(name)), ids, version)
}

/// Checks and compiles a text that includes no other. `ids` change only if it is taken.
///
/// # Errors
/// Everything that is wrong in it.
pub fn load_source(source: Source, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    compiled(Gathered::from_source(source, &|name| std::env::var_os(name)), ids, version)
}

/// Checks and compiles TOML, which messages call `name`. `ids` change only if it is taken.
///
/// # Errors
/// Everything that is wrong in it.
pub fn load_text(
    name: &str,
    text: &str,
    ids: &mut Ids,
    version: u64,
) -> Result<Loaded, Box<Rejected>> {
    load_source(Source::toml(name, text), ids, version)
}

/// A configuration that was taken, as one JSON object of the same schema: all files merged, without
/// secrets, environment variables as written. Parses the texts again, so that nothing is kept
/// twice.
pub fn effective(sources: &Sources) -> serde_json::Value {
    include::merge(sources).to_json()
}

fn compiled(gathered: Gathered, ids: &mut Ids, version: u64) -> Result<Loaded, Box<Rejected>> {
    let Gathered { sources, tree, complete, mut decoder, mut warnings } = gathered;
    let sources = Arc::new(sources);
    match compile_tree(&tree, complete, &mut decoder, ids, version) {
        Ok((snapshot, more)) => {
            warnings.append(more);
            Ok(Loaded { snapshot, warnings, sources })
        }
        Err(errors) => Err(Box::new(Rejected { errors, warnings, sources })),
    }
}

impl Loaded {
    /// The warnings as text, empty where there are none; `styled` is for terminals.
    pub fn warnings_text(&self, styled: bool) -> String {
        self.warnings.render(&self.sources, styled)
    }
}

impl Rejected {
    /// How many errors there are, in all files.
    pub fn count(&self) -> usize {
        self.errors.count()
    }

    /// The errors as text, then the warnings; `styled` is for terminals.
    pub fn render(&self, styled: bool) -> String {
        self.errors.render(&self.sources, styled) + &self.warnings.render(&self.sources, styled)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Rejected {}
