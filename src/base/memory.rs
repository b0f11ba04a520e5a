//! Giving memory back after a burst.
//!
//! The allocator keeps what a burst of connections has freed, in case another one follows. The
//! binary, which chooses the allocator, says here how to make it let go; a core asks for that when
//! it has freed more buffers than its pool keeps.

use std::sync::OnceLock;

static TRIM: OnceLock<fn()> = OnceLock::new();

/// Says how the allocator gives free memory of the calling thread back. Once per process.
pub fn set_trim(trim: fn()) {
    // A second binary in one process does not exist; the first one's word stands.
    let _ = TRIM.set(trim);
}

/// Gives free memory of this thread back.
pub fn trim() {
    if let Some(trim) = TRIM.get() {
        trim();
    }
}
