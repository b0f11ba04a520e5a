//! `kind = "cors"`: lets pages of other origins use the answers (Fetch standard, section 3.3, "CORS
//! protocol").

use std::sync::Arc;

use super::{AnswerCall, Build, Call, Filter, Hooks, Key, Kind, Phase, Reply, Verdict};
use crate::config::Diagnostic;
use crate::config::decode::{Decoder, Fields};
use crate::config::read::{boolean, duration, list, spanned, string};
use crate::config::tree::{Node, Spanned};
use crate::context::RequestContext;
use crate::context::source::is_token;
use crate::http::head::list_members;
use crate::http::host::has_empty_label;
use crate::http::{RequestHead, ResponseHead};
use crate::http::uri::valid_host;
use crate::limits::CORS_ITEMS_MAX;

/// Cross-origin requests.
pub const KIND: Kind = Kind {
    name: "cors",
    phase: Phase::Access,
    waits: false,
    about: "Lets pages of other origins use the answers, by the CORS protocol of the Fetch standard. \
            A preflight (OPTIONS with Origin and Access-Control-Request-Method) is answered here with \
            204 and reaches no upstream; an origin that is not listed gets no field in it, which the \
            browser takes for a no. Any other OPTIONS passes. The fields take the place of those that \
            an upstream sends, on every answer, the gateway's own included; those for everybody \
            (`\"*\"`) also on answers to requests without Origin, so that a cache may give them to a \
            page. Put it before filters \
            that ask for credentials: a preflight carries none. A route with a condition on the \
            method must take OPTIONS too.",
    example: "[filter.shop]\nkind = \"cors\"\n\
              origins = [\"https://shop.example.com\", \"https://*.shop.example.com\"]\n\
              methods = [\"GET\", \"POST\", \"PUT\"]\nheaders = [\"content-type\", \"x-api-key\"]\n\
              expose = [\"ratelimit\"]\ncredentials = true\nmax_age = \"10m\"\n",
    keys: &[
        Key::of("filter.cors", 
            "origins",
            "list",
            "required",
            "`\"https://app.example.com\"`, with a port where it is not the scheme's own; \
             `\"https://*.example.com\"` is every name below it; `\"*\"` is everybody",
        ),
        Key::of("filter.cors", 
            "methods",
            "list",
            "`[\"GET\", \"HEAD\", \"POST\"]`",
            "methods that may be used; `\"*\"` is all",
        ),
        Key::of("filter.cors", 
            "headers",
            "list",
            "none",
            "request fields that may be sent beyond the safe ones; `\"*\"` is all but Authorization, \
             which has to be named",
        ),
        Key::of("filter.cors", "expose", "list", "none", "fields of the answer that the page may read; `\"*\"` is all"),
        Key::of("filter.cors", 
            "credentials",
            "flag",
            "`false`",
            "whether cookies and authentication may be sent; with it `\"*\"` is an error, since \
             browsers refuse it",
        ),
        Key::of("filter.cors", "max_age", "duration", "none", "how long a preflight's answer may be kept"),
    ],
    decode,
};



#[derive(Debug)]
struct Cors {
    /// Empty is everybody.
    origins: Vec<Origin>,
    methods: Box<str>,
    headers: Box<str>,
    expose: Box<str>,
    credentials: bool,
    max_age: Option<Box<str>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Exact(Box<str>),
    /// What stands before and behind the labels.
    Below(Box<str>, Box<str>),
}

impl Filter for Cors {
    fn hooks(&self) -> Hooks {
        Hooks { request: true, response: true, log: false }
    }

    fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        let preflight = is_preflight(call.context);
        let context = &mut *call.context;
        let (request, attributes) = (&context.request, &mut context.attributes);
        let name = if preflight { PREFLIGHT } else { PLAIN };
        attributes.set(name, origin(request).unwrap_or_default());
        match preflight {
            // Its fields are written with those of every answer.
            true => Verdict::Respond(Reply::of(204)),
            false => Verdict::Continue,
        }
    }

    fn on_response(&self, answer: &mut AnswerCall<'_>) {
        let AnswerCall { context, head, .. } = answer;
        for name in FIELDS {
            head.remove(name);
        }
        let (origin, preflight) = asked(context);
        // Fetch, "CORS protocol and HTTP caches": where the field does not depend on the origin it is
        // on every answer, since a cache gives that to a navigation also to a page's request.
        let allowed = match self.origins.is_empty() {
            true => Some(&b"*"[..]),
            false => origin.filter(|origin| self.allows(origin)),
        };
        if let Some(origin) = allowed {
            head.add(ALLOW_ORIGIN, origin);
            if self.credentials {
                head.add(ALLOW_CREDENTIALS, b"true");
            }
            self.allow(preflight, head);
        }
        if preflight {
            vary(head, "Access-Control-Request-Method");
            vary(head, "Access-Control-Request-Headers");
        }
        // The same section: else it varies, also where no Origin came.
        if !self.origins.is_empty() {
            vary(head, "Origin");
        }
    }
}

