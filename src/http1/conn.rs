//! Reading heads and writing buffers: the only I/O of the protocol engine.

use std::io;

use super::head::{RequestParser, ResponseParser};
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::{HeadLimits, RequestHead, ResponseHead};
use crate::io::wait::Timer;
use crate::io::{Stream, Wait};

/// Why reading a request's head ended without one.
#[derive(Debug, PartialEq, Eq)]
pub enum NoHead {
    /// The client closed before a first byte.
    Closed,
    /// What it sent is refused, or came too slowly.
    Refused(ErrorKind),
}

/// Reads until a request's head is whole. `head.bytes` may hold its first bytes already.
///
/// # Errors
/// See [`NoHead`].
pub async fn read_request_head(
    stream: &Stream,
    head: &mut RequestHead,
    parser: &mut RequestParser,
    limits: &HeadLimits,
    timer: &Timer,
) -> Result<(), NoHead> {
    parser.reset();
    loop {
        if !head.bytes.is_empty() && parser.parse(head, limits).map_err(NoHead::Refused)? {
            head.failpoint("parse");
            return Ok(());
        }
        make_room(&mut head.bytes, limits.head_bytes_max);
        let (result, buf) = stream.read(std::mem::take(&mut head.bytes)).await;
        head.bytes = buf;
        match result {
            Ok(count) if count > 0 => {}
            _ if timer.expired() == Some(Wait::Head) => {
                return Err(NoHead::Refused(ErrorKind::HeadTimeout));
            }
            _ if head.bytes.is_empty() => return Err(NoHead::Closed),
            // RFC 9112 section 8: an incomplete request may be answered before closing.
            Ok(_) => return Err(NoHead::Refused(ErrorKind::HeadMalformed)),
            Err(_) => return Err(NoHead::Refused(ErrorKind::ClientAborted)),
        }
    }
}

/// Reads until a response's head is whole. `head.bytes` may hold its first bytes already.
///
/// # Errors
/// [`ErrorKind::UpstreamClosed`] before a first byte, else what is wrong with the head.
pub async fn read_response_head(
    stream: &Stream,
    head: &mut ResponseHead,
    parser: &mut ResponseParser,
    limits: &HeadLimits,
) -> Result<(), ErrorKind> {
    parser.reset();
    loop {
        if !head.bytes.is_empty() && parser.parse(head, limits)? {
            return Ok(());
        }
        make_room(&mut head.bytes, limits.head_bytes_max);
        let (result, buf) = stream.read(std::mem::take(&mut head.bytes)).await;
        head.bytes = buf;
        match result {
            Ok(count) if count > 0 => {}
            _ if head.bytes.is_empty() => return Err(ErrorKind::UpstreamClosed),
            _ => return Err(ErrorKind::ResponseIncomplete),
        }
    }
}

/// Writes all that is queued. `progress` is called before each write, to begin its deadline anew.
/// The buffer stays where it is, so that no future on the way holds another one.
///
/// # Errors
/// What the system says; the peer may have taken a part.
#[inline]
pub async fn write_all(
    stream: &Stream,
    buf: &mut Buf,
    mut progress: impl FnMut(),
) -> io::Result<()> {
    while !buf.is_empty() {
        progress();
        let (result, back) = stream.write(std::mem::take(buf)).await;
        *buf = back;
        match result? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => buf.consume(count),
        }
    }
    Ok(())
}

/// The parser refuses a full buffer that holds no whole head, so that this only grows for limits
/// above the default.
fn make_room(bytes: &mut Buf, head_bytes_max: usize) {
    if bytes.capacity() == 0 {
        *bytes = Buf::for_head();
    } else if bytes.spare() == 0 {
        bytes.reserve(head_bytes_max.saturating_sub(bytes.len()).max(1));
    }
}
