//! TLS as configuration and policy: certificates and who gets which, client certificates, tickets,
//! what is known of a connection afterwards. Records and handshakes are those of `io::tls`.

pub mod certificate;
pub mod client;
pub mod facts;
pub mod files;
pub mod server;
pub mod tickets;

mod resolver;

pub use certificate::CertificateFacts;
pub use client::{ClientSettings, ClientTls};
pub use facts::{TlsFact, TlsFacts};
pub use files::{Files, Watched};
pub use server::{ServedCertificate, ServerTls};
pub use tickets::Kept;

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::config::written::TlsVersion;

/// What all of TLS is computed with.
fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
}

/// The versions from `min` on.
fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ONLY_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match min {
        TlsVersion::Tls12 => rustls::ALL_VERSIONS,
        TlsVersion::Tls13 => &ONLY_13,
    }
}

/// The IANA name of a suite: rustls spells those of TLS 1.3 in its own way.
fn suite_name(suite: rustls::CipherSuite) -> String {
    let name = suite.as_str().unwrap_or("unknown");
    name.replacen("TLS13_", "TLS_", 1)
}

/// SHA-256 (FIPS 180-4).
fn sha256(data: &[u8]) -> [u8; 32] {
    let SupportedCipherSuite::Tls13(suite) = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        unreachable!("it is a suite of TLS 1.3")
    };
    let output = suite.common.hash_provider.hash(data);
    output.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Something that is told apart by everything that went into it.
#[derive(Clone, Debug, Default)]
struct Fingerprint(Vec<u8>);

impl Fingerprint {
    /// Adds a part; no two lists of parts look the same.
    fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.0.extend_from_slice(part);
    }

    fn digest(&self) -> [u8; 32] {
        sha256(&self.0)
    }
}

fn hex(bytes: &[u8], upper: bool) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = match upper {
            true => write!(text, "{byte:02X}"),
            false => write!(text, "{byte:02x}"),
        };
        text
    })
}

#[cfg(test)]
mod tests;