impl Cors {
    fn allows(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|known| known.takes(origin))
    }

    fn allow(&self, preflight: bool, head: &mut ResponseHead) {
        if !preflight {
            if !self.expose.is_empty() {
                head.add(EXPOSE_HEADERS, self.expose.as_bytes());
            }
            return;
        }
        head.add(ALLOW_METHODS, self.methods.as_bytes());
        if !self.headers.is_empty() {
            head.add(ALLOW_HEADERS, self.headers.as_bytes());
        }
        if let Some(seconds) = &self.max_age {
            head.add(MAX_AGE, seconds.as_bytes());
        }
    }
}

impl Origin {
    fn takes(&self, origin: &[u8]) -> bool {
        match self {
            Origin::Exact(known) => known.as_bytes() == origin,
            Origin::Below(before, behind) => {
                let rest = origin.strip_prefix(before.as_bytes());
                let labels = rest.and_then(|rest| rest.strip_suffix(behind.as_bytes()));
                labels.is_some_and(|labels| {
                    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
                    labels.iter().all(in_name) && !has_empty_label(labels)
                })
            }
        }
    }
}

/// Fetch, "CORS-preflight request": OPTIONS with these two fields.
fn is_preflight(context: &RequestContext) -> bool {
    let request = &context.request;
    request.text(request.method) == b"OPTIONS"
        && origin(request).is_some()
        && request.values_named("access-control-request-method").next().is_some()
}

/// The origin of the page as it came, and whether it was a preflight: what filters make of the head
/// later decides nothing. One that was answered before it came here has been edited by none.
fn asked(context: &RequestContext) -> (Option<&[u8]>, bool) {
    for (name, preflight) in [(PREFLIGHT, true), (PLAIN, false)] {
        if let Some(origin) = context.attributes.get(name) {
            return (Some(origin).filter(|origin| !origin.is_empty()), preflight);
        }
    }
    (origin(&context.request), is_preflight(context))
}

/// The origin of the page, where the request names one and no more.
fn origin(request: &RequestHead) -> Option<&[u8]> {
    let mut values = request.values_named("origin");
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Adds a member to Vary (RFC 9110 section 12.5.5), unless it is there.
fn vary(head: &mut ResponseHead, name: &str) {
    let same = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes());
    if !head.values_named("vary").flat_map(list_members).any(same) {
        head.add("Vary", name.as_bytes());
    }
}

fn decode(f: &mut Fields<'_, '_>, _build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    let origins = f.required(
        "origins",
        "[\"https://app.example.com\"]",
        list(1..=CORS_ITEMS_MAX, spanned_origin),
    );
    let methods = f.optional("methods", list(1..=CORS_ITEMS_MAX, method));
    let headers = f.optional("headers", list(1..=CORS_ITEMS_MAX, name)).unwrap_or_default();
    let expose = f.optional("expose", list(1..=CORS_ITEMS_MAX, name)).unwrap_or_default();
    let credentials = f.optional("credentials", spanned(boolean));
    let max_age = f.optional("max_age", duration);
    let origins = origins?;
    let everybody = origins.iter().find(|(_, origin)| origin.is_none()).map(|(span, _)| span);
    if let Some(star) = everybody.filter(|_| origins.len() > 1) {
        f.complain(|_| {
            Diagnostic::error(star.span(), "`*` is everybody")
                .label("takes in all the others")
                .remedy("leave out either `*` or the others")
        });
    }
    let methods = methods.unwrap_or_default();
    if let Some(credentials) = credentials.filter(|credentials| credentials.value) {
        let star = |list: &[Spanned<Box<str>>]| {
            list.iter().find(|item| &*item.value == "*").map(Spanned::span)
        };
        let stars = [everybody.map(Spanned::span), star(&methods), star(&headers), star(&expose)];
        for span in stars.into_iter().flatten() {
            f.complain(|_| {
                Diagnostic::error(span, "`*` and credentials exclude each other")
                    .label("browsers take it for a no, or for a name")
                    .other(credentials.span(), "credentials")
                    .remedy("list what is meant (Fetch standard, \"CORS protocol and credentials\")")
            });
        }
    }
    let join = |list: Vec<Spanned<Box<str>>>| -> Box<str> {
        list.iter().map(|item| &*item.value).collect::<Vec<_>>().join(", ").into()
    };
    Some(Arc::new(Cors {
        origins: origins.into_iter().filter_map(|(_, origin)| origin).collect(),
        methods: if methods.is_empty() { "GET, HEAD, POST".into() } else { join(methods) },
        headers: join(headers),
        expose: join(expose),
        credentials: credentials.is_some_and(|credentials| credentials.value),
        max_age: max_age.map(|ms| (ms / 1_000).to_string().into()),
    }))
}

