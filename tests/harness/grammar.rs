//! A strict reader of HTTP/1.1 requests (RFC 9112), which notes every departure and goes on.

use std::io;

use super::show;

/// A field as it stood on the wire, without the white space around its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, in the case that it was sent in.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Departures from the grammar.
#[derive(Clone, Debug, Default)]
pub struct Lint {
    /// What no conformant sender writes.
    pub faults: Vec<String>,
    /// What a proxy may relay but never make.
    pub notes: Vec<String>,
}

impl Lint {
    /// Records a fault.
    pub fn fault(&mut self, text: String) {
        self.faults.push(text);
    }
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    #[default]
    None,
    /// Content-Length.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
    /// Until the connection ends; responses only.
    Close,
}

/// A request as the origin saw it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Method.
    pub method: Vec<u8>,
    /// Target, as sent.
    pub target: Vec<u8>,
    /// Version, as sent.
    pub version: Vec<u8>,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Trailer fields in order.
    pub trailers: Vec<Field>,
    /// Departures from the grammar.
    pub lint: Lint,
    /// First megabyte of the body.
    pub body: Vec<u8>,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Bytes of the head on the wire.
    pub head_bytes: usize,
    /// Whether head and body ended.
    pub complete: bool,
    /// Whether the head ended.
    pub head_complete: bool,
    /// How the body's end is found.
    pub framing: Framing,
    /// Which of the origin's connections it came on.
    pub connection: usize,
    /// Whether the script of this request ran to its end.
    pub served: bool,
}

impl Request {
    /// Values of all fields of this name.
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        values(&self.fields, name)
    }

    /// Value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).first().copied()
    }

    /// Method and target, as the origin's answers carry them in `X-Seen`.
    pub fn line(&self) -> Vec<u8> {
        let mut line = [&self.method[..], b" ", &self.target[..]].concat();
        line.truncate(200);
        line.iter_mut().filter(|byte| !matches!(byte, b' '..=b'~')).for_each(|byte| *byte = b'?');
        line
    }

    /// The path of the target, without its query.
    pub fn path(&self) -> String {
        let end = self.target.iter().position(|&byte| byte == b'?').unwrap_or(self.target.len());
        String::from_utf8_lossy(&self.target[..end]).into_owned()
    }
}

/// Values of the fields of this name.
pub fn values<'f>(fields: &'f [Field], name: &str) -> Vec<&'f [u8]> {
    let named = |field: &&Field| field.name.eq_ignore_ascii_case(name.as_bytes());
    fields.iter().filter(named).map(|field| &field.value[..]).collect()
}

/// Where lines and bytes come from.
pub trait Source {
    /// The next line with its end, which is at least a LF.
    ///
    /// # Errors
    /// The connection ended, or the line is endless.
    fn line(&mut self) -> io::Result<Vec<u8>>;

    /// At least one and at most `limit` bytes.
    ///
    /// # Errors
    /// The connection ended.
    fn some(&mut self, limit: usize) -> io::Result<Vec<u8>>;
}

impl Source for &[u8] {
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let end =
            self.iter().position(|&byte| byte == b'\n').ok_or(io::ErrorKind::UnexpectedEof)?;
        let (line, rest) = self.split_at(end + 1);
        *self = rest;
        Ok(line.to_vec())
    }

    fn some(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        if self.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (taken, rest) = self.split_at(limit.min(self.len()));
        *self = rest;
        Ok(taken.to_vec())
    }
}

