//! Why handshakes fail, in words that metrics and logs carry.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use crate::io::stream::Stream;

/// A handshake that failed. The alert for the peer, where there is one, has been sent.
pub struct HandshakeError {
    /// The reason, of a closed set.
    pub reason: HandshakeFailure,
    /// What exactly: for logs.
    pub detail: Box<str>,
    /// The stream below, to be answered on, or to be closed so that the alert is not lost.
    pub stream: Stream,
}

/// Reasons for which handshakes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeFailure {
    /// The peer went away, or the time was up.
    Closed,
    /// The peer speaks HTTP without TLS: an answer 400 would be understood.
    PlainHttp,
    /// No protocol version that both sides allow.
    NoSharedVersion,
    /// No cipher suite, group or signature scheme that both sides allow.
    NoSharedCipher,
    /// No protocol of ALPN that both sides speak.
    NoAlpn,
    /// We have no certificate for the name that the client asked for.
    UnknownName,
    /// The client sent no certificate and must.
    CertificateMissing,
    /// The peer's certificate did not verify.
    CertificateRefused,
    /// The peer's certificate has expired or is not valid yet.
    CertificateExpired,
    /// The origin's certificate is for another name.
    NameMismatch,
    /// The peer sent an alert: it refuses us.
    PeerAlert,
    /// What came breaks the protocol.
    Malformed,
    /// The connection failed, or something of ours did.
    Io,
}

impl HandshakeFailure {
    /// All, in the order of their numbers.
    pub const ALL: [HandshakeFailure; 13] = [
        HandshakeFailure::Closed,
        HandshakeFailure::PlainHttp,
        HandshakeFailure::NoSharedVersion,
        HandshakeFailure::NoSharedCipher,
        HandshakeFailure::NoAlpn,
        HandshakeFailure::UnknownName,
        HandshakeFailure::CertificateMissing,
        HandshakeFailure::CertificateRefused,
        HandshakeFailure::CertificateExpired,
        HandshakeFailure::NameMismatch,
        HandshakeFailure::PeerAlert,
        HandshakeFailure::Malformed,
        HandshakeFailure::Io,
    ];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            HandshakeFailure::Closed => "closed",
            HandshakeFailure::PlainHttp => "plain_http",
            HandshakeFailure::NoSharedVersion => "no_shared_version",
            HandshakeFailure::NoSharedCipher => "no_shared_cipher",
            HandshakeFailure::NoAlpn => "no_alpn",
            HandshakeFailure::UnknownName => "unknown_name",
            HandshakeFailure::CertificateMissing => "certificate_missing",
            HandshakeFailure::CertificateRefused => "certificate_refused",
            HandshakeFailure::CertificateExpired => "certificate_expired",
            HandshakeFailure::NameMismatch => "name_mismatch",
            HandshakeFailure::PeerAlert => "peer_alert",
            HandshakeFailure::Malformed => "malformed",
            HandshakeFailure::Io => "io",
        }
    }

    /// Its place in [`HandshakeFailure::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    pub(super) fn of_io(error: &io::Error) -> HandshakeFailure {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                HandshakeFailure::Closed
            }
            _ => HandshakeFailure::Io,
        }
    }

    pub(super) fn of_session(error: &Error) -> HandshakeFailure {
        match error {
            Error::PeerIncompatible(incompatible) => of_incompatible(incompatible),
            Error::NoApplicationProtocol
            | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                HandshakeFailure::NoAlpn
            }
            Error::NoCertificatesPresented => HandshakeFailure::CertificateMissing,
            Error::InvalidCertificate(invalid) => of_certificate(invalid),
            Error::InvalidCertRevocationList(_) | Error::UnsupportedNameType => {
                HandshakeFailure::CertificateRefused
            }
            // Not a refusal: it has thought better of it.
            Error::AlertReceived(
                AlertDescription::CloseNotify | AlertDescription::UserCanceled,
            ) => HandshakeFailure::Closed,
            Error::AlertReceived(_) => HandshakeFailure::PeerAlert,
            // The one general error that a server's handshake has: its resolver found nothing.
            Error::General(text) if text.contains("no server certificate chain") => {
                HandshakeFailure::UnknownName
            }
            Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => {
                HandshakeFailure::NoSharedVersion
            }
            Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
            | Error::PeerSentOversizedRecord
            | Error::DecryptError => HandshakeFailure::Malformed,
            _ => HandshakeFailure::Io,
        }
    }
}

impl HandshakeError {
    pub(super) fn new(
        reason: HandshakeFailure,
        detail: impl std::fmt::Display,
        stream: Stream,
    ) -> HandshakeError {
        HandshakeError { reason, detail: detail.to_string().into(), stream }
    }
}

impl std::fmt::Debug for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason.name(), self.detail)
    }
}

impl std::error::Error for HandshakeError {}

fn of_incompatible(error: &PeerIncompatible) -> HandshakeFailure {
    match error {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => HandshakeFailure::NoSharedVersion,
        _ => HandshakeFailure::NoSharedCipher,
    }
}

fn of_certificate(error: &CertificateError) -> HandshakeFailure {
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => HandshakeFailure::CertificateExpired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            HandshakeFailure::NameMismatch
        }
        _ => HandshakeFailure::CertificateRefused,
    }
}
