//! See the function of this name in fuzz/src.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringway_fuzz::proxy_protocol(data));
