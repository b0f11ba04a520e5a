//! The body of a request, from a client to an origin of which one at least speaks HTTP/2.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;

use super::super::exchange::Upload;
use super::super::forward::Job;
use super::super::kept::Kept;
use super::part::{Decoder, Part};
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::BodyFraming;
use crate::http::grpc_web::GrpcWeb;
use crate::http1::conn::write_all;
use crate::http2::{Batch, Broken, OriginStream, Piece, ServerStream};
use crate::io::wait::Timer;
use crate::io::{Cancel, Wait};
use crate::limits::HEAD_BUFFER_BYTES;

/// The upload.
pub(super) struct Pump<'a> {
    /// Reads the body of an HTTP/1 client from its first byte on, whatever was looked at before.
    decoder: Decoder,
    /// Raw bytes of it that are in hand.
    read: Buf,
    behind: &'a mut Buf,
    bytes: &'a mut u64,
    spent: &'a mut bool,
    kept: Option<&'a mut Kept>,
    /// Bytes of the part in hand that its client may send anew once it is passed on.
    owed: usize,
    pub cancel: &'a Cancel,
    timer: &'a Timer,
    job: &'a Job<'a>,
    /// Whether the origin is sent chunks.
    chunked: bool,
    /// Turns gRPC-Web into gRPC.
    web: Option<Box<GrpcWeb>>,
}

