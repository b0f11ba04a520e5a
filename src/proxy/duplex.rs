//! A request whose body is still coming: both directions at once (P9).

use super::answer::{self, Relayed};
use super::exchange::{Answer, Upload};
use super::forward::Job;
use super::kept::Kept;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http1::body::Body;
use crate::http1::conn::write_all;
use crate::io::runtime::join;
use crate::io::wait::Timer;
use crate::io::{Cancel, Wait};
use crate::limits::HEAD_BUFFER_BYTES;

/// Sends the request's head and what is in hand of its body, then pumps both ways until both are
/// over. A final answer ends the upload; a failed upload ends the answer.
pub(super) async fn run(
    upload: &mut Upload,
    answer: &mut Answer,
    job: &Job<'_>,
) -> Result<Relayed, ErrorKind> {
    let mut first = std::mem::take(&mut answer.scratch);
    first.extend(&job.context.request.rest()[..upload.relay]);
    if job.context.timing.retries > 0 {
        upload.begin_anew(job)?;
    }
    let Upload { body, behind, bytes, cancel, kept, spent, .. } = upload;
    let cancel: &Cancel = cancel;
    let timer = job.upload_timer();
    let kept = kept.as_deref_mut();
    let mut pump = Pump { body, behind, bytes, cancel, kept, spent, timer, job };
    together(pump.run(first), answer, job, || cancel.cancel()).await
}

/// Runs an upload and the answer to their ends. `stop` ends the upload's wait for the client.
pub(super) async fn together(
    upload: impl Future<Output = Result<(), ErrorKind>>,
    answer: &mut Answer,
    job: &Job<'_>,
    stop: impl Fn(),
) -> Result<Relayed, ErrorKind> {
    let sending = async {
        let sent = upload.await;
        if sent.is_err() {
            job.stop_upstream();
        }
        sent
    };
    let answering = async {
        let relayed = answer::relay(answer, job).await;
        job.answer_done.set(true);
        stop();
        if !job.request_done.get() {
            job.stop_upstream();
        }
        relayed
    };
    let (sent, relayed) = join(sending, answering).await;
    match (sent, relayed) {
        (Err(kind), Err(_)) => Err(kind),
        (_, relayed) => relayed,
    }
}

/// The upload.
struct Pump<'a> {
    body: &'a mut Body,
    behind: &'a mut Buf,
    bytes: &'a mut u64,
    cancel: &'a Cancel,
    kept: Option<&'a mut Kept>,
    spent: &'a mut bool,
    timer: &'a Timer,
    job: &'a Job<'a>,
}

impl Pump<'_> {
    /// Passes the body on until it is whole, the answer is over, or the upstream takes no more.
    ///
    /// # Errors
    /// What the client did wrong, or that the upstream took too long.
    async fn run(&mut self, first: Buf) -> Result<(), ErrorKind> {
        let mut whole = false;
        let mut taken = self.send(first).await;
        while let (Some(buf), false) = (taken.take(), whole || self.job.answer_done.get()) {
            let Some(buf) = self.receive(buf).await? else { break };
            let (buf, done) = self.advance(buf)?;
            taken = self.send(buf).await;
            // Only a body that was sent to its end is whole.
            whole = done && taken.is_some();
        }
        self.job.upload_ended(self.timer, whole)
    }

    /// Looks at what was read: what may be passed on, and whether the body is whole. What is behind
    /// it begins the next request.
    fn advance(&mut self, mut buf: Buf) -> Result<(Buf, bool), ErrorKind> {
        let step = self.body.advance(buf.filled())?;
        *self.bytes += step.data as u64;
        if self.job.matched.terms.body_bytes_max.is_some_and(|max| *self.bytes > max) {
            return Err(ErrorKind::BodyTooLarge);
        }
        if buf.len() > step.consumed {
            *self.behind = Buf::for_head();
            self.behind.reserve(buf.len() - step.consumed);
            self.behind.extend(&buf.filled()[step.consumed..]);
            if let Some(kept) = &mut self.kept {
                kept.cut(buf.len() - step.consumed);
            }
        }
        buf.truncate(step.relay);
        if step.done {
            buf.extend(self.body.tail());
        }
        Ok((buf, step.done))
    }

    /// Reads more of the body; `None` when the answer is over.
    async fn receive(&mut self, mut buf: Buf) -> Result<Option<Buf>, ErrorKind> {
        if let Some(kept) = &mut self.kept {
            buf.clear();
            if kept.replay(&mut buf) {
                return Ok(Some(buf));
            }
        }
        // A client that sends fast gets a large buffer, a slow one does not hold one.
        if buf.spare() == 0 && buf.capacity() <= HEAD_BUFFER_BYTES {
            buf = Buf::for_body();
        }
        buf.clear();
        self.timer.arm(Wait::RequestBody, self.job.listener().body_timeout_ms);
        let (result, buf) = self.job.down.stream().read_cancelable(buf, self.cancel).await;
        match result {
            Ok(count) if count > 0 => {
                self.keep(&buf);
                Ok(Some(buf))
            }
            Err(error) if Cancel::is_canceled(&error) && self.job.answer_done.get() => Ok(None),
            _ if self.job.answer_done.get() => Ok(None),
            _ if self.timer.expired() == Some(Wait::RequestBody) => Err(ErrorKind::BodyTimeout),
            _ => Err(ErrorKind::ClientAborted),
        }
    }

    /// Keeps what was just read for another try, as long as it fits.
    fn keep(&mut self, buf: &Buf) {
        *self.spent = true;
        if let Some(kept) = &mut self.kept {
            kept.push(buf.filled(), self.job.answer_done.get());
        }
        let whole = self.kept.as_ref().is_some_and(|kept| kept.is_whole());
        self.job.replayable.set(whole);
    }

    /// Writes to the upstream; `None` when it takes no more, which its answer may explain.
    async fn send(&mut self, mut buf: Buf) -> Option<Buf> {
        let timeout_ms = self.job.settings().body_timeout_ms;
        let progress = || self.timer.arm(Wait::UpstreamWrite, timeout_ms);
        let sent = write_all(self.job.stream(), &mut buf, progress).await;
        sent.ok().map(|()| buf)
    }
}

impl Upload {
    /// Goes back to where the body stood before anything of it was read.
    fn begin_anew(&mut self, job: &Job<'_>) -> Result<(), ErrorKind> {
        self.body = Body::new(job.context.facts.framing);
        let step = self.body.advance(&job.context.request.rest()[..self.in_hand])?;
        self.bytes = step.data as u64;
        Ok(())
    }
}

impl Job<'_> {
    /// Bounds the upload.
    pub(super) fn upload_timer(&self) -> &Timer {
        self.upload.get_or_init(|| {
            let target = self.down.target(Some(self.lease.handle()));
            Box::new(Timer::new(&self.core.deadlines, target))
        })
    }

    /// The upload has ended, `whole` or not; from now on it is for the upstream to answer.
    pub(super) fn upload_ended(&self, timer: &Timer, whole: bool) -> Result<(), ErrorKind> {
        if timer.expired() == Some(Wait::UpstreamWrite) {
            return Err(ErrorKind::UpstreamWriteTimeout);
        }
        self.request_done.set(whole);
        timer.disarm();
        if !self.answer_done.get() {
            self.answer_due();
        }
        Ok(())
    }

    /// Begins the wait for the answer's head, unless it has come already.
    fn answer_due(&self) {
        self.timer().bound(Wait::ResponseHead, self.response_timeout_ms());
    }
}
