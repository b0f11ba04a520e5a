//! The control thread's end: what the workers have made, summed when somebody asks.

use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};

use super::blocks::{
    Birth, EndpointSeries, FilterSeries, ListenerSeries, ROOMS, RouteSeries, UpstreamSeries,
};
use super::names::Names;
use super::view::{Entry, SeriesView, Sum};
use super::worker::{Standing, WorkerSeries};
use crate::base::by_id::ById;

/// The blocks of all workers.
#[derive(Debug, Default)]
pub struct SeriesRegistry {
    workers: Vec<Ledger>,
}

/// The blocks of one worker.
#[derive(Debug)]
struct Ledger {
    /// By [`super::blocks::Room`].
    births: [Receiver<Birth>; ROOMS],
    standing: Standing,
    routes: ById<Arc<RouteSeries>>,
    upstreams: ById<Arc<UpstreamSeries>>,
    endpoints: ById<Arc<EndpointSeries>>,
    filters: ById<Arc<FilterSeries>>,
    listeners: ById<Arc<ListenerSeries>>,
}

impl SeriesRegistry {
    /// Another worker: its end, to be moved to its thread.
    pub fn add_worker(&mut self) -> WorkerSeries {
        let (routes, routes_born) = unbounded();
        let (others, others_born) = unbounded();
        let standing = Standing::default();
        let worker = WorkerSeries::new(&standing, [routes, others]);
        self.workers.push(Ledger {
            births: [routes_born, others_born],
            standing,
            routes: ById::default(),
            upstreams: ById::default(),
            endpoints: ById::default(),
            filters: ById::default(),
            listeners: ById::default(),
        });
        worker
    }

    /// Takes over what was made, and frees what workers have let go of and `names` has no name for.
    /// To be called when a configuration has been taken over, whether anybody scrapes or not.
    pub fn settle(&mut self, names: &Names) {
        for worker in &mut self.workers {
            worker.adopt();
            worker.free(names);
        }
    }

    /// How many blocks it holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let of = |worker: &Ledger| {
            let named = worker.routes.iter().count() + worker.endpoints.iter().count();
            let few = worker.upstreams.iter().count() + worker.listeners.iter().count();
            named + few + worker.filters.iter().count()
        };
        self.workers.iter().map(of).sum()
    }

    /// Sums the workers. Reads what they are writing, and makes none of them wait.
    pub fn collect(&mut self, names: &Names) -> SeriesView {
        self.settle(names);
        let workers = &*self.workers;
        let mut routes = self.routes(names);
        add_standing(&mut routes, workers, |it| &it.unmatched, UNMATCHED, None, true);
        add_standing(&mut routes, workers, |it| &it.other_routes, OTHER, None, false);
        let mut upstreams = sum_named(&names.upstreams, workers, |it| &it.upstreams, plain);
        add_standing(&mut upstreams, workers, |it| &it.other_upstreams, OTHER, None, false);
        let mut endpoints = sum_named(
            &names.endpoints,
            workers,
            |it| &it.endpoints,
            |endpoint| (Some(endpoint.upstream.clone()), endpoint.address.clone()),
        );
        let other = Some(OTHER);
        add_standing(&mut endpoints, workers, |it| &it.other_endpoints, OTHER, other, false);
        let mut filters = sum_named(&names.filters, workers, |it| &it.filters, plain);
        add_standing(&mut filters, workers, |it| &it.other_filters, OTHER, None, false);
        let mut listeners = sum_named(&names.listeners, workers, |it| &it.listeners, plain);
        add_standing(&mut listeners, workers, |it| &it.other_listeners, OTHER, None, false);
        SeriesView {
            routes,
            upstreams,
            endpoints,
            filters,
            listeners,
            made: workers.iter().map(|worker| worker.standing.totals.made()).collect(),
            dropped: workers.iter().map(|worker| worker.standing.totals.dropped.get()).sum(),
        }
    }

    /// Only those that were hit: there may be a hundred thousand that never are.
    fn routes<V: Sum<RouteSeries>>(&self, names: &Names) -> Vec<Entry<V>> {
        let hit = |id| self.workers.iter().any(|worker| worker.routes.holds(id));
        let named = names.routes.iter().filter(|(id, _)| hit(*id));
        named.map(|(id, name)| sum_one(id, &self.workers, |it| &it.routes, plain(name))).collect()
    }
}

