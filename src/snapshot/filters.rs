//! Filters: named ones, those that a route brings along, and the chain of each route.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::Ids;
use super::routes::{add_param, check_params};
use crate::config::decode::{Decoder, Fields, hint};
use crate::config::diagnostic::Span;
use crate::config::read::{choice, string, timeout};
use crate::config::tree::{Node, Spanned, Value};
use crate::config::written::Config;
use crate::config::{Diagnostic, Diagnostics};
use crate::context::Condition;
use crate::filter::{Build, Entry, FilterChain, KINDS, Kind, OnError};
use crate::limits::FILTER_TIMEOUT_MS;
use crate::route::Matcher;

/// The filters of a file while its routes are compiled.
pub(super) struct Named<'t> {
    filters: HashMap<&'t str, Member>,
    /// Those that could not be read are not missing.
    all: Vec<&'t Spanned<Box<str>>>,
    /// How many workers will run, or might: where the file does not say it, a limit on processor
    /// time can make them fewer.
    workers: usize,
    /// The chain of a route without filters: one for all of them.
    none: Arc<FilterChain>,
    /// What is hardly meant that way.
    warnings: RefCell<Diagnostics>,
}

struct Member {
    entry: Entry,
    used: Cell<bool>,
    asks: Vec<Asked>,
}

/// A parameter of the route's path that a filter asks for.
struct Asked {
    name: Box<str>,
    span: Span,
    /// Whether it has been said of a route that it has no such parameter.
    said: Cell<bool>,
}

impl<'t> Named<'t> {
    /// Reads every `[filter.NAME]`.
    pub(super) fn decode(
        config: &'t Config<'t>,
        ids: &mut Ids,
        decoder: &mut Decoder,
    ) -> Named<'t> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = config.runtime.workers.unwrap_or_else(processors);
        let mut filters = HashMap::new();
        let mut warnings = Diagnostics::default();
        for (name, node) in &config.filters {
            let before = decoder.params.len();
            let entry = entry(node, &name.value, workers, ids, decoder, &mut warnings);
            let asks = asked(decoder, before);
            if let Some(entry) = entry {
                filters.insert(&*name.value, Member { entry, used: Cell::new(false), asks });
            }
        }
        let all = config.filters.iter().map(|(name, _)| name).collect();
        Named { filters, all, workers, none: Arc::default(), warnings: warnings.into() }
    }

    /// The chain of a route called `id`: names of filters, or tables of its own. `matcher` is what
    /// the route takes, where that is known.
    pub(super) fn chain(
        &self,
        id: &str,
        matcher: Option<&Matcher>,
        written: &[&Node],
        ids: &mut Ids,
        decoder: &mut Decoder,
    ) -> Arc<FilterChain> {
        if written.is_empty() {
            return self.none.clone();
        }
        let mut entries = Vec::new();
        let mut own: Vec<&str> = Vec::new();
        let mut seen: HashMap<&str, &Node> = HashMap::new();
        for node in written {
            match &node.value {
                Value::String(name) => {
                    entries.extend(self.named(name, node, decoder));
                    self.check_asked(name, node, id, matcher);
                    if let Some(first) = seen.insert(name, node) {
                        self.warnings.borrow_mut().push(twice(name, first, node));
                    }
                }
                _ => {
                    let kind = kind_name(node).unwrap_or("filter");
                    own.push(kind);
                    let count = own.iter().filter(|known| **known == kind).count();
                    let name = own_name(id, kind, count);
                    let warnings = &mut self.warnings.borrow_mut();
                    let before = decoder.params.len();
                    entries.extend(entry(node, &name, self.workers, ids, decoder, warnings));
                    let asks = asked(decoder, before);
                    for (one, matcher) in asks.iter().zip(matcher.iter().cycle()) {
                        let name = std::iter::once(&*one.name);
                        check_params(name, &one.span, matcher, &mut decoder.found);
                    }
                }
            }
        }
        Arc::new(FilterChain::new(entries))
    }

    fn named(&self, name: &str, node: &Node, decoder: &mut Decoder) -> Option<Entry> {
        if let Some(member) = self.filters.get(name) {
            member.used.set(true);
            return Some(member.entry.clone());
        }
        if !self.all.iter().any(|known| *known.value == *name) {
            decoder.found.push_with(|| {
                let known = self.all.iter().map(|known| &*known.value);
                let message = format!("there is no filter `{}`", name.escape_debug());
                Diagnostic::error(node.span.clone(), message).label("not defined").remedy(hint(
                    name,
                    known,
                    "filters of this file",
                ))
            });
        }
        None
    }

    /// A named filter may serve routes with other parameters: what one of them lacks is a warning.
    fn check_asked(&self, name: &str, node: &Node, route: &str, matcher: Option<&Matcher>) {
        let (Some(member), Some(matcher)) = (self.filters.get(name), matcher) else { return };
        if member.asks.is_empty() {
            return;
        }
        let names = matcher.param_names();
        for one in member.asks.iter().filter(|one| !names.contains(&&*one.name)) {
            if one.said.replace(true) {
                continue;
            }
            let param = &one.name;
            let message = format!("filter `{name}`: `path.{param}` is empty on route `{route}`");
            self.warnings.borrow_mut().push(
                Diagnostic::warning(one.span.clone(), message)
                    .label("asked for here")
                    .other(node.span.clone(), "the route's path has no such parameter")
                    .remedy(add_param(param, &names)),
            );
        }
    }

    /// What is hardly meant that way, and filters that no route names.
    pub(super) fn warn(&self, warnings: &mut Diagnostics) {
        self.warnings.take().iter().cloned().for_each(|warning| warnings.push(warning));
        for name in &self.all {
            if self.filters.get(&*name.value).is_some_and(|member| !member.used.get()) {
                let message = format!("filter `{}` is used by no route", name.value);
                warnings.push(
                    Diagnostic::warning(name.span(), message)
                        .label("never run")
                        .remedy("name it in the `filters` of a [[route]], or remove it"),
                );
            }
        }
    }
}