/// An origin as browsers write it (RFC 6454 section 6.2); `None` inside is `*`.
fn spanned_origin(node: &Node, decoder: &mut Decoder) -> Option<(Spanned<()>, Option<Origin>)> {
    let text = string(node, decoder)?;
    let place = Spanned::new((), &node.span);
    if text == "*" {
        return Some((place, None));
    }
    match parse_origin(text) {
        Ok(origin) => Some((place, Some(origin))),
        Err(remedy) => {
            let message = format!("`{}` is not an origin", text.escape_debug());
            let error = Diagnostic::error(node.span.clone(), message);
            decoder.found.push(error.label("no browser sends this").remedy(remedy));
            None
        }
    }
}

fn parse_origin(text: &str) -> Result<Origin, &'static str> {
    if text == "null" {
        return Err("leave it out: any sandboxed page, file or redirect has the origin `null`");
    }
    let Some((scheme, host)) = text.split_once("://") else {
        return Err("write the scheme too, such as \"https://app.example.com\"");
    };
    if host.contains(['/', '?', '#']) {
        return Err("leave out what follows the host: an origin has no path");
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("write it in lower case, as browsers do");
    }
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    if !default.is_empty() && host.ends_with(default) {
        return Err("leave out the port: it is the scheme's own, which browsers do not send");
    }
    let scheme_fits = !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let name = host.strip_prefix("*.").unwrap_or(host);
    if !scheme_fits || name.is_empty() || name.contains('*') || !valid_host(name.as_bytes()) {
        return Err("write \"https://app.example.com\", \"https://*.example.com\" or \"*\"");
    }
    Ok(match host.strip_prefix('*') {
        Some(behind) => Origin::Below(format!("{scheme}://").into(), behind.into()),
        None => Origin::Exact(text.into()),
    })
}

fn method(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let method = name(node, decoder)?;
    // Fetch, "normalize a method": only some are put in capitals, and methods have a case.
    if method.value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let capitals = method.value.to_ascii_uppercase();
        let message = format!("`{}` is not a method", method.value);
        let error = Diagnostic::error(node.span.clone(), message);
        decoder.found.push(error.remedy(format!("write it in capitals: \"{capitals}\"")));
        return None;
    }
    Some(method)
}

fn name(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let text = string(node, decoder)?;
    if text.is_empty() || !text.bytes().all(is_token) {
        let message = format!("`{}` is not a name", text.escape_debug());
        let remedy = "write one name in each string, such as \"content-type\"";
        decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
        return None;
    }
    Some(Spanned::new(text.into(), &node.span))
}

