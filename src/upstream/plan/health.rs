//! What the configuration says of an upstream's health, breakers and slow start (docs/health.md).

use std::ops::RangeInclusive;

use crate::limits::*;

/// `health`: active checks of every endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthPlan {
    /// What is asked.
    pub check: Check,
    /// `interval`: time between the beginnings of two checks of an endpoint.
    pub interval_ms: u64,
    /// `timeout`: time in which one must have passed, at most `interval`.
    pub timeout_ms: u64,
    /// `rise`: checks in a row that must pass before an endpoint that is down is up.
    pub rise: u32,
    /// `fall`: checks in a row that must fail before one that is up is down.
    pub fall: u32,
}

/// `health.kind`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// "http": an answer with an expected status, and text where one is given.
    Http(HttpCheck),
    /// "tcp": a connection, and over TLS the handshake.
    Tcp,
    /// "grpc": `grpc.health.v1.Health/Check` says SERVING.
    Grpc {
        /// `service`: empty is the server as a whole.
        service: Box<str>,
        /// `host`: the authority; none is the endpoint's own.
        host: Option<Box<str>>,
    },
}

/// `kind = "http"`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// `path`, the query included.
    pub path: Box<str>,
    /// `host`; none is the endpoint's own.
    pub host: Option<Box<str>>,
    /// `statuses`: which of them pass.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// `body`: what the beginning of the body must contain.
    pub body: Option<Box<str>>,
}

/// `breaker`: when endpoints, the whole upstream or a zone of it are given no requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerPlan {
    /// `window`: how far back outcomes count.
    pub window_ms: u64,
    /// `requests_min`: fewer requests in the window say nothing.
    pub requests_min: u64,
    /// `open`: how long nothing is sent, the first time.
    pub open_ms: u64,
    /// `open_max`: how long what fails again and again stays open at most.
    pub open_max_ms: u64,
    /// `probes`: requests in a row that must succeed after that.
    pub probes: u64,
    /// `trickle_percent`, in thousandths: the share that comes next.
    pub trickle_permille: u16,
    /// `trickle`: for how long.
    pub trickle_ms: u64,
    /// `floor_percent`: standings of endpoints are not heeded where less of the weight would be in.
    pub floor_percent: u64,
    /// `adaptive`: thresholds follow what is usual.
    pub adaptive: bool,
    /// `endpoint`
    pub endpoint: EndpointBreaker,
    /// `service.error_percent`: of the whole upstream, 0 where that tier is off.
    pub service_error_percent: u64,
    /// `zone.error_percent`: of each zone, 0 where that tier is off.
    pub zone_error_percent: u64,
}

/// `breaker.endpoint`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointBreaker {
    /// `consecutive`: failures in a row that isolate it at once on the worker that sees them; 0
    /// where none do.
    pub consecutive: u32,
    /// `error_percent`: of its requests on all workers, 0 where that isolates none.
    pub error_percent: u64,
}

impl EndpointBreaker {
    /// Nothing isolates an endpoint.
    pub const OFF: EndpointBreaker = EndpointBreaker { consecutive: 0, error_percent: 0 };
    /// Where nothing else is said of an upstream with several endpoints.
    pub const USUAL: EndpointBreaker = EndpointBreaker {
        consecutive: BREAKER_CONSECUTIVE,
        error_percent: BREAKER_ENDPOINT_PERCENT,
    };

    /// Whether nothing isolates an endpoint.
    pub fn is_off(&self) -> bool {
        *self == EndpointBreaker::OFF
    }
}

impl BreakerPlan {
    /// No tier is on.
    pub fn off() -> BreakerPlan {
        BreakerPlan {
            window_ms: BREAKER_WINDOW_MS,
            requests_min: BREAKER_REQUESTS_MIN,
            open_ms: BREAKER_OPEN_MS,
            open_max_ms: BREAKER_OPEN_MS * BREAKER_OPEN_FACTOR_MAX,
            probes: BREAKER_PROBES,
            trickle_permille: BREAKER_TRICKLE_PERCENT * 10,
            trickle_ms: BREAKER_TRICKLE_MS,
            floor_percent: BREAKER_FLOOR_PERCENT,
            adaptive: false,
            endpoint: EndpointBreaker::OFF,
            service_error_percent: 0,
            zone_error_percent: 0,
        }
    }

    /// Whether no tier is on.
    pub fn is_off(&self) -> bool {
        let ratios = self.service_error_percent + self.zone_error_percent;
        self.endpoint.is_off() && ratios == 0
    }
}
