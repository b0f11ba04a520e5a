//! What every key of a configuration is, as docs/configuration.md shows it.
//!
//! tests/reference_page.rs holds this list against the keys that decoding asks for, and the page against
//! this list. The keys of filters stand with their filters.

mod requests;

/// A table of the configuration.
#[derive(Debug)]
pub struct Section {
    /// Its name, as `Fields::of` has it; empty is the top of a file.
    pub name: &'static str,
    /// Its keys, those of the tables in it included.
    pub keys: &'static [Key],
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Name, behind that of the section.
    pub name: &'static str,
    /// What is written.
    pub kind: &'static str,
    /// What holds without it; "required" where nothing does.
    pub default: &'static str,
    /// What may be written.
    pub bounds: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

impl Section {
    /// The rows of the reference, below their heading.
    pub fn table(&self) -> String {
        let mut text =
            String::from("| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n");
        for key in self.keys {
            let Key { name, kind, default, bounds, meaning } = key;
            let bounds = if bounds.is_empty() { " ".to_owned() } else { format!(" {bounds} ") };
            let section = match self.name {
                "" => String::new(),
                name => format!("{name}."),
            };
            text += &format!("| `{section}{name}` | {kind} | {default} |{bounds}| {meaning} |\n");
        }
        text
    }
}

const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    bounds: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, kind, default, bounds, meaning }
}

