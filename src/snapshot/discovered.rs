//! Endpoints that were discovered: what is known of them, and how a snapshot comes to have them.
//!
//! Every snapshot has those that are known when it is made. When others are found, a snapshot is
//! derived from the one in force: it shares everything but upstreams and names, so that it costs
//! nothing for each route (docs/decisions/0018).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Ids, Snapshot, balance, compile, upstreams};
use crate::config::{Diagnostic, Gathered, written};
use crate::observe::Names;
use crate::upstream::{Discover, EndpointId, Found, UpstreamPlan};

/// The last good endpoints of each upstream that discovers them, by its name and by where they are
/// found: who looks elsewhere knows nothing yet.
#[derive(Clone, Debug, Default)]
pub struct Discovered(BTreeMap<(Box<str>, Discover), Arc<[Found]>>);

impl Discovered {
    /// Those of an upstream, once there are some.
    pub fn get(&self, upstream: &str, source: &Discover) -> Option<Arc<[Found]>> {
        self.0.get(&(upstream.into(), source.clone())).cloned()
    }

    /// Takes over those of an upstream, in place of what was known.
    pub fn set(&mut self, upstream: &str, source: &Discover, found: Arc<[Found]>) {
        self.0.insert((upstream.into(), source.clone()), found);
    }
}

impl Snapshot {
    /// The upstreams that discover their endpoints, and where.
    pub fn discovering(&self) -> impl Iterator<Item = (&UpstreamPlan, &Discover)> {
        self.upstreams.iter().filter_map(|plan| Some((&**plan, plan.discover.as_ref()?)))
    }

    /// The same configuration with the endpoints that `ids` knows by now.
    pub fn rediscovered(&self, ids: &mut Ids) -> Snapshot {
        let renewed = |plan: &Arc<UpstreamPlan>| {
            let Some(found) = of(plan, ids) else { return plan.clone() };
            let endpoints = upstreams::endpoints(plan, &found, ids);
            let mut renewed = UpstreamPlan { endpoints, ..UpstreamPlan::clone(plan) };
            renewed.balance = balance::seated(&renewed, ids);
            Arc::new(renewed)
        };
        let upstreams: Vec<_> = self.upstreams.iter().map(renewed).collect();
        let endpoints = compile::endpoint_names(&upstreams);
        for (id, _) in self.names.endpoints.iter().filter(|(id, _)| !endpoints.holds(*id)) {
            ids.has_gone(EndpointId(id));
        }
        let names = Arc::new(Names { endpoints, ..Names::clone(&self.names) });
        Snapshot { fixed: self.fixed.clone(), upstreams, names }
    }
}

/// What is known of the endpoints of an upstream, if it discovers them; nothing is none.
pub(super) fn of(plan: &UpstreamPlan, ids: &Ids) -> Option<Arc<[Found]>> {
    let source = plan.discover.as_ref()?;
    Some(ids.discovered.get(&plan.name, source).unwrap_or_default())
}

/// Reads a file of endpoints, TOML or by its name JSON. Blocks.
///
/// # Errors
/// What is wrong with it, as text: file, line and remedy.
pub fn read_endpoints(path: &Path) -> Result<Vec<Found>, String> {
    let name = path.display().to_string();
    let gathered = Gathered::from_file(path, &|name| std::env::var_os(name));
    let Gathered { sources, tree, complete, mut decoder, .. } = gathered;
    let written = complete.then(|| written::endpoints_file(&tree, &mut decoder)).flatten();
    let mut found = std::mem::take(&mut decoder.found);
    if let Some(written) = &written {
        upstreams::check_endpoints(&format!("`{name}`"), written, &mut found);
    }
    if sources.count() > 1 {
        // Those would have to be watched too.
        let message = "a file of endpoints includes no other";
        found.push(Diagnostic::whole_file(message).remedy("write all endpoints into this one"));
    }
    match written.filter(|_| found.is_empty()) {
        Some(written) => Ok(written.value.iter().map(upstreams::found).collect()),
        None => Err(found.render(&sources, false).trim_end().to_owned()),
    }
}
