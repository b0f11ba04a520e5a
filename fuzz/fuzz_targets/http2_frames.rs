//! A whole connection of HTTP/2.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::http2_frames(data));
