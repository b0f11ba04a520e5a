//! Routes: what is wrong with them, and their plans.

use std::collections::HashMap;

use super::Ids;
use super::upstreams::address;
use crate::config::decode::{Decoder, hint};
use crate::config::diagnostic::Span;
use crate::config::read::string;
use crate::config::tree::{Node, Spanned};
use crate::config::written::route::not_in_normal_form;
use crate::config::written::{self, Treatment};
use crate::config::{Diagnostic, Diagnostics};
use crate::context::condition::pattern;
use crate::context::pattern::Pattern;
use crate::context::template::Availability;
use crate::context::{Condition, RetryPlan, Template};
use crate::http::host::{HostText, has_empty_label, host_name};
use crate::http::uri::{Allow, Deny, valid_host};
use crate::limits::*;
use crate::route::{
    Action, Directed, Extra, Host, Matcher, PathPolicy, Redirect, Respond, Rewrite, RoutePlan,
    Target, Targets,
};
use crate::upstream::UpstreamPlan;

/// A route whose own values are right; what it has to do with others is not looked at.
pub(super) struct Rule {
    pub(super) matcher: Matcher,
    pub(super) hosts: Vec<Host>,
    pub(super) conditions: Vec<Condition>,
    rewrite: Option<Rewrite>,
    host_rewrite: Option<Template>,
    redirect: Option<Redirect>,
    retry: Option<RetryPlan>,
}

/// Compiles what a route says of itself.
pub(super) fn rule(written: &written::Route<'_>, decoder: &mut Decoder) -> Option<Rule> {
    let matcher = matcher(written, decoder);
    let hosts: Vec<_> = written.hosts.iter().map(|text| host(text, &mut decoder.found)).collect();
    let hosts: Option<Vec<Host>> = hosts.into_iter().collect();
    check_hosts(written, hosts.as_deref().unwrap_or_default(), &mut decoder.found);
    let conditions = match written.when {
        Some(node) => Condition::decode_all(node, decoder),
        None => Some(Vec::new()),
    };
    let host_rewrite = match written.host_rewrite {
        Some(node) => host_rewrite(node, decoder).map(Some),
        None => Some(None),
    };
    let redirect = match &written.action {
        written::Action::Redirect(redirect) => self::redirect(redirect, decoder).map(Some),
        written::Action::Unread => None,
        _ => Some(None),
    };
    check_upstream_keys(written, &mut decoder.found);
    let matcher = matcher?;
    let rewrite = match written.rewrite {
        Some(node) => rewrite(node, written, &matcher, decoder).map(Some),
        None => Some(None),
    };
    if let (Some(redirect), written::Action::Redirect(written)) = (&redirect, &written.action) {
        let asked = redirect.iter().flat_map(|redirect| redirect.to().params());
        check_params(asked, &written.to.span, &matcher, &mut decoder.found);
    }
    if let (Some(Some(template)), Some(node)) = (&host_rewrite, written.host_rewrite) {
        check_params(template.params(), &node.span, &matcher, &mut decoder.found);
    }
    Some(Rule {
        matcher,
        hosts: hosts?,
        conditions: conditions?,
        rewrite: rewrite?,
        host_rewrite: host_rewrite?,
        redirect: redirect?,
        retry: written.retry.as_ref().map(|retry| RetryPlan::of(&retry.value)),
    })
}

fn matcher(written: &written::Route<'_>, decoder: &mut Decoder) -> Option<Matcher> {
    let span = written.matcher.span();
    match written.matcher.value.as_ref()? {
        written::Matcher::Regex(text) => {
            pattern(text, span, decoder, Pattern::whole).map(Matcher::Regex)
        }
        written::Matcher::Path(path) => {
            let parsed = Matcher::of_path(path);
            parsed
                .map_err(|(message, remedy)| {
                    let error =
                        Diagnostic::error(span, message).label("not a path with parameters");
                    decoder.found.push(error.remedy(remedy));
                })
                .ok()
        }
        written::Matcher::Prefix(prefix) => {
            let segments = prefix.split('/').skip(1).count();
            if segments <= ROUTE_SEGMENTS_MAX {
                return Some(Matcher::Prefix(prefix.clone()));
            }
            let message = format!("the prefix has {segments} segments");
            let remedy = format!("write at most {ROUTE_SEGMENTS_MAX}");
            decoder.found.push(Diagnostic::error(span, message).remedy(remedy));
            None
        }
    }
}

