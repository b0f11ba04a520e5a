//! Why a request gets its route, and what becomes of it: the answer of `ringway explain`.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::Snapshot;
use crate::config::show::{REDACTED, is_secret};
use crate::context::source::{form_decoded, is_token};
use crate::context::{Condition, RequestContext, Scope};
use crate::error::ErrorKind;
use crate::filter::{Entry, Phase};
use crate::http::uri::PathFacts;
use crate::route::{Action, Explanation, RoutePlan, Target, Targets};
use crate::upstream::{EndpointPlan, ShardPlan, UpstreamPlan};

/// The request that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The method.
    pub method: String,
    /// `http://host/path?query`, or a path with a query.
    pub url: String,
    /// Names and values of fields.
    pub headers: Vec<(String, String)>,
    /// The client's address; 127.0.0.1 where none is given.
    pub client: IpAddr,
}

impl Query {
    /// A request without fields from 127.0.0.1.
    pub fn new(method: &str, url: &str) -> Query {
        Query {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            client: Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Adds a field, written as `Name: value`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add_header(&mut self, line: &str) -> Result<(), String> {
        let field = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_token);
        match field.filter(|(name, value)| is_name(name) && !value.contains(['\r', '\n', '\0'])) {
            Some((name, value)) => {
                self.headers.push((name.into(), value.into()));
                Ok(())
            }
            None => Err(format!("header: {line:?} is no field; write 'Name: value'")),
        }
    }

    /// Reads `method=GET&url=/a&header=Name:value&client=192.0.2.7`, as `GET /v1/explain` takes it;
    /// `header` may stand several times, and without a method it is GET.
    ///
    /// # Errors
    /// Which parameter is wrong, why, and what to write.
    pub fn parse(query: &str) -> Result<Query, String> {
        let mut parsed = Query::new("GET", "");
        let mut seen: Vec<&str> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = String::from_utf8(form_decoded(value.as_bytes()).into_owned())
                .map_err(|_| format!("{key}: it is not UTF-8; write the %XX of UTF-8"))?;
            if key != "header" && seen.contains(&key) {
                return Err(format!("{key}: it stands twice; give it once"));
            }
            seen.push(key);
            match key {
                "method" => parsed.method = value,
                "url" => parsed.url = value,
                "header" => parsed.add_header(&value)?,
                "client" => {
                    parsed.client = value.parse().map_err(|_| {
                        format!("client: {value:?} is no IP address; write one such as 192.0.2.7")
                    })?;
                }
                _ => {
                    return Err(format!(
                        "{key:?} is none of the parameters method, url, header, client; an & inside \
                         one of them is written %26"
                    ));
                }
            }
        }
        match parsed.url.is_empty() {
            true => Err("url: it is missing; give url=/path or url=http://host/path".into()),
            false => Ok(parsed),
        }
    }

    /// As [`Query::parse`] reads it.
    pub fn to_text(&self) -> String {
        let mut text = format!("method={}&url={}", encoded(&self.method), encoded(&self.url));
        for (name, value) in &self.headers {
            text += &format!("&header={}", encoded(&format!("{name}: {value}")));
        }
        text + &format!("&client={}", self.client)
    }

