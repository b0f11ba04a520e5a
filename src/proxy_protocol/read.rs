//! Reading a header: the only I/O of this module.

use super::{Found, Header, parse};
use crate::base::buffer::Buf;
use crate::io::wait::Timer;
use crate::io::{Stream, Wait};
use crate::observe::series::ProxyProtocolResult;

/// How long a header may be in coming, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// To the first byte.
    pub first_ms: u64,
    /// From there to the last one, or until it is clear that there is none.
    pub whole_ms: u64,
}

/// Reads until it is known what a connection begins with: a header, or none. `bytes` may hold its
/// beginning, and then holds what is behind the header.
///
/// # Errors
/// Why the connection is to be closed.
pub async fn read_header(
    stream: &Stream,
    timer: &Timer,
    times: Times,
    bytes: &mut Buf,
) -> Result<Option<Header>, ProxyProtocolResult> {
    let mut timed = false;
    loop {
        match parse(bytes.filled())? {
            Found::Plain => return Ok(None),
            Found::Header(header) => {
                bytes.consume(header.length);
                return Ok(Some(header));
            }
            Found::More => {}
        }
        if bytes.is_empty() {
            // Like any connection that is idle: without a buffer, and no longer than a drain allows.
            timer.arm(Wait::Parked, times.first_ms);
            // Whatever ended the wait shows in the read that follows.
            let _ = stream.readable().await;
            *bytes = Buf::for_head();
        } else if !std::mem::replace(&mut timed, true) {
            timer.arm(Wait::Head, times.whole_ms);
        }
        let (result, back) = stream.read(std::mem::take(bytes)).await;
        *bytes = back;
        match result {
            Ok(count) if count > 0 => {}
            _ if timer.expired().is_some() => return Err(ProxyProtocolResult::Timeout),
            _ if bytes.is_empty() => return Err(ProxyProtocolResult::Empty),
            _ => return Err(ProxyProtocolResult::Incomplete),
        }
    }
}
