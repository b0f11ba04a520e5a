//! One request of HTTP/2, sent on as HTTP/1.1.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::http2_request(data));
