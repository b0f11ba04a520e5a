//! Endpoints that stand in for others (RFC 2782): those of a higher priority number take requests only
//! where too few of the lower ones do.

use std::collections::BTreeMap;

use super::plan::EndpointPlan;
use super::standing::WHOLE_PERMILLE;

/// Whether some of them stand in for others.
pub(super) fn has_reserve(endpoints: &[EndpointPlan]) -> bool {
    endpoints.windows(2).any(|pair| pair[0].priority != pair[1].priority)
}

/// Up to which priority number endpoints take requests: the first whose own have enough in, which is
/// what the floor says (docs/health.md). `None` where that holds of no number. Of each endpoint its
/// number, its weight, and the thousandths of it that it takes.
pub(super) fn reach(
    endpoints: impl Iterator<Item = (u16, u32, u16)>,
    floor_percent: u64,
) -> Option<u16> {
    let mut all: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    for (priority, weight, taken) in endpoints {
        let (whole, load) = all.entry(priority).or_default();
        *whole += u64::from(weight) * u64::from(WHOLE_PERMILLE);
        *load += u64::from(weight) * u64::from(taken);
    }
    let enough =
        |(_, (whole, load)): &(u16, (u64, u64))| *load > 0 && *load * 100 >= floor_percent * *whole;
    all.into_iter().find(enough).map(|(priority, _)| priority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::testing::plan;

    #[test]
    fn the_next_priority_joins_below_the_floor() {
        let mut endpoints = plan(&[100, 100, 100, 100, 0]).endpoints;
        for (endpoint, priority) in endpoints.iter_mut().zip([10, 10, 20, 30, 5]) {
            endpoint.priority = priority;
        }
        assert!(has_reserve(&endpoints));
        for (taken, floor, reached) in [
            ([1_000, 1_000, 1_000, 1_000, 1_000], 50, Some(10)),
            ([1_000, 0, 1_000, 1_000, 0], 50, Some(10)),
            ([1_000, 0, 1_000, 1_000, 0], 51, Some(20)),
            ([50, 0, 1_000, 1_000, 0], 50, Some(20)),
            ([50, 0, 1_000, 1_000, 0], 0, Some(10)),
            ([0, 0, 0, 1_000, 0], 0, Some(30)),
            ([50, 0, 0, 0, 1_000], 50, None),
        ] {
            let all =
                endpoints.iter().zip(taken).map(|(it, taken)| (it.priority, it.weight, taken));
            assert_eq!(reach(all, floor), reached, "{taken:?} {floor}");
        }
        endpoints.truncate(2);
        assert!(!has_reserve(&endpoints));
    }
}
