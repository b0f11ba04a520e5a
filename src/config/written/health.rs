//! `health` and `breaker` of upstreams, as written.

use std::ops::RangeInclusive;

use crate::config::decode::{Decode, Decoder, Fields, mismatch};
use crate::config::diagnostic::{Diagnostic, Span};
use crate::config::read::{boolean, choice, duration, integer, list, spanned, string};
use crate::config::tree::{Node, Spanned, Value};
use crate::limits::*;

/// `upstream.NAME.health`
#[derive(Clone, Debug)]
pub struct Health {
    /// Where it stands.
    pub span: Span,
    /// `kind`
    pub kind: HealthKind,
    /// `path`
    pub path: Option<Spanned<Box<str>>>,
    /// `statuses`
    pub statuses: Option<Spanned<Vec<RangeInclusive<u16>>>>,
    /// `body`
    pub body: Option<Spanned<Box<str>>>,
    /// `host`
    pub host: Option<Spanned<Box<str>>>,
    /// `service`
    pub service: Option<Spanned<Box<str>>>,
    /// `interval`, in milliseconds
    pub interval_ms: Option<u64>,
    /// `timeout`, in milliseconds
    pub timeout_ms: Option<Spanned<u64>>,
    /// `rise`
    pub rise: Option<usize>,
    /// `fall`
    pub fall: Option<usize>,
}

/// `health.kind`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthKind {
    /// "http"
    #[default]
    Http,
    /// "tcp"
    Tcp,
    /// "grpc"
    Grpc,
}

/// `upstream.NAME.breaker`
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    /// `window`, in milliseconds
    pub window_ms: Option<u64>,
    /// `requests_min`
    pub requests_min: Option<usize>,
    /// `open`, in milliseconds
    pub open_ms: Option<u64>,
    /// `open_max`, in milliseconds
    pub open_max_ms: Option<Spanned<u64>>,
    /// `probes`
    pub probes: Option<usize>,
    /// `trickle_percent`
    pub trickle_percent: Option<usize>,
    /// `trickle`, in milliseconds
    pub trickle_ms: Option<u64>,
    /// `floor_percent`
    pub floor_percent: Option<usize>,
    /// `adaptive`
    pub adaptive: bool,
    /// `endpoint`
    pub endpoint: Option<Tier>,
    /// `service`
    pub service: Option<Tier>,
    /// `zone`, and where it stands.
    pub zone: Option<Spanned<Tier>>,
}

/// One tier: `false`, or a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tier {
    /// It is `false`.
    pub off: bool,
    /// `consecutive`, of the endpoint's
    pub consecutive: Option<usize>,
    /// `error_percent`
    pub error_percent: Option<usize>,
}

impl Decode for Health {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Health> {
        let mut f = Fields::of("upstream.NAME.health", node, decoder)?;
        let (shortest, longest) = HEALTH_INTERVAL_MS_RANGE;
        let kind = f.optional("kind", choice(KINDS)).unwrap_or_default();
        let statuses = list(1..=HEALTH_STATUSES_MAX, statuses);
        let health = Health {
            span: node.span.clone(),
            kind,
            path: f.optional("path", path),
            statuses: f.optional("statuses", spanned(statuses)),
            body: f.optional("body", text),
            host: f.optional("host", word),
            service: f.optional("service", word),
            interval_ms: f.optional("interval", within(shortest..=longest)),
            timeout_ms: f.optional("timeout", spanned(within(TIMEOUT_MS_MIN..=longest))),
            rise: f.optional("rise", integer(1..=HEALTH_COUNT_MAX)),
            fall: f.optional("fall", integer(1..=HEALTH_COUNT_MAX)),
        };
        f.finish();
        Some(health)
    }
}

impl Decode for Breaker {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<Breaker> {
        let mut f = Fields::of("upstream.NAME.breaker", node, decoder)?;
        let (shortest, longest) = BREAKER_WINDOW_MS_RANGE;
        let (fewest, most) = BREAKER_REQUESTS_MIN_RANGE;
        let (least, longest_open) = BREAKER_OPEN_MAX_MS_RANGE;
        let span = || within(BREAKER_MS_RANGE.0..=BREAKER_MS_RANGE.1);
        let breaker = Breaker {
            window_ms: f.optional("window", within(shortest..=longest)),
            requests_min: f.optional("requests_min", integer(fewest..=most)),
            open_ms: f.optional("open", span()),
            open_max_ms: f.optional("open_max", spanned(within(least..=longest_open))),
            probes: f.optional("probes", integer(1..=BREAKER_PROBES_MAX)),
            trickle_percent: f.optional("trickle_percent", integer(1..=100)),
            trickle_ms: f.optional("trickle", span()),
            floor_percent: f.optional("floor_percent", integer(0..=100)),
            adaptive: f.optional("adaptive", boolean).unwrap_or(false),
            endpoint: f.optional("endpoint", |node, decoder| {
                tier("upstream.NAME.breaker.endpoint", node, decoder)
            }),
            service: f.optional("service", |node, decoder| {
                tier("upstream.NAME.breaker.service", node, decoder)
            }),
            zone: f.optional(
                "zone",
                spanned(|node, decoder| tier("upstream.NAME.breaker.zone", node, decoder)),
            ),
        };
        f.finish();
        Some(breaker)
    }
}

