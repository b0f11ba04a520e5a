//! Which certificate a client gets: by the name that it asks for, and by what it can verify.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificates of a listener by name.
#[derive(Debug)]
pub(super) struct ByName {
    /// Names in lower case.
    exact: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// What follows `*.`: one label stands in front of it (RFC 9525 section 6.3).
    wildcard: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// For clients that ask for no name, or for one that nobody has.
    default: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    /// Certificates and their names; the first one is the default, together with those of other
    /// kinds of keys that share a name with it.
    pub(super) fn new(certificates: Vec<(Arc<CertifiedKey>, Vec<Box<str>>)>) -> ByName {
        let mut by_name =
            ByName { exact: HashMap::new(), wildcard: HashMap::new(), default: Vec::new() };
        let first: Vec<Box<str>> =
            certificates.first().map(|(_, names)| names.clone()).unwrap_or_default();
        for (at, (key, names)) in certificates.into_iter().enumerate() {
            for name in &names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut by_name.wildcard, Box::from(rest)),
                    None => (&mut by_name.exact, name.clone()),
                };
                add(map.entry(name).or_default(), &key);
            }
            if at == 0 || names.iter().any(|name| first.contains(name)) {
                add(&mut by_name.default, &key);
            }
        }
        by_name
    }

    /// Those for a name; the most specific win.
    pub(super) fn find(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name else { return &self.default };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let above = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(&*name).or_else(above).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.find(hello.server_name());
        // For TLS 1.2 rustls has left out what none of the client's suites can use.
        let usable =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        found.iter().find(usable).or_else(|| found.first()).cloned()
    }
}

/// Of each kind of key the first; RSA last, because its signatures cost ten times as much.
fn add(keys: &mut Vec<Arc<CertifiedKey>>, key: &Arc<CertifiedKey>) {
    let kind = key.key.algorithm();
    if keys.iter().any(|other| other.key.algorithm() == kind) {
        return;
    }
    keys.push(key.clone());
    keys.sort_by_key(|key| key.key.algorithm() == SignatureAlgorithm::RSA);
}
