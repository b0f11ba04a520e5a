//! `ringway explain`: why a request gets its route.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use super::print;
use crate::control::{EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, Source, complain};
use crate::snapshot::Ids;
use crate::snapshot::explain::{Query, explain};

/// What to ask, as the command line has it.
pub struct Question {
    /// The method.
    pub method: String,
    /// A URL or a path.
    pub url: String,
    /// `Name: value`
    pub headers: Vec<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
}

/// Explains one request by a file. Fails where no route takes it.
pub fn run(question: Question, config: PathBuf, json: bool) -> ExitCode {
    let mut query = Query::new(&question.method, &question.url);
    query.client = question.client.unwrap_or(query.client);
    let headers = question.headers.iter().try_for_each(|line| query.add_header(line));
    if let Err(error) = headers {
        complain(&error);
        return ExitCode::from(EXIT_USAGE);
    }
    let loaded = match Source::File(config).load(&mut Ids::default(), 1) {
        Ok(loaded) => loaded,
        Err(rejected) => {
            complain(&rejected.rendered);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let answer = match explain(&loaded.snapshot, &query) {
        Ok(answer) => answer,
        Err(error) => {
            complain(&error);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if json {
        print(&format!("{answer:#}"));
    } else {
        print(&render(&answer));
    }
    match answer["matched"] == Value::Bool(true) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_FAILED),
    }
}

/// The answer for people.
pub fn render(answer: &Value) -> String {
    let mut out = Page::default();
    let host = match &answer["host"] {
        Value::String(host) => format!("host {host}"),
        _ => "no host".to_owned(),
    };
    let [method, url, client] = ["method", "url", "client"].map(|key| show(&answer[key]));
    out.line(&format!("{method} {url}: {host}, client {client}"));
    if answer["path_changed"] == Value::Bool(true) {
        out.line(&format!("normalised: {}", show(&answer["path"])));
    }
    steps(&mut out, answer);
    near(&mut out, answer);
    if let Some(route) = answer.get("route") {
        out.line("");
        let hosts = joined(&route["hosts"], ", ");
        let hosts = if hosts.is_empty() { hosts } else { format!(", hosts {hosts}") };
        let (id, takes, priority) = (&route["id"], &route["takes"], &route["priority"]);
        let takes = format!("{} ({}, priority {priority}{hosts})", show(id), show(takes));
        out.row("route", &takes);
        for condition in route["conditions"].as_array().into_iter().flatten() {
            out.row("when", &show(condition));
        }
    }
    action(&mut out, answer);
    if let Some(filters) = answer.get("filters") {
        let names = joined(filters, ", ");
        out.row("filters", if names.is_empty() { "none" } else { &names });
    }
    if let Some(refused) = answer.get("refused") {
        out.line("");
        let [status, code, text] = ["status", "code", "text"].map(|key| show(&refused[key]));
        out.row("refused", &format!("{status} {code}: {text}"));
    }
    out.0
}

fn steps(out: &mut Page, answer: &Value) {
    let steps = answer["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if steps.is_empty() {
        return;
    }
    out.line("\nroutes that take this host and path, in order:");
    for (number, step) in steps.iter().enumerate() {
        let outcome = match &step["failed"] {
            Value::String(failed) => format!("no: {failed}"),
            _ => "taken".to_owned(),
        };
        let [route, takes, host] = ["route", "takes", "host"].map(|key| show(&step[key]));
        let priority = &step["priority"];
        let number = number + 1;
        out.line(&format!("{number:>3}. {route} ({takes}, host {host}, priority {priority})"));
        out.line(&format!("     {outcome}"));
    }
    if answer["more_steps"].as_u64().is_some_and(|more| more > 0) {
        out.line(&format!("     and {} more", answer["more_steps"]));
    }
}

fn near(out: &mut Page, answer: &Value) {
    let near = answer["near"].as_array().map(Vec::as_slice).unwrap_or_default();
    if near.is_empty() {
        return;
    }
    out.line("\nnear misses:");
    for miss in near {
        let [route, takes, why] = ["route", "takes", "why"].map(|key| show(&miss[key]));
        out.line(&format!("   - {route} ({takes}): {why}"));
    }
}

fn action(out: &mut Page, answer: &Value) {
    if let Some(redirect) = answer.get("redirect") {
        let location = format!("{} to {}", redirect["status"], show(&redirect["location"]));
        out.row("redirect", &location);
    }
    if let Some(respond) = answer.get("respond") {
        let content_type = show(&respond["content_type"]);
        let (status, bytes) = (&respond["status"], &respond["body_bytes"]);
        out.row("answer", &format!("{status}, {content_type}, {bytes} bytes"));
    }
    for (key, name) in [("upstream_target", "sends"), ("upstream_host", "host")] {
        if let Some(value) = answer.get(key) {
            out.row(name, &show(value));
        }
    }
    for target in answer["targets"].as_array().into_iter().flatten() {
        let share = 100.0 * target["share"].as_f64().unwrap_or_default();
        let zone = match &target["zone"] {
            Value::String(zone) => format!(", only zone {zone}"),
            _ => String::new(),
        };
        // At most four digits: weights are small numbers.
        let share = (share * 100.0).round() / 100.0;
        out.row("upstream", &format!("{}, {share} %{zone}", show(&target["upstream"])));
        for endpoint in target["endpoints"].as_array().into_iter().flatten() {
            let zone = match &endpoint["zone"] {
                Value::String(zone) => format!(", zone {zone}"),
                _ => String::new(),
            };
            let address = show(&endpoint["address"]);
            out.row("", &format!("{address}, weight {}{zone}", endpoint["weight"]));
        }
        let timeouts = target["timeouts_ms"].as_object().into_iter().flatten();
        let timeouts = timeouts.filter(|(_, value)| !value.is_null());
        let timeouts: Vec<_> = timeouts.map(|(name, value)| format!("{name} {value} ms")).collect();
        out.row("timeouts", &timeouts.join(", "));
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{text}");
    }

    fn row(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "{name:<10} {value}");
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn joined(list: &Value, separator: &str) -> String {
    let items = list.as_array().into_iter().flatten().map(show);
    items.collect::<Vec<_>>().join(separator)
}
