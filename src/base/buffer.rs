//! Pooled byte buffers.
//!
//! A [`Buf`] is a queue of bytes with a fixed capacity: reads append at its end, writes consume
//! from its front. Dropping one gives it back to the pool of its core.

use std::cell::RefCell;

use super::memory;
use crate::limits::{
    BODY_BUFFER_BYTES, BODY_BUFFERS_KEPT, BODY_BUFFERS_USED_MAX, HEAD_BUFFER_BYTES,
    HEAD_BUFFERS_KEPT,
};

/// A byte queue from the pool of this core.
#[derive(Default)]
pub struct Buf {
    bytes: Vec<u8>,
    start: usize,
    /// Whether it counts among the body buffers in use, whatever it has grown to.
    counted: bool,
}

impl Buf {
    /// A buffer of [`HEAD_BUFFER_BYTES`].
    pub fn for_head() -> Buf {
        Buf::take(|pool| &mut pool.head, HEAD_BUFFER_BYTES)
    }

    /// A buffer of [`BODY_BUFFER_BYTES`], or a smaller one while [`BODY_BUFFERS_USED_MAX`] are in use.
    pub fn for_body() -> Buf {
        let used = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            pool.bodies_used += 1;
            pool.bodies_used
        });
        if used.is_ok_and(|used| used > BODY_BUFFERS_USED_MAX) {
            let _ = POOL.try_with(|pool| pool.borrow_mut().bodies_used -= 1);
            return Buf::for_head();
        }
        let mut buf = Buf::take(|pool| &mut pool.body, BODY_BUFFER_BYTES);
        buf.counted = used.is_ok();
        buf
    }

    /// Body buffers of this core that are in use.
    pub fn bodies_in_use() -> usize {
        POOL.try_with(|pool| pool.borrow().bodies_used).unwrap_or(0)
    }

    /// A buffer outside the pool.
    pub fn with_capacity(bytes: usize) -> Buf {
        Buf { bytes: Vec::with_capacity(bytes), ..Buf::empty() }
    }

    /// A buffer that holds nothing and owns no memory.
    pub const fn empty() -> Buf {
        Buf { bytes: Vec::new(), start: 0, counted: false }
    }

    /// What is queued.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// What is queued, to be changed in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Bytes queued.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that can be appended without growing.
    #[inline]
    pub fn spare(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Bytes of memory behind it.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Drops `count` bytes from the front. Their room stays, for [`Buf::prepend`].
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "no more than what is queued");
        self.start += count;
    }

    /// Drops everything but the first `count` bytes.
    pub fn truncate(&mut self, count: usize) {
        self.bytes.truncate(self.start + count);
    }

    /// Drops everything.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }

    /// Appends, growing where it must.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Moves what is queued to the front of the memory.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Makes room for `bytes` more, moving and growing as needed.
    pub fn reserve(&mut self, bytes: usize) {
        if self.spare() < bytes {
            self.compact();
            self.bytes.reserve(bytes);
        }
    }

    /// Leaves `bytes` free in front of what will be appended, for [`Buf::prepend`].
    ///
    /// # Panics
    /// Something is queued already.
    pub fn leave_room(&mut self, bytes: usize) {
        assert!(self.bytes.is_empty(), "room is left before anything is queued");
        self.bytes.resize(bytes, 0);
        self.start = bytes;
    }

    /// Puts bytes in front of what is queued, where there is room for them.
    #[must_use]
    pub fn prepend(&mut self, bytes: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(bytes.len()) else { return false };
        self.bytes[start..self.start].copy_from_slice(bytes);
        self.start = start;
        true
    }

    /// The memory behind it, for the module that hands it to the kernel.
    pub(crate) fn vec_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn take(class: impl Fn(&mut Pool) -> &mut Vec<Vec<u8>>, bytes: usize) -> Buf {
        let pooled = POOL.try_with(|pool| class(&mut pool.borrow_mut()).pop()).ok().flatten();
        Buf { bytes: pooled.unwrap_or_else(|| Vec::with_capacity(bytes)), ..Buf::empty() }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let capacity = self.bytes.capacity();
        let pooled = capacity == HEAD_BUFFER_BYTES || capacity == BODY_BUFFER_BYTES;
        if !pooled && !self.counted {
            return;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // Without a pool the thread is ending: the memory is freed.
        let _ = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            pool.bodies_used -= usize::from(self.counted);
            if pooled {
                pool.put(bytes);
            }
        });
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} of {} bytes)", self.len(), self.capacity())
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Buf {
        Buf { bytes: bytes.to_vec(), ..Buf::empty() }
    }
}

/// Gives memory back once a burst is over: when buffers were freed beyond what the pool keeps, and
/// none since the last look. To be called now and then.
pub fn trim() {
    let due = POOL.try_with(|pool| {
        let pool = &mut *pool.borrow_mut();
        let quiet = pool.freed == pool.freed_seen;
        let due = quiet && pool.freed > 0;
        pool.freed_seen = pool.freed;
        if due {
            (pool.freed, pool.freed_seen) = (0, 0);
        }
        due
    });
    if due.unwrap_or(false) {
        memory::trim();
    }
}

struct Pool {
    head: Vec<Vec<u8>>,
    body: Vec<Vec<u8>>,
    bodies_used: usize,
    /// Buffers that were not kept since the last [`trim`].
    freed: usize,
    freed_seen: usize,
}

impl Pool {
    fn put(&mut self, bytes: Vec<u8>) {
        let (list, kept) = match bytes.capacity() {
            HEAD_BUFFER_BYTES => (&mut self.head, HEAD_BUFFERS_KEPT),
            _ => (&mut self.body, BODY_BUFFERS_KEPT),
        };
        if list.len() < kept {
            list.push(bytes);
        } else {
            self.freed += 1;
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { head: Vec::new(), body: Vec::new(), bodies_used: 0, freed: 0, freed_seen: 0 }) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_append_and_writes_consume() {
        let mut buf = Buf::for_head();
        buf.extend(b"hello world");
        buf.consume(6);
        assert_eq!(buf.filled(), b"world");
        buf.compact();
        assert_eq!(buf.filled(), b"world");
        assert_eq!(buf.spare(), HEAD_BUFFER_BYTES - 5);
        buf.consume(5);
        buf.compact();
        assert_eq!(buf.spare(), HEAD_BUFFER_BYTES);
    }

    #[test]
    fn a_new_head_fits_where_the_old_one_was() {
        let mut buf = Buf::for_head();
        buf.leave_room(2);
        buf.extend(b"oldbody");
        buf.consume(3);
        assert!(buf.prepend(b"newer"));
        assert_eq!(buf.filled(), b"newerbody");
        assert!(!buf.prepend(b"x"));
    }

    #[test]
    fn a_dropped_buffer_comes_back_and_a_grown_one_does_not() {
        let pointer = {
            let buf = Buf::for_head();
            buf.bytes.as_ptr()
        };
        let mut again = Buf::for_head();
        assert_eq!(again.bytes.as_ptr(), pointer);
        again.extend(&vec![0; HEAD_BUFFER_BYTES + 1]);
        drop(again);
        assert_eq!(Buf::for_head().capacity(), HEAD_BUFFER_BYTES);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_bound() {
        let many: Vec<Buf> = (0..HEAD_BUFFERS_KEPT + 3).map(|_| Buf::for_head()).collect();
        drop(many);
        POOL.with(|pool| assert_eq!(pool.borrow().head.len(), HEAD_BUFFERS_KEPT));
    }
}
