//! What every key of a configuration is, as docs/configuration.md shows it.
//!
//! tests/reference_page.rs holds this list against the keys that decoding asks for, and the page against
//! this list. The keys of filters stand with their filters.

mod health;
mod requests;
mod upstream;

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
            key(
                "zone",
                "word",
                "none",
                "1 to 64 printable characters",
                "Where this node is: what `locality` of an upstream goes by.",
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
            key(
                "tcp_keepalive",
                "duration",
                "none",
                "3 s to 2 h",
                "How long a client may be silent before the kernel asks whether it is there, as for [upstreams](#upstreamname).",
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
    upstream::UPSTREAM,
    health::HEALTH,
    health::BREAKER,
    requests::ROUTE,
    requests::WHEN,
    requests::FILTER,
];
