//! What this build is.

use serde_json::{Value, json};

/// The features that it was built with, by name.
pub fn features() -> Vec<&'static str> {
    let features = [
        ("mimalloc", cfg!(feature = "mimalloc")),
        ("demo", cfg!(feature = "demo")),
        ("failpoint", cfg!(feature = "failpoint")),
    ];
    features.into_iter().filter_map(|(name, on)| on.then_some(name)).collect()
}

/// The compiler's version, where the build was told.
pub fn rustc() -> Option<&'static str> {
    option_env!("RINGWAY_RUSTC")
}

/// Release and machine of the kernel.
pub fn kernel() -> (String, String) {
    let kernel = rustix::system::uname();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    (text(kernel.release()), text(kernel.machine()))
}

/// All of it, for the admin API.
pub fn build() -> Value {
    let (kernel, machine) = kernel();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "rustc": rustc(),
        "features": features(),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "kernel": kernel,
        "machine": machine,
    })
}
