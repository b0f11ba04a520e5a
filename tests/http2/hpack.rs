//! Header blocks, RFC 7541: a writer of single representations, right or wrong, and a strict reader.

use std::collections::VecDeque;

use super::frame::TABLE_BYTES_DEFAULT;
use super::huffman;

/// A field as it came.
pub type Field = (Vec<u8>, Vec<u8>);

/// Writes a number behind the bits of a first byte, section 5.1.
pub fn put_number(out: &mut Vec<u8>, bits: u8, prefix: u32, number: usize) {
    let full = (1_usize << prefix) - 1;
    let byte = |value: usize| u8::try_from(value & 0xff).expect("eight bits");
    if number < full {
        return out.push(bits | byte(number));
    }
    out.push(bits | byte(full));
    let mut rest = number - full;
    while rest >= 128 {
        out.push(byte(rest % 128 + 128));
        rest /= 128;
    }
    out.push(byte(rest));
}

/// Writes a string, section 5.2.
pub fn put_text(out: &mut Vec<u8>, text: &[u8], coded: bool) {
    let code = if coded { huffman::encode(text) } else { text.to_vec() };
    put_number(out, if coded { 0x80 } else { 0 }, 7, code.len());
    out.extend_from_slice(&code);
}

/// How a literal is written, section 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// Without indexing.
    Plain,
    /// With incremental indexing.
    Indexed,
    /// Never indexed.
    Never,
    /// Without indexing, in the Huffman code.
    Coded,
}

/// Writes a literal with its name.
pub fn put_literal(out: &mut Vec<u8>, how: Literal, name: &[u8], value: &[u8]) {
    out.push(match how {
        Literal::Plain | Literal::Coded => 0,
        Literal::Indexed => 0x40,
        Literal::Never => 0x10,
    });
    put_text(out, name, how == Literal::Coded);
    put_text(out, value, how == Literal::Coded);
}

/// A block of plain literals.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        put_literal(&mut out, Literal::Plain, name.as_bytes(), value.as_bytes());
    }
    out
}

/// The reader's side of a connection's compression.
#[derive(Debug)]
pub struct Decoder {
    table: VecDeque<Field>,
    bytes: usize,
    /// What the writer may use.
    limit: usize,
    /// What it does use.
    size: usize,
    /// The lowest limit that was acknowledged since the last block: an update must come below it.
    owed: Option<usize>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        let size = TABLE_BYTES_DEFAULT;
        Decoder { table: VecDeque::new(), bytes: 0, limit: size, size, owed: None }
    }
}

impl Decoder {
    /// The other side acknowledged another SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if limit < self.size {
            self.owed = Some(self.owed.unwrap_or(limit).min(limit));
        }
    }

    /// Reads a whole block.
    pub fn read(&mut self, block: &[u8]) -> Result<Vec<Field>, String> {
        let (mut input, mut fields) = (Input(block), Vec::new());
        while let Some(&first) = input.0.first() {
            if first & 0xe0 == 0x20 {
                if !fields.is_empty() {
                    return Err("a change of the table size behind a field, section 4.2".into());
                }
                let size = input.number(5)?;
                if size > self.limit {
                    return Err(format!("a table of {size} where {} are allowed", self.limit));
                }
                if self.owed.is_some_and(|owed| size <= owed) {
                    self.owed = None;
                }
                self.size = size;
                self.evict(0);
                continue;
            }
            if let Some(owed) = self.owed {
                return Err(format!("no change to the table size {owed} that was acknowledged"));
            }
            fields.push(self.field(first, &mut input)?);
        }
        Ok(fields)
    }

    fn field(&mut self, first: u8, input: &mut Input<'_>) -> Result<Field, String> {
        if first & 0x80 != 0 {
            let index = input.number(7)?;
            return self.entry(index);
        }
        let indexed = first & 0x40 != 0;
        let index = input.number(if indexed { 6 } else { 4 })?;
        let name = if index == 0 { input.text()? } else { self.entry(index)?.0 };
        let field = (name, input.text()?);
        if indexed {
            let room = field.0.len() + field.1.len() + 32;
            self.evict(room);
            if room <= self.size {
                self.bytes += room;
                self.table.push_front(field.clone());
            }
        }
        Ok(field)
    }

    fn entry(&self, index: usize) -> Result<Field, String> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|at| STATIC.get(at)) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        let at = index.checked_sub(STATIC.len() + 1);
        let entry = at.and_then(|at| self.table.get(at)).cloned();
        entry.ok_or_else(|| format!("index {index} names nothing"))
    }

    /// Makes room for an entry, section 4.4.
    fn evict(&mut self, room: usize) {
        while self.bytes + room > self.size {
            let Some((name, value)) = self.table.pop_back() else { break };
            self.bytes -= name.len() + value.len() + 32;
        }
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.0.split_first().ok_or("a block that ends inside a field")?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self, prefix: u32) -> Result<usize, String> {
        let full = (1_usize << prefix) - 1;
        let mut number = usize::from(self.byte()?) & full;
        if number < full {
            return Ok(number);
        }
        for shift in (0..28).step_by(7) {
            let byte = usize::from(self.byte()?);
            number += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number without end".into())
    }

    fn text(&mut self) -> Result<Vec<u8>, String> {
        let coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.number(7)?;
        let bytes = self.0.get(..length).ok_or("a string that ends behind its block")?;
        self.0 = &self.0[length..];
        if coded { Ok(huffman::decode(bytes)?) } else { Ok(bytes.to_vec()) }
    }
}

/// The static table, appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// RFC 7541 appendix C.1.
#[test]
fn numbers_are_those_of_the_examples() {
    for (prefix, number, bytes) in [(5, 10, &[10][..]), (5, 1337, &[31, 154, 10]), (8, 42, &[42])] {
        let mut out = Vec::new();
        put_number(&mut out, 0, prefix, number);
        assert_eq!(out, bytes);
        assert_eq!(Input(&out).number(prefix), Ok(number));
    }
}

/// RFC 7541 appendix C.4: three requests in the Huffman code and the dynamic table.
#[test]
fn blocks_are_read_with_their_table() {
    let mut decoder = Decoder::default();
    let first = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
    let second = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
    assert_eq!(decoder.read(first).expect("a block").len(), 4);
    let fields = decoder.read(second).expect("a block");
    assert_eq!(fields[3], (b":authority".to_vec(), b"www.example.com".to_vec()));
    assert_eq!(fields[4], (b"cache-control".to_vec(), b"no-cache".to_vec()));
}

/// RFC 7541 sections 4.2, 6.1 and 6.3.
#[test]
fn wrong_blocks_are_told() {
    for wrong in [&b"\x80"[..], b"\xc6", b"\x82\x20", b"\x3f\xff\x1f", b"\x40\x05abc", b"\x82\xff"]
    {
        assert!(Decoder::default().read(wrong).is_err(), "{wrong:?}");
    }
    let mut decoder = Decoder::default();
    decoder.set_limit(0);
    assert!(decoder.read(b"\x82").is_err(), "a smaller table that nobody confirmed");
    assert!(decoder.read(b"\x20\x82").is_ok());
}
