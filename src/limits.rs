//! Every bound of the product, with its unit and its reason.
//!
//! A loop, queue, map or buffer that an outsider can grow names its bound here. Defaults that an
//! operator may change stand here too; the configuration reference takes them from this file.

mod upstream;

pub use upstream::*;

/// Bytes of a request or response head: request line, fields and the empty line. What common
/// servers allow (HAProxy 16 KiB, nginx 4 x 8 KiB).
pub const HEAD_BYTES_DEFAULT: usize = 16 * 1024;
/// Largest head that may be configured; spans are 32 bits and buffers are held per connection.
pub const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Smallest head that may be configured; below it ordinary browsers are refused.
pub const HEAD_BYTES_MIN: usize = 1024;
/// Fields in a head.
pub const HEADERS_DEFAULT: usize = 100;
/// Most fields that may be configured: the parser's array lives on the stack.
pub const HEADERS_MAX: usize = 256;
/// Bytes of a request target (RFC 9110 section 4.1 asks for at least 8,000).
pub const URI_BYTES_DEFAULT: usize = 8 * 1024;
/// Smallest bound on a target that may be configured.
pub const URI_BYTES_MIN: usize = 16;
/// Bytes of a method. Longer than any registered one; above it the answer is 501.
pub const METHOD_BYTES_MAX: usize = 32;
/// Empty lines that are skipped before a request line (RFC 9112 section 2.2 asks for one).
pub const LEADING_EMPTY_LINES_MAX: usize = 4;
/// Interim (1xx) answers to one request; an origin that sends more is broken.
pub const INTERIM_RESPONSES_MAX: usize = 16;

/// Bytes that a Content-Length or a chunk size may announce: what fits a signed 64-bit number, which
/// other implementations count in.
pub const BODY_BYTES_MAX: u64 = i64::MAX as u64;
/// Hexadecimal digits of a chunk size: 2^64 - 1 with no room for padding.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// Bytes of the extensions of one chunk, and of all chunks of one message together: extensions are
/// unused in practice and were used for denial of service (CVE-2023-39326).
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// See [`CHUNK_EXTENSION_BYTES_MAX`].
pub const CHUNK_EXTENSIONS_TOTAL_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Fields of a trailer section.
pub const TRAILERS_MAX: usize = 64;

/// Streams that one client may have open: what RFC 9113 section 6.5.2 asks for at least.
pub const HTTP2_STREAMS_DEFAULT: u32 = 100;
/// Most streams that may be configured: each may hold a head and a send buffer.
pub const HTTP2_STREAMS_MAX: usize = 10_000;
/// Bytes of one request's body that a client may send before some are passed on.
pub const HTTP2_WINDOW_BYTES: u32 = 64 * 1024;
/// The same of all streams of a connection together, at most: the largest window that there is
/// (RFC 9113 section 6.9.1). There is room for every stream unless it is configured otherwise, so that
/// an upstream that takes nothing never holds up the uploads to others.
pub const HTTP2_CONNECTION_WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// Smallest and largest windows that may be configured: below the protocol's own 65,535 a connection
/// cannot begin, above 16 MiB one client holds too much.
pub const HTTP2_WINDOW_BYTES_RANGE: (u64, u64) = (65_535, 16 * 1024 * 1024);
/// Bytes of a client's frame: the least that may be announced (RFC 9113 section 6.5.2), and enough.
pub const HTTP2_FRAME_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the table that a client compresses fields with (RFC 7541 section 4.2), the default of
/// the protocol.
pub const HTTP2_HEADER_TABLE_BYTES: u32 = 4_096;
/// Bytes of an answer that one stream may hold while the client opens no window.
pub const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Parts of a body that are passed on in one go: what one read of a connection holds of small messages.
/// Each is a handle of 32 bytes.
pub const HTTP2_BATCH_PARTS_MAX: usize = 16;
/// Bytes of a body beyond which no part is added to those that are passed on in one go: as many as a
/// stream takes at once.
pub const HTTP2_BATCH_BYTES: usize = HTTP2_SEND_BUFFER_BYTES;
/// Streams that were reset and are remembered, and those that the client has reset before they were
/// looked at: as many as may be open.
pub const HTTP2_RESETS_PENDING_MAX: usize = 100;
/// Streams of a connection that were reset because the client broke the protocol (CVE-2025-8671),
/// over its life: each may be a request at an origin. Streams over the limit are not counted, as none
/// of them is served.
pub const HTTP2_REFUSALS_MAX: usize = 128;
/// Bytes that small DATA frames may cost beyond their content while they wait: about 8,000 of them,
/// as gRPC sends when the upstream is slow.
pub const HTTP2_DATA_OVERHEAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Time after GOAWAY in which streams that crossed it are served although the client has not answered
/// the PING behind it: a round trip on a bad path.
pub const HTTP2_GOAWAY_MS: u64 = 2_000;

