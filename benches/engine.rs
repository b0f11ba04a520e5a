//! Time of the protocol engine beside the parsers that it could be built on:
//! `cargo bench --bench engine`.

use bytes::BytesMut;
use divan::{Bencher, black_box};
use ringway::base::buffer::Buf;
use ringway::http::uri::{normalise_path, parse_target};
use ringway::http::{HeadLimits, RequestHead};
use ringway::http1::chunked::ChunkedRelay;
use ringway::http1::framing::request_framing;
use ringway::http1::head::RequestParser;

fn main() {
    divan::main();
}

/// What a browser sends: nine fields.
const BROWSER: &[u8] = b"GET /api/v1/app/order/detail?id=20210911 HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d; theme=dark; region=eu-west\r\n\
    X-Forwarded-For: 192.0.2.7\r\n\
    X-Request-Id: 018f3c2e-6d1a-7c3b-9a55-2f1f0a5b7c11\r\n\r\n";

/// What a load generator sends.
const SMALL: &[u8] = b"GET /orders/17 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const HEADS: [&[u8]; 2] = [SMALL, BROWSER];

#[divan::bench_group]
mod head {
    use super::*;

    /// Whole, as it nearly always comes; framing included.
    #[divan::bench(args = [0, 1])]
    fn ringway(bencher: Bencher<'_, '_>, which: usize) {
        let mut head = RequestHead { bytes: Buf::from(HEADS[which]), ..RequestHead::default() };
        let mut parser = RequestParser::default();
        let limits = HeadLimits::default();
        bencher.bench_local(|| {
            let done = parser.parse(black_box(&mut head), &limits);
            (done, request_framing(&head))
        });
    }

    /// In two halves: the path of heads that do not arrive at once.
    #[divan::bench(args = [0, 1])]
    fn ringway_in_halves(bencher: Bencher<'_, '_>, which: usize) {
        let text = HEADS[which];
        let mut head = RequestHead { bytes: Buf::for_head(), ..RequestHead::default() };
        let mut parser = RequestParser::default();
        let limits = HeadLimits::default();
        bencher.bench_local(|| {
            head.bytes.clear();
            head.bytes.extend(&text[..text.len() / 2]);
            let first = parser.parse(black_box(&mut head), &limits);
            head.bytes.extend(&text[text.len() / 2..]);
            (first, parser.parse(&mut head, &limits), request_framing(&head))
        });
    }

    /// The tokeniser under it, without spans, names and checks.
    #[divan::bench(args = [0, 1])]
    fn httparse_alone(bencher: Bencher<'_, '_>, which: usize) {
        bencher.bench_local(|| {
            let mut slots = [const { std::mem::MaybeUninit::uninit() }; 100];
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(black_box(HEADS[which]), &mut slots);
            (parsed, request.headers.len())
        });
    }

    /// The codec that comes with the runtime; it needs its own copy of the bytes.
    #[cfg(feature = "demo")]
    #[divan::bench(args = [0, 1])]
    fn monoio_http(bencher: Bencher<'_, '_>, which: usize) {
        use monoio_codec::Decoder;
        use monoio_http::h1::codec::decoder::RequestHeadDecoder;
        bencher
            .with_inputs(|| BytesMut::from(HEADS[which]))
            .bench_local_refs(|bytes| RequestHeadDecoder.decode(black_box(bytes)).is_ok());
    }
}

#[divan::bench_group]
mod chunked {
    use super::*;

    fn body(chunk: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < 64 * 1024 {
            body.extend_from_slice(format!("{chunk:x}\r\n").as_bytes());
            body.resize(body.len() + chunk, b'x');
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        body
    }

    /// 64 KiB in chunks of this size, checked and passed on as they are.
    #[divan::bench(args = [16, 1024, 16384])]
    fn relayed(bencher: Bencher<'_, '_>, chunk: usize) {
        let body = body(chunk);
        bencher.bench_local(|| ChunkedRelay::new().step(black_box(&body)));
    }

    /// The same through monoio-http's decoder, which takes the coding off.
    #[cfg(feature = "demo")]
    #[divan::bench(args = [16, 1024, 16384])]
    fn monoio_http(bencher: Bencher<'_, '_>, chunk: usize) {
        use monoio_codec::{Decoded, Decoder};
        use monoio_http::h1::codec::decoder::ChunkedBodyDecoder;
        let body = body(chunk);
        bencher.with_inputs(|| BytesMut::from(body.as_slice())).bench_local_refs(|bytes| {
            let mut decoder = ChunkedBodyDecoder::default();
            while let Ok(Decoded::Some(Some(_))) = black_box(decoder.decode(bytes)) {}
        });
    }
}

#[divan::bench_group]
mod target {
    use super::*;

    /// Nothing to change: what nearly every request needs.
    #[divan::bench(args = ["/", "/api/v1/app/order/detail", "/a/b/../c/%7euser//x"])]
    fn parsed_and_normalised(bencher: Bencher<'_, '_>, path: &str) {
        let mut out = Vec::with_capacity(64);
        bencher.bench_local(|| {
            let target = parse_target(b"GET", black_box(path.as_bytes()));
            target.and_then(|target| normalise_path(target.path, &mut out))
        });
    }

    #[divan::bench(args = ["/", "/api/v1/app/order/detail", "/a/b/../c/%7euser//x"])]
    fn http_uri(bencher: Bencher<'_, '_>, path: &str) {
        bencher.bench_local(|| http::Uri::try_from(black_box(path)).is_ok());
    }
}
