//! The answer, from an origin to a client of which one at least speaks HTTP/2.

use std::time::Instant;

use bytes::Bytes;

use super::super::answer::{
    Relayed, begin_final, encode_final, next_buffer, note_size, write_client,
};
use super::super::exchange::Answer;
use super::super::forward::Job;
use super::part::{Decoder, Part};
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::grpc_web::GrpcWeb;
use crate::http::{BodyFraming, Known, Version};
use crate::http1::encode::{Persistence, ResponseEdit};
use crate::http1::framing::response_framing;
use crate::http2::response_in::read_response;
use crate::http2::response_out::encode_response;
use crate::http2::{Batch, OriginHead, OriginStream, ServerStream};
use crate::io::Wait;
use crate::limits::SWEEP_MS;

/// Reads the next head of an origin that speaks HTTP/2.
pub(in super::super) async fn read_head(
    answer: &mut Answer,
    origin: &OriginStream,
    job: &Job<'_>,
) -> Result<(), ErrorKind> {
    let head = origin.read_head().await.map_err(|broken| broken.kind(false))?;
    answer.head.reset();
    let (OriginHead::Interim(parts) | OriginHead::Final(parts)) = head;
    read_response(&parts, &mut answer.head, &job.listener().head)
}

/// Passes a 1xx answer on to a client that speaks HTTP/2.
pub(in super::super) fn send_interim(
    answer: &Answer,
    client: &ServerStream,
    job: &Job<'_>,
) -> Result<(), ErrorKind> {
    let edit = ResponseEdit::unfinished(Persistence::Open, job.listener().via);
    let head = encode_response(&answer.head, &edit);
    client.send_interim(head).map_err(|_| ErrorKind::ClientAborted)
}

/// How the final answer is framed where it comes from, and what of it is passed on.
struct Framing {
    body: BodyFraming,
    drop_content_length: bool,
    reusable: bool,
}

/// Passes the final answer on.
pub(in super::super) async fn relay_final(
    answer: &mut Answer,
    job: &Job<'_>,
) -> Result<Relayed, ErrorKind> {
    let framing = framing(answer, job)?;
    if framing.body == BodyFraming::None {
        tell_emptiness(answer, job);
    }
    let mut web = Web::of(answer, job, framing.body);
    let client = match (&web, framing.body) {
        (Some(_), _) => BodyFraming::Chunked,
        (None, body) => body,
    };
    let mut source = Source { decoder: Decoder::new(framing.body), slow: false, clean: true };
    note_size(job, source.decoder.body(), answer.head.rest().len());
    let close = send_head(answer, job, client, framing.drop_content_length).await?;
    // What is left is what is in hand of the body.
    answer.head.bytes.consume(answer.head.head_len);
    if framing.body == BodyFraming::None {
        source.clean = answer.head.bytes.is_empty();
        if let Some(Web { ended: Some(part), .. }) = web {
            send(part, framing_for_client(client, job) == BodyFraming::Chunked, job).await?;
        }
    } else {
        relay_body(answer, job, &mut source, client, web.as_mut()).await?;
        answer.body_at = Some(Instant::now());
    }
    Ok(Relayed { reusable: framing.reusable && source.clean, close, ..Relayed::default() })
}

/// A stream that ends with its head has no content; in HTTP/1 the head has to say so (RFC 9112
/// section 6.3 item 8).
fn tell_emptiness(answer: &mut Answer, job: &Job<'_>) {
    let head = &mut answer.head;
    let silent = job.context.facts.is_head || matches!(head.status, 204 | 304);
    if job.down.http2().is_none() && !silent && head.value(Known::ContentLength).is_none() {
        head.add("Content-Length", b"0");
    }
}

fn framing(answer: &Answer, job: &Job<'_>) -> Result<Framing, ErrorKind> {
    let head = &answer.head;
    let Some(origin) = job.origin.get() else {
        let framing = response_framing(head, job.context.facts.is_head)?;
        return Ok(Framing {
            body: framing.body,
            drop_content_length: framing.drop_content_length,
            reusable: framing.reusable,
        });
    };
    // RFC 9113 section 8.1.1: lengths that do not match are refused by the engine.
    let length = head
        .value(Known::ContentLength)
        .and_then(|value| std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()));
    // RFC 9110 section 6.4.1: whatever follows such a head is no content, and is not passed on.
    let bodiless = job.context.facts.is_head || matches!(head.status, 204 | 304);
    let body = match (origin.is_end() || bodiless, length) {
        (true, _) => BodyFraming::None,
        (false, Some(length)) => BodyFraming::Length(length),
        (false, None) => BodyFraming::Chunked,
    };
    Ok(Framing { body, drop_content_length: head.status == 204, reusable: true })
}

