//! Exchanges as scripts, each with what its peers must have got in the end.

use super::world::Step;

/// A script of an exchange.
pub struct Script {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Status and body of each answer, interim ones included.
    pub answers: &'static [(u16, &'static str)],
    /// Method, target and body of each request, connection by connection.
    pub asked: &'static [&'static [(&'static str, &'static str, &'static str)]],
    /// What a tunnel carried to the client and to the origin.
    pub tunnel: Option<(&'static str, &'static str)>,
}

fn client(text: &str) -> Step {
    Step::Client(text.as_bytes().to_vec())
}

fn origin(text: &str) -> Step {
    Step::Origin(text.as_bytes().to_vec())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A text that stands for any: error answers of the proxy's own are not compared word by word.
pub const ANY: &str = "*";

/// All scripts.
pub fn all() -> Vec<Script> {
    [requests(), pipelines(), answers(), conversions(), endings(), reuse(), refusals()]
        .into_iter()
        .flatten()
        .collect()
}

fn requests() -> Vec<Script> {
    vec![
        Script {
            name: "a plain request",
            steps: vec![client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), origin(OK)],
            answers: &[(200, "ok")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "a body with a length",
            steps: vec![
                client("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234"),
                client("56789"),
                origin(OK),
            ],
            answers: &[(200, "ok")],
            asked: &[&[("POST", "/a", "0123456789")]],
            tunnel: None,
        },
        Script {
            name: "a chunked body with a trailer",
            steps: vec![
                client("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n012"),
                client("\r\n4;a=b\r\n3456\r\n0\r\nX-Sum: 1\r\n\r\n"),
                origin(OK),
            ],
            answers: &[(200, "ok")],
            asked: &[&[("POST", "/a", "0123456")]],
            tunnel: None,
        },
        Script {
            name: "a body on request",
            steps: vec![
                client(
                    "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
                ),
                origin("HTTP/1.1 100 Continue\r\n\r\n"),
                client("abc"),
                origin(OK),
            ],
            answers: &[(100, ""), (200, "ok")],
            asked: &[&[("PUT", "/a", "abc")]],
            tunnel: None,
        },
    ]
}

fn pipelines() -> Vec<Script> {
    vec![
        Script {
            name: "a pipelined pair",
            steps: vec![
                client(
                    "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nxy",
                ),
                origin(OK),
                origin("HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nb"),
            ],
            answers: &[(200, "ok"), (201, "b")],
            asked: &[&[("GET", "/a", ""), ("POST", "/b", "xy")]],
            tunnel: None,
        },
        Script {
            name: "a request behind a chunked body",
            steps: vec![
                client("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab"),
                client("\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin(OK),
                origin(OK),
            ],
            answers: &[(200, "ok"), (200, "ok")],
            asked: &[&[("POST", "/a", "ab"), ("GET", "/b", "")]],
            tunnel: None,
        },
        Script {
            name: "an upgrade",
            steps: vec![
                client(
                    "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                ),
                origin(
                    "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi",
                ),
                client("ping"),
                origin("pong"),
                Step::OriginEnd,
                Step::ClientEnd,
            ],
            answers: &[(101, "")],
            asked: &[&[("GET", "/ws", "")]],
            tunnel: Some(("hipong", "ping")),
        },
    ]
}

fn answers() -> Vec<Script> {
    vec![
        Script {
            name: "chunks with a trailer",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
                origin("1\r\n!\r\n0\r\nX-Sum: 7\r\n\r\n"),
            ],
            answers: &[(200, "hello!")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "an answer until the close",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\n\r\nsome"),
                origin(" text"),
                Step::OriginEnd,
            ],
            answers: &[(200, "some text")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "HEAD, 204 and 304",
            steps: vec![
                client("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"),
                client("DELETE /b HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 204 No Content\r\n\r\n"),
                client("GET /c HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"1\"\r\n\r\n"),
                origin("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
            ],
            answers: &[(200, ""), (204, ""), (304, "")],
            asked: &[&[("HEAD", "/a", ""), ("DELETE", "/b", ""), ("GET", "/c", "")]],
            tunnel: None,
        },
        Script {
            name: "an interim answer",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n"),
                origin(OK),
            ],
            answers: &[(103, ""), (200, "ok")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
    ]
}

fn conversions() -> Vec<Script> {
    vec![
        Script {
            name: "chunks for HTTP/1.0",
            steps: vec![
                client("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
                origin("2\r\nde\r\n0\r\n\r\n"),
            ],
            answers: &[(200, "abcde")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "an early answer",
            steps: vec![
                client("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123"),
                origin("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"),
                client("456789"),
            ],
            answers: &[(403, "no")],
            asked: &[&[("POST", "/a", "0123")]],
            tunnel: None,
        },
    ]
}

/// Pooled connections that have ended, or end as they are used again.
fn reuse() -> Vec<Script> {
    vec![
        Script {
            name: "a stale connection",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin(OK),
                Step::OriginEnd,
                client("GET /b HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin(OK),
            ],
            answers: &[(200, "ok"), (200, "ok")],
            asked: &[&[("GET", "/a", "")], &[("GET", "/b", "")]],
            tunnel: None,
        },
        Script {
            name: "a connection that ends as it is used again",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin(OK),
                client("GET /b HTTP/1.1\r\nHost: x\r\n\r\n"),
                Step::OriginEnd,
                origin(OK),
            ],
            answers: &[(200, "ok"), (200, "ok")],
            asked: &[&[("GET", "/a", ""), ("GET", "/b", "")], &[("GET", "/b", "")]],
            tunnel: None,
        },
    ]
}

fn endings() -> Vec<Script> {
    vec![
        Script {
            name: "a half-closed client",
            steps: vec![client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), Step::ClientEnd, origin(OK)],
            answers: &[(200, "ok")],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "an idle pause",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
                origin(OK),
                Step::Pass(1_500),
                client("GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                origin(OK),
            ],
            answers: &[(200, "ok"), (200, "ok")],
            asked: &[&[("GET", "/a", ""), ("GET", "/b", "")]],
            tunnel: None,
        },
        Script {
            name: "answers that trickle",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na"),
                Step::Pass(500),
                origin("b"),
                Step::Pass(500),
                origin("c"),
                client("GET /b HTTP/1.1\r\nHost: x\r\n\r\n"),
                Step::Pass(500),
                origin("HTTP/1.1 200 OK\r\n\r\na"),
                Step::Pass(500),
                Step::OriginEnd,
            ],
            answers: &[(200, "abc"), (200, "a")],
            asked: &[&[("GET", "/a", ""), ("GET", "/b", "")]],
            tunnel: None,
        },
        Script {
            name: "an origin that closes without an answer",
            steps: vec![client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), Step::OriginEnd],
            answers: &[(502, ANY)],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
    ]
}

fn refusals() -> Vec<Script> {
    vec![
        Script {
            name: "a malformed head",
            steps: vec![client("GET /a HTTP/1.1\r\nHost : x\r\n\r\n")],
            answers: &[(400, ANY)],
            asked: &[],
            tunnel: None,
        },
        Script {
            name: "two lengths behind a good request",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin(OK),
                client(
                    "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
                ),
            ],
            answers: &[(200, "ok"), (400, ANY)],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "a malformed answer",
            steps: vec![
                client("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
                origin("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
            ],
            answers: &[(502, ANY)],
            asked: &[&[("GET", "/a", "")]],
            tunnel: None,
        },
        Script {
            name: "a body above the bound",
            steps: vec![
                client("POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
                client("4\r\n0123\r\n"),
                client("5\r\n45678\r\n0\r\n\r\n"),
            ],
            answers: &[(413, ANY)],
            asked: &[&[("POST", "/small", "0123")]],
            tunnel: None,
        },
    ]
}
