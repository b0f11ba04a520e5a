//! The heads of a client's frames, found in its bytes (RFC 9113 section 4.1).

/// What a client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// RFC 9113 section 6
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

/// Bytes of a frame's head.
pub(super) const HEAD_BYTES: usize = 9;

/// Where a frame's head has its flags.
pub(super) const FLAGS_AT: usize = 4;

/// What the head of a frame says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Frame {
    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A part of a frame that has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// All of its head.
    Head(Frame),
    /// Some of its payload.
    Payload(&'a [u8]),
}

/// Finds frames in bytes, however they are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follower {
    head: [u8; HEAD_BYTES],
    have: usize,
    skip: usize,
}

impl Follower {
    /// Frames begin behind so many bytes.
    pub fn behind(skip: usize) -> Follower {
        Follower { head: [0; HEAD_BYTES], have: 0, skip }
    }

    /// Hands out what is found, with the place of the frame's head, as far as it is in these bytes.
    ///
    /// # Errors
    /// That of `found`, behind which nothing more is looked at.
    pub fn follow<E>(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(Part<'_>, Option<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut begins) = (0, None);
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            if skipped > 0 {
                let payload = &bytes[at..at + skipped];
                (self.skip, at) = (self.skip - skipped, at + skipped);
                found(Part::Payload(payload), begins)?;
            }
            if at == bytes.len() {
                return Ok(());
            }
            begins = (self.have == 0).then_some(at);
            let taken = (HEAD_BYTES - self.have).min(bytes.len() - at);
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[at..at + taken]);
            (self.have, at) = (self.have + taken, at + taken);
            if self.have < HEAD_BYTES {
                return Ok(());
            }
            let [a, b, c, kind, flags, stream @ ..] = self.head;
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            (self.have, self.skip) = (0, length);
            let stream = u32::from_be_bytes(stream) & !(1 << 31);
            found(Part::Head(Frame { length, kind, flags, stream }), begins)?;
        }
    }
}