/// Frames that carry nothing: how many may come at once, how many more a second, and how many more
/// for each HEADERS and DATA frame that came and each that was sent. SETTINGS: one is usual.
pub const HTTP2_SETTINGS: (u32, u32, [u32; 4]) = (32, 1, [0, 0, 0, 0]);
/// PING: keepalives, and the bandwidth probes that gRPC sends with its data.
pub const HTTP2_PINGS: (u32, u32, [u32; 4]) = (200, 10, [1, 1, 1, 1]);
/// PRIORITY: old browsers build a tree of a few streams.
pub const HTTP2_PRIORITIES: (u32, u32, [u32; 4]) = (200, 10, [4, 0, 0, 0]);
/// RST_STREAM: a page that is left cancels all that it loads; an answer that has begun pays for one.
pub const HTTP2_RESETS: (u32, u32, [u32; 4]) = (200, 20, [0, 0, 1, 0]);
/// WINDOW_UPDATE: of the stream and of the connection, for each small DATA frame sent.
pub const HTTP2_WINDOW_UPDATES: (u32, u32, [u32; 4]) = (1_000, 100, [2, 0, 0, 4]);
/// DATA without content; `h2` takes 100 in the life of a connection.
pub const HTTP2_EMPTY_DATA: (u32, u32, [u32; 4]) = (100, 10, [0, 1, 0, 0]);
/// CONTINUATION: the largest head takes 16.
pub const HTTP2_CONTINUATIONS: (u32, u32, [u32; 4]) = (100, 10, [4, 0, 0, 0]);
/// Frames of other kinds: PRIORITY_UPDATE (RFC 9218) comes with requests, ORIGIN and the like once.
pub const HTTP2_UNKNOWN: (u32, u32, [u32; 4]) = (200, 10, [2, 0, 0, 0]);

