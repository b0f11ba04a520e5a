//! Answers of our own: the one place that turns an error into a status.

use super::Downstream;
use super::exchange::Exchange;
use super::serve::Next;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::{Known, Version};
use crate::http1::conn::write_all;
use crate::http1::encode::{line, status_digits};
use crate::io::Wait;
use crate::snapshot::ListenerPlan;
use crate::state::Core;

/// Answers with an error, where an answer can still be begun; otherwise the connection is cut.
pub(super) async fn fail(
    exchange: &mut Exchange,
    down: &Downstream,
    core: &Core,
    listener: &ListenerPlan,
    kind: ErrorKind,
) -> Next {
    exchange.answer.error = Some(kind);
    if exchange.answer.status != 0 {
        return Next::Reset;
    }
    if kind == ErrorKind::ClientAborted || kind == ErrorKind::ClientWriteTimeout {
        return Next::Reset;
    }
    let close = ends_connection(exchange, down.ends(core), kind);
    exchange.answer.status = kind.status();
    let mut out = encode(exchange, core, kind, close);
    let progress = || down.timer.arm(Wait::ClientWrite, listener.write_timeout_ms);
    let written = write_all(&down.stream, &mut out, progress).await;
    match (written, close) {
        (Err(_), _) => Next::Reset,
        (Ok(()), true) => Next::Close,
        (Ok(()), false) => Next::KeepAlive,
    }
}

/// After a malformed message nobody knows where the next begins, and an upload that was not read to
/// its end stands in the way of the next request.
fn ends_connection(exchange: &Exchange, ends: bool, kind: ErrorKind) -> bool {
    let understood = matches!(
        kind,
        ErrorKind::RouteMissing
            | ErrorKind::ConnectRefused
            | ErrorKind::ConnectFailed
            | ErrorKind::ConnectTimeout
            | ErrorKind::UpstreamClosed
            | ErrorKind::ResponseIncomplete
            | ErrorKind::ResponseMalformed
            | ErrorKind::ResponseHeadTooLarge
            | ErrorKind::UpgradeUnexpected
            | ErrorKind::ResponseTimeout
            | ErrorKind::UpstreamWriteTimeout
            | ErrorKind::NoEndpoint
            | ErrorKind::AtCapacity
    );
    let facts = &exchange.context.facts;
    let bodiless = facts.framing == crate::http::BodyFraming::None;
    !understood || !facts.keep_alive || !bodiless || ends
}

fn encode(exchange: &Exchange, core: &Core, kind: ErrorKind, close: bool) -> Buf {
    let request = &exchange.context.request;
    let parsed = request.head_len > 0;
    let json = parsed && request.values(Known::Accept).any(prefers_json);
    let request_id = exchange.context.request_id.text(request);
    let body = if json {
        format!(
            "{{\"status\":{},\"code\":\"{}\",\"detail\":\"{}\",\"request_id\":\"{}\"}}\n",
            kind.status(),
            kind.code(),
            kind.text(),
            // What a believed peer sent may hold a quote.
            String::from_utf8_lossy(request_id).replace(['"', '\\'], "")
        )
    } else {
        format!("{} {} ({})\n", kind.status(), kind.text(), kind.code())
    };
    let mut out = Buf::for_head();
    out.extend(b"HTTP/1.1 ");
    out.extend(&status_digits(kind.status()));
    out.extend(b" ");
    out.extend(reason(kind.status()).as_bytes());
    out.extend(b"\r\n");
    line(&mut out, b"Date", &core.date());
    let content_type: &[u8] =
        if json { b"application/problem+json" } else { b"text/plain; charset=utf-8" };
    line(&mut out, b"Content-Type", content_type);
    line(&mut out, b"Content-Length", body.len().to_string().as_bytes());
    out.extend(b"Proxy-Status: ringway; error=");
    out.extend(kind.proxy_status().as_bytes());
    out.extend(b"; details=\"");
    out.extend(kind.code().as_bytes());
    out.extend(b"\"\r\n");
    if request_id.iter().any(|byte| *byte != 0) {
        line(&mut out, b"X-Request-Id", request_id);
    }
    if close {
        out.extend(b"Connection: close\r\n");
    } else if request.version == Version::Http10 {
        out.extend(b"Connection: keep-alive\r\n");
    }
    out.extend(b"\r\n");
    // A head that was refused early has no facts, and HEAD no answer with content all the same.
    if !exchange.context.facts.is_head && !request.bytes.filled().starts_with(b"HEAD ") {
        out.extend(body.as_bytes());
    }
    out
}

fn prefers_json(accept: &[u8]) -> bool {
    let text = String::from_utf8_lossy(accept).to_ascii_lowercase();
    let json = text.find("json");
    json.is_some_and(|json| text.find("text/").is_none_or(|text| json < text))
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}
