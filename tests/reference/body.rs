//! Framing decisions and the chunked coding: RFC 9112 sections 6 and 7.

use super::{FieldLine, Input, Parse, Stop, is_field_text, is_tchar};

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Nothing,
    Bytes(u64),
    Chunks,
    RestOfConnection,
}

/// Why a message cannot be framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400, or 502 for a response.
    Doubtful,
    /// 501
    UnknownCoding,
}

/// What a response's framing fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub body: Body,
    pub reusable: bool,
}

/// Section 6.3 for requests, refusing where it leaves a choice.
pub fn of_request(minor_version: u8, fields: &[FieldLine]) -> Result<Body, Refusal> {
    let lengths = named(fields, "content-length");
    let codings = named(fields, "transfer-encoding");
    if codings.is_empty() {
        return Ok(length(&lengths)?.map_or(Body::Nothing, Body::Bytes));
    }
    if !lengths.is_empty() || minor_version == 0 {
        return Err(Refusal::Doubtful);
    }
    // Section 7: all field lines together are one list.
    let joined = codings.join(&b","[..]).to_ascii_lowercase();
    let list: Vec<&[u8]> = joined.split(|byte| *byte == b',').map(trimmed).collect();
    let chunked = list.iter().filter(|coding| **coding == b"chunked").count();
    let final_chunked = list.last().is_some_and(|coding| *coding == b"chunked");
    match (chunked, final_chunked, list.len()) {
        _ if list.iter().any(|coding| coding.is_empty()) => Err(Refusal::Doubtful),
        (1, true, 1) => Ok(Body::Chunks),
        (1, true, _) => Err(Refusal::UnknownCoding),
        _ => Err(Refusal::Doubtful),
    }
}

/// Section 6.3 for responses.
pub fn of_response(
    status: u16,
    minor_version: u8,
    fields: &[FieldLine],
    to_head: bool,
) -> Result<Answer, Refusal> {
    let length = length(&named(fields, "content-length"))?;
    let chunked = match named(fields, "transfer-encoding").as_slice() {
        [] => false,
        [coding] if coding.eq_ignore_ascii_case(b"chunked") && minor_version == 1 => true,
        _ => return Err(Refusal::Doubtful),
    };
    let forbidden = status < 200 || status == 204;
    let body = if forbidden || status == 304 || to_head {
        Body::Nothing
    } else if chunked {
        Body::Chunks
    } else {
        length.map_or(Body::RestOfConnection, Body::Bytes)
    };
    // A body may follow where none is allowed, and two framings are one too many.
    let suspicious = forbidden && (chunked || length.is_some_and(|bytes| bytes > 0));
    let doubled = chunked && length.is_some();
    let reusable = persists(minor_version, fields)
        && body != Body::RestOfConnection
        && !suspicious
        && !doubled;
    Ok(Answer { body, reusable })
}

/// Section 9.3
pub fn persists(minor_version: u8, fields: &[FieldLine]) -> bool {
    let joined = named(fields, "connection").join(&b","[..]).to_ascii_lowercase();
    let has =
        |word: &[u8]| joined.split(|byte| *byte == b',').any(|option| trimmed(option) == word);
    !has(b"close") && (minor_version == 1 || has(b"keep-alive"))
}

fn length(values: &[&[u8]]) -> Result<Option<u64>, Refusal> {
    match values {
        [] => Ok(None),
        [value] if value.iter().all(u8::is_ascii_digit) => {
            // An empty value does not parse either.
            let text = String::from_utf8_lossy(value);
            text.parse::<i64>().map(|length| Some(length as u64)).map_err(|_| Refusal::Doubtful)
        }
        _ => Err(Refusal::Doubtful),
    }
}

fn named<'a>(fields: &'a [FieldLine], name: &str) -> Vec<&'a [u8]> {
    let same = |field: &&FieldLine| field.0.to_ascii_lowercase() == name.as_bytes();
    fields.iter().filter(same).map(|field| field.1.as_slice()).collect()
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// A whole chunked body.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunked {
    pub data: Vec<u8>,
    /// Bytes up to the end of the last chunk's line.
    pub chunks_len: usize,
    pub trailers: Vec<FieldLine>,
    /// All bytes.
    pub len: usize,
}

/// chunked-body = *chunk last-chunk trailer-section CRLF, with the bounds of limits.rs.
pub fn chunked(bytes: &[u8]) -> Parse<Chunked> {
    let mut input = Input::new(bytes);
    let mut data = Vec::new();
    let mut extensions = 0;
    loop {
        let size = chunk_line(&mut input, &mut extensions)?;
        if size == 0 {
            break;
        }
        for _ in 0..size {
            data.push(input.when(|_| true)?);
        }
        input.crlf()?;
    }
    let chunks_len = input.at;
    let trailers = trailer_section(bytes, chunks_len)?;
    let mut input = Input::new(bytes);
    input.at = chunks_len;
    for _ in &trailers {
        input.field_line()?;
    }
    input.crlf()?;
    Ok(Chunked { data, chunks_len, trailers, len: input.at })
}

/// chunk-size [ chunk-ext ] CRLF; an extension is ";" and at least one byte of text.
fn chunk_line(input: &mut Input<'_>, extensions: &mut usize) -> Parse<u64> {
    let digits = input.one_or_more(|byte| byte.is_ascii_hexdigit(), 16)?;
    let size = String::from_utf8_lossy(&digits);
    let size = i64::from_str_radix(&size, 16).map_err(|_| Stop::Bad)? as u64;
    if input.peek()? == b';' {
        input.byte(b';')?;
        *extensions += 1;
        if *extensions > 4096 {
            return Err(Stop::Bad);
        }
        let mut of_this = 1;
        loop {
            if input.peek()? == b'\r' && of_this > 1 {
                break;
            }
            input.when(is_field_text)?;
            of_this += 1;
            *extensions += 1;
            if of_this > 256 || *extensions > 4096 {
                return Err(Stop::Bad);
            }
        }
    }
    input.crlf()?;
    Ok(size)
}

/// trailer-section = *( field-line CRLF ): at most 64 fields and 8 KiB, the empty line included.
fn trailer_section(bytes: &[u8], start: usize) -> Parse<Vec<FieldLine>> {
    let section = &bytes[start..];
    let bound = section.len().min(8 * 1024);
    let mut input = Input::new(&section[..bound]);
    let mut trailers = Vec::new();
    let parsed = loop {
        match input.peek() {
            Ok(b'\r') => break input.crlf(),
            Ok(byte) if is_tchar(byte) && trailers.len() < 64 => match input.field_line() {
                Ok(field) => trailers.push(field),
                Err(stop) => break Err(stop),
            },
            Ok(_) => break Err(Stop::Bad),
            Err(stop) => break Err(stop),
        }
    };
    match parsed {
        // The byte above the bound is what proves it.
        Err(Stop::More) if section.len() > bound => Err(Stop::Bad),
        parsed => parsed.map(|()| trailers),
    }
}
