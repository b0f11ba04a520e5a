//! `ringway status`: what a running proxy does.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use hyper::Method;
use serde_json::Value;

use super::{print, remote};
use crate::control::{EXIT_FAILED, complain};
use crate::limits::STATUS_TIMEOUT_MS;

/// Asks the proxy that the arguments name, or the only one that can be found.
pub fn run(config: Option<PathBuf>, admin: Option<String>, json: bool) -> ExitCode {
    let address = match remote::find(config, admin) {
        Ok(address) => address,
        Err((code, error)) => {
            complain(&error);
            return ExitCode::from(code);
        }
    };
    let asked = remote::ask(&address, Method::GET, "/v1/status", STATUS_TIMEOUT_MS);
    let status = asked.and_then(|(status, answer)| match status.is_success() {
        true => Ok(answer),
        false => Err(format!("it answered {status}; is it ringway's admin address?")),
    });
    match status {
        Ok(status) if json => print(&format!("{status:#}")),
        Ok(status) => print(&table(&status)),
        Err(error) => {
            complain(&format!("no status from {address}: {error}"));
            return ExitCode::from(EXIT_FAILED);
        }
    }
    ExitCode::SUCCESS
}

/// The answer for people. What an older or newer proxy does not send is left out.
fn table(status: &Value) -> String {
    let mut text = String::new();
    let show = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let of = |pointer: &str| status.pointer(pointer).map_or_else(|| "-".to_owned(), show);
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<13} {value}");
    };
    line("ringway", format!("{}, process {}, {}", of("/version"), of("/pid"), of("/state")));
    line("uptime", format!("{} s", of("/uptime_s")));
    line(
        "configuration",
        format!("version {} from {}", of("/config/version"), of("/config/source")),
    );
    if status["config"]["last_reload_success"] == Value::Bool(false) {
        line("", "the last reload was refused; see the log".to_owned());
    }
    line("admin", of("/admin"));
    for listener in status["listeners"].as_array().into_iter().flatten() {
        line("listener", format!("{} on {}", show(&listener["name"]), show(&listener["address"])));
    }
    for name in ["connections", "in_flight", "tunnels", "panics"] {
        line(name, of(&format!("/{name}")));
    }
    line("requests", pairs(&status["requests"]));
    line("errors", pairs(&status["errors"]));
    line("pool", pairs(&status["pool"]));
    let _ = writeln!(
        text,
        "\n{:<7} {:<4} {:<9} {:>11} {:>9} {:>9}  reason",
        "worker", "cpu", "driver", "connections", "in_flight", "accepted"
    );
    for worker in status["workers"].as_array().into_iter().flatten() {
        let of = |key: &str| show(&worker[key]);
        let _ = writeln!(
            text,
            "{:<7} {:<4} {:<9} {:>11} {:>9} {:>9}  {}",
            of("worker"),
            of("cpu"),
            of("driver"),
            of("connections"),
            of("in_flight"),
            of("connections_accepted"),
            of("driver_reason")
        );
    }
    text
}

fn pairs(map: &Value) -> String {
    let pairs: Vec<_> = (map.as_object().into_iter().flatten())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::render::ProcessView;

    #[test]
    fn what_the_admin_api_sends_fits_the_table() {
        let text = table(&ProcessView::default().status());
        assert!(text.starts_with("ringway       "), "{text}");
        assert!(text.contains("starting") && text.contains("errors        none"), "{text}");
        assert!(text.contains("requests      1xx 0, 2xx 0"), "{text}");
    }
}
