//! Upstreams that discover their endpoints: when to look for them, and what is known.
//!
//! [`Discovery`] asks nobody itself: it takes answers and says what to look for. `lookup` does I/O, on a
//! thread of its own.

mod lookup;

pub use lookup::{complete, start};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{DISCOVERY_FILE_MS, DISCOVERY_RETRY_MS, DISCOVERY_TTL_MS};
use crate::observe::render::DiscoveryView;
use crate::snapshot::{Discovered, Snapshot};
use crate::tls::files::Stamp;
use crate::upstream::{Discover, Found};

/// An upstream by its name, and where its endpoints are found.
pub type Key = (Box<str>, Discover);

/// What to look for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// For whom, and where.
    pub key: Key,
    /// What is known: of a name whose look-up fails for one family of addresses, those stay.
    last: Option<Arc<[Found]>>,
    /// How a file stood when it was read.
    seen: Option<Stamp>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What was asked for.
    key: Key,
    /// The endpoints, sorted, or why there are none.
    result: Result<Answer, String>,
    /// How a file stood before it was read.
    seen: Option<Stamp>,
}

/// Endpoints that were found.
#[derive(Clone, Debug)]
struct Answer {
    /// None where the file is the one that was read.
    found: Option<Arc<[Found]>>,
    /// For how long they are good.
    good_for: Duration,
    /// What could not be looked up beside them.
    lost: Option<String>,
}

/// What is known of every upstream that discovers its endpoints.
#[derive(Debug)]
pub struct Discovery {
    sources: BTreeMap<Key, Source>,
    changed: bool,
}

#[derive(Debug)]
struct Source {
    due: Instant,
    asking: bool,
    found: Option<Arc<[Found]>>,
    seen: Option<Stamp>,
    success_at_s: Option<f64>,
    failures: u64,
    error: Option<String>,
}

impl Discovery {
    /// Nothing is known yet, and all is due at once.
    pub fn new(snapshot: &Snapshot, now: Instant) -> Discovery {
        let mut discovery = Discovery { sources: BTreeMap::new(), changed: false };
        discovery.follow(snapshot, now);
        discovery
    }

    /// Follows a new configuration: forgets who is gone and asks for who is new at once.
    pub fn follow(&mut self, snapshot: &Snapshot, now: Instant) {
        let wanted: BTreeSet<Key> =
            snapshot.discovering().map(|(plan, from)| (plan.name.clone(), from.clone())).collect();
        self.sources.retain(|key, _| wanted.contains(key));
        for key in wanted {
            self.sources.entry(key).or_insert_with(|| Source {
                due: now,
                asking: false,
                found: None,
                seen: None,
                success_at_s: None,
                failures: 0,
                error: None,
            });
        }
    }

    /// Whether no upstream discovers its endpoints.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// What to look for by now.
    pub fn ask(&mut self, now: Instant) -> Vec<Asked> {
        let due = self.sources.iter_mut().filter(|(_, source)| !source.asking && source.due <= now);
        due.map(|(key, source)| {
            source.asking = true;
            Asked { key: key.clone(), last: source.found.clone(), seen: source.seen }
        })
        .collect()
    }

    /// It could not be asked: it is tried again.
    pub fn not_asked(&mut self, key: &Key, now: Instant) {
        if let Some(source) = self.sources.get_mut(key) {
            source.asking = false;
            source.due = now + Duration::from_millis(DISCOVERY_RETRY_MS);
        }
    }

    /// When [`Discovery::ask`] is to be called next.
    pub fn due(&self) -> Option<Instant> {
        let waiting = self.sources.values().filter(|source| !source.asking);
        waiting.map(|source| source.due).min()
    }

    /// Takes an answer; without a good one the last good one stays. Says what is worth a warning: the
    /// first failure in a row, and each of another kind.
    pub fn answer(&mut self, answered: Answered, now: Instant, now_s: f64) -> Option<String> {
        let Answered { key, result, seen } = answered;
        // A reload may have removed it.
        let source = self.sources.get_mut(&key)?;
        source.asking = false;
        let file = matches!(key.1, Discover::File(_));
        // A file that was refused is looked at again when it has changed, and a missing one when it is
        // there.
        source.seen = seen;
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let again_ms = if file { DISCOVERY_FILE_MS } else { DISCOVERY_RETRY_MS };
                source.due = now + Duration::from_millis(again_ms);
                return source.fail(&key, error);
            }
        };
        let (least, most) = DISCOVERY_TTL_MS;
        let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
        source.due = now + answer.good_for.clamp(least, most);
        let unchanged = answer.found.is_none();
        // What is wrong with the file that was read is still wrong.
        if unchanged && source.error.is_some() {
            return None;
        }
        source.success_at_s = Some(now_s);
        if let Some(found) = answer.found
            && source.found.as_ref() != Some(&found)
        {
            source.found = Some(found);
            self.changed = true;
        }
        match answer.lost {
            Some(lost) => source.fail(&key, lost),
            None => {
                source.error = None;
                None
            }
        }
    }

    /// Whether any endpoints differ from those at the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The last good endpoints of each.
    pub fn known(&self) -> Discovered {
        let mut known = Discovered::default();
        for ((upstream, from), source) in &self.sources {
            if let Some(found) = &source.found {
                known.set(upstream, from, found.clone());
            }
        }
        known
    }

    /// What is shown of each.
    pub fn views(&self) -> Vec<DiscoveryView> {
        let view = |((upstream, from), source): (&Key, &Source)| DiscoveryView {
            upstream: upstream.to_string(),
            source: from.to_string(),
            endpoints: source.found.as_ref().map_or(0, |found| found.len()),
            failures: source.failures,
            success_at_s: source.success_at_s,
            error: source.error.clone(),
        };
        self.sources.iter().map(view).collect()
    }
}

impl Source {
    fn fail(&mut self, (upstream, from): &Key, error: String) -> Option<String> {
        self.failures += 1;
        if self.error.as_ref() == Some(&error) {
            return None;
        }
        let fate = match &self.found {
            Some(found) => format!("its last {} stay", counted(found.len())),
            None => "it has none, and is answered with 503 until there are some".to_owned(),
        };
        let text = format!("upstream {upstream}, {from}: {error}\n{fate}");
        self.error = Some(error);
        Some(text)
    }
}

fn counted(endpoints: usize) -> String {
    match endpoints {
        1 => "endpoint".to_owned(),
        many => format!("{many} endpoints"),
    }
}

/// What differs between the endpoints of two snapshots of one configuration, a line for each upstream.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (old, new) in before.upstreams.iter().zip(&after.upstreams) {
        let of = |plan: &crate::upstream::UpstreamPlan| -> BTreeSet<Box<str>> {
            plan.endpoints.iter().map(|endpoint| endpoint.authority.clone()).collect()
        };
        let (old, now) = (of(old), of(new));
        if Arc::ptr_eq(&before.names, &after.names) || old == now {
            continue;
        }
        let come = now.difference(&old).map(|address| format!(" +{address}"));
        let gone = old.difference(&now).map(|address| format!(" -{address}"));
        let shown: String = come.chain(gone).take(CHANGES_SHOWN_MAX).collect();
        lines.push(format!("upstream {} has {} endpoints:{shown}", new.name, now.len()));
    }
    lines
}

/// Endpoints that a log line names.
const CHANGES_SHOWN_MAX: usize = 16;

#[cfg(test)]
mod tests;
