//! `kind = "headers"`: sets, adds and removes fields of requests and answers.

use std::sync::Arc;

use super::{AnswerCall, Build, Call, Filter, Hooks, Key, Kind, Phase, Verdict};
use crate::config::Diagnostic;
use crate::config::decode::{Decoder, Fields, mismatch};
use crate::config::diagnostic::Span;
use crate::config::read::{list, string};
use crate::config::tree::{Node, Spanned, Value};
use crate::context::source::is_token;
use crate::context::template::{Availability, Template};
use crate::http::RequestHead;
use crate::limits::HEADER_EDITS_MAX;

/// Edits of fields.
pub const KIND: Kind = Kind {
    name: "headers",
    phase: Phase::Transform,
    waits: false,
    about: "Sets, adds and removes fields: of the request before it goes to the upstream, and under \
            `response` of the answer before it goes to the client, the gateway's own answers \
            included. Values may have variables, such as `${client.address}`; one that is not known \
            yet is an error of the file, and a request with `${upstream.name}` in a value is edited \
            once its upstream is chosen. Fields are set and added in the order in which they are \
            written, and removed after that, so that a field can be copied and then removed. A field \
            whose value comes out empty, as that of a field or a path parameter that a request has not, \
            or one with nothing but white space, is not sent: set so, it is removed. Heads alone are \
            edited: trailers and interim answers such as 103 pass as they came. Fields that the gateway \
            answers for, such as Host, Content-Length, Connection and X-Forwarded-For, cannot be \
            edited; the error says what to use instead.",
    example: "[filter.canary]\nkind = \"headers\"\n\
              set = { x-env = \"canary\", x-client = \"${client.address}\" }\n\
              add = { x-tag = \"${request.header.x-env} ${route.id}\" }\nremove = [\"x-debug\"]\n\
              response = { set = { x-served-by = \"${endpoint.address}\" }, \
              add = { set-cookie = \"seen=1; Path=/\" }, remove = [\"server\"] }\n",
    keys: &[
        Key::of("filter.headers", "set", "fields", "none", SET),
        Key::of("filter.headers", "add", "fields", "none", ADD),
        Key::of("filter.headers", "remove", "list of names", "none", REMOVE),
        Key::of("filter.headers", "response", "table", "none", "what is done to the answer"),
        Key::of("filter.headers.response", "set", "fields", "none", SET),
        Key::of("filter.headers.response", "add", "fields", "none", ADD),
        Key::of("filter.headers.response", "remove", "list of names", "none", REMOVE),
    ],
    decode,
};

const SET: &str = "names and values; each takes the place of all fields with its name";
const ADD: &str = "names and values; each is one more field, but for a request's Cookie, of which there is \
     one: the cookies are joined";
const REMOVE: &str = "names; all fields with one of them are left out";



/// Whose fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

#[derive(Debug, Default)]
struct Headers {
    request: Edits,
    response: Edits,
    /// Whether a value of the request needs the upstream.
    late: bool,
}

/// What is done to one head, in this order.
#[derive(Debug, Default)]
struct Edits {
    set: Vec<Line>,
    add: Vec<Line>,
    remove: Vec<Box<str>>,
}

#[derive(Debug)]
struct Line {
    name: Box<str>,
    value: Text,
}

#[derive(Debug)]
enum Text {
    Plain(Box<[u8]>),
    Template(Template),
}

impl Filter for Headers {
    fn hooks(&self) -> Hooks {
        let (request, response) = (!self.request.is_empty(), !self.response.is_empty());
        Hooks { request, response, log: false }
    }

    fn phase(&self) -> Option<Phase> {
        self.late.then_some(Phase::Upstream)
    }

    fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        let edits = &self.request;
        // The text is put together outside the head, which its variables read.
        let mut text = std::mem::take(&mut call.context.scratch);
        for (line, replaces) in edits.lines() {
            text.clear();
            let joins = !replaces && line.name.eq_ignore_ascii_case(COOKIE);
            if joins {
                cookies(&call.context.request, &mut text);
            }
            let start = text.len();
            match &line.value {
                Text::Plain(value) => text.extend_from_slice(value),
                Text::Template(template) => template.expand(&call.scope(), &mut text),
            }
            if joins && text[start..].trim_ascii().is_empty() {
                continue;
            }
            let head = &mut call.context.request;
            if replaces || joins {
                head.remove(&line.name);
            }
            let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&text);
            head.added.push_unless_empty(line.name.as_bytes(), write);
        }
        text.clear();
        call.context.scratch = text;
        for name in &edits.remove {
            call.context.request.remove(name);
        }
        Verdict::Continue
    }

    fn on_response(&self, answer: &mut AnswerCall<'_>) {
        let scope = answer.scope();
        for (line, replaces) in self.response.lines() {
            if replaces {
                answer.head.remove(&line.name);
            }
            answer.head.added.push_unless_empty(line.name.as_bytes(), |out| match &line.value {
                Text::Plain(value) => out.extend_from_slice(value),
                Text::Template(template) => template.expand(&scope, out),
            });
        }
        for name in &self.response.remove {
            answer.head.remove(name);
        }
    }
}

impl Edits {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// All lines, and whether each replaces those with its name.
    fn lines(&self) -> impl Iterator<Item = (&Line, bool)> {
        let set = self.set.iter().map(|line| (line, true));
        set.chain(self.add.iter().map(|line| (line, false)))
    }

    fn needs(&self) -> Availability {
        let of = |(line, _): (&Line, bool)| match &line.value {
            Text::Plain(_) => Availability::Request,
            Text::Template(template) => template.needs(),
        };
        self.lines().map(of).max().unwrap_or(Availability::Request)
    }

    fn decode(f: &mut Fields<'_, '_>, side: Side) -> Edits {
        let lines = |node: &Node, decoder: &mut Decoder| lines(node, decoder, side);
        let name = |node: &Node, decoder: &mut Decoder| {
            let name = string(node, decoder)?;
            check_name(name, node.span.clone(), side, decoder)?;
            Some(Spanned::new(Box::from(name), &node.span))
        };
        let set = f.optional("set", lines).unwrap_or_default();
        let add = f.optional("add", lines).unwrap_or_default();
        let remove: Vec<Spanned<Box<str>>> =
            f.optional("remove", list(1..=HEADER_EDITS_MAX, name)).unwrap_or_default();
        for gone in &remove {
            let given = set.iter().chain(&add);
            let same = given.filter(|(name, _)| name.value.eq_ignore_ascii_case(&gone.value));
            for (name, _) in same {
                f.complain(|_| {
                    let message = format!("field `{}` is written and removed", gone.value);
                    Diagnostic::error(gone.span(), message)
                        .label("removed here")
                        .other(name.span(), "written here")
                        .remedy("`set` alone replaces what was there: leave out one of the two")
                });
            }
        }
        let line = |(name, value): (Spanned<Box<str>>, Text)| Line { name: name.value, value };
        Edits {
            set: set.into_iter().map(line).collect(),
            add: add.into_iter().map(line).collect(),
            remove: remove.into_iter().map(|name| name.value).collect(),
        }
    }
}

fn decode(f: &mut Fields<'_, '_>, _build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    let request = Edits::decode(f, Side::Request);
    let response = f.optional("response", |node, decoder| {
        let mut f = Fields::of("filter.headers.response", node, decoder)?;
        let edits = Edits::decode(&mut f, Side::Response);
        f.finish();
        Some(edits)
    });
    let response = response.unwrap_or_default();
    if request.is_empty() && response.is_empty() {
        f.complain(|span| {
            Diagnostic::error(span, "this filter does nothing")
                .label("neither sets nor adds nor removes a field")
                .remedy("give it something to do, such as set = { x-env = \"canary\" }")
        });
        return None;
    }
    let late = request.needs() > Availability::Request;
    Some(Arc::new(Headers { request, response, late }))
}

