//! What we have sent an origin: whether its SETTINGS hold, and the streams that were reset here. `h2`
//! tells neither, and ends a connection with all its streams when it comes to remember too much.

use std::convert::Infallible;

use h2::Reason;

use super::frame::{ACK, Follower, Frame, PREFACE, Part, RST_STREAM, SETTINGS};
use crate::limits::{
    UPSTREAM_HTTP2_LOCAL_RESETS_MAX, UPSTREAM_HTTP2_RESET_STREAM_MS,
    UPSTREAM_HTTP2_RESET_STREAMS_KEPT, UPSTREAM_HTTP2_STREAMS_MAX,
};

/// Follows the frames that are written on a connection.
#[derive(Debug)]
pub(super) struct Sent {
    follower: Follower,
    counts: Counts,
    while_began_ms: u64,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes of the code of the RST_STREAM that is under way, and what is known of it.
    code_bytes: usize,
    code: u32,
    acknowledged: bool,
    /// RST_STREAM frames that the origin's faults have cost.
    faults: usize,
    /// All RST_STREAM frames of this while, and of the one before it.
    resets: usize,
    resets_before: usize,
}

/// RFC 9113 section 6.4
const CODE_BYTES: usize = 4;

impl Default for Sent {
    fn default() -> Sent {
        let follower = Follower::behind(PREFACE.len());
        Sent { follower, counts: Counts::default(), while_began_ms: 0 }
    }
}

impl Counts {
    fn on_head(&mut self, frame: Frame) {
        self.acknowledged |= frame.kind == SETTINGS && frame.has(ACK);
        self.code_bytes = if frame.kind == RST_STREAM { CODE_BYTES } else { 0 };
        self.code = 0;
    }

    fn on_payload(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take(self.code_bytes) {
            self.code = self.code << 8 | u32::from(*byte);
            self.code_bytes -= 1;
            if self.code_bytes == 0 {
                self.on_reset();
            }
        }
    }

    fn on_reset(&mut self) {
        let code = Reason::from(self.code);
        // We ourselves only say that nobody wants the rest.
        if code != Reason::CANCEL && code != Reason::NO_ERROR {
            self.faults += 1;
        }
        self.resets += 1;
    }
}

impl Sent {
    /// Looks at what was written.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        let counts = &mut self.counts;
        let Ok(()) = self.follower.follow(bytes, |part, _| -> Result<(), Infallible> {
            match part {
                Part::Head(frame) => counts.on_head(frame),
                Part::Payload(bytes) => counts.on_payload(bytes),
            }
            Ok(())
        });
    }

    /// Takes note of the time, now and then.
    pub fn pass_time(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.while_began_ms) > UPSTREAM_HTTP2_RESET_STREAM_MS {
            self.while_began_ms = now_ms;
            self.counts.resets_before = std::mem::take(&mut self.counts.resets);
        }
    }

    /// Whether the origin's SETTINGS hold: they are acknowledged as they are applied (RFC 9113
    /// section 6.5.3).
    pub fn has_acknowledged(&self) -> bool {
        self.counts.acknowledged
    }

    /// Whether so many streams were reset that no other is to be begun: those under way may all be
    /// reset too before `h2` forgets one whose frames may still come.
    pub fn is_worn(&self) -> bool {
        let Counts { faults, resets, resets_before, .. } = self.counts;
        faults >= FAULTS_MAX || resets + resets_before >= RESETS_MAX
    }
}

const FAULTS_MAX: usize = UPSTREAM_HTTP2_LOCAL_RESETS_MAX / 2;
const RESETS_MAX: usize = UPSTREAM_HTTP2_RESET_STREAMS_KEPT - UPSTREAM_HTTP2_STREAMS_MAX;

// Each of the streams that are left may be at fault.
const _: () = assert!(FAULTS_MAX > 2 * UPSTREAM_HTTP2_STREAMS_MAX);
const _: () = assert!(RESETS_MAX > UPSTREAM_HTTP2_STREAMS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    const CANCEL: u8 = 8;
    const STREAM_CLOSED: u8 = 5;

    fn begun() -> Sent {
        let mut sent = Sent::default();
        sent.on_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        sent
    }

    fn reset(code: u8) -> [u8; 13] {
        [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code]
    }

    /// However the bytes are cut; our own SETTINGS are no acknowledgement.
    #[test]
    fn an_acknowledgement_is_found() {
        let ours = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x01";
        let others = [&ours[..], &reset(CANCEL), b"\0\0\x02\x00\x01\0\0\0\x01\x04\x01"].concat();
        let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
        for split in 0..=others.len() {
            let mut sent = begun();
            sent.on_bytes(&others[..split]);
            sent.on_bytes(&others[split..]);
            assert!(!sent.has_acknowledged(), "{split}");
            assert_eq!((sent.counts.resets, sent.counts.faults), (1, 0), "{split}");
            sent.on_bytes(acknowledged);
            assert!(sent.has_acknowledged(), "{split}");
        }
    }

    /// RFC 9113 section 5.1: frames of a stream that was reset may come for a while.
    #[test]
    fn a_connection_is_worn_by_resets_that_are_remembered() {
        let mut sent = begun();
        for _ in 1..RESETS_MAX {
            sent.on_bytes(&reset(CANCEL));
        }
        sent.pass_time(UPSTREAM_HTTP2_RESET_STREAM_MS + 1);
        assert!(!sent.is_worn());
        sent.on_bytes(&reset(CANCEL));
        assert!(sent.is_worn(), "those of the while before count");
        sent.pass_time(2 * UPSTREAM_HTTP2_RESET_STREAM_MS + 1);
        assert!(sent.is_worn(), "not yet over");
        sent.pass_time(2 * UPSTREAM_HTTP2_RESET_STREAM_MS + 2);
        assert!(!sent.is_worn(), "they are forgotten");
    }

    #[test]
    fn a_connection_is_worn_by_faults_of_its_life() {
        let mut sent = begun();
        for number in 1..=FAULTS_MAX as u64 {
            assert!(!sent.is_worn());
            sent.on_bytes(&reset(STREAM_CLOSED));
            sent.pass_time(number * 2 * UPSTREAM_HTTP2_RESET_STREAM_MS);
        }
        assert!(sent.is_worn());
    }
}
