//! Where a configuration comes from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::Sources;
use crate::snapshot::{self, Ids, Snapshot};

/// What is read at the start and again at every reload.
#[derive(Clone, Debug)]
pub enum Source {
    /// `--config FILE`
    File(PathBuf),
    /// Text that the binary carries, and what diagnostics call it.
    Text {
        /// Instead of a file's name.
        name: String,
        /// TOML.
        text: String,
    },
}

/// A configuration that was read and may take force.
#[derive(Debug)]
pub struct Loaded {
    /// What was taken.
    pub taken: Taken,
    /// What is odd about it, rendered; empty where nothing is.
    pub warnings: String,
}

/// A configuration that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What runs.
    pub snapshot: Arc<Snapshot>,
    /// Its texts, to show them.
    pub sources: Arc<Sources>,
}

/// A configuration that was refused.
#[derive(Debug)]
pub struct Rejected {
    /// Every error, rendered.
    pub rendered: String,
    /// How many there are.
    pub count: usize,
}

impl Rejected {
    /// What is said when the compiler itself failed.
    pub fn internal() -> Rejected {
        let rendered = "error: the configuration made the compiler fail; this is a bug".to_owned();
        Rejected { rendered, count: 1 }
    }
}

impl Source {
    /// Reads and compiles it. Blocks: for the start and for the helper thread.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, ids: &mut Ids, version: u64) -> Result<Loaded, Rejected> {
        let loaded = match self {
            Source::File(path) => snapshot::load(path, ids, version),
            Source::Text { name, text } => snapshot::load_text(name, text, ids, version),
        };
        rendered(loaded)
    }
}

/// Compiles what was taken once more, with the certificates that it names as they stand now. Blocks.
///
/// # Errors
/// Everything that is wrong with them.
pub fn load_again(sources: &Sources, ids: &mut Ids, version: u64) -> Result<Loaded, Rejected> {
    rendered(snapshot::load_again(sources, ids, version))
}

fn rendered(loaded: Result<snapshot::Loaded, Box<snapshot::Rejected>>) -> Result<Loaded, Rejected> {
    let refused = |rejected: Box<snapshot::Rejected>| Rejected {
        rendered: rejected.render(false),
        count: rejected.count(),
    };
    let loaded = loaded.map_err(refused)?;
    let warnings = loaded.warnings_text(false);
    let taken = Taken { snapshot: Arc::new(loaded.snapshot), sources: loaded.sources };
    Ok(Loaded { taken, warnings })
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Text { name, .. } => f.write_str(name),
        }
    }
}