/// Bytes of a pooled buffer for heads and small bodies: one default head fits.
pub const HEAD_BUFFER_BYTES: usize = 16 * 1024;
/// Bytes of a pooled buffer for bodies; larger ones leave the cache (measured in perf/).
pub const BODY_BUFFER_BYTES: usize = 128 * 1024;
/// Head buffers that a core keeps when they are free: 2 MiB.
pub const HEAD_BUFFERS_KEPT: usize = 128;
/// Body buffers that a core keeps when they are free: 2 MiB.
pub const BODY_BUFFERS_KEPT: usize = 16;
/// Body buffers that a core has in use before bodies get head buffers instead: 16 MiB, so that many
/// slow readers cost 16 KiB each.
pub const BODY_BUFFERS_USED_MAX: usize = 128;
/// Plain text of one TLS record (RFC 8446 section 5.1).
pub const TLS_RECORD_PLAIN_BYTES_MAX: usize = 16 * 1024;
/// What a record adds to its plain text, with room to spare: header 5, inner type 1 or nonce 8, tag 16.
pub const TLS_RECORD_OVERHEAD_BYTES: usize = 64;
/// Plain text that one write seals: four records, of which each operation sends as many as it can.
pub const TLS_WRITE_BYTES_MAX: usize = 64 * 1024;
/// Least room to receive records into.
pub const TLS_RECEIVE_BYTES_MIN: usize = 1024;
/// Received bytes that a session may leave unused: a handshake message is at most 64 KiB, and a peer
/// that spreads it over more records than this holds is up to something.
pub const TLS_INCOMING_BYTES_MAX: usize = BODY_BUFFER_BYTES;
/// Bytes of a ClientHello that are looked through for a name; the session refuses larger ones.
pub const TLS_HELLO_BYTES_MAX: usize = 64 * 1024;
/// Receptions in a row that a look at an idle connection makes while they hold no plain text.
pub const TLS_LOOKS_MAX: usize = 8;
/// Room left in front of an answer, so that its new head fits before the body without a copy.
pub const HEAD_ROOM_BYTES: usize = 256;
/// Time between two looks whether memory of a burst is to be given back.
pub const TRIM_MS: u64 = 1_000;
/// Bytes of memory that a free exchange keeps for its next request: values of filters, rewritten
/// paths. With [`EXCHANGES_KEPT`] that is 4 MiB a core at most.
pub const EXCHANGE_BYTES_KEPT: usize = 8 * 1024;
/// Exchanges that a core keeps when they are free: 1.2 KiB each. Those beyond are made anew for each
/// request, which 512 busy connections must not come to.
pub const EXCHANGES_KEPT: usize = 512;

/// Bytes of a PROXY header of version 1, its line end included: what the longest line of its
/// specification comes to.
pub const PROXY_V1_BYTES_MAX: usize = 107;
/// Bytes of a PROXY header of version 2 behind its first 16: addresses and what else there is. Its
/// length field could say 65,535; a certificate of the client's fits.
pub const PROXY_V2_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a connection's id in a PROXY header, by its specification.
pub const PROXY_UNIQUE_ID_BYTES_MAX: usize = 128;

/// Bytes of one text that a PROXY header tells an origin; longer ones are left out. Names of hosts have
/// 255 at most.
pub const PROXY_SENT_TEXT_BYTES_MAX: usize = 1_024;

/// Times that the kernel asks a silent peer before it ends a connection (`tcp_keepalive`).
pub const TCP_KEEPALIVE_PROBES: u32 = 3;
/// Shortest and longest `tcp_keepalive`: the kernel counts in seconds, and the interval is a third; two
/// hours are its own default.
pub const TCP_KEEPALIVE_MS: (u64, u64) = (3_000, 7_200_000);

/// Connections taken in one turn of the accept loop, so that a burst cannot starve those accepted.
pub const ACCEPT_BURST_MAX: usize = 64;
/// Connections the kernel queues for a listener.
pub const ACCEPT_BACKLOG: i32 = 4096;
/// Time that handshakes are given to end before a listener is closed: a round trip or two.
pub const HANDSHAKE_MS: u64 = 100;
/// Descriptors kept for everything that is not a connection: rings, logs, admin, configuration.
pub const DESCRIPTORS_RESERVED: u64 = 64;
/// Shortest and longest pause after the descriptors ran out, in milliseconds.
pub const DESCRIPTOR_PAUSE_MS: (u64, u64) = (50, 500);
/// Entries of a worker's submission queue; the completion queue is twice as large.
pub const RING_ENTRIES: u32 = 1024;