impl<'a> Pump<'a> {
    pub fn new(upload: &'a mut Upload, timer: &'a Timer, job: &'a Job<'a>) -> Pump<'a> {
        let framing = job.context.facts.framing;
        let mut read = Buf::empty();
        if upload.in_hand > 0 {
            read = Buf::for_head();
            read.extend(&job.context.request.rest()[..upload.in_hand]);
        }
        // What is in hand is counted anew as it goes.
        upload.bytes = 0;
        let Upload { behind, bytes, cancel, spent, kept, .. } = upload;
        Pump {
            decoder: Decoder::new(framing),
            read,
            behind,
            bytes,
            spent,
            kept: kept.as_deref_mut(),
            owed: 0,
            cancel,
            timer,
            job,
            chunked: job.sent_framing() == BodyFraming::Chunked,
            web: job.context.facts.grpc_web.clone(),
        }
    }

    /// Passes the body on until it is whole, the answer is over, or the origin takes no more.
    ///
    /// # Errors
    /// What the client did wrong, or that the origin took too long.
    pub async fn run(&mut self) -> Result<(), ErrorKind> {
        let job = self.job;
        if let (Some(client), Some(origin), None, None) =
            (job.down.http2(), job.origin.get(), &self.web, &self.kept)
        {
            let whole = self.run_stream(client, origin).await?;
            return job.upload_ended(self.timer, whole);
        }
        let mut whole = false;
        while !whole && !self.job.answer_done.get() {
            let Some(part) = self.next().await? else { break };
            self.count(part.len())?;
            let last = part.is_last();
            let part = self.turn(part)?;
            // A failed write is told by the answer, or by its absence.
            if !self.send(part).await {
                break;
            }
            if let Some(client) = self.job.down.http2() {
                client.release(self.owed);
            }
            whole = last;
        }
        self.job.upload_ended(self.timer, whole)
    }

    /// The same where both sides speak HTTP/2 and nothing is turned: all that is there goes in one go.
    /// Whether the body is whole.
    async fn run_stream(
        &mut self,
        client: &ServerStream,
        origin: &OriginStream,
    ) -> Result<bool, ErrorKind> {
        let timeout_ms = self.job.settings().body_timeout_ms;
        let (mut batch, mut whole) = (Batch::default(), false);
        while !whole && !self.job.answer_done.get() {
            self.timer.arm(Wait::RequestBody, self.job.listener().body_timeout_ms);
            let read = unless(&self.job.answer_done, client.read_batch(&mut batch)).await;
            match read {
                None => return Ok(false),
                Some(Ok(())) => {}
                Some(Err(broken)) => {
                    self.broken(broken)?;
                    return Ok(false);
                }
            }
            let (length, last) = (batch.unsent(), batch.is_last());
            *self.spent |= batch.is_spent();
            self.job.replayable.set(false);
            self.count(length)?;
            let progress = || self.timer.arm(Wait::UpstreamWrite, timeout_ms);
            // A failed write is told by the answer, or by its absence.
            if origin.send_batch(&mut batch, progress).await.is_err() {
                return Ok(false);
            }
            client.release(length);
            whole = last;
        }
        Ok(whole)
    }

    fn count(&mut self, length: usize) -> Result<(), ErrorKind> {
        *self.bytes += length as u64;
        match self.job.matched.terms.body_bytes_max {
            Some(max) if *self.bytes > max => Err(ErrorKind::BodyTooLarge),
            _ => Ok(()),
        }
    }

    /// Why the client's stream ended, unless the answer is over.
    fn broken(&self, broken: Broken) -> Result<(), ErrorKind> {
        match broken {
            _ if self.job.answer_done.get() => Ok(()),
            Broken::Stopped if self.timer.expired() == Some(Wait::RequestBody) => {
                Err(ErrorKind::BodyTimeout)
            }
            _ => Err(ErrorKind::ClientAborted),
        }
    }

    fn turn(&mut self, part: Part) -> Result<Part, ErrorKind> {
        let (Some(web), Part::Data(bytes, last)) = (&mut self.web, &part) else { return Ok(part) };
        let mut out = part.buffer();
        web.request(bytes, &mut out)?;
        if *last {
            web.request_end()?;
        }
        Ok(Part::Data(Bytes::copy_from_slice(out.filled()), *last))
    }

    /// The next part; `None` when the answer is over.
    async fn next(&mut self) -> Result<Option<Part>, ErrorKind> {
        match self.job.down.http2() {
            Some(client) => self.next_of_stream(client).await,
            None => self.next_of_connection().await,
        }
    }

    async fn next_of_stream(&mut self, client: &ServerStream) -> Result<Option<Part>, ErrorKind> {
        self.owed = 0;
        if let Some(part) = self.replayed() {
            return Ok(Some(part));
        }
        self.timer.arm(Wait::RequestBody, self.job.listener().body_timeout_ms);
        let Some(read) = unless(&self.job.answer_done, client.read()).await else {
            return Ok(None);
        };
        match read {
            Ok(piece) => {
                // The end alone can be read once more.
                *self.spent |= !matches!(piece, Piece::End);
                let part = Part::of(piece, client.is_end());
                self.keep(&part, client);
                Ok(Some(part))
            }
            Err(broken) => self.broken(broken).map(|()| None),
        }
    }

    /// What another try has already read of the stream.
    fn replayed(&mut self) -> Option<Part> {
        let kept = self.kept.as_mut()?;
        let data = Bytes::copy_from_slice(kept.rest());
        if !data.is_empty() {
            return Some(Part::Data(data, kept.ended && kept.trailers.is_none()));
        }
        let trailers = kept.trailers.clone().map(Part::Trailers);
        trailers.or_else(|| kept.ended.then(|| Part::Data(Bytes::new(), true)))
    }

    /// Keeps a part for another try, as long as it fits. What is kept is the client's no more.
    fn keep(&mut self, part: &Part, client: &ServerStream) {
        self.owed = part.len();
        let Some(kept) = &mut self.kept else {
            self.job.replayable.set(false);
            return;
        };
        match part {
            Part::Data(bytes, _) => kept.push(bytes, self.job.answer_done.get()),
            Part::Trailers(trailers) => kept.trailers = Some(trailers.clone()),
        }
        kept.ended |= part.is_last();
        self.job.replayable.set(kept.is_whole());
        if kept.is_whole() {
            client.release(std::mem::take(&mut self.owed));
        }
    }

    async fn next_of_connection(&mut self) -> Result<Option<Part>, ErrorKind> {
        loop {
            if let Some(part) = self.decoder.held() {
                return Ok(Some(part));
            }
            if self.read.is_empty() && !self.receive().await? {
                return Ok(None);
            }
            let (part, consumed) = self.decoder.decode(self.read.filled_mut())?;
            // What is behind the end begins the next request.
            if self.read.len() > consumed {
                *self.behind = Buf::for_head();
                self.behind.reserve(self.read.len() - consumed);
                self.behind.extend(&self.read.filled()[consumed..]);
                if let Some(kept) = &mut self.kept {
                    kept.cut(self.read.len() - consumed);
                }
            }
            self.read.clear();
            if part.is_last() || part.len() > 0 {
                return Ok(Some(part));
            }
        }
    }

    /// Reads more of a connection; false when the answer is over.
    async fn receive(&mut self) -> Result<bool, ErrorKind> {
        let mut buf = std::mem::take(&mut self.read);
        // A client that sends fast gets a large buffer, a slow one does not hold one.
        if buf.capacity() == 0 {
            buf = Buf::for_head();
        } else if buf.spare() == 0 && buf.capacity() <= HEAD_BUFFER_BYTES {
            buf = Buf::for_body();
        }
        buf.clear();
        if self.kept.as_mut().is_some_and(|kept| kept.replay(&mut buf)) {
            self.read = buf;
            return Ok(true);
        }
        self.timer.arm(Wait::RequestBody, self.job.listener().body_timeout_ms);
        let (result, buf) = self.job.down.stream().read_cancelable(buf, self.cancel).await;
        self.read = buf;
        if let Ok(1..) = result {
            *self.spent = true;
            if let Some(kept) = &mut self.kept {
                kept.push(self.read.filled(), self.job.answer_done.get());
            }
            let whole = self.kept.as_ref().is_some_and(|kept| kept.is_whole());
            self.job.replayable.set(whole);
        }
        match result {
            Ok(count) if count > 0 => Ok(true),
            Err(error) if Cancel::is_canceled(&error) && self.job.answer_done.get() => Ok(false),
            _ if self.job.answer_done.get() => Ok(false),
            _ if self.timer.expired() == Some(Wait::RequestBody) => Err(ErrorKind::BodyTimeout),
            _ => Err(ErrorKind::ClientAborted),
        }
    }

    /// Gives a part to the origin. Whether it took it.
    async fn send(&self, part: Part) -> bool {
        let timeout_ms = self.job.settings().body_timeout_ms;
        let progress = || self.timer.arm(Wait::UpstreamWrite, timeout_ms);
        let Some(origin) = self.job.origin.get() else {
            let mut out = part.buffer();
            part.encode(self.chunked, &mut out);
            return write_all(self.job.stream(), &mut out, progress).await.is_ok();
        };
        match part {
            Part::Data(bytes, last) => origin.send_data(bytes, last, progress).await.is_ok(),
            Part::Trailers(trailers) => origin.send_trailers(trailers).is_ok(),
        }
    }
}

/// Waits for `wait`, unless `over` holds when the task is woken.
async fn unless<F: Future>(over: &Cell<bool>, wait: F) -> Option<F::Output> {
    let mut wait = pin!(wait);
    poll_fn(|context| match over.get() {
        true => Poll::Ready(None),
        false => wait.as_mut().poll(context).map(Some),
    })
    .await
}
