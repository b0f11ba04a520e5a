//! Ends waits that no descriptor ends: those on one stream of a shared connection.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};

use super::stream::Shutdown;

/// What a deadline shuts down in the place of a descriptor. All waits on it are of one task.
#[derive(Debug, Default)]
pub struct Signal {
    read: Cell<bool>,
    write: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A wait was ended by its [`Signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl Signal {
    /// Shuts one direction or both down: pending waits end, later ones do not begin.
    pub fn shutdown(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.read.set(true);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.write.set(true);
        }
        self.wake();
    }

    /// Wakes the task that waits: it looks for itself at what has changed.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether reading has been shut down.
    pub fn reading_ended(&self) -> bool {
        self.read.get()
    }

    /// Whether writing has been shut down.
    pub fn writing_ended(&self) -> bool {
        self.write.get()
    }

    /// Waits for `wait` unless reading is shut down first.
    ///
    /// # Errors
    /// [`Stopped`]; `wait` is dropped then.
    pub async fn reading<F: Future>(&self, wait: F) -> Result<F::Output, Stopped> {
        self.unless(&self.read, wait).await
    }

    /// Waits for `wait` unless writing is shut down first.
    ///
    /// # Errors
    /// [`Stopped`]; `wait` is dropped then.
    pub async fn writing<F: Future>(&self, wait: F) -> Result<F::Output, Stopped> {
        self.unless(&self.write, wait).await
    }

    async fn unless<F: Future>(&self, ended: &Cell<bool>, wait: F) -> Result<F::Output, Stopped> {
        let mut wait = pin!(wait);
        std::future::poll_fn(|context| {
            if ended.get() {
                return Poll::Ready(Err(Stopped));
            }
            if let Poll::Ready(output) = wait.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            let waker = &mut *self.waker.borrow_mut();
            match waker {
                Some(known) if known.will_wake(context.waker()) => {}
                _ => *waker = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn a_shutdown_ends_the_waits_of_its_direction_only() {
        let signal = Signal::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut reading = pin!(signal.reading(pending::<()>()));
        let mut writing = pin!(signal.writing(pending::<()>()));
        assert!(reading.as_mut().poll(&mut context).is_pending());
        assert!(writing.as_mut().poll(&mut context).is_pending());
        signal.shutdown(Shutdown::Read);
        assert_eq!(reading.as_mut().poll(&mut context), Poll::Ready(Err(Stopped)));
        assert!(writing.as_mut().poll(&mut context).is_pending());
        signal.shutdown(Shutdown::Both);
        assert_eq!(writing.as_mut().poll(&mut context), Poll::Ready(Err(Stopped)));
        let mut late = pin!(signal.writing(async {}));
        assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(Err(Stopped)));
    }
}
