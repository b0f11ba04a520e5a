//! TLS of listeners and upstreams: reads the files that it names.

use std::sync::Arc;

use super::Ids;
use crate::config::read::Address;
use crate::config::{Config, Diagnostic};
use crate::tls::{ClientTls, Files, ServerTls};

/// What TLS was compiled to, in the order of the configuration.
pub(super) struct Compiled {
    /// One for each listener; none where it speaks none, or where it is broken.
    pub(super) listeners: Vec<Option<Arc<ServerTls>>>,
    /// The same for upstreams.
    pub(super) upstreams: Vec<Option<Arc<ClientTls>>>,
    /// What was read, and what is wrong with it.
    pub(super) files: Files,
}

impl Compiled {
    pub(super) fn new(config: &Config<'_>, ids: &mut Ids) -> Compiled {
        let mut files = Files::default();
        let kept = &mut ids.tls;
        let listeners = config.listeners.iter().map(|listener| {
            let tls = listener.tls.as_ref()?;
            ServerTls::compile(&listener.name.value, tls, &mut files, kept)
        });
        let listeners = listeners.collect();
        let mut upstreams = Vec::with_capacity(config.upstreams.len());
        for upstream in &config.upstreams {
            let tls = upstream.tls.as_ref();
            let tls = tls.and_then(|tls| ClientTls::compile(tls, &mut files, kept));
            for endpoint in &upstream.endpoints.value {
                let Some(tls) = &tls else { break };
                let address = &endpoint.address;
                let nameless = matches!(address.value, Address::Unix(_)) && tls.needs_host();
                if nameless || tls.to(&host_of(&address.value)).is_none() {
                    let message =
                        format!("endpoint `{}` has no name for its certificate", endpoint.written);
                    let error =
                        Diagnostic::error(address.span(), message).label("verified as whom?");
                    let remedy = "add `sni`, the name in its certificate, to the upstream's `tls`";
                    files.errors.push(error.remedy(remedy));
                }
            }
            upstreams.push(tls);
        }
        Compiled { listeners, upstreams, files }
    }
}

/// The host in an endpoint's address.
pub(super) fn host_of(address: &Address) -> String {
    match address {
        Address::Socket(address) => address.ip().to_string(),
        Address::Name(host, _) => host.trim_end_matches('.').to_owned(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}