/// `false`, or the table of a tier.
fn tier(section: &'static str, node: &Node, decoder: &mut Decoder) -> Option<Tier> {
    match &node.value {
        Value::Bool(false) => return Some(Tier { off: true, ..Tier::default() }),
        // What the environment gives is text.
        Value::String(text) if node.written.is_some() && &**text == "false" => {
            return Some(Tier { off: true, ..Tier::default() });
        }
        Value::Table(_) => {}
        _ => {
            let remedy = "write false, or a table such as { error_percent = 30 }";
            decoder.found.push(mismatch(node, "false or a table").remedy(remedy));
            return None;
        }
    }
    let mut f = Fields::of(section, node, decoder)?;
    let mut tier = Tier::default();
    let least = if section.ends_with("endpoint") {
        tier.consecutive = f.optional("consecutive", integer(0..=BREAKER_CONSECUTIVE_MAX));
        0
    } else {
        1
    };
    tier.error_percent = f.optional("error_percent", integer(least..=100));
    f.finish();
    Some(tier)
}

/// A duration within bounds, in milliseconds.
fn within(range: RangeInclusive<u64>) -> impl FnOnce(&Node, &mut Decoder) -> Option<u64> {
    move |node, decoder| {
        let ms = duration(node, decoder)?;
        if range.contains(&ms) {
            return Some(ms);
        }
        let (low, high) = (shown(*range.start()), shown(*range.end()));
        let error = Diagnostic::error(node.span.clone(), "the duration is out of bounds");
        let error = error.label(format!("must be {low} to {high}"));
        decoder.found.push(error.remedy(format!("write a duration from \"{low}\" to \"{high}\"")));
        None
    }
}

fn shown(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, name)| format!("{}{name}", ms / unit))
}

/// `200`, `"200"` or `"200-399"`.
fn statuses(node: &Node, decoder: &mut Decoder) -> Option<RangeInclusive<u16>> {
    let parsed = match &node.value {
        Value::Integer(status) => u16::try_from(*status).ok().map(|status| status..=status),
        Value::String(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let number = |text: &str| {
                let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
                text.parse::<u16>().ok().filter(|_| digits)
            };
            number(first).zip(number(last)).map(|(first, last)| first..=last)
        }
        _ => None,
    };
    // Interim answers are none.
    let parsed =
        parsed.filter(|it| *it.start() >= 200 && *it.end() <= 599 && it.start() <= it.end());
    if parsed.is_none() {
        let error = Diagnostic::error(node.span.clone(), "this is not a status or a range of them");
        let error = error.label("not 200 to 599");
        decoder.found.push(error.remedy("write 200, \"200\" or \"200-399\""));
    }
    parsed
}

/// The target of a check, in origin form.
fn path(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let path = word(node, decoder)?;
    if path.value.starts_with('/') && !path.value.contains('#') {
        return Some(path);
    }
    let message = format!("`{}` is not a path", path.value.escape_debug());
    let error = Diagnostic::error(node.span.clone(), message).label("does not begin with /");
    decoder.found.push(error.remedy("write \"/healthz\""));
    None
}

/// Printable ASCII without spaces.
fn word(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let text = super::identifier(node, HEALTH_TEXT_BYTES_MAX, decoder)?;
    Some(Spanned::new(text, &node.span))
}

/// Any text that is not empty.
fn text(node: &Node, decoder: &mut Decoder) -> Option<Spanned<Box<str>>> {
    let text = string(node, decoder)?;
    if (1..=HEALTH_TEXT_BYTES_MAX).contains(&text.len()) {
        return Some(Spanned::new(text.into(), &node.span));
    }
    let message = format!("a text of {} bytes cannot be looked for", text.len());
    let remedy = format!("write 1 to {HEALTH_TEXT_BYTES_MAX} bytes");
    decoder.found.push(Diagnostic::error(node.span.clone(), message).remedy(remedy));
    None
}

const KINDS: &[(&str, HealthKind)] =
    &[("http", HealthKind::Http), ("tcp", HealthKind::Tcp), ("grpc", HealthKind::Grpc)];