/// The cookies of a request, each line with what parts it from the next: one more joins them, since
/// a request has one Cookie line (RFC 6265 section 5.4).
fn cookies(request: &RequestHead, out: &mut Vec<u8>) {
    for line in request.values_named(COOKIE).filter(|line| !line.is_empty()) {
        out.extend_from_slice(line);
        out.extend_from_slice(b"; ");
    }
}

/// Names and values of `set` or `add`.
fn lines(
    node: &Node,
    decoder: &mut Decoder,
    side: Side,
) -> Option<Vec<(Spanned<Box<str>>, Text)>> {
    let Value::Table(entries) = &node.value else {
        let found = mismatch(node, "a table of fields");
        decoder.found.push(found.remedy("write { x-name = \"value\" }"));
        return None;
    };
    if entries.len() > HEADER_EDITS_MAX {
        let message = format!("more than {HEADER_EDITS_MAX} fields");
        let error = Diagnostic::error(node.span.clone(), message);
        decoder.found.push(error.remedy("use a second filter for the rest"));
        return None;
    }
    let mut lines: Vec<(Spanned<Box<str>>, Text)> = Vec::new();
    for entry in entries {
        let named = check_name(&entry.key, entry.key_span.clone(), side, decoder);
        let value = text(&entry.value, decoder, side);
        let (Some(()), Some(value)) = (named, value) else { continue };
        let twin = lines.iter().find(|(name, _)| name.value.eq_ignore_ascii_case(&entry.key));
        if let Some((first, _)) = twin {
            let message = format!("field `{}` stands twice", entry.key);
            decoder.found.push(
                Diagnostic::error(entry.key_span.clone(), message)
                    .label("the second; names have no case")
                    .other(first.span(), "the first")
                    .remedy("keep one of them"),
            );
            continue;
        }
        lines.push((Spanned::new(entry.key.clone(), &entry.key_span), value));
    }
    Some(lines)
}

fn text(node: &Node, decoder: &mut Decoder, side: Side) -> Option<Text> {
    let known = match side {
        Side::Request => Availability::Upstream,
        Side::Response => Availability::Response,
    };
    let template = Template::decode(known)(node, decoder)?;
    // RFC 9110 section 5.5
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if template.texts().flatten().any(is_control) {
        let error = Diagnostic::error(node.span.clone(), "no field has a control character");
        decoder.found.push(error.label("cannot be sent").remedy("leave it out"));
        return None;
    }
    match template.plain() {
        Some(plain) if plain.trim_ascii().is_empty() => {
            let error = Diagnostic::error(node.span.clone(), "an empty field is not sent");
            decoder.found.push(error.remedy("name it under `remove`, or give it a value"));
            None
        }
        Some(plain) => Some(Text::Plain(plain.trim_ascii().into())),
        None => Some(Text::Template(template)),
    }
}

/// A name that a filter may edit.
fn check_name(name: &str, span: Span, side: Side, decoder: &mut Decoder) -> Option<()> {
    if name.is_empty() || !name.bytes().all(is_token) {
        let message = format!("`{}` is not the name of a field", name.escape_debug());
        let remedy = "a name is made of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110 section 5.1)";
        decoder.found.push(Diagnostic::error(span, message).remedy(remedy));
        return None;
    }
    let owned = OWNED.iter().find(|(known, owner, _)| {
        let same = known.eq_ignore_ascii_case(name)
            || known.strip_suffix('*').is_some_and(|start| {
                name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
            });
        same && owner.is_none_or(|owner| owner == side)
    });
    let Some((_, _, remedy)) = owned else { return Some(()) };
    let message = format!("the gateway answers for field `{name}` itself");
    let error = Diagnostic::error(span, message).label("cannot be edited");
    decoder.found.push(error.remedy(*remedy));
    None
}