/// Begins the answer. Whether the client's connection ends with it.
async fn send_head(
    answer: &mut Answer,
    job: &Job<'_>,
    framing: BodyFraming,
    drop_content_length: bool,
) -> Result<bool, ErrorKind> {
    let Some(client) = job.down.http2() else {
        return send_head_http1(answer, job, framing, drop_content_length).await;
    };
    begin_final(answer, job);
    let date = job.core.date();
    let edit = ResponseEdit {
        framing,
        drop_content_length,
        persistence: Persistence::Open,
        request_id: Some(job.context.request_id.text(&job.context.request)),
        date: Some(&date),
        via: job.listener().via,
    };
    let head = encode_response(&answer.head, &edit);
    answer.status = answer.head.status;
    let end = framing == BodyFraming::None;
    client.send_head(head, end).map_err(|_| ErrorKind::ClientAborted)?;
    Ok(false)
}

/// The head for an HTTP/1 client, whose body is framed as its version allows.
async fn send_head_http1(
    answer: &mut Answer,
    job: &Job<'_>,
    framing: BodyFraming,
    drop_content_length: bool,
) -> Result<bool, ErrorKind> {
    let body = framing_for_client(framing, job);
    let close = body == BodyFraming::UntilClose
        || !job.context.facts.keep_alive
        || !job.request_done.get()
        || job.down.ends(job.core);
    encode_final(answer, job, body, drop_content_length, close);
    let mut head = std::mem::take(&mut answer.scratch);
    write_client(&mut head, job).await.map_err(|_| ErrorKind::ClientAborted)?;
    Ok(close)
}

fn framing_for_client(body: BodyFraming, job: &Job<'_>) -> BodyFraming {
    match body {
        BodyFraming::Chunked if job.context.request.version == Version::Http10 => {
            BodyFraming::UntilClose
        }
        body => body,
    }
}

async fn relay_body(
    answer: &mut Answer,
    job: &Job<'_>,
    source: &mut Source,
    framing: BodyFraming,
    mut web: Option<&mut Web>,
) -> Result<(), ErrorKind> {
    if let (Some(origin), Some(client), None) = (job.origin.get(), job.down.http2(), &web) {
        return relay_stream(answer, job, origin, client).await;
    }
    let chunked = framing_for_client(framing, job) == BodyFraming::Chunked;
    loop {
        let part = source.next(answer, job).await?;
        let (last, length) = (part.is_last(), part.len());
        let part = match &mut web {
            Some(web) => web.turn(part),
            None => part,
        };
        let passed = part.len();
        send(part, chunked, job).await?;
        answer.bytes += passed as u64;
        if let Some(origin) = job.origin.get() {
            origin.release(length);
        }
        if last {
            return Ok(());
        }
    }
}

/// The same where both sides speak HTTP/2 and nothing is turned: all that is there goes in one go.
async fn relay_stream(
    answer: &mut Answer,
    job: &Job<'_>,
    origin: &OriginStream,
    client: &ServerStream,
) -> Result<(), ErrorKind> {
    let write_ms = job.listener().write_timeout_ms;
    let mut batch = Batch::default();
    loop {
        job.timer().arm(Wait::ResponseBody, job.settings().body_timeout_ms);
        origin.read_batch(&mut batch).await.map_err(|_| ErrorKind::ResponseIncomplete)?;
        let (length, last) = (batch.unsent(), batch.is_last());
        let progress = || job.timer().arm(Wait::ClientWrite, write_ms);
        let sent = client.send_batch(&mut batch, progress).await;
        sent.map_err(|_| ErrorKind::ClientAborted)?;
        answer.bytes += length as u64;
        origin.release(length);
        if last {
            return Ok(());
        }
    }
}

/// Gives a part to the client.
async fn send(part: Part, chunked: bool, job: &Job<'_>) -> Result<(), ErrorKind> {
    let Some(client) = job.down.http2() else {
        let mut out = part.buffer();
        part.encode(chunked, &mut out);
        return write_client(&mut out, job).await.map_err(|_| ErrorKind::ClientAborted);
    };
    let write_ms = job.listener().write_timeout_ms;
    let progress = || job.timer().arm(Wait::ClientWrite, write_ms);
    let sent = match part {
        Part::Data(bytes, last) => client.send_data(bytes, last, progress).await,
        Part::Trailers(trailers) => client.send_trailers(trailers),
    };
    sent.map_err(|_| ErrorKind::ClientAborted)
}