/// Attributes with the origin as it came; empty where there was none.
const PREFLIGHT: &str = "cors.preflight";
const PLAIN: &str = "cors.origin";

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const ALLOW_METHODS: &str = "Access-Control-Allow-Methods";
const ALLOW_HEADERS: &str = "Access-Control-Allow-Headers";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const MAX_AGE: &str = "Access-Control-Max-Age";
const FIELDS: &[&str] =
    &[ALLOW_ORIGIN, ALLOW_CREDENTIALS, ALLOW_METHODS, ALLOW_HEADERS, EXPOSE_HEADERS, MAX_AGE];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::testing::{answer_call, call};
    use crate::filter::testing::{decoded, refused};

    const SHOP: &str = "origins = [\"https://a.example\", \"https://*.b.example:8443\"]\n\
        methods = [\"GET\", \"PUT\"]\nheaders = [\"x-key\"]\nexpose = [\"x-total\"]\n\
        credentials = true\nmax_age = \"10m\"";

    /// The status of the filter's own answer, if it gave one, and the fields that it left there.
    fn run(text: &str, head: &str, upstream: &[(&str, &str)]) -> (Option<u16>, String) {
        run_edited(text, head, upstream, |_| ())
    }

    /// The same, where other filters edit the request behind it.
    fn run_edited(
        text: &str,
        head: &str,
        upstream: &[(&str, &str)],
        edit: impl FnOnce(&mut RequestHead),
    ) -> (Option<u16>, String) {
        let filter = decoded("cors", text);
        let head = format!("{head}\r\nHost: api.example\r\n\r\n");
        let (mut context, _) = RequestContext::of_head(head.as_bytes()).expect("valid");
        let mut call = call(&mut context);
        let status = match filter.on_request(&mut call) {
            Verdict::Respond(reply) => Some(reply.status),
            Verdict::Continue => None,
            Verdict::Wait(_) => panic!("it does not wait"),
        };
        edit(&mut context.request);
        let mut head = ResponseHead::default();
        upstream.iter().for_each(|(name, value)| head.add(name, value.as_bytes()));
        filter.on_response(&mut answer_call(&context, &mut head));
        let fields = String::from_utf8_lossy(head.added.bytes()).replace("\r\n", "; ");
        (status, fields.replace("Access-Control-", ""))
    }

    #[test]
    fn a_preflight_is_answered_here() {
        let preflight = |origin: &str| {
            format!(
                "OPTIONS /a HTTP/1.1\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\
                 Access-Control-Request-Headers: x-key"
            )
        };
        let vary = "Vary: Request-Method; Vary: Request-Headers; Vary: Origin; ";
        let wanted = format!(
            "Allow-Origin: https://a.example; Allow-Credentials: true; Allow-Methods: GET, PUT; \
             Allow-Headers: x-key; Max-Age: 600; {vary}"
        );
        assert_eq!(run(SHOP, &preflight("https://a.example"), &[]), (Some(204), wanted));
        for origin in ["https://evil.example", "null", "https://a.example.evil", "http://a.example"] {
            assert_eq!(run(SHOP, &preflight(origin), &[]), (Some(204), vary.into()), "{origin}");
        }
        let (_, open) = run("origins = [\"*\"]", &preflight("https://any"), &[]);
        let wanted = "Allow-Origin: *; Allow-Methods: GET, HEAD, POST; Vary: Request-Method; \
                      Vary: Request-Headers; ";
        assert_eq!(open, wanted);
    }

    #[test]
    fn an_answer_gets_the_fields_in_place_of_the_upstreams() {
        let get = |origin: &str| format!("GET /a HTTP/1.1\r\nOrigin: {origin}");
        let upstream =
            [("access-control-allow-origin", "*"), ("Vary", "Accept, ORIGIN"), ("x-total", "7")];
        let wanted = "Vary: Accept, ORIGIN; x-total: 7; Allow-Origin: https://x.y.b.example:8443; \
                      Allow-Credentials: true; Expose-Headers: x-total; ";
        let asked = run(SHOP, &get("https://x.y.b.example:8443"), &upstream);
        assert_eq!(asked, (None, wanted.into()));
        let refused = run(SHOP, &get("https://x.b.example"), &upstream[..1]);
        assert_eq!(refused, (None, "Vary: Origin; ".into()));
        let none = run(SHOP, "GET / HTTP/1.1\r\nX-A: b", &[("vary", "*")]);
        assert_eq!(none, (None, "vary: *; ".into()));
        let two = run(SHOP, "GET / HTTP/1.1\r\nOrigin: https://a.example\r\nOrigin: b", &[]);
        assert_eq!(two, (None, "Vary: Origin; ".into()));
    }

    /// Fetch, "CORS protocol and HTTP caches".
    #[test]
    fn what_is_for_everybody_does_not_depend_on_the_request() {
        let open = "origins = [\"*\"]\nexpose = [\"x-total\"]\nheaders = [\"x-key\"]";
        let wanted = "Allow-Origin: *; Expose-Headers: x-total; ";
        for origin in ["X-A: b", "Origin: https://any", "Origin: null", "Origin: a\r\nOrigin: b"] {
            let asked = run(open, &format!("GET / HTTP/1.1\r\n{origin}"), &[]);
            assert_eq!(asked, (None, wanted.into()), "{origin}");
        }
        let listed = run(SHOP, "GET / HTTP/1.1\r\nX-A: b", &[]);
        assert_eq!(listed, (None, "Vary: Origin; ".into()));
    }

    #[test]
    fn an_options_that_is_no_preflight_passes() {
        let no_method = "OPTIONS / HTTP/1.1\r\nOrigin: https://a.example";
        assert_eq!(run(SHOP, no_method, &[]).0, None);
        let no_origin = "OPTIONS / HTTP/1.1\r\nAccess-Control-Request-Method: PUT";
        assert_eq!(run(SHOP, no_origin, &[]).0, None);
    }

    #[test]
    fn what_the_client_sent_counts() {
        let evil = "GET / HTTP/1.1\r\nOrigin: https://evil.example";
        let set = |head: &mut RequestHead| head.set("origin", b"https://a.example");
        assert_eq!(run_edited(SHOP, evil, &[], set), (None, "Vary: Origin; ".into()));
        let none = "OPTIONS / HTTP/1.1\r\nX-A: b";
        let forge = |head: &mut RequestHead| {
            head.add("origin", b"https://a.example");
            head.add("access-control-request-method", b"PUT");
        };
        assert_eq!(run_edited(SHOP, none, &[], forge), (None, "Vary: Origin; ".into()));
        let good = "GET / HTTP/1.1\r\nOrigin: https://a.example";
        let remove = |head: &mut RequestHead| assert!(head.remove("origin"));
        let edited = run_edited(SHOP, good, &[], remove);
        assert_eq!(edited, run(SHOP, good, &[]));
        assert!(edited.1.contains("Allow-Origin: https://a.example"), "{}", edited.1);
    }

    #[test]
    fn wildcards_take_names_below_and_nothing_else() {
        let below = parse_origin("https://*.example.com").expect("an origin");
        for (origin, taken) in [
            ("https://a.example.com", true),
            ("https://a.b.example.com", true),
            ("https://example.com", false),
            ("https://.example.com", false),
            ("https://a..example.com", false),
            ("https://..example.com", false),
            ("https://.a.example.com", false),
            ("https://evil.com/.example.com", false),
            ("https://user@a.example.com", false),
            ("https://evil.com:1.example.com", false),
            ("https://a.example.com:8443", false),
            ("http://a.example.com", false),
            ("https://a.example.com.evil", false),
        ] {
            assert_eq!(below.takes(origin.as_bytes()), taken, "{origin}");
        }
    }

    #[test]
    fn what_no_browser_would_take_is_refused() {
        for (text, part) in [
            ("", "`origins` is missing"),
            ("origins = [\"*\"]\ncredentials = true", "exclude each other"),
            ("origins = [\"https://a\"]\nheaders = [\"*\"]\ncredentials = true", "exclude"),
            ("origins = [\"https://a\"]\nmethods = [\"*\"]\ncredentials = true", "exclude"),
            ("origins = [\"*\", \"https://a\"]", "is everybody"),
            ("origins = [\"a.example\"]", "write the scheme"),
            ("origins = [\"https://a.example/\"]", "no path"),
            ("origins = [\"https://A.example\"]", "lower case"),
            ("origins = [\"https://a.example:443\"]", "leave out the port"),
            ("origins = [\"null\"]", "sandboxed"),
            ("origins = [\"https://*\"]", "is not an origin"),
            ("origins = [\"https://a.*.com\"]", "is not an origin"),
            ("origins = [\"https://a\"]\nmethods = [\"get\"]", "in capitals"),
            ("origins = [\"https://a\"]\nheaders = [\"a, b\"]", "one name in each string"),
        ] {
            let said = refused("cors", text);
            assert!(said.contains(part), "{text}: {said}");
        }
        decoded("cors", "origins = [\"*\"]\ncredentials = false\nheaders = [\"*\", \"authorization\"]");
    }
}