/// Every section, in the order of the page.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "",
        keys: &[key(
            "include",
            "list of paths",
            "none",
            "1024 files, 8 deep",
            "Files that belong to the configuration, such as `[\"routes/*.toml\", \"upstreams.json\"]`.",
        )],
    },
    Section {
        name: "runtime",
        keys: &[
            key(
                "workers",
                "`\"auto\"` or number",
                "`\"auto\"`",
                "1 to 1024",
                "Worker threads, each with its own ring and sockets. `\"auto\"` is one for each core that affinity and cgroup let the process use.",
            ),
            key(
                "driver",
                "word",
                "`\"auto\"`",
                "`auto`, `io_uring`, `epoll`",
                "`\"auto\"` takes io_uring where it works, else epoll. `\"io_uring\"` refuses to start without it.",
            ),
            key(
                "connections_max",
                "number",
                "what the descriptors allow",
                "1 to 16777216",
                "Client connections of all workers together; divided among them.",
            ),
            key(
                "drain",
                "duration",
                "`\"30s\"`",
                "0 to a day",
                "How long requests may go on after the process was told to end.",
            ),
            key(
                "drain_delay",
                "duration",
                "`\"0s\"`",
                "0 to a day",
                "How long to go on accepting before that, while readiness already says no.",
            ),
        ],
    },
    Section {
        name: "admin",
        keys: &[
            key(
                "listen",
                "address and port",
                "none",
                "not that of a listener",
                "A TCP address, such as `\"127.0.0.1:9901\"`. Keep it off public networks.",
            ),
            key(
                "socket",
                "path",
                "none",
                "absolute, at most 107 bytes",
                "A Unix socket, such as `\"/run/ringway/admin.sock\"`.",
            ),
        ],
    },
    Section {
        name: "access_log",
        keys: &[
            key(
                "path",
                "path",
                "required",
                "absolute, or `\"stdout\"`",
                "Where a line for each request goes.",
            ),
            key(
                "format",
                "word",
                "`\"combined\"`",
                "`combined`, `json`",
                "`combined` is what log analysers read; `json` has every fact of the request.",
            ),
        ],
    },
    Section {
        name: "listener.NAME",
        keys: &[
            key(
                "address",
                "address and port",
                "required",
                "an IP address, no name",
                "`\"0.0.0.0:8080\"`, `\"[::]:8080\"`. Port 0 takes a free port.",
            ),
            key(
                "trusted_proxies",
                "list of networks",
                "`[]`",
                "at most 256",
                "Peers whose X-Forwarded and Forwarded fields are believed; those of others are dropped: `\"10.0.0.0/8\"`, `\"fd00::/8\"` or single addresses.",
            ),
            key(
                "proxy_protocol",
                "word",
                "`\"off\"`",
                "`off`, `optional`, `required`; with `trusted_proxies`",
                "Whether connections of `trusted_proxies` begin with a PROXY header (v1 or v2), which names the client. `\"required\"` closes those without one, and those of others.",
            ),
            key(
                "head_bytes_max",
                "size",
                "`\"16KiB\"`",
                "1 KiB to 256 KiB",
                "Bytes of a request's head: request line, fields, empty line. Above it: 431.",
            ),
            key("headers_max", "number", "`100`", "1 to 256", "Fields of a head. Above it: 431."),
            key(
                "uri_bytes_max",
                "size",
                "`\"8KiB\"`, or half of `head_bytes_max` if that is less",
                "16 bytes to below `head_bytes_max`",
                "Bytes of a request target. Above it: 414.",
            ),
            key("via", "flag", "`false`", "", "Add Via (RFC 9110 section 7.6.3)."),
            key(
                "forwarded",
                "flag",
                "`false`",
                "",
                "Add Forwarded (RFC 7239) beside the X-Forwarded fields.",
            ),
            key("tls", "table", "none", "", "Clients speak TLS ([tls.md](tls.md))."),
            key(
                "tls.certs",
                "list of tables",
                "required",
                "1 to 1024",
                "`[{ cert = \"a.pem\", key = \"a.key\" }]`. A client gets the one for the name that it asks for, else the first.",
            ),
            key(
                "tls.certs.cert",
                "path",
                "required",
                "relative to this file",
                "PEM: the server's certificate, behind it those of its issuers.",
            ),
            key(
                "tls.certs.key",
                "path",
                "required",
                "relative to this file",
                "PEM: the key of the certificate, not encrypted.",
            ),
            key(
                "tls.alpn",
                "list of words",
                "`[\"h2\", \"http/1.1\"]`",
                "`h2`, `http/1.1`",
                "Protocols that are offered, the most wanted first. `[]` offers none.",
            ),
            key("tls.min_version", "word", "`\"1.2\"`", "`1.2`, `1.3`", "The oldest version."),
            key(
                "tls.ciphers",
                "list of names",
                "all that are safe",
                "1 to 32",
                "Cipher suites by their IANA names. The client chooses among them.",
            ),
            key(
                "tls.client_ca",
                "path",
                "none",
                "relative to this file",
                "PEM: the authorities that clients' certificates are verified by.",
            ),
            key(
                "tls.client_crl",
                "path",
                "none",
                "with `client_ca`",
                "PEM: lists of revoked certificates. Then each issuer in a chain needs one.",
            ),
            key(
                "tls.client_auth",
                "word",
                "`\"required\"` with `client_ca`, else `\"off\"`",
                "`off`, `optional`, `required`",
                "Whether clients are asked for certificates. One that is sent must be good.",
            ),
            key(
                "h2c",
                "flag",
                "`false`",
                "",
                "Understand HTTP/2 without TLS too, from clients that begin with its preface. `Upgrade: h2c` is ignored all the same.",
            ),
            key("http2", "table", "`{}`", "", "The three keys below, see [http2.md](http2.md)."),
            key(
                "http2.streams_max",
                "number",
                "`100`",
                "1 to 10000",
                "Requests of one connection that may be under way.",
            ),
            key(
                "http2.window",
                "size",
                "`\"64KiB\"`",
                "65535 bytes to 16 MiB",
                "Bytes of one request's body that a client may send ahead of the upstream.",
            ),
            key(
                "http2.connection_window",
                "size",
                "`streams_max` times `window`",
                "65535 bytes to 16 MiB",
                "The same of all requests of a connection together. With less than there is room for by default, uploads that their upstreams do not take hold up the others.",
            ),
            key("timeouts", "table", "`{}`", "", "The five keys below."),
            key(
                "timeouts.handshake",
                "timeout",
                "`\"10s\"`",
                "10 ms to a day",
                "For a client's whole TLS handshake; then it is cut.",
            ),
            key(
                "timeouts.head",
                "timeout",
                "`\"10s\"`",
                "10 ms to a day",
                "For the whole head of a request, however it trickles in: 408.",
            ),
            key(
                "timeouts.body",
                "timeout",
                "`\"30s\"`",
                "10 ms to a day",
                "Between two reads of a request's body: 408.",
            ),
            key(
                "timeouts.idle",
                "timeout",
                "`\"75s\"`",
                "10 ms to a day",
                "How long a connection may stay unused between requests; then it is closed.",
            ),
            key(
                "timeouts.write",
                "timeout",
                "`\"30s\"`",
                "10 ms to a day",
                "How long a client may take nothing of what is written to it; then it is cut.",
            ),
        ],
    },
    Section {
        name: "upstream.NAME",
        keys: &[
            key(
                "balance",
                "word",
                "`\"round_robin\"`",
                "`round_robin`",
                "How an endpoint is picked: in turn, smoothly by weight.",
            ),
            key(
                "protocol",
                "word",
                "`\"http1\"`",
                "`http1`, `http2`, `auto`",
                "What is spoken to the endpoints. `\"http2\"` asks nobody on clear text and insists on it over TLS; `\"auto\"` lets the endpoint choose over TLS, and is HTTP/1.1 on clear text. See [http2.md](http2.md).",
            ),
            key(
                "endpoints",
                "list of tables",
                "required",
                "1 to 4096, no address twice",
                "`[{ address = \"...\", weight = 100, zone = \"a\" }]`",
            ),
            key(
                "endpoints.address",
                "address",
                "required",
                "port 1 to 65535",
                "`\"127.0.0.1:9001\"`, `\"[::1]:9001\"`, `\"name.example:9001\"` or `\"unix:/path\"`. A name is looked up again and again; while it does not resolve its endpoint gets no requests.",
            ),
            key(
                "endpoints.weight",
                "number",
                "`100`",
                "0 to 65535, not all 0",
                "Share of the traffic. 0 gets none.",
            ),
            key(
                "endpoints.zone",
                "word",
                "none",
                "1 to 64 printable characters",
                "Where the endpoint is.",
            ),
            key(
                "in_flight_max",
                "number",
                "no cap",
                "1 to 16777216",
                "Requests in flight to this upstream; divided among the workers, at least one each. Above it: 503, or `queue`.",
            ),
            key(
                "concurrency",
                "table",
                "none",
                "not with `in_flight_max`",
                "A cap that follows how long answers take ([bulkheads.md](bulkheads.md)).",
            ),
            key(
                "concurrency.min",
                "number",
                "required",
                "1 to 16777216",
                "The least that it falls to; divided among the workers.",
            ),
            key(
                "concurrency.max",
                "number",
                "required",
                "`min` to 16777216",
                "The most that it rises to; divided among the workers.",
            ),
            key(
                "queue",
                "table",
                "none",
                "with `in_flight_max` or `concurrency`",
                "Requests above it wait ([bulkheads.md](bulkheads.md)).",
            ),
            key(
                "queue.length_max",
                "number",
                "required",
                "1 to 65536",
                "How many may wait; divided among the workers in the same way. Above it: 503.",
            ),
            key(
                "queue.timeout",
                "timeout",
                "required",
                "10 ms to a day",
                "How long each may wait: 503.",
            ),
            key(
                "idle_connections_max",
                "number",
                "`1024`",
                "0 to 65535",
                "Unused connections kept for each endpoint and worker. 0 keeps none.",
            ),
            key("tls", "table", "none", "", "Endpoints speak TLS ([tls.md](tls.md))."),
            key(
                "tls.verify",
                "flag",
                "`true`",
                "",
                "Whether their certificates are verified. `false` believes whoever answers.",
            ),
            key(
                "tls.ca",
                "path",
                "what the system trusts",
                "relative to this file",
                "PEM: the authorities that their certificates are verified by.",
            ),
            key(
                "tls.sni",
                "name",
                "the endpoint's host",
                "a host or an IP address",
                "The name that is asked for, and that the certificate must be for.",
            ),
            key(
                "tls.cert",
                "path",
                "none",
                "with `key`",
                "PEM: the certificate to show to endpoints that ask for one.",
            ),
            key("tls.key", "path", "none", "with `cert`", "PEM: its key, not encrypted."),
            key("tls.min_version", "word", "`\"1.2\"`", "`1.2`, `1.3`", "The oldest version."),
            key("retry", "table", "`{}`", "", "What is tried again ([retries.md](retries.md))."),
            key(
                "retry.budget_percent",
                "number",
                "`20`",
                "0 to 100",
                "Retries that a hundred requests pay for. 0 tries nothing again.",
            ),
            key(
                "retry.on",
                "list of words",
                "`[\"connect\", \"stale\", \"refused_stream\"]`",
                "those, `reset`, `timeout`, `502`, `503`, `504`",
                "What a request is tried again for.",
            ),
            key(
                "retry.tries",
                "number",
                "`2`; without `retry` 3",
                "1 to 10",
                "How often a request is tried, the first included.",
            ),
            key(
                "retry.per_try_timeout",
                "timeout",
                "none",
                "10 ms to a day",
                "For one try, up to the head of its answer: 504, or the next try.",
            ),
            key(
                "retry.methods",
                "list of words",
                "the idempotent ones",
                "`GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT`, `DELETE`, `POST`, `PATCH`",
                "Methods that may reach an origin twice. `connect` and `refused_stream` ask for none.",
            ),
            key(
                "retry.body_bytes_max",
                "size",
                "`\"64KiB\"`; without `retry` 0",
                "0 to 16 MiB",
                "Bytes of a body that are kept while it is sent; a longer one cannot be sent again.",
            ),
            key(
                "retry.other_endpoint",
                "flag",
                "`true`",
                "",
                "Whether the next try goes to another endpoint, where there is one.",
            ),
            key("timeouts", "table", "`{}`", "", "The five keys below."),
            key(
                "timeouts.connect",
                "timeout",
                "`\"3s\"`",
                "10 ms to a day",
                "To connect to an endpoint, all addresses of its name and the TLS handshake together: 504.",
            ),
            key(
                "timeouts.response",
                "timeout",
                "`\"15s\"`",
                "10 ms to a day",
                "From the end of the request to the head of the answer: 504.",
            ),
            key(
                "timeouts.body",
                "timeout",
                "`\"60s\"`",
                "10 ms to a day",
                "Between two reads of the answer's body; then the answer is cut.",
            ),
            key(
                "timeouts.idle",
                "timeout",
                "`\"50s\"`",
                "10 ms to a day",
                "How long an unused connection is kept. Keep it below the endpoint's own.",
            ),
            key(
                "timeouts.tunnel",
                "timeout",
                "`\"1h\"`",
                "10 ms to a day",
                "How long a tunnel (Upgrade) may carry nothing in either direction.",
            ),
            key(
                "timeouts.tunnel_total",
                "timeout",
                "none",
                "10 ms to a day",
                "How long a tunnel may last, whatever it carries.",
            ),
        ],
    },
    requests::ROUTE,
    requests::WHEN,
    requests::FILTER,
];
