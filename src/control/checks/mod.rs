//! Active checks of endpoints (docs/health.md): when which is due. What is asked, and how, is in `ask`.

mod ask;
mod grpc;

pub use ask::{Permits, Target, check};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::random::Random;
use crate::snapshot::Snapshot;
use crate::upstream::EndpointId;

/// The schedule: each endpoint is checked at once when it comes, and then once an interval, all of
/// them spread over it. Asks nobody itself.
#[derive(Default)]
pub struct Checks {
    entries: BTreeMap<EndpointId, Entry>,
    random: Random,
}

struct Entry {
    target: Arc<Target>,
    due: Instant,
    /// It is under way: the next one waits for its end.
    running: bool,
    /// Checked at least once: those that came together are apart from then on.
    spread: bool,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checks({})", self.entries.len())
    }
}

impl Checks {
    /// Follows a snapshot that takes force.
    pub fn follow(&mut self, snapshot: &Snapshot, now: Instant) {
        let mut known = std::mem::take(&mut self.entries);
        for upstream in &snapshot.upstreams {
            let Some(health) = &upstream.health else { continue };
            for endpoint in &upstream.endpoints {
                let target = Target { health: health.clone(), endpoint: endpoint.clone() };
                let entry = match known.remove(&endpoint.id) {
                    Some(entry) if entry.target.health == *health => {
                        Entry { target: Arc::new(target), ..entry }
                    }
                    // One that is still under way asks what was asked before.
                    _ => {
                        Entry { target: Arc::new(target), due: now, running: false, spread: false }
                    }
                };
                self.entries.insert(endpoint.id, entry);
            }
        }
    }

    /// When [`Checks::ask`] is to be called next.
    pub fn due(&self) -> Option<Instant> {
        self.entries.values().filter(|entry| !entry.running).map(|entry| entry.due).min()
    }

    /// Which checks are to begin now.
    pub fn ask(&mut self, now: Instant) -> Vec<Arc<Target>> {
        let random = &self.random;
        let due = self.entries.values_mut().filter(|entry| !entry.running && entry.due <= now);
        let begin = |entry: &mut Entry| {
            let interval_ms = entry.target.health.interval_ms;
            let pause_ms = match entry.spread {
                // A twentieth more or less, so that what fell together once does not stay together.
                true => interval_ms - interval_ms / 20 + random.below(interval_ms / 10 + 1),
                false => random.below(interval_ms) + 1,
            };
            (entry.running, entry.spread) = (true, true);
            entry.due = now + Duration::from_millis(pause_ms);
            entry.target.clone()
        };
        due.map(begin).collect()
    }

    /// A check has ended. False where nobody wants to know any more.
    pub fn answered(&mut self, endpoint: EndpointId) -> bool {
        let entry = self.entries.get_mut(&endpoint);
        entry.map(|entry| entry.running = false).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Ids, load_text};

    fn snapshot(ids: &mut Ids, endpoints: usize, health: &str) -> Snapshot {
        let endpoints: Vec<_> =
            (1..=endpoints).map(|port| format!("{{ address = \"127.0.0.1:{port}\" }}")).collect();
        let text = format!(
            "[listener.a]\naddress = \"127.0.0.1:1\"\n[upstream.u]\nendpoints = [{}]\n{health}\n\
             [[route]]\nid = \"r\"\nprefix = \"/\"\nupstream = \"u\"\n",
            endpoints.join(", ")
        );
        load_text("test", &text, ids, 1).expect("valid").snapshot
    }

    #[test]
    fn checks_begin_at_once_and_are_spread_over_the_interval_after_that() {
        let (mut ids, now) = (Ids::default(), Instant::now());
        let mut checks = Checks::default();
        checks.follow(&snapshot(&mut ids, 100, "health = { interval = \"1s\" }"), now);
        let first = checks.ask(now);
        assert_eq!(first.len(), 100);
        assert_eq!(checks.due(), None, "all are under way");
        assert!(first.iter().all(|target| checks.answered(target.endpoint.id)));
        let mut counts = [0; 40];
        for (step, count) in counts.iter_mut().enumerate() {
            let asked = checks.ask(now + Duration::from_millis(50 * (step as u64 + 1)));
            *count = asked.len();
            asked.iter().for_each(|target| assert!(checks.answered(target.endpoint.id)));
        }
        assert!(counts.iter().all(|count| *count < 30), "never many together: {counts:?}");
        let all: usize = counts.iter().sum();
        assert!((190..=212).contains(&all), "two seconds of a hundred: {all}");
    }

    #[test]
    fn a_reload_keeps_the_schedule_of_what_stays() {
        let (mut ids, now) = (Ids::default(), Instant::now());
        let mut checks = Checks::default();
        let health = "health = { interval = \"10s\" }";
        checks.follow(&snapshot(&mut ids, 2, health), now);
        let before = checks.ask(now);
        checks.follow(&snapshot(&mut ids, 3, health), now);
        assert_eq!(checks.ask(now).len(), 1, "the new one");
        assert!(checks.answered(before[0].endpoint.id));
        checks.follow(&snapshot(&mut ids, 1, "health = { kind = \"tcp\" }"), now);
        assert_eq!(checks.ask(now).len(), 1, "it is asked something else");
        assert!(!checks.answered(before[1].endpoint.id), "it has left the file");
        checks.follow(&snapshot(&mut ids, 1, ""), now);
        assert_eq!(checks.due(), None);
    }
}