/// What was asked for since `before`.
fn asked(decoder: &mut Decoder, before: usize) -> Vec<Asked> {
    let new = decoder.params.drain(before..);
    new.map(|(name, span)| Asked { name, span, said: Cell::new(false) }).collect()
}

fn twice(name: &str, first: &Node, second: &Node) -> Diagnostic {
    Diagnostic::warning(second.span.clone(), format!("filter `{name}` stands twice on one route"))
        .label("every request passes it a second time")
        .other(first.span.clone(), "the first")
        .remedy("leave one out; a limit would count each request twice")
}

/// The name of a filter that a route brings along, the `count`th of its kind there: others may come
/// and go beside it, and it keeps its state.
fn own_name(route: &str, kind: &str, count: usize) -> String {
    match count {
        1 => format!("{route}.{kind}"),
        count => format!("{route}.{kind}.{count}"),
    }
}

/// `kind` of a filter's table, if it is there.
fn kind_name(node: &Node) -> Option<&str> {
    let Value::Table(entries) = &node.value else { return None };
    let kind = entries.iter().find(|entry| &*entry.key == "kind")?;
    match &kind.value.value {
        Value::String(name) => Some(name),
        _ => None,
    }
}

/// Reads one filter's table: the keys that all have, then those of its kind.
fn entry(
    node: &Node,
    name: &str,
    workers: usize,
    ids: &mut Ids,
    decoder: &mut Decoder,
    warnings: &mut Diagnostics,
) -> Option<Entry> {
    let kind = find_kind(node, decoder)?;
    let before = decoder.found.count();
    let mut f = Fields::of(section(kind), node, decoder)?;
    f.optional("kind", string);
    let when = f.optional("when", Condition::decode_all).unwrap_or_default();
    let (on_error, timeout_ms) = if kind.waits {
        let on_error = f.required("on_error", "\"reject\"", choice(ON_ERROR));
        (on_error, f.optional("timeout", timeout))
    } else {
        (Some(OnError::Reject), None)
    };
    let id = ids.filter(name);
    let mut build = Build { id, name, workers, kept: &mut ids.kept, warnings };
    let filter = (kind.decode)(&mut f, &mut build);
    f.finish();
    if decoder.found.count() > before {
        return None;
    }
    let filter = filter?;
    Some(Entry {
        id,
        name: name.into(),
        phase: filter.phase().unwrap_or(kind.phase),
        hooks: filter.hooks(),
        when: when.into(),
        on_error: on_error?,
        timeout_ms: timeout_ms.unwrap_or(FILTER_TIMEOUT_MS),
        filter,
    })
}

fn find_kind(node: &Node, decoder: &mut Decoder) -> Option<&'static Kind> {
    let known = || KINDS.iter().map(|kind| kind.name);
    let Some(name) = kind_name(node) else {
        let mut f = Fields::of("filter.NAME", node, decoder)?;
        f.required("kind", &format!("\"{}\"", KINDS[0].name), string);
        return None;
    };
    let kind = KINDS.iter().copied().find(|kind| kind.name == name);
    if kind.is_none() {
        let message = format!("there is no kind of filter `{}`", name.escape_debug());
        decoder.found.push(
            Diagnostic::error(node.span.clone(), message).label("not a kind").remedy(hint(
                name,
                known(),
                "kinds of filters",
            )),
        );
    }
    kind
}

/// Name of a kind's table in the reference.
fn section(kind: &'static Kind) -> &'static str {
    kind.keys.first().map_or("filter.NAME", |key| key.section)
}

const ON_ERROR: &[(&str, OnError)] = &[("reject", OnError::Reject), ("skip", OnError::Skip)];
