//! `ringway reload`: has a running proxy read its configuration again, and waits until it is in
//! force on every worker.

use std::path::PathBuf;
use std::process::ExitCode;

use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{print, remote};
use crate::control::{EXIT_CONFIG, EXIT_FAILED, complain};
use crate::limits::RELOAD_TIMEOUT_MS;

/// Asks the proxy that the arguments name, or the only one that can be found.
pub fn run(config: Option<PathBuf>, admin: Option<String>) -> ExitCode {
    let address = match remote::find(config, admin) {
        Ok(address) => address,
        Err((code, error)) => {
            complain(&error);
            return ExitCode::from(code);
        }
    };
    match remote::ask(&address, Method::POST, "/v1/reload", RELOAD_TIMEOUT_MS) {
        Ok((StatusCode::OK, answer)) => {
            if let Some(warnings) = answer["warnings"].as_str().filter(|text| !text.is_empty()) {
                complain(warnings);
            }
            print(&in_force(&answer));
            ExitCode::SUCCESS
        }
        Ok((status, answer)) => {
            complain(&refused(status, &answer));
            ExitCode::from(exit_code(status))
        }
        Err(error) => {
            complain(&format!("no reload by {address}: {error}"));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn in_force(answer: &Value) -> String {
    let workers = if answer["workers"] == 1 { "worker" } else { "workers" };
    format!(
        "configuration {} is in force on {} {workers} after {} ms",
        answer["version"], answer["workers"], answer["ms"]
    )
}

/// What went wrong, and what is in force.
fn refused(status: StatusCode, answer: &Value) -> String {
    let Some(text) = answer["diagnostics"].as_str() else {
        return format!("the reload was answered with {status}: {answer}");
    };
    match &answer["version"] {
        Value::Number(version) if status != StatusCode::GATEWAY_TIMEOUT => {
            format!("{}\nreload refused, configuration {version} stays in force", text.trim_end())
        }
        _ => text.to_owned(),
    }
}

fn exit_code(status: StatusCode) -> u8 {
    match status {
        StatusCode::UNPROCESSABLE_ENTITY => EXIT_CONFIG,
        _ => EXIT_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_names_the_version_in_force() {
        let taken = json!({ "version": 7, "workers": 2, "ms": 12.3, "warnings": "" });
        assert_eq!(in_force(&taken), "configuration 7 is in force on 2 workers after 12.3 ms");
        let one = json!({ "version": 7, "workers": 1, "ms": 2.0, "warnings": "" });
        assert_eq!(in_force(&one), "configuration 7 is in force on 1 worker after 2.0 ms");
        let bad = json!({ "error": "rejected", "diagnostics": "error: no\n", "version": 6 });
        assert_eq!(
            refused(StatusCode::UNPROCESSABLE_ENTITY, &bad),
            "error: no\nreload refused, configuration 6 stays in force"
        );
        assert_eq!(exit_code(StatusCode::UNPROCESSABLE_ENTITY), EXIT_CONFIG);
        assert_eq!(exit_code(StatusCode::CONFLICT), EXIT_FAILED);
        let late = json!({ "diagnostics": "worker 1 did not", "version": 8 });
        assert_eq!(refused(StatusCode::GATEWAY_TIMEOUT, &late), "worker 1 did not");
    }
}
