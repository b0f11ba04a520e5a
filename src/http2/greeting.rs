//! What an origin says first: a SETTINGS frame (RFC 9113 section 3.4), or it does not speak HTTP/2.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::sent::Sent;

/// Follows what comes on a connection, up to the end of the first frame.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Whether anything has come since it was last asked.
    anything: Cell<bool>,
    head: Cell<[u8; FRAME_HEAD_BYTES]>,
    /// Bytes that have come, as far as they belong to the first frame.
    bytes: Cell<usize>,
}

/// Length in three bytes, type, flags, and the stream in four (RFC 9113 section 4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// RFC 9113 section 6.5
const SETTINGS: u8 = 4;

impl Heard {
    fn on_bytes(&self, bytes: &[u8]) {
        self.anything.set(self.anything.get() || !bytes.is_empty());
        let (mut head, known) = (self.head.get(), self.bytes.get());
        if self.is_settled() {
            return;
        }
        for (at, byte) in (known..FRAME_HEAD_BYTES).zip(bytes) {
            head[at] = *byte;
        }
        self.head.set(head);
        self.bytes.set(known + bytes.len());
    }

    /// Whether anything has come since this was last asked.
    pub fn take_anything(&self) -> bool {
        self.anything.take()
    }

    /// Whether the origin's SETTINGS have come whole.
    pub fn is_settled(&self) -> bool {
        let [a, b, c, kind, ..] = self.head.get();
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        kind == SETTINGS && self.bytes.get() >= FRAME_HEAD_BYTES + length
    }

    /// Whether what came first is something else than SETTINGS: an HTTP/1 answer, most likely.
    pub fn is_foreign(&self) -> bool {
        let [_, _, _, kind, _, stream @ ..] = self.head.get();
        match self.bytes.get() {
            0 => false,
            known if known < FRAME_HEAD_BYTES => self.head.get()[..known].starts_with(b"H"),
            _ => kind != SETTINGS || stream != [0; 4],
        }
    }
}

/// A connection of which [`Heard`] follows what comes, and [`Sent`] what goes.
pub(super) struct Listening<T> {
    io: T,
    heard: Rc<Heard>,
    sent: Rc<RefCell<Sent>>,
}

impl<T> Listening<T> {
    pub fn new(io: T, heard: Rc<Heard>, sent: Rc<RefCell<Sent>>) -> Listening<T> {
        Listening { io, heard, sent }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Listening<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, out);
        self.heard.on_bytes(&out.filled()[before..]);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Listening<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.sent.borrow_mut().on_bytes(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.io).poll_write_vectored(context, parts))?;
        let mut left = count;
        for part in parts {
            let written = left.min(part.len());
            self.sent.borrow_mut().on_bytes(&part[..written]);
            left -= written;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9113 section 3.4: however the bytes come in.
    #[test]
    fn settings_come_first_or_it_is_no_http2() {
        let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x01";
        for split in 0..settings.len() {
            let heard = Heard::default();
            heard.on_bytes(&settings[..split]);
            assert!(!heard.is_settled() && !heard.is_foreign(), "{split}");
            assert_eq!(heard.take_anything(), split > 0);
            heard.on_bytes(&settings[split..]);
            assert!(heard.is_settled() && !heard.is_foreign());
            heard.on_bytes(b"more");
            assert!(heard.is_settled() && heard.take_anything() && !heard.take_anything());
        }
        for foreign in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"HTTP", b"\0\0\0\x06\0\0\0\0\0"] {
            let heard = Heard::default();
            heard.on_bytes(foreign);
            assert!(heard.is_foreign() && !heard.is_settled());
        }
    }
}
