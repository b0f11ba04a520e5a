//! A slow second opinion on everything that `http1` and `http::uri` decide.
//!
//! Written from the ABNF of RFC 9112, RFC 9110 and RFC 3986 as plain recursive descent, without a
//! look at the code under test and sharing nothing with it. Used by tests and by fuzz/.

#![allow(dead_code, reason = "every crate that includes this uses a part of it")]

pub mod body;
pub mod proxy_protocol;
pub mod routes;
pub mod uri;

/// Why a parse ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything so far may still become a message.
    More,
    /// It cannot become one, whatever follows.
    Bad,
}

/// What a rule yields.
pub type Parse<T> = Result<T, Stop>;

/// Name and value of a field line.
pub type FieldLine = (Vec<u8>, Vec<u8>);

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub head_bytes: usize,
    pub fields: usize,
    pub target_bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes of empty lines before the request line.
    pub skipped: usize,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub minor_version: u8,
    pub fields: Vec<FieldLine>,
    /// Bytes from the method to the end of the empty line.
    pub len: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub reason: Vec<u8>,
    pub minor_version: u8,
    pub fields: Vec<FieldLine>,
    pub len: usize,
}

/// HTTP-message = start-line CRLF *( field-line CRLF ) CRLF, with a request-line.
pub fn request(bytes: &[u8], bounds: Bounds) -> Parse<Request> {
    let mut input = Input::new(bytes);
    let mut lines = 0;
    while input.peek()? == b'\r' {
        lines += 1;
        if lines > 4 {
            return Err(Stop::Bad);
        }
        input.crlf()?;
    }
    let skipped = input.at;
    bounded(&bytes[skipped..], bounds, |input| {
        let method = input.one_or_more(is_tchar, 32)?;
        input.byte(b' ')?;
        let target =
            input.one_or_more(|byte| (0x21..=0x7e).contains(&byte), bounds.target_bytes)?;
        input.byte(b' ')?;
        let version = input.version()?;
        input.byte(b'\r')?;
        let minor_version = known(version)?;
        input.byte(b'\n')?;
        let fields = input.field_lines(bounds.fields)?;
        Ok(Request { skipped, method, target, minor_version, fields, len: input.at })
    })
}

/// The same with a status-line, whose last space may be absent.
pub fn response(bytes: &[u8], bounds: Bounds) -> Parse<Response> {
    bounded(bytes, bounds, |input| {
        let version = input.version()?;
        input.byte(b' ')?;
        let minor_version = known(version)?;
        let mut status = 0;
        for place in 0..3 {
            let digit = input.when(|byte| byte.is_ascii_digit())?;
            if place == 0 && digit == b'0' {
                return Err(Stop::Bad);
            }
            status = status * 10 + u16::from(digit - b'0');
        }
        let mut reason = Vec::new();
        if input.peek()? == b' ' {
            input.byte(b' ')?;
            reason = input.zero_or_more(is_field_text)?;
        }
        input.crlf()?;
        let fields = input.field_lines(bounds.fields)?;
        Ok(Response { status, reason, minor_version, fields, len: input.at })
    })
}

/// A head that does not end within the bound is as bad as one that ends above it.
fn bounded<T>(
    bytes: &[u8],
    bounds: Bounds,
    parse: impl Fn(&mut Input<'_>) -> Parse<T>,
) -> Parse<T> {
    let within = &bytes[..bytes.len().min(bounds.head_bytes)];
    match parse(&mut Input::new(within)) {
        Err(Stop::More) if bytes.len() >= bounds.head_bytes => Err(Stop::Bad),
        parsed => parsed,
    }
}

/// Only HTTP/1.0 and HTTP/1.1 are served.
fn known(version: (u8, u8)) -> Parse<u8> {
    match version {
        (b'1', b'0') => Ok(0),
        (b'1', b'1') => Ok(1),
        _ => Err(Stop::Bad),
    }
}

/// Bytes and how far a rule has come.
pub struct Input<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, at: 0 }
    }

    pub fn peek(&self) -> Parse<u8> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    pub fn when(&mut self, rule: impl Fn(u8) -> bool) -> Parse<u8> {
        let byte = self.peek()?;
        if !rule(byte) {
            return Err(Stop::Bad);
        }
        self.at += 1;
        Ok(byte)
    }

    pub fn byte(&mut self, expected: u8) -> Parse<u8> {
        self.when(|byte| byte == expected)
    }

    pub fn crlf(&mut self) -> Parse<()> {
        self.byte(b'\r')?;
        self.byte(b'\n')?;
        Ok(())
    }

    pub fn zero_or_more(&mut self, rule: impl Fn(u8) -> bool) -> Parse<Vec<u8>> {
        let mut taken = Vec::new();
        while rule(self.peek()?) {
            taken.push(self.when(&rule)?);
        }
        Ok(taken)
    }

    /// 1*rule, at most `max` of them.
    pub fn one_or_more(&mut self, rule: impl Fn(u8) -> bool, max: usize) -> Parse<Vec<u8>> {
        let mut taken = vec![self.when(&rule)?];
        while rule(self.peek()?) {
            if taken.len() == max {
                return Err(Stop::Bad);
            }
            taken.push(self.when(&rule)?);
        }
        Ok(taken)
    }

    /// HTTP-version = "HTTP" "/" DIGIT "." DIGIT
    fn version(&mut self) -> Parse<(u8, u8)> {
        for letter in *b"HTTP/" {
            self.byte(letter)?;
        }
        let major = self.when(|byte| byte.is_ascii_digit())?;
        self.byte(b'.')?;
        let minor = self.when(|byte| byte.is_ascii_digit())?;
        Ok((major, minor))
    }

    /// *( field-line CRLF ) CRLF
    fn field_lines(&mut self, max: usize) -> Parse<Vec<FieldLine>> {
        let mut fields = Vec::new();
        while self.peek()? != b'\r' {
            if !is_tchar(self.peek()?) || fields.len() == max {
                return Err(Stop::Bad);
            }
            fields.push(self.field_line()?);
        }
        self.crlf()?;
        Ok(fields)
    }

    /// field-line = field-name ":" OWS field-value OWS, and its CRLF
    pub fn field_line(&mut self) -> Parse<FieldLine> {
        let name = self.one_or_more(is_tchar, usize::MAX)?;
        self.byte(b':')?;
        let value = self.zero_or_more(is_field_text)?;
        self.crlf()?;
        Ok((name, without_ows(&value)))
    }
}

/// tchar, as RFC 9110 section 5.6.2 lists it.
pub fn is_tchar(byte: u8) -> bool {
    let listed =
        [b'!', b'#', b'$', b'%', b'&', b'\'', b'*', b'+', b'-', b'.', b'^', b'_', b'`', b'|', b'~'];
    listed.contains(&byte) || byte.is_ascii_digit() || byte.is_ascii_alphabetic()
}

/// field-vchar / SP / HTAB, field-vchar = VCHAR / obs-text
pub fn is_field_text(byte: u8) -> bool {
    byte == 0x09 || byte == 0x20 || (0x21..=0x7e).contains(&byte) || byte >= 0x80
}

fn without_ows(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    while value.last().is_some_and(|byte| *byte == b' ' || *byte == b'\t') {
        value.pop();
    }
    while value.first().is_some_and(|byte| *byte == b' ' || *byte == b'\t') {
        value.remove(0);
    }
    value
}
