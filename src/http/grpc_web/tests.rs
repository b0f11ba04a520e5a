//! Bodies in any pieces, and heads both ways.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;

use super::*;
use crate::http::Span;

fn request(method: &[u8], fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead {
        bytes: Buf::from(method),
        method: Span::new(0, method.len()),
        ..RequestHead::default()
    };
    fields.iter().for_each(|(name, value)| head.add(name, value.as_bytes()));
    head
}

fn response(fields: &[(&str, &str)]) -> ResponseHead {
    let mut head = ResponseHead::default();
    fields.iter().for_each(|(name, value)| head.add(name, value.as_bytes()));
    head
}

fn call(kind: &str) -> GrpcWeb {
    GrpcWeb::of_request(&request(b"POST", &[("Content-Type", kind)])).expect("gRPC-Web")
}

fn text() -> GrpcWeb {
    call("application/grpc-web-text")
}

/// A message in its frame.
fn frame(flags: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    [&[flags][..], &length, message].concat()
}

/// Cuts bytes at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn decoded(pieces: &[&[u8]]) -> Result<Vec<u8>, ErrorKind> {
    let (mut call, mut out) = (text(), Buf::empty());
    for piece in pieces {
        call.request(piece, &mut out)?;
    }
    call.request_end()?;
    Ok(out.filled().to_vec())
}

fn answered(call: &mut GrpcWeb, pieces: &[&[u8]], trailers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Buf::empty();
    pieces.iter().for_each(|piece| call.answer(piece, &mut out));
    call.finish(trailers, &mut out);
    out.filled().to_vec()
}

#[test]
fn calls_are_told_by_method_and_type() {
    for (kind, text, suffix) in [
        ("application/grpc-web", false, ""),
        ("application/grpc-web+proto", false, "+proto"),
        ("Application/gRPC-Web+json; charset=utf-8", false, "+json"),
        ("application/grpc-web-text", true, ""),
        ("application/grpc-web-text+proto", true, "+proto"),
        ("application/grpc-web-text ;x", true, ""),
    ] {
        let mut head = request(b"POST", &[("content-type", kind), ("X-Grpc-Web", "1")]);
        let call = GrpcWeb::of_request(&head).expect(kind);
        assert_eq!((call.text_request, call.text_answer), (text, text), "{kind}");
        assert_eq!(call.changes_request_length(), text);
        call.edit_request(&mut head);
        let values = |name| head.values_named(name).collect::<Vec<_>>();
        assert_eq!(values("content-type"), [format!("application/grpc{suffix}").as_bytes()]);
        assert_eq!(values("te"), [b"trailers"]);
        assert!(values("x-grpc-web").is_empty());
    }
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-webs",
        "application/grpc-web+",
        "application/grpc-web+a b",
        "application/grpc-web+a\"",
        "application/grpc-web-text-proto",
        "application/grpc-we",
        "text/html",
        "",
    ] {
        let head = request(b"POST", &[("content-type", kind)]);
        assert_eq!(GrpcWeb::of_request(&head), None, "{kind}");
    }
    let web = ("content-type", "application/grpc-web");
    assert_eq!(GrpcWeb::of_request(&request(b"GET", &[web])), None);
    assert_eq!(GrpcWeb::of_request(&request(b"POST", &[web, web])), None);
    assert_eq!(GrpcWeb::of_request(&request(b"POST", &[])), None);
}

#[test]
fn the_answer_has_the_form_that_is_accepted() {
    for (accept, kind, wanted) in [
        ("*/*", "application/grpc-web-text+proto", "application/grpc-web-text+proto"),
        ("application/grpc-web-text", "application/grpc-web", "application/grpc-web-text+proto"),
        (
            "text/html, application/grpc-web+proto",
            "application/grpc-web-text",
            "application/grpc-web+proto",
        ),
    ] {
        let head = request(b"POST", &[("accept", accept), ("content-type", kind)]);
        let call = GrpcWeb::of_request(&head).expect(kind);
        let mut answer = response(&[
            ("Content-Type", "application/grpc+proto"),
            ("Content-Length", "7"),
            ("Trailer", "grpc-status"),
            ("x-other", "kept"),
        ]);
        assert!(call.edit_answer(&mut answer));
        let all: Vec<_> = answer.added.iter().collect();
        assert_eq!(all, [(&b"x-other"[..], &b"kept"[..]), (b"content-type", wanted.as_bytes())]);
    }
    let mut error = response(&[("content-type", "text/html"), ("content-length", "7")]);
    assert!(!text().edit_answer(&mut error), "any other answer is passed on");
    assert_eq!(error.added.len(), 2);
    assert!(!text().edit_answer(&mut response(&[])));
}