/// Reads a request head. `seen` is told as soon as the request line is in, and again at the end, so
/// that half a head is on record too.
///
/// # Errors
/// The connection ended.
pub fn read_head(from: &mut dyn Source, seen: &mut dyn FnMut(&Request)) -> io::Result<Request> {
    let mut request = Request::default();
    let mut line = from.line()?;
    while line == b"\r\n" || line == b"\n" {
        request.lint.fault("empty line before the request line".into());
        line = from.line()?;
    }
    request.head_bytes = line.len();
    request_line(&line, &mut request);
    seen(&request);
    let mut lines = Vec::new();
    loop {
        let line = from.line()?;
        request.head_bytes += line.len();
        match &line[..] {
            b"\r\n" => break,
            b"\n" => {
                request.lint.fault("a bare LF ends the head".into());
                break;
            }
            _ => lines.push(line),
        }
    }
    request.fields = fields(&lines, "field", &mut request.lint);
    request_framing(&mut request);
    request.head_complete = true;
    request.complete = request.framing == Framing::None;
    seen(&request);
    Ok(request)
}

/// RFC 9112 section 3.
fn request_line(line: &[u8], request: &mut Request) {
    let lint = &mut request.lint;
    let text = match line.strip_suffix(b"\r\n") {
        Some(text) => text,
        None => {
            lint.fault("a bare LF ends the request line".into());
            &line[..line.len() - 1]
        }
    };
    let parts: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
    if parts.len() != 3 {
        lint.fault(format!("request line of {} parts: {}", parts.len(), show(text)));
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_vec();
    (request.method, request.target, request.version) = (part(0), part(1), part(2));
    if !is_token(&request.method) {
        lint.fault(format!("method is no token: {}", show(&request.method)));
    }
    let target = &request.target;
    if target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f || byte == b'#')
    {
        lint.fault(format!("target holds what no target may: {}", show(target)));
    } else if !target.is_ascii() {
        lint.notes.push(format!("target with 8-bit bytes: {}", show(target)));
    }
    if request.version != b"HTTP/1.1" && request.version != b"HTTP/1.0" {
        lint.fault(format!("version {}", show(&request.version)));
    }
}

/// RFC 9112 section 6.3, as a sender must write it.
fn request_framing(request: &mut Request) {
    let hosts = request.all("host").len();
    let mut faults = Vec::new();
    if request.version == b"HTTP/1.1" && hosts != 1 {
        faults.push(format!("{hosts} Host fields"));
    }
    let lengths = request.all("content-length");
    let codings = request.all("transfer-encoding");
    if lengths.len() > 1 || codings.len() > 1 {
        faults.push("a framing field stands there twice".into());
    }
    if !lengths.is_empty() && !codings.is_empty() {
        faults.push("Content-Length together with Transfer-Encoding".into());
    }
    let mut framing = Framing::None;
    if let Some(value) = lengths.first() {
        match decimal(value) {
            Some(length) => framing = Framing::Length(length),
            None => faults.push(format!("Content-Length is no number: {}", show(value))),
        }
    }
    if let Some(value) = codings.first() {
        framing = Framing::Chunked;
        if !value.eq_ignore_ascii_case(b"chunked") {
            faults.push(format!("Transfer-Encoding is not just chunked: {}", show(value)));
        }
        if request.version == b"HTTP/1.0" {
            faults.push("Transfer-Encoding in HTTP/1.0".into());
        }
    }
    request.framing = if framing == Framing::Length(0) { Framing::None } else { framing };
    request.lint.faults.append(&mut faults);
}

/// RFC 9112 section 5: what stands on the lines of a head or a trailer section.
pub fn fields(lines: &[Vec<u8>], place: &str, lint: &mut Lint) -> Vec<Field> {
    let mut out = Vec::new();
    for line in lines {
        let text = match line.strip_suffix(b"\r\n") {
            Some(text) => text,
            None => {
                lint.fault(format!("{place}: a bare LF ends {}", show(line)));
                &line[..line.len() - 1]
            }
        };
        if matches!(text.first(), Some(b' ' | b'\t')) {
            lint.fault(format!("{place}: folded, or white space first: {}", show(text)));
            continue;
        }
        let Some(colon) = text.iter().position(|&byte| byte == b':') else {
            lint.fault(format!("{place}: no colon: {}", show(text)));
            continue;
        };
        let (name, value) = (&text[..colon], trim(&text[colon + 1..]));
        if !is_token(name) {
            lint.fault(format!("{place}: name is no token: {}", show(name)));
        }
        if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            lint.fault(format!("{place}: NUL, CR or LF in a value: {}", show(value)));
        } else if value.iter().any(|&byte| byte != b'\t' && (byte < b' ' || byte == 0x7f)) {
            lint.notes.push(format!("{place}: control byte in a value: {}", show(value)));
        }
        out.push(Field { name: name.to_vec(), value: value.to_vec() });
    }
    out
}

