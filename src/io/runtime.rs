//! The runtime of a core: starting it, spawning on it, sleeping on it.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

use super::driver::{DriverKind, DriverReport};
use crate::limits::RING_ENTRIES;

thread_local! {
    static ON_EPOLL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `main` on this thread until it ends, with the driver that `report` names.
///
/// The runtime is leaked: dropping it would free buffers that the kernel may still write to.
///
/// # Errors
/// The driver does not start after all.
pub fn run<F: Future>(report: &DriverReport, main: F) -> std::io::Result<F::Output> {
    ON_EPOLL.set(report.kind == DriverKind::Epoll);
    if report.kind == DriverKind::Epoll {
        let mut runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build()?;
        let output = runtime.block_on(main);
        let _ = std::mem::ManuallyDrop::new(runtime);
        return Ok(output);
    }
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new()
        .uring_builder(report.kind.ring())
        .with_entries(RING_ENTRIES)
        .enable_timer()
        .build()?;
    let output = runtime.block_on(main);
    let _ = std::mem::ManuallyDrop::new(runtime);
    Ok(output)
}

/// Whether this core runs on epoll.
pub(super) fn on_epoll() -> bool {
    ON_EPOLL.get()
}

/// Starts a task on this core.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    drop(monoio::spawn(task));
}

/// Waits. For service loops: requests have deadlines, not timers.
pub async fn sleep_ms(ms: u64) {
    monoio::time::sleep(Duration::from_millis(ms)).await;
}

/// Runs `task` for so long at most; `None` where it was dropped then. For what is rare: a timer costs.
pub async fn within<F: Future>(ms: u64, task: F) -> Option<F::Output> {
    monoio::time::timeout(Duration::from_millis(ms), task).await.ok()
}

/// Turns a panic while `task` is polled into `None`, so that the core goes on.
pub fn catch_panic<F: Future>(task: F) -> CatchPanic<F> {
    CatchPanic { task }
}

/// See [`catch_panic`].
pub struct CatchPanic<F> {
    task: F,
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Option<F::Output>;

    #[allow(unsafe_code)] // Pin projection to the only field.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is never moved out of the pinned structure.
        let task = unsafe { self.map_unchecked_mut(|this| &mut this.task) };
        #[cfg(debug_assertions)]
        let began = std::time::Instant::now();
        // After a panic the task is never polled again, so that nobody sees it broken.
        let polled = catch_unwind(AssertUnwindSafe(|| task.poll(context)));
        #[cfg(debug_assertions)]
        report_long_poll(began.elapsed());
        match polled {
            Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    }
}

/// Whatever blocks a core for this long must be found (P5).
#[cfg(debug_assertions)]
fn report_long_poll(took: Duration) {
    const POLL_MS_MAX: u128 = 5;
    if took.as_millis() > POLL_MS_MAX {
        tracing::warn!(ms = took.as_millis() as u64, "a poll took longer than {POLL_MS_MAX} ms");
    }
}

/// Runs two futures to their ends, in one task.
pub async fn join<A: Future, B: Future>(left: A, right: B) -> (A::Output, B::Output) {
    let (mut left, mut right) = (std::pin::pin!(left), std::pin::pin!(right));
    let (mut left_done, mut right_done) = (None, None);
    std::future::poll_fn(|context| {
        if left_done.is_none() {
            left_done = ready(left.as_mut().poll(context));
        }
        if right_done.is_none() {
            right_done = ready(right.as_mut().poll(context));
        }
        match (left_done.is_some(), right_done.is_some()) {
            (true, true) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    (left_done.expect("both have ended"), right_done.expect("both have ended"))
}

/// Polls `task` until it ends or `bound` has; it may be polled again after that.
pub async fn until<F: Future + Unpin>(task: &mut F, bound: impl Future) -> Option<F::Output> {
    let mut bound = std::pin::pin!(bound);
    std::future::poll_fn(|context| match Pin::new(&mut *task).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => bound.as_mut().poll(context).map(|_| None),
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
