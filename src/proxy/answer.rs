//! Relaying an answer: interim heads, the final head, the body as it comes (P8).

use std::time::Instant;

use super::balance;
use super::bridge;
use super::exchange::Answer;
use super::filters;
use super::forward::Job;
use super::tunnel;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::head::list_members;
use crate::http::{BodyFraming, Known, Version};
use crate::http1::body::Body;
use crate::http1::chunked::ChunkedRelay;
use crate::http1::conn::{read_response_head, write_all};
use crate::http1::encode::{Persistence, ResponseEdit, encode_response};
use crate::http1::framing::response_framing;
use crate::io::Wait;
use crate::limits::{
    HEAD_BUFFER_BYTES, HEAD_ROOM_BYTES, INTERIM_RESPONSES_MAX, SWEEP_MS, TIMEOUT_MS_MAX,
};

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Relayed {
    /// Whether the upstream's connection can carry another request.
    pub reusable: bool,
    /// Whether the client's connection ends.
    pub close: bool,
    /// Whether the upstream switched protocols: both connections become a tunnel.
    pub tunnel: bool,
    /// Whether it was given up for another try; the client was told nothing.
    pub given_up: bool,
}

/// Reads the answer and passes it on.
///
/// # Errors
/// What went wrong; `answer.status` tells whether a final head had been begun.
pub(super) async fn relay(answer: &mut Answer, job: &Job<'_>) -> Result<Relayed, ErrorKind> {
    answer.head.bytes = first_buffer(job);
    let (mut interim, mut clean) = (0, true);
    while interim < INTERIM_RESPONSES_MAX {
        arm_for_head(job);
        let read = match job.origin.get() {
            None => {
                let Answer { head, parser, .. } = answer;
                read_response_head(job.stream(), head, parser, &job.listener().head).await
            }
            Some(origin) => Box::pin(bridge::answer::read_head(answer, origin, job)).await,
        };
        read.map_err(|kind| match kind {
            // What the client has been told cannot be told again by a second try.
            ErrorKind::UpstreamClosed if interim > 0 => ErrorKind::ResponseIncomplete,
            kind => kind,
        })?;
        if !matches!(answer.head.status, 100 | 102..200) {
            job.head_came()?;
        }
        match answer.head.status {
            101 if is_awaited_upgrade(answer, job) => {
                return Ok(Relayed { tunnel: true, close: true, ..Relayed::default() });
            }
            // RFC 8441 section 5.1: over HTTP/2 an origin says so by a success.
            200..300 if job.tunnel_begun.get() => {
                return Ok(Relayed { tunnel: true, close: true, ..Relayed::default() });
            }
            // The client would take it for the tunnel that it is not.
            200..300 if tunnel::is_connect(job.context) => return Err(ErrorKind::UpgradeIgnored),
            101 => return Err(ErrorKind::UpgradeUnexpected),
            100..200 => {
                // One that announces a body it cannot have leaves in doubt what follows.
                clean &=
                    job.origin.get().is_some() || response_framing(&answer.head, false)?.reusable;
                job.claim();
                Box::pin(relay_interim(answer, job)).await?;
            }
            // Servers say so when they time an idle connection out (RFC 9110 section 15.5.9).
            408 if job.may_be_stale() => return Err(ErrorKind::UpstreamClosed),
            _ if job.gives_up(answer) => {
                return Ok(Relayed {
                    reusable: clean && is_whole(answer, job),
                    given_up: true,
                    ..Relayed::default()
                });
            }
            _ => break,
        }
        interim += 1;
    }
    match interim {
        INTERIM_RESPONSES_MAX => Err(ErrorKind::ResponseMalformed),
        _ => {
            let relayed = relay_final(answer, job).await?;
            Ok(Relayed { reusable: relayed.reusable && clean, ..relayed })
        }
    }
}

/// Whether an answer that nobody is to see has come with its head to its end.
fn is_whole(answer: &Answer, job: &Job<'_>) -> bool {
    let Ok(framing) = response_framing(&answer.head, job.context.facts.is_head) else {
        return false;
    };
    let rest = answer.head.rest();
    let step = Body::new(framing.body).advance(rest);
    let whole = step.is_ok_and(|step| step.done && step.consumed == rest.len());
    job.origin.get().is_none() && framing.reusable && whole
}

