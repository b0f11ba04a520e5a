//! `ringway version`

use std::process::ExitCode;

use super::print;
use crate::io::driver::{DriverChoice, probe};

/// Prints what a bug report needs.
pub fn run() -> ExitCode {
    let features = [
        ("mimalloc", cfg!(feature = "mimalloc")),
        ("demo", cfg!(feature = "demo")),
        ("failpoint", cfg!(feature = "failpoint")),
    ];
    let features: Vec<_> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let kernel = rustix::system::uname();
    // Tried here, on the thread that asks: a worker may yet meet other limits.
    let driver = probe(DriverChoice::Auto).map_or_else(|why| why, |report| report.to_string());
    let mut lines = vec![format!("ringway {}", env!("CARGO_PKG_VERSION"))];
    if let Some(rustc) = option_env!("RINGWAY_RUSTC") {
        lines.push(format!("rustc {rustc}"));
    }
    lines.push(format!("features {}", features.join(" ")));
    lines.push(format!("kernel {} {}", text(kernel.release()), text(kernel.machine())));
    lines.push(format!("driver {driver}"));
    print(&lines.join("\n"));
    ExitCode::SUCCESS
}

fn text(name: &std::ffi::CStr) -> std::borrow::Cow<'_, str> {
    name.to_string_lossy()
}
