//! What `check` and `explain` say of routes that never take effect, or not as they look.

use super::*;

/// A named filter may serve many routes: a parameter that one lacks is a warning, said once.
#[test]
fn filters_that_ask_for_other_parameters_are_warned_of() {
    let text = file(&[
        ("has", "path = \"/{id}\"\nfilters = [\"stamp\"]"),
        ("lacks", "path = \"/x/{idd}\"\nfilters = [\"stamp\"]"),
        ("too", "prefix = \"/y\"\nfilters = [\"stamp\"]"),
    ]) + "[filter.stamp]\nkind = \"headers\"\nset = { x = \"${path.id}\" }\n";
    let (_, warnings) = compile(&text, &mut Ids::default(), 1).expect("taken");
    let said = render(&warnings, &text);
    assert_eq!(said.matches("warning: ").count(), 1, "{said}");
    for part in ["`path.id` is empty on route `lacks`", "asked for here", "no such parameter"] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
}

/// Only the operator and the request's own host decide on the host of a Location, or `check` says so.
#[test]
fn redirects_to_where_a_request_says_are_warned_of() {
    let to =
        |to: &str| said(&[("r", &format!("path = \"/{{id}}\"\nredirect = {{ to = \"{to}\" }}"))]);
    for taken in
        ["https://${request.host}${request.uri}", "/x?${request.header.x}", "${request.uri}"]
    {
        assert!(!to(taken).contains("redirect leads"), "{taken}");
    }
    for (warned, name) in [
        ("https://${request.header.x}/", "request.header.x"),
        ("https://${path.id}.a.test/", "path.id"),
    ] {
        let said = to(warned);
        let wanted = format!("warning: requests decide by `{name}` where this redirect leads");
        assert!(said.contains(&wanted) && said.contains("help: "), "{said}");
    }
}

/// Expressions are asked last, so that a prefix without conditions over them ends them.
#[test]
fn expressions_behind_a_prefix_are_warned_of() {
    let regex = "regex = '/v[0-9]+/.*'";
    for (other, regex) in [
        ("prefix = \"/\"", regex),
        ("prefix = \"/\"", "regex = '.*'"),
        ("prefix = \"/api\"", "regex = '/api/(?<rest>.*)'"),
        ("path = \"/{*rest}\"", regex),
        ("path = \"/api/{*rest}\"", "regex = '/api/x.*'"),
        ("prefix = \"/\"\nhosts = [\"a\", \"b\"]", "regex = '/x'\nhosts = [\"b\"]"),
        ("prefix = \"/\"\npriority = 999", "regex = '/x.*'\npriority = 1"),
    ] {
        let said = said(&[("r", regex), ("all", other)]);
        for part in
            ["warning: route `r` is never reached", "route `all` takes these paths", "help: "]
        {
            assert!(said.contains(part), "{other} {regex}: {part} in\n{said}");
        }
    }
    for (other, regex) in [
        ("prefix = \"/api\"", "regex = '/api.*'"),
        ("prefix = \"/api\"", "regex = '/(api|b)/.*'"),
        ("path = \"/{*rest}\"", "regex = '/.*'"),
        ("path = \"/{a}/{*rest}\"", regex),
        ("prefix = \"/\"\nwhen = [{ method = 'GET' }]", regex),
        ("prefix = \"/\"\nhosts = [\"a\"]", "regex = '/x'\nhosts = [\"a\", \"b\"]"),
        ("prefix = \"/\"\nhosts = [\"a\"]", "regex = '/x'"),
    ] {
        assert_eq!(said(&[("r", regex), ("all", other)]), "", "{other} {regex}");
    }
}

#[test]
fn an_explanation_names_the_routes_behind() {
    let (snapshot, _) = compile(
        &file(&[
            ("first", "prefix = \"/v\"\nwhen = [{ method = 'GET' }]"),
            ("behind", "regex = '/v/[0-9]+'"),
            ("other", "regex = '/w/.*'"),
            ("all", "prefix = \"/\""),
            ("foreign", "prefix = \"/\"\nhosts = [\"x\"]"),
        ]),
        &mut Ids::default(),
        1,
    )
    .expect("taken");
    let later = |method: &str| {
        let answer = explained(&snapshot, &Query::new(method, "http://a.test/v/1"));
        let later = answer["later"].as_array().expect("a list").clone();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        later.iter().map(|one| (text(&one["route"]), text(&one["why"]))).collect::<Vec<_>>()
    };
    let pair =
        |route: &str, first: &str| (route.to_owned(), format!("never asked: `{first}` came first"));
    assert_eq!(later("GET"), [pair("behind", "first"), pair("all", "first")]);
    assert_eq!(later("PUT"), [pair("behind", "all")]);
}

/// What depends on the listener is said for each, where they differ.
#[test]
fn an_explanation_knows_the_listeners() {
    let routes = file(&[
        ("host", "prefix = \"/h\"\nhost_rewrite = \"${listener.name}.internal\""),
        ("to", "prefix = \"/t\"\nredirect = { to = \"https://${listener.name}.test/\" }"),
    ]);
    let asked = |text: &str, path: &str| {
        let (snapshot, _) = compile(text, &mut Ids::default(), 1).expect("taken");
        explained(&snapshot, &Query::new("GET", path))
    };
    assert_eq!(asked(&routes, "/h")["upstream_host"], "a.internal");
    assert_eq!(asked(&routes, "/t")["redirect"]["location"], "https://a.test/");
    let two = routes + "[listener.b]\naddress = \"127.0.0.1:0\"\n";
    let hosts = &asked(&two, "/h")["upstream_host"];
    assert_eq!((&hosts["a"], &hosts["b"]), (&"a.internal".into(), &"b.internal".into()));
    assert_eq!(asked(&two, "/t")["redirect"]["location"]["b"], "https://b.test/");
}

/// What a rewrite would refuse, an explanation says too.
#[test]
fn an_explanation_refuses_what_a_rewrite_hides() {
    let snapshot = taken(&[("r", "regex = '/v(?<rest>.*)'\nrewrite = \"/{rest}\"")]);
    for path in ["/v..%2fadmin", "/v..;/manager"] {
        let answer = explained(&snapshot, &Query::new("GET", path));
        assert_eq!(
            (&answer["route"]["id"], &answer["refused"]["code"]),
            (&"r".into(), &"path_refused".into()),
            "{path}"
        );
        assert!(answer.get("upstream_target").is_none());
    }
    assert_eq!(explained(&snapshot, &Query::new("GET", "/v1/a"))["upstream_target"], "/1/a");
}
