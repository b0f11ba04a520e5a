//! From a head to a route: framing, expectation, Host, target, normalisation, route, size.

use std::time::Instant;

use super::exchange::Terms;
use super::forward::Place;
use super::{Downstream, Exchange};
use crate::context::{ClientFacts, RequestContext, RequestId};
use crate::error::ErrorKind;
use crate::http::forwarding::origin_of;
use crate::http::{BodyFraming, Forwarding, Known, RequestHead, Version};
use crate::http1::body::Body;
use crate::http1::encode::{names_connection_option, upgrade_protocols};
use crate::http1::framing::{keep_alive_request, request_framing};
use crate::state::Core;

/// Fills in the facts of a request, finds its route and holds it.
///
/// # Errors
/// What is wrong with the request; [`ErrorKind::RouteMissing`] where nothing is (R1).
pub(super) fn admit(exchange: &mut Exchange, place: &Place<'_>) -> Result<(), ErrorKind> {
    let context = &mut exchange.context;
    context.timing.started = Some(Instant::now());
    context.request_id = request_id(&context.request, place.down, place.core);
    context.client = client_facts(&context.request, place);
    read_facts(context, place)?;
    let path = context.read_target()?;
    context.check_host()?;
    let snapshot = place.core.snapshot();
    let route = snapshot.routes.find(context).ok_or(ErrorKind::RouteMissing)?;
    exchange.matched.terms = Terms::of(route);
    // Before anything of the route is refused: its counts and log lines name it.
    exchange.matched.held.pin(snapshot.clone(), route.index);
    route.path_policy.admit(&path)?;
    route.edit_target(context)?;
    take_in_hand(exchange, place)
}

/// Says who sent a head that was refused and gives it an identity: fields are not to be believed.
pub(super) fn introduce(exchange: &mut Exchange, place: &Place<'_>) {
    let Downstream { forwarding, peer, .. } = place.down;
    let context = &mut exchange.context;
    let Forwarding { client, trusted, .. } = *forwarding;
    context.client = ClientFacts { address: client, peer: *peer, trusted };
    context.request_id = RequestId::make(&place.core.random);
    context.timing.started = Some(Instant::now());
}

/// Who sent it: the peer, or whom believed proxies name.
fn client_facts(request: &RequestHead, place: &Place<'_>) -> ClientFacts {
    let Forwarding { client, trusted, .. } = place.down.forwarding;
    let hops = request.values(Known::XForwardedFor);
    let address = match trusted {
        true => origin_of(hops, client, |hop| place.listener().trusts(hop)),
        false => client,
    };
    ClientFacts { address, peer: place.down.peer, trusted }
}

/// Peers that are not believed cannot name a request.
fn request_id(request: &RequestHead, down: &Downstream, core: &Core) -> RequestId {
    const GIVEN_BYTES_MAX: usize = 128;
    let given = request.fields.iter().find(|field| field.known == Known::XRequestId);
    match given.filter(|_| down.forwarding.trusted) {
        Some(field) if (1..=GIVEN_BYTES_MAX).contains(&field.value.len()) => {
            RequestId::given(field.value)
        }
        _ => RequestId::make(&core.random),
    }
}

fn read_facts(context: &mut RequestContext, place: &Place<'_>) -> Result<(), ErrorKind> {
    let request = &context.request;
    let facts = &mut context.facts;
    // What an answer to a refused request depends on comes first.
    facts.keep_alive = keep_alive_request(request);
    let method = request.text(request.method);
    facts.is_head = method == b"HEAD";
    // RFC 9110 section 9.2.2.
    facts.idempotent =
        matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE");
    facts.framing = framing(request, place)?;
    if request.version == Version::Http10 {
        // RFC 9110 sections 7.8 and 10.1.1: no upgrade and no expectation in HTTP/1.0.
        return Ok(());
    }
    for expectation in request.values(Known::Expect) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(ErrorKind::ExpectationFailed);
        }
    }
    let asks = request.value(Known::Upgrade).is_some()
        && matches!(facts.framing, BodyFraming::None | BodyFraming::Length(0))
        && names_connection_option(request, b"upgrade");
    facts.upgrade = if asks { upgrade_protocols(request) } else { None };
    Ok(())
}

/// How the body is framed; that of a stream without a length ends with the stream.
fn framing(request: &RequestHead, place: &Place<'_>) -> Result<BodyFraming, ErrorKind> {
    let framing = request_framing(request)?;
    let Some(stream) = place.down.http2() else { return Ok(framing) };
    match (framing, stream.is_end()) {
        // RFC 9113 section 8.1.1.
        (BodyFraming::Length(1..), true) => Err(ErrorKind::FramingAmbiguous),
        // What follows an extended CONNECT is no body (RFC 8441 section 4).
        (BodyFraming::None, false) if request.value(Known::Upgrade).is_none() => {
            Ok(BodyFraming::Chunked)
        }
        (framing, _) => Ok(framing),
    }
}

/// Looks at the body bytes that came with the head, so that a malformed beginning reaches no origin.
fn take_in_hand(exchange: &mut Exchange, place: &Place<'_>) -> Result<(), ErrorKind> {
    let bytes_max = exchange.matched.terms.body_bytes_max;
    let upload = &mut exchange.upload;
    let framing = exchange.context.facts.framing;
    if let (BodyFraming::Length(length), Some(max)) = (framing, bytes_max)
        && length > max
    {
        return Err(ErrorKind::BodyTooLarge);
    }
    upload.body = Body::new(framing);
    upload.whole = match place.down.http2() {
        Some(stream) => stream.is_end() || framing == BodyFraming::None,
        None => upload.body.is_done(),
    };
    upload.looked_at = true;
    if upload.whole || place.down.http2().is_some() {
        return Ok(());
    }
    let step = upload.body.advance(exchange.context.request.rest())?;
    upload.in_hand = step.consumed;
    upload.relay = step.relay;
    upload.whole = step.done;
    upload.bytes = step.data as u64;
    match bytes_max {
        Some(max) if upload.bytes > max => Err(ErrorKind::BodyTooLarge),
        _ => Ok(()),
    }
}
