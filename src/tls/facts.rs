//! What is known of a client's TLS connection, for filters, texts and logs.

use super::certificate::CertificateFacts;
use crate::io::tls::TlsStream;

/// The facts of one connection, from its handshake on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// IANA name of its cipher suite.
    pub cipher: &'static str,
    /// The host that the client asked for; empty where it named none.
    pub sni: Box<str>,
    /// The protocol that was agreed on; empty where none was.
    pub alpn: Box<str>,
    /// Whether a ticket took the place of a full handshake.
    pub resumed: bool,
    /// The client's certificate, which has been verified.
    pub client: Option<Box<ClientCertificate>>,
}

/// A client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// What it says.
    pub facts: CertificateFacts,
    not_after: Box<str>,
}

impl TlsFacts {
    /// The facts of a client's connection.
    pub fn of(stream: &TlsStream) -> TlsFacts {
        let alpn = String::from_utf8_lossy(stream.alpn().unwrap_or_default());
        let mut facts = TlsFacts {
            version: stream.version(),
            cipher: stream.cipher(),
            sni: stream.server_name().unwrap_or_default().into(),
            alpn: alpn.into(),
            resumed: stream.resumed(),
            client: None,
        };
        if let Some(certificate) = stream.peer_certificates().first() {
            facts.client = CertificateFacts::parse(certificate).map(ClientCertificate::boxed);
        }
        facts
    }

    /// The value of a fact, if there is one.
    pub fn get(&self, fact: TlsFact) -> Option<&str> {
        let certificate = || self.client.as_deref();
        let value = match fact {
            TlsFact::Version => self.version,
            TlsFact::Cipher => self.cipher,
            TlsFact::Sni => &self.sni,
            TlsFact::Alpn => &self.alpn,
            TlsFact::Resumed => flag(self.resumed),
            TlsFact::CertVerified => flag(self.client.is_some()),
            TlsFact::CertSubject => &certificate()?.facts.subject,
            TlsFact::CertSans => &certificate()?.facts.sans,
            TlsFact::CertSerial => &certificate()?.facts.serial,
            TlsFact::CertFingerprint => &certificate()?.facts.fingerprint,
            TlsFact::CertNotAfter => &certificate()?.not_after,
        };
        Some(value).filter(|value| !value.is_empty())
    }

    /// Whether the client's certificate has expired by `now_s`, in seconds since 1970: that of a
    /// session that is resumed was verified when it began.
    pub fn has_expired(&self, now_s: i64) -> bool {
        self.client.as_ref().is_some_and(|client| client.facts.not_after < now_s)
    }
}

impl ClientCertificate {
    fn boxed(facts: CertificateFacts) -> Box<ClientCertificate> {
        let not_after = facts.not_after.to_string().into();
        Box::new(ClientCertificate { facts, not_after })
    }
}

fn flag(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// One fact of a TLS connection, as configurations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFact {
    /// `tls:version`
    Version,
    /// `tls:cipher`
    Cipher,
    /// `tls:sni`
    Sni,
    /// `tls:alpn`
    Alpn,
    /// `tls:resumed`
    Resumed,
    /// `client_cert:verified`
    CertVerified,
    /// `client_cert:subject`
    CertSubject,
    /// `client_cert:sans`
    CertSans,
    /// `client_cert:serial`
    CertSerial,
    /// `client_cert:fingerprint`
    CertFingerprint,
    /// `client_cert:not_after`
    CertNotAfter,
}

impl TlsFact {
    /// Every fact: its kind, its name, and what it is.
    pub const ALL: &'static [(&'static str, &'static str, TlsFact)] = &[
        ("tls", "version", TlsFact::Version),
        ("tls", "cipher", TlsFact::Cipher),
        ("tls", "sni", TlsFact::Sni),
        ("tls", "alpn", TlsFact::Alpn),
        ("tls", "resumed", TlsFact::Resumed),
        ("client_cert", "verified", TlsFact::CertVerified),
        ("client_cert", "subject", TlsFact::CertSubject),
        ("client_cert", "sans", TlsFact::CertSans),
        ("client_cert", "serial", TlsFact::CertSerial),
        ("client_cert", "fingerprint", TlsFact::CertFingerprint),
        ("client_cert", "not_after", TlsFact::CertNotAfter),
    ];

    /// The fact of a kind (`tls`, `client_cert`) with this name.
    pub fn of(kind: &str, name: &str) -> Option<TlsFact> {
        let same = |known: &&(&str, &str, TlsFact)| (known.0, known.1) == (kind, name);
        TlsFact::ALL.iter().find(same).map(|known| known.2)
    }

    /// Its kind and name.
    pub fn name(self) -> (&'static str, &'static str) {
        let known = TlsFact::ALL.iter().find(|known| known.2 == self);
        known.map(|known| (known.0, known.1)).expect("every fact is listed")
    }

    /// The names of a kind.
    pub fn names(kind: &str) -> impl Iterator<Item = &'static str> {
        TlsFact::ALL.iter().filter(move |known| known.0 == kind).map(|known| known.1)
    }

    /// Its value where there is no TLS.
    pub fn without(self) -> Option<&'static str> {
        matches!(self, TlsFact::CertVerified | TlsFact::Resumed).then_some("false")
    }
}