/// PROTOCOL-WEB.md: names in lower case, one line each, in one frame.
#[test]
fn trailers_are_the_last_frame() {
    let trailers: [(&[u8], &[u8]); 3] =
        [(b"grpc-status", b"5"), (b"Grpc-Message", b"no%0Asuch\r\nx: y"), (b"x-bin", b"AAE=")];
    let lines = b"grpc-status:5\r\ngrpc-message:no%0Asuchx: y\r\nx-bin:AAE=\r\n";
    let body = [frame(0, b"hello"), frame(0x80, lines)].concat();
    let message = frame(0, b"hello");
    let binary = answered(&mut call("application/grpc-web"), &[&message], &trailers);
    assert_eq!(binary, body);
    let coded = answered(&mut text(), &[&message], &trailers);
    assert_eq!(decoded(&[&coded]), Ok(body));
    assert_eq!(answered(&mut call("application/grpc-web"), &[], &[]), frame(0x80, b""));
}

#[test]
fn a_status_in_the_head_moves_into_the_body() {
    let mut head = response(&[
        ("content-type", "application/grpc"),
        ("Grpc-Status", "12"),
        ("grpc-message", "none"),
        ("x-other", "kept"),
    ]);
    let mut out = Buf::empty();
    assert!(call("application/grpc-web").trailers_only(&mut head, &mut out));
    assert_eq!(out.filled(), frame(0x80, b"grpc-status:12\r\ngrpc-message:none\r\n"));
    let names: Vec<_> = head.added.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"content-type"[..], b"x-other"]);
    assert!(!call("application/grpc-web").trailers_only(&mut head, &mut out));
}

/// None waits for the next one, which may be long in coming.
#[test]
fn a_whole_message_goes_out_whole() {
    for length in 0..8 {
        let (mut call, mut out) = (text(), Buf::empty());
        let message = frame(0, &vec![b'x'; length]);
        call.answer(&message, &mut out);
        assert_eq!(out.filled(), BASE64_STANDARD.encode(&message).as_bytes(), "{length}");
    }
}

#[test]
fn what_is_no_base64_is_refused() {
    for wrong in [
        "=", "A=", "AA=A", "A===", "AAA", "AA", "A", "AA==A", "AA==B===", "AB==", "AAB=", "A A=",
        "AAAA\n", "AA-_", "AAAAÄ",
    ] {
        assert_eq!(decoded(&[wrong.as_bytes()]), Err(ErrorKind::GrpcWebMalformed), "{wrong}");
    }
    assert_eq!(decoded(&[b"QQ==QUI=QUJDRA=="]).as_deref(), Ok(&b"AABABCD"[..]));
    assert_eq!(decoded(&[]), Ok(Vec::new()));
}

fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..70), 0..6)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(any::<usize>(), 0..12)
}

proptest! {
    /// What pages send, one encoded message behind the other, in any pieces.
    #[test]
    fn requests_do_not_depend_on_pieces(messages in messages(), cuts in cuts()) {
        let coded: String = messages.iter().map(|message| BASE64_STANDARD.encode(message)).collect();
        let whole = decoded(&pieces(coded.as_bytes(), &cuts));
        prop_assert_eq!(whole, Ok(messages.concat()));
    }

    /// Answers come out the same in any pieces, and say what went in.
    #[test]
    fn answers_do_not_depend_on_pieces(messages in messages(), cuts in cuts(), text in any::<bool>()) {
        let body: Vec<u8> = messages.iter().flat_map(|message| frame(0, message)).collect();
        let trailers: [(&[u8], &[u8]); 1] = [(b"grpc-status", b"0")];
        let kind = if text { "application/grpc-web-text" } else { "application/grpc-web" };
        let out = answered(&mut call(kind), &pieces(&body, &cuts), &trailers);
        prop_assert_eq!(&out, &answered(&mut call(kind), &[&body], &trailers));
        let all = [body, frame(0x80, b"grpc-status:0\r\n")].concat();
        let said = if text { decoded(&[&out]) } else { Ok(out) };
        prop_assert_eq!(said, Ok(all));
    }

    /// No bytes are taken for base64 in some pieces and not in others.
    #[test]
    fn any_bytes_have_one_verdict(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'A'), Just(b'=')], 0..24),
        cuts in cuts(),
    ) {
        prop_assert_eq!(decoded(&pieces(&bytes, &cuts)), decoded(&[&bytes]));
    }
}
