//! The TLS record adapter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::tls_records(data));
