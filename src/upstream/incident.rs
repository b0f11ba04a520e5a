//! How failures count that several requests owe to one incident (docs/health.md).

/// The incidents of one endpoint on one core.
///
/// A connection that is lost fails all requests on it, which says as much of the endpoint as one
/// failure: the next connection may be fine. The others are held back, and counted only if another
/// incident follows within the window: then it was no accident.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incidents {
    /// When the last one began.
    last_ms: Option<u64>,
    /// Its failures that are not counted.
    held: u64,
    /// Whether it followed another, so that all of its failures count.
    recurs: bool,
}

impl Incidents {
    /// Takes in a failure, the `first` of an incident or one of the others; returns how many are to be
    /// counted now.
    pub fn count(&mut self, first: bool, now_ms: u64, window_ms: u64) -> u64 {
        if !first {
            self.held += u64::from(!self.recurs);
            return u64::from(self.recurs);
        }
        self.recurs = self.last_ms.is_some_and(|last| now_ms.saturating_sub(last) < window_ms);
        self.last_ms = Some(now_ms);
        let held = std::mem::take(&mut self.held);
        1 + if self.recurs { held } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_incident_is_one_failure() {
        let mut incidents = Incidents::default();
        assert_eq!(incidents.count(true, 0, 1_000), 1);
        let others: u64 = (0..99).map(|_| incidents.count(false, 1, 1_000)).sum();
        assert_eq!(others, 0);
    }

    #[test]
    fn another_within_the_window_brings_the_others_in() {
        let mut incidents = Incidents::default();
        incidents.count(true, 0, 1_000);
        (0..99).for_each(|_| assert_eq!(incidents.count(false, 0, 1_000), 0));
        assert_eq!(incidents.count(true, 999, 1_000), 100);
        assert_eq!(incidents.count(false, 999, 1_000), 1, "all of them count now");
        assert_eq!(incidents.count(true, 1_998, 1_000), 1, "none is counted twice");
        // A calm forgets what was held.
        assert_eq!(incidents.count(true, 2_998, 1_000), 1);
        assert_eq!(incidents.count(false, 2_998, 1_000), 0);
        assert_eq!(incidents.count(true, 3_998, 1_000), 1);
    }
}