/// Milliseconds between two sweeps over the deadlines of a core.
pub const SWEEP_MS: u64 = 100;
/// The same while a deadline falls due within a second.
pub const SWEEP_FINE_MS: u64 = 10;
/// Shortest timeout that may be configured; the sweep cannot see less.
pub const TIMEOUT_MS_MIN: u64 = 10;
/// Longest timeout that may be configured: a day.
pub const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Time in which a whole request head must have arrived.
pub const HEAD_TIMEOUT_MS: u64 = 10_000;
/// Time between two reads of a request body.
pub const BODY_TIMEOUT_MS: u64 = 30_000;
/// Time a client connection may stay unused.
pub const IDLE_TIMEOUT_MS: u64 = 75_000;
/// Time in which a client must take some of what is written to it.
pub const WRITE_TIMEOUT_MS: u64 = 30_000;
/// Time for a client's TLS handshake: some round trips on a bad line.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;
/// Time to connect to an endpoint.
pub const CONNECT_TIMEOUT_MS: u64 = 3_000;
/// Time until the head of an upstream's answer, from the end of the request.
pub const RESPONSE_TIMEOUT_MS: u64 = 15_000;
/// Time between two reads of an upstream's body.
pub const UPSTREAM_BODY_TIMEOUT_MS: u64 = 60_000;
/// Time an upstream connection may stay unused: below the 60 to 75 s of common servers, so that
/// the proxy closes first.
pub const UPSTREAM_IDLE_TIMEOUT_MS: u64 = 50_000;
/// Time a tunnel may carry nothing in either direction.
pub const TUNNEL_IDLE_TIMEOUT_MS: u64 = 3_600_000;

/// After a final answer that left unread request bytes: time and bytes to read and discard, so that
/// the close does not reset the answer away (RFC 9112 section 9.6).
pub const LINGER_MS: u64 = 2_000;
/// See [`LINGER_MS`].
pub const LINGER_BYTES_MAX: u64 = 1024 * 1024;
/// A drain's bound.
pub const DRAIN_MS: u64 = 30_000;
/// Time an idle keep-alive connection lives once a drain has begun.
pub const DRAIN_IDLE_MS: u64 = 1_000;

/// Idle connections kept to one endpoint by one core.
pub const POOL_IDLE_DEFAULT: usize = 1024;
/// Most idle connections to one endpoint that may be configured: the ports of one address.
pub const POOL_IDLE_MAX: usize = 65_535;
/// Idle upstream connections that one sweep looks at.
pub const POOL_PEEKS_PER_SWEEP: usize = 64;
/// Times that one request is tried where nothing is said of it, the first included: again only where
/// nothing was sent, or on a stale connection where it can be replayed.
pub const TRIES_MAX: u8 = 3;
/// Weight of an endpoint.
pub const WEIGHT_MAX: u32 = 65_535;
/// Weight of an endpoint that gives none.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Endpoints of one upstream.
pub const ENDPOINTS_MAX: usize = 4_096;
/// Zones of an upstream whose breaker has a tier for them.
pub const ZONES_MAX: usize = 64;
/// Addresses taken from one name.
pub const ADDRESSES_PER_NAME_MAX: usize = 64;
/// Time between two look-ups of a name.
pub const RESOLVE_INTERVAL_MS: u64 = 10_000;

/// Of those, the newest that `status` shows.
pub const STATUS_EVENTS_MAX: usize = 20;

/// Streams on one HTTP/2 connection to an origin, where it allows as many: beyond them another
/// connection is made. What most servers take.
pub const UPSTREAM_HTTP2_STREAMS_MAX: usize = 100;
/// Bytes that an origin may send on one stream before they are passed on: 25 ms at 10 MB/s, and no
/// more than the kernel would hold of an HTTP/1 connection.
pub const UPSTREAM_HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same of a connection: room for every stream, so that clients that read slowly never hold up
/// the others.
pub const UPSTREAM_HTTP2_CONNECTION_WINDOW_BYTES: u32 =
    UPSTREAM_HTTP2_STREAM_WINDOW_BYTES * UPSTREAM_HTTP2_STREAMS_MAX as u32;
