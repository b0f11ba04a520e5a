//! The server's side of a connection: its settings, and its bytes on their way through the meter.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use h2::server::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::meter::Meter;
use crate::http::HeadLimits;
use crate::io::PollIo;
use crate::io::wait::Deadlines;
use crate::limits::{
    HTTP2_CONNECTION_WINDOW_BYTES_MAX, HTTP2_DATA_OVERHEAD_BYTES_MAX, HTTP2_FRAME_BYTES_MAX,
    HTTP2_HEADER_TABLE_BYTES, HTTP2_REFUSALS_MAX, HTTP2_RESETS_PENDING_MAX,
    HTTP2_SEND_BUFFER_BYTES, HTTP2_STREAMS_DEFAULT, HTTP2_WINDOW_BYTES,
};

/// `http2` of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Plan {
    /// `streams_max`: streams that one client may have open.
    pub streams_max: u32,
    /// `window`: bytes of a request's body that may be on their way or waiting.
    pub window_bytes: u32,
    /// `connection_window`: the same of all streams of a connection.
    pub connection_window_bytes: u32,
}

impl Default for Http2Plan {
    fn default() -> Http2Plan {
        Http2Plan::new(HTTP2_STREAMS_DEFAULT, HTTP2_WINDOW_BYTES)
    }
}

impl Http2Plan {
    /// So many streams of such windows, with room for all of them.
    pub fn new(streams_max: u32, window_bytes: u32) -> Http2Plan {
        let all = streams_max.saturating_mul(window_bytes);
        let connection_window_bytes = all.min(HTTP2_CONNECTION_WINDOW_BYTES_MAX);
        Http2Plan { streams_max, window_bytes, connection_window_bytes }
    }

    /// What a connection is begun with: every bound that `h2` has, said aloud.
    pub fn builder(&self, head: &HeadLimits) -> Builder {
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(self.streams_max)
            .initial_window_size(self.window_bytes)
            .initial_connection_window_size(self.connection_window_bytes)
            .max_frame_size(HTTP2_FRAME_BYTES_MAX as u32)
            .max_header_list_size(header_list_bytes(head))
            .header_table_size(HTTP2_HEADER_TABLE_BYTES)
            .max_send_buffer_size(HTTP2_SEND_BUFFER_BYTES)
            .max_concurrent_reset_streams(HTTP2_RESETS_PENDING_MAX)
            .max_pending_accept_reset_streams(HTTP2_RESETS_PENDING_MAX)
            .max_local_error_reset_streams(Some(HTTP2_REFUSALS_MAX))
            .data_frame_budget(HTTP2_DATA_OVERHEAD_BYTES_MAX)
            .enable_connect_protocol();
        builder
    }
}

/// RFC 9113 section 6.5.2 counts 32 bytes with each field where HTTP/1 has four: whatever fits the
/// listener's bounds fits this one, and what does not is answered and logged by us.
fn header_list_bytes(head: &HeadLimits) -> u32 {
    const PSEUDO_FIELDS: usize = 5;
    let bytes = head.head_bytes_max + 32 * (head.headers_max + PSEUDO_FIELDS);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A connection whose frames are counted as they pass.
pub struct Metered<'a> {
    io: PollIo<'a>,
    meter: Rc<RefCell<Meter>>,
    clock: Rc<Deadlines>,
}

impl<'a> Metered<'a> {
    /// Counts what passes `io`; the time is that of the last sweep.
    pub fn new(io: PollIo<'a>, meter: Rc<RefCell<Meter>>, clock: Rc<Deadlines>) -> Metered<'a> {
        Metered { io, meter, clock }
    }
}

impl AsyncRead for Metered<'_> {
    /// Nothing more is handed out once there is a verdict: whoever drives the connection ends it.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.borrow().verdict().is_some() {
            return Poll::Pending;
        }
        let before = out.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, out))?;
        let mut meter = self.meter.borrow_mut();
        let good = meter.on_read(&mut out.filled_mut()[before..], self.clock.now_ms());
        out.set_filled(before + good);
        if good == 0 && meter.verdict().is_some() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
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
            self.meter.borrow_mut().on_write(&part[..written]);
            left -= written;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
