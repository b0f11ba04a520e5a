//! What the kernel says of this process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::observe::render::ProcessView;

/// When the process started, and who it is.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    began: Instant,
    began_at_s: f64,
}

impl Process {
    /// Started now.
    pub fn new() -> Process {
        Process { began: Instant::now(), began_at_s: unix_time_s() }
    }

    /// Fills in memory, time and descriptors. Reads /proc, so not on a thread that must not block.
    pub fn measure(&self, view: &mut ProcessView) {
        view.pid = std::process::id();
        view.started_at_s = self.began_at_s;
        view.uptime_s = self.began.elapsed().as_secs_f64();
        view.open_descriptors = open_descriptors();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        view.resident_bytes = resident_bytes(&status).unwrap_or(0);
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        view.cpu_s = cpu_s(&stat).unwrap_or(0.0);
    }
}

impl Default for Process {
    fn default() -> Process {
        Process::new()
    }
}

/// Seconds since 1970.
pub fn unix_time_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

fn open_descriptors() -> u64 {
    // From Linux 6.2 on the directory's size is their number; before, it is 0 and they are counted.
    match std::fs::metadata("/proc/self/fd") {
        Ok(directory) if directory.len() > 0 => directory.len(),
        _ => std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn cpu_s(stat: &str) -> Option<f64> {
    // The name in parentheses may hold anything, spaces included.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some((next()? + next()?) as f64 / TICKS_PER_SECOND)
}

/// USER_HZ, which is 100 on every architecture that Ringway runs on.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_understood() {
        assert_eq!(resident_bytes("VmSize:\t  9 kB\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_s(stat), Some(3.0));
        let mut view = ProcessView::default();
        Process::new().measure(&mut view);
        assert!(view.resident_bytes > 0 && view.open_descriptors > 2);
    }
}