/// Bytes of an answer's fields as HTTP/2 counts them, 32 beyond each: the largest head that a
/// listener may take. Each listener's own bounds come after it.
pub const UPSTREAM_HTTP2_HEADER_LIST_BYTES_MAX: u32 = (HEAD_BYTES_MAX + 32 * HEADERS_MAX) as u32;
/// Bytes of one request body that wait to be sent: one body buffer.
pub const UPSTREAM_HTTP2_SEND_BUFFER_BYTES: usize = BODY_BUFFER_BYTES;
/// Streams that were given up here and of which frames may still come, half a KiB each: 800 clients a
/// second that go away. Before there are more, another connection takes over.
pub const UPSTREAM_HTTP2_RESET_STREAMS_KEPT: usize = 8_192;
/// How long they are remembered: as long as a silent origin may turn out to be there after all.
pub const UPSTREAM_HTTP2_RESET_STREAM_MS: u64 = 10_000;
/// Streams that an origin's faults may have reset before its connection is given up; after half of
/// them another connection takes over.
pub const UPSTREAM_HTTP2_LOCAL_RESETS_MAX: usize = 1_024;
/// Silence on a connection with streams after which a PING asks whether the origin is there.
pub const UPSTREAM_HTTP2_PING_AFTER_MS: u64 = 10_000;
/// Time in which it must have answered.
pub const UPSTREAM_HTTP2_PING_TIMEOUT_MS: u64 = 5_000;
/// Time between two PINGs in one silence: gRPC servers take more for an attack.
pub const UPSTREAM_HTTP2_PING_EVERY_MS: u64 = 300_000;
/// PINGs in one silence where requests wait in vain; the third too many would be an attack to gRPC.
pub const UPSTREAM_HTTP2_PINGS_IN_DOUBT: u32 = 2;
/// Time without an answer to a PING after which requests go to another connection: some round trips.
pub const UPSTREAM_HTTP2_DOUBT_MS: u64 = 1_000;
/// Time for the goodbye on a connection that carries nothing any more.
pub const UPSTREAM_HTTP2_CLOSE_MS: u64 = 1_000;
/// Connections that one request waits for before it gives up: each may have been taken by others.
pub const UPSTREAM_HTTP2_WAITS_MAX: usize = 16;
/// Connections that end before they carry anything which one request waits for.
pub const UPSTREAM_HTTP2_STILLBORN_MAX: usize = 2;

/// Messages waiting for a worker.
pub const INBOX_MESSAGES: usize = 64;
/// Time in which a reload must have been read and compiled: a million routes take seconds.
pub const COMPILE_MS: u64 = 40_000;
/// Time that `reload` waits for every worker's acknowledgement.
pub const ACKNOWLEDGE_MS: u64 = 10_000;
/// Time in which every worker must have started.
pub const START_MS: u64 = 10_000;
/// Time that the start waits for an address that is in use: what a killed process of ours held is
/// free a moment later.
pub const BIND_AT_START_MS: u64 = 500;
/// Time between two tries of that.
pub const BIND_RETRY_MS: u64 = 20;
/// Time that the start waits for names to be resolved.
pub const RESOLVE_AT_START_MS: u64 = 2_000;
/// Time between two tries to hand a message to a worker whose inbox was full.
pub const INBOX_RETRY_MS: u64 = 20;
/// Time that a drain is given beyond its bound before the process leaves without the workers'
/// word.
pub const DRAIN_MARGIN_MS: u64 = 2_000;
/// Time between two looks at snapshots that nobody may hold any more.
pub const SNAPSHOT_SWEEP_MS: u64 = 1_000;
/// Events of other threads waiting for the control thread; those threads wait when it is full.
pub const EVENTS_MAX: usize = 1024;
/// Workers: the processors that an affinity mask can name.
pub const WORKERS_MAX: usize = 1024;
/// Connections to the admin API; for one more the one that has asked nothing for longest is closed.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Time in which a request to the admin API must have arrived; also how long one may stay idle.
pub const ADMIN_HEAD_TIMEOUT_MS: u64 = 30_000;
/// Routes of which one worker keeps series: 192 bytes each, 2 MiB; those that are hit beyond them are
/// counted as `other`.
pub const SERIES_MAX: usize = 10_000;
/// The same of upstreams, endpoints, filters and listeners together, 256 bytes each at most, 16 MiB:
/// of sixteen upstreams of the largest size. Routes take nothing of it.
pub const SERIES_BESIDE_ROUTES_MAX: usize = 16 * ENDPOINTS_MAX;
/// Routes that `status` shows, busiest first.
pub const STATUS_ROUTES_MAX: usize = 20;
/// Upstreams, endpoints and filters that `status` shows, of each kind.
pub const STATUS_SERIES_MAX: usize = 1_000;
/// Time that `reload` waits for its answer: for a reload that is under way, its own, and names that
/// are slow to resolve.
pub const RELOAD_TIMEOUT_MS: u64 = 60_000;
/// Bytes of the message of the last reload that `status` shows: a screen or two of diagnostics.
pub const LAST_RELOAD_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Time that `explain` waits for a running process, which looks for near misses among all routes.
pub const EXPLAIN_TIMEOUT_MS: u64 = 10_000;
/// Time that `status` waits for its answer.
pub const STATUS_TIMEOUT_MS: u64 = 5_000;
/// Bytes that the command line reads of an answer: the status of 1024 workers and of all
/// the series that it shows fits.
pub const ADMIN_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a body that the demo origin echoes.
pub const DEMO_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Time in which a demo origin must have served a request.
pub const DEMO_TIMEOUT_MS: u64 = 75_000;