/// Turns a gRPC answer into one of gRPC-Web.
struct Web {
    call: Box<GrpcWeb>,
    /// Whether the head has told the status, though a body was to come.
    told: bool,
    /// The whole body, where the answer is a head only.
    ended: Option<Part>,
}

impl Web {
    /// Changes the head, where the request was a call by gRPC-Web and its answer is one of gRPC.
    fn of(answer: &mut Answer, job: &Job<'_>, body: BodyFraming) -> Option<Web> {
        let head = &mut answer.head;
        let mut call = job.context.facts.grpc_web.clone()?;
        // Neither has content that could hold a status.
        if matches!(head.status, 204 | 304) || !call.edit_answer(head) {
            return None;
        }
        let mut out = Buf::for_head();
        let ended = (body == BodyFraming::None).then(|| {
            if !call.trailers_only(head, &mut out) {
                call.finish_error(ErrorKind::ResponseIncomplete, &mut out);
            }
            Part::Data(Bytes::copy_from_slice(out.filled()), true)
        });
        Some(Web { call, told: head.values_named("grpc-status").next().is_some(), ended })
    }

    fn turn(&mut self, part: Part) -> Part {
        let mut out = part.buffer();
        let last = part.is_last();
        match part {
            Part::Data(bytes, last) => {
                self.call.answer(&bytes, &mut out);
                match (last, self.told) {
                    (false, _) => {}
                    (true, true) => self.call.finish_plain(&mut out),
                    // gRPC has a status at the end of each call.
                    (true, false) => {
                        self.call.finish_error(ErrorKind::ResponseIncomplete, &mut out);
                    }
                }
            }
            Part::Trailers(trailers) => {
                let fields: Vec<(&[u8], &[u8])> = trailers
                    .iter()
                    .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
                    .collect();
                self.call.finish(&fields, &mut out);
            }
        }
        Part::Data(Bytes::copy_from_slice(out.filled()), last)
    }
}

/// Where the parts of a body come from.
struct Source {
    decoder: Decoder,
    slow: bool,
    /// Whether nothing came behind the end.
    clean: bool,
}

impl Source {
    async fn next(&mut self, answer: &mut Answer, job: &Job<'_>) -> Result<Part, ErrorKind> {
        let Some(origin) = job.origin.get() else {
            return self.next_of_connection(&mut answer.head.bytes, job).await;
        };
        job.timer().arm(Wait::ResponseBody, job.settings().body_timeout_ms);
        let piece = origin.read().await.map_err(|_| ErrorKind::ResponseIncomplete)?;
        Ok(Part::of(piece, origin.is_end()))
    }

    async fn next_of_connection(
        &mut self,
        bytes: &mut Buf,
        job: &Job<'_>,
    ) -> Result<Part, ErrorKind> {
        loop {
            if let Some(part) = self.decoder.held() {
                // Bytes behind the end belong to no request of ours: the connection is not kept.
                self.clean &= bytes.is_empty();
                return Ok(part);
            }
            if bytes.is_empty() && self.receive(bytes, job).await? {
                return Ok(Part::Data(Bytes::new(), true));
            }
            let decoded = self.decoder.decode(bytes.filled_mut());
            let (part, consumed) = decoded.map_err(|_| ErrorKind::ResponseMalformed)?;
            bytes.consume(consumed);
            self.clean &= !part.is_last() || bytes.is_empty();
            if part.is_last() || part.len() > 0 {
                return Ok(part);
            }
        }
    }

    /// Reads more of a connection. True at the end of a body that ends with it.
    async fn receive(&mut self, bytes: &mut Buf, job: &Job<'_>) -> Result<bool, ErrorKind> {
        next_buffer(bytes, self.decoder.left());
        job.timer().arm(Wait::ResponseBody, job.settings().body_timeout_ms);
        if self.slow {
            *bytes = Buf::empty();
            // A failure shows in the read that follows.
            let _ = job.stream().readable().await;
            *bytes = Buf::for_head();
        }
        let (result, back) = job.stream().read(std::mem::take(bytes)).await;
        *bytes = back;
        // Events that trickle in do not hold a buffer between two of them.
        self.slow = job.timer().waited_ms() >= SWEEP_MS;
        match result {
            Ok(0) if self.decoder.is_until_close() && !job.was_cut() => Ok(true),
            Ok(0) | Err(_) => Err(ErrorKind::ResponseIncomplete),
            Ok(_) => Ok(false),
        }
    }
}
