//! How an attempt to change the configuration ended, for the log, the admin API and its callers.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::limits::{ACKNOWLEDGE_MS, COMPILE_MS};
use crate::observe::render::ReloadResult;

/// Somebody who asked for a reload and waits for its outcome.
pub type Caller = oneshot::Sender<Outcome>;

/// How a reload ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is in force on every worker.
    Applied {
        /// The configuration's number.
        version: u64,
        /// How many workers there are.
        workers: usize,
        /// From the beginning of its compilation to the last acknowledgement.
        ms: f64,
        /// What is odd about it, rendered; empty where nothing is.
        warnings: String,
    },
    /// Nothing was changed.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The configuration that stays in force.
        version: u64,
    },
    /// It is in force, but not every worker has said so in time.
    Unacknowledged {
        /// The configuration's number.
        version: u64,
        /// Those that did not.
        workers: Vec<usize>,
    },
    /// The process is being stopped.
    Draining,
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In a word.
    pub reason: Reason,
    /// For people: rendered diagnostics, or a sentence.
    pub text: String,
}

/// Why a configuration was refused, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has errors.
    Rejected,
    /// It was not read and compiled in time.
    Late,
    /// It changes what only a restart can.
    NeedsRestart,
    /// A listener that it brings in cannot be bound.
    Unbound,
    /// Its access log cannot be opened.
    LogUnopened,
}

impl Reason {
    /// How it is counted.
    pub fn result(self) -> ReloadResult {
        match self {
            Reason::Rejected | Reason::Late | Reason::Unbound | Reason::LogUnopened => {
                ReloadResult::Rejected
            }
            Reason::NeedsRestart => ReloadResult::NeedsRestart,
        }
    }
}

impl Outcome {
    /// The answer of the admin API.
    pub fn answer(&self) -> (StatusCode, Value) {
        match self {
            Outcome::Applied { version, workers, ms, warnings } => (
                StatusCode::OK,
                json!({ "version": version, "workers": workers, "ms": ms, "warnings": warnings }),
            ),
            Outcome::Refused { refusal, version } => {
                let (status, error) = match refusal.reason {
                    Reason::Rejected => (StatusCode::UNPROCESSABLE_ENTITY, "rejected"),
                    Reason::Late => (StatusCode::GATEWAY_TIMEOUT, "timed_out"),
                    Reason::NeedsRestart => (StatusCode::CONFLICT, "needs_restart"),
                    Reason::Unbound => (StatusCode::CONFLICT, "bind_failed"),
                    Reason::LogUnopened => (StatusCode::CONFLICT, "log_failed"),
                };
                let text = &refusal.text;
                (status, json!({ "error": error, "diagnostics": text, "version": version }))
            }
            Outcome::Unacknowledged { version, workers } => (
                StatusCode::GATEWAY_TIMEOUT,
                json!({
                    "error": "unacknowledged",
                    "diagnostics": unacknowledged(*version, workers),
                    "version": version,
                    "workers": workers,
                }),
            ),
            Outcome::Draining => (
                StatusCode::SERVICE_UNAVAILABLE,
                json!({ "error": "draining", "diagnostics": "no reload while draining" }),
            ),
        }
    }
}

/// What is said of a configuration that is not read and compiled in time.
pub fn late() -> Refusal {
    let text = format!(
        "the configuration was not read and compiled within {COMPILE_MS} ms, and is still being \
         read: see that its files are not on a file system that hangs"
    );
    Refusal { reason: Reason::Late, text }
}

/// What is said of workers that did not acknowledge a configuration.
pub fn unacknowledged(version: u64, workers: &[usize]) -> String {
    let names: Vec<_> = workers.iter().map(|worker| format!("worker {worker}")).collect();
    let names = names.join(", ");
    format!("configuration {version}: {names} did not acknowledge it within {ACKNOWLEDGE_MS} ms")
}
