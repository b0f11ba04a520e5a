//! Templates: what they become, and what is said of those that are wrong.

use super::*;
use crate::context::source::{Param, Params};

const HEAD: &[u8] = b"GET /user/7/../8?q=a%0d%0aSet-Cookie:x&e HTTP/1.1\r\nHost: A.Test.:80\r\n\
    X-Two: one\r\nX-Two: two\r\nCookie: uid=u1; b=\"q\"\r\n\r\n";

fn expand(text: &str, known: Availability) -> Result<String, TemplateError> {
    let (mut context, _) = RequestContext::of_head(HEAD).expect("valid");
    context.attributes.set("user", b"x\r\ny\0");
    let params = [Param { name: "id".into(), segment: 1, rest: false }];
    let matched = Matched { route: "r1", params: Params::Segments(&params, b"/user/8") };
    let scope = Scope {
        listener: "main",
        upstream: "orders",
        endpoint: "127.0.0.1:9001",
        status: 201,
        upstream_ms: Some(12),
        ..Scope::of_request(&context, matched)
    };
    let mut out = b">".to_vec();
    Template::parse(text, known)?.expand(&scope, &mut out);
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn variables_are_replaced() {
    for (text, wanted) in [
        ("", ""),
        ("plain", "plain"),
        ("${request.method} ${request.path}", "GET /user/8"),
        ("${request.uri}", "/user/8?q=a%0d%0aSet-Cookie:x&e"),
        ("${request.query.e}${request.query.no}.", "."),
        ("${request.host}/${request.scheme}", "a.test/http"),
        ("${request.header.x-TWO}", "one, two"),
        ("${request.cookie.uid}${request.cookie.b}", "u1q"),
        ("${path.id}@${route.id}", "8@r1"),
        ("${client.address}:${client.port}", "0.0.0.0:0"),
        ("${listener.name} ${upstream.name} ${endpoint.address}", "main orders 127.0.0.1:9001"),
        ("${response.status} ${upstream.time_ms}", "201 12"),
        ("$${route.id} $$ $ {} ${HOME}", "${route.id} $$ $ {} ${HOME}"),
    ] {
        assert_eq!(expand(text, Response).as_deref(), Ok(&*format!(">{wanted}")), "{text}");
    }
}

/// What ends a line never gets out, wherever it comes from.
#[test]
fn no_value_ends_a_line() {
    let out = expand("${request.query.q}|${attribute.user}", Request).expect("valid");
    assert_eq!(out, ">aSet-Cookie:x|xy");
    assert!(expand("a\nb", Request).is_err());
}

#[test]
fn what_is_wrong_is_said() {
    for (text, known, message, remedy) in [
        ("${request.hots}", Request, "there is no variable `request.hots`", "`request.host`"),
        ("${}", Request, "there is no variable ``", "variables: "),
        ("${request.header.}", Request, "not the name of a header", "write a name"),
        ("${request.path.id}", Request, "there is no variable", "request.path"),
        ("a ${route.id", Request, "has no end", "$${"),
        ("${response.status}", Upstream, "not known before the answer has come", "later"),
        ("${endpoint.address}", Request, "before an endpoint was chosen", "later"),
    ] {
        let error = expand(text, known).expect_err(text);
        assert!(error.message.contains(message), "{text}: {}", error.message);
        assert!(error.remedy.contains(remedy), "{text}: {}", error.remedy);
    }
    let error = expand("ab ${x} c", Request).expect_err("unknown");
    assert_eq!(error.range, 3..7);
}

#[test]
fn bounds_hold_on_both_sides() {
    let text = |bytes: usize| "x".repeat(bytes);
    assert!(Template::parse(&text(TEMPLATE_BYTES_MAX), Request).is_ok());
    assert!(Template::parse(&text(TEMPLATE_BYTES_MAX + 1), Request).is_err());
    let many = |count: usize| "${route.id}.".repeat(count);
    assert!(Template::parse(&many(TEMPLATE_VARIABLES_MAX), Request).is_ok());
    assert!(Template::parse(&many(TEMPLATE_VARIABLES_MAX + 1), Request).is_err());
}

#[test]
fn who_decides_on_an_authority_is_known() {
    for (text, name) in [
        ("https://${request.host}${request.uri}", None),
        ("https://a.test/${request.header.x}", None),
        ("https://a.test${request.uri}", None),
        ("https://a.test?${request.query}", None),
        ("/${request.header.x}", None),
        ("${request.uri}", None),
        ("https://${listener.name}.${attribute.a}.test/", None),
        ("https://${request.header.X-To}", Some("request.header.x-to")),
        ("https://${request.host}.${path.id}.test/", Some("path.id")),
        ("https://${request.query.to}/", Some("request.query.to")),
    ] {
        let template = Template::parse(text, Request).expect("valid");
        assert_eq!(template.asked_for_authority().as_deref(), name, "{text}");
    }
}

#[test]
fn plain_text_is_known_to_be_plain() {
    let parse = |text| Template::parse(text, Request).expect("valid");
    assert_eq!(parse("a$${b").plain(), Some(&b"a${b"[..]));
    assert_eq!(parse("").plain(), Some(&b""[..]));
    assert_eq!(parse("${route.id}").plain(), None);
    let needs = |text| Template::parse(text, Response).expect("valid").needs();
    assert_eq!(needs("a${route.id}"), Request);
    assert_eq!(needs("${route.id}${upstream.name}"), Upstream);
    assert_eq!(parse("x${path.a}${path.b}").params().collect::<Vec<_>>(), ["a", "b"]);
}
