//! `ringway version`

use std::process::ExitCode;

use super::print;
use crate::control::about;
use crate::io::driver::{DriverChoice, probe};

/// Prints what a bug report needs.
pub fn run() -> ExitCode {
    let (kernel, machine) = about::kernel();
    // Tried here, on the thread that asks: a worker may yet meet other limits.
    let driver = probe(DriverChoice::Auto).map_or_else(|why| why, |report| report.to_string());
    let mut lines = vec![format!("ringway {}", env!("CARGO_PKG_VERSION"))];
    if let Some(rustc) = about::rustc() {
        lines.push(format!("rustc {rustc}"));
    }
    lines.push(format!("features {}", about::features().join(" ")));
    lines.push(format!("kernel {kernel} {machine}"));
    lines.push(format!("driver {driver}"));
    print(&lines.join("\n"));
    ExitCode::SUCCESS
}
