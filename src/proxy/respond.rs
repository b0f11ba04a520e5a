//! Answers of our own: the one place that turns an error into a status.

use super::exchange::Exchange;
use super::filters;
use super::forward::Place;
use super::serve::{Ended, Next};
use super::tunnel::is_connect;
use crate::base::buffer::Buf;
use crate::context::RequestContext;
use crate::error::ErrorKind;
use crate::filter::Reply;
use crate::http::{BodyFraming, Span, Version, grpc};
use crate::http1::conn::write_all;
use crate::http1::encode::{Persistence, ResponseEdit, encode_response};
use crate::http2::{ServerStream, response_out};
use crate::io::Wait;

/// Answers where an answer can still be begun; otherwise the connection is cut.
pub(super) async fn answer(exchange: &mut Exchange, place: &Place<'_>, ended: Ended) -> Next {
    let mut reply = match ended {
        Ended::Error(kind) => Reply::error(kind),
        Ended::Reply(reply) => *reply,
    };
    if is_connect(&exchange.context) && matches!(reply.status, 200..300) {
        // No tunnel is opened here, and there is no other success.
        reply = Reply::error(ErrorKind::MethodRefused);
    }
    exchange.answer.error = reply.error;
    let gone = [Some(ErrorKind::ClientAborted), Some(ErrorKind::ClientWriteTimeout)];
    if exchange.answer.status != 0 || gone.contains(&reply.error) {
        return Next::Reset;
    }
    let close = ends_connection(exchange, place, reply.error);
    // The log and the metrics have the status of the error, whatever gRPC makes of it.
    exchange.answer.status = reply.status;
    if let Some(kind) = reply.error.filter(|_| is_grpc(&exchange.context)) {
        let web = exchange.context.facts.grpc_web.as_ref();
        tell_grpc(&mut reply, kind, web.map_or("application/grpc", |call| call.answer_type()));
    }
    let content = compose(exchange, place, reply);
    exchange.answer.bytes = content.len() as u64;
    let left = match place.down.http2() {
        Some(stream) => send_on_stream(exchange, place, stream, content).await,
        None => send_on_connection(exchange, place, &content, close).await,
    };
    match (left, close) {
        (0, true) => Next::Close,
        (0, false) => Next::KeepAlive,
        (left, _) => {
            let answer = &mut exchange.answer;
            answer.bytes = answer.bytes.saturating_sub(left as u64);
            answer.error = Some(match place.down.timer.expired() {
                Some(Wait::ClientWrite) => ErrorKind::ClientWriteTimeout,
                _ => ErrorKind::ClientAborted,
            });
            Next::Reset
        }
    }
}

/// Whether it is a gRPC call, to which errors are told by a success.
fn is_grpc(context: &RequestContext) -> bool {
    let request = &context.request;
    context.facts.grpc_web.is_some()
        || request.version == Version::Http2
            && !is_connect(context)
            && request.values_named("content-type").next().is_some_and(grpc::is_grpc)
}

/// Turns an error into what a gRPC client understands: a success that consists of trailers only.
fn tell_grpc(reply: &mut Reply, kind: ErrorKind, content_type: &str) {
    reply.status = 200;
    reply.fields.push(("content-type", content_type.into()));
    reply.fields.push(("grpc-status", grpc::grpc_status_of(kind).to_string().into_bytes()));
    reply.fields.push(("grpc-message", grpc::message_of(kind).into_bytes()));
    reply.body.clear();
}

/// How much of the answer, its head included, the client did not take.
async fn send_on_connection(
    exchange: &Exchange,
    place: &Place<'_>,
    content: &[u8],
    close: bool,
) -> usize {
    let Exchange { context, answer, .. } = exchange;
    let date = place.core.date();
    let persistence = match (close, context.request.version) {
        (true, _) => Persistence::Close,
        (false, Version::Http10) => Persistence::KeepAlive,
        (false, Version::Http11 | Version::Http2) => Persistence::Open,
    };
    let edit = edit(context, persistence, &date);
    let mut out = Buf::for_head();
    encode_response(&mut out, answer.head.bytes.filled(), &answer.head, &edit);
    out.extend(content);
    let down = place.down;
    let progress = || down.timer.arm(Wait::ClientWrite, place.listener().write_timeout_ms);
    match write_all(down.stream(), &mut out, progress).await {
        Ok(()) => 0,
        Err(_) => out.len(),
    }
}

