//! The admin API of a running proxy: configuration, explanations, status and what they keep secret.
//!
//! It runs on the control thread, whose driver is the same whatever the workers' is: one suffices.

mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::proxy::{endpoint, route, upstream};
use harness::{Origin, Proxy, Settings, ms, poll, show};
use serde_json::{Value, json};

const DRIVER: &str = "epoll";

/// Values that may stand nowhere.
const SECRETS: [&str; 3] = ["hunter2-of-environment", "literal-api-key", "literal-token"];

fn get(proxy: &Proxy, path: &str) -> (u16, Value) {
    let (status, body) = proxy.admin_get(path).expect("the admin interface answers");
    let answer = serde_json::from_slice(&body);
    (status, answer.unwrap_or_else(|error| panic!("{error}: {}", show(&body))))
}

/// Exit code, standard output and standard error.
fn ringway(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ringway")).args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A seconds-since-1970 metric.
fn applied_at(proxy: &Proxy) -> f64 {
    proxy.metric("ringway_config_last_reload_success_timestamp_seconds", "")
}

/// A file whose filter and conditions hold secrets, in a variable and in the text.
fn with_secrets(origin: &Origin) -> Settings {
    let when = "when = [{ header = \"x-token\", equals = \"literal-token\" }]";
    let filter = "[filter.auth]\nkind = \"headers\"\nset = { authorization = \
                  \"Bearer ${RINGWAY_TEST_SECRET}\", x-api-key = \"literal-api-key\", x-env = \
                  \"${RINGWAY_TEST_SECRET}\", x-plain = \"shown\" }\n";
    let routes = route("guarded", &format!("prefix = \"/\"\npriority = 1\n{when}"), "main", "")
        + &route("all", "prefix = \"/\"", "main", "filters = [\"auth\"]")
        + filter;
    Settings::new(DRIVER, &origin.address)
        .environment("RINGWAY_TEST_SECRET", SECRETS[0])
        .routes(routes)
}

#[test]
fn secrets_are_shown_nowhere() {
    let origin = Origin::start();
    let settings = with_secrets(&origin);
    let proxy = Proxy::start(settings.clone());
    let file = proxy.text(&settings);
    proxy.probe("/probe").expect("a plain GET");
    let sent = origin.look(|record: &harness::origin::Record| {
        let fields = &record.requests.last().expect("one request").fields;
        harness::grammar::values(fields, "authorization").concat()
    });
    assert_eq!(sent, format!("Bearer {}", SECRETS[0]).into_bytes(), "the secret is in use");

    let pages = || {
        let page = |path: &str| {
            let (status, body) = proxy.admin_get(path).expect("an answer");
            assert_eq!(status, 200, "{path}");
            String::from_utf8(body).expect("text")
        };
        let paths = ["/v1/config", "/v1/status", "/metrics", "/v1/explain?url=/probe"];
        paths.map(|path| (path.to_owned(), page(path)))
    };
    let quiet = |when: &str| {
        for (name, text) in pages().into_iter().chain([("log".to_owned(), proxy.log())]) {
            for secret in SECRETS {
                assert!(!text.contains(secret), "{when}: {secret} in {name}: {text}");
            }
        }
    };
    quiet("at the start");
    let (_, config) = get(&proxy, "/v1/config");
    let set = &config["config"]["filter"]["auth"]["set"];
    let expected = json!({
        "authorization": "<redacted>", "x-api-key": "<redacted>",
        "x-env": "${RINGWAY_TEST_SECRET}", "x-plain": "shown",
    });
    assert_eq!(*set, expected);
    let (_, explained) = get(&proxy, "/v1/explain?url=/probe&header=X-Token:no");
    let failed = "wants header x-token equals <redacted>; the request has \"no\"";
    assert_eq!(explained["steps"][0]["failed"], failed);

    // Refused, by an error about the secret's value and one elsewhere.
    for (from, to) in [
        ("[filter.auth]", "[filter.auth]\nno_such_key = 1"),
        (&*format!("\"{}\"", origin.address), "\"${RINGWAY_TEST_SECRET}:port\""),
        ("prefix = \"/\"\n", "prefix = \"${RINGWAY_TEST_SECRET}\"\n"),
    ] {
        assert!(file.contains(from), "{from}");
        proxy.rewrite_raw(&file.replace(from, to));
        let (status, answer) = proxy.reload();
        assert_eq!(status, 422, "{to}: {answer}");
        for secret in SECRETS {
            assert!(!answer.to_string().contains(secret), "{to}: {answer}");
        }
        quiet(to);
    }
    proxy.rewrite_raw(&file);
    assert_eq!(proxy.reload().0, 200);
    quiet("after a reload");
}

#[test]
fn the_configuration_shown_is_the_one_in_force() {
    let origin = Origin::start();
    let settings = Settings::new(DRIVER, &origin.address).workers(2);
    let mut proxy = Proxy::start(settings.clone());
    let file = proxy.directory().join("ringway.toml").display().to_string();
    let (status, first) = get(&proxy, "/v1/config");
    assert_eq!((status, &first["version"], &first["source"]), (200, &json!(1), &json!(file)));
    assert_eq!(first["files"], json!([file]));
    assert_eq!(first["config"]["route"][0]["id"], "all");
    assert_eq!(first["config"]["runtime"]["workers"], 2);
    assert_eq!(first["applied_at"], get(&proxy, "/v1/status").1["config"]["applied_at"]);

    proxy.rewrite_raw("[listener.main]\nno_such_key = 1\n");
    assert_eq!(proxy.reload().0, 422);
    assert_eq!(get(&proxy, "/v1/config").1, first, "refused: nothing has changed");

    let routes = route("other", "prefix = \"/\"", "main", "");
    std::fs::write(proxy.directory().join("part.toml"), &routes).expect("written");
    proxy.rewrite(settings.routes(""));
    let including = format!("include = [\"part.toml\"]\n{}", proxy.text(proxy.settings()));
    proxy.rewrite_raw(&including);
    let (status, answer) = proxy.reload();
    assert_eq!(status, 200, "{answer}");
    let (_, second) = get(&proxy, "/v1/config");
    assert_eq!((&second["version"], &second["source"]), (&json!(2), &json!(file)));
    assert_eq!(second["files"].as_array().map(Vec::len), Some(2), "{}", second["files"]);
    assert_eq!(second["config"]["route"][0]["id"], "other");
    assert!(second["applied_at"].as_str() > first["applied_at"].as_str());

    // JSON of the same schema: what is shown can be given back.
    let json = proxy.directory().join("shown.json");
    std::fs::write(&json, second["config"].to_string()).expect("written");
    let (code, _, error) = ringway(&["check", "-c", &json.display().to_string()]);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn status_and_metrics_tell_of_the_last_reload() {
    let origin = Origin::start();
    let settings = Settings::new(DRIVER, &origin.address);
    let mut proxy = Proxy::start(settings.clone());
    let success = |proxy: &Proxy| proxy.metric("ringway_config_last_reload_success", "");
    let last = |proxy: &Proxy| proxy.status()["config"]["last_reload"].clone();
    let started = applied_at(&proxy);
    assert!(started > 1_500_000_000.0);
    assert_eq!((success(&proxy), last(&proxy)), (1.0, Value::Null));

    let bad = "[listener.main]\nno_such_key = 1\n";
    proxy.rewrite_raw(bad);
    let (_, answer) = proxy.reload();
    assert_eq!((success(&proxy), applied_at(&proxy)), (0.0, started), "refused");
    let refused = last(&proxy);
    let said = answer["diagnostics"].as_str().map(str::trim_end);
    assert_eq!((&refused["result"], refused["message"].as_str()), (&json!("rejected"), said));
    assert!(said.is_some_and(|text| text.contains("no_such_key")));
    let admin = proxy.admin.to_string();
    let (code, page, _) = ringway(&["status", "--admin", &admin]);
    assert_eq!(code, Some(0));
    assert!(
        page.contains("\nlast reload   rejected at 2") && page.contains("no_such_key"),
        "{page}"
    );

    proxy.rewrite(settings.clone().workers(2));
    assert_eq!(proxy.reload().0, 409);
    assert_eq!((success(&proxy), last(&proxy)["result"].as_str()), (0.0, Some("needs_restart")));

    proxy.rewrite(settings);
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(success(&proxy), 1.0);
    assert!(applied_at(&proxy) > started);
    let applied = last(&proxy);
    assert_eq!(applied["result"], "applied");
    let message = applied["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("configuration 2 is in force on every worker"), "{message}");
    assert!(applied["at"].as_str() > refused["at"].as_str());
    let of = |result: &str| {
        proxy.metric("ringway_config_reloads_total", &format!("result=\"{result}\""))
    };
    assert_eq!(["applied", "rejected", "needs_restart"].map(of), [1.0, 1.0, 1.0]);
}

/// A route with filters of three phases, one of which has conditions, and a zone.
fn with_filters(origin: &Origin) -> Settings {
    let filters = "[filter.first]\nkind = \"headers\"\nset = { x-a = \"1\" }\n\
                   when = [{ header = \"x-beta\", equals = \"yes\" }]\n\
                   [filter.nets]\nkind = \"ip_list\"\nallow = [\"127.0.0.0/8\"]\n\
                   [filter.answers]\nkind = \"headers\"\nresponse = { set = { x-b = \"1\" } }\n";
    let more = "filters = [\"first\", \"answers\", \"nets\"]\ntimeouts = { response = \"700ms\" }\n\
                zone = \"a\"";
    let endpoints = [
        format!("{{ address = \"{}\", zone = \"a\" }}", origin.address),
        endpoint("127.0.0.1:9", 1),
    ];
    let routes = route("all", "prefix = \"/app/\"", "main", more) + filters;
    Settings::new(DRIVER, &origin.address)
        .upstreams(upstream("main", &endpoints, ""))
        .routes(routes)
}

/// The file, the running process and the admin API say the same; the process what is in force.
#[test]
fn a_request_is_explained_by_the_process() {
    let origin = Origin::start();
    let proxy = Proxy::start(with_filters(&origin));
    let (admin, file) =
        (proxy.admin.to_string(), proxy.directory().join("ringway.toml").display().to_string());
    let question = ["explain", "POST", "http://a.test/app/b%20c?d=e&f", "-H", "X-Beta: no & never"];
    let asked = |more: &[&str]| ringway(&[&question[..], more].concat());
    let url = "/v1/explain?method=POST&url=http://a.test/app/b%2520c?d%3De%26f\
               &header=X-Beta:+no+%26+never&client=127.0.0.1";
    let (status, answer) = get(&proxy, url);
    assert_eq!((status, &answer["route"]["id"]), (200, &json!("all")));
    let page = asked(&["-c", &file]).1;
    for (how, code) in [
        (&["-c", &file][..], 0),
        (&["--admin", &admin], 0),
        (&["--running", "-c", &file], 0),
        (&["--running", "--admin", &admin], 0),
    ] {
        let (exit, printed, error) = asked(&[how, &["--json"]].concat());
        assert_eq!(exit, Some(code), "{how:?}: {error}");
        assert_eq!(serde_json::from_str::<Value>(&printed).ok(), Some(answer.clone()), "{how:?}");
        assert_eq!(asked(how).1, page, "{how:?}");
    }
    let of = |filter: &Value| {
        [filter["name"].clone(), filter["phase"].clone(), filter["applies"].clone()]
    };
    let filters: Vec<_> = answer["filters"].as_array().into_iter().flatten().map(of).collect();
    let expected = json!([
        ["nets", "access", true],
        ["first", "transform", false],
        ["answers", "response", true]
    ]);
    assert_eq!(json!(filters), expected);
    assert!(page.contains("\nfilters    nets (access)\n"), "{page}");
    let not =
        "           first (transform), not for this request: wants header x-beta equals \"yes\"";
    assert!(page.contains(not), "{page}");
    let target = &answer["targets"][0];
    assert_eq!((&target["share"], &target["zone"]), (&json!(1.0), &json!("a")));
    assert_eq!(target["endpoints"].as_array().map(Vec::len), Some(1));
    assert_eq!(target["timeouts_ms"]["response"], 700);

    // A file that did not take force changes only what the file says.
    proxy
        .rewrite_raw(&std::fs::read_to_string(&file).expect("there").replace("\"all\"", "\"new\""));
    let id = |how: &[&str]| {
        let printed = asked(&[how, &["--json"]].concat()).1;
        serde_json::from_str::<Value>(&printed).expect("JSON")["route"]["id"].clone()
    };
    assert_eq!((id(&["-c", &file]), id(&["--admin", &admin])), (json!("new"), json!("all")));
    assert_eq!(proxy.reload().0, 200);
    assert_eq!(id(&["--admin", &admin]), "new");

    assert_eq!(ringway(&["explain", "GET", "/none", "--admin", &admin]).0, Some(1), "no route");
    let (code, _, error) = ringway(&["explain", "GET", "nowhere", "--admin", &admin]);
    assert_eq!(code, Some(2));
    assert!(error.starts_with("url: \"nowhere\" begins with neither"), "{error}");
}

#[test]
fn wrong_questions_are_answered_with_what_to_write() {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(DRIVER, &origin.address));
    for (query, said) in [
        ("", "url: it is missing; give url=/path or url=http://host/path"),
        (
            "?url=/&client=nobody",
            "client: \"nobody\" is no IP address; write one such as 192.0.2.7",
        ),
        ("?url=/&header=x", "header: \"x\" is no field; write 'Name: value'"),
        ("?url=/&method=", "method: \"\" is none; write one such as GET"),
        ("?url=/&url=/b", "url: it stands twice; give it once"),
    ] {
        let (status, answer) = get(&proxy, &format!("/v1/explain{query}"));
        assert_eq!((status, &answer["error"]), (400, &json!(said)), "{query}");
    }
    let (status, answer) = get(&proxy, "/v1/explain?url=/a?b=c&d=e");
    let said = answer["error"].as_str().unwrap_or_default();
    assert!(status == 400 && said.starts_with("\"d\"") && said.contains("%26"), "{said}");

    let (status, answer) = get(&proxy, "/v1/nothing");
    assert_eq!(status, 404);
    let resources = answer["resources"].as_array().expect("a list");
    for resource in ["GET /v1/config", "GET /v1/explain", "POST /v1/reload", "GET /metrics"] {
        assert!(resources.contains(&json!(resource)), "{resource}: {answer}");
    }
    let (status, version) = get(&proxy, "/v1/version");
    assert_eq!((status, &version["version"]), (200, &json!(env!("CARGO_PKG_VERSION"))));
    assert!(version["features"].is_array() && version["kernel"].is_string(), "{version}");
}

/// A large configuration that many ask for at a time, some of whom go away, is shown whole, holds up
/// no scrape, and is let go of.
#[test]
fn many_may_ask_for_a_large_configuration() {
    let origin = Origin::start();
    let routes: String = (0..5_000)
        .map(|number| route(&format!("r{number}"), &format!("path = \"/r/{number}\""), "main", ""))
        .collect();
    let proxy = Proxy::start(Settings::new(DRIVER, &origin.address).routes(routes));
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..12).map(|_| scope.spawn(|| get(&proxy, "/v1/config"))).collect();
        for _ in 0..20 {
            drop(proxy.admin_ask("GET /v1/config", ms(1)));
            assert_eq!(get(&proxy, "/v1/ready").0, 200);
            assert_eq!(proxy.metric("ringway_config_version", ""), 1.0);
        }
        for asked in asking {
            let (status, answer) = asked.join().expect("an answer");
            assert_eq!(status, 200);
            assert_eq!(answer["config"]["route"].as_array().map(Vec::len), Some(5_000));
        }
    });
    let explained = get(&proxy, "/v1/explain?url=/r/4999").1;
    assert_eq!(explained["route"]["id"], "r4999");
    assert_eq!(proxy.reload().0, 200);
    let alive = || proxy.metric("ringway_config_snapshots_alive", "") == 1.0;
    assert!(poll(ms(5_000), alive), "nobody holds the old one");
}

