//! `GET /v1/explain`: why a request would get its route from the configuration in force.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};

use super::{Shared, UNCACHED, refusal};
use crate::snapshot::explain::{Query, explain as answer};

pub(super) async fn explain(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let query = match Query::parse(query.as_deref().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
    };
    let lane = shared.lanes.long.clone().lock_owned().await;
    let snapshot = shared.shown.taken.borrow().snapshot.clone();
    // Near misses are looked for among all routes.
    let explained = tokio::task::spawn_blocking(move || {
        let _lane = lane;
        answer(&snapshot, &query)
    });
    match explained.await {
        Ok(Ok(answer)) => ([UNCACHED], Json(answer)).into_response(),
        Ok(Err(error)) => refusal(StatusCode::BAD_REQUEST, &error),
        Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "it failed; this is a bug"),
    }
}
