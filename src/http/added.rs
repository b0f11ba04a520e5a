//! Field lines that were added to a head after it was parsed.

use super::head::Span;

/// Added lines, in the form in which they are sent. Its memory is reused.
#[derive(Debug, Default)]
pub struct Added {
    bytes: Vec<u8>,
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    name: Span,
    value: Span,
}

impl Added {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// All lines, each with its CRLF.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (line.name.of(&self.bytes), line.value.of(&self.bytes)))
    }

    /// Values under a name, in any case.
    pub fn values<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let same = move |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name);
        self.iter().filter(same).map(|(_, value)| value)
    }

    /// Adds a line whose value `write` appends. Bytes that no value may have and white space round it
    /// (RFC 9110 section 5.5) are left out.
    pub fn push_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let in_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
        debug_assert!(!name.is_empty() && name.iter().all(in_name), "checked when configured");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let name = Span::new(start, self.bytes.len());
        self.bytes.extend_from_slice(b": ");
        let start = self.bytes.len();
        write(&mut self.bytes);
        if self.bytes[start..].iter().any(|byte| is_forbidden(*byte)) {
            let kept = self.bytes.split_off(start);
            self.bytes.extend(kept.into_iter().filter(|byte| !is_forbidden(*byte)));
        }
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let behind = self.bytes[start..].iter().rev().take_while(blank).count();
        self.bytes.truncate(self.bytes.len() - behind);
        let before = self.bytes[start..].iter().take_while(blank).count();
        self.bytes.drain(start..start + before);
        let value = Span::new(start, self.bytes.len());
        self.bytes.extend_from_slice(b"\r\n");
        self.lines.push(Line { name, value });
    }

    /// The same, unless nothing is left of the value.
    pub fn push_unless_empty(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.push_with(name, write);
        if self.lines.last().is_some_and(|line| line.value.is_empty()) {
            self.lines.pop();
            self.bytes.truncate(start);
        }
    }

    /// Adds a line.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_with(name, |bytes| bytes.extend_from_slice(value));
    }

    /// Removes the lines with a name, in any case. Whether there were some.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Added { bytes, lines } = self;
        let before = lines.len();
        let (mut end, mut start) = (0, 0);
        lines.retain_mut(|line| {
            let length = line.value.end as usize + 2 - start;
            let kept = !line.name.of(bytes).eq_ignore_ascii_case(name);
            if kept {
                bytes.copy_within(start..start + length, end);
                let back = |span: Span| {
                    Span::new(span.start as usize + end - start, span.end as usize + end - start)
                };
                *line = Line { name: back(line.name), value: back(line.value) };
                end += length;
            }
            start += length;
            kept
        });
        bytes.truncate(end);
        lines.len() < before
    }

    /// Bytes of memory behind it.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.lines.capacity() * size_of::<Line>()
    }

    /// Forgets all; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
    }
}

/// RFC 9110 section 5.5: controls but for the tab cannot stand in a value.
fn is_forbidden(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_removed_and_never_broken() {
        let mut added = Added::default();
        added.push(b"X-One", b"1");
        added.push(b"x-two", b"a\r\nEvil: yes\0\x7f");
        added.push(b"x-one", b"2");
        assert_eq!(added.bytes(), b"X-One: 1\r\nx-two: aEvil: yes\r\nx-one: 2\r\n");
        assert_eq!(added.values(b"X-ONE").collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(added.remove(b"X-one") && !added.remove(b"x-one"));
        assert_eq!((added.bytes(), added.len()), (b"x-two: aEvil: yes\r\n".as_slice(), 1));
        added.push(b"x-three", b"3");
        added.push_unless_empty(b"x-four", |bytes| bytes.extend_from_slice(b"\r\n"));
        added.push_unless_empty(b"x-four", |bytes| bytes.extend_from_slice(b" \0\t "));
        assert!(added.remove(b"x-two"));
        assert_eq!(added.iter().collect::<Vec<_>>(), [(&b"x-three"[..], &b"3"[..])]);
        added.push(b"x-five", b"\t a b \x01 ");
        assert_eq!(added.bytes(), b"x-three: 3\r\nx-five: a b\r\n");
        assert_eq!(added.values(b"x-five").collect::<Vec<_>>(), [b"a b"]);
    }
}
