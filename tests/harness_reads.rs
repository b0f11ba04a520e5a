//! The judges themselves: the strict readers find what they must find, and the scripted origin and
//! the raw client understand each other with no proxy between them.

mod harness;

use harness::case::File;
use harness::client::{ask, plain_get};
use harness::grammar::{read_body, read_head, values};
use harness::origin::Op;
use harness::proxy::{find_text, metric};
use harness::response::{End, parse};
use harness::{Client, Origin, Request, contains, ms};

/// Reads one request off these bytes.
fn request(bytes: &[u8]) -> Request {
    let mut source = bytes;
    let mut request = read_head(&mut source, &mut |_| {}).expect("a whole head");
    drop(read_body(&mut source, &mut request, u64::MAX, &mut |_| {}));
    request
}

#[test]
fn clean_requests_have_no_faults() {
    let plain = request(b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nX-A: \t b c \t\r\n\r\n");
    assert!(plain.lint.faults.is_empty() && plain.complete, "{:?}", plain.lint);
    assert_eq!(plain.get("x-a"), Some(&b"b c"[..]));
    assert_eq!((plain.path(), plain.line()), ("/a".to_owned(), b"GET /a?b".to_vec()));
    let long = request(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert!(long.lint.faults.is_empty() && long.complete && long.body == b"abc");
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = request(&[&head[..], b"3;x\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"].concat());
    assert!(chunked.lint.faults.is_empty() && chunked.complete && chunked.body == b"abc");
    assert_eq!(values(&chunked.trailers, "x-t"), [b"1"]);
}

#[test]
fn faulty_requests_are_found() {
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;\x01\r\nx\r\n0\r\n\r\n",
    ] {
        assert!(!request(text.as_bytes()).lint.faults.is_empty(), "nothing found in {text:?}");
    }
}

#[test]
fn incomplete_requests_are_not_complete() {
    for text in ["5\r\nhel", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n", "0\r\nX: y\r\n"] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!request(format!("{head}{text}").as_bytes()).complete, "{text:?}");
    }
    assert!(!request(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf").complete);
}

#[test]
fn responses_are_told_apart() {
    let data = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest";
    let received = parse(data, &[], Some(End::Finished));
    let statuses: Vec<u16> = received.finals.iter().map(|one| one.status).collect();
    assert_eq!((received.interims.len(), &statuses[..]), (1, &[200, 200, 304, 200][..]));
    assert!(received.finals.iter().all(|one| one.complete && one.lint.faults.is_empty()));
    assert_eq!(values(&received.finals[1].trailers, "x-t"), [b"1"]);
    assert_eq!(received.finals[3].body, b"rest");
    let open = parse(data, &[], None);
    assert!(!open.finals[3].complete, "without an end it is not whole");
    let reset = parse(data, &[], Some(End::Reset));
    assert!(!reset.finals[3].complete, "a reset ends nothing well");
}

#[test]
fn bodies_follow_methods_and_tunnels_follow_101() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let next = b"HTTP/1.1 204 No Content\r\n\r\n";
    let received = parse(&[&head[..], next].concat(), &[b"HEAD".to_vec()], None);
    assert_eq!(received.complete(), 2, "HEAD has no body");
    let switched = b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 is not spoken here";
    assert!(contains(&parse(switched, &[], None).rest, b"not spoken"));
}

#[test]
fn faulty_responses_are_found() {
    for text in [
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    ] {
        let received = parse(text.as_bytes(), &[], None);
        let found = received.finals.iter().any(|one| !one.lint.faults.is_empty());
        assert!(found, "nothing found in {text:?}");
    }
}

#[test]
fn the_origin_and_the_client_understand_each_other() {
    let origin = Origin::start();
    let address = origin.address.parse().expect("an address");
    origin.script("/reset", vec![Op::Reset]);
    origin.script("/close", vec![Op::Close]);
    let answer = ask(address, &plain_get("/a"), ms(2_000)).expect("an answer");
    assert_eq!(answer.finals[0].get("x-seen"), Some(&b"GET /a"[..]));
    for (path, end) in [("/reset", End::Reset), ("/close", End::Finished)] {
        let client = Client::open(address).expect("a connection");
        client.send(&plain_get(path));
        assert!(client.wait_end(ms(2_000)), "{path} ends");
        assert_eq!(client.end(), Some(end), "{path}");
    }
    let mut client = Client::open(address).expect("a connection");
    origin.script("/hang", vec![Op::Hang]);
    client.send(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(origin.wait(ms(2_000), |record| record.requests.len() == 4), "it arrives");
    client.reset();
    let seen = origin.wait(ms(2_000), |record| {
        let connection = &record.connections[record.requests[3].connection];
        connection.closed.is_some() && connection.by_proxy && connection.reset
    });
    assert!(seen, "the reset is on record");
    assert_eq!(origin.look(|record| record.in_flight.0), 0, "nothing is under way");
}

#[test]
fn cases_refuse_what_they_do_not_know() {
    let file = |case: &str| {
        let head = "group = \"S\"\nabout = \"x\"\n[[case]]\nid = \"S01\"\nlevel = \"must\"\n\
            source = \"x\"\nwhat = \"x\"\n";
        let text = format!("{head}{case}");
        std::panic::catch_unwind(|| drop(File::read(&text))).is_ok()
    };
    assert!(file("client = [{ send = \"{get}\" }]\nallow = [{ like = \"served\" }]\n"));
    assert!(!file("client = [{ sends = \"x\" }]\nallow = [{ like = \"served\" }]\n"));
    assert!(!file("client = [{ send = \"{nobody}\" }]\nallow = [{ like = \"served\" }]\n"));
    assert!(!file("client = [{ send = \"x\" }]\nallow = [{ likes = \"served\" }]\n"));
    assert!(!file("client = [{ send = \"x\" }]\nallow = []\n"));
}

#[test]
fn status_and_metrics_are_read() {
    let status = serde_json::json!({ "workers": [{ "io": { "driver": "epoll" } }] });
    assert_eq!(find_text(&status, "driver").as_deref(), Some("epoll"));
    let page = "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\na_b 9\nc 5\n";
    assert_eq!(metric(page, "a", ""), 7.0);
    assert_eq!(metric(page, "a", "x=\"1\""), 3.0);
    assert_eq!(metric(page, "c", ""), 5.0);
}
