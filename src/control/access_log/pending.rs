//! A chunk on its way out, and which of its records are lost where it does not get there whole.

use std::io;

use crate::observe::access_log::Chunk;

/// A chunk of which some may be out.
#[derive(Debug)]
pub struct Pending {
    /// The lines.
    pub chunk: Chunk,
    /// Whose it is.
    pub worker: usize,
    /// How many bytes are behind us.
    at: usize,
    /// Records that were passed over and are counted already.
    skipped: u64,
}

impl Pending {
    /// Nothing of it is out.
    pub fn new(chunk: Chunk, worker: usize) -> Pending {
        Pending { chunk, worker, at: 0, skipped: 0 }
    }

    /// Writes until all is out. A line that another chunk left unfinished (`torn`) is ended first.
    ///
    /// # Errors
    /// That of `write`; it can be called again.
    pub fn advance(
        &mut self,
        torn: &mut bool,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut out = |bytes: &[u8]| match write(bytes)? {
            0 => Err(io::Error::from(io::ErrorKind::WriteZero)),
            written => Ok(written),
        };
        if *torn {
            out(b"\n")?;
            *torn = false;
        }
        while self.at < self.chunk.bytes.len() {
            self.at += out(&self.chunk.bytes[self.at..])?;
        }
        Ok(())
    }

    /// Bytes of it that are out, or passed over.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether what is out of it ends inside a line.
    pub fn is_torn(&self) -> bool {
        self.at > 0 && self.chunk.bytes[self.at - 1] != b'\n'
    }

    /// Passes over the rest of a line that was begun: how many records are lost by that.
    pub fn skip_line(&mut self) -> u64 {
        if !self.is_torn() {
            return 0;
        }
        let rest = &self.chunk.bytes[self.at..];
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        // Where only the line's end is missing its text is out.
        let lost = u64::from(end > 1);
        self.at += end;
        self.skipped += lost;
        lost
    }

    /// Records that are out, and those that are not, but for those that were passed over.
    pub fn count(&self) -> (u64, u64) {
        let rest = &self.chunk.bytes[self.at..];
        let ends = memchr::memchr_iter(b'\n', rest).count() as u64;
        let whole = self.is_torn() && rest.first() == Some(&b'\n');
        let lost = ends - u64::from(whole);
        debug_assert!(lost + self.skipped <= self.chunk.records, "a record is a line");
        (self.chunk.records - self.skipped - lost, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"first\nsecond\nthird\n";

    fn chunk() -> Pending {
        Pending::new(Chunk { bytes: TEXT.to_vec(), records: 3 }, 0)
    }

    /// Takes `room` bytes, at most `piece` at once, then fails.
    fn target(
        room: usize,
        piece: usize,
        out: &mut Vec<u8>,
    ) -> impl FnMut(&[u8]) -> io::Result<usize> {
        move |bytes| {
            let length = bytes.len().min(piece).min(room - out.len());
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            out.extend_from_slice(&bytes[..length]);
            Ok(length)
        }
    }

    #[test]
    fn short_writes_lose_nothing() {
        for piece in 1..=TEXT.len() {
            let (mut pending, mut out, mut torn) = (chunk(), Vec::new(), false);
            let done = pending.advance(&mut torn, target(100, piece, &mut out));
            assert!(done.is_ok() && !torn && !pending.is_torn());
            assert_eq!(out, TEXT);
            assert_eq!(pending.count(), (3, 0));
        }
    }

    #[test]
    fn wherever_it_breaks_off_every_record_is_counted_and_the_next_begins_a_line() {
        for room in 0..TEXT.len() {
            let (mut pending, mut out, mut torn) = (chunk(), Vec::new(), false);
            assert!(pending.advance(&mut torn, target(room, 4, &mut out)).is_err());
            torn |= pending.is_torn();
            let (written, dropped) = pending.count();
            assert_eq!(written + dropped, 3);
            let mut next = chunk();
            assert!(next.advance(&mut torn, target(100, 4, &mut out)).is_ok());
            assert_eq!(next.count(), (3, 0));
            let whole = [b"first\n", &b"second\n"[..], b"third\n"];
            let lines: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
            let found = lines.iter().filter(|line| whole.contains(line)).count() as u64;
            assert_eq!(found, written + 3, "{room}");
            assert!(out.ends_with(TEXT));
            assert!(lines.len() as u64 - found <= 1, "one torn line at most");
        }
    }

    #[test]
    fn a_target_that_takes_nothing_is_an_error() {
        let (mut pending, mut torn) = (chunk(), true);
        let done = pending.advance(&mut torn, |_| Ok(0));
        assert_eq!(done.map_err(|error| error.kind()), Err(io::ErrorKind::WriteZero));
        assert!(torn, "the line's end is still owed");
        assert_eq!(pending.count(), (0, 3));
    }

    #[test]
    fn another_target_begins_with_a_whole_line() {
        for (room, lost, rest) in [
            (0, 0, &b"first\nsecond\nthird\n"[..]),
            (2, 1, b"second\nthird\n"),
            (5, 0, b"second\nthird\n"),
            (6, 0, b"second\nthird\n"),
            (18, 0, b""),
        ] {
            let (mut pending, mut old, mut new, mut torn) = (chunk(), vec![], vec![], false);
            assert!(pending.advance(&mut torn, target(room, 100, &mut old)).is_err());
            assert_eq!(pending.skip_line(), lost, "{room}");
            assert!(pending.advance(&mut torn, target(100, 100, &mut new)).is_ok());
            assert_eq!(new, rest);
            assert_eq!(pending.count(), (3 - lost, 0));
        }
    }
}
