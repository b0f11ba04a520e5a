//! The command line.

mod check;
mod demo;
mod explain;
mod reload;
mod remote;
mod status;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::control::{self, EXIT_USAGE, Options, Source};
use explain::Asked;

/// An HTTP reverse proxy and API gateway on io_uring.
///
/// Without arguments: `demo`.
#[derive(Debug, Parser)]
#[command(name = "ringway", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Check the configuration, as `check` does
    #[arg(short = 't')]
    test: bool,
    /// Print the version, as `version` does
    #[arg(short = 'V', long, exclusive = true)]
    version: bool,
    /// Configuration file, with -t
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE, requires = "test")]
    config: PathBuf,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the proxy
    Run {
        /// Configuration file
        #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
        config: PathBuf,
    },
    /// Say whether a configuration is valid, and what is wrong with it
    Check {
        /// Configuration file
        #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
        config: PathBuf,
    },
    /// Say which route a request gets, and why: 0 where one takes it, 1 where none does
    ///
    /// It asks the configuration file, unless --admin or --running says to ask a running proxy: then
    /// it is explained by the configuration in force there.
    Explain {
        /// Method
        method: String,
        /// URL, or a path
        url: String,
        /// A field of the request, 'Name: value'; may be repeated
        #[arg(short = 'H', long = "header", value_name = "FIELD")]
        headers: Vec<String>,
        /// Address of the client [default: 127.0.0.1]
        #[arg(long, value_name = "IP")]
        client: Option<std::net::IpAddr>,
        /// Explain by this file [default: /etc/ringway/ringway.toml]; with --running: take the admin
        /// address from it
        #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
        config: Option<PathBuf>,
        /// Ask the running proxy at this admin address: ADDRESS:PORT or unix:PATH
        #[arg(long, value_name = "ADDRESS")]
        admin: Option<String>,
        /// Ask the running proxy that --config names, else the only one on this machine
        #[arg(long)]
        running: bool,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a running proxy does
    Status {
        /// Take the admin address from this configuration file
        #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
        config: Option<PathBuf>,
        /// Admin address: ADDRESS:PORT or unix:PATH
        #[arg(long, value_name = "ADDRESS")]
        admin: Option<String>,
        /// Print the answer as it came
        #[arg(long)]
        json: bool,
    },
    /// Have a running proxy read its configuration again, and wait until it is in force
    Reload {
        /// Take the admin address from this configuration file
        #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
        config: Option<PathBuf>,
        /// Admin address: ADDRESS:PORT or unix:PATH
        #[arg(long, value_name = "ADDRESS")]
        admin: Option<String>,
    },
    /// Run the proxy on 127.0.0.1:8080 in front of two embedded origins
    Demo,
    /// Print version, features, kernel and the driver that would be used
    Version,
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let verb = match arguments.verb {
        Some(verb) => verb,
        None if arguments.version => Verb::Version,
        None if arguments.test => Verb::Check { config: arguments.config },
        None => Verb::Demo,
    };
    match verb {
        Verb::Run { config } => {
            control::run(Options { source: Source::File(config), banner: None })
        }
        Verb::Check { config } => check::run(config),
        Verb::Explain { method, url, headers, client, config, admin, running, json } => {
            let question = explain::Question { method, url, headers, client };
            let asked = match running || admin.is_some() {
                true => Asked::Process(config, admin),
                false => Asked::File(config.unwrap_or_else(|| DEFAULT_FILE.into())),
            };
            explain::run(&question, asked, json)
        }
        Verb::Status { config, admin, json } => status::run(config, admin, json),
        Verb::Reload { config, admin } => reload::run(config, admin),
        Verb::Demo => demo::run(),
        Verb::Version => version::run(),
    }
}

/// Writes to standard output, whose reader may have gone.
fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
}

const DEFAULT_FILE: &str = "/etc/ringway/ringway.toml";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_commands_are_consistent() {
        Arguments::command().debug_assert();
    }
}
