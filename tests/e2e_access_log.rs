//! The access log of a running proxy: a line for each request, whatever is done to the log (O1).

mod harness;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use harness::client::{ask, plain_get};
use harness::grammar::values;
use harness::load::under_load;
use harness::origin::Op;
use harness::proxy::{endpoint, free_address, route, upstream};
use harness::{Client, Origin, Proxy, Settings, ms, poll};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A proxy with two workers that logs to `path`, in its own directory or absolute.
fn with_log(settings: &Settings, path: &Path, format: &str) -> Settings {
    let log = format!("[access_log]\npath = \"{}\"\nformat = \"{format}\"\n", path.display());
    settings.clone().routes(format!("{}{log}", settings.routes))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn lines(path: &Path) -> Vec<String> {
    text(path).lines().map(str::to_owned).collect()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Lines of the requests of a load; every line must be whole.
fn of_load(lines: &[String]) -> u64 {
    for line in lines {
        assert!(is_combined(line) || parsed(line).is_object(), "{line}");
    }
    lines.iter().filter(|line| line.contains("/load")).count() as u64
}

fn is_combined(line: &str) -> bool {
    line.starts_with("127.0.0.1 - - [") && line.ends_with("\"-\" \"-\"")
}

fn reloaded(proxy: &mut Proxy, settings: Settings) {
    proxy.rewrite(settings);
    let (status, answer) = proxy.reload();
    assert_eq!(status, 200, "{answer}");
}

fn drained(proxy: &mut Proxy) {
    proxy.signal(Signal::TERM);
    let ended = proxy.wait_exit(ms(10_000));
    assert!(ended.is_some_and(|status| status.success()), "it drains: {}", proxy.log());
}

/// Waits for a line with `path`, which is asked for.
fn logged(proxy: &Proxy, file: &Path, path: &str) -> String {
    proxy.probe(path).expect("a plain GET");
    line_with(file, path)
}

fn line_with(file: &Path, path: &str) -> String {
    let find = || lines(file).into_iter().find(|line| line.contains(path));
    assert!(poll(ms(5_000), || find().is_some()), "{path} is not in {:?}", text(file));
    find().expect("just seen")
}

/// A rotation under load: files are moved away and USR1 is sent, and every request has one line.
fn rotation_loses_no_line(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let directory = proxy.directory().to_owned();
    let file = directory.join("access.log");
    reloaded(&mut proxy, with_log(&settings, &file, "json"));
    let mut files = vec![file.clone()];
    let answered = under_load(proxy.address, |tally| {
        for number in 0..5 {
            assert!(tally.more(50), "the load gets answers");
            let moved = directory.join(format!("moved-{number}"));
            std::fs::rename(&file, &moved).expect("rotated");
            files.push(moved);
            proxy.signal(Signal::USR1);
            assert!(poll(ms(5_000), || file.exists()), "USR1 opens it again: {}", proxy.log());
        }
        assert!(tally.more(50), "the load gets answers");
    });
    drained(&mut proxy);
    assert!(!text(&file).is_empty(), "the new file is written");
    let all: Vec<_> = files.iter().flat_map(|file| lines(file)).collect();
    assert_eq!(of_load(&all), answered, "requests and lines");
    let workers: BTreeSet<_> = all.iter().map(|line| parsed(line)["worker"].as_u64()).collect();
    assert_eq!(workers, BTreeSet::from([Some(0), Some(1)]), "both workers log");
}

/// Another path and another format take effect under load; what is in the new file is of the new
/// format, and no line is lost on the way.
fn path_and_format_follow_the_file(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let directory = proxy.directory().to_owned();
    let file = |number: u32| directory.join(format!("log-{number}"));
    reloaded(&mut proxy, with_log(&settings, &file(0), "combined"));
    let of = |number: u32| if number.is_multiple_of(2) { "combined" } else { "json" };
    let texts: Vec<_> =
        (1..6).map(|number| proxy.text(&with_log(&settings, &file(number), of(number)))).collect();
    let answered = under_load(proxy.address, |tally| {
        for text in &texts {
            assert!(tally.more(50), "the load gets answers");
            proxy.rewrite_raw(text);
            let (status, answer) = proxy.reload();
            assert_eq!(status, 200, "{answer}");
        }
        assert!(tally.more(50), "the load gets answers");
    });
    // The same file goes on in another format.
    reloaded(&mut proxy, with_log(&settings, &file(5), "combined"));
    assert!(is_combined(&logged(&proxy, &file(5), "/probe-same")));
    drained(&mut proxy);
    let mut all = Vec::new();
    for number in 0..6 {
        let lines = lines(&file(number));
        let first = lines.first().expect("each has lines");
        assert_eq!(is_combined(first), of(number) == "combined", "{first}");
        all.extend(lines);
    }
    assert_eq!(of_load(&all), answered, "requests and lines");
}

/// A log that cannot be opened refuses the change, with everything else in it.
fn a_log_that_cannot_be_opened_changes_nothing(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let directory = proxy.directory().to_owned();
    let (good, bad) = (directory.join("good"), directory.join("nowhere/bad"));
    reloaded(&mut proxy, with_log(&settings, &good, "json"));
    let extra = route("extra", "path = \"/x/extra\"", "main", "skip_segments = 1");
    let changed = settings.clone().routes(format!("{}{extra}", settings.routes));
    proxy.rewrite(with_log(&changed, &bad, "combined"));
    let (status, answer) = proxy.reload();
    assert_eq!((status, &answer["error"]), (409, &json!("log_failed")), "{answer}");
    let said = answer["diagnostics"].as_str().expect("a text");
    let expected = format!("access log: cannot open {}: ", bad.display());
    assert!(said.starts_with(&expected), "{said}");
    assert!(poll(ms(3_000), || proxy.log().contains(&expected)), "{}", proxy.log());
    let last = &proxy.status()["config"]["last_reload"];
    assert_eq!((&last["result"], &last["message"]), (&json!("rejected"), &json!(said)));
    let line = parsed(&logged(&proxy, &good, "/x/extra"));
    assert_eq!((&line["route"], &line["config_version"]), (&json!("all"), &json!(2)));
    assert!(!bad.exists());
}

/// Without the section nothing is logged any more, and nothing of that time turns up later.
fn a_removed_log_is_off(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let directory = proxy.directory().to_owned();
    let (first, second) = (directory.join("first"), directory.join("second"));
    reloaded(&mut proxy, with_log(&settings, &first, "json"));
    // No sweep comes between these and the reload.
    for number in 0..20 {
        proxy.probe(&format!("/before-{number}")).expect("a plain GET");
    }
    reloaded(&mut proxy, settings.clone());
    proxy.probe("/while-off").expect("a plain GET");
    proxy.signal(Signal::USR1);
    let told = poll(ms(5_000), || proxy.log().contains("USR1: there is no access log"));
    assert!(told, "{}", proxy.log());
    for number in 0..20 {
        line_with(&first, &format!("\"/before-{number}\""));
    }
    reloaded(&mut proxy, with_log(&settings, &second, "json"));
    logged(&proxy, &second, "/on-again");
    drained(&mut proxy);
    assert_eq!((lines(&first).len(), lines(&second).len()), (20, 1));
}

/// The drain writes what was recorded last.
fn the_drain_writes_the_last_lines(driver: &'static str) {
    let origin = Origin::start();
    let settings = Settings::new(driver, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let file = proxy.directory().join("access.log");
    reloaded(&mut proxy, with_log(&settings, &file, "json"));
    let answered = under_load(proxy.address, |tally| {
        assert!(tally.more(200), "the load gets answers");
        proxy.signal(Signal::TERM);
        let refused = || std::net::TcpStream::connect_timeout(&proxy.address, ms(100)).is_err();
        assert!(poll(ms(5_000), refused), "the listeners close");
    });
    let ended = proxy.wait_exit(ms(10_000));
    assert!(ended.is_some_and(|status| status.success()), "it drains: {}", proxy.log());
    assert_eq!(of_load(&lines(&file)), answered, "requests and lines");
}

/// What a line says of an answer, of an error, of no route and of a client that went away.
fn lines_tell_what_happened(driver: &'static str) {
    let origin = Origin::start();
    origin.script("/app/hang", vec![Op::Hang]);
    let dead = free_address().to_string();
    let patient = "timeouts = { connect = \"1s\", response = \"30s\", body = \"30s\" }";
    let upstreams = upstream("main", &[endpoint(&origin.address, 1)], patient)
        + &upstream("dead", &[endpoint(&dead, 1)], "");
    let routes = route("app", "prefix = \"/app/\"", "main", "")
        + &route("dead", "prefix = \"/dead/\"", "dead", "");
    let settings =
        Settings::new(driver, &origin.address).workers(2).upstreams(upstreams).routes(routes);
    let mut proxy = Proxy::start(settings.clone());
    let file = proxy.directory().join("access.log");
    reloaded(&mut proxy, with_log(&settings, &file, "json"));
    let facts = |path: &str| {
        let line = parsed(&line_with(&file, &format!("\"{path}\"")));
        let keys = ["route", "upstream", "endpoint", "status", "error", "config_version"];
        Value::Array(keys.iter().map(|key| line[*key].clone()).collect())
    };
    let get = |path: &str| {
        let received = ask(proxy.address, &plain_get(path), ms(5_000)).expect("an answer");
        received.finals[0].status
    };
    assert_eq!(get("/app/fine"), 200);
    assert_eq!(facts("/app/fine"), json!(["app", "main", origin.address, 200, null, 2]));
    assert_eq!(get("/dead/end"), 502);
    let refused = json!(["dead", "dead", dead, 502, "connect_refused", 2]);
    assert_eq!(facts("/dead/end"), refused);
    assert_eq!(get("/none"), 404);
    assert_eq!(facts("/none"), json!(["", "", "", 404, "route_missing", 2]));
    let mut client = Client::open(proxy.address).expect("a connection");
    client.send(b"GET /app/hang HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let is_there = |request: &harness::Request| request.target == b"/app/hang";
    let arrived = origin.wait(ms(3_000), |record| record.requests.iter().any(is_there));
    assert!(arrived, "it is under way");
    client.reset();
    let gone = json!(["app", "main", origin.address, 499, "client_aborted", 2]);
    assert_eq!(facts("/app/hang"), gone);
}

/// What the client sent is what is logged: by a refused head, past filters, and not more than it
/// took of an answer that the gateway made.
fn lines_tell_what_came(driver: &'static str) {
    let origin = Origin::start();
    let remove = "filters = [{ kind = \"headers\", remove = [\"user-agent\", \"referer\"] }]";
    let body = "x".repeat(60_000);
    let routes = route("edit", "prefix = \"/edit/\"", "main", remove)
        + &format!(
            "[[route]]\nid = \"large\"\npath = \"/large\"\n\
             respond = {{ status = 200, body = \"{body}\" }}\n"
        );
    let settings = Settings::new(driver, &origin.address).workers(2).routes(routes);
    let mut proxy = Proxy::start(settings.clone());
    let file = proxy.directory().join("access.log");
    reloaded(&mut proxy, with_log(&settings, &file, "json"));

    let refused = ask(proxy.address, b"GARBAGE\r\n\r\n", ms(3_000)).expect("an answer");
    let given = values(&refused.finals[0].fields, "x-request-id");
    let line = parsed(&line_with(&file, "head_malformed"));
    assert_eq!(line["client"], "127.0.0.1");
    assert_eq!(line["request_id"].as_str().map(str::as_bytes), given.first().copied());

    let request = "GET /edit/x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: me\r\nReferer: there\r\n\
                   Connection: close\r\n\r\n";
    ask(proxy.address, request.as_bytes(), ms(3_000)).expect("an answer");
    let line = parsed(&line_with(&file, "/edit/x"));
    assert_eq!((&line["user_agent"], &line["referer"]), (&json!("me"), &json!("there")));

    let mut client = TcpStream::connect(proxy.address).expect("a connection");
    let requests = b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n".repeat(300);
    client.write_all(&requests).expect("more than the answers that buffers hold");
    let line = parsed(&line_with(&file, "client_write_timeout"));
    assert_eq!(line["route"], "large");
    assert!(line["bytes_out"].as_u64().is_some_and(|bytes| bytes < 60_000), "{line}");
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring { $(#[test] fn $name() { super::$name("io_uring"); })* }
        mod epoll { $(#[test] fn $name() { super::$name("epoll"); })* }
    };
}

on_both! {
    rotation_loses_no_line path_and_format_follow_the_file
    a_log_that_cannot_be_opened_changes_nothing a_removed_log_is_off
    the_drain_writes_the_last_lines lines_tell_what_happened lines_tell_what_came
}
