//! The keys of health and breakers.

use super::{Section, key};

/// `upstream.NAME.health`
pub(super) const HEALTH: Section = Section {
    name: "upstream.NAME.health",
    keys: &[
        key(
            "kind",
            "word",
            "`\"http\"`",
            "`http`, `tcp`, `grpc`",
            "What is asked: a GET over the upstream's protocol, a connection (over TLS with its handshake), or `grpc.health.v1.Health/Check`.",
        ),
        key("path", "path", "`\"/\"`", "with `http`", "Target of the GET."),
        key(
            "statuses",
            "list of statuses",
            "`[\"200-399\"]`",
            "1 to 32, with `http`",
            "Which answers pass: `200`, `\"200\"` or `\"200-299\"`.",
        ),
        key(
            "body",
            "text",
            "any body",
            "1 to 1024 bytes, with `http`",
            "What the first 64 KiB of the body must contain.",
        ),
        key(
            "host",
            "word",
            "the endpoint's address",
            "not with `tcp`",
            "Host, or `:authority`, of the question.",
        ),
        key(
            "service",
            "word",
            "the server as a whole",
            "with `grpc`",
            "The service that must be SERVING.",
        ),
        key(
            "interval",
            "duration",
            "`\"5s\"`",
            "100 ms to a day",
            "Time between two checks of an endpoint, a twentieth more or less.",
        ),
        key(
            "timeout",
            "duration",
            "`\"2s\"`, or `interval` if that is less",
            "10 ms to `interval`",
            "Time in which a check must have passed, the connection included.",
        ),
        key(
            "rise",
            "number",
            "`2`",
            "1 to 1000",
            "Checks in a row that must pass before an endpoint that is down is up.",
        ),
        key(
            "fall",
            "number",
            "`3`",
            "1 to 1000",
            "Checks in a row that must fail before one that is up is down. The first check of all decides alone.",
        ),
    ],
};

/// `upstream.NAME.breaker`
pub(super) const BREAKER: Section = Section {
    name: "upstream.NAME.breaker",
    keys: &[
        key("window", "duration", "`\"10s\"`", "1 s to 10 min", "How far back outcomes count."),
        key(
            "requests_min",
            "number",
            "`20`",
            "1 to 1000000",
            "Fewer requests in the window say nothing.",
        ),
        key(
            "open",
            "duration",
            "`\"10s\"`",
            "1 s to 1 h",
            "How long nothing is sent, the first time; twice as long each time that it fails again.",
        ),
        key(
            "open_max",
            "duration",
            "ten times `open`",
            "`open` to 10 h",
            "How long at most. Active checks that pass again end it at once.",
        ),
        key(
            "probes",
            "number",
            "`3`",
            "1 to 1000",
            "Requests in a row that must succeed after that, one at a time on each worker.",
        ),
        key(
            "trickle_percent",
            "number",
            "`5`",
            "1 to 100",
            "Share of the traffic that comes next.",
        ),
        key("trickle", "duration", "`\"10s\"`", "1 s to 1 h", "For how long."),
        key(
            "floor_percent",
            "number",
            "`50`",
            "0 to 100",
            "Where less of the weight would be in, all endpoints are. 0 lets all be out.",
        ),
        key(
            "adaptive",
            "flag",
            "`false`",
            "",
            "Thresholds follow what is usual: windows above it halve them.",
        ),
        key(
            "endpoint",
            "`false` or table",
            "on, with two endpoints or more",
            "",
            "When one endpoint is isolated.",
        ),
        key(
            "endpoint.consecutive",
            "number",
            "`5`",
            "0 to 10000",
            "Failures in a row on one worker that isolate it at once. 0: none do.",
        ),
        key(
            "endpoint.error_percent",
            "number",
            "`30`",
            "0 to 100",
            "Share of failures, on all workers, that isolates it. 0: none does.",
        ),
        key(
            "service",
            "`false` or table",
            "off",
            "",
            "When the whole upstream is given less: probes at once, and nothing where those fail.",
        ),
        key(
            "service.error_percent",
            "number",
            "`10`",
            "1 to 100",
            "Share of failures at endpoints that are not isolated themselves.",
        ),
        key(
            "zone",
            "`false` or table",
            "off",
            "endpoints in 2 to 64 zones",
            "When a zone's traffic moves to the others.",
        ),
        key(
            "zone.error_percent",
            "number",
            "`50`",
            "1 to 100",
            "Share of failures at its endpoints that does so; all of them being out does too.",
        ),
    ],
};
