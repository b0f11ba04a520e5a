//! Cancelling a read without losing what had already arrived.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use monoio::io::{CancelHandle, Canceller};

/// Ends reads that were started with it. What had arrived is still delivered: a cancelled read
/// either returns bytes or [`Cancel::is_canceled`] is true of its error, never both.
#[derive(Default)]
pub struct Cancel {
    canceller: RefCell<Canceller>,
    /// Whether a read has begun since it last cancelled one.
    begun: Cell<bool>,
    mem: RefCell<Option<Waker>>,
    mem_canceled: Rc<Cell<bool>>,
}

/// ECANCELED, as both drivers report it.
const CANCELED: i32 = 125;

impl Cancel {
    /// Ends the read in flight, if any. Where none has begun since the last time it costs nothing: an
    /// idle connection of HTTP/2 is cancelled by every sweep.
    pub fn cancel(&self) {
        if self.begun.replace(false) {
            self.renew();
        }
        if let Some(waker) = self.mem.take() {
            self.mem_canceled.set(true);
            waker.wake();
        }
    }

    fn renew(&self) {
        // What `cancel` gives back keeps its table; a new one owns none.
        drop(self.canceller.take().cancel());
    }

    /// Whether a read ended because it was cancelled.
    pub fn is_canceled(error: &std::io::Error) -> bool {
        error.raw_os_error() == Some(CANCELED)
    }

    pub(super) fn handle(&self) -> CancelHandle {
        self.begun.set(true);
        self.canceller.borrow().handle()
    }

    /// For reads in memory: remembers who waits, or tells that it was cancelled.
    pub(super) fn poll_mem(&self, waker: &Waker) -> Option<std::io::Error> {
        if self.mem_canceled.replace(false) {
            return Some(std::io::Error::from_raw_os_error(CANCELED));
        }
        self.mem.replace(Some(waker.clone()));
        None
    }

    /// For reads in memory: nobody waits any more.
    pub(super) fn clear_mem(&self) {
        self.mem.take();
        self.mem_canceled.set(false);
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cancel")
    }
}
