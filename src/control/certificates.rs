//! Certificates as the admin API shows them, and whether their files have changed, which is looked at
//! every second (docs/decisions/0011).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::CERTIFICATE_LOOK_MS;
use crate::observe::render::CertificateView;
use crate::snapshot::{ListenerPlan, Snapshot};
use crate::tls::files::Stamp;
use crate::tls::{ServedCertificate, Watched};

/// The certificates of all listeners.
pub(super) fn view(snapshot: &Snapshot) -> Vec<CertificateView> {
    let served = snapshot.listeners.iter().filter_map(|plan| Some((plan, plan.tls.as_ref()?)));
    let all = served.flat_map(|(plan, tls)| tls.certificates().iter().map(move |it| (plan, it)));
    let view = |(plan, it): (&Arc<ListenerPlan>, &ServedCertificate)| CertificateView {
        listener: plan.name.to_string(),
        path: it.path.to_string(),
        subject: it.subject.to_string(),
        hosts: it.hosts.iter().map(ToString::to_string).collect(),
        not_after_s: it.not_after,
    };
    all.map(view).collect()
}

/// What was seen at the last look, and what has been told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    looked: Option<Instant>,
    last: Vec<Option<Stamp>>,
    told: Option<Vec<Option<Stamp>>>,
}

impl Watch {
    /// When to look next, where there are files to look at.
    pub(super) fn due(&self, files: &[Watched], now: Instant) -> Option<Instant> {
        let look = Duration::from_millis(CERTIFICATE_LOOK_MS);
        (!files.is_empty()).then(|| self.looked.map_or(now, |looked| looked + look))
    }

    /// Whether `files` stand otherwise than when they were read, have stood so for two looks, and
    /// nobody has been told: several files change one after the other. `stamp` looks at one.
    pub(super) fn look(
        &mut self,
        files: &[Watched],
        now: Instant,
        stamp: impl Fn(&Path) -> Option<Stamp>,
    ) -> bool {
        if self.due(files, now).is_none_or(|due| due > now) {
            return false;
        }
        self.looked = Some(now);
        let seen: Vec<_> = files.iter().map(|file| stamp(&file.path)).collect();
        let changed = !seen.iter().eq(files.iter().map(|file| &file.stamp));
        let quiet = std::mem::replace(&mut self.last, seen) == self.last;
        if !changed {
            self.told = None;
            return false;
        }
        let news = quiet && self.told.as_ref() != Some(&self.last);
        if news {
            self.told = Some(self.last.clone());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_when_it_has_been_quiet_for_a_look() {
        let folder = std::env::temp_dir().join(format!("ringway-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("written");
            Stamp::of(&path)
        };
        let stamps = [file("1", "a"), file("2", "bb"), file("3", "ccc"), None];
        assert!(stamps[..3].iter().all(Option::is_some));
        let files = [Watched { path: "x".into(), stamp: stamps[0] }];
        let (mut watch, mut now) = (Watch::default(), Instant::now());
        let mut look = |stamp: usize, wanted: bool, why: &str| {
            assert_eq!(watch.look(&files, now, |_| stamps[stamp]), wanted, "{why}");
            assert!(!watch.look(&files, now, |_| stamps[2]), "too soon: {why}");
            now += Duration::from_millis(CERTIFICATE_LOOK_MS);
        };
        look(0, false, "as it was read");
        look(1, false, "just changed");
        look(3, false, "it is being exchanged");
        look(2, false, "and again");
        look(2, true, "quiet");
        look(2, false, "has been told");
        look(1, false, "another change");
        look(1, true, "quiet again");
        look(0, false, "as it was read again");
        look(1, false, "and once more changed");
        look(1, true, "which is news");
        assert!(Watch::default().due(&[], now).is_none());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
