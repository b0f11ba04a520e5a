//! The copy of a request's body that is kept while it is sent, so that another try can begin anew.

use http::HeaderMap;

use crate::base::buffer::Buf;

/// What was read of a body, from behind the bytes that came with the head, as it was read.
#[derive(Debug, Default)]
pub struct Kept {
    data: Vec<u8>,
    bytes_max: usize,
    /// It grew over its bound and is gone.
    lost: bool,
    /// How far this try has read it.
    at: usize,
    /// Whether the end of a stream came behind it.
    pub ended: bool,
    /// What ended the stream, if trailers did.
    pub trailers: Option<HeaderMap>,
}

impl Kept {
    /// Keeps up to so many bytes.
    pub fn new(bytes_max: usize) -> Box<Kept> {
        Box::new(Kept { bytes_max, ..Kept::default() })
    }

    /// Keeps what was just read. `over`: the try is over and what came in its last read must not get
    /// lost, whatever the bound.
    pub fn push(&mut self, bytes: &[u8], over: bool) {
        if self.lost {
            return;
        }
        if self.data.len() + bytes.len() > self.bytes_max && !over {
            *self = Kept { lost: true, ..Kept::default() };
            return;
        }
        self.data.extend_from_slice(bytes);
        self.at = self.data.len();
    }

    /// Forgets the last bytes, which belong to the next request.
    pub fn cut(&mut self, bytes: usize) {
        self.data.truncate(self.data.len().saturating_sub(bytes));
        self.at = self.data.len();
    }

    /// Whether everything that was read is there.
    pub fn is_whole(&self) -> bool {
        !self.lost
    }

    /// The next try begins.
    pub fn rewind(&mut self) {
        self.at = 0;
    }

    /// The next bytes that this try has not read, as many as fit a buffer.
    pub fn replay(&mut self, out: &mut Buf) -> bool {
        let left = &self.data[self.at..];
        let count = left.len().min(out.spare());
        out.extend(&left[..count]);
        self.at += count;
        count > 0
    }

    /// All bytes that this try has not read.
    pub fn rest(&mut self) -> &[u8] {
        let rest = &self.data[self.at..];
        self.at = self.data.len();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_from_its_beginning_and_goes_on_where_it_ends() {
        let mut kept = Kept::new(8);
        let mut out = Buf::for_head();
        kept.push(b"abcdef", false);
        kept.cut(1);
        assert!(!kept.replay(&mut out), "what was just read is not read twice");
        kept.rewind();
        assert!(kept.replay(&mut out) && out.filled() == b"abcde");
        kept.push(b"fgh", false);
        assert!(kept.is_whole() && kept.rest().is_empty());
        kept.rewind();
        assert_eq!(kept.rest(), b"abcdefgh");
        kept.push(b"i", true);
        assert!(kept.is_whole(), "a try that is over loses nothing");
        kept.push(b"j", false);
        assert!(!kept.is_whole(), "a byte too many");
        kept.rewind();
        assert!(kept.rest().is_empty());
    }
}
