//! `kind = "grpc_web"`: lets browsers call gRPC services.

use std::sync::Arc;

use super::{Build, Call, Filter, Hooks, Key, Kind, Phase, Verdict};
use crate::config::decode::Fields;
use crate::http::grpc_web::GrpcWeb;

/// gRPC-Web to gRPC.
pub const KIND: Kind = Kind {
    name: "grpc_web",
    phase: Phase::Transform,
    waits: false,
    about: "Turns calls by gRPC-Web, which browsers can make, into gRPC, and their answers back: \
            `application/grpc-web` and `application/grpc-web-text`, each with or without a suffix. \
            Other requests pass untouched. The upstream has to speak HTTP/2. Pages of another \
            origin need a `cors` filter in front of it, which exposes `grpc-status` and \
            `grpc-message`.",
    example: "[filter.browsers]\nkind = \"grpc_web\"\n",
    keys: &[] as &[Key],
    decode,
};

#[derive(Debug)]
struct Translate;

fn decode(_f: &mut Fields<'_, '_>, _build: &mut Build<'_>) -> Option<Arc<dyn Filter>> {
    Some(Arc::new(Translate))
}

impl Filter for Translate {
    fn hooks(&self) -> Hooks {
        Hooks { request: true, ..Hooks::default() }
    }

    /// The bodies are turned where they pass (`proxy/bridge`).
    fn on_request(&self, call: &mut Call<'_>) -> Verdict {
        let context = &mut *call.context;
        if let Some(web) = GrpcWeb::of_request(&context.request) {
            web.edit_request(&mut context.request);
            if web.changes_request_length() {
                context.request.remove("content-length");
            }
            context.facts.grpc_web = Some(Box::new(web));
        }
        Verdict::Continue
    }
}

#[cfg(test)]
mod tests {
    use crate::context::RequestContext;
    use crate::filter::testing::{call, decoded};

    fn passed(kind: &str) -> RequestContext {
        let head = format!(
            "POST /a.B/C HTTP/1.1\r\nHost: a.test\r\nContent-Type: {kind}\r\nContent-Length: 8\r\n\r\n"
        );
        let (mut context, _) = RequestContext::of_head(head.as_bytes()).expect("valid");
        decoded("grpc_web", "").on_request(&mut call(&mut context));
        context
    }

    #[test]
    fn only_calls_by_grpc_web_are_turned() {
        let length = |context: &RequestContext| {
            context.request.values_named("content-length").next().is_some()
        };
        let kind = |context: &RequestContext| {
            let value = context.request.values_named("content-type").next();
            String::from_utf8_lossy(value.expect("one")).into_owned()
        };
        let text = passed("application/grpc-web-text+proto");
        assert!(text.facts.grpc_web.is_some() && !length(&text));
        assert_eq!(kind(&text), "application/grpc+proto");
        let binary = passed("application/grpc-web");
        assert!(binary.facts.grpc_web.is_some() && length(&binary));
        let other = passed("application/grpc");
        assert!(other.facts.grpc_web.is_none() && length(&other));
    }
}
