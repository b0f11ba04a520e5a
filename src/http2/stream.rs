//! One stream of an HTTP/2 connection: of a client, and to an origin.
//!
//! Methods take `&self`, so that two pumps of one task may share a stream; at most one reads and
//! one writes. Capacity is given back only when what was read has been passed on: flow control is
//! back-pressure from one end to the other (RFC 9113 section 5.2).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response, response};

use super::batch::Batch;
use super::incident::Incident;
use super::origin::Origin;
use crate::error::ErrorKind;
use crate::io::signal::{Signal, Stopped};
use crate::io::{Handle, Shutdown};

/// What comes on a stream behind the head.
#[derive(Debug)]
pub enum Piece {
    /// A part of the body; its bytes are to be [given back](ServerStream::release).
    Data(Bytes),
    /// The trailer section, which ends the stream.
    Trailers(HeaderMap),
    /// The end without trailers.
    End,
}

/// Why a stream ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A deadline ended the wait.
    Stopped,
    /// The peer reset it, or it broke the protocol.
    Reset(Reason),
    /// The peer says that it has not looked at it (RFC 9113 section 8.7).
    Refused,
    /// Its connection is gone.
    Lost,
}

impl Broken {
    /// The kind of error that it is where it is an origin's stream that broke; `answered` says that
    /// the head of an answer had come. What stopped it is told by the deadline that did.
    pub fn kind(self, answered: bool) -> ErrorKind {
        match (self, answered) {
            (Broken::Refused, false) => ErrorKind::StreamRefused,
            (Broken::Reset(_), _) => ErrorKind::UpstreamReset,
            (Broken::Stopped | Broken::Lost, false) => ErrorKind::UpstreamClosed,
            (Broken::Refused | Broken::Stopped | Broken::Lost, true) => {
                ErrorKind::ResponseIncomplete
            }
        }
    }
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Broken {
        Broken::Stopped
    }
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Broken {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_remote() => Broken::Refused,
            // A stream is told of a GOAWAY only if it is above the last one that was looked at.
            Some(_) if error.is_go_away() && error.is_remote() => Broken::Refused,
            Some(reason) if error.is_reset() => Broken::Reset(reason),
            _ => Broken::Lost,
        }
    }
}

/// The sending half of either side.
type Sender = SendStream<Bytes>;

/// A client's stream: its request has come, its answer is to be sent.
pub struct ServerStream {
    reply: RefCell<Reply>,
    body: RefCell<RecvStream>,
    signal: Rc<Signal>,
}

enum Reply {
    Due(SendResponse<Bytes>),
    Begun(Sender),
}

impl ServerStream {
    /// A stream whose request head has come.
    pub fn new(body: RecvStream, reply: SendResponse<Bytes>) -> ServerStream {
        ServerStream {
            reply: RefCell::new(Reply::Due(reply)),
            body: RefCell::new(body),
            signal: Rc::default(),
        }
    }

    /// What deadlines shut down in the place of a descriptor.
    pub fn handle(&self) -> Handle {
        Handle::Signal(self.signal.clone())
    }

    /// Wakes the task that reads or writes, which knows of a reason of its own to end that.
    pub fn wake(&self) {
        self.signal.wake();
    }

    /// Whether no body and no trailers are to come.
    pub fn is_end(&self) -> bool {
        self.body.borrow().is_end_stream()
    }