    /// The head that a client would send.
    fn head(&self) -> Result<Vec<u8>, String> {
        let url = self.url.split('#').next().unwrap_or_default();
        let scheme = ["http://", "https://"].iter().find(|scheme| {
            url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        let (authority, target) = match scheme {
            Some(scheme) => {
                let rest = &url[scheme.len()..];
                let (authority, target) =
                    rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (Some(authority), target)
            }
            None if url.starts_with('/') || url == "*" => (None, url),
            None => {
                return Err(format!(
                    "url: {url:?} begins with neither / nor http://; write /path or http://host/path"
                ));
            }
        };
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return Err(format!("method: {:?} is none; write one such as GET", self.method));
        }
        if target.bytes().chain(authority.unwrap_or("").bytes()).any(|b| b <= b' ' || b == 127) {
            return Err(format!(
                "url: {url:?} has a space or a control character; write it as %XX"
            ));
        }
        let slash = if target.starts_with('?') || target.is_empty() { "/" } else { "" };
        let named = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        // A request without Host is one of HTTP/1.0.
        let version = if named || authority.is_some() { "1.1" } else { "1.0" };
        let mut head = format!("{} {slash}{target} HTTP/{version}\r\n", self.method);
        if let (false, Some(authority)) = (named, authority) {
            head += &format!("Host: {authority}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        Ok((head + "\r\n").into_bytes())
    }
}

/// With everything as `%XX` that means something in a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// What becomes of a request in a snapshot. `matched` says whether it has a route.
///
/// # Errors
/// What is wrong with the question.
pub fn explain(snapshot: &Snapshot, query: &Query) -> Result<Value, String> {
    let head = query.head()?;
    let mut answer = json!({
        "method": query.method,
        "url": query.url,
        "client": query.client.to_canonical().to_string(),
        "matched": false,
    });
    let (mut context, facts) = match RequestContext::of_head(&head) {
        Ok(admitted) => admitted,
        Err(kind) => {
            answer["refused"] = refusal(kind);
            return Ok(answer);
        }
    };
    context.client.address = query.client.to_canonical();
    answer["host"] = context.host().map_or(Value::Null, |host| text(host).into());
    answer["path"] = text(context.path()).into();
    answer["path_changed"] = context.target.changed.into();
    let explanation = snapshot.routes.explain(&context);
    add_steps(&mut answer, snapshot, &explanation);
    let found = explanation.found.and_then(|index| snapshot.routes.get(index));
    let Some(route) = found else {
        answer["refused"] = refusal(ErrorKind::RouteMissing);
        return Ok(answer);
    };
    answer["matched"] = true.into();
    add_route(&mut answer, snapshot, route, &context, &facts);
    Ok(answer)
}

fn refusal(kind: ErrorKind) -> Value {
    json!({ "status": kind.status(), "code": kind.code(), "text": kind.text() })
}

fn add_steps(answer: &mut Value, snapshot: &Snapshot, explanation: &Explanation) {
    let named = |index: usize| {
        let route = snapshot.routes.get(index);
        let of = |f: fn(&RoutePlan) -> String| route.map(|route| f(route));
        json!({
            "route": of(|route| route.id.to_string()),
            "takes": of(|route| route.matcher.to_string()),
            "priority": route.map(|route| route.priority),
        })
    };
    let steps = explanation.steps.iter().map(|step| {
        let mut value = named(step.route);
        value["host"] = if step.host.is_empty() { "any".into() } else { step.host.clone().into() };
        let conditions =
            snapshot.routes.get(step.route).map_or(&[][..], |route| route.conditions());
        let failed = step.failed.clone();
        value["failed"] = failed.map(|text| conditions.iter().fold(text, without_secret)).into();
        value
    });
    answer["steps"] = steps.collect();
    answer["more_steps"] = explanation.more.into();
    let first = explanation.found.and_then(|index| snapshot.routes.get(index));
    let later = explanation.later.iter().map(|index| {
        let mut value = named(*index);
        let first = first.map(|route| format!("never asked: `{}` came first", route.id));
        value["why"] = first.into();
        value
    });
    answer["later"] = later.collect();
    let near = explanation.near.iter().map(|near| {
        let mut value = named(near.route);
        value["why"] = near.why.clone().into();
        value
    });
    answer["near"] = near.collect();
}

fn add_route(
    answer: &mut Value,
    snapshot: &Snapshot,
    route: &RoutePlan,
    context: &RequestContext,
    facts: &PathFacts,
) {
    let conditions: Vec<_> = route.conditions().iter().map(words).collect();
    answer["route"] = json!({
        "id": &*route.id,
        "takes": route.matcher.to_string(),
        "hosts": route.hosts().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "priority": route.priority,
        "conditions": conditions,
        "body_bytes_max": route.body_bytes_max,
    });
    let chain = snapshot.chains.get(route.index);
    let entries = chain.iter().flat_map(|chain| chain.entries());
    answer["filters"] = entries.map(|entry| filter(entry, context)).collect();
    if let Err(kind) = route.path_policy.admit(facts) {
        answer["refused"] = refusal(kind);
        return;
    }
    let mut out = Vec::new();
    match &route.action {
        Action::Respond(respond) => {
            answer["respond"] = json!({
                "status": respond.status,
                "content_type": &*respond.content_type,
                "body_bytes": respond.body.len(),
            });
        }
        Action::Redirect(redirect) => {
            let location = by_listener(snapshot, |listener| {
                let mut scope = Scope::of_request(context, route.matched(context.path()));
                scope.listener = listener;
                redirect.location(&scope, &mut out).map(|()| text(&out))
            });
            match location {
                Ok(location) => {
                    answer["redirect"] = json!({ "status": redirect.status, "location": location });
                }
                Err(kind) => answer["refused"] = refusal(kind),
            }
        }
        Action::Forward(targets) => {
            let total: u32 = targets.all().iter().map(|target| target.weight).sum();
            let values =
                targets.all().iter().map(|one| target(snapshot, (route, context), one, total));
            answer["targets"] = values.collect();
            let path = match route.upstream_path(context.path(), &mut out) {
                Ok(path) => text(path),
                Err(kind) => {
                    answer["refused"] = refusal(kind);
                    return;
                }
            };
            answer["upstream_target"] = upstream_target(context, path).into();
            let host = by_listener(snapshot, |listener| {
                upstream_host(snapshot, route, targets, context, listener).map(|host| text(&host))
            });
            match host {
                Ok(host) => answer["upstream_host"] = host,
                Err(kind) => answer["refused"] = refusal(kind),
            }
        }
    }
}

/// The target that the upstream is sent, with this path.
fn upstream_target(context: &RequestContext, path: String) -> String {
    match context.target.query.map(|query| text(context.request.text(query))) {
        _ if context.target.asterisk => "*".into(),
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

/// A text that may depend on the listener by which the request comes: one where all agree, else a
/// table of listeners, null where the request is refused.
///
/// # Errors
/// Why all refuse the request.
fn by_listener(
    snapshot: &Snapshot,
    mut of: impl FnMut(&str) -> Result<String, ErrorKind>,
) -> Result<Value, ErrorKind> {
    let names = snapshot.listeners.iter().map(|listener| &*listener.name);
    let values: Vec<_> = names.map(|name| (name, of(name))).collect();
    let Some((_, first)) = values.first() else { return of("").map(Value::from) };
    if values.iter().all(|(_, value)| value == first) {
        return first.clone().map(Value::from);
    }
    let table = values.into_iter().map(|(name, value)| (name.to_owned(), value.ok().into()));
    Ok(Value::Object(table.collect()))
}

/// A filter and whether the request passes it: by the request as it comes, which a filter before it
/// may yet change.
fn filter(entry: &Entry, context: &RequestContext) -> Value {
    let failed = entry.when.iter().find(|condition| !condition.holds(context));
    json!({
        "name": &*entry.name,
        "phase": phase(entry),
        "when": entry.when.iter().map(words).collect::<Vec<_>>(),
        "applies": failed.is_none(),
        "failed": failed.map(|one| without_secret(one.failure(context), one)),
    })
}

/// A condition in words that may be shown: as in `/v1/config`, no value under a secret's name.
fn words(condition: &Condition) -> String {
    let text = condition.to_string();
    let mut parts = text.strip_prefix("not ").unwrap_or(&text).splitn(4, ' ');
    let (Some("header" | "cookie" | "query"), Some(name), Some(_), Some(value)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return text;
    };
    match is_secret(name) {
        true => format!("{}{REDACTED}", &text[..text.len() - value.len()]),
        false => text,
    }
}

/// A text that may quote a condition, as one that may be shown.
fn without_secret(text: String, condition: &Condition) -> String {
    text.replacen(&condition.to_string(), &words(condition), 1)
}

/// The first phase in which it does anything.
fn phase(entry: &Entry) -> &'static str {
    match entry.phase {
        _ if !entry.hooks.request && entry.hooks.response => "response",
        _ if !entry.hooks.request && entry.hooks.log => "log",
        Phase::Access => "access",
        Phase::Transform => "transform",
        Phase::Upstream => "upstream",
    }
}

/// The Host that the first endpoint which may get the request is sent.
fn upstream_host(
    snapshot: &Snapshot,
    route: &RoutePlan,
    targets: &Targets,
    context: &RequestContext,
    listener: &str,
) -> Result<Vec<u8>, ErrorKind> {
    let first = targets.all().iter().find(|target| target.weight > 0);
    let upstream = first.and_then(|target| upstream_of(snapshot, target));
    let endpoint = first.zip(upstream).and_then(|(target, upstream)| {
        usable(upstream, target).find(|it| it.weight > 0 || target.directed.is_some())
    });
    let mut scope = Scope::of_request(context, route.matched(context.path()));
    scope.listener = listener;
    scope.upstream = upstream.map_or("", |upstream| &upstream.name);
    scope.endpoint = endpoint.map_or("", EndpointPlan::host);
    let mut host = Vec::new();
    if !route.upstream_host(&scope, &mut host)? {
        host = context.host().unwrap_or(scope.endpoint.as_bytes()).to_vec();
    }
    Ok(host)
}

fn upstream_of<'a>(snapshot: &'a Snapshot, target: &Target) -> Option<&'a UpstreamPlan> {
    snapshot.upstreams.iter().find(|plan| plan.id == target.upstream).map(|plan| &**plan)
}

/// The endpoints that a target may use.
fn usable<'a>(
    upstream: &'a UpstreamPlan,
    target: &'a Target,
) -> impl Iterator<Item = &'a EndpointPlan> {
    let only = target.directed.filter(|directed| !directed.fallback);
    let here = move |endpoint: &&EndpointPlan| {
        let zone = target.zone.is_none() || endpoint.zone == target.zone;
        zone && only.is_none_or(|only| only.endpoint == endpoint.id)
    };
    upstream.endpoints.iter().filter(here)
}

