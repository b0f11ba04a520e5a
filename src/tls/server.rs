//! The server's side: what a listener shows its clients and asks of them.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::files::Files;
use super::resolver::ByName;
use super::tickets::Kept;
use super::{Fingerprint, provider, suite_name, versions};
use crate::config::Diagnostic;
use crate::config::decode::hint;
use crate::config::tree::Spanned;
use crate::config::written::{ClientAuth, ListenerTls, TlsVersion};

/// What a listener does for clients that speak TLS. Shared by all workers, never changed.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificates: Vec<ServedCertificate>,
    client_auth: ClientAuth,
    asks: [u8; 32],
}

/// A certificate of a listener, as `status` and the metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedCertificate {
    /// The file that it was read from.
    pub path: Box<str>,
    /// Its subject.
    pub subject: Box<str>,
    /// The names of hosts that it is for.
    pub hosts: Vec<Box<str>>,
    /// Until when it is valid, in seconds since 1970.
    pub not_after: i64,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificates", &self.certificates)
            .field("client_auth", &self.client_auth)
            .finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Compiles `tls` of the listener called `name`. What is wrong has been said in `files` where
    /// there is none.
    pub fn compile(
        name: &str,
        written: &ListenerTls,
        files: &mut Files,
        kept: &mut Kept,
    ) -> Option<Arc<ServerTls>> {
        // All of them, so that everything that is wrong is said at once.
        let chains: Vec<_> = written.certs.iter().map(|pair| files.chain(pair)).collect();
        let provider = suites(written, files);
        let clients = Clients::compile(written, files);
        let chains: Vec<_> = chains.into_iter().collect::<Option<_>>()?;
        let (provider, clients) = (provider?, clients?);
        let mut asks = Fingerprint::default();
        asks.add(&clients.policy);
        asks.add(format!("{:?}", written.min_version).as_bytes());
        let asks = asks.digest();
        let named = |(chain, pair): (&super::files::Chain, &crate::config::written::KeyPair)| {
            ServedCertificate {
                path: pair.cert.value.display().to_string().into(),
                subject: chain.facts.subject.clone(),
                hosts: chain.facts.hosts.clone(),
                not_after: chain.facts.not_after,
            }
        };
        let certificates = chains.iter().zip(&written.certs).map(named).collect();
        let resolver =
            ByName::new(chains.into_iter().map(|chain| (chain.key, chain.facts.hosts)).collect());
        let built = Self::config(name, written, (provider, clients), resolver, kept);
        match built {
            Ok(config) => {
                let client_auth = auth(written);
                Some(Arc::new(ServerTls {
                    config: Arc::new(config),
                    certificates,
                    client_auth,
                    asks,
                }))
            }
            Err(error) => {
                let message = format!("TLS cannot be set up: {error}");
                files.errors.push(Diagnostic::error(written.span.clone(), message));
                None
            }
        }
    }

    fn config(
        name: &str,
        written: &ListenerTls,
        (provider, clients): (Arc<CryptoProvider>, Clients),
        resolver: ByName,
        kept: &mut Kept,
    ) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(written.min_version))?
            .with_client_cert_verifier(clients.verifier)
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols =
            written.alpn.iter().map(|alpn| alpn.name().as_bytes().to_vec()).collect();
        config.ticketer = kept.tickets(name, clients.policy)?;
        // Tickets hold the state: a store would be a lock, and one more thing to fill up.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    /// A handshake to be.
    ///
    /// # Errors
    /// rustls cannot begin one, for want of memory or random numbers.
    pub fn session(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(self.config.clone())
    }

    /// Its certificates, in the order of the configuration.
    pub fn certificates(&self) -> &[ServedCertificate] {
        &self.certificates
    }

    /// Stands for all that clients must prove and speak to be let in: `client_auth`, the contents of
    /// `client_ca` and `client_crl`, `min_version`. Its own certificates do not count.
    pub fn asks(&self) -> &[u8; 32] {
        &self.asks
    }

    /// Whether clients are asked for certificates.
    pub fn client_auth(&self) -> ClientAuth {
        self.client_auth
    }
}

/// What clients must prove.
struct Clients {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Told apart by everything that it depends on.
    policy: [u8; 32],
}