/// Panics of a service loop within a minute that end the process.
pub const SERVICE_PANICS_MAX: u32 = 3;

/// Bytes of the access log that a worker collects before it hands them over: one write of the
/// writer's, and a few hundred records.
pub const ACCESS_LOG_CHUNK_BYTES: usize = 64 * 1024;
/// Chunks of one worker that wait for the writer: 4 MiB, used only while the disk stands still. At
/// 80,000 JSON records a second that is two [`ACCESS_LOG_LOOK_MS`]; with half of it a busy machine
/// lost some of them.
pub const ACCESS_LOG_QUEUE_CHUNKS: usize = 64;
/// Bytes of a target, a referer or a user agent in the access log; longer ones are cut.
pub const ACCESS_LOG_TEXT_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a method, a host, a request id or a name in the access log; longer ones are cut.
pub const ACCESS_LOG_NAME_BYTES_MAX: usize = 256;
/// Bytes of a protocol's name or version in the access log; longer ones are cut.
pub const ACCESS_LOG_WORD_BYTES_MAX: usize = 64;
/// Time between two looks of the access log's writer for chunks: workers do not wake it.
pub const ACCESS_LOG_LOOK_MS: u64 = 50;
/// The same while an eighth of a queue fills between two looks.
pub const ACCESS_LOG_LOOK_BUSY_MS: u64 = 10;
/// Time after which an access log that takes nothing is complained of.
pub const ACCESS_LOG_STALL_MS: u64 = 1_000;
/// Time between two complaints about the same access log.
pub const ACCESS_LOG_COMPLAINT_MS: u64 = 60_000;
/// Commands that wait for the access log's writer while it is inside a write.
pub const ACCESS_LOG_COMMANDS: usize = 64;
/// Bytes written at once to a standard output that may block: what a pipe that is ready takes
/// (`PIPE_BUF`).
pub const ACCESS_LOG_PIECE_BYTES: usize = 4 * 1024;
/// Time that the end of the process waits for the access log to be written out.
pub const ACCESS_LOG_FINISH_MS: u64 = 1_000;

