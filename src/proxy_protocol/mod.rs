//! The PROXY protocol, versions 1 and 2: what a proxy says of a connection before its first byte.
//!
//! Written from the specification of the HAProxy project ("The PROXY protocol", 2020/03/05 with the
//! types that were added since), whose sections are quoted as `PP`. Parsing is sans-IO and stateless:
//! it takes all that has come and says what it is; only `read` does I/O. `encode` writes what origins are
//! told.

mod crc32c;
mod encode;
mod read;
mod v1;
mod v2;

pub use encode::{encode, encode_own};
pub use read::{Times, read_header};

use std::net::SocketAddr;

use crate::observe::series::ProxyProtocolResult;

/// `proxy_protocol` of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No header is looked for.
    #[default]
    Off,
    /// A header of a trusted peer is taken where there is one.
    Optional,
    /// A connection without one, or of another peer, is closed.
    Required,
}

/// What the bytes of a connection begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Not yet known.
    More,
    /// No header.
    Plain,
    /// A header; what follows it is the client's.
    Header(Header),
}

/// A whole header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its bytes.
    pub length: usize,
    /// How it is written.
    pub version: Version,
    /// What it announces; none where the proxy speaks for itself (PP 2.2, LOCAL), as in a health
    /// check: the peer is the client.
    pub announced: Option<Announced>,
}

/// How a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// One line of text (PP 2.1).
    V1,
    /// Binary (PP 2.2).
    V2,
}

/// What a proxy says of the connection that it passes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Its two ends.
    pub ends: Ends,
    /// PP2_TYPE_ALPN: what was agreed on in the client's handshake.
    pub alpn: Option<Box<[u8]>>,
    /// PP2_TYPE_AUTHORITY: the name that the client asked for, as SNI.
    pub authority: Option<Box<[u8]>>,
    /// PP2_TYPE_UNIQUE_ID: the proxy's name for the connection.
    pub unique_id: Option<Box<[u8]>>,
    /// PP2_TYPE_NETNS: the network namespace that it came by.
    pub netns: Option<Box<[u8]>>,
    /// PP2_TYPE_SSL: the client's TLS.
    pub ssl: Option<Ssl>,
}

/// The ends of a connection that a proxy passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// The proxy does not know them (UNKNOWN, AF_UNSPEC).
    #[default]
    Unknown,
    /// Unix sockets: the client is on the proxy's machine.
    Unix,
    /// Over IP.
    Inet {
        /// The client.
        source: SocketAddr,
        /// What it connected to.
        destination: SocketAddr,
    },
}

/// A client's TLS (PP 2.2.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssl {
    /// PP2_CLIENT_SSL: the client connected over TLS.
    pub used: bool,
    /// The client presented a certificate, on this connection or in its session, and it was verified.
    pub verified: bool,
    /// It was, and not on this connection but when its session began.
    pub resumed: bool,
    /// PP2_SUBTYPE_SSL_VERSION, such as `TLSv1.3`.
    pub version: Option<Box<[u8]>>,
    /// PP2_SUBTYPE_SSL_CN: the common name of the client's certificate.
    pub cn: Option<Box<[u8]>>,
    /// PP2_SUBTYPE_SSL_CIPHER
    pub cipher: Option<Box<[u8]>>,
}

/// A text of a header that conditions, texts and logs may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// The name that the client asked for.
    Authority,
    /// The proxy's name for the connection.
    UniqueId,
    /// What was agreed on in the client's handshake.
    Alpn,
    /// Version of the client's TLS.
    SslVersion,
    /// Common name of the client's certificate, if the proxy verified it.
    SslCn,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It does not follow the grammar of version 1.
    V1,
    /// It does not follow the layout of version 2.
    V2,
    /// It is longer than its bound.
    TooLong,
    /// Its checksum does not fit.
    Checksum,
}

impl Announced {
    /// The client's address, where the proxy knows it.
    pub fn source(&self) -> Option<SocketAddr> {
        match self.ends {
            Ends::Inet { source, .. } => Some(canonical(source)),
            Ends::Unknown | Ends::Unix => None,
        }
    }

    /// What the client connected to, where the proxy knows it.
    pub fn destination(&self) -> Option<SocketAddr> {
        match self.ends {
            Ends::Inet { destination, .. } => Some(canonical(destination)),
            Ends::Unknown | Ends::Unix => None,
        }
    }

    /// One of the facts that conditions, texts and logs may name, where it was announced.
    pub fn fact(&self, fact: Fact) -> Option<&[u8]> {
        let ssl = self.ssl.as_ref();
        match fact {
            Fact::Authority => self.authority.as_deref(),
            Fact::UniqueId => self.unique_id.as_deref(),
            Fact::Alpn => self.alpn.as_deref(),
            Fact::SslVersion => ssl.filter(|ssl| ssl.used)?.version.as_deref(),
            // No other is an identity.
            Fact::SslCn => ssl.filter(|ssl| ssl.verified)?.cn.as_deref(),
        }
    }
}

impl Fact {
    /// Every fact.
    pub const ALL: [Fact; 5] =
        [Fact::Authority, Fact::UniqueId, Fact::Alpn, Fact::SslVersion, Fact::SslCn];

    /// Its name in conditions and in the access log.
    pub fn name(self) -> &'static str {
        match self {
            Fact::Authority => "proxy_authority",
            Fact::UniqueId => "proxy_unique_id",
            Fact::Alpn => "proxy_alpn",
            Fact::SslVersion => "proxy_ssl_version",
            Fact::SslCn => "proxy_ssl_cn",
        }
    }

    /// The fact of this name.
    pub fn named(name: &str) -> Option<Fact> {
        Fact::ALL.into_iter().find(|fact| fact.name() == name)
    }
}

/// A proxy that listens on both families announces IPv4 clients in IPv6's notation.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Header {
    /// As it is counted.
    pub fn result(&self) -> ProxyProtocolResult {
        match (self.version, &self.announced) {
            (Version::V1, _) => ProxyProtocolResult::V1,
            (Version::V2, Some(_)) => ProxyProtocolResult::V2,
            (Version::V2, None) => ProxyProtocolResult::Local,
        }
    }
}

impl From<Malformed> for ProxyProtocolResult {
    fn from(malformed: Malformed) -> ProxyProtocolResult {
        match malformed {
            Malformed::V1 => ProxyProtocolResult::MalformedV1,
            Malformed::V2 => ProxyProtocolResult::MalformedV2,
            Malformed::TooLong => ProxyProtocolResult::TooLong,
            Malformed::Checksum => ProxyProtocolResult::Checksum,
        }
    }
}

/// Says what a connection begins with, of which `bytes` have come so far.
///
/// What begins as a header is never [`Found::Plain`]: once its signature is whole, it is a header or
/// malformed. Nothing that a client of HTTP sends begins with either signature.
///
/// # Errors
/// What is wrong with the header.
pub fn parse(bytes: &[u8]) -> Result<Found, Malformed> {
    if bytes.starts_with(v1::SIGNATURE) {
        return v1::parse(bytes);
    }
    if bytes.starts_with(v2::SIGNATURE) {
        return v2::parse(bytes);
    }
    let undecided = v1::SIGNATURE.starts_with(bytes) || v2::SIGNATURE.starts_with(bytes);
    Ok(if undecided { Found::More } else { Found::Plain })
}

#[cfg(test)]
mod tests;