impl Ledger {
    fn adopt(&mut self) {
        for birth in self.births.iter().flat_map(Receiver::try_iter) {
            match birth {
                Birth::Route(id, block) => self.routes.set(id, block),
                Birth::Upstream(id, block) => self.upstreams.set(id, block),
                Birth::Endpoint(id, block) => self.endpoints.set(id, block),
                Birth::Filter(id, block) => self.filters.set(id, block),
                Birth::Listener(id, block) => self.listeners.set(id, block),
            }
        }
    }

    /// What has a name is kept although its worker let it go: names may be older than the
    /// configuration in force there, and a sum must not go down.
    fn free(&mut self, names: &Names) {
        fn is_held<T>(block: &Arc<T>) -> bool {
            Arc::strong_count(block) > 1
        }
        self.routes.retain(|id, block| is_held(block) || names.routes.holds(id));
        self.upstreams.retain(|id, block| is_held(block) || names.upstreams.holds(id));
        self.endpoints.retain(|id, block| is_held(block) || names.endpoints.holds(id));
        self.filters.retain(|id, block| is_held(block) || names.filters.holds(id));
        self.listeners.retain(|id, block| is_held(block) || names.listeners.holds(id));
    }
}

/// The upstream, where a label is an endpoint's, and the name.
type Label = (Option<Arc<str>>, Arc<str>);

fn plain(name: &Arc<str>) -> Label {
    (None, name.clone())
}

/// Sums of everything that has a name, zeros included.
fn sum_named<N, T, V: Sum<T>>(
    names: &ById<N>,
    workers: &[Ledger],
    blocks: fn(&Ledger) -> &ById<Arc<T>>,
    label: fn(&N) -> Label,
) -> Vec<Entry<V>> {
    names.iter().map(|(id, name)| sum_one(id, workers, blocks, label(name))).collect()
}

fn sum_one<T, V: Sum<T>>(
    id: u32,
    workers: &[Ledger],
    blocks: fn(&Ledger) -> &ById<Arc<T>>,
    (upstream, name): Label,
) -> Entry<V> {
    let mut numbers = V::default();
    for block in workers.iter().filter_map(|worker| blocks(worker).get(id)) {
        numbers.add(block);
    }
    Entry { upstream, name, numbers }
}

/// Adds a block that every worker has to the entries, under its name; to one of the configuration
/// where that has the same name, because no series may be shown twice.
fn add_standing<T, V: Sum<T>>(
    entries: &mut Vec<Entry<V>>,
    workers: &[Ledger],
    block: fn(&Standing) -> &Arc<T>,
    name: &str,
    upstream: Option<&str>,
    always: bool,
) {
    let standing = || workers.iter().map(|worker| block(&worker.standing));
    let mut numbers = V::default();
    standing().for_each(|block| numbers.add(block));
    if !always && !numbers.is_touched() {
        return;
    }
    let same =
        |entry: &&mut Entry<V>| &*entry.name == name && entry.upstream.as_deref() == upstream;
    match entries.iter_mut().find(same) {
        Some(entry) => standing().for_each(|block| entry.numbers.add(block)),
        None => {
            entries.push(Entry { upstream: upstream.map(Arc::from), name: name.into(), numbers })
        }
    }
}

/// The route of requests that have none.
pub const UNMATCHED: &str = "unmatched";

/// The name of everything that was refused a block.
pub const OTHER: &str = "other";

#[cfg(test)]
mod tests;
