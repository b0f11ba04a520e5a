//! Bounds of upstreams: balancing, health, breakers, retries, bulkheads, discovery.

use super::{ENDPOINTS_MAX, RING_ENTRIES};

/// `retry.tries` where `retry` does not say, the first included.
pub const RETRY_TRIES_DEFAULT: u8 = 2;
/// Most tries that may be configured: each holds its client longer.
pub const RETRY_TRIES_MAX: usize = 10;
/// Requests that may wait for a place at an upstream: each holds its connection.
pub const QUEUE_LENGTH_MAX: usize = 65_536;
/// Requests that an upstream with a `concurrency` is sent at first, on each worker.
pub const GRADIENT_START: usize = 20;
/// Time and answers after which its limit may change: several round trips.
pub const GRADIENT_WINDOW_MS: u64 = 100;
/// See [`GRADIENT_WINDOW_MS`].
pub const GRADIENT_SAMPLES_MIN: u64 = 10;
/// Time after which its times at rest are looked for anew.
pub const GRADIENT_REST_MS: u64 = 30_000;
/// Retries that a hundred requests pay for.
pub const RETRY_BUDGET_PERCENT: u32 = 20;
/// Retries that an upstream is lent on each worker before its requests have paid for any.
pub const RETRY_BUDGET_LENT: u64 = 10;
/// Time of which an upstream may keep what was paid in.
pub const RETRY_BUDGET_KEPT_MS: u64 = 500;
/// Tries in a row at an endpoint that may be cut off for a hedge before one is waited for.
pub const HEDGE_CUTS_MAX: u32 = 5;
/// Requests of a worker that are hedged at the same time. Those that win at once close as many
/// connections in one turn of its ring, two entries each, which have to fit it.
pub const HEDGES_IN_FLIGHT_MAX: usize = RING_ENTRIES as usize / 4;
/// Bytes of a body that are kept for another try, where `retry` does not say.
pub const RETRY_BODY_BYTES: usize = 64 * 1024;
/// Most of them that may be configured: each request of a slow upstream may hold as many.
pub const RETRY_BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// `hash.max_load_percent` where nothing is said: an endpoint has at most a quarter more in flight than
/// its part; a lower bound moves more keys (Mirrokni et al. 2018).
pub const HASH_MAX_LOAD_PERCENT: u64 = 125;
/// Its bounds: at 100 keys move with every request, above 1,000 it bounds nothing.
pub const HASH_MAX_LOAD_PERCENT_RANGE: (usize, usize) = (101, 1_000);
/// Places of a hash table that one key is looked for in before all endpoints are looked at.
pub const HASH_STEPS_MAX: usize = 1_024;
/// Time in which a measured latency loses its weight, as Finagle has it.
pub const EWMA_DECAY_MS: u64 = 10_000;
/// What a failed try counts as: one that fails fast is not fast.
pub const EWMA_FAILURE_US: u64 = 1_000_000;
/// What an endpoint without measurements counts as while a first request is under way.
pub const EWMA_UNKNOWN_US: u64 = 1_000_000;
/// Buckets that `shard` spreads keys over.
pub const SHARD_BUCKETS: usize = 1_000;
/// Zones of one `shard`: their numbers are bytes.
pub const SHARD_ZONES_MAX: usize = 64;
/// Capacity that a zone is taken to have beyond what it needs, in thousandths of that: it keeps its
/// requests until less than 1/1.4 of its weight is usable, as in Envoy.
pub const LOCALITY_SPARE_PERMILLE: u64 = 1_400;
/// Shortest and longest time between two look-ups of what an upstream discovers by DNS, whatever the
/// records' TTL: one of 0 must not make a loop, nor one of a week outlast a move.
pub const DISCOVERY_TTL_MS: (u64, u64) = (1_000, 3_600_000);
/// Time after which a look-up that failed is tried again.
pub const DISCOVERY_RETRY_MS: u64 = 5_000;
/// Time between two looks at a file of endpoints.
pub const DISCOVERY_FILE_MS: u64 = 1_000;
/// Time that a name server is given for one query, and how often it is asked.
pub const DISCOVERY_QUERY: (u64, usize) = (2_000, 2);
/// Time that one look-up may take with all its queries: a record of a service leads to others.
pub const DISCOVERY_LOOKUP_MS: u64 = 15_000;
/// Targets of a service (SRV) that are looked up.
pub const DISCOVERY_TARGETS_MAX: usize = 256;
/// Discovered endpoints that have gone and are known again when they come back.
pub const DISCOVERY_GONE_MAX: usize = 256;
/// Look-ups that wait to be begun; those beyond are asked for again later.
pub const DISCOVERY_PENDING_MAX: usize = 4_096;
/// Time between two looks of the control thread at what the workers have counted of endpoints.
pub const JUDGE_MS: u64 = 100;
/// `breaker.window` where nothing is said, shortest and longest: a window has ten parts, and none is
/// shorter than a look.
pub const BREAKER_WINDOW_MS: u64 = 10_000;
/// See [`BREAKER_WINDOW_MS`].
pub const BREAKER_WINDOW_MS_RANGE: (u64, u64) = (1_000, 600_000);
/// Parts of a window: what is older than it leaves in so many steps.
pub const BREAKER_WINDOW_PARTS: usize = 10;
/// `breaker.requests_min` where nothing is said, and its bounds.
pub const BREAKER_REQUESTS_MIN: u64 = 20;
/// See [`BREAKER_REQUESTS_MIN`].
pub const BREAKER_REQUESTS_MIN_RANGE: (usize, usize) = (1, 1_000_000);
/// `breaker.open` where nothing is said.
pub const BREAKER_OPEN_MS: u64 = 10_000;
/// Shortest and longest `breaker.open` and `breaker.trickle`.
pub const BREAKER_MS_RANGE: (u64, u64) = (1_000, 3_600_000);
/// `breaker.open_max` where nothing is said: so many times `breaker.open`.
pub const BREAKER_OPEN_FACTOR_MAX: u64 = 10;
/// Shortest and longest `breaker.open_max`.
pub const BREAKER_OPEN_MAX_MS_RANGE: (u64, u64) = (1_000, 36_000_000);
/// `breaker.probes` where nothing is said, and the most.
pub const BREAKER_PROBES: u64 = 3;
/// See [`BREAKER_PROBES`].
pub const BREAKER_PROBES_MAX: usize = 1_000;
/// `breaker.trickle_percent` where nothing is said.
pub const BREAKER_TRICKLE_PERCENT: u16 = 5;
/// `breaker.trickle` where nothing is said.
pub const BREAKER_TRICKLE_MS: u64 = 10_000;
/// `breaker.floor_percent` where nothing is said: with less of it in, what is left would be given
/// more than twice of what it has.
pub const BREAKER_FLOOR_PERCENT: u64 = 50;
/// `breaker.endpoint.consecutive` where nothing is said, and the most.
pub const BREAKER_CONSECUTIVE: u32 = 5;
/// See [`BREAKER_CONSECUTIVE`].
pub const BREAKER_CONSECUTIVE_MAX: usize = 10_000;
/// `breaker.endpoint.error_percent` where nothing is said.
pub const BREAKER_ENDPOINT_PERCENT: u64 = 30;
/// `breaker.service.error_percent` where nothing is said.
pub const BREAKER_SERVICE_PERCENT: u64 = 10;
/// `breaker.zone.error_percent` where nothing is said.
pub const BREAKER_ZONE_PERCENT: u64 = 50;
/// Time after a change from all requests to probes in which outcomes are those of requests that were
/// sent before.
pub const BREAKER_SETTLE_MS: u64 = 200;
/// The lowest that an adaptive threshold goes.
pub const BREAKER_ADAPTIVE_PERCENT_MIN: u64 = 2;
/// Windows in a row above the baseline that lower an adaptive threshold.
pub const BREAKER_ADAPTIVE_WINDOWS: u32 = 3;
/// One answer in so many is the tail whose time an adaptive threshold follows: the 99th percentile.
pub const BREAKER_TAIL_PART: u64 = 100;
/// Answers of a window that have such a tail: with fewer, one or two answers decide what it is.
pub const BREAKER_TAIL_ANSWERS_MIN: u64 = 200;
/// Looks over which histograms of times to the head are read at least, for each turn that endpoints
/// take: one is as large as nine tallies.
pub const BREAKER_TAIL_LOOKS_MIN: u64 = 8;
/// Tallies that one look of the judge reads at most, about: where there are more, endpoints take turns
/// over several looks, so that the control thread is never busy for 5 ms.
pub const JUDGE_TALLIES_MAX: usize = 65_536;
/// Share that a slow start begins with, and by which it grows, in thousandths.
pub const SLOW_START_FIRST_PERMILLE: u16 = 100;
/// See [`SLOW_START_FIRST_PERMILLE`].
pub const SLOW_START_STEP_PERMILLE: u16 = 50;
/// `health.interval` where nothing is said, shortest and longest.
pub const HEALTH_INTERVAL_MS: u64 = 5_000;
/// See [`HEALTH_INTERVAL_MS`].
pub const HEALTH_INTERVAL_MS_RANGE: (u64, u64) = (100, 86_400_000);
/// `health.timeout` where nothing is said and `interval` is not shorter.
pub const HEALTH_TIMEOUT_MS: u64 = 2_000;
/// `health.rise` where nothing is said.
pub const HEALTH_RISE: u32 = 2;
/// `health.fall` where nothing is said.
pub const HEALTH_FALL: u32 = 3;
/// Largest `health.rise` and `health.fall`.
pub const HEALTH_COUNT_MAX: usize = 1_000;
/// Items of `health.statuses`.
pub const HEALTH_STATUSES_MAX: usize = 32;
/// Bytes of `health.path`, `health.body`, `health.host` and `health.service`.
pub const HEALTH_TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of an answer's body that a check reads: an answer for machines is short.
pub const HEALTH_BODY_BYTES_MAX: usize = 64 * 1024;
/// Checks under way at a time: 64 that hang are 64 descriptors.
pub const HEALTH_CHECKS_MAX: usize = 64;
/// Events of health and breakers that are kept to be shown.
pub const EVENTS_KEPT: usize = 256;

const _: () = assert!(ENDPOINTS_MAX <= u16::MAX as usize, "places of a hash table have 16 bits");
const _: () = assert!(SHARD_ZONES_MAX <= u8::MAX as usize && SHARD_ZONES_MAX <= SHARD_BUCKETS);
const _: () = assert!(BREAKER_WINDOW_MS_RANGE.0 >= BREAKER_WINDOW_PARTS as u64 * JUDGE_MS);
const _: () = assert!(BREAKER_MS_RANGE.1 * BREAKER_OPEN_FACTOR_MAX <= BREAKER_OPEN_MAX_MS_RANGE.1);
const _: () = assert!(SLOW_START_FIRST_PERMILLE.is_multiple_of(SLOW_START_STEP_PERMILLE));
