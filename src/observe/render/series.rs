//! The families of routes, upstreams, endpoints, filters and listeners.
//!
//! Counters that stand at zero are left out, because most series never see most classes of answers;
//! where a family would be left without a sample, its first series shows one.

use super::exposition::{Exposition, HistogramNames};
use crate::observe::series::ProxyProtocolResult;
use crate::observe::series::blocks::{CLASSES, HANDSHAKES};
use crate::observe::series::view::{
    DECISIONS, EndpointView, Entry, FilterView, ListenerView, RouteView, SeriesView, UpstreamView,
    VERDICTS,
};

/// Writes all of them.
pub(super) fn write(series: &SeriesView, text: &mut Exposition) {
    write_routes(&series.routes, text);
    write_upstreams(&series.upstreams, text);
    write_endpoints(&series.endpoints, text);
    write_filters(&series.filters, text);
    write_listeners(&series.listeners, text);
    text.family("ringway_series", "gauge", "Series that a worker keeps.");
    for (worker, made) in series.made.iter().enumerate() {
        text.sample("ringway_series", &[("worker", &worker.to_string())], made);
    }
    let dropped = "ringway_series_dropped_total";
    text.family(dropped, "counter", "Series not made: what they count is in other.");
    text.sample(dropped, &[], series.dropped);
}

fn write_routes(routes: &[Entry<RouteView>], text: &mut Exposition) {
    let labelled =
        Labelled { entries: routes, label: |it, text| text.label(&[("route", &it.name)]) };
    let answers = Family::counter("ringway_requests_total", "Answers by route and class.");
    labelled.write_by(answers, CODE_CLASS, |route| &route.answers, text);
    text.family(
        DURATION.family,
        "histogram",
        "From a whole request head to the last byte of its answer.",
    );
    for route in routes {
        text.label(&[("route", &route.name)]);
        text.histogram(&DURATION, &route.numbers.duration);
    }
    let taken = Family::counter("ringway_request_body_bytes_total", "Body bytes from clients.");
    labelled.write(taken, |route| route.request_body_bytes, text);
    let given = Family::counter("ringway_response_body_bytes_total", "Body bytes to clients.");
    labelled.write(given, |route| route.response_body_bytes, text);
}

fn write_upstreams(upstreams: &[Entry<UpstreamView>], text: &mut Exposition) {
    let labelled =
        Labelled { entries: upstreams, label: |it, text| text.label(&[("upstream", &it.name)]) };
    text.family(
        UPSTREAM_DURATION.family,
        "histogram",
        "From asking for a connection to the head of the answer.",
    );
    let answered = |it: &&Entry<UpstreamView>| it.numbers.duration.count() > 0;
    // None has answered: the first stands in with zeros.
    let first = upstreams.iter().take(usize::from(!upstreams.iter().any(|it| answered(&it))));
    for upstream in upstreams.iter().filter(answered).chain(first) {
        text.label(&[("upstream", &upstream.name)]);
        text.histogram(&UPSTREAM_DURATION, &upstream.numbers.duration);
    }
    let in_flight = "ringway_upstream_requests_in_flight";
    let in_flight = Family::gauge(in_flight, "Requests in flight to an upstream.");
    labelled.write(in_flight, |upstream| upstream.in_flight, text);
    let denied = "ringway_retries_denied_total";
    let denied = Family::counter(denied, "Requests not tried again: the budget was spent.");
    labelled.write(denied, |upstream| upstream.retries_denied, text);
    let hedges =
        Family::counter("ringway_hedges_total", "Requests that two endpoints were asked for.");
    labelled.write(hedges, |upstream| upstream.hedges, text);
    let won = "ringway_hedges_won_total";
    let won = Family::counter(won, "Requests that the second of two endpoints answered.");
    labelled.write(won, |upstream| upstream.hedges_won, text);
    let queue = "ringway_upstream_queue_length";
    let queue = Family::gauge(queue, "Requests that wait for a place at an upstream.");
    labelled.write(queue, |upstream| upstream.queue, text);
    let queued = "ringway_upstream_queued_total";
    let queued = Family::counter(queued, "Requests that have waited for a place.");
    labelled.write(queued, |upstream| upstream.queued, text);
    let waited = "ringway_upstream_queue_wait_milliseconds_total";
    let waited = Family::counter(waited, "Milliseconds that requests have waited for a place.");
    labelled.write(waited, |upstream| upstream.queue_ms, text);
    let limit = "ringway_upstream_concurrency_limit";
    let limit = Family::gauge(limit, "Requests that may be in flight, where concurrency decides.");
    labelled.write(limit, |upstream| upstream.limit, text);
}

fn write_endpoints(endpoints: &[Entry<EndpointView>], text: &mut Exposition) {
    let labelled = Labelled {
        entries: endpoints,
        label: |it, text| {
            let upstream = it.upstream.as_deref().unwrap_or_default();
            text.label(&[("upstream", upstream), ("endpoint", &it.name)]);
        },
    };
    let answers =
        Family::counter("ringway_upstream_requests_total", "Answers by endpoint and class.");
    labelled.write_by(answers, CODE_CLASS, |endpoint| &endpoint.answers, text);
    let in_flight = "ringway_upstream_endpoint_requests_in_flight";
    let in_flight = Family::gauge(in_flight, "Requests in flight to an endpoint.");
    labelled.write(in_flight, |endpoint| endpoint.in_flight, text);
    let failures = "ringway_upstream_endpoint_connect_failures_total";
    let failures = Family::counter(failures, "Connections that could not be made.");
    labelled.write(failures, |endpoint| endpoint.connect_failures, text);
    let retries = "ringway_upstream_endpoint_retries_total";
    let retries = Family::counter(retries, "Requests tried again after a try here.");
    labelled.write(retries, |endpoint| endpoint.retries, text);
}