fn target(
    snapshot: &Snapshot,
    (route, context): (&RoutePlan, &RequestContext),
    target: &Target,
    total: u32,
) -> Value {
    let Some(upstream) = upstream_of(snapshot, target) else { return Value::Null };
    let shard = shard(upstream, route, target, context);
    let zone = shard.as_ref().map(|(_, zone)| *zone);
    let here = |it: &&EndpointPlan| zone.is_none() || it.zone.as_deref() == zone;
    let endpoint = |endpoint: &EndpointPlan| {
        json!({
            "address": &*endpoint.authority,
            "weight": endpoint.weight,
            "zone": endpoint.zone.as_deref(),
        })
    };
    json!({
        "upstream": &*upstream.name,
        "weight": target.weight,
        "share": f64::from(target.weight) / f64::from(total.max(1)),
        "zone": target.zone.as_deref(),
        "balance": upstream.balance.policy.name(),
        "shard": shard.map(|(bucket, zone)| json!({ "bucket": bucket, "zone": zone })),
        "endpoints": usable(upstream, target).filter(here).map(endpoint).collect::<Vec<_>>(),
        "timeouts_ms": {
            "connect": upstream.connect_timeout_ms,
            "response": route.response_timeout_ms.unwrap_or(upstream.response_timeout_ms),
            "body": upstream.body_timeout_ms,
            "total": route.total_timeout_ms,
        },
    })
}

