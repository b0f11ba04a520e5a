//! The application log: standard error, written by a thread of its own.

use tracing_appender::non_blocking::{ErrorCounter, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Keeps the log thread alive; dropping it writes out what is left.
#[derive(Debug)]
pub struct Log {
    /// Lines dropped because the log thread fell behind.
    pub dropped: ErrorCounter,
    _thread: WorkerGuard,
}

/// Sends what `tracing` records to standard error, as far as `RINGWAY_LOG` lets it (`info`).
pub fn start() -> Log {
    // Never waits for a reader of standard error that has stopped reading.
    let (writer, thread) = tracing_appender::non_blocking(std::io::stderr());
    let dropped = writer.error_counter();
    let asked = std::env::var("RINGWAY_LOG").ok();
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or(DEFAULT));
    let refused = filter.is_err();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT)))
        .with_writer(writer)
        .with_target(false)
        .try_init();
    if refused {
        tracing::warn!("RINGWAY_LOG is not a filter; taking {DEFAULT}");
    }
    Log { dropped, _thread: thread }
}

const DEFAULT: &str = "info";
