//! The access log on a worker (O1): one record an exchange, formatted at once into a chunk, which is
//! handed to the writer's thread when it is full or at the sweep.
//!
//! A worker never waits here: where the writer has fallen behind, records are dropped and counted.

pub mod format;
pub mod queue;
pub mod record;
pub mod text;
pub mod wall;

pub use format::Format;
pub use queue::{
    Chunk, LogBuffer, LogCounts, LogReceiver, LogTallies, WorkerTally, WriterTally, log_queue,
};
pub use record::{AccessRecord, AnnouncedTexts, TlsRecord};
pub use text::DateText;
pub use wall::WallClock;

use std::fmt;
use std::path::PathBuf;

/// Where the access log goes, and in which format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogPlan {
    /// Where it goes.
    pub target: Target,
    /// How its lines look.
    pub format: Format,
}

/// Where an access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the end of a file, which is made where there is none; a FIFO or a device will do.
    Path(PathBuf),
    /// To standard output.
    Stdout,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => write!(f, "{}", path.display()),
            Target::Stdout => f.write_str("standard output"),
        }
    }
}
