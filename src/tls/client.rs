//! The client's side: how upstreams are spoken to.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::files::{Chain, Files};
use super::tickets::Kept;
use super::{Fingerprint, provider, versions};
use crate::config::Diagnostic;
use crate::config::written::UpstreamTls;
use crate::limits::UPSTREAM_SESSIONS_MAX;

/// How an upstream is spoken to over TLS. Shared by all workers; only its sessions change, behind
/// a lock of rustls' that is held for a look into a table (docs/decisions/0011).
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// `sni`
    name: Option<ServerName<'static>>,
    verify: bool,
    identity: [u8; 32],
}

/// How an endpoint is spoken to over TLS.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What its upstream says.
    pub client: Arc<ClientTls>,
    /// Who its certificate must name.
    pub name: ServerName<'static>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Compiles `tls` of an upstream; reads the authorities that the system trusts where it names
    /// none. What is wrong has been said in `files` where there is none.
    pub fn compile(
        written: &UpstreamTls,
        files: &mut Files,
        kept: &mut Kept,
    ) -> Option<Arc<ClientTls>> {
        let verify = written.verify.as_ref().is_none_or(|verify| verify.value);
        let mut made_of = Fingerprint::default();
        made_of.add(format!("{verify} {:?}", written.min_version).as_bytes());
        let roots = written.ca.as_ref().map(|ca| files.roots(ca));
        let pair = written.pair.as_ref().map(|pair| files.chain(pair));
        let name = written.sni.as_ref().map(|sni| {
            let name = ServerName::try_from(&*sni.value).map(|name| name.to_owned()).ok();
            if name.is_none() {
                let message = format!("`{}` is not the name of a host", sni.value.escape_debug());
                let error = Diagnostic::error(sni.span(), message).label("no name");
                files.errors.push(error.remedy("write the name in the upstream's certificate"));
            }
            name
        });
        if let Some(given) = written.verify.as_ref().filter(|given| !given.value) {
            let message = "the certificate of the upstream is not verified";
            let warning = Diagnostic::warning(given.span(), message).label("anybody may answer");
            files.warnings.push(warning.remedy("give `ca` instead: the authority that issued it"));
        }
        let roots = match roots {
            Some(roots) => Some(roots?),
            None if verify => Some((system_roots(written, files)?, b"system".to_vec())),
            None => None,
        };
        let (pair, name) = (pair.map_or(Some(None), |pair| pair.map(Some))?, name.flatten());
        if written.sni.is_some() && name.is_none() {
            return None;
        }
        roots.iter().for_each(|(_, encoded)| made_of.add(encoded));
        made_of.add(written.sni.as_ref().map_or("", |sni| &sni.value).as_bytes());
        // A key that is renewed comes with a certificate that names it.
        let chain = pair.iter().flat_map(|chain| &chain.key.cert);
        chain.for_each(|certificate| made_of.add(certificate));
        let identity = made_of.digest();
        let made = kept.client(identity, || {
            let roots = roots.filter(|_| verify).map(|(roots, _)| roots);
            let config = Arc::new(Self::configured(written, roots, pair)?);
            Ok::<_, rustls::Error>(ClientTls { config, name, verify, identity })
        });
        made.map_err(|error| {
            let message = format!("TLS cannot be set up: {error}");
            files.errors.push(Diagnostic::error(written.span.clone(), message));
        })
        .ok()
    }

    fn configured(
        written: &UpstreamTls,
        roots: Option<RootCertStore>,
        pair: Option<Chain>,
    ) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(provider().clone())
            .with_protocol_versions(versions(written.min_version))?;
        let builder = match roots {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified)),
        };
        let mut config = match pair {
            Some(chain) => {
                let resolver = rustls::sign::SingleCertAndKey::from(chain.key);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(UPSTREAM_SESSIONS_MAX);
        Ok(config)
    }

    /// How the endpoint at `host` is spoken to; `None` where its certificate could not name it.
    pub fn to(self: &Arc<Self>, host: &str) -> Option<ClientSettings> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let by_address = || bare.parse::<IpAddr>().ok().map(ServerName::from);
        let by_host = || ServerName::try_from(bare.to_owned()).ok();
        let name = self.name.clone().or_else(by_address).or_else(by_host)?;
        Some(ClientSettings { client: self.clone(), name })
    }

    /// What rustls is told of it, for connections of the control thread.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// Whether an endpoint's own name matters: it is verified, and nothing else is named.
    pub fn needs_host(&self) -> bool {
        self.verify && self.name.is_none()
    }

    /// What tells it from others: everything that it was made of.
    pub fn identity(&self) -> [u8; 32] {
        self.identity
    }
}

impl ClientSettings {
    /// A handshake to be, which offers `alpn`.
    ///
    /// # Errors
    /// rustls cannot begin one, for want of memory or random numbers.
    pub fn session(&self, alpn: &[&str]) -> Result<UnbufferedClientConnection, rustls::Error> {
        let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = self.client.config.clone();
        UnbufferedClientConnection::new_with_alpn(config, self.name.clone(), alpn)
    }
}

/// The authorities that the system trusts: read once, by the thread that compiles first.
fn system_roots(written: &UpstreamTls, files: &mut Files) -> Option<RootCertStore> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        store
    });
    if roots.is_empty() {
        let message = "the system trusts no certificate authorities";
        let error = Diagnostic::error(written.span.clone(), message).label("verified by whom?");
        let remedy = "name the authority of the upstream with ca = \"ca.pem\", or install \
                      ca-certificates and restart";
        files.errors.push(error.remedy(remedy));
        return None;
    }
    Some(roots.clone())
}

/// `verify = false`: whoever answers is believed; that it has its certificate's key is still checked.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
