//! The names among the endpoints, and their last good addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::helper::HostPort;
use crate::limits::RESOLVE_INTERVAL_MS;
use crate::snapshot::Snapshot;
use crate::upstream::{EndpointAddress, EndpointId};

/// What is known of names. Asks nobody itself: it takes answers and says what to look up.
#[derive(Debug)]
pub struct Names {
    wanted: BTreeMap<EndpointId, HostPort>,
    known: BTreeMap<HostPort, Vec<SocketAddr>>,
    failing: BTreeSet<HostPort>,
    /// A round of look-ups is under way.
    asking: bool,
    due: Instant,
    changed: bool,
}

impl Names {
    /// None known yet; the first round is due at once.
    pub fn new(snapshot: &Snapshot, now: Instant) -> Names {
        let mut names = Names {
            wanted: BTreeMap::new(),
            known: BTreeMap::new(),
            failing: BTreeSet::new(),
            asking: false,
            due: now,
            changed: false,
        };
        names.follow(snapshot, now);
        names
    }

    /// Follows a new snapshot: forgets names that are gone and asks for new ones at once.
    pub fn follow(&mut self, snapshot: &Snapshot, now: Instant) {
        self.wanted = wanted(snapshot).collect();
        let wanted: BTreeSet<_> = self.wanted.values().collect();
        self.known.retain(|name, _| wanted.contains(name));
        self.failing.retain(|name| wanted.contains(name));
        if wanted.iter().any(|name| !self.known.contains_key(*name)) {
            self.due = now;
        }
        // A known name may now belong to an endpoint that is new.
        self.changed = !self.known.is_empty();
    }

    /// What to look up, if it is time to.
    pub fn ask(&mut self, now: Instant) -> Option<Vec<HostPort>> {
        if self.asking || self.wanted.is_empty() || now < self.due {
            return None;
        }
        self.asking = true;
        self.due = now + Duration::from_millis(RESOLVE_INTERVAL_MS);
        let names: BTreeSet<_> = self.wanted.values().cloned().collect();
        Some(names.into_iter().collect())
    }

    /// When [`Names::ask`] is to be called next.
    pub fn due(&self) -> Option<Instant> {
        (!self.asking && !self.wanted.is_empty()).then_some(self.due)
    }

    /// Takes an answer; a failure keeps the last good addresses. Says whether that is worth a
    /// warning: the first failure in a row is.
    pub fn answer(
        &mut self,
        name: HostPort,
        answer: Result<Vec<SocketAddr>, String>,
    ) -> Option<String> {
        match answer {
            Ok(addresses) => {
                self.failing.remove(&name);
                // The order changes from answer to answer, where name servers rotate.
                let set =
                    |addresses: &[SocketAddr]| addresses.iter().copied().collect::<BTreeSet<_>>();
                let same = self.known.get(&name).is_some_and(|it| set(it) == set(&addresses));
                if !same {
                    self.known.insert(name, addresses);
                    self.changed = true;
                }
                None
            }
            Err(error) => {
                let fate = match self.known.contains_key(&name) {
                    true => "its last addresses stay in use",
                    false => "it is answered with 503 until it does",
                };
                let text = format!("{}:{} does not resolve ({error}); {fate}", name.0, name.1);
                self.failing.insert(name).then_some(text)
            }
        }
    }

    /// The addresses of an endpoint that is known by name; none for others.
    pub fn addresses(&self, endpoint: EndpointId) -> Vec<SocketAddr> {
        let name = self.wanted.get(&endpoint);
        name.and_then(|name| self.known.get(name)).cloned().unwrap_or_default()
    }

    /// The round is over.
    pub fn answered_all(&mut self) {
        self.asking = false;
    }

    /// Whether a round is under way.
    pub fn asking(&self) -> bool {
        self.asking
    }

    /// The addresses of all endpoints with a known name, if they changed since the last call.
    pub fn take_changed(&mut self) -> Option<Vec<(EndpointId, Vec<SocketAddr>)>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let known = |name| Some(self.known.get(name)?.clone());
        Some(self.wanted.iter().filter_map(|(id, name)| Some((*id, known(name)?))).collect())
    }
}

/// The endpoints of a snapshot that are known by name, and their names.
pub fn wanted(snapshot: &Snapshot) -> impl Iterator<Item = (EndpointId, HostPort)> + '_ {
    let endpoints = snapshot.upstreams.iter().flat_map(|upstream| &upstream.endpoints);
    endpoints.filter_map(|endpoint| match &endpoint.address {
        EndpointAddress::Name(host, port) => Some((endpoint.id, (host.clone(), *port))),
        EndpointAddress::Socket(_) | EndpointAddress::Unix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Ids, load_text};

    fn snapshot(ids: &mut Ids, endpoints: &[&str]) -> Snapshot {
        let endpoints: Vec<_> =
            endpoints.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
        let text = format!(
            "[listener.a]\naddress = \"127.0.0.1:1\"\n[upstream.u]\nendpoints = [{}]\n\
             [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n",
            endpoints.join(", ")
        );
        load_text("test", &text, ids, 1).expect("valid").snapshot
    }

    fn name(host: &str) -> HostPort {
        (host.into(), 80)
    }

    fn addresses(of: &[&str]) -> Vec<SocketAddr> {
        of.iter().map(|address| address.parse().expect("an address")).collect()
    }

    #[test]
    fn the_last_good_answer_stays_and_is_sent_only_when_it_changes() {
        let (mut ids, now) = (Ids::default(), Instant::now());
        let first = snapshot(&mut ids, &["one.test:80", "127.0.0.1:2"]);
        let mut names = Names::new(&first, now);
        assert_eq!(names.ask(now), Some(vec![name("one.test")]));
        assert_eq!(names.ask(now), None, "one round at a time");
        let both = addresses(&["10.0.0.1:80", "10.0.0.2:80"]);
        assert_eq!(names.answer(name("one.test"), Ok(both.clone())), None);
        names.answered_all();
        assert_eq!(names.take_changed().map(|all| all[0].1.clone()), Some(both.clone()));

        let rotated = both.into_iter().rev().collect();
        assert_eq!(names.answer(name("one.test"), Ok(rotated)), None);
        assert!(names.answer(name("one.test"), Err("down".into())).is_some(), "one warning");
        assert!(names.answer(name("one.test"), Err("down".into())).is_none(), "not every time");
        assert_eq!(names.take_changed(), None);
        assert_eq!(names.due(), Some(now + Duration::from_millis(RESOLVE_INTERVAL_MS)));
    }

    #[test]
    fn a_reload_asks_for_new_names_at_once_and_forgets_old_ones() {
        let (mut ids, now) = (Ids::default(), Instant::now());
        let first = snapshot(&mut ids, &["one.test:80"]);
        let mut names = Names::new(&first, now);
        names.ask(now).expect("asked");
        names.answer(name("one.test"), Ok(addresses(&["10.0.0.1:80"])));
        names.answered_all();
        names.take_changed().expect("changed");
        let second = snapshot(&mut ids, &["one.test:80", "two.test:80"]);
        names.follow(&second, now);
        assert_eq!(names.take_changed().map(|all| all.len()), Some(1), "what is known goes out");
        assert_eq!(names.ask(now), Some(vec![name("one.test"), name("two.test")]));
        names.follow(&snapshot(&mut ids, &["127.0.0.1:2"]), now);
        names.answered_all();
        assert_eq!((names.take_changed(), names.due()), (None, None));
    }
}
