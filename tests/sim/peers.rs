//! What the peers of the proxy make of the bytes that they got, by the strict parser of
//! tests/reference.

use super::super::reference::body::{self, Body};
use super::super::reference::{self, Bounds, FieldLine, Stop};
use super::world::Ended;

/// An answer as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub trailers: Vec<FieldLine>,
    /// Whether the client takes it for whole.
    pub whole: bool,
    /// Whether the proxy says that it made it itself.
    pub made_here: bool,
}

/// A request as an origin reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub body: Vec<u8>,
    pub trailers: Vec<FieldLine>,
    pub whole: bool,
}

/// What one side got over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got<T> {
    pub messages: Vec<T>,
    /// Bytes of a head that is not whole.
    pub cut_head: usize,
    /// What followed a switch of protocols.
    pub tunnel: Option<Vec<u8>>,
}

const BOUNDS: Bounds = Bounds { head_bytes: 256 * 1024, fields: 512, target_bytes: 128 * 1024 };

/// Reads what a client got; `methods` are those of its requests, in order.
///
/// # Errors
/// What is not HTTP/1.1 in it.
pub fn answers(bytes: &[u8], methods: &[Vec<u8>], ended: Ended) -> Result<Got<Answer>, String> {
    let mut got = Got { messages: Vec::new(), cut_head: 0, tunnel: None };
    let (mut at, mut answered, mut last) = (0, 0, false);
    while at < bytes.len() {
        if last {
            return Err(format!("bytes behind the last answer: {}", show(&bytes[at..])));
        }
        let head = match reference::response(&bytes[at..], BOUNDS) {
            Ok(head) => head,
            Err(Stop::Bad) => return Err(format!("a bad head: {}", show(&bytes[at..]))),
            Err(Stop::More) => {
                got.cut_head = bytes.len() - at;
                return Ok(got);
            }
        };
        at += head.len;
        let interim = head.status < 200;
        let method = methods.get(answered).map_or(&b"GET"[..], Vec::as_slice);
        answered += usize::from(!interim);
        let made_here = !interim && has(&head.fields, "proxy-status");
        let persists = body::persists(head.minor_version, &head.fields);
        // A refused head may have been any request: its answer carries its text, and is the last.
        let unknown = made_here && !persists && bytes.len() > at;
        let to_head = method == b"HEAD" && !unknown;
        let framing = body::of_response(head.status, head.minor_version, &head.fields, to_head)
            .map_err(|_| format!("a framing in doubt: {:?}", head.fields))?;
        let part = Part::read(&bytes[at..], framing.body, ended == Ended::Cleanly)?;
        at += part.len;
        let Part { data: body, trailers, whole, .. } = part;
        last = !whole || !(persists || interim);
        got.messages.push(Answer { status: head.status, body, trailers, whole, made_here });
        if head.status == 101 {
            got.tunnel = Some(bytes[at..].to_vec());
            return Ok(got);
        }
    }
    Ok(got)
}

/// Reads what an origin got. After an upgrade that was `switched` everything is opaque.
///
/// # Errors
/// What is not HTTP/1.1 in it.
pub fn requests(bytes: &[u8], switched: bool) -> Result<Got<Asked>, String> {
    let mut got = Got { messages: Vec::new(), cut_head: 0, tunnel: None };
    let mut at = 0;
    while at < bytes.len() {
        let head = match reference::request(&bytes[at..], BOUNDS) {
            Ok(head) => head,
            Err(Stop::Bad) => return Err(format!("a bad head: {}", show(&bytes[at..]))),
            Err(Stop::More) => {
                got.cut_head = bytes.len() - at;
                return Ok(got);
            }
        };
        at += head.skipped + head.len;
        if head.skipped > 0 || head.minor_version != 1 {
            return Err("an empty line or an old version".into());
        }
        let hosts = head.fields.iter().filter(|field| field.0.eq_ignore_ascii_case(b"host"));
        if hosts.count() != 1 {
            return Err("not one Host".into());
        }
        let framing = body::of_request(1, &head.fields)
            .map_err(|_| format!("a framing in doubt: {:?}", head.fields))?;
        let part = Part::read(&bytes[at..], framing, false)?;
        at += part.len;
        let Part { data: body, trailers, whole, .. } = part;
        let (method, target) = (head.method, head.target);
        got.messages.push(Asked { method, target, body, trailers, whole });
        if switched && has(&head.fields, "upgrade") {
            got.tunnel = Some(bytes[at..].to_vec());
            return Ok(got);
        }
    }
    Ok(got)
}

/// Methods of the requests that a client sent, as far as they are well formed.
pub fn methods(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut methods = Vec::new();
    let mut at = 0;
    while let Ok(head) = reference::request(&bytes[at..], BOUNDS) {
        at += head.skipped + head.len;
        methods.push(head.method);
        let Ok(framing) = body::of_request(head.minor_version, &head.fields) else { break };
        match Part::read(&bytes[at..], framing, false) {
            Ok(part) if part.whole => at += part.len,
            _ => break,
        }
    }
    methods
}

/// A body, or what has come of it.
struct Part {
    data: Vec<u8>,
    trailers: Vec<FieldLine>,
    whole: bool,
    len: usize,
}

impl Part {
    fn read(bytes: &[u8], framing: Body, ended: bool) -> Result<Part, String> {
        let data = |len: usize, whole| Part {
            data: bytes[..len].to_vec(),
            trailers: Vec::new(),
            whole,
            len,
        };
        match framing {
            Body::Nothing => Ok(data(0, true)),
            Body::RestOfConnection => Ok(data(bytes.len(), ended)),
            Body::Bytes(length) => {
                let len = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                Ok(data(len, len as u64 == length))
            }
            Body::Chunks => match body::chunked(bytes) {
                Ok(whole) => Ok(Part {
                    data: whole.data,
                    trailers: whole.trailers,
                    whole: true,
                    len: whole.len,
                }),
                Err(Stop::More) => Ok(Part {
                    data: unfinished_chunks(bytes),
                    trailers: Vec::new(),
                    whole: false,
                    len: bytes.len(),
                }),
                Err(Stop::Bad) => Err(format!("a bad chunk: {}", show(bytes))),
            },
        }
    }
}

/// The data of the chunks so far; the bytes are those of a body that can still become whole.
fn unfinished_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let digits = line.split(';').next().unwrap_or(&line);
        let Ok(size) = usize::from_str_radix(digits, 16) else { break };
        if size == 0 {
            break;
        }
        let rest = &bytes[end + 2..];
        data.extend_from_slice(&rest[..size.min(rest.len())]);
        bytes = rest.get(size.saturating_add(2)..).unwrap_or(&[]);
    }
    data
}

fn has(fields: &[FieldLine], name: &str) -> bool {
    fields.iter().any(|field| field.0.eq_ignore_ascii_case(name.as_bytes()))
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}