/// The same on a stream.
async fn send_on_stream(
    exchange: &Exchange,
    place: &Place<'_>,
    stream: &ServerStream,
    content: Vec<u8>,
) -> usize {
    let Exchange { context, answer, .. } = exchange;
    let date = place.core.date();
    let edit = edit(context, Persistence::Open, &date);
    let head = response_out::encode_response(&answer.head, &edit);
    let progress = || place.down.timer.arm(Wait::ClientWrite, place.listener().write_timeout_ms);
    let (length, end) = (content.len(), content.is_empty());
    let sent = match stream.send_head(head, end) {
        Ok(()) if !end => stream.send_data(content.into(), true, progress).await,
        sent => sent,
    };
    if sent.is_ok() { 0 } else { length.max(1) }
}

fn edit<'a>(
    context: &'a RequestContext,
    persistence: Persistence,
    date: &'a [u8],
) -> ResponseEdit<'a> {
    let request_id = context.request_id.text(&context.request);
    ResponseEdit {
        framing: BodyFraming::None,
        drop_content_length: true,
        persistence,
        request_id: Some(request_id).filter(|id| id.iter().any(|byte| *byte != 0)),
        date: Some(date),
        via: false,
    }
}

/// What is left of a request whose serving panicked: its record. Nobody knows what has been sent.
pub(super) fn panicked(exchange: &mut Exchange, place: &Place<'_>) -> Next {
    place.core.counters.panics.increment();
    tracing::error!("a panic ended a request and its connection; the others go on");
    exchange.answer.error = Some(ErrorKind::Panicked);
    Next::Reset
}

/// After a malformed message nobody knows where the next begins, and an upload that was not read to
/// its end stands in the way of the next request.
fn ends_connection(exchange: &Exchange, place: &Place<'_>, error: Option<ErrorKind>) -> bool {
    let understood = error.is_none_or(ErrorKind::keeps_connection);
    let facts = &exchange.context.facts;
    let upload = &exchange.upload;
    let bodiless = matches!(facts.framing, BodyFraming::None | BodyFraming::Length(0));
    let taken = bodiless || (upload.looked_at && upload.whole);
    !understood || !facts.keep_alive || !taken || place.down.ends(place.core)
}

/// Puts the answer's head together, lets the filters on responses change it, and returns the content
/// that follows it.
fn compose(exchange: &mut Exchange, place: &Place<'_>, mut reply: Reply) -> Vec<u8> {
    let body = content(exchange, &mut reply);
    let Exchange { context, answer, matched, .. } = exchange;
    let head = &mut answer.head;
    head.reset();
    head.status = reply.status;
    head.bytes = Buf::from(reason(reply.status).as_bytes());
    head.reason = Span::new(0, head.bytes.len());
    let has_type = reply.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if let Some(kind) = body.kind.filter(|_| !has_type) {
        head.add("Content-Type", kind.as_bytes());
    }
    if let Some(kind) = reply.error {
        let (status, code) = (kind.proxy_status(), kind.code());
        let text = format!("ringway; error={status}; details=\"{code}\"");
        head.add("Proxy-Status", text.as_bytes());
    }
    for (name, value) in &reply.fields {
        head.add(name, value);
    }
    filters::on_response(matched, context, &place.listener().name, answer);
    let head = &mut answer.head;
    // RFC 9110 section 8.6: these two have no content, and do not say that they have none.
    if !matches!(reply.status, 204 | 304) {
        head.add("Content-Length", body.bytes.len().to_string().as_bytes());
    }
    // A head that was refused early has no facts, and HEAD no answer with content all the same.
    let is_head = context.facts.is_head || context.request.bytes.filled().starts_with(b"HEAD ");
    match is_head || matches!(reply.status, 204 | 304) {
        true => Vec::new(),
        false => body.bytes,
    }
}

struct Content {
    kind: Option<&'static str>,
    bytes: Vec<u8>,
}

/// The content of an answer; of an error it is a sentence with its code, as the client likes it.
fn content(exchange: &Exchange, reply: &mut Reply) -> Content {
    let own = |_: &ErrorKind| reply.body.is_empty() && !is_grpc(&exchange.context);
    let Some(kind) = reply.error.filter(own) else {
        return Content { kind: None, bytes: std::mem::take(&mut reply.body) };
    };
    let request = &exchange.context.request;
    if request.head_len > 0 && exchange.context.prefers_json() {
        let request_id = exchange.context.request_id.text(request);
        let text = format!(
            "{{\"status\":{},\"code\":\"{}\",\"detail\":\"{}\",\"request_id\":\"{}\"}}\n",
            kind.status(),
            kind.code(),
            kind.text(),
            // What a believed peer sent may hold a quote.
            String::from_utf8_lossy(request_id).replace(['"', '\\'], "")
        );
        return Content { kind: Some("application/problem+json"), bytes: text.into() };
    }
    let text = format!("{} {} ({})\n", kind.status(), kind.text(), kind.code());
    Content { kind: Some("text/plain; charset=utf-8"), bytes: text.into() }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}
