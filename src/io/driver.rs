//! The driver ladder: which way of doing I/O works here.

use std::fmt;
use std::io;

use io_uring::{IoUring, opcode};

use crate::limits::RING_ENTRIES;

/// A way of doing I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring with SINGLE_ISSUER and COOP_TASKRUN (kernel 6.0).
    UringSingleIssuer,
    /// io_uring with COOP_TASKRUN (kernel 5.19).
    UringCoop,
    /// io_uring without flags.
    UringPlain,
    /// epoll.
    Epoll,
}

impl DriverKind {
    /// `io_uring` or `epoll`, as configuration, metrics and status name it.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Epoll => "epoll",
            _ => "io_uring",
        }
    }

    /// The ring's flags.
    pub fn flags(self) -> &'static str {
        match self {
            DriverKind::UringSingleIssuer => "SINGLE_ISSUER|COOP_TASKRUN",
            DriverKind::UringCoop => "COOP_TASKRUN",
            DriverKind::UringPlain | DriverKind::Epoll => "",
        }
    }
}

/// The driver that won, and why those before it did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverReport {
    /// The winner.
    pub kind: DriverKind,
    /// Why it was taken, in a few words.
    pub reason: String,
}

/// Which driver to look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    IoUring,
    /// epoll.
    Epoll,
}

/// Finds the driver, by trying each with the real ring size and one operation that completes. To be
/// asked on the thread that will use it.
///
/// # Errors
/// io_uring was asked for and does not work; why, for each step of the ladder.
pub fn probe(choice: DriverChoice) -> Result<DriverReport, String> {
    if choice == DriverChoice::Epoll {
        let reason = "asked for by runtime.driver".to_owned();
        return Ok(DriverReport { kind: DriverKind::Epoll, reason });
    }
    let ladder = [DriverKind::UringSingleIssuer, DriverKind::UringCoop, DriverKind::UringPlain];
    let mut refused = Vec::new();
    for kind in ladder {
        match kind.works() {
            Ok(()) => return Ok(DriverReport { kind, reason: won(kind, &refused) }),
            Err(error) => refused.push(format!("{}: {error}", kind.step())),
        }
    }
    let why = refused.join("; ");
    match choice {
        DriverChoice::IoUring => Err(format!("io_uring does not work here: {why}")),
        _ => Ok(DriverReport {
            kind: DriverKind::Epoll,
            reason: format!("io_uring does not work here: {why}"),
        }),
    }
}

fn won(kind: DriverKind, refused: &[String]) -> String {
    match refused {
        [] => format!("{} works", kind.step()),
        _ => format!("{} works; {}", kind.step(), refused.join("; ")),
    }
}

impl DriverKind {
    /// A ring's settings.
    pub(super) fn ring(self) -> io_uring::Builder {
        let mut ring = IoUring::builder();
        match self {
            DriverKind::UringSingleIssuer => ring.setup_single_issuer().setup_coop_taskrun(),
            DriverKind::UringCoop => ring.setup_coop_taskrun(),
            DriverKind::UringPlain | DriverKind::Epoll => &mut ring,
        };
        ring
    }

    fn step(self) -> &'static str {
        match self.flags() {
            "" => "without flags",
            flags => flags,
        }
    }

    /// A system call filter may let a ring be set up and then refuse to run it, so one operation
    /// has to complete.
    fn works(self) -> io::Result<()> {
        let mut ring: IoUring = self.ring().build(RING_ENTRIES)?;
        let nop = opcode::Nop::new().build();
        push(&mut ring, &nop)?;
        ring.submit_and_wait(1)?;
        match ring.completion().next() {
            Some(done) if done.result() >= 0 => Ok(()),
            _ => Err(io::Error::other("a first operation did not complete")),
        }
    }
}

#[allow(unsafe_code)] // An entry is pushed by hand, for the probe only.
fn push(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> io::Result<()> {
    // SAFETY: a NOP refers to no memory.
    unsafe { ring.submission().push(entry) }.map_err(|_| io::Error::other("the queue is full"))
}

impl fmt::Display for DriverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.name(), self.reason)
    }
}