/// Fields that cannot be edited, whose, and what to use instead.
const OWNED: &[(&str, Option<Side>, &str)] = &[
    ("host", Some(Side::Request), "use `host_rewrite` on the route"),
    ("content-length", None, FRAMING),
    ("transfer-encoding", None, FRAMING),
    ("trailer", None, FRAMING),
    ("te", None, FRAMING),
    ("connection", None, HOP),
    ("keep-alive", None, HOP),
    ("proxy-connection", None, HOP),
    ("upgrade", None, HOP),
    ("http2-settings", None, HOP),
    ("expect", Some(Side::Request), "leave it out: the client and the upstream agree on it"),
    ("x-forwarded-for", Some(Side::Request), TRUST),
    ("x-forwarded-*", Some(Side::Request), TRUST),
    (
        "forwarded",
        Some(Side::Request),
        "write forwarded = true on the listener; `trusted_proxies` says whose is kept",
    ),
    ("via", None, "write via = true on the listener"),
    ("x-request-id", None, "use ${request.id} under a name of your own"),
    (
        "date",
        Some(Side::Response),
        "leave it out: the upstream's is kept, and one is added where it is missing",
    ),
];
const COOKIE: &str = "cookie";
const FRAMING: &str = "leave it out: it follows from the body";
const HOP: &str = "leave it out: it is about one connection, and each side has its own";
const TRUST: &str =
    "leave it out: it is written for each request; `trusted_proxies` of the listener says whose is \
     kept, and ${client.address} is the client under a name of your own";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::testing::{answer_call, call};
    use crate::context::{Matched, RequestContext};
    use crate::filter::testing::{decoded, refused};
    use crate::http::ResponseHead;

    const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nHost: a.test\r\nX-Old: 1\r\nx-OLD: 2\r\n\
        Authorization: secret\r\n\r\n";

    fn edited(text: &str, head: &[u8]) -> (RequestContext, Option<Phase>) {
        let filter = decoded("headers", text);
        let (mut context, _) = RequestContext::of_head(head).expect("valid");
        let mut call = Call { route: Matched { route: "r1", ..Matched::default() }, listener: "main", upstream: "orders", ..call(&mut context) };
        assert!(matches!(filter.on_request(&mut call), Verdict::Continue));
        (context, filter.phase())
    }

    fn request(text: &str) -> (String, Option<Phase>) {
        let (context, phase) = edited(text, HEAD);
        let names = context.request.fields.iter().map(|f| context.request.text(f.name));
        let mut out: Vec<String> =
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        out.push(String::from_utf8_lossy(context.request.added.bytes()).replace("\r\n", ";"));
        (out.join(" "), phase)
    }

    #[test]
    fn requests_are_edited() {
        for (text, wanted) in [
            ("set = { x-env = \"canary\" }", "Host X-Old x-OLD Authorization x-env: canary;"),
            ("set = { X-Old = \"3\" }", "Host Authorization X-Old: 3;"),
            ("add = { x-old = \"3\" }", "Host X-Old x-OLD Authorization x-old: 3;"),
            ("set = { x-old = \" ${request.header.x-none}\\t\" }", "Host Authorization "),
            ("remove = [\"x-old\", \"x-no\"]", "Host Authorization "),
            (
                "set = { x-new = \"${request.header.x-old}\" }\nremove = [\"x-old\"]",
                "Host Authorization x-new: 1, 2;",
            ),
            ("set = { x-old = \"${request.header.x-none}\" }", "Host Authorization "),
            (
                "set = { a = \"1\", b = \"${request.header.a}2\" }\nadd = { a = \"${route.id}\" }",
                "Host X-Old x-OLD Authorization a: 1;b: 12;a: r1;",
            ),
        ] {
            assert_eq!(request(text), (wanted.into(), None), "{text}");
        }
        let late = request("set = { x-up = \"${upstream.name}@${listener.name}\" }\nremove=[\"x-old\"]");
        assert_eq!(late, ("Host Authorization x-up: orders@main;".into(), Some(Phase::Upstream)));
    }

    /// RFC 6265 section 5.4.
    #[test]
    fn cookies_are_joined_to_one_line() {
        for (sent, text, wanted) in [
            ("", "add = { Cookie = \"b=2\" }", "Cookie: b=2;"),
            ("Cookie: a=1\r\n", "add = { cookie = \"b=2\" }", "cookie: a=1; b=2;"),
            ("Cookie: a=1\r\ncookie:\r\nCookie: c=3\r\n", "add = { cookie = \"b=2\" }", "cookie: a=1; c=3; b=2;"),
            ("Cookie: a=1\r\n", "set = { cookie = \"x=1\" }\nadd = { cookie = \"b=2\" }", "cookie: x=1; b=2;"),
            ("Cookie: a=1\r\n", "add = { cookie = \"${request.header.x-none}\" }", ""),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{sent}\r\n");
            let request = edited(text, head.as_bytes()).0.request;
            assert_eq!(String::from_utf8_lossy(request.added.bytes()).replace("\r\n", ";"), wanted);
            let one = usize::from(!(sent.is_empty() && wanted.is_empty()));
            assert_eq!(request.values_named("cookie").count(), one, "{sent}{text}");
        }
    }

    #[test]
    fn answers_are_edited() {
        let filter = decoded(
            "headers",
            "response = { set = { x-s = \"${response.status} ${endpoint.address}\" }, \
             add = { x-s = \"b\" }, remove = [\"Server\"] }",
        );
        let (context, _) = RequestContext::of_head(HEAD).expect("valid");
        let mut head = ResponseHead { status: 404, ..ResponseHead::default() };
        head.add("server", b"x");
        head.add("X-S", b"x");
        filter.on_response(&mut AnswerCall { endpoint: "e:1", ..answer_call(&context, &mut head) });
        assert_eq!(head.added.bytes(), b"x-s: 404 e:1\r\nx-s: b\r\n");
        let hooks = Hooks { request: false, response: true, log: false };
        assert_eq!(filter.hooks(), hooks);
    }

    #[test]
    fn what_the_gateway_answers_for_cannot_be_edited() {
        for name in
            ["Host", "content-LENGTH", "connection", "X-Forwarded-Foo", "via", "x-request-id", "te"]
        {
            for text in [format!("set = {{ {name} = \"x\" }}"), format!("remove = [\"{name}\"]")] {
                let said = refused("headers", &text);
                assert!(said.contains("answers for field"), "{said}");
            }
        }
        let answer = |name: &str| format!("response = {{ set = {{ {name} = \"x\" }} }}");
        assert!(refused("headers", &answer("date")).contains("one is added"));
        assert!(refused("headers", &answer("Keep-Alive")).contains("one connection"));
        decoded("headers", &answer("x-forwarded-foo"));
        decoded("headers", "set = { date = \"x\" }");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, part) in [
            ("", "does nothing"),
            ("set = {}", "does nothing"),
            ("set = \"x\"", "a table of fields"),
            ("set = { \"a b\" = \"x\" }", "not the name of a field"),
            ("set = { x = \"\" }", "name it under `remove`"),
            ("set = { x = \"\\u0001\" }", "control character"),
            ("set = { x = \"a\\r\\nb\" }", "line break"),
            ("set = { x = \"1\", X = \"2\" }", "stands twice"),
            ("set = { x = \"1\" }\nremove = [\"X\"]", "written and removed"),
            ("add = { x = \"1\" }\nremove = [\"X\"]", "written and removed"),
            ("set = { x = \"${response.status}\" }", "not known before"),
            ("set = { x = \"${endpoint.address}\" }", "before an endpoint was chosen"),
            ("set = { x = \"${request.hots}\" }", "there is no variable"),
            ("set = { x = 1 }", "a string"),
            ("response = { sett = {} }", "unknown key"),
        ] {
            let said = refused("headers", text);
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
