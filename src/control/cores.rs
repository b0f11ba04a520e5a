//! How many workers, on which processors, with how many connections.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::limits::{DESCRIPTORS_RESERVED, WORKERS_MAX};

/// The processors that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Those of its affinity mask; empty where the mask cannot be read.
    pub mask: Vec<usize>,
    /// Processors' worth of time that a control group leaves it, rounded up.
    pub quota: Option<usize>,
}

impl Cores {
    /// Asks the kernel.
    pub fn read() -> Cores {
        let mask = sched_getaffinity(None)
            .map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
            .unwrap_or_default();
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let quota = quota(&groups, &|path| std::fs::read_to_string(path).ok());
        Cores { mask, quota }
    }

    /// How many can be used at once, at least one.
    pub fn usable(&self) -> usize {
        let cores = match self.mask.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        };
        self.quota.map_or(cores, |quota| cores.min(quota)).clamp(1, WORKERS_MAX)
    }

    /// The processor of each worker. Pinned only where workers and processors are equal in number
    /// and no quota may throttle one of them while another idles.
    pub fn placement(&self, workers: usize) -> Vec<Option<usize>> {
        if self.quota.is_none() && self.mask.len() == workers {
            self.mask.iter().copied().map(Some).collect()
        } else {
            vec![None; workers]
        }
    }
}

/// Raises the soft limit of descriptors to the hard one and says what it then is.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // A refusal (seccomp) leaves the soft limit, which is asked for again.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Client connections that each worker may hold: each may need a second descriptor upstream.
pub fn connections_max(configured: Option<usize>, descriptors: u64, workers: usize) -> usize {
    let allowed = descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 2;
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    let total = configured.map_or(allowed, |configured| configured.min(allowed));
    (total / workers).max(1)
}

/// The smallest quota of the process's control group and of those above it, in processors.
fn quota(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<usize> {
    groups
        .lines()
        .filter_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, group) = line.split_once(':')?;
            if controllers.is_empty() {
                return smallest("/sys/fs/cgroup", group, &|at| {
                    quota_v2(&read(&at.join("cpu.max"))?)
                });
            }
            if !controllers.split(',').any(|controller| controller == "cpu") {
                return None;
            }
            ["cpu", "cpu,cpuacct"].iter().find_map(|mount| {
                smallest(&format!("/sys/fs/cgroup/{mount}"), group, &|at| {
                    let quota = read(&at.join("cpu.cfs_quota_us"))?.trim().parse().ok()?;
                    let period = read(&at.join("cpu.cfs_period_us"))?.trim().parse().ok()?;
                    processors(quota, period)
                })
            })
        })
        .min()
}

fn smallest(mount: &str, group: &str, at: &dyn Fn(&Path) -> Option<usize>) -> Option<usize> {
    let mount = PathBuf::from(mount);
    // Inside a container the path may be the host's: the mount itself then is the group.
    let group = mount.join(group.trim_start_matches('/'));
    group.ancestors().take_while(|path| path.starts_with(&mount)).filter_map(at).min()
}

fn quota_v2(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    processors(quota.parse().ok()?, period.parse().ok()?)
}

fn processors(quota_us: i64, period_us: i64) -> Option<usize> {
    if quota_us <= 0 || period_us <= 0 {
        return None;
    }
    usize::try_from(quota_us.saturating_add(period_us - 1) / period_us).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(groups: &str, files: &[(&str, &str)]) -> Option<usize> {
        quota(groups, &|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_tightest_group_counts_and_is_rounded_up() {
        let files = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
        ];
        assert_eq!(with("0::/a/b\n", &files), Some(3));
        assert_eq!(with("0::/elsewhere\n", &files), None);
        assert_eq!(with("0::/\n", &[("/sys/fs/cgroup/cpu.max", "50000 100000")]), Some(1));
        let old = [
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(with("4:cpu,cpuacct:/docker/x\n3:cpuset:/\n", &old), Some(2));
        let none = [("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"), old[1]];
        assert_eq!(with("4:cpu:/\n", &none), None);
    }

    #[test]
    fn workers_are_pinned_only_where_each_has_its_processor() {
        let cores = Cores { mask: vec![2, 5], quota: None };
        assert_eq!(cores.usable(), 2);
        assert_eq!(cores.placement(2), [Some(2), Some(5)]);
        assert_eq!(cores.placement(1), [None]);
        let throttled = Cores { mask: vec![0, 1], quota: Some(1) };
        assert_eq!(throttled.usable(), 1);
        assert_eq!(throttled.placement(2), [None, None]);
    }

    #[test]
    fn connections_are_what_descriptors_and_configuration_allow() {
        assert_eq!(connections_max(None, 1024, 2), 240);
        assert_eq!(connections_max(Some(100), 1024, 2), 50);
        assert_eq!(connections_max(Some(1_000_000), 1024, 1), 480);
        assert_eq!(connections_max(None, 10, 4), 1);
    }
}
