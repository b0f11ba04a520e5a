//! Where a body ends.

use ringway::base::buffer::Buf;
use ringway::error::ErrorKind;
use ringway::http::{BodyFraming, HeadLimits, Known, RequestHead, ResponseHead, Version};
use ringway::http1::framing::{
    keep_alive_request, keep_alive_response, request_framing, response_framing,
};
use ringway::http1::head::{RequestParser, ResponseParser};

use super::reference::FieldLine;
use super::reference::body::{self, Body, Refusal};

/// `data` is a whole head: a response's if it begins with `HTTP/`, else a request's.
pub fn framing(data: &[u8]) {
    if data.starts_with(b"HTTP/") { response(data) } else { request(data) }
}

fn request(data: &[u8]) {
    let mut head = RequestHead { bytes: Buf::from(data), ..RequestHead::default() };
    if RequestParser::default().parse(&mut head, &HeadLimits::default()) != Ok(true) {
        return;
    }
    let minor = u8::from(head.version == Version::Http11);
    let fields: Vec<FieldLine> = head
        .fields
        .iter()
        .map(|field| (head.text(field.name).to_vec(), head.text(field.value).to_vec()))
        .collect();
    let expected = body::of_request(minor, &fields).map(framed).map_err(|refusal| match refusal {
        Refusal::Doubtful => ErrorKind::FramingAmbiguous,
        Refusal::UnknownCoding => ErrorKind::CodingUnknown,
    });
    let framing = request_framing(&head);
    assert_eq!(framing, expected);
    assert_eq!(keep_alive_request(&head), body::persists(minor, &fields));
    if let Ok(framing) = framing {
        let both = head.value(Known::ContentLength).and(head.value(Known::TransferEncoding));
        assert!(both.is_none() && framing != BodyFraming::UntilClose);
        #[cfg(feature = "demo")]
        monoio::request(head.bytes.filled(), framing);
    }
}

fn response(data: &[u8]) {
    let mut head = ResponseHead { bytes: Buf::from(data), ..ResponseHead::default() };
    if ResponseParser::default().parse(&mut head, &HeadLimits::default()) != Ok(true) {
        return;
    }
    let minor = u8::from(head.version == Version::Http11);
    let fields: Vec<FieldLine> = head
        .fields
        .iter()
        .map(|field| (head.text(field.name).to_vec(), head.text(field.value).to_vec()))
        .collect();
    assert_eq!(keep_alive_response(&head), body::persists(minor, &fields));
    for to_head in [false, true] {
        let expected = body::of_response(head.status, minor, &fields, to_head);
        let framing = response_framing(&head, to_head);
        assert_eq!(framing.is_ok(), expected.is_ok());
        let (Ok(framing), Ok(expected)) = (framing, expected) else { continue };
        assert_eq!((framing.body, framing.reusable), (framed(expected.body), expected.reusable));
        // What is passed on holds at most one of the two; Transfer-Encoding is made anew.
        let length = head.value(Known::ContentLength).is_some() && !framing.drop_content_length;
        let forbidden = head.status < 200 || head.status == 204;
        assert!(!length || (framing.body != BodyFraming::Chunked && !forbidden));
        #[cfg(feature = "demo")]
        monoio::response(data, framing.body);
    }
}

fn framed(body: Body) -> BodyFraming {
    match body {
        Body::Nothing => BodyFraming::None,
        Body::Bytes(length) => BodyFraming::Length(length),
        Body::Chunks => BodyFraming::Chunked,
        Body::RestOfConnection => BodyFraming::UntilClose,
    }
}

/// monoio-http's view, compared only where both accept. Known to differ: it takes both framings,
/// repeated ones, Transfer-Encoding in HTTP/1.0 and `identity`, none of which we accept; it looks at
/// no status and knows no body that ends with the connection.
#[cfg(feature = "demo")]
mod monoio {
    use std::panic::catch_unwind;

    use bytes::BytesMut;
    use monoio_codec::{Decoded, Decoder};
    use monoio_http::h1::codec::decoder::{
        DirectWrapper, GenericHeadDecoder, PayloadDecoder, RequestHeadDecoder, ResponseHeadDecoder,
    };
    use ringway::http::BodyFraming;

    type Request = GenericHeadDecoder<(), RequestHeadDecoder, DirectWrapper>;
    type Response = GenericHeadDecoder<(), ResponseHeadDecoder, DirectWrapper>;

    pub fn request(data: &[u8], ours: BodyFraming) {
        let decoded = catch_unwind(|| Request::default().decode(&mut BytesMut::from(data)));
        if let Ok(Ok(Decoded::Some((_, payload)))) = decoded {
            assert!(matches!(
                (payload, ours),
                (PayloadDecoder::None, BodyFraming::None | BodyFraming::Length(0))
                    | (PayloadDecoder::Fixed(_), BodyFraming::Length(1..))
                    | (PayloadDecoder::Streamed(_), BodyFraming::Chunked)
            ));
        }
    }

    pub fn response(data: &[u8], ours: BodyFraming) {
        let decoded = catch_unwind(|| Response::default().decode(&mut BytesMut::from(data)));
        if let Ok(Ok(Decoded::Some((_, payload)))) = decoded {
            assert!(matches!(
                (payload, ours),
                (_, BodyFraming::None)
                    | (PayloadDecoder::None, BodyFraming::UntilClose | BodyFraming::Length(0))
                    | (PayloadDecoder::Fixed(_), BodyFraming::Length(1..))
                    | (PayloadDecoder::Streamed(_), BodyFraming::Chunked)
            ));
        }
    }
}
