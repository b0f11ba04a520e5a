//! What counting costs a request, and what a scrape costs the control thread:
//! `cargo bench --bench series`.

use divan::{Bencher, black_box};
use ringway::observe::render::ProcessView;
use ringway::observe::series::{EndpointName, Histogram, Names};
use ringway::observe::{Finished, SeriesRegistry, WorkerSeries};

fn main() {
    divan::main();
}

/// As many as one worker keeps, the other kinds included.
const ROUTES: u32 = 9_998;

/// One exchange, as the plain path ends.
fn finished(route: u32) -> Finished {
    Finished {
        route: Some(route),
        upstream: Some(0),
        endpoint: Some(0),
        status: 200,
        total_us: 180 + u64::from(route % 7) * 9_000,
        upstream_head_us: Some(120),
        request_body_bytes: 0,
        response_body_bytes: 1024,
    }
}

fn warm(worker: &WorkerSeries) {
    for route in 0..ROUTES {
        worker.finish(&finished(route));
    }
}

#[divan::bench_group]
mod request {
    use super::*;

    /// Route, upstream and endpoint of one busy route: what a plain request pays at its end.
    #[divan::bench(sample_size = 10_000)]
    fn finish(bencher: Bencher<'_, '_>) {
        let worker = SeriesRegistry::default().add_worker();
        let done = finished(0);
        worker.finish(&done);
        bencher.bench_local(|| worker.finish(black_box(&done)));
    }

    /// The same over all routes in turn, whose blocks are not in the first caches.
    #[divan::bench(sample_size = 10_000)]
    fn finish_over_all_routes(bencher: Bencher<'_, '_>) {
        let worker = SeriesRegistry::default().add_worker();
        warm(&worker);
        let mut route = 0;
        bencher.bench_local(|| {
            route = (route + 7_919) % ROUTES;
            worker.finish(black_box(&finished(route)));
        });
    }

    /// Up and down again, of an upstream and an endpoint.
    #[divan::bench(sample_size = 10_000)]
    fn in_flight(bencher: Bencher<'_, '_>) {
        let worker = SeriesRegistry::default().add_worker();
        bencher.bench_local(|| {
            black_box(&worker.in_flight(black_box(0), black_box(0)));
        });
    }

    /// The bucket of a duration and its counters alone.
    #[divan::bench(args = [180, 60_000, 20_000_000])]
    fn histogram(bencher: Bencher<'_, '_>, us: u64) {
        let histogram = Histogram::default();
        bencher.bench_local(|| histogram.record(black_box(us)));
    }
}

#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod scrape {
    use super::*;

    fn setup() -> (SeriesRegistry, Names, [WorkerSeries; 2]) {
        let mut registry = SeriesRegistry::default();
        let workers = [registry.add_worker(), registry.add_worker()];
        workers.iter().for_each(warm);
        let mut names = Names::default();
        for route in 0..ROUTES {
            names.routes.set(route, format!("order-detail-{route}").into());
        }
        names.upstreams.set(0, "orders".into());
        let address = "127.0.0.1:9001".into();
        names.endpoints.set(0, EndpointName { upstream: "orders".into(), address });
        (registry, names, workers)
    }

    /// Summing two workers of 10,000 series each.
    #[divan::bench]
    fn collect(bencher: Bencher<'_, '_>) {
        let (mut registry, names, _workers) = setup();
        bencher.bench_local(|| registry.collect(black_box(&names)));
    }

    /// Writing the text of them.
    #[divan::bench]
    fn render(bencher: Bencher<'_, '_>) {
        let (mut registry, names, _workers) = setup();
        let series = registry.collect(&names);
        let view = ProcessView { series, ..ProcessView::default() };
        bencher.bench_local(|| black_box(&view).prometheus().len());
    }

    /// What a worker does at a reload that changes one of 10,000 routes.
    #[divan::bench]
    fn retain(bencher: Bencher<'_, '_>) {
        let (_registry, names, workers) = setup();
        bencher.bench_local(|| workers[0].retain(black_box(&names)));
    }
}
