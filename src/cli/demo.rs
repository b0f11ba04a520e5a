//! `ringway demo`: something to try within a minute of cloning.

use std::process::ExitCode;

/// Runs the proxy in front of two origins of its own.
#[cfg(feature = "demo")]
pub fn run() -> ExitCode {
    use crate::control::{self, EXIT_FAILED, Options, Source, complain};
    use crate::io::demo_origin;

    let origins =
        demo_origin::spawn("one").and_then(|first| Ok((first, demo_origin::spawn("two")?)));
    let (first, second) = match origins {
        Ok(origins) => origins,
        Err(error) => {
            complain(&format!("the demo's origins cannot start: {error}"));
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let text = CONFIG.replace("FIRST", &first.to_string()).replace("SECOND", &second.to_string());
    let source = Source::Text { name: "demo.toml".to_owned(), text };
    let program = std::env::args().next().unwrap_or_else(|| "ringway".to_owned());
    let banner = BANNER.replace("PROGRAM", &program);
    control::run(Options { source, banner: Some(banner) })
}

/// Says that there is none.
#[cfg(not(feature = "demo"))]
pub fn run() -> ExitCode {
    use crate::control::{EXIT_USAGE, complain};
    complain("this build has no demo (feature `demo` is off); see `ringway run --help`");
    ExitCode::from(EXIT_USAGE)
}

#[cfg(feature = "demo")]
const CONFIG: &str = r#"
[admin]
listen = "127.0.0.1:9901"

[listener.demo]
address = "127.0.0.1:8080"

[upstream.demo]
endpoints = [{ address = "FIRST" }, { address = "SECOND" }]

[[route]]
id = "all"
prefix = "/"
upstream = "demo"
"#;

#[cfg(feature = "demo")]
const BANNER: &str = "\
Ringway is running in front of two origins of its own. Try:

  curl -i http://127.0.0.1:8080/hello           a few times: both answer
  curl -d 'some text' http://127.0.0.1:8080/    a body comes back
  curl http://127.0.0.1:9901/metrics            what it counts
  PROGRAM status --admin 127.0.0.1:9901
                                                the same for people

Ctrl-C stops it; `PROGRAM run --config FILE` runs your own configuration.
";
