//! The driver ladder: which way of doing I/O works here.

use std::fmt;

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

impl fmt::Display for DriverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.name(), self.reason)
    }
}
