//! Frames as bytes, RFC 9113 section 4.1: whatever is asked for is written, right or wrong.

/// One frame as it stands on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Stream identifier; the topmost bit is the reserved one.
    pub stream: u32,
    /// What follows the nine bytes.
    pub payload: Vec<u8>,
    /// A length that the head says instead of the true one.
    pub said_length: Option<u32>,
}

impl Frame {
    /// A frame of a type on a stream.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Frame {
        Frame { kind, flags, stream, payload: payload.into(), said_length: None }
    }

    /// A SETTINGS frame.
    pub fn settings(pairs: &[(u16, u32)]) -> Frame {
        let mut payload = Vec::with_capacity(pairs.len() * 6);
        for (id, value) in pairs {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        Frame::new(SETTINGS, 0, 0, payload)
    }

    /// A frame whose payload is one number: RST_STREAM, WINDOW_UPDATE.
    pub fn number(kind: u8, stream: u32, number: u32) -> Frame {
        Frame::new(kind, 0, stream, number.to_be_bytes())
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let true_length = u32::try_from(self.payload.len()).expect("a test's frame is small");
        let length = self.said_length.unwrap_or(true_length);
        let mut out = Vec::with_capacity(9 + self.payload.len());
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
        out
    }

    /// The first frame of `bytes` and its length on the wire; none while it is not whole.
    pub fn read(bytes: &[u8]) -> Option<(Frame, usize)> {
        let head = bytes.get(..9)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = bytes.get(9..9 + length)?.to_vec();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((
            Frame { kind: head[3], flags: head[4], stream, payload, said_length: None },
            9 + length,
        ))
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The settings in it, where its length is right.
    pub fn pairs(&self) -> Option<Vec<(u16, u32)>> {
        let (pairs, rest) = self.payload.as_chunks::<6>();
        let pair = |p: &[u8; 6]| {
            (u16::from_be_bytes([p[0], p[1]]), u32::from_be_bytes([p[2], p[3], p[4], p[5]]))
        };
        rest.is_empty().then(|| pairs.iter().map(pair).collect())
    }

    /// The number that begins at a byte of the payload.
    pub fn number_at(&self, at: usize) -> Option<u32> {
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// Number of a name in a list, or of a number as text.
pub fn number_of(list: &[&str], name: &str) -> Option<u32> {
    let named = list.iter().position(|other| *other == name).and_then(|at| u32::try_from(at).ok());
    named.or_else(|| name.parse().ok())
}

/// Name of a number in a list, or the number.
pub fn name_of(list: &[&str], number: u32) -> String {
    let name = usize::try_from(number).ok().and_then(|at| list.get(at));
    name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

/// Types by number, RFC 9113 section 6.
pub const KINDS: &[&str] = &[
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
];

/// DATA
pub const DATA: u8 = 0;
/// HEADERS
pub const HEADERS: u8 = 1;
/// PRIORITY
pub const PRIORITY: u8 = 2;
/// RST_STREAM
pub const RST_STREAM: u8 = 3;
/// SETTINGS
pub const SETTINGS: u8 = 4;
/// PUSH_PROMISE
pub const PUSH_PROMISE: u8 = 5;
/// PING
pub const PING: u8 = 6;
/// GOAWAY
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION
pub const CONTINUATION: u8 = 9;

/// ACK of SETTINGS and PING.
pub const ACK: u8 = 1;
/// END_STREAM of DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// END_HEADERS of HEADERS, PUSH_PROMISE and CONTINUATION.
pub const END_HEADERS: u8 = 4;
/// PADDED
pub const PADDED: u8 = 8;
/// PRIORITY of HEADERS.
pub const WITH_PRIORITY: u8 = 0x20;

/// Error codes by number, RFC 9113 section 7.
pub const CODES: &[&str] = &[
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// Settings by number, RFC 9113 section 6.5.2 and RFC 8441 section 3.
pub const PARAMETERS: &[&str] = &[
    "",
    "HEADER_TABLE_SIZE",
    "ENABLE_PUSH",
    "MAX_CONCURRENT_STREAMS",
    "INITIAL_WINDOW_SIZE",
    "MAX_FRAME_SIZE",
    "MAX_HEADER_LIST_SIZE",
    "7",
    "ENABLE_CONNECT_PROTOCOL",
];

/// What a client sends first, RFC 9113 section 3.4.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Payload bytes of a frame unless SETTINGS_MAX_FRAME_SIZE says more.
pub const FRAME_BYTES_DEFAULT: usize = 16_384;
/// Window of a stream and of the connection unless SETTINGS_INITIAL_WINDOW_SIZE says otherwise.
pub const WINDOW_DEFAULT: i64 = 65_535;
/// The largest window.
pub const WINDOW_MAX: i64 = 0x7fff_ffff;
/// Bytes of the dynamic table unless SETTINGS_HEADER_TABLE_SIZE says otherwise.
pub const TABLE_BYTES_DEFAULT: usize = 4_096;