fn host(written: &Spanned<Box<str>>, found: &mut Diagnostics) -> Option<Host> {
    let text = &*written.value;
    let bare = text.strip_prefix("*.").unwrap_or(text);
    // A port would never be compared, and a star stands only at the beginning.
    let has_port = match bare.strip_prefix('[') {
        Some(rest) => !rest.ends_with(']'),
        None => bare.contains(':'),
    };
    let remedy = if has_port {
        "leave out the port: hosts are compared without it"
    } else if bare.contains('*') || bare.len() < text.len() && bare.starts_with('[') {
        "write the star as the whole first label: \"*.example.com\""
    } else if !valid_host(bare.as_bytes()) || has_empty_label(host_name(bare.as_bytes())) {
        "write a name such as \"api.example.com\", an address, or \"*.example.com\""
    } else if let Some(host) = HostText::of(bare.as_bytes()) {
        let name = String::from_utf8_lossy(host.bytes()).into();
        return Some(if bare.len() < text.len() { Host::Wildcard(name) } else { Host::Name(name) });
    } else {
        "write at most 253 bytes"
    };
    let message = format!("`{}` is not a host", text.escape_debug());
    found
        .push(Diagnostic::error(written.span(), message).label("no request has it").remedy(remedy));
    None
}

/// A host stands once, however it is written.
fn check_hosts(written: &written::Route<'_>, hosts: &[Host], found: &mut Diagnostics) {
    let mut seen: HashMap<&Host, Span> = HashMap::new();
    for (host, written) in hosts.iter().zip(&written.hosts) {
        if let Some(first) = seen.insert(host, written.span()) {
            found.push(
                Diagnostic::error(written.span(), format!("the host `{host}` stands twice"))
                    .label("the second")
                    .other(first, "the first")
                    .remedy("leave one out; case and a dot at the end do not count"),
            );
        }
    }
}

/// Keys that say something of an upstream's request.
fn check_upstream_keys(written: &written::Route<'_>, found: &mut Diagnostics) {
    if let (Some(skip), Some(rewrite)) = (&written.skip_segments, written.rewrite) {
        found.push(
            Diagnostic::error(
                rewrite.span.clone(),
                "`skip_segments` and `rewrite` exclude each other",
            )
            .label("the second")
            .other(skip.span(), "the first")
            .remedy("keep one of them"),
        );
    }
    check_fallback(written, found);
    let unread = matches!(written.action, written::Action::Unread);
    if unread || written.upstreams().next().is_some() {
        return;
    }
    let spans = [
        ("zone", written.zone.as_ref().map(Spanned::span)),
        ("endpoint", written.endpoint.as_ref().map(Spanned::span)),
        ("skip_segments", written.skip_segments.as_ref().map(Spanned::span)),
        ("rewrite", written.rewrite.map(|node| node.span.clone())),
        ("host_rewrite", written.host_rewrite.map(|node| node.span.clone())),
        ("in_flight_max", written.in_flight_max.as_ref().map(Spanned::span)),
        ("retry", written.retry.as_ref().map(Spanned::span)),
    ];
    for (key, span) in spans {
        let Some(span) = span else { continue };
        let message = format!("`{key}` does nothing: the route has no upstream");
        let remedy = format!("remove `{key}`, or give the route an `upstream`");
        found.push(Diagnostic::error(span, message).label("never used").remedy(remedy));
    }
}

/// Only where an endpoint is named there is a question who else may take its requests.
fn check_fallback(written: &written::Route<'_>, found: &mut Diagnostics) {
    let targets = match &written.action {
        written::Action::Targets(targets) => &*targets.value,
        _ => &[],
    };
    let none = written.endpoint.is_none();
    let own = targets.iter().filter(|one| none && one.endpoint.is_none());
    let own = own.filter_map(|one| one.fallback.as_ref());
    let whole = written
        .fallback
        .as_ref()
        .filter(|_| none && targets.iter().all(|target| target.endpoint.is_none()));
    for fallback in own.chain(whole) {
        let error =
            Diagnostic::error(fallback.span(), "`fallback` does nothing without `endpoint`");
        found.push(error.label("never used").remedy("remove it, or name an `endpoint`"));
    }
}