/// Certificates of a listener.
pub const TLS_CERTS_MAX: usize = 1_024;
/// Items of `ciphers`: twice as many as there are suites.
pub const TLS_CIPHERS_MAX: usize = 32;
/// Bytes of a file with certificates, keys or revocation lists; the largest public lists have some
/// megabytes.
pub const TLS_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Certificates of a file; the authorities that a system trusts are some hundred.
pub const CERTIFICATES_PER_FILE_MAX: usize = 4_096;
/// Sessions to upstreams that are remembered for one `tls`, to be resumed.
pub const UPSTREAM_SESSIONS_MAX: usize = 256;
/// Time between two looks at the files of certificates. A change counts when it has been quiet for
/// one.
pub const CERTIFICATE_LOOK_MS: u64 = 1_000;

/// Bytes of a configuration, all its files together.
pub const CONFIG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Files of a configuration.
pub const CONFIG_FILES_MAX: usize = 1_024;
/// Files that include each other, one inside the other; deeper ones cannot be followed by a reader
/// either.
pub const INCLUDE_DEPTH_MAX: usize = 8;
/// Bytes that environment variables add to a configuration: a long one may stand in many places.
pub const ENVIRONMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Errors of one configuration that are shown.
pub const CONFIG_ERRORS_MAX: usize = 100;
/// Tables and arrays inside each other; the deepest key of ours stands in the fifth.
pub const CONFIG_DEPTH_MAX: usize = 32;
/// Bytes of a name: it becomes a label of metrics.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a route's id.
pub const ROUTE_ID_BYTES_MAX: usize = 128;
/// Bytes of a Unix socket's path: `sun_path` holds 108 with the closing NUL.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Connections, or requests in flight, that may be configured: above what one machine holds.
pub const CONNECTIONS_MAX: usize = 16_777_216;
/// Networks of `trusted_proxies`: each connection looks through all of them.
pub const TRUSTED_PROXIES_MAX: usize = 256;
/// Filters on one route.
pub const FILTERS_PER_ROUTE_MAX: usize = 64;
/// Networks of one `ip_list`.
pub const IP_LIST_MAX: usize = 65_536;
/// Conditions in one `when`.
pub const CONDITIONS_MAX: usize = 32;
/// Bytes of a regular expression.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// Bytes of the automaton that a regular expression becomes: it is shared by all workers.
pub const PATTERN_TABLE_BYTES_MAX: usize = 1024 * 1024;
/// Expressions whose groups a thread can find without new memory: a cache of some KiB each.
pub const PATTERN_ENGINES_KEPT: usize = 64;
/// Routes with a regular expression: a request may be tried against all of them.
pub const ROUTE_PATTERNS_MAX: usize = 1_024;
/// Segments of a route's prefix, or of a path with parameters: how deep a look-up may go.
pub const ROUTE_SEGMENTS_MAX: usize = 64;
/// Bytes of a route's path: a longer one fits no request line that a listener takes by default.
pub const ROUTE_PATH_BYTES_MAX: usize = URI_BYTES_DEFAULT;
/// Hosts of one route.
pub const ROUTE_HOSTS_MAX: usize = 256;
/// Bytes of a host name (RFC 1035 section 2.3.4), without the dot at its end.
pub const HOST_BYTES_MAX: usize = 253;
/// Upstreams among which one route chooses.
pub const TARGETS_MAX: usize = 64;
/// Slots that a hash of a value falls into: one is a hundredth of a percent.
pub const SLOTS: u16 = 10_000;
/// Largest `priority`.
pub const PRIORITY_MAX: usize = 1_000_000;
/// `priority` of a route that gives none.
pub const PRIORITY_DEFAULT: u32 = 100;
/// Values that a condition may list.
pub const CONDITION_VALUES_MAX: usize = 1_024;
/// Bytes of a text with variables.
pub const TEMPLATE_BYTES_MAX: usize = 4_096;
/// Variables in one text.
pub const TEMPLATE_VARIABLES_MAX: usize = 64;
/// Bytes of the body that a route answers with.
pub const RESPOND_BODY_BYTES_MAX: usize = 64 * 1024;
/// Routes that nearly matched and are named when a request is explained.
pub const NEAR_MISSES_MAX: usize = 8;
/// Fields that one `headers` filter sets, and adds, and removes.
pub const HEADER_EDITS_MAX: usize = 64;
/// Origins, methods or names in one list of a `cors` filter.
pub const CORS_ITEMS_MAX: usize = 256;
/// Keys that a `rate_limit` tells apart at a time: 8 bytes each, 512 KiB.
pub const RATE_KEYS_DEFAULT: usize = 65_536;
/// The same where the key is the route: those of a file are few, and limits of their own many.
pub const RATE_KEYS_OF_ROUTES: usize = 512;
/// Fewest and most keys that may be configured: a cache line, and 128 MiB.
pub const RATE_KEYS_MIN: usize = 8;
/// See [`RATE_KEYS_MIN`].
pub const RATE_KEYS_MAX: usize = 16_777_216;
/// Requests a second that a limit may be set to: above what one machine serves.
pub const RATE_PER_S_MAX: u64 = 1_000_000;
/// Seconds that an empty bucket may take to fill: 30 days, a seventh of what its clock can tell.
pub const RATE_REFILL_S_MAX: u64 = 30 * 86_400;
/// Time in which all workers have taken over the plans of a reload, or never will: until then buckets
/// are still charged by the limit before.
pub const RATE_RENEW_S: u64 = 120;
/// Tables of former sizes that a limiter looks into after reloads.
pub const RATE_TABLES_KEPT_MAX: usize = 4;
/// A burst is warned of where it is so many times the rate's count.
pub const BURST_COUNTS_MAX: u64 = 10;
/// A burst is warned of where it is less than the requests of a second divided by this: what comes
/// together after a pause of the machine is refused.
pub const BURST_SHARE_MIN: u64 = 100;
/// Time that a filter may wait for something outside, where it does not say.
pub const FILTER_TIMEOUT_MS: u64 = 2_000;
/// Segments that a route may hide from its upstream.
pub const SKIP_SEGMENTS_MAX: usize = 64;

