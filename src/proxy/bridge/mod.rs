//! Exchanges of which a side speaks HTTP/2: heads are turned into the other version at the edge, and
//! bodies go over part by part, each given back to flow control once it has been passed on.

pub(super) mod answer;
mod part;
mod upload;

use super::answer::Relayed;
use super::duplex::together;
use super::exchange::{Answer, Upload};
use super::forward::{Job, encode, request_edit, send};
use crate::error::ErrorKind;
use crate::http2::request_out::{asks_for_websocket, encode_request};
use crate::io::Wait;

/// Sends the request and relays the answer, both at once where the body is still coming.
///
/// # Errors
/// What went wrong; `answer.status` tells whether a final head had been begun.
pub(super) async fn run(
    upload: &mut Upload,
    answer: &mut Answer,
    job: &Job<'_>,
) -> Result<Relayed, ErrorKind> {
    begin(upload, answer, job).await?;
    if upload.whole && upload.in_hand == 0 {
        return super::answer::relay(answer, job).await;
    }
    // What came with the head is yet to be sent: an early answer has to end its wait.
    job.request_done.set(false);
    let timer = job.upload_timer();
    let mut pump = upload::Pump::new(upload, timer, job);
    let cancel = pump.cancel;
    let stop = || match job.down.http2() {
        // It is not shut down: another try may read it from its beginning.
        Some(client) => client.wake(),
        None => cancel.cancel(),
    };
    together(pump.run(), answer, job, stop).await
}

/// Sends the request's head; all of the request where nothing follows the head.
async fn begin(upload: &Upload, answer: &mut Answer, job: &Job<'_>) -> Result<(), ErrorKind> {
    let Some(origin) = job.lease.http2() else {
        encode(&mut answer.scratch, job);
        return send(&mut answer.scratch, job).await;
    };
    let mut edit = request_edit(job);
    // An offer to switch may be left unheard (RFC 9110 section 7.8); HTTP/2 has one for WebSocket
    // only, where the origin has said so (RFC 8441 section 3).
    let offered = asks_for_websocket(&job.context.request, edit.upgrade);
    if !offered || !origin.takes_extended_connect() {
        edit.upgrade = None;
    }
    let tunnel = edit.upgrade.is_some();
    let head = encode_request(&job.context.request, &edit, job.scheme())?;
    let end = upload.whole && upload.in_hand == 0 && !tunnel;
    job.timer().arm(Wait::UpstreamWrite, job.settings().body_timeout_ms);
    let begun = origin.begin(head, end).await;
    let stream = begun.map_err(|broken| broken.kind(false))?;
    job.tunnel_begun.set(tunnel);
    // A try begins one stream.
    let _ = job.origin.set(Box::new(stream));
    Ok(())
}
