//! Time of an access log record on a worker: `cargo bench --bench access_log`.
//!
//! `format` writes into a buffer that is at hand; `handed_over` adds the queue, with a writer that
//! keeps up. The second argument is what the record holds: 0 what a load generator sends, 1 what a
//! browser sends, 2 texts that need escapes.

use std::net::{IpAddr, Ipv4Addr};

use divan::{Bencher, black_box};
use ringway::observe::AccessRecord;
use ringway::observe::access_log::{AnnouncedTexts, DateText, Format, log_queue};

fn main() {
    divan::main();
}

const STARTED_US: u64 = 1_795_999_109_004_217;

fn record(which: usize) -> AccessRecord<'static> {
    let plain = AccessRecord {
        started_us: STARTED_US,
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        method: b"GET",
        target: b"/orders/17",
        version: "HTTP/1.1",
        host: b"127.0.0.1:8080",
        referer: b"",
        user_agent: b"",
        status: 200,
        request_body_bytes: 0,
        response_body_bytes: 1024,
        request_id: b"018f3c2e6d1a7c3b9a552f1f0a5b7c11",
        listener: "public",
        route: "orders",
        upstream: "orders",
        endpoint: "127.0.0.1:9001",
        retries: 0,
        hedge: None,
        total_us: 1_250,
        gateway_us: 50,
        connect_us: None,
        upstream_head_us: Some(1_100),
        error: None,
        tls: Default::default(),
        config_version: 3,
        worker: 1,
        announced: AnnouncedTexts::default(),
    };
    let browser = AccessRecord {
        target: b"/api/v1/app/order/detail?id=20210911",
        host: b"shop.example.com",
        referer: b"https://shop.example.com/cart?session=17",
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        ..plain.clone()
    };
    match which {
        0 => plain,
        1 => browser,
        _ => AccessRecord {
            referer: "https://shop.example.com/größe?\"17\"".as_bytes(),
            user_agent: b"\xde\xad\xbe\xef \"quoted\" \\ and \x01\x02",
            ..browser
        },
    }
}

const FORMATS: [(Format, usize); 6] = [
    (Format::Combined, 0),
    (Format::Combined, 1),
    (Format::Combined, 2),
    (Format::Json, 0),
    (Format::Json, 1),
    (Format::Json, 2),
];

/// The text alone.
#[divan::bench(args = FORMATS)]
fn format(bencher: Bencher<'_, '_>, (format, which): (Format, usize)) {
    let record = record(which);
    let (mut dates, mut out) = (DateText::new(), Vec::with_capacity(64 * 1024));
    bencher.bench_local(|| {
        out.clear();
        format.write(black_box(&record), &mut dates, &mut out);
        black_box(out.len())
    });
}

/// The same when every record begins in another second.
#[divan::bench(args = FORMATS)]
fn format_and_date(bencher: Bencher<'_, '_>, (format, which): (Format, usize)) {
    let mut record = record(which);
    let (mut dates, mut out) = (DateText::new(), Vec::with_capacity(64 * 1024));
    bencher.bench_local(|| {
        out.clear();
        record.started_us += 1_000_000;
        format.write(black_box(&record), &mut dates, &mut out);
        black_box(out.len())
    });
}

/// Text, chunk and queue: all that a worker does for a record.
#[divan::bench(args = FORMATS)]
fn handed_over(bencher: Bencher<'_, '_>, (format, which): (Format, usize)) {
    let record = record(which);
    let (mut buffer, receiver) = log_queue();
    buffer.set_format(Some(format));
    bencher.bench_local(|| {
        buffer.record(black_box(&record));
        if receiver.waiting() > 0
            && let Some(chunk) = receiver.take()
        {
            receiver.give_back(chunk);
        }
    });
}
