//! Tests of what is decided without a connection.

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use super::certificate::CertificateFacts;
use super::resolver::ByName;
use super::{Fingerprint, provider, suite_name};

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names")
}

fn certified(names: &[&str], kind: &'static rcgen::SignatureAlgorithm) -> Arc<CertifiedKey> {
    let key = KeyPair::generate_for(kind).expect("a key");
    let certificate = params(names).self_signed(&key).expect("a certificate");
    let chain = vec![certificate.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    Arc::new(CertifiedKey::from_der(chain, key, provider()).expect("a pair"))
}

#[test]
fn exact_names_come_before_wildcards_of_one_label() {
    let given: [&[&str]; 4] =
        [&["default.test"], &["*.a.test"], &["x.a.test", "a.test"], &["*.x.a.test"]];
    let keys: Vec<_> =
        given.iter().map(|names| certified(names, &PKCS_ECDSA_P256_SHA256)).collect();
    let named = keys
        .iter()
        .zip(given)
        .map(|(key, names)| (key.clone(), names.iter().map(|name| Box::from(*name)).collect()));
    let by_name = ByName::new(named.collect());
    for (name, wanted) in [
        (None, 0),
        (Some("default.test"), 0),
        (Some("x.a.test"), 2),
        (Some("X.A.TEST"), 2),
        (Some("x.a.test."), 2),
        (Some("y.a.test"), 1),
        (Some("y.x.a.test"), 3),
        (Some("z.y.a.test"), 0),
        (Some("a.test"), 2),
        (Some("test"), 0),
        (Some("*.a.test"), 1),
    ] {
        let found = by_name.find(name);
        assert!(found.len() == 1 && Arc::ptr_eq(&found[0], &keys[wanted]), "{name:?}");
    }
}

#[test]
fn a_name_has_one_certificate_for_each_kind_of_key() {
    let name: Vec<Box<str>> = vec!["a.test".into()];
    let keys = [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519, &PKCS_ECDSA_P256_SHA256]
        .map(|kind| certified(&["a.test"], kind));
    let by_name = ByName::new(keys.iter().map(|key| (key.clone(), name.clone())).collect());
    for asked in [Some("a.test"), None] {
        let found = by_name.find(asked);
        assert_eq!(found.len(), 2, "the third has the kind of the first");
        assert!(Arc::ptr_eq(&found[0], &keys[0]) && Arc::ptr_eq(&found[1], &keys[1]));
    }
}

/// RFC 4514: no value gets out of its place in a subject.
#[test]
fn subjects_and_names_cannot_be_forged_by_their_values() {
    let mut params = params(&["A.test"]);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Ex, CN=admin\r\n");
    params.distinguished_name.push(DnType::CommonName, " #gr\u{fc}n+");
    params.serial_number = Some(0x1f_u64.into());
    let uri = "spiffe://a/b,DNS:admin.test".try_into().expect("a name");
    params.subject_alt_names.push(SanType::URI(uri));
    params.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 1].into()));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let facts = CertificateFacts::parse(certificate.der()).expect("a certificate");
    assert_eq!(&*facts.subject, "CN=\\ #gr\\C3\\BCn\\+,O=Ex\\, CN\\=admin\\0D\\0A");
    assert_eq!(&*facts.sans, "DNS:A.test,URI:spiffe://a/b\\,DNS:admin.test,IP:192.0.2.1");
    assert_eq!(facts.hosts, ["a.test".into()]);
    assert!(facts.serial.ends_with("1F") && facts.fingerprint.len() == 64);
    assert_eq!(facts.issued.by, facts.issued.to);
    let der = certificate.der();
    for end in 0..der.len() {
        assert!(CertificateFacts::parse(&der[..end]).is_none(), "{end}");
    }
}

#[test]
fn suites_have_their_names_of_iana_and_fingerprints_tell_parts_apart() {
    let names: Vec<_> =
        provider().cipher_suites.iter().map(|suite| suite_name(suite.suite())).collect();
    assert!(names.iter().all(|name| name.starts_with("TLS_")), "{names:?}");
    let of = |parts: &[&[u8]]| {
        let mut all = Fingerprint::default();
        parts.iter().for_each(|part| all.add(part));
        all.digest()
    };
    assert_ne!(of(&[b"a", b"b"]), of(&[b"ab"]));
    assert_ne!(of(&[b"a", b""]), of(&[b"a"]));
    assert_eq!(super::hex(&super::sha256(b""), false)[..8], *"e3b0c442");
}
