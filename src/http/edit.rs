//! What changes in a head on its way through a proxy, whatever version either side speaks.

use super::{BodyFraming, Forwarding};

/// What changes in a request's head on its way.
pub struct RequestEdit<'a> {
    /// The path, `*` included.
    pub path: &'a [u8],
    /// The query, without its question mark.
    pub query: Option<&'a [u8]>,
    /// Host in place of the one that came, if it has to be replaced.
    pub host: Option<&'a [u8]>,
    /// The host that the client named, for `X-Forwarded-Host`.
    pub host_named: Option<&'a [u8]>,
    /// How the body is framed.
    pub framing: BodyFraming,
    /// The client.
    pub forwarding: &'a Forwarding,
    /// Identity of the request.
    pub request_id: &'a [u8],
    /// The protocols the client may switch to, for an upgrade that is passed on.
    pub upgrade: Option<&'a [u8]>,
    /// Whether `Via` is added.
    pub via: bool,
    /// Whether `Forwarded` is added.
    pub forwarded: bool,
}

/// What the answer says of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It goes on, as HTTP/1.1 takes for granted.
    Open,
    /// It goes on, which an HTTP/1.0 client has to be told.
    KeepAlive,
    /// It ends.
    Close,
    /// It becomes a tunnel.
    Upgrade,
}

/// What changes in a response's head on its way.
pub struct ResponseEdit<'a> {
    /// How the body is framed for the client.
    pub framing: BodyFraming,
    /// Whether Content-Length is left out.
    pub drop_content_length: bool,
    /// What is said of the connection.
    pub persistence: Persistence,
    /// Identity of the request, for answers that do not carry one.
    pub request_id: Option<&'a [u8]>,
    /// The date, for answers that do not carry one (RFC 9110 section 6.6.1).
    pub date: Option<&'a [u8]>,
    /// Whether `Via` is added.
    pub via: bool,
}

impl ResponseEdit<'_> {
    /// What changes where the head is not that of a final answer: nothing is added but `Via`.
    pub fn unfinished(persistence: Persistence, via: bool) -> ResponseEdit<'static> {
        ResponseEdit {
            framing: BodyFraming::None,
            drop_content_length: true,
            persistence,
            request_id: None,
            date: None,
            via,
        }
    }
}