const _: () = assert!(HEAD_BYTES_DEFAULT <= HEAD_BUFFER_BYTES, "a default head fits its buffer");
const _: () = assert!(HEAD_BYTES_MIN <= HEAD_BYTES_DEFAULT && HEAD_BYTES_DEFAULT <= HEAD_BYTES_MAX);
const _: () = assert!(HEADERS_DEFAULT <= HEADERS_MAX);
const _: () = assert!(16 + PROXY_V2_BYTES_MAX < HEAD_BUFFER_BYTES, "a header fits its buffer");
const _: () = assert!(URI_BYTES_DEFAULT < HEAD_BYTES_DEFAULT, "a longest target leaves room");
const _: () = assert!(URI_BYTES_MIN < HEAD_BYTES_MIN, "a smallest head has room for a target");
const _: () = assert!(WEIGHT_DEFAULT <= WEIGHT_MAX && POOL_IDLE_DEFAULT <= POOL_IDLE_MAX);
const _: () = assert!(TRAILER_BYTES_MAX < HEAD_BUFFER_BYTES, "a trailer section fits a buffer");
const _: () = assert!(RATE_RENEW_S * 1_000 > RELOAD_TIMEOUT_MS, "a reload is decided by then");
const _: () =
    assert!(RELOAD_TIMEOUT_MS > 2 * (ACKNOWLEDGE_MS + RESOLVE_AT_START_MS), "two in a row");
const _: () = assert!(RELOAD_TIMEOUT_MS > COMPILE_MS + ACKNOWLEDGE_MS, "callers hear of it");
const _: () = assert!(SWEEP_FINE_MS <= TIMEOUT_MS_MIN, "the sweep sees the shortest timeout");
const _: () = assert!(HEAD_BYTES_MAX < u32::MAX as usize, "spans are 32 bits");
const _: () = assert!(UPSTREAM_IDLE_TIMEOUT_MS < 60_000, "the proxy closes before the server");