fn rewrite(
    node: &Node,
    written: &written::Route<'_>,
    matcher: &Matcher,
    decoder: &mut Decoder,
) -> Option<Rewrite> {
    let text = string(node, decoder)?;
    let parsed = match not_in_normal_form(text) {
        Some(remedy) => Err((format!("`{}` is not a path", text.escape_debug()), remedy)),
        None => Rewrite::parse(text, matcher),
    };
    parsed
        .map_err(|(message, remedy)| {
            decoder.found.push(
                Diagnostic::error(node.span.clone(), message)
                    .label("cannot be sent upstream")
                    .other(written.matcher.span(), "what the route takes")
                    .remedy(remedy),
            );
        })
        .ok()
}

fn host_rewrite(node: &Node, decoder: &mut Decoder) -> Option<Template> {
    let template = Template::decode(Availability::Endpoint)(node, decoder)?;
    let in_host = |byte: &u8| valid_host(&[b'a', *byte]) || b":[]".contains(byte);
    let right = match template.plain() {
        Some(text) => valid_host(text),
        None => template.texts().all(|text| text.iter().all(in_host)),
    };
    if right {
        return Some(template);
    }
    let error = Diagnostic::error(node.span.clone(), "this is not a host");
    let remedy = "write \"internal.example\", with a port if there is one, or ${endpoint.address}";
    decoder.found.push(error.label("cannot be sent as Host").remedy(remedy));
    None
}

fn redirect(written: &written::route::Redirect<'_>, decoder: &mut Decoder) -> Option<Redirect> {
    let template = Template::decode(Availability::Request)(written.to, decoder)?;
    let redirect = Redirect::new(written.status, template);
    redirect
        .map_err(|remedy| {
            let error = Diagnostic::error(written.to.span.clone(), "this is not a place to go to");
            decoder.found.push(error.label("not a Location").remedy(remedy));
        })
        .ok()
}

/// `${path.NAME}` is a parameter of the route.
pub(super) fn check_params<'a>(
    asked: impl Iterator<Item = &'a str>,
    span: &Span,
    matcher: &Matcher,
    found: &mut Diagnostics,
) {
    let names = matcher.param_names();
    for name in asked.filter(|name| !names.contains(name)) {
        let message = format!("the route's {} has no parameter `{name}`", matcher.kind());
        let remedy = add_param(name, &names);
        found.push(Diagnostic::error(span.clone(), message).remedy(remedy));
    }
}

/// How to mend that a path has only these parameters.
pub(super) fn add_param(name: &str, names: &[&str]) -> String {
    match names.is_empty() {
        true => format!("name it in the path: /{{{name}}}/"),
        false => hint(name, names.iter().copied(), "its parameters"),
    }
}

/// A redirect whose Location may lead wherever the request says.
pub(super) fn warn_of_redirect(
    written: &written::Route<'_>,
    rule: &Rule,
    warnings: &mut Diagnostics,
) {
    let written::Action::Redirect(redirect) = &written.action else { return };
    let Some(name) = rule.redirect.as_ref().and_then(|one| one.to().asked_for_authority()) else {
        return;
    };
    let message = format!("requests decide by `{name}` where this redirect leads");
    warnings.push(
        Diagnostic::warning(redirect.to.span.clone(), message)
            .label("any host, if the request says so")
            .remedy("write the host, or ${request.host}; put a slash before what follows it"),
    );
}

/// Every timeout of it.
pub(super) fn timeouts(written: &written::Route<'_>) -> impl Iterator<Item = u64> {
    let per_try_ms = written.retry.as_ref().and_then(|retry| retry.value.per_try_ms);
    [written.response_ms, written.total_ms, per_try_ms].into_iter().flatten()
}

