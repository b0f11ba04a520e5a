//! A whole connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::connection(data));
