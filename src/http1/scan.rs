//! The grammar of a head, byte by byte (RFC 9112 sections 3 to 5, no leniency).
//!
//! This is the authority on errors: which one, and at which byte. Heads that arrive whole never
//! come here; those in pieces are looked at once, however small the pieces are.

use crate::error::ErrorKind;
use crate::http::HeadLimits;
use crate::limits::{HEADERS_MAX, METHOD_BYTES_MAX};

/// Where a scan stands. Errors name kinds of requests; a response's parser translates them.
#[derive(Debug)]
pub(super) struct Scan {
    /// Bytes looked at.
    at: usize,
    state: State,
    of: Message,
    /// Bytes of the method, target, version or status code so far.
    token: usize,
    /// The two digits of the version.
    version: [u8; 2],
    fields: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Request,
    Response,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Method,
    Target,
    Version,
    Code,
    Reason,
    LineFeed,
    FieldStart,
    Name,
    Value,
    LastLineFeed,
    Done,
}

impl Scan {
    pub(super) fn new(of: Message) -> Scan {
        let state = match of {
            Message::Request => State::Method,
            Message::Response => State::Version,
        };
        Scan { at: 0, state, of, token: 0, version: [0; 2], fields: 0 }
    }

    /// Whether no byte was looked at yet.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.at == 0
    }

    /// Looks at the bytes behind those of the last call; `bytes` begins with the head. True at the
    /// head's end. The error is that of the first byte that proves one, so that it does not depend
    /// on how the bytes came in.
    pub(super) fn advance(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<bool, ErrorKind> {
        let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
        while self.state != State::Done && self.at < window.len() {
            if self.state == State::Value {
                let rest = &window[self.at..];
                self.at += rest.iter().position(|byte| !is_text(*byte)).unwrap_or(rest.len());
            }
            let Some(byte) = window.get(self.at) else { break };
            self.state = self.next(*byte, limits)?;
            self.at += 1;
        }
        if self.state == State::Done {
            return Ok(true);
        }
        // At the bound without an end is as good as above it.
        if bytes.len() >= limits.head_bytes_max { Err(ErrorKind::HeadTooLarge) } else { Ok(false) }
    }

    fn next(&mut self, byte: u8, limits: &HeadLimits) -> Result<State, ErrorKind> {
        match (self.state, byte) {
            (State::Method | State::Target | State::Version | State::Code, _) => {
                self.next_in_start_line(byte, limits)
            }
            // RFC 9112 section 4: reason-phrase = 1*( HTAB / SP / VCHAR / obs-text )
            (State::Reason, byte) if is_text(byte) => Ok(State::Reason),
            (State::Reason | State::Value, b'\r') => Ok(State::LineFeed),
            // RFC 9112 section 2.2: a bare LF may be taken for a line end, a bare CR never. What
            // one server takes and another does not is how requests are smuggled: both refused.
            (State::LineFeed, b'\n') => Ok(State::FieldStart),
            (State::FieldStart, b'\r') => Ok(State::LastLineFeed),
            (State::LastLineFeed, b'\n') => Ok(State::Done),
            // White space here would be a line folding (RFC 9112 section 5.2) or stand before the
            // first field (section 2.2): neither is a token.
            (State::FieldStart, byte) if is_token(byte) => {
                self.fields += 1;
                match self.fields > limits.headers_max.min(HEADERS_MAX) {
                    true => Err(ErrorKind::HeadTooLarge),
                    false => Ok(State::Name),
                }
            }
            (State::Name, byte) if is_token(byte) => Ok(State::Name),
            // RFC 9112 section 5.1: no white space between name and colon.
            (State::Name, b':') => Ok(State::Value),
            (State::Value, byte) if is_text(byte) => Ok(State::Value),
            _ => Err(ErrorKind::HeadMalformed),
        }
    }

    fn next_in_start_line(&mut self, byte: u8, limits: &HeadLimits) -> Result<State, ErrorKind> {
        let token = self.token;
        self.token += 1;
        match (self.state, byte) {
            (State::Method, b' ') if token > 0 => Ok(self.begin(State::Target)),
            (State::Method, byte) if is_token(byte) => match token < METHOD_BYTES_MAX {
                true => Ok(State::Method),
                false => Err(ErrorKind::MethodRefused),
            },
            (State::Target, b' ') if token > 0 => Ok(self.begin(State::Version)),
            (State::Target, b'!'..=b'~') => match token < limits.uri_bytes_max {
                true => Ok(State::Target),
                false => Err(ErrorKind::UriTooLong),
            },
            (State::Target, 0x80..) => Err(ErrorKind::TargetInvalid),
            // RFC 9112 section 2.3: HTTP-version = "HTTP/" DIGIT "." DIGIT, in this case only.
            (State::Version, byte) if token < 5 && byte == b"HTTP/"[token] => Ok(State::Version),
            (State::Version, b'0'..=b'9') if token == 5 || token == 7 => {
                self.version[usize::from(token == 7)] = byte;
                Ok(State::Version)
            }
            (State::Version, b'.') if token == 6 => Ok(State::Version),
            (State::Version, b'\r') if token == 8 && self.of == Message::Request => {
                self.version_known().map(|()| State::LineFeed)
            }
            (State::Version, b' ') if token == 8 && self.of == Message::Response => {
                self.version_known().map(|()| self.begin(State::Code))
            }
            // RFC 9110 section 15: three digits, of which none begins with a zero.
            (State::Code, b'1'..=b'9') if token == 0 => Ok(State::Code),
            (State::Code, b'0'..=b'9') if token == 1 || token == 2 => Ok(State::Code),
            (State::Code, b' ') if token == 3 => Ok(State::Reason),
            // RFC 9112 section 4 wants the space even without a reason; many servers leave it out.
            (State::Code, b'\r') if token == 3 => Ok(State::LineFeed),
            _ => Err(ErrorKind::HeadMalformed),
        }
    }

    fn begin(&mut self, state: State) -> State {
        self.token = 0;
        state
    }

    fn version_known(&self) -> Result<(), ErrorKind> {
        match &self.version {
            b"10" | b"11" => Ok(()),
            _ => Err(ErrorKind::VersionUnsupported),
        }
    }
}

/// RFC 9110 section 5.6.2: tchar.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What may stand in a field value (RFC 9110 section 5.5): HTAB, SP, VCHAR, obs-text.
pub(super) fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}
