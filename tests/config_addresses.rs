//! What `check` says of sections as a whole: addresses that overlap, and sections of the wrong type.

use ringway::config::Source;
use ringway::snapshot::{Ids, compile, load_source};

const LISTENER: &str = "[listener.a]\naddress = \"127.0.0.1:0\"\n";
const UPSTREAM: &str = "[upstream.u]\nendpoints = [{ address = \"127.0.0.1:9001\" }]\n";
const ROUTE: &str = "[[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n";

/// Everything that is said of a text.
fn said(text: &str) -> String {
    let found = match compile(text, &mut Ids::default(), 1) {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    found.render(&Source::toml("x.toml", text).into(), false)
}

fn two_listeners(first: &str, second: &str) -> String {
    format!(
        "[listener.a]\naddress = \"{first}\"\n[listener.b]\naddress = \"{second}\"\n\
         {UPSTREAM}{ROUTE}"
    )
}

fn with_admin(admin: &str, listener: &str) -> String {
    format!(
        "[admin]\nlisten = \"{admin}\"\n[listener.a]\naddress = \"{listener}\"\n{UPSTREAM}{ROUTE}"
    )
}

/// A PROXY header that anybody may send names anybody.
#[test]
fn a_proxy_header_needs_somebody_to_be_trusted() {
    let needs = "`proxy_protocol` needs `trusted_proxies`";
    for (lines, message) in [
        ("proxy_protocol = \"required\"", Some(needs)),
        ("proxy_protocol = \"optional\"\ntrusted_proxies = []", Some(needs)),
        ("proxy_protocol = \"off\"", None),
        ("proxy_protocol = \"required\"\ntrusted_proxies = [\"::1\"]", None),
        ("proxy_protocol = \"on\"", Some("`on` is not possible here")),
        ("proxy_protocol = true", Some("proxy_protocol")),
    ] {
        let said = said(&format!("{LISTENER}{lines}\n{UPSTREAM}{ROUTE}"));
        match message {
            Some(message) => assert!(said.contains(message), "{said}"),
            None => assert_eq!(said, ""),
        }
    }
}

/// Both places are shown, and what to do.
#[test]
fn addresses_that_overlap_are_refused() {
    let (one, two) = ("127.0.0.1:80", "0.0.0.0:80");
    for (text, message) in [
        (two_listeners(one, two), "127.0.0.1:80 is a part of 0.0.0.0:80"),
        (two_listeners(two, one), "127.0.0.1:80 is a part of 0.0.0.0:80"),
        (two_listeners("[::]:80", "[::1]:80"), "[::1]:80 is a part of [::]:80"),
        (with_admin(two, one), "127.0.0.1:80 is a part of 0.0.0.0:80"),
        (with_admin("[::]:80", one), "127.0.0.1:80 is a part of [::]:80"),
        (with_admin(one, "[::]:80"), "127.0.0.1:80 is a part of [::]:80"),
    ] {
        let said = said(&text);
        for part in [message, "2 | ", "4 | ", "another port"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }
    let mapped = said(&two_listeners(one, "[::ffff:127.0.0.2]:80"));
    assert!(mapped.contains("IPv6's notation") && mapped.contains("write \"127.0.0.2:80\""));
}

#[test]
fn addresses_that_do_not_overlap_may_share_a_port() {
    for (first, second) in [
        ("[::]:80", "127.0.0.1:80"),
        ("[::]:80", "0.0.0.0:80"),
        ("127.0.0.1:80", "127.0.0.2:80"),
        ("0.0.0.0:80", "[::1]:80"),
        ("0.0.0.0:0", "127.0.0.1:0"),
        ("0.0.0.0:80", "127.0.0.1:81"),
    ] {
        assert_eq!(said(&two_listeners(first, second)), "", "{first} {second}");
    }
}

/// Nothing is said to be missing that is there and wrong.
#[test]
fn a_section_of_the_wrong_type_is_not_called_missing() {
    for text in [
        format!("{LISTENER}{UPSTREAM}[route]\nid = \"r\"\n"),
        format!("[[listener]]\naddress = \"127.0.0.1:1\"\n{UPSTREAM}{ROUTE}"),
        format!("listener = 1\n{UPSTREAM}{ROUTE}"),
    ] {
        let said = said(&text);
        assert!(!said.contains("there is no"), "{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }
    assert!(said(&format!("route = []\n{LISTENER}{UPSTREAM}")).contains("there is no route"));
    let empty = Source::json("x.json", "");
    let said = load_source(empty, &mut Ids::default(), 1).expect_err("refused").to_string();
    assert!(said.contains("EOF while parsing a value"), "{said}");
}