/// Whoever holds connections and does nothing with them keeps nobody else out.
#[test]
fn idle_connections_and_readers_that_do_not_read_keep_nobody_out() {
    let origin = Origin::start();
    let proxy = Proxy::start(Settings::new(DRIVER, &origin.address));
    let ready = |when: &str| {
        let began = Instant::now();
        let (status, _) = proxy.admin_ask("GET /v1/ready", ms(1_000)).expect(when);
        assert_eq!(status, 200, "{when}");
        assert!(began.elapsed() < Duration::from_secs(1), "{when}: {:?}", began.elapsed());
    };
    let open = || TcpStream::connect(proxy.admin).expect("a connection");
    let mut idle: Vec<_> = (0..120).map(|_| open()).collect();
    ready("with 120 idle connections");
    idle.iter_mut().for_each(|one| drop(one.write(b"GET /v1/ready HT")));
    ready("with slow ones among them");

    let pipeline = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let deaf: Vec<_> = (0..70)
        .map(|_| {
            let mut one = open();
            one.set_nonblocking(true).expect("set");
            drop(one.write(pipeline.as_bytes()));
            one
        })
        .collect();
    ready("with 70 that do not read");
    assert!(poll(ms(5_000), || proxy.metric("ringway_config_version", "") == 1.0));
    // The first ones have been closed.
    idle[0].set_read_timeout(Some(ms(1_000))).expect("set");
    let end = idle[0].read(&mut [0]);
    assert!(
        matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
    );
    drop((idle, deaf));
    ready("afterwards");
}
