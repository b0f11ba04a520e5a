//! Where a body stands: how much of what was read belongs to it, and whether it is whole.

use super::chunked::{ChunkedRelay, Step, Stripped};
use crate::error::ErrorKind;
use crate::http::BodyFraming;

/// A body on its way.
#[derive(Debug, Default)]
pub enum Body {
    /// It has been passed on, or there was none.
    #[default]
    Done,
    /// So many bytes are to come.
    Length(u64),
    /// Chunks are to come.
    Chunked(ChunkedRelay),
    /// Everything until the connection ends.
    UntilClose,
}

impl Body {
    /// A body at its beginning.
    pub fn new(framing: BodyFraming) -> Body {
        match framing {
            BodyFraming::None | BodyFraming::Length(0) => Body::Done,
            BodyFraming::Length(length) => Body::Length(length),
            BodyFraming::Chunked => Body::Chunked(ChunkedRelay::new()),
            BodyFraming::UntilClose => Body::UntilClose,
        }
    }

    /// Whether nothing is to come.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self, Body::Done)
    }

    /// Looks at the next bytes: how many belong to the body, how many of those may be passed on as
    /// they are, and whether it is whole now. [`Body::tail`] is to follow a whole body.
    ///
    /// # Errors
    /// [`ErrorKind::ChunkMalformed`]; whose fault it was depends on who sent it.
    #[inline]
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Step, ErrorKind> {
        let (consumed, done) = match self {
            Body::Done => (0, true),
            Body::UntilClose => (bytes.len(), false),
            Body::Length(left) => {
                let taken = (*left).min(bytes.len() as u64);
                *left -= taken;
                (taken as usize, *left == 0)
            }
            Body::Chunked(relay) => {
                let step = relay.step(bytes).map_err(|_| ErrorKind::ChunkMalformed)?;
                if step.done && relay.tail().is_empty() {
                    *self = Body::Done;
                }
                return Ok(step);
            }
        };
        if done {
            *self = Body::Done;
        }
        Ok(Step { consumed, relay: consumed, data: consumed, done })
    }

    /// The same without the coding: data is moved to the front of `bytes`. Trailers of a whole body
    /// are what [`Body::tail`] has before its last CRLF.
    ///
    /// # Errors
    /// [`ErrorKind::ChunkMalformed`]; whose fault it was depends on who sent it.
    pub fn strip(&mut self, bytes: &mut [u8]) -> Result<Stripped, ErrorKind> {
        if let Body::Chunked(relay) = self {
            let stripped = relay.strip(bytes).map_err(|_| ErrorKind::ChunkMalformed)?;
            if stripped.done && relay.tail().is_empty() {
                *self = Body::Done;
            }
            return Ok(stripped);
        }
        let step = self.advance(bytes)?;
        Ok(Stripped { consumed: step.consumed, data: step.data, done: step.done })
    }

    /// What follows the last relayed bytes of a whole chunked body: the trailer section that may be
    /// passed on.
    pub fn tail(&self) -> &[u8] {
        match self {
            Body::Chunked(relay) => relay.tail(),
            _ => &[],
        }
    }

    /// Bytes that are still to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Body::Done => Some(0),
            Body::Length(left) => Some(*left),
            Body::Chunked(_) | Body::UntilClose => None,
        }
    }
}
