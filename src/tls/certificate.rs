//! What a certificate says (RFC 5280), as texts.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::{hex, sha256};

/// What is known of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its subject as RFC 4514 writes names: the most specific part first, `CN=orders,O=Example`.
    /// Whatever is no printable ASCII is `\XX`.
    pub subject: Box<str>,
    /// The common name of its subject, the most specific one, where it has one.
    pub common_name: Option<Box<str>>,
    /// Its alternative names, `DNS:a.example,URI:spiffe://example/a,IP:192.0.2.1,email:a@example`;
    /// a comma inside one is `\,`. Empty where it has none.
    pub sans: Box<str>,
    /// Its serial number in hexadecimal digits, upper case.
    pub serial: Box<str>,
    /// SHA-256 of all of it in hexadecimal digits, lower case.
    pub fingerprint: Box<str>,
    /// Until when it is valid, in seconds since 1970.
    pub not_after: i64,
    /// The names of hosts among its alternative names, in lower case.
    pub hosts: Vec<Box<str>>,
    /// From when on it is valid, in seconds since 1970.
    pub not_before: i64,
    /// The issuer's name and its own, as they are encoded.
    pub issued: Issued,
}

/// Names by which the certificates of a chain follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The subject of the certificate that signed this one.
    pub by: Box<[u8]>,
    /// Its own subject.
    pub to: Box<[u8]>,
}

impl CertificateFacts {
    /// Reads one; `None` where it is malformed.
    pub fn parse(der: &[u8]) -> Option<CertificateFacts> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let (mut sans, mut hosts) = (Vec::new(), Vec::new());
        let names = certificate.subject_alternative_name().ok().flatten();
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            if let GeneralName::DNSName(host) = name {
                hosts.push(host.to_ascii_lowercase().into());
            }
            sans.extend(alternative(name));
        }
        let validity = certificate.validity();
        Some(CertificateFacts {
            subject: name_text(certificate.subject()).into(),
            common_name: common_name(certificate.subject()),
            sans: sans.join(",").into(),
            serial: hex(certificate.raw_serial(), true).into(),
            fingerprint: hex(&sha256(der), false).into(),
            not_after: validity.not_after.timestamp(),
            hosts,
            not_before: validity.not_before.timestamp(),
            issued: Issued {
                by: certificate.issuer().as_raw().into(),
                to: certificate.subject().as_raw().into(),
            },
        })
    }
}

/// RFC 4514 section 2.1: the last part first.
fn name_text(name: &X509Name<'_>) -> String {
    let parts: Vec<String> = name
        .iter_rdn()
        .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"))
        .collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(",")
}

fn common_name(name: &X509Name<'_>) -> Option<Box<str>> {
    name.iter_common_name().last()?.as_str().ok().map(Box::from)
}

/// RFC 4514 section 2.3: a type without a short name has its value as hexadecimal digits.
fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(number, _)| *number == oid).map(|(_, name)| *name);
    match (known, attribute.as_str()) {
        (Some(name), Ok(value)) => format!("{name}={}", escaped(value.as_bytes(), b",+\"\\<>;=")),
        _ => format!("{oid}=#{}", hex(attribute.as_slice(), false)),
    }
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    let text = |kind: &str, value: &str| format!("{kind}:{}", escaped(value.as_bytes(), b",\\"));
    Some(match name {
        GeneralName::DNSName(host) => text("DNS", host),
        GeneralName::URI(uri) => text("URI", uri),
        GeneralName::RFC822Name(address) => text("email", address),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?;
            format!("IP:{address}")
        }
        _ => return None,
    })
}

/// RFC 4514 section 2.4, and every byte that is not printable ASCII as `\XX`: the text goes into
/// fields and logs.
fn escaped(value: &[u8], special: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for (at, byte) in value.iter().enumerate() {
        let edge = *byte == b' ' && (at == 0 || at + 1 == value.len()) || *byte == b'#' && at == 0;
        match byte {
            b' '..=b'~' if edge || special.contains(byte) => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' '..=b'~' => text.push(char::from(*byte)),
            other => {
                text.push('\\');
                text += &hex(&[*other], true);
            }
        }
    }
    text
}

/// Object identifiers and the short names of RFC 4514 section 3; those that it lacks as OpenSSL has
/// them.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];
