//! The command line.

/// Runs the command that the arguments name.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