fn write_filters(filters: &[Entry<FilterView>], text: &mut Exposition) {
    let labelled =
        Labelled { entries: filters, label: |it, text| text.label(&[("filter", &it.name)]) };
    let verdicts = "ringway_filter_verdicts_total";
    let verdicts = Family::counter(verdicts, "What filters did other than let a request pass.");
    labelled.write_by(verdicts, ("verdict", &VERDICTS), |filter| &filter.verdicts, text);
    let labelled =
        Labelled { entries: filters, label: |it, text| text.label(&[("policy", &it.name)]) };
    let decisions = "ringway_ratelimit_decisions_total";
    let decisions = Family::counter(decisions, "Requests that limiters let pass or refused.");
    // Most filters are no limiters: none of them stands in for a family without a sample.
    let decisions = Family { first_zero: false, ..decisions };
    labelled.write_by(decisions, ("decision", &DECISIONS), |filter| &filter.decisions, text);
}

fn write_listeners(listeners: &[Entry<ListenerView>], text: &mut Exposition) {
    let labelled =
        Labelled { entries: listeners, label: |it, text| text.label(&[("listener", &it.name)]) };
    let open = Family::gauge("ringway_open_connections", "Client connections open by listener.");
    labelled.write(open, |listener| listener.open, text);
    let accepted = "ringway_listener_connections_accepted_total";
    let accepted = Family::counter(accepted, "Client connections taken by listener.");
    labelled.write(accepted, |listener| listener.accepted, text);
    let results = "ringway_proxy_protocol_total";
    let results = Family::counter(results, "How connections began where proxy_protocol is on.");
    // Most listeners look for no header: none of them stands in for a family without a sample.
    let results = Family { first_zero: false, ..results };
    let names = ("result", &ProxyProtocolResult::NAMES);
    labelled.write_by(results, names, |listener| &listener.proxy_protocol, text);
    let handshakes = "ringway_tls_handshakes_total";
    let handshakes = Family::counter(handshakes, "TLS handshakes of clients by how they ended.");
    // Most listeners may speak none.
    let handshakes = Family { first_zero: false, ..handshakes };
    labelled.write_by(handshakes, ("result", &HANDSHAKES), |listener| &listener.handshakes, text);
}

/// A family to be written.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Whether a zero is written where there is nothing else.
    first_zero: bool,
}

impl Family {
    fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "counter", help, first_zero: true }
    }

    fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "gauge", help, first_zero: true }
    }

    fn shows(self, value: u64) -> bool {
        value > 0 || self.kind == "gauge"
    }
}

/// Series and how they are labelled.
struct Labelled<'a, T> {
    entries: &'a [Entry<T>],
    label: fn(&Entry<T>, &mut Exposition),
}

impl<T> Labelled<'_, T> {
    /// Writes one sample a series.
    fn write(&self, family: Family, value: fn(&T) -> u64, text: &mut Exposition) {
        text.family(family.name, family.kind, family.help);
        let mut empty = true;
        for entry in self.entries {
            let value = value(&entry.numbers);
            if family.shows(value) {
                (self.label)(entry, text);
                text.value(family.name, value);
                empty = false;
            }
        }
        if let Some(first) = self.entries.first().filter(|_| empty && family.first_zero) {
            (self.label)(first, text);
            text.value(family.name, 0);
        }
    }

    /// Writes a sample for each value of a label more.
    fn write_by<const N: usize>(
        &self,
        family: Family,
        (label, values): (&str, &[&str; N]),
        counts: fn(&T) -> &[u64; N],
        text: &mut Exposition,
    ) {
        text.family(family.name, family.kind, family.help);
        let mut empty = true;
        for entry in self.entries {
            let counts = counts(&entry.numbers);
            if counts.iter().any(|count| family.shows(*count)) {
                (self.label)(entry, text);
                let shown = values.iter().zip(counts).filter(|(_, count)| family.shows(**count));
                shown.for_each(|(of, count)| text.value_with(family.name, label, of, count));
                empty = false;
            }
        }
        if let Some(first) = self.entries.first().filter(|_| empty && family.first_zero) {
            (self.label)(first, text);
            text.value_with(family.name, label, values[0], 0);
        }
    }
}

const CODE_CLASS: (&str, &[&str; CLASSES.len()]) = ("code_class", &CLASSES);

const DURATION: HistogramNames = HistogramNames {
    family: "ringway_request_duration_seconds",
    bucket: "ringway_request_duration_seconds_bucket",
    sum: "ringway_request_duration_seconds_sum",
    count: "ringway_request_duration_seconds_count",
};

const UPSTREAM_DURATION: HistogramNames = HistogramNames {
    family: "ringway_upstream_request_duration_seconds",
    bucket: "ringway_upstream_request_duration_seconds_bucket",
    sum: "ringway_upstream_request_duration_seconds_sum",
    count: "ringway_upstream_request_duration_seconds_count",
};