/// Whether a 101 switches to a protocol that was offered (RFC 9110 section 7.8).
fn is_awaited_upgrade(answer: &Answer, job: &Job<'_>) -> bool {
    let Some(offered) = &job.context.facts.upgrade else { return false };
    let name = |protocol: &[u8]| protocol.split(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
    let mut switched = answer.head.values(Known::Upgrade).flat_map(list_members).peekable();
    switched.peek().is_some()
        && switched.all(|protocol| {
            list_members(offered).any(|offer| {
                name(offer).zip(name(protocol)).is_some_and(|(a, b)| a.eq_ignore_ascii_case(&b))
            })
        })
}

/// A larger buffer where the endpoint's last answer was large, so that the next one needs no
/// second read.
fn first_buffer(job: &Job<'_>) -> Buf {
    let mut bytes = match job.endpoint().large_answers.get() {
        true => Buf::for_body(),
        false => Buf::for_head(),
    };
    bytes.leave_room(HEAD_ROOM_BYTES);
    bytes
}

/// While the request is being sent, its own pump watches over the time.
fn arm_for_head(job: &Job<'_>) {
    let timeout_ms = match job.request_done.get() {
        true => job.response_timeout_ms(),
        false => TIMEOUT_MS_MAX,
    };
    job.timer().arm(Wait::ResponseHead, timeout_ms);
}

/// Passes a 1xx answer on (RFC 9110 section 15.2); HTTP/1.0 has none.
async fn relay_interim(answer: &mut Answer, job: &Job<'_>) -> Result<(), ErrorKind> {
    if let Some(client) = job.down.http2() {
        bridge::answer::send_interim(answer, client, job)?;
    } else if job.context.request.version != Version::Http10 {
        let edit = ResponseEdit::unfinished(Persistence::Open, job.listener().via);
        let out = &mut answer.scratch;
        prepare(out);
        encode_response(out, answer.head.bytes.filled(), &answer.head, &edit);
        write_client(out, job).await.map_err(client_gone)?;
    }
    answer.interim = true;
    let mut bytes = std::mem::take(&mut answer.head.bytes);
    bytes.consume(answer.head.head_len);
    answer.head.reset();
    answer.head.bytes = bytes;
    Ok(())
}

async fn relay_final(answer: &mut Answer, job: &Job<'_>) -> Result<Relayed, ErrorKind> {
    if job.is_across() {
        return Box::pin(bridge::answer::relay_final(answer, job)).await;
    }
    let framing = response_framing(&answer.head, job.context.facts.is_head)?;
    let http10 = job.context.request.version == Version::Http10;
    if framing.body == BodyFraming::Chunked && http10 {
        return Box::pin(relay_stripped(answer, job)).await;
    }
    let close = framing.body == BodyFraming::UntilClose
        || !job.context.facts.keep_alive
        || !job.request_done.get()
        || job.down.ends(job.core);
    answer.body = Body::new(framing.body);
    let rest = answer.head.rest();
    let in_hand = rest.len();
    let step = answer.body.advance(rest).map_err(|_| ErrorKind::ResponseMalformed)?;
    note_size(job, &answer.body, in_hand);
    encode_final(answer, job, framing.body, framing.drop_content_length, close);
    let mut done = step.done || answer.body.is_done();
    answer.put_head(step.relay, done);
    answer.bytes += step.data as u64;
    job.context.request.failpoint("pump");
    write_client(&mut answer.head.bytes, job).await.map_err(client_gone)?;
    let mut clean = in_hand == step.consumed;
    if !done {
        clean = relay_body(answer, job).await?;
        answer.body_at = Some(Instant::now());
        done = true;
    }
    let reusable = framing.reusable && done && clean;
    Ok(Relayed { reusable, close, ..Relayed::default() })
}

impl Answer {
    /// Puts the encoded head where the one that came was, in front of the first `relay` bytes of
    /// the body, so that both leave in one write.
    fn put_head(&mut self, relay: usize, whole: bool) {
        let bytes = &mut self.head.bytes;
        bytes.consume(self.head.head_len);
        bytes.truncate(relay);
        if whole {
            bytes.extend(self.body.tail());
        }
        if !bytes.prepend(self.scratch.filled()) {
            self.scratch.extend(bytes.filled());
            std::mem::swap(bytes, &mut self.scratch);
        }
        self.scratch.clear();
    }
}

/// Remembers whether answers of this endpoint want a large buffer.
pub(super) fn note_size(job: &Job<'_>, body: &Body, in_hand: usize) {
    let large = match body {
        Body::Done => in_hand > HEAD_BUFFER_BYTES / 2,
        Body::Length(left) => *left as usize + in_hand > HEAD_BUFFER_BYTES / 2,
        Body::Chunked(_) | Body::UntilClose => in_hand > HEAD_BUFFER_BYTES / 2,
    };
    if job.endpoint().large_answers.get() != large {
        job.endpoint().large_answers.set(large);
    }
}

fn prepare(out: &mut Buf) {
    if out.capacity() == 0 {
        *out = Buf::for_head();
    }
    out.clear();
}

/// Lets the filters change the final head; from here on an answer has been begun.
pub(super) fn begin_final(answer: &mut Answer, job: &Job<'_>) {
    job.claim();
    answer.head_at = Some(Instant::now());
    filters::on_response(job.matched, job.context, &job.listener().name, answer);
    balance::name_endpoint(answer, job);
    balance::settle(answer, job);
    job.down.mid_answer.set(true);
    if let Some(total) = job.total {
        total.turn(Wait::TotalBegun);
    }
}

/// Begins the answer and encodes its head into the scratch buffer.
pub(super) fn encode_final(
    answer: &mut Answer,
    job: &Job<'_>,
    framing: BodyFraming,
    drop_content_length: bool,
    close: bool,
) {
    begin_final(answer, job);
    let persistence = match (close, job.context.request.version) {
        (true, _) => Persistence::Close,
        (false, Version::Http10) => Persistence::KeepAlive,
        (false, Version::Http11 | Version::Http2) => Persistence::Open,
    };
    let edit = ResponseEdit {
        framing,
        drop_content_length,
        persistence,
        request_id: Some(job.context.request_id.text(&job.context.request)),
        date: Some(&job.core.date()),
        via: job.listener().via,
    };
    let Answer { head, scratch, status, .. } = answer;
    prepare(scratch);
    encode_response(scratch, head.bytes.filled(), head, &edit);
    *status = head.status;
}

/// Writes to the client within its deadline.
pub(super) fn write_client<'a>(
    out: &'a mut Buf,
    job: &'a Job<'_>,
) -> impl Future<Output = std::io::Result<()>> + 'a {
    let write_ms = job.listener().write_timeout_ms;
    write_all(job.down.stream(), out, move || job.timer().arm(Wait::ClientWrite, write_ms))
}

