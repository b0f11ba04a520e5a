//! The time in which a load generator counts.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::args::Args;

/// The longest warm-up and the longest window: a load ends even where nobody waits for it.
const MS_MAX: u64 = 600_000;

/// Warm-up, window, end; and what was counted inside. Shared by the tasks or threads of a load.
#[derive(Debug, Default)]
pub struct Window {
    phase: AtomicU8,
    done: AtomicU64,
    done_us: AtomicU64,
    errors: AtomicU64,
}

/// Phases; 0 is warm-up.
const OPEN: u8 = 1;
const OVER: u8 = 2;

impl Window {
    /// Whether the load shall go on.
    pub fn goes_on(&self) -> bool {
        self.phase.load(Ordering::Relaxed) != OVER
    }

    /// Whether what ends now counts.
    pub fn is_open(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OPEN
    }

    /// Counts what ended well after `took`, where the window is open.
    pub fn done(&self, took: Duration) {
        if self.is_open() {
            self.done.fetch_add(1, Ordering::Relaxed);
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.done_us.fetch_add(took_us, Ordering::Relaxed);
        }
    }

    /// Counts an error, in every phase, and says the first ones.
    pub fn error(&self, what: &dyn std::fmt::Display) {
        const SAID_MAX: u64 = 5;
        if self.errors.fetch_add(1, Ordering::Relaxed) < SAID_MAX {
            eprintln!("error: {what}");
        }
    }

    /// Tells whoever reads our output that warm-up is over, so that clocks are read now.
    pub fn begin(&self) {
        self.phase.store(OPEN, Ordering::Relaxed);
        println!("begin");
    }

    /// Ends the window; the line comes first, because clocks are to be read under load.
    pub fn end(&self) {
        println!("end");
        self.phase.store(OVER, Ordering::Relaxed);
    }

    /// The last line: what was counted, and `more` numbers by name.
    pub fn report(&self, took: Duration, more: &[(&str, u64)]) {
        let [done, done_us, errors] =
            [&self.done, &self.done_us, &self.errors].map(|count| count.load(Ordering::Relaxed));
        let mean_us = done_us.checked_div(done).unwrap_or(0);
        let mut line =
            format!("counted done={done} errors={errors} us={} mean={mean_us}", took.as_micros());
        for (name, value) in more {
            line.push_str(&format!(" {name}={value}"));
        }
        println!("{line}");
    }
}

/// `--warm-up-ms` and `--ms`.
pub fn durations(args: &Args) -> Result<(Duration, Duration), String> {
    let (warm_up_ms, ms) = (args.get("warm-up-ms", 1_000)?, args.get("ms", 5_000)?);
    if warm_up_ms > MS_MAX || ms > MS_MAX {
        return Err(format!("--warm-up-ms and --ms are at most {MS_MAX}"));
    }
    Ok((Duration::from_millis(warm_up_ms), Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_inside_only() {
        let window = Window::default();
        window.done(Duration::from_micros(1));
        window.begin();
        window.done(Duration::from_micros(5));
        assert!(window.goes_on());
        window.end();
        window.done(Duration::from_micros(9));
        assert!(!window.goes_on());
        assert_eq!(window.done.load(Ordering::Relaxed), 1);
        assert_eq!(window.done_us.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn errors_count_in_every_phase() {
        let window = Window::default();
        window.error(&"early");
        window.begin();
        window.end();
        window.error(&"late");
        assert_eq!(window.errors.load(Ordering::Relaxed), 2);
    }
}
