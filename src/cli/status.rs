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
    let mut text = summary(status);
    push_rows(&mut text, &WORKERS, &status["workers"]);
    push_rows(&mut text, &LISTENERS, &status["listeners"]);
    push_rows(&mut text, &CERTIFICATES, &status["certificates"]);
    push_rows(&mut text, &DISCOVERY, &status["discovery"]);
    push_rows(&mut text, &UPSTREAMS, &status["upstreams"]);
    let endpoints = status["upstreams"].as_array().into_iter().flatten();
    let endpoints = endpoints.flat_map(|upstream| {
        let name = upstream["name"].clone();
        let endpoints = upstream["endpoints"].as_array().cloned().unwrap_or_default();
        endpoints.into_iter().map(move |mut endpoint| {
            endpoint["upstream"] = name.clone();
            endpoint
        })
    });
    push_rows(&mut text, &ENDPOINTS, &endpoints.collect());
    push_rows(&mut text, &EVENTS, &status["events"]);
    push_rows(&mut text, &FILTERS, &status["filters"]);
    push_rows(&mut text, &ROUTES, &status["routes"]);
    let shown = status["routes"].as_array().map_or(0, Vec::len) as u64;
    // One of those that were hit may be `unmatched`, which has no requests: nobody misses it.
    let more = status["routes_hit"].as_u64().unwrap_or(0).saturating_sub(shown);
    if more > 1 {
        let _ = writeln!(text, "{more} more routes: see /metrics");
    }
    text
}

/// What stands above the lists.
fn summary(status: &Value) -> String {
    let mut text = String::new();
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
    if status["config"]["applied_at"].is_string() {
        line("", format!("in force since {}", of("/config/applied_at")));
    }
    if status["config"]["last_reload"].is_object() {
        let (result, at) = (of("/config/last_reload/result"), of("/config/last_reload/at"));
        line("last reload", format!("{result} at {at}"));
        let message = of("/config/last_reload/message");
        for text in message.lines().take(MESSAGE_LINES_MAX) {
            line("", text.chars().filter(|c| !c.is_control()).collect());
        }
        if message.lines().count() > MESSAGE_LINES_MAX {
            line("", "and more: see --json".to_owned());
        }
    }
    line("admin", of("/admin"));
    for name in ["connections", "in_flight", "tunnels", "panics"] {
        line(name, of(&format!("/{name}")));
    }
    line("requests", pairs(&status["requests"]));
    line("errors", pairs(&status["errors"]));
    line("pool", pairs(&status["pool"]));
    if status["access_log"].is_object() {
        line("access log", pairs(&status["access_log"]));
    }
    if status["series"]["dropped"].as_u64().is_some_and(|dropped| dropped > 0) {
        line("series", format!("{} were not made: see other", of("/series/dropped")));
    }
    text
}

/// A list: heading, key and whether the column holds numbers.
type Columns = [(&'static str, &'static str, bool)];

const WORKERS: [(&str, &str, bool); 7] = [
    ("worker", "/worker", false),
    ("cpu", "/cpu", false),
    ("driver", "/driver", false),
    ("connections", "/connections", true),
    ("in flight", "/in_flight", true),
    ("accepted", "/connections_accepted", true),
    ("reason", "/driver_reason", false),
];

const LISTENERS: [(&str, &str, bool); 4] = [
    ("listener", "/name", false),
    ("address", "/address", false),
    ("connections", "/connections", true),
    ("accepted", "/connections_accepted", true),
];

const CERTIFICATES: [(&str, &str, bool); 5] = [
    ("certificate", "/cert", false),
    ("listener", "/listener", false),
    ("subject", "/subject", false),
    ("until", "/not_after", false),
    ("days left", "/days_left", true),
];

const DISCOVERY: [(&str, &str, bool); 5] = [
    ("discovered", "/upstream", false),
    ("source", "/source", false),
    ("endpoints", "/endpoints", true),
    ("age s", "/age_s", true),
    ("failures", "/failures", true),
];

const UPSTREAMS: [(&str, &str, bool); 9] = [
    ("upstream", "/name", false),
    ("requests", "/requests", true),
    ("4xx", "/requests_by_class/4xx", true),
    ("5xx", "/requests_by_class/5xx", true),
    ("in flight", "/in_flight", true),
    ("waiting", "/queue_length", true),
    ("mean head ms", "/head_mean_ms", true),
    ("share %", "/share_percent", true),
    ("breaker", "/breaker/state", false),
];

const ENDPOINTS: [(&str, &str, bool); 10] = [
    ("endpoint", "/address", false),
    ("upstream", "/upstream", false),
    ("requests", "/requests", true),
    ("5xx", "/requests_by_class/5xx", true),
    ("in flight", "/in_flight", true),
    ("connect failures", "/connect_failures", true),
    ("retries", "/retries", true),
    ("share %", "/share_percent", true),
    ("standing", "/standing", false),
    ("why", "/reason", false),
];

