//! What a process is and does, and the one thing that it can be told.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use tokio::sync::oneshot;

use super::{Shared, UNCACHED};
use crate::control::about;
use crate::control::helper::Event;
use crate::control::outcome::Outcome;
use crate::observe::render::{Phase, ProcessView};

/// Reads the configuration again, as HUP does, and answers when that is decided.
pub(super) async fn reload(State(shared): State<Shared>) -> Response {
    let (caller, outcome) = oneshot::channel();
    // Without a supervisor the process is ending.
    let outcome = match shared.events.send(Event::Reload(caller)).await {
        Ok(()) => outcome.await.unwrap_or(Outcome::Draining),
        Err(_) => Outcome::Draining,
    };
    let (status, answer) = outcome.answer();
    (status, [UNCACHED], Json(answer)).into_response()
}

pub(super) async fn metrics(State(shared): State<Shared>) -> Response {
    let text = render(&shared, |view| view.prometheus()).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"), UNCACHED];
    (kind, text).into_response()
}

pub(super) async fn ready(State(shared): State<Shared>) -> Response {
    let view = shared.shown.view.borrow();
    let status = match view.phase {
        Phase::Ready => StatusCode::OK,
        Phase::Starting | Phase::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, [UNCACHED], Json(view.ready())).into_response()
}

pub(super) async fn status(State(shared): State<Shared>) -> Response {
    ([UNCACHED], render(&shared, |view| Json(view.status())).await).into_response()
}

/// What happened to upstreams lately.
pub(super) async fn events(State(shared): State<Shared>) -> Response {
    let events = shared.shown.view.borrow().standings.events();
    ([UNCACHED], Json(events)).into_response()
}

pub(super) async fn version() -> Response {
    ([UNCACHED], Json(about::build())).into_response()
}

/// Measures and renders on a thread that may block: reading /proc does.
async fn render<T: Send + Default + 'static>(shared: &Shared, how: fn(&ProcessView) -> T) -> T {
    let lane = shared.lanes.short.clone().acquire_owned().await;
    let mut view = shared.shown.view.borrow().clone();
    let measure = shared.shown.measure.clone();
    let rendered = tokio::task::spawn_blocking(move || {
        let _lane = lane;
        measure(&mut view);
        how(&view)
    });
    rendered.await.unwrap_or_default()
}
