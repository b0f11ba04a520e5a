//! `ringway explain`: why a request gets its route.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{print, remote};
use crate::control::{EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, Source, complain};
use crate::limits::EXPLAIN_TIMEOUT_MS;
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

/// Whom to ask.
pub enum Asked {
    /// The file.
    File(PathBuf),
    /// A running process, found as `status` finds it: by a file's `[admin]`, or by its address.
    Process(Option<PathBuf>, Option<String>),
}

/// Explains one request. Fails where no route takes it.
pub fn run(question: &Question, asked: Asked, json: bool) -> ExitCode {
    let answer =
        question.query().map_err(|error| (EXIT_USAGE, error)).and_then(|query| match asked {
            Asked::File(config) => by_file(config, &query),
            Asked::Process(config, admin) => by_process(config, admin, &query),
        });
    let answer = match answer {
        Ok(answer) => answer,
        Err((code, error)) => {
            complain(&error);
            return ExitCode::from(code);
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

impl Question {
    fn query(&self) -> Result<Query, String> {
        let mut query = Query::new(&self.method, &self.url);
        query.client = self.client.unwrap_or(query.client);
        self.headers.iter().try_for_each(|line| query.add_header(line))?;
        Ok(query)
    }
}

/// The answer, or an exit code and why there is none.
type Answer = Result<Value, (u8, String)>;

fn by_file(config: PathBuf, query: &Query) -> Answer {
    let loaded = Source::File(config).load(&mut Ids::default(), 1);
    let loaded = loaded.map_err(|rejected| (EXIT_CONFIG, rejected.rendered))?;
    explain(&loaded.taken.snapshot, query).map_err(|error| (EXIT_USAGE, error))
}

fn by_process(config: Option<PathBuf>, admin: Option<String>, query: &Query) -> Answer {
    let address = remote::find(config, admin)?;
    let path = format!("/v1/explain?{}", query.to_text());
    let asked = remote::ask(&address, Method::GET, &path, EXPLAIN_TIMEOUT_MS);
    let none = |error| (EXIT_FAILED, format!("no explanation from {address}: {error}"));
    let (status, answer) = asked.map_err(none)?;
    match (status, answer["error"].as_str()) {
        (StatusCode::OK, _) => Ok(answer),
        (StatusCode::BAD_REQUEST, Some(error)) => Err((EXIT_USAGE, error.to_owned())),
        (_, error) => Err(none(format!("it answered {status}: {}", error.unwrap_or("no reason")))),
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
    others(&mut out, &answer["later"], "behind it, for the same host and path:");
    others(&mut out, &answer["near"], "near misses:");
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
    filters(&mut out, answer);
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

fn others(out: &mut Page, routes: &Value, title: &str) {
    let routes = routes.as_array().map(Vec::as_slice).unwrap_or_default();
    if routes.is_empty() {
        return;
    }
    out.line(&format!("\n{title}"));
    for miss in routes {
        let [route, takes, why] = ["route", "takes", "why"].map(|key| show(&miss[key]));
        out.line(&format!("   - {route} ({takes}): {why}"));
    }
}

/// In the order in which the request passes them.
fn filters(out: &mut Page, answer: &Value) {
    let Some(filters) = answer["filters"].as_array() else { return };
    if filters.is_empty() {
        out.row("filters", "none");
    }
    for (number, filter) in filters.iter().enumerate() {
        let passes = match &filter["failed"] {
            Value::String(failed) => format!(", not for this request: {failed}"),
            _ => String::new(),
        };
        let [name, phase] = ["name", "phase"].map(|key| show(&filter[key]));
        out.row(if number == 0 { "filters" } else { "" }, &format!("{name} ({phase}){passes}"));
    }
}

fn action(out: &mut Page, answer: &Value) {
    if let Some(redirect) = answer.get("redirect") {
        by_listener(out, "redirect", &format!("{} to ", redirect["status"]), &redirect["location"]);
    }
    if let Some(respond) = answer.get("respond") {
        let content_type = show(&respond["content_type"]);
        let (status, bytes) = (&respond["status"], &respond["body_bytes"]);
        out.row("answer", &format!("{status}, {content_type}, {bytes} bytes"));
    }
    for (key, name) in [("upstream_target", "sends"), ("upstream_host", "host")] {
        if let Some(value) = answer.get(key) {
            by_listener(out, name, "", value);
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
        if let Value::Object(shard) = &target["shard"] {
            out.row("shard", &format!("bucket {}, zone {}", shard["bucket"], show(&shard["zone"])));
        }
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

/// A text, or one for each listener.
fn by_listener(out: &mut Page, name: &str, before: &str, value: &Value) {
    let Value::Object(listeners) = value else {
        return out.row(name, &format!("{before}{}", show(value)));
    };
    for (number, (listener, value)) in listeners.iter().enumerate() {
        let name = if number == 0 { name } else { "" };
        out.row(name, &format!("{before}{} by listener {listener}", show(value)));
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
