//! What we have sent an origin: whether its SETTINGS hold, and the streams that were reset here. `h2`
//! tells neither, and ends a connection with all its streams when it comes to remember too much.

use crate::limits::{
    UPSTREAM_HTTP2_LOCAL_RESETS_MAX, UPSTREAM_HTTP2_RESET_STREAM_MS,
    UPSTREAM_HTTP2_RESET_STREAMS_KEPT, UPSTREAM_HTTP2_STREAMS_MAX,
};

/// Follows the frames that are written on a connection.
#[derive(Debug)]
pub(super) struct Sent {
    /// The head of a frame, and the code behind that of RST_STREAM.
    head: [u8; RESET_BYTES],
    have: usize,
    /// Bytes that come before the next head.
    skip: usize,
    acknowledged: bool,
    /// RST_STREAM frames that the origin's faults have cost.
    faults: usize,
    /// All RST_STREAM frames of this while, and of the one before it.
    resets: usize,
    resets_before: usize,
    while_began_ms: u64,
}

/// RFC 9113 section 4.1
const HEAD_BYTES: usize = 9;
/// RFC 9113 section 6.4: the head, and an error code.
const RESET_BYTES: usize = HEAD_BYTES + 4;
/// RFC 9113 section 3.4
const PREFACE_BYTES: usize = 24;

const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;

impl Default for Sent {
    fn default() -> Sent {
        Sent {
            head: [0; RESET_BYTES],
            have: 0,
            skip: PREFACE_BYTES,
            acknowledged: false,
            faults: 0,
            resets: 0,
            resets_before: 0,
            while_began_ms: 0,
        }
    }
}

impl Sent {
    /// Looks at what was written.
    pub fn on_bytes(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let wanted = match self.have >= HEAD_BYTES {
                true => RESET_BYTES,
                false => HEAD_BYTES,
            };
            let taken = (wanted - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have < wanted {
                return;
            }
            self.on_head();
        }
    }

    /// A head is there, of RST_STREAM its code too in the end.
    fn on_head(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            RST_STREAM if self.have < RESET_BYTES => return,
            RST_STREAM => self.on_reset(),
            SETTINGS => self.acknowledged |= flags & ACK != 0,
            _ => {}
        }
        self.skip = HEAD_BYTES + length - self.have;
        self.have = 0;
    }

    fn on_reset(&mut self) {
        let [.., a, b, c, d] = self.head;
        let code = h2::Reason::from(u32::from_be_bytes([a, b, c, d]));
        // We ourselves only say that nobody wants the rest.
        if code != h2::Reason::CANCEL && code != h2::Reason::NO_ERROR {
            self.faults += 1;
        }
        self.resets += 1;
    }

    /// Takes note of the time, now and then.
    pub fn pass_time(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.while_began_ms) > UPSTREAM_HTTP2_RESET_STREAM_MS {
            self.while_began_ms = now_ms;
            self.resets_before = std::mem::take(&mut self.resets);
        }
    }

    /// Whether the origin's SETTINGS hold: they are acknowledged as they are applied (RFC 9113
    /// section 6.5.3).
    pub fn has_acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Whether so many streams were reset that no other is to be begun: those under way may all be
    /// reset too before `h2` forgets one whose frames may still come.
    pub fn is_worn(&self) -> bool {
        self.faults >= FAULTS_MAX || self.resets + self.resets_before >= RESETS_MAX
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
            assert_eq!((sent.resets, sent.faults), (1, 0), "{split}");
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
