//! What has come of a body by one look at its stream, passed on in one go: the cost of a look, of room
//! and of giving back is one for all its parts.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::stream::{Broken, Piece, poll_piece};
use super::trailers::passed_on;
use crate::limits::{HTTP2_BATCH_BYTES, HTTP2_BATCH_PARTS_MAX};

/// Parts of a body, in the order in which they came, and its end if that has come.
#[derive(Debug, Default)]
pub struct Batch {
    parts: Vec<Bytes>,
    /// How many of them have been sent.
    sent: usize,
    /// Bytes of those that have not.
    left: usize,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Plain,
    Trailers(HeaderMap),
}

impl Batch {
    /// Bytes that are to be sent, and to be given back afterwards.
    pub fn unsent(&self) -> usize {
        self.left
    }

    /// Whether its stream cannot be read from its beginning any more: all but a plain end.
    pub fn is_spent(&self) -> bool {
        self.left > 0 || matches!(self.end, Some(End::Trailers(_)))
    }

    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        self.end.is_some()
    }

    /// Waits for a part and takes what else is there, up to its bounds.
    pub(super) fn poll_fill(
        &mut self,
        body: &mut RecvStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        while self.parts.len() < HTTP2_BATCH_PARTS_MAX && self.left < HTTP2_BATCH_BYTES {
            match poll_piece(body, context) {
                Poll::Ready(Ok(Piece::Data(data))) if data.is_empty() => {}
                Poll::Ready(Ok(Piece::Data(data))) => {
                    self.left += data.len();
                    self.parts.push(data);
                }
                Poll::Ready(Ok(Piece::End)) => {
                    self.end = Some(End::Plain);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(Piece::Trailers(trailers))) => {
                    self.end = Some(End::Trailers(passed_on(trailers)));
                    return Poll::Ready(Ok(()));
                }
                // What came before an error goes first: the stream tells it once more.
                Poll::Ready(Err(_)) | Poll::Pending if self.left > 0 => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if body.is_end_stream() {
            self.end = Some(End::Plain);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what there is room for; `progress` is called before each wait for more. Empty and ready to
    /// be filled again once all has been sent.
    pub(super) fn poll_send(
        &mut self,
        sender: &mut SendStream<Bytes>,
        context: &mut Context<'_>,
        progress: &mut dyn FnMut(),
    ) -> Poll<Result<(), Broken>> {
        let mut room = 0;
        while let Some(part) = self.parts.get_mut(self.sent) {
            if room == 0 {
                sender.reserve_capacity(self.left);
                room = match sender.capacity() {
                    0 => match sender.poll_capacity(context) {
                        Poll::Ready(Some(granted)) => granted?,
                        Poll::Ready(None) => return Poll::Ready(Err(Broken::Lost)),
                        Poll::Pending => return Poll::Pending,
                    },
                    room => room,
                };
            }
            let data = part.split_to(room.min(part.len()));
            self.sent += usize::from(part.is_empty());
            room -= data.len();
            self.left -= data.len();
            let last = self.left == 0 && matches!(self.end, Some(End::Plain));
            sender.send_data(data, last)?;
            if last {
                self.end = None;
            } else if room == 0 && self.left > 0 {
                progress();
            }
        }
        self.parts.clear();
        self.sent = 0;
        Poll::Ready(match self.end.take() {
            Some(End::Plain) => sender.send_data(Bytes::new(), true).map_err(Broken::from),
            Some(End::Trailers(trailers)) => sender.send_trailers(trailers).map_err(Broken::from),
            None => Ok(()),
        })
    }
}
