//! Replays the corpus of the fuzz targets: what was found once stays found.

#[path = "../fuzz/src/lib.rs"]
mod harness;

use std::fs;
use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).expect("the corpus is part of the sources");
    let mut count = 0;
    for file in files {
        let file = file.expect("a readable folder").path();
        println!("{}", file.display());
        check(&fs::read(&file).expect("a readable file"));
        count += 1;
    }
    assert!(count >= 20, "{target} has a corpus");
}

#[test]
fn request_head() {
    replay("request_head", harness::request_head);
}

#[test]
fn response_head() {
    replay("response_head", harness::response_head);
}

#[test]
fn framing() {
    replay("framing", harness::framing);
}

#[test]
fn chunked() {
    replay("chunked", harness::chunked);
}

#[test]
fn target() {
    replay("target", harness::target);
}

#[test]
fn config() {
    replay("config", harness::config);
}

#[test]
fn access_log() {
    replay("access_log", harness::access_log);
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", harness::proxy_protocol);
}

#[test]
fn routes() {
    replay("routes", harness::routes);
}

#[test]
fn connection() {
    replay("connection", harness::connection);
}

#[test]
fn http2_request() {
    replay("http2_request", harness::http2_request);
}

#[test]
fn http2_frames() {
    replay("http2_frames", harness::http2_frames);
}

#[test]
fn header_variables() {
    replay("header_variables", harness::header_variables);
}

/// A seed of `http2_frames` does what its name says: else the target would look at nothing.
#[test]
fn frames_reach_an_origin_and_an_answer_its_client() {
    for (name, streams) in [("get", 1), ("get-in-pieces", 1), ("post", 1)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/http2_frames");
        let data = fs::read(folder.join(name)).expect("a seed");
        let (knobs, rest) = data.split_at(4);
        let knobs = harness::connection::read_knobs(knobs);
        let mut world = harness::sim::world::World::http2(knobs);
        harness::connection::read_steps(rest).iter().for_each(|step| world.step(step));
        let counters = &world.core.counters;
        assert_eq!(counters.http2_streams.get(), streams, "{name}");
        assert_eq!(counters.answers[1].get(), streams, "{name}");
        // In pieces each byte is a frame of its own.
        assert!(world.got.ends_with(b"k"), "{name}");
    }
}

#[test]
fn tls_records() {
    replay("tls_records", harness::tls_records);
}

/// The seeds of `connection` are the scripts of tests/sim.
#[test]
fn every_script_is_a_seed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/connection");
    for script in harness::sim::scripts::all() {
        let name = script.name.to_lowercase().replace([',', ' ', '/'], "-").replace("--", "-");
        let seed = harness::connection::write(&script.steps);
        if std::env::var_os("RINGWAY_WRITE_SEEDS").is_some() {
            fs::write(folder.join(&name), &seed).expect("written");
        }
        assert_eq!(fs::read(folder.join(&name)).ok(), Some(seed), "{name}");
    }
}
