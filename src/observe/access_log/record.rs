//! What the access log says of one exchange.

use std::net::IpAddr;

/// One exchange, borrowed from where its facts stand. A text that is empty is missing.
///
/// Every text may hold any bytes; which of them come from outsiders is not asked.
#[derive(Clone, Debug)]
pub struct AccessRecord<'a> {
    /// When its head was complete, in microseconds since 1970-01-01T00:00:00Z
    /// ([`super::LogBuffer::wall_us`]).
    pub started_us: u64,
    /// Address of the client, behind trusted proxies that of the one that they name.
    pub client: IpAddr,
    /// Request method.
    pub method: &'a [u8],
    /// Request target, as received.
    pub target: &'a [u8],
    /// Protocol version as a request line spells it, `HTTP/1.1`.
    pub version: &'static str,
    /// Value of Host.
    pub host: &'a [u8],
    /// Value of Referer.
    pub referer: &'a [u8],
    /// Value of User-Agent.
    pub user_agent: &'a [u8],
    /// Status of the answer; where none was begun that of the error; 0 where there is neither.
    pub status: u16,
    /// Bytes of the request's body that were taken.
    pub request_body_bytes: u64,
    /// Bytes of the answer's body that were given.
    pub response_body_bytes: u64,
    /// The id under which the upstream knows the request.
    pub request_id: &'a [u8],
    /// Listener that the client connected to.
    pub listener: &'a str,
    /// Id of the route; empty where none matched.
    pub route: &'a str,
    /// Name of the upstream; empty where none was asked.
    pub upstream: &'a str,
    /// Address of the endpoint as configured; empty where none was asked.
    pub endpoint: &'a str,
    /// Times that the request was sent again.
    pub retries: u32,
    /// Whether the second of two endpoints that were asked at once has answered: `won` or `lost`; none
    /// where only one was asked.
    pub hedge: Option<&'static str>,
    /// From then to the last byte of the answer, in microseconds.
    pub total_us: u64,
    /// The part of that which the upstream had no part in, in microseconds.
    pub gateway_us: u64,
    /// Time to connect to the endpoint, in microseconds; none where a connection was at hand.
    pub connect_us: Option<u64>,
    /// From when the upstream's connection was asked for to the head of its answer, in microseconds.
    pub upstream_head_us: Option<u64>,
    /// Code of the error that ended it (`ErrorKind::code`).
    pub error: Option<&'static str>,
    /// What is known of the client's TLS.
    pub tls: TlsRecord<'a>,
    /// Version of the configuration that it was served by.
    pub config_version: u64,
    /// Which worker served it.
    pub worker: usize,
    /// What a PROXY header told of the client.
    pub announced: AnnouncedTexts<'a>,
}

/// What a PROXY header told of a client's connection. A text that is empty is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnnouncedTexts<'a> {
    /// The name that the client asked for.
    pub authority: &'a [u8],
    /// The proxy's name for the connection.
    pub unique_id: &'a [u8],
    /// What was agreed on in the client's handshake.
    pub alpn: &'a [u8],
    /// Version of the client's TLS.
    pub ssl_version: &'a [u8],
    /// Common name of the client's verified certificate.
    pub ssl_cn: &'a [u8],
}

/// The client's TLS; every text is empty where it speaks none.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsRecord<'a> {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'a str,
    /// Name of the cipher suite.
    pub cipher: &'a str,
    /// The host that the client asked for.
    pub sni: &'a str,
    /// Subject of the client's certificate; empty where it showed none.
    pub client_subject: &'a str,
}

/// What the tests of the log share.
#[cfg(test)]
pub(crate) mod testing {
    use std::net::Ipv4Addr;

    use super::*;

    /// A record that its body's bytes tell apart.
    pub(crate) fn record(number: u64) -> AccessRecord<'static> {
        AccessRecord {
            started_us: number,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            method: b"GET",
            target: b"/",
            version: "HTTP/1.1",
            host: b"a.test",
            referer: b"",
            user_agent: b"",
            status: 200,
            request_body_bytes: 0,
            response_body_bytes: number,
            request_id: b"",
            listener: "public",
            route: "r",
            upstream: "u",
            endpoint: "127.0.0.1:9001",
            retries: 0,
            hedge: None,
            total_us: 0,
            gateway_us: 0,
            connect_us: None,
            upstream_head_us: None,
            error: None,
            tls: TlsRecord::default(),
            config_version: 1,
            worker: 0,
            announced: AnnouncedTexts::default(),
        }
    }
}