    /// The next part of the request's body.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn read(&self) -> Result<Piece, Broken> {
        let polled = |context: &mut Context<'_>| {
            poll_piece(&mut self.body.borrow_mut(), context).map_err(Broken::from)
        };
        self.signal.reading(poll_fn(polled)).await?
    }

    /// Waits for more of the request's body and takes all that is there.
    ///
    /// # Errors
    /// See [`Broken`]; none as long as `batch` has something.
    pub async fn read_batch(&self, batch: &mut Batch) -> Result<(), Broken> {
        let polled = |context: &mut Context<'_>| {
            batch.poll_fill(&mut self.body.borrow_mut(), context).map_err(Broken::from)
        };
        self.signal.reading(poll_fn(polled)).await?
    }

    /// Lets the client send so many bytes more, once they have been passed on.
    pub fn release(&self, bytes: usize) {
        release(&mut self.body.borrow_mut(), bytes);
    }

    /// Sends a 1xx head.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn send_interim(&self, head: Response<()>) -> Result<(), Broken> {
        match &mut *self.reply.borrow_mut() {
            Reply::Due(reply) => Ok(reply.send_informational(head)?),
            Reply::Begun(_) => Err(Broken::Lost),
        }
    }

    /// Sends the final head; `end` says that nothing follows it.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn send_head(&self, head: Response<()>, end: bool) -> Result<(), Broken> {
        let reply = &mut *self.reply.borrow_mut();
        let Reply::Due(due) = reply else { return Err(Broken::Lost) };
        *reply = Reply::Begun(due.send_response(head, end)?);
        Ok(())
    }

    /// Sends a part of the body as the client makes room; `end` says that nothing follows it.
    /// `progress` is called before each wait for room.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn send_data(
        &self,
        data: Bytes,
        end: bool,
        progress: impl FnMut(),
    ) -> Result<(), Broken> {
        let with = |act: &mut dyn FnMut(&mut Sender) -> Poll<Result<(), Broken>>| match &mut *self
            .reply
            .borrow_mut()
        {
            Reply::Begun(sender) => act(sender),
            Reply::Due(_) => Poll::Ready(Err(Broken::Lost)),
        };
        send_data(with, &self.signal, data, end, progress).await
    }

    /// Sends all of `batch` as the client makes room; `progress` is called before each wait for it.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn send_batch(
        &self,
        batch: &mut Batch,
        mut progress: impl FnMut(),
    ) -> Result<(), Broken> {
        progress();
        let sending = poll_fn(|context| match &mut *self.reply.borrow_mut() {
            Reply::Begun(sender) => batch.poll_send(sender, context, &mut progress),
            Reply::Due(_) => Poll::Ready(Err(Broken::Lost)),
        });
        self.signal.writing(sending).await?
    }

    /// Sends trailers, which end the stream.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn send_trailers(&self, trailers: HeaderMap) -> Result<(), Broken> {
        match &mut *self.reply.borrow_mut() {
            Reply::Begun(sender) => Ok(sender.send_trailers(trailers)?),
            Reply::Due(_) => Err(Broken::Lost),
        }
    }

    /// Ends the stream so that the client cannot take what it got for whole.
    pub fn reset(&self, reason: Reason) {
        match &mut *self.reply.borrow_mut() {
            Reply::Due(reply) => reply.send_reset(reason),
            Reply::Begun(sender) => sender.send_reset(reason),
        }
    }

    /// Whether the client has reset the stream; wakes the task when it does.
    pub fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        let polled = match &mut *self.reply.borrow_mut() {
            Reply::Due(reply) => reply.poll_reset(context),
            Reply::Begun(sender) => sender.poll_reset(context),
        };
        polled.map(drop)
    }
}

/// The head of an answer.
#[derive(Debug)]
pub enum OriginHead {
    /// A 1xx one: another follows.
    Interim(response::Parts),
    /// The final one.
    Final(response::Parts),
}

/// A stream to an origin: its request head has been sent.
pub struct OriginStream {
    response: RefCell<ResponseFuture>,
    body: RefCell<Option<RecvStream>>,
    sender: RefCell<Sender>,
    signal: Rc<Signal>,
    origin: Rc<Origin>,
    /// Whether it ended with its connection.
    lost: Cell<bool>,
    /// Whether the final head has come, or an end in its place.
    told: Cell<bool>,
}

impl OriginStream {
    /// A stream whose request has been begun on a connection to `origin`; `signal` is what deadlines
    /// shut down.
    pub(super) fn new(
        response: ResponseFuture,
        sender: Sender,
        signal: Rc<Signal>,
        origin: Rc<Origin>,
    ) -> OriginStream {
        OriginStream {
            response: RefCell::new(response),
            body: RefCell::default(),
            sender: RefCell::new(sender),
            signal,
            origin,
            lost: Cell::new(false),
            told: Cell::new(false),
        }
    }

    /// What failed it and others at once: the end of its connection.
    pub fn incident(&self) -> Option<Incident> {
        if self.lost.get() { self.origin.failure() } else { None }
    }

    /// Why it broke; counted where the origin has reset it, and nothing else.
    fn broken(&self, error: h2::Error) -> Broken {
        if error.is_reset() && error.is_remote() {
            self.origin.counters().upstream_http2_resets.increment();
        }
        self.told.set(true);
        let broken = Broken::from(error);
        self.lost.set(broken == Broken::Lost);
        broken
    }

    /// A deadline ended a wait for the origin.
    fn waited_in_vain(&self, stopped: Stopped) -> Broken {
        self.origin.doubt();
        Broken::from(stopped)
    }

