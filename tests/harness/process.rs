//! What /proc says of the proxy's process.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A running process.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub Pid);

impl Process {
    /// Open descriptors.
    pub fn descriptors(self) -> usize {
        fs::read_dir(self.path("fd")).map_or(0, Iterator::count)
    }

    /// Anonymous resident memory in KiB.
    pub fn anonymous_kib(self) -> u64 {
        let status = fs::read_to_string(self.path("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Processor time so far, user and system, in ticks of a hundredth of a second.
    pub fn ticks(self) -> u64 {
        let stat = fs::read_to_string(self.path("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
        let field = |at: usize| rest.split_whitespace().nth(at)?.parse::<u64>().ok();
        field(11).unwrap_or(0) + field(12).unwrap_or(0)
    }

    /// Sets how many descriptors it may have and returns the limit from before.
    pub fn limit_descriptors(self, soft: u64) -> Option<u64> {
        let limits = fs::read_to_string(self.path("limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (before, hard) = (words.next()?, words.next()?);
        let limit = Rlimit { current: Some(soft), maximum: hard };
        prlimit(Some(self.0), Resource::Nofile, limit).ok()?;
        before
    }

    fn path(self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0.as_raw_nonzero())
    }
}