/// With authorities to verify by, leaving the key out asks for certificates.
fn auth(written: &ListenerTls) -> ClientAuth {
    match (&written.client_auth, &written.client_ca) {
        (Some(given), _) => given.value,
        (None, Some(_)) => ClientAuth::Required,
        (None, None) => ClientAuth::Off,
    }
}

impl Clients {
    fn compile(written: &ListenerTls, files: &mut Files) -> Option<Clients> {
        let auth = auth(written);
        let mut policy = Fingerprint::default();
        policy.add(format!("{auth:?}").as_bytes());
        let roots = written.client_ca.as_ref().map(|ca| files.roots(ca));
        let lists = written.client_crl.as_ref().map(|crl| (crl, files.revocations(crl)));
        let Some(roots) = roots else {
            let given = written.client_auth.as_ref().filter(|given| given.value != ClientAuth::Off);
            let given = given.map(|given| (given.span(), "client_auth"));
            let crl = written.client_crl.as_ref().map(|crl| (crl.span(), "client_crl"));
            if let Some((span, key)) = given.or(crl) {
                let error = Diagnostic::error(span, format!("`{key}` needs `client_ca`"));
                let remedy = "add client_ca = \"clients-ca.pem\": the authorities that clients' \
                              certificates are verified by";
                files.errors.push(error.label("verified by whom?").remedy(remedy));
                return None;
            }
            let verifier = WebPkiClientVerifier::no_client_auth();
            return Some(Clients { verifier, policy: policy.digest() });
        };
        let (roots, encoded) = roots?;
        policy.add(&encoded);
        let (crl, lists) = match lists {
            Some((crl, lists)) => (Some(crl), lists?),
            None => (None, Vec::new()),
        };
        lists.iter().for_each(|list| policy.add(list));
        if auth == ClientAuth::Off {
            let verifier = WebPkiClientVerifier::no_client_auth();
            return Some(Clients { verifier, policy: policy.digest() });
        }
        let verifier = verifier(auth, roots, lists);
        let verifier = verifier.map_err(|error| {
            let file = crl.or(written.client_ca.as_ref()).expect("there is a CA");
            let message = format!("`{}` cannot be used: {error}", file.value.display());
            files.fail(file, message, "not usable", "have it issued again");
        });
        Some(Clients { verifier: verifier.ok()?, policy: policy.digest() })
    }
}

fn verifier(
    auth: ClientAuth,
    roots: RootCertStore,
    lists: Vec<rustls::pki_types::CertificateRevocationListDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider().clone());
    let builder = builder.with_crls(lists);
    match auth {
        ClientAuth::Optional => builder.allow_unauthenticated().build(),
        ClientAuth::Required | ClientAuth::Off => builder.build(),
    }
}

/// What to compute with: all suites that rustls has, or those of `ciphers` in their order.
fn suites(written: &ListenerTls, files: &mut Files) -> Option<Arc<CryptoProvider>> {
    if written.ciphers.is_empty() {
        return Some(provider().clone());
    }
    let known: Vec<_> =
        provider().cipher_suites.iter().map(|it| (suite_name(it.suite()), *it)).collect();
    let mut chosen = Vec::new();
    for Spanned { value: name, start, end } in &written.ciphers {
        let iana = name.replacen("TLS13_", "TLS_", 1);
        match known.iter().find(|(known, _)| *known == iana) {
            Some((_, suite)) if !chosen.contains(suite) => chosen.push(*suite),
            Some(_) => {}
            None => {
                let message =
                    format!("`{}` is no cipher suite that is supported", name.escape_debug());
                let names = known.iter().map(|(name, _)| &**name);
                let error =
                    Diagnostic::error(*start..*end, message).label("not known, or not safe");
                files.errors.push(error.remedy(hint(name, names, "write IANA's names")));
                return None;
            }
        }
    }
    let of_13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
    if written.min_version == TlsVersion::Tls13 && !chosen.iter().any(of_13) {
        let message = "no suite of TLS 1.3 is among `ciphers`";
        let error = Diagnostic::error(written.span.clone(), message);
        let remedy = "add \"TLS_AES_128_GCM_SHA256\", or lower `min_version`";
        files.errors.push(error.label("no version is left").remedy(remedy));
        return None;
    }
    Some(Arc::new(CryptoProvider { cipher_suites: chosen, ..(**provider()).clone() }))
}