/// The bucket and the zone that a request's key decides (G14).
fn shard<'a>(
    upstream: &'a UpstreamPlan,
    route: &RoutePlan,
    target: &Target,
    context: &RequestContext,
) -> Option<(usize, &'a str)> {
    let plan = upstream.balance.shard.as_ref().filter(|_| target.zone.is_none())?;
    let bucket = |value: &[u8]| Some(value).filter(|it| !it.is_empty()).map(ShardPlan::bucket);
    let bucket = plan.key.with(context, route.matched(context.path()), bucket).flatten()?;
    Some((bucket, plan.zone(bucket)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_a_query() {
        let query = Query::parse(
            "method=POST&url=http%3A%2F%2Fa.test%2Fb%3Fc%3Dd&header=X-A:+1&header=B:2&client=::1",
        );
        let query = query.expect("valid");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(query.headers, [header("X-A", "1"), header("B", "2")]);
        assert_eq!((&*query.method, &*query.url), ("POST", "http://a.test/b?c=d"));
        assert!(query.client.is_ipv6());
        for (bad, parameter) in [
            ("", "url: "),
            ("url=", "url: "),
            ("url=%ff", "url: "),
            ("url=/&url=/", "url: "),
            ("url=/&x=1", "\"x\" is none"),
            ("url=/&client=x", "client: "),
            ("url=/&header=x", "header: "),
            ("url=/&method=A&method=B", "method: "),
        ] {
            let error = Query::parse(bad).expect_err(bad);
            assert!(error.starts_with(parameter), "{bad}: {error}");
        }
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let mut query = Query::new("M-SEARCH", "http://a.test/b c?d=e&f=%20+#g");
        query.add_header("X-A: ä & b=c; \"d\" +").expect("valid");
        query.add_header("X-B:").expect("valid");
        query.client = "2001:db8::7".parse().expect("an address");
        assert_eq!(Query::parse(&query.to_text()), Ok(query));
    }

    #[test]
    fn a_head_is_what_a_client_would_send() {
        let head = |url: &str| Query::new("GET", url).head().map(|head| text(&head));
        assert_eq!(head("/a?b#c").as_deref(), Ok("GET /a?b HTTP/1.0\r\n\r\n"));
        assert_eq!(
            head("HTTPS://A.test:1?x").as_deref(),
            Ok("GET /?x HTTP/1.1\r\nHost: A.test:1\r\n\r\n")
        );
        assert_eq!(head("http://a").as_deref(), Ok("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        for bad in ["", "a/b", "/a b", "/a\r\nx: y", "ftp://a/", "http://a b/"] {
            assert!(head(bad).is_err(), "{bad:?}");
        }
        let mut query = Query::new("GET", "http://a/");
        query.add_header("host: b").expect("valid");
        assert_eq!(text(&query.head().expect("valid")), "GET / HTTP/1.1\r\nhost: b\r\n\r\n");
        assert!(query.add_header("a: b\r\nc: d").is_err() && query.add_header(": x").is_err());
    }
}