const EVENTS: [(&str, &str, bool); 7] = [
    ("event", "/at", false),
    ("upstream", "/upstream", false),
    ("tier", "/tier", false),
    ("of", "/subject", false),
    ("from", "/from", false),
    ("to", "/to", false),
    ("why", "/reason", false),
];

const FILTERS: [(&str, &str, bool); 7] = [
    ("filter", "/name", false),
    ("answered", "/answered", true),
    ("failed", "/failed", true),
    ("timed out", "/timed_out", true),
    ("skipped", "/skipped", true),
    ("allowed", "/allowed", true),
    ("limited", "/limited", true),
];

const ROUTES: [(&str, &str, bool); 5] = [
    ("route", "/route", false),
    ("requests", "/requests", true),
    ("4xx", "/requests_by_class/4xx", true),
    ("5xx", "/requests_by_class/5xx", true),
    ("mean ms", "/duration_mean_ms", true),
];

/// A list with its headings, each column as wide as what it holds; nothing for an empty one.
fn push_rows(text: &mut String, columns: &Columns, list: &Value) {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return;
    }
    let shown = list.iter().take(ROWS_MAX);
    let cell = |row: &Value, key: &str| row.pointer(key).map_or_else(|| "-".to_owned(), show);
    let rows = shown.map(|row| columns.iter().map(|(_, key, _)| cell(row, key)).collect());
    let heading: Vec<_> = columns.iter().map(|(heading, ..)| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = [heading].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    text.push('\n');
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), (.., is_number)) in row.iter().zip(&widths).zip(columns) {
            let _ = match is_number {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if list.len() > ROWS_MAX {
        let _ = writeln!(text, "{} more: see --json", list.len() - ROWS_MAX);
    }
}

/// Lines of the last reload's message: the first diagnostics.
const MESSAGE_LINES_MAX: usize = 20;

/// Rows of one list that fit a screen or two; `--json` has the rest.
const ROWS_MAX: usize = 64;

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
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
    use crate::observe::render::{LastReload, ProcessView, ReloadResult};
    use crate::observe::series::EndpointName;
    use crate::observe::{Finished, Names, SeriesRegistry};
    use serde_json::json;

    #[test]
    fn what_the_admin_api_sends_fits_the_table() {
        let text = table(&ProcessView::default().status());
        assert!(text.starts_with("ringway       "), "{text}");
        assert!(text.contains("starting") && text.contains("errors        none"), "{text}");
        assert!(text.contains("requests      1xx 0, 2xx 0"), "{text}");
        assert!(!text.contains("upstream"), "no list without rows: {text}");
    }

    #[test]
    fn a_refused_reload_says_why() {
        let message = "error: no\n  --> f:1".repeat(20);
        let last_reload = Some(LastReload { result: ReloadResult::Rejected, at_s: 1.5, message });
        let text = table(&ProcessView { last_reload, ..ProcessView::default() }.status());
        let shown = "\n              in force since 1970-01-01T00:00:00.000000Z\n\
                     last reload   rejected at 1970-01-01T00:00:01.500000Z\n              error: no\n";
        assert!(text.contains(shown), "{text}");
        assert!(text.contains("\n              and more: see --json\n"), "{text}");
    }

    #[test]
    fn lists_are_as_wide_as_what_they_hold() {
        let mut registry = SeriesRegistry::default();
        let worker = registry.add_worker();
        let mut names = Names::default();
        names.routes.set(0, "order-detail".into());
        names.upstreams.set(0, "app".into());
        let address = "127.0.0.1:9001".into();
        names.endpoints.set(0, EndpointName { upstream: "app".into(), address });
        names.filters.set(0, "per-key".into());
        worker.finish(&Finished {
            route: Some(0),
            upstream: Some(0),
            endpoint: Some(0),
            status: 502,
            total_us: 1_234_567,
            ..Finished::default()
        });
        worker.endpoint(0, |endpoint| endpoint.connect_failures.increment());
        let view = ProcessView {
            series: registry.collect(&names),
            listeners: vec![("public".into(), "127.0.0.1:80".into())],
            ..ProcessView::default()
        };
        let text = table(&view.status());
        for list in [
            "\nlistener  address       connections  accepted\npublic    127.0.0.1:80            -         -\n",
            "\nendpoint        upstream  requests  5xx  in flight  connect failures  retries  share %  standing  why\n\
             127.0.0.1:9001  app              1    1          0                 1        0        -  -         -\n",
            "\nroute         requests  4xx  5xx   mean ms\norder-detail         1    0    1  1234.567\n",
            "\nfilter   answered  failed",
        ] {
            assert!(text.contains(list), "{list} is missing in\n{text}");
        }
        assert!(!text.contains("more routes"), "{text}");
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let rows: Vec<_> = (0..ROWS_MAX + 2).map(|row| json!({ "route": row })).collect();
        let text = table(&json!({ "routes": rows, "routes_hit": 100 }));
        assert!(text.contains("\n63  ") && !text.contains("\n64  "), "{text}");
        assert!(text.contains("\n2 more: see --json\n34 more routes: see /metrics\n"), "{text}");
    }
}
