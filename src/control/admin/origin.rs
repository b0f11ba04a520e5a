//! Keeps pages of other sites out of an admin API that a browser can reach.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::refusal;

/// Refuses what a page of another site has a browser send: by a name of its own that resolves to
/// this address (DNS rebinding), or across origins. A Unix socket is out of a browser's reach.
pub(super) async fn only_own_origin(request: Request, next: Next) -> Response {
    match foreign(request.headers()) {
        None => next.run(request).await,
        Some(why) => refusal(StatusCode::FORBIDDEN, why),
    }
}

/// Why a request may come from a page of another site, if it may.
fn foreign(headers: &HeaderMap) -> Option<&'static str> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let host = match &*hosts {
        // Browsers always send it.
        [] => None,
        [one] => one.to_str().ok(),
        _ => return Some("more than one Host"),
    };
    if !hosts.is_empty() && !host.is_some_and(names_no_domain) {
        return Some("Host must be an address or localhost");
    }
    let own = host.map(|host| format!("http://{host}"));
    let is_own = |origin: &header::HeaderValue| {
        let text = origin.to_str().unwrap_or_default();
        own.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(text))
    };
    let all_own = headers.get_all(header::ORIGIN).iter().all(is_own);
    (!all_own).then_some("Origin must be that of the admin address")
}

/// Whether a Host names an address or this machine, and nothing that a name server answers for.
fn names_no_domain(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let plain = !host.contains('@');
    plain && (bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost"))
}