/// A client that takes no more has gone away, or its deadline says otherwise.
fn client_gone(_: std::io::Error) -> ErrorKind {
    ErrorKind::ClientAborted
}

/// Passes the rest of a body on, one buffer at a time. Returns whether it was whole; an answer
/// without a length is whole when the upstream ends it.
async fn relay_body(answer: &mut Answer, job: &Job<'_>) -> Result<bool, ErrorKind> {
    let mut slow = false;
    loop {
        let Answer { head, body, .. } = answer;
        let bytes = &mut head.bytes;
        next_buffer(bytes, body.left());
        job.timer().arm(Wait::ResponseBody, job.settings().body_timeout_ms);
        if slow {
            *bytes = Buf::empty();
            // A failure shows in the read that follows.
            let _ = job.stream().readable().await;
            *bytes = Buf::for_head();
        }
        let (result, back) = job.stream().read(std::mem::take(bytes)).await;
        *bytes = back;
        // Events that trickle in do not hold a buffer between two of them.
        slow = job.timer().waited_ms() >= SWEEP_MS;
        match result {
            Ok(0) if matches!(body, Body::UntilClose) && !job.was_cut() => return Ok(true),
            Ok(0) | Err(_) => return Err(ErrorKind::ResponseIncomplete),
            Ok(_) => {}
        }
        let read = bytes.len();
        let step = body.advance(bytes.filled()).map_err(|_| ErrorKind::ResponseMalformed)?;
        bytes.truncate(step.relay);
        answer.bytes += step.data as u64;
        if step.done {
            bytes.extend(body.tail());
        }
        write_client(bytes, job).await.map_err(client_gone)?;
        if step.done {
            // Bytes behind the end belong to no request of ours: the connection is not kept.
            return Ok(step.consumed == read);
        }
    }
}

/// A buffer for the next part of a body: large where much is to come, or where the last one was
/// filled.
pub(super) fn next_buffer(used: &mut Buf, left: Option<u64>) {
    let wants_large = match left {
        Some(left) => left > HEAD_BUFFER_BYTES as u64,
        None => used.spare() == 0,
    };
    if wants_large && used.capacity() <= HEAD_BUFFER_BYTES {
        *used = Buf::for_body();
    }
    used.clear();
}

/// Passes a chunked body on to an HTTP/1.0 client, which knows no chunks.
async fn relay_stripped(answer: &mut Answer, job: &Job<'_>) -> Result<Relayed, ErrorKind> {
    let mut coding = ChunkedRelay::new();
    let mut first = Buf::for_head();
    first.extend(answer.head.rest());
    // What is in hand is looked at before an answer is begun.
    let mut stripped =
        coding.strip(first.filled_mut()).map_err(|_| ErrorKind::ResponseMalformed)?;
    encode_final(answer, job, BodyFraming::UntilClose, true, true);
    let Answer { head, scratch: out, bytes: passed, .. } = answer;
    let bytes = &mut head.bytes;
    *bytes = first;
    loop {
        out.extend(&bytes.filled()[..stripped.data]);
        *passed += stripped.data as u64;
        write_client(out, job).await.map_err(client_gone)?;
        if stripped.done {
            answer.body_at = Some(Instant::now());
            return Ok(Relayed { close: true, ..Relayed::default() });
        }
        out.clear();
        bytes.clear();
        job.timer().arm(Wait::ResponseBody, job.settings().body_timeout_ms);
        let (result, back) = job.stream().read(std::mem::take(bytes)).await;
        *bytes = back;
        if !matches!(result, Ok(count) if count > 0) {
            return Err(ErrorKind::ResponseIncomplete);
        }
        stripped = coding.strip(bytes.filled_mut()).map_err(|_| ErrorKind::ResponseMalformed)?;
    }
}
