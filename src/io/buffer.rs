//! Lets the kernel read into and write from a [`Buf`].
#![allow(unsafe_code)] // The runtime's buffer traits are unsafe to implement.

use monoio::buf::{IoBuf, IoBufMut};

use crate::base::buffer::Buf;

// SAFETY: the bytes live on the heap, so that their address survives a move of the `Buf`, and
// nothing touches a `Buf` that an operation owns.
unsafe impl IoBuf for Buf {
    #[inline]
    fn read_ptr(&self) -> *const u8 {
        self.filled().as_ptr()
    }

    #[inline]
    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; the pointer and the count describe the spare capacity only.
unsafe impl IoBufMut for Buf {
    #[inline]
    fn write_ptr(&mut self) -> *mut u8 {
        self.vec_mut().spare_capacity_mut().as_mut_ptr().cast()
    }

    #[inline]
    fn bytes_total(&mut self) -> usize {
        self.spare()
    }

    #[inline]
    unsafe fn set_init(&mut self, count: usize) {
        let bytes = self.vec_mut();
        let len = bytes.len() + count;
        assert!(len <= bytes.capacity(), "the kernel wrote no more than it was given");
        // SAFETY: the kernel has filled `count` bytes behind the old end, within the capacity.
        unsafe { bytes.set_len(len) }
    }
}