    /// Waits for the next head of the answer.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn read_head(&self) -> Result<OriginHead, Broken> {
        let head = self.signal.reading(poll_fn(|context| self.poll_head(context))).await;
        head.map_err(|stopped| self.waited_in_vain(stopped))?
    }

    fn poll_head(&self, context: &mut Context<'_>) -> Poll<Result<OriginHead, Broken>> {
        let response = &mut *self.response.borrow_mut();
        if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
            return Poll::Ready(match interim {
                Ok(head) => Ok(OriginHead::Interim(head.into_parts().0)),
                Err(error) => Err(self.broken(error)),
            });
        }
        Pin::new(response).poll(context).map(|answered| {
            let answered = answered.map_err(|error| self.broken(error))?;
            let (head, body) = answered.into_parts();
            self.body.replace(Some(body));
            self.told.set(true);
            self.origin.answered();
            Ok(OriginHead::Final(head))
        })
    }

    /// Whether the final head was all.
    pub fn is_end(&self) -> bool {
        self.body.borrow().as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// The next part of the answer's body.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn read(&self) -> Result<Piece, Broken> {
        let polled = |context: &mut Context<'_>| match &mut *self.body.borrow_mut() {
            Some(body) => poll_piece(body, context).map_err(|error| self.broken(error)),
            None => Poll::Ready(Err(Broken::Lost)),
        };
        let piece = self.signal.reading(poll_fn(polled)).await;
        piece.map_err(|stopped| self.waited_in_vain(stopped))?
    }

    /// Waits for more of the answer's body and takes all that is there.
    ///
    /// # Errors
    /// See [`Broken`]; none as long as `batch` has something.
    pub async fn read_batch(&self, batch: &mut Batch) -> Result<(), Broken> {
        let polled = |context: &mut Context<'_>| match &mut *self.body.borrow_mut() {
            Some(body) => batch.poll_fill(body, context).map_err(|error| self.broken(error)),
            None => Poll::Ready(Err(Broken::Lost)),
        };
        let filled = self.signal.reading(poll_fn(polled)).await;
        filled.map_err(|stopped| self.waited_in_vain(stopped))?
    }

    /// Lets the origin send so many bytes more, once they have been passed on.
    pub fn release(&self, bytes: usize) {
        if let Some(body) = &mut *self.body.borrow_mut() {
            release(body, bytes);
        }
    }

    /// Sends a part of the request's body as the origin makes room; `end` says that nothing follows.
    /// `progress` is called before each wait for room.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn send_data(
        &self,
        data: Bytes,
        end: bool,
        progress: impl FnMut(),
    ) -> Result<(), Broken> {
        let with = |act: &mut dyn FnMut(&mut Sender) -> Poll<Result<(), Broken>>| {
            act(&mut self.sender.borrow_mut())
        };
        send_data(with, &self.signal, data, end, progress).await
    }

    /// Sends all of `batch` as the origin makes room; `progress` is called before each wait for it.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn send_batch(
        &self,
        batch: &mut Batch,
        mut progress: impl FnMut(),
    ) -> Result<(), Broken> {
        progress();
        let sending = poll_fn(|context| {
            batch.poll_send(&mut self.sender.borrow_mut(), context, &mut progress)
        });
        self.signal.writing(sending).await?
    }

    /// Sends trailers, which end the request.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn send_trailers(&self, trailers: HeaderMap) -> Result<(), Broken> {
        Ok(self.sender.borrow_mut().send_trailers(trailers)?)
    }

    /// Tells the origin that nobody wants the rest.
    pub fn reset(&self, reason: Reason) {
        self.sender.borrow_mut().send_reset(reason);
        self.signal.shutdown(Shutdown::Both);
    }
}

impl Drop for OriginStream {
    /// Of two tries the one that loses is dropped while it waits: no deadline says that it did so in
    /// vain.
    fn drop(&mut self) {
        if !self.told.get() {
            self.origin.doubt();
        }
    }
}

pub(super) fn poll_piece(
    body: &mut RecvStream,
    context: &mut Context<'_>,
) -> Poll<Result<Piece, h2::Error>> {
    match body.poll_data(context) {
        Poll::Ready(Some(Ok(data))) => Poll::Ready(Ok(Piece::Data(data))),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
        Poll::Pending => Poll::Pending,
        Poll::Ready(None) => body.poll_trailers(context).map(|trailers| {
            Ok(match trailers? {
                Some(trailers) => Piece::Trailers(trailers),
                None => Piece::End,
            })
        }),
    }
}

fn release(body: &mut RecvStream, bytes: usize) {
    // Of a stream that is gone nothing is owed.
    let _ = body.flow_control().release_capacity(bytes);
}

/// Sends `data` piece by piece, as capacity is given; each grant begins the wait for the next anew.
async fn send_data(
    with: impl Fn(&mut dyn FnMut(&mut Sender) -> Poll<Result<(), Broken>>) -> Poll<Result<(), Broken>>,
    signal: &Signal,
    mut data: Bytes,
    end: bool,
    mut progress: impl FnMut(),
) -> Result<(), Broken> {
    progress();
    let sending = poll_fn(|context| {
        with(&mut |sender| {
            if data.is_empty() && end {
                return Poll::Ready(Ok(sender.send_data(Bytes::new(), true)?));
            }
            while !data.is_empty() {
                sender.reserve_capacity(data.len());
                let room = match sender.capacity() {
                    0 => match sender.poll_capacity(context) {
                        Poll::Ready(Some(granted)) => granted?,
                        Poll::Ready(None) => return Poll::Ready(Err(Broken::Lost)),
                        Poll::Pending => return Poll::Pending,
                    },
                    room => room,
                };
                let part = data.split_to(room.min(data.len()));
                if !part.is_empty() {
                    sender.send_data(part, end && data.is_empty())?;
                    if !data.is_empty() {
                        progress();
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
    });
    signal.writing(sending).await?
}
