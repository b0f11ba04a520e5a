//! A runtime with a chosen set of ring flags.

use std::future::Future;
use std::io;
use std::str::FromStr;

use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

/// Entries of the submission queue.
const RING_ENTRIES: u32 = 1024;

/// The flags that a ring is set up with, or no ring at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFlags {
    /// None: every completion interrupts the thread that owns the ring.
    None,
    /// COOP_TASKRUN.
    Coop,
    /// SINGLE_ISSUER and COOP_TASKRUN: what Ringway takes where the kernel has it.
    SingleIssuerCoop,
    /// SINGLE_ISSUER and DEFER_TASKRUN.
    SingleIssuerDefer,
    /// monoio's epoll driver.
    Epoll,
}

impl RingFlags {
    /// Runs `future` to its end on this thread, on a runtime with these flags.
    ///
    /// The runtime is never dropped before the process ends: the kernel may still write into the
    /// buffers of operations that are under way.
    pub fn run<F>(self, future: F) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        if self == RingFlags::Epoll {
            return RuntimeBuilder::<LegacyDriver>::new().build()?.block_on(future);
        }
        let mut builder = io_uring::IoUring::builder();
        match self {
            RingFlags::None | RingFlags::Epoll => {}
            RingFlags::Coop => {
                builder.setup_coop_taskrun();
            }
            RingFlags::SingleIssuerCoop => {
                builder.setup_single_issuer().setup_coop_taskrun();
            }
            RingFlags::SingleIssuerDefer => {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
        }
        RuntimeBuilder::<IoUringDriver>::new()
            .with_entries(RING_ENTRIES)
            .uring_builder(builder)
            .build()?
            .block_on(future)
    }
}

impl FromStr for RingFlags {
    type Err = String;

    fn from_str(text: &str) -> Result<RingFlags, String> {
        match text {
            "none" => Ok(RingFlags::None),
            "coop" => Ok(RingFlags::Coop),
            "single+coop" => Ok(RingFlags::SingleIssuerCoop),
            "single+defer" => Ok(RingFlags::SingleIssuerDefer),
            "epoll" => Ok(RingFlags::Epoll),
            _ => Err("not one of none, coop, single+coop, single+defer, epoll".to_owned()),
        }
    }
}
