//! `GET /v1/config`: the configuration in force, without secrets.

use std::sync::{Arc, Weak};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{Shared, UNCACHED, refusal};
use crate::config::Sources;
use crate::observe::render::time_text;
use crate::snapshot::effective;

/// The answer that was rendered last, for as long as somebody is still reading it: however many ask,
/// a large configuration is in memory once.
#[derive(Debug, Default)]
pub(super) struct Latest {
    version: u64,
    text: Weak<Vec<u8>>,
}

/// An answer that others read too.
struct Text(Arc<Vec<u8>>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What stands round the configuration.
struct Facts {
    version: u64,
    source: String,
    applied_at_s: f64,
}

pub(super) async fn config(State(shared): State<Shared>) -> Response {
    let mut latest = shared.lanes.long.clone().lock_owned().await;
    // Nothing is awaited in between: view and texts are of the same version.
    let (facts, sources) = {
        let (view, taken) = (shared.shown.view.borrow(), shared.shown.taken.borrow());
        let (source, applied_at_s) = (view.config_source.clone(), view.config_applied_at_s);
        let version = taken.snapshot.version;
        (Facts { version, source, applied_at_s }, taken.sources.clone())
    };
    let known = latest.text.upgrade().filter(|_| latest.version == facts.version);
    let text = match known {
        Some(text) => Ok(text),
        None => {
            // 100 ms at 50,000 routes.
            let rendered = tokio::task::spawn_blocking(move || {
                let text = Arc::new(render(&facts, &sources));
                *latest = Latest { version: facts.version, text: Arc::downgrade(&text) };
                text
            });
            rendered.await
        }
    };
    match text {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/json"), UNCACHED];
            (kind, Body::from(Bytes::from_owner(Text(text)))).into_response()
        }
        Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "it cannot be shown; this is a bug"),
    }
}

fn render(facts: &Facts, sources: &Sources) -> Vec<u8> {
    let files: Vec<_> = sources.iter().map(|(_, source)| &*source.name).collect();
    let answer = json!({
        "version": facts.version,
        "source": facts.source,
        "applied_at": time_text(facts.applied_at_s),
        "files": files,
        "config": effective(sources),
    });
    answer.to_string().into_bytes()
}
