//! `ringway check`

use std::path::PathBuf;
use std::process::ExitCode;

use super::print;
use crate::control::{EXIT_CONFIG, Source, complain};
use crate::snapshot::Ids;

/// Says whether the file is valid; binds nothing.
pub fn run(config: PathBuf) -> ExitCode {
    let loaded = match Source::File(config).load(&mut Ids::default(), 1) {
        Ok(loaded) => loaded,
        Err(rejected) => {
            complain(&rejected.rendered);
            let errors = counted(rejected.count, "error");
            complain(&format!("configuration is not valid: {errors}"));
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if !loaded.warnings.is_empty() {
        complain(&loaded.warnings);
    }
    let snapshot = &loaded.taken.snapshot;
    let endpoints = snapshot.upstreams.iter().map(|upstream| upstream.endpoints.len()).sum();
    print(&format!(
        "configuration is valid: {}, {}, {}, {}",
        counted(snapshot.listeners.len(), "listener"),
        counted(snapshot.routes.iter().count(), "route"),
        counted(snapshot.upstreams.len(), "upstream"),
        counted(endpoints, "endpoint"),
    ));
    ExitCode::SUCCESS
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
