//! The PROXY header, by which a load balancer says whose connection it passes on.

use crate::io::Stream;
use crate::observe::series::ProxyProtocolResult;
use crate::proxy::Downstream;
use crate::proxy_protocol::{Mode, Times, read_header};
use crate::state::Core;

/// Takes the header where there is one. What was read behind it stays in hand. False: the connection
/// is to be closed.
pub(super) async fn take(core: &Core, down: &mut Downstream) -> bool {
    let listener = down.listener();
    let (id, mode) = (listener.id.0, listener.proxy_protocol);
    let trusted = listener.trusts(down.peer.ip());
    let result = match (mode, trusted) {
        (Mode::Off, _) | (Mode::Optional, false) => return true,
        (Mode::Required, false) => Err(ProxyProtocolResult::Untrusted),
        (Mode::Required | Mode::Optional, true) => read(down, mode).await,
    };
    let (Ok(counted) | Err(counted)) = result;
    core.series.proxy_protocol(id, counted);
    result.is_ok()
}

async fn read(
    down: &mut Downstream,
    mode: Mode,
) -> Result<ProxyProtocolResult, ProxyProtocolResult> {
    let listener = down.listener();
    // A header is sent with the connection. Without one its first request may be long in coming.
    let first_ms = match mode {
        Mode::Optional => listener.idle_timeout_ms,
        Mode::Off | Mode::Required => listener.head_timeout_ms,
    };
    let times = Times { first_ms, whole_ms: listener.head_timeout_ms };
    let mut bytes = std::mem::take(&mut down.behind);
    let stream: &Stream = down.stream();
    let read = read_header(stream, &down.timer, times, &mut bytes).await;
    down.timer.disarm();
    down.behind = bytes;
    let Some(header) = read? else {
        return match mode {
            Mode::Required => Err(ProxyProtocolResult::Missing),
            Mode::Off | Mode::Optional => Ok(ProxyProtocolResult::None),
        };
    };
    let result = header.result();
    if let Some(announced) = header.announced {
        down.announce(announced);
    }
    Ok(result)
}