/// The plan of a route that was checked.
pub(super) fn plan(
    written: &written::Route<'_>,
    rule: Rule,
    index: usize,
    upstreams: &HashMap<&str, &UpstreamPlan>,
    ids: &mut Ids,
) -> RoutePlan {
    let action = action(written, rule.redirect, upstreams);
    let Rule { hosts, conditions, rewrite, host_rewrite, retry, .. } = rule;
    let plain = hosts.is_empty() && conditions.is_empty();
    let plain = plain && rewrite.is_none() && host_rewrite.is_none() && retry.is_none();
    let in_flight_max = written.in_flight_max.as_ref().map(|max| max.value);
    let plain = plain && in_flight_max.is_none();
    let extra = Extra { hosts, conditions, rewrite, host_rewrite, in_flight_max, retry };
    RoutePlan {
        number: ids.route(&written.id.value),
        index,
        id: written.id.value.clone(),
        matcher: rule.matcher,
        action,
        priority: written.priority.unwrap_or(PRIORITY_DEFAULT),
        skip_segments: written.skip_segments.as_ref().map_or(0, |skip| skip.value),
        path_policy: path_policy(written.path_policy),
        body_bytes_max: written.body_bytes_max,
        response_timeout_ms: written.response_ms,
        total_timeout_ms: written.total_ms,
        extra: (!plain).then(|| Box::new(extra)),
    }
}

fn action(
    written: &written::Route<'_>,
    redirect: Option<Redirect>,
    upstreams: &HashMap<&str, &UpstreamPlan>,
) -> Action {
    let target = |upstream: &Spanned<Box<str>>, weight, own: Option<&written::route::Target>| {
        let plan = upstreams[&*upstream.value];
        let zone = own.and_then(|own| own.zone.as_ref()).or(written.zone.as_ref());
        Target {
            upstream: plan.id,
            weight,
            zone: zone.map(|zone| zone.value.clone()),
            directed: directed(written, own, plan),
        }
    };
    match &written.action {
        written::Action::Upstream(upstream) => {
            Action::Forward(Targets::One(target(upstream, WEIGHT_DEFAULT, None)))
        }
        written::Action::Targets(targets) => {
            let weight =
                |weight: Option<usize>| weight.and_then(|weight| u32::try_from(weight).ok());
            let target = |one: &written::route::Target| {
                target(&one.upstream, weight(one.weight).unwrap_or(WEIGHT_DEFAULT), Some(one))
            };
            let mut targets: Vec<Target> = targets.value.iter().map(target).collect();
            match targets.len() {
                1 => Action::Forward(Targets::One(targets.remove(0))),
                _ => Action::Forward(Targets::Weighted(targets.into())),
            }
        }
        written::Action::Redirect(_) => {
            Action::Redirect(Box::new(redirect.expect("compiled with the rule")))
        }
        written::Action::Respond(respond) => Action::Respond(Box::new(Respond {
            status: respond.status,
            body: respond.body.as_deref().unwrap_or_default().as_bytes().into(),
            content_type: respond.content_type.clone().unwrap_or_else(|| "text/plain".into()),
        })),
        written::Action::Unread => unreachable!("such a route has no rule"),
    }
}

/// The endpoint that a target names, or its route.
fn directed(
    route: &written::Route<'_>,
    own: Option<&written::route::Target>,
    upstream: &UpstreamPlan,
) -> Option<Directed> {
    let named = own.and_then(|own| own.endpoint.as_ref()).or(route.endpoint.as_ref())?;
    let address = address(named.value.clone());
    let endpoint = upstream.endpoints.iter().find(|one| one.address == address)?;
    let fallback = own.and_then(|own| own.fallback.as_ref()).or(route.fallback.as_ref());
    Some(Directed { endpoint: endpoint.id, fallback: fallback.is_some_and(|flag| flag.value) })
}

fn path_policy(written: written::PathPolicy) -> PathPolicy {
    let allow = |treatment| match treatment {
        Some(Treatment::Refuse) => Allow::Refuse,
        Some(Treatment::Keep) | None => Allow::Keep,
    };
    let deny = |treatment| match treatment {
        Some(Treatment::Keep) => Deny::Keep,
        Some(Treatment::Refuse) | None => Deny::Refuse,
    };
    PathPolicy {
        encoded_slash: allow(written.encoded_slash),
        backslash: deny(written.backslash),
        dot_dot_semicolon: allow(written.dot_dot_semicolon),
        nul: deny(written.nul),
    }
}