/// Reads the body of a request, or the rest of it; `grown` is told of every piece. Stops early once
/// it has `until` bytes.
///
/// # Errors
/// The connection ended, or a chunk cannot be understood.
pub fn read_body(
    from: &mut dyn Source,
    request: &mut Request,
    until: u64,
    grown: &mut dyn FnMut(&Request),
) -> io::Result<()> {
    while !request.complete && request.body_bytes < until {
        match request.framing {
            Framing::Length(length) => {
                let left = length - request.body_bytes;
                let piece = from.some(usize::try_from(left).unwrap_or(usize::MAX))?;
                keep(request, &piece);
                request.complete = request.body_bytes == length;
            }
            Framing::Chunked => read_chunk(from, request)?,
            Framing::None | Framing::Close => request.complete = true,
        }
        grown(request);
    }
    Ok(())
}

/// RFC 9112 section 7.1: one chunk, or the last one and the trailer section.
fn read_chunk(from: &mut dyn Source, request: &mut Request) -> io::Result<()> {
    let line = from.line()?;
    let text = line.strip_suffix(b"\r\n").unwrap_or(&line);
    if text.len() == line.len() {
        request.lint.fault(format!("chunk-size line ends in a bare LF: {}", show(&line)));
    }
    let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
    let (size, extension) = text.split_at(end);
    if extension.iter().any(|&byte| byte != b'\t' && (byte < b' ' || byte == 0x7f)) {
        request.lint.fault(format!("control byte in a chunk extension: {}", show(extension)));
    }
    let Some(size) = hexadecimal(size) else {
        request.lint.fault(format!("chunk-size is no hexadecimal number: {}", show(&line)));
        return Err(io::ErrorKind::InvalidData.into());
    };
    if size == 0 {
        return read_trailers(from, request);
    }
    let mut left = size;
    while left > 0 {
        let piece = from.some(usize::try_from(left).unwrap_or(usize::MAX))?;
        left -= piece.len() as u64;
        keep(request, &piece);
    }
    let mut end = from.some(2)?;
    if end.len() == 1 {
        end.extend(from.some(1)?);
    }
    if end != b"\r\n" {
        request.lint.fault(format!("{} instead of CRLF after a chunk", show(&end)));
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(())
}

fn read_trailers(from: &mut dyn Source, request: &mut Request) -> io::Result<()> {
    let mut lines = Vec::new();
    loop {
        let line = from.line()?;
        if line == b"\r\n" || line == b"\n" {
            break;
        }
        lines.push(line);
    }
    request.trailers = fields(&lines, "trailer", &mut request.lint);
    request.complete = true;
    Ok(())
}

fn keep(request: &mut Request, piece: &[u8]) {
    request.body_bytes += piece.len() as u64;
    if request.body.len() < BODY_KEPT_BYTES {
        request.body.extend_from_slice(piece);
    }
}

/// RFC 9110 section 5.6.2.
pub fn is_token(bytes: &[u8]) -> bool {
    let tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(tchar)
}

/// A run of digits, and nothing else.
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// A run of hexadecimal digits, and nothing else.
pub fn hexadecimal(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
    digits.then(|| u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok()).flatten()
}

/// Without spaces and tabs at both ends.
pub fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |at| at + 1);
    &bytes[start..end]
}

/// Bytes of a body that are kept for comparison.
const BODY_KEPT_BYTES: usize = 1 << 20;
