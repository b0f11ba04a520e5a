//! The one access record of an exchange: counters, logs and the filters that want to know.

use std::time::Instant;

use super::exchange::Exchange;
use super::forward::Place;
use crate::context::Hedge;
use crate::error::ErrorKind;
use crate::http::Version;
use crate::observe::Finished;
use crate::observe::access_log::{AccessRecord, AnnouncedTexts, TlsRecord};
use crate::proxy_protocol::{Announced, Fact};
use crate::tls::{TlsFact, TlsFacts};

/// Records how an exchange ended.
pub(super) fn record(exchange: &Exchange, place: &Place<'_>) {
    let counters = &place.core.counters;
    counters.answered(exchange.answer.status);
    counters.request_body_bytes.add(exchange.upload.bytes);
    counters.response_body_bytes.add(exchange.answer.bytes);
    if let Some(kind) = exchange.answer.error {
        counters.failed(kind);
        if kind == ErrorKind::ClientAborted {
            counters.client_aborts.increment();
        }
    }
    let times = Times::of(exchange, Instant::now());
    place.core.series.finish(&Finished {
        route: exchange.matched.held.plans().route().map(|route| route.number.0),
        upstream: exchange.matched.upstream.as_ref().map(|upstream| upstream.id.0),
        endpoint: exchange.matched.endpoint.as_ref().map(|endpoint| endpoint.id.0),
        status: exchange.answer.status,
        total_us: times.answered_us,
        upstream_head_us: times.upstream_head_us,
        request_body_bytes: exchange.upload.bytes,
        response_body_bytes: exchange.answer.bytes,
    });
    let plans = exchange.matched.held.plans();
    if let Some(chain) = plans.chain().filter(|chain| !chain.is_empty()) {
        let mut progress = exchange.matched.progress.get();
        chain.on_log(&mut progress, &exchange.context, exchange.answer.status);
    }
    if place.core.log.borrow().is_on() {
        drop(plans);
        log(exchange, place, &times);
    }
}

/// How long an exchange took, in microseconds.
struct Times {
    started: Instant,
    total_us: u64,
    /// The same, but of a tunnel only until it began: how long it lasts says nothing of a service.
    answered_us: u64,
    /// Until the upstream's head, from when its connection was asked for.
    upstream_head_us: Option<u64>,
    /// What the upstream had no part in.
    gateway_us: u64,
}

impl Times {
    fn of(exchange: &Exchange, now: Instant) -> Times {
        let timing = &exchange.context.timing;
        let started = timing.started.unwrap_or(now);
        let answer = &exchange.answer;
        let asked = answer.asked_at.unwrap_or(started);
        let total_us = micros(started, now);
        let tunnel = answer.head_at.filter(|_| answer.status == 101);
        let answered_us = tunnel.map_or(total_us, |began| micros(started, began));
        // Where no whole answer came, the upstream was waited for to the end.
        let upstream_end = match answer.error {
            None => answer.body_at.or(answer.head_at),
            Some(_) => exchange.matched.endpoint.as_ref().map(|_| now),
        };
        // What the second of two tries was begun after was the upstream's doing as well.
        let waited = timing.raced_at.unwrap_or(asked);
        let upstream_us = upstream_end.map_or(0, |end| micros(waited, end));
        Times {
            started,
            total_us,
            answered_us,
            upstream_head_us: answer.head_at.map(|head| micros(asked, head)),
            gateway_us: answered_us.saturating_sub(upstream_us),
        }
    }
}

fn micros(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}

fn log(exchange: &Exchange, place: &Place<'_>, times: &Times) {
    let Exchange { context, answer, matched, upload, .. } = exchange;
    let request = &context.request;
    let plans = matched.held.plans();
    let log = &mut *place.core.log.borrow_mut();
    log.record(&AccessRecord {
        started_us: log.wall_us(times.started),
        client: context.client.address,
        method: request.text(request.method),
        target: request.text(request.target),
        version: match request.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        },
        host: context.host().unwrap_or_default(),
        referer: context.referer(),
        user_agent: context.user_agent(),
        status: match (answer.status, answer.error) {
            (0, Some(kind)) => kind.status(),
            (status, _) => status,
        },
        request_body_bytes: upload.bytes,
        response_body_bytes: answer.bytes,
        request_id: context.request_id.text(request),
        listener: &place.listener().name,
        route: plans.route().map_or("", |route| &route.id),
        upstream: matched.upstream_name(),
        endpoint: matched.endpoint_name(),
        retries: context.timing.retries,
        hedge: context.timing.hedge.map(Hedge::name),
        total_us: times.total_us,
        gateway_us: times.gateway_us,
        connect_us: answer.connect_us,
        upstream_head_us: times.upstream_head_us,
        error: answer.error.map(ErrorKind::code),
        tls: context.tls.as_deref().map(tls).unwrap_or_default(),
        // Without a route nothing was waited for: what is in force is what it was looked up in.
        config_version: plans.version().unwrap_or_else(|| place.core.snapshot().version),
        worker: place.core.index,
        announced: context.announced.as_deref().map(announced).unwrap_or_default(),
    });
}

fn announced(announced: &Announced) -> AnnouncedTexts<'_> {
    let text = |fact| announced.fact(fact).unwrap_or_default();
    AnnouncedTexts {
        authority: text(Fact::Authority),
        unique_id: text(Fact::UniqueId),
        alpn: text(Fact::Alpn),
        ssl_version: text(Fact::SslVersion),
        ssl_cn: text(Fact::SslCn),
    }
}

fn tls(facts: &TlsFacts) -> TlsRecord<'_> {
    TlsRecord {
        version: facts.version,
        cipher: facts.cipher,
        sni: &facts.sni,
        client_subject: facts.get(TlsFact::CertSubject).unwrap_or_default(),
    }
}
