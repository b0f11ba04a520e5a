//! What came on a connection, held against RFC 9113 frame by frame: whatever a case sends, the
//! other side keeps the rules.

use std::collections::{BTreeMap, VecDeque};

use super::frame::*;
use super::hpack::{Decoder, Field};

/// Which side this end of the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends requests.
    Client,
    /// It is an origin.
    Server,
}

/// What is known of a stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Header blocks in order: interim heads, the head, trailers.
    pub heads: Vec<Vec<Field>>,
    /// Content, without padding.
    pub data: Vec<u8>,
    /// DATA frames that came.
    pub data_frames: usize,
    /// Whether END_STREAM came.
    pub ended: bool,
    /// Code of the RST_STREAM that came.
    pub reset: Option<u32>,
    /// Sum of the WINDOW_UPDATEs that came.
    pub window_added: u64,
    /// Whether frames were sent on it.
    touched: bool,
    /// Whether this side has ended or reset it.
    finished: bool,
    given_up: bool,
    headless: bool,
    /// What may still be sent to us beyond the initial window.
    credit: i64,
}

/// A connection as it came.
#[derive(Debug)]
pub struct Watch {
    role: Role,
    /// Streams by number.
    pub streams: BTreeMap<u32, Stream>,
    /// Rules that were broken.
    pub faults: Vec<String>,
    /// Frames that came.
    pub frames: usize,
    /// Settings in force on the other side.
    pub settings: BTreeMap<u16, u32>,
    /// SETTINGS that came, without acknowledgements.
    pub settings_frames: usize,
    /// Acknowledgements of our SETTINGS.
    pub acks: usize,
    /// Answers to our PINGs.
    pub pongs: Vec<Vec<u8>>,
    /// PINGs that came.
    pub pings: usize,
    /// GOAWAYs: last stream and code.
    pub goaways: Vec<(u32, u32)>,
    /// Sum of the WINDOW_UPDATEs of the connection.
    pub window_added: u64,
    decoder: Decoder,
    block: Option<(u32, u8, Vec<u8>)>,
    /// Our SETTINGS that nobody acknowledged yet.
    unconfirmed: VecDeque<Vec<(u16, u32)>>,
    credit: i64,
    initial: i64,
    frame_max: usize,
    concurrent_max: u32,
    push: bool,
    send_window: i64,
    highest: u32,
}

impl Watch {
    /// A connection on which nothing came yet.
    pub fn new(role: Role) -> Watch {
        Watch {
            role,
            streams: BTreeMap::new(),
            faults: Vec::new(),
            frames: 0,
            settings: BTreeMap::new(),
            settings_frames: 0,
            acks: 0,
            pongs: Vec::new(),
            pings: 0,
            goaways: Vec::new(),
            window_added: 0,
            decoder: Decoder::default(),
            block: None,
            unconfirmed: VecDeque::new(),
            credit: WINDOW_DEFAULT,
            initial: WINDOW_DEFAULT,
            frame_max: FRAME_BYTES_DEFAULT,
            concurrent_max: u32::MAX,
            push: true,
            send_window: WINDOW_DEFAULT,
            highest: 0,
        }
    }

    /// Takes note of a frame that this side sends, so that it is known what the other one may do.
    pub fn sent(&mut self, frame: &Frame) {
        let (stream, role) = (frame.stream & 0x7fff_ffff, self.role);
        if stream > 0 {
            let entry = self.streams.entry(stream).or_default();
            entry.touched = true;
            if frame.kind == HEADERS && role == Role::Client {
                entry.headless |= frame.payload.windows(4).any(|window| window == b"HEAD");
            }
            let ends = matches!(frame.kind, DATA | HEADERS) && frame.has(END_STREAM);
            entry.finished |= ends;
            entry.given_up |= frame.kind == RST_STREAM;
        }
        match frame.kind {
            SETTINGS if !frame.has(ACK) && stream == 0 => {
                self.unconfirmed.extend(frame.pairs());
            }
            WINDOW_UPDATE => {
                let added = i64::from(frame.number_at(0).unwrap_or(0) & 0x7fff_ffff);
                match stream {
                    0 => self.credit += added,
                    _ => self.streams.entry(stream).or_default().credit += added,
                }
            }
            DATA => self.send_window -= i64::try_from(frame.payload.len()).unwrap_or(0),
            _ => {}
        }
    }

    /// Takes a frame that came; what has to be answered at once.
    pub fn take(&mut self, frame: &Frame) -> Option<Frame> {
        let first = self.frames == 0;
        self.frames += 1;
        if first && (frame.kind != SETTINGS || frame.has(ACK)) {
            self.fault("3.4", "the first frame is not SETTINGS");
        }
        if frame.payload.len() > self.frame_bytes_max() {
            self.fault("4.2", &format!("a frame of {} bytes", frame.payload.len()));
        }
        if frame.stream >> 31 != 0 {
            self.fault("4.1", "the reserved bit is set");
        }
        let stream = frame.stream & 0x7fff_ffff;
        if let Some((open, ..)) = &self.block
            && (frame.kind != CONTINUATION || stream != *open)
        {
            self.fault("6.10", "a header block is interrupted");
            self.block = None;
        }
        let connection = matches!(frame.kind, SETTINGS | PING | GOAWAY);
        let either = frame.kind == WINDOW_UPDATE || frame.kind > CONTINUATION;
        if !either && connection != (stream == 0) {
            self.fault("6", &format!("{} on stream {stream}", name_of(KINDS, frame.kind.into())));
            return None;
        }
        match frame.kind {
            DATA => self.data(frame, stream),
            HEADERS => self.headers(frame, stream),
            RST_STREAM => self.reset(frame, stream),
            SETTINGS => return self.settings(frame),
            PUSH_PROMISE => self.fault("8.4", "a push that nobody wants"),
            PING => return self.ping(frame),
            GOAWAY => self.goaway(frame),
            WINDOW_UPDATE => self.window_update(frame, stream),
            CONTINUATION => self.continuation(frame),
            PRIORITY if frame.payload.len() != 5 => {
                self.fault("6.3", "a PRIORITY that is not 5 bytes")
            }
            _ => {}
        }
        None
    }

    fn fault(&mut self, section: &str, what: &str) {
        self.faults.push(format!("RFC 9113 section {section}: {what}"));
    }

    /// Until our SETTINGS are acknowledged either value may be in use.
    fn frame_bytes_max(&self) -> usize {
        let sent = self.unconfirmed.iter().flatten().filter(|(id, _)| *id == 5);
        let most = sent.filter_map(|(_, value)| usize::try_from(*value).ok()).max();
        self.frame_max.max(most.unwrap_or(0))
    }

    fn initial_max(&self) -> i64 {
        let sent = self.unconfirmed.iter().flatten().filter(|(id, _)| *id == 4);
        self.initial.max(sent.map(|(_, value)| i64::from(*value)).max().unwrap_or(0))
    }

    fn data(&mut self, frame: &Frame, stream: u32) {
        let flow = i64::try_from(frame.payload.len()).expect("a frame is at most 16 MiB");
        let Some(content) = self.unpadded(frame, false) else { return };
        self.credit -= flow;
        if self.credit < 0 {
            self.fault("6.9.1", "DATA beyond the window of the connection");
        }
        let initial = self.initial_max();
        let entry = self.streams.entry(stream).or_default();
        if entry.given_up {
            return;
        }
        let early = !entry.heads.iter().any(|head| is_final(head));
        let late = entry.ended || entry.reset.is_some();
        entry.credit -= flow;
        let beyond = entry.credit + initial < 0 && flow > 0;
        entry.data.extend_from_slice(&content);
        entry.data_frames += 1;
        for (wrong, section, what) in [
            (early, "8.1", "DATA before a head"),
            (late, "5.1", "DATA behind the end"),
            (beyond, "6.9.1", "DATA beyond the window of the stream"),
        ] {
            if wrong {
                self.fault(section, &format!("{what} on stream {stream}"));
            }
        }
        if frame.has(END_STREAM) {
            self.end(stream);
        }
    }

    fn headers(&mut self, frame: &Frame, stream: u32) {
        let Some(fragment) = self.unpadded(frame, frame.has(WITH_PRIORITY)) else { return };
        let late = self.streams.get(&stream).is_some_and(|s| s.ended || s.reset.is_some());
        if late {
            self.fault("5.1", &format!("HEADERS behind the end of stream {stream}"));
        }
        self.block = Some((stream, frame.flags, fragment));
        if frame.has(END_HEADERS) {
            self.block_is_whole();
        }
    }

    fn continuation(&mut self, frame: &Frame) {
        let Some((_, _, block)) = &mut self.block else {
            return self.fault("6.10", "a CONTINUATION of nothing");
        };
        block.extend_from_slice(&frame.payload);
        if frame.has(END_HEADERS) {
            self.block_is_whole();
        }
    }

    fn block_is_whole(&mut self) {
        let Some((stream, flags, block)) = self.block.take() else { return };
        let fields = match self.decoder.read(&block) {
            Ok(fields) => fields,
            Err(why) => return self.faults.push(format!("RFC 7541: {why}")),
        };
        let ends = flags & END_STREAM != 0;
        let entry = self.streams.entry(stream).or_default();
        let trailers = entry.heads.iter().any(|head| is_final(head));
        let unknown = !entry.touched && entry.heads.is_empty();
        entry.heads.push(fields.clone());
        let role = self.role;
        if role == Role::Client && unknown {
            self.fault("5.1", &format!("a response on stream {stream}, which is idle"));
        }
        if role == Role::Server && unknown {
            self.opened(stream);
        }
        for (section, what) in rules::broken(role, &fields, trailers, ends) {
            self.fault(section, &format!("{what} on stream {stream}"));
        }
        if ends {
            self.end(stream);
        }
    }

    /// A request came: its number, and how many there are at one time.
    fn opened(&mut self, stream: u32) {
        if stream.is_multiple_of(2) || stream <= self.highest {
            self.fault("5.1.1", &format!("stream {stream} behind {}", self.highest));
        }
        self.highest = stream;
        let live = |s: &&Stream| {
            let over = s.ended && s.finished || s.reset.is_some() || s.given_up;
            !over && !s.heads.is_empty()
        };
        let open = self.streams.values().filter(live).count();
        if u32::try_from(open).is_ok_and(|open| open > self.concurrent_max) {
            self.fault("5.1.2", &format!("{open} streams at one time"));
        }
    }

    fn end(&mut self, stream: u32) {
        let entry = self.streams.entry(stream).or_default();
        entry.ended = true;
        let Some(head) = entry.heads.iter().find(|head| is_final(head)) else { return };
        let empty = entry.headless || matches!(value(head, ":status"), Some(b"304"));
        let length = value(head, "content-length").and_then(|text| {
            std::str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok())
        });
        let came = entry.data.len();
        if length.is_some_and(|length| if empty { came > 0 } else { length != came }) {
            self.fault("8.1.1", &format!("{came} bytes, content-length {length:?}"));
        }
    }

    fn reset(&mut self, frame: &Frame, stream: u32) {
        let (code, right) = (frame.number_at(0), frame.payload.len() == 4);
        let entry = self.streams.entry(stream).or_default();
        let idle = !entry.touched && entry.heads.is_empty();
        let again = entry.reset.is_some();
        entry.reset = entry.reset.or(code);
        if !right || idle {
            self.fault("6.4", &format!("RST_STREAM of {} bytes on {stream}", frame.payload.len()));
        }
        if again {
            self.fault("5.1", &format!("a second RST_STREAM on {stream}"));
        }
    }

    fn settings(&mut self, frame: &Frame) -> Option<Frame> {
        if frame.has(ACK) {
            self.acks += 1;
            match self.unconfirmed.pop_front() {
                Some(pairs) if frame.payload.is_empty() => self.confirmed(&pairs),
                _ => self.fault("6.5", "an acknowledgement of nothing, or with a payload"),
            }
            return None;
        }
        self.settings_frames += 1;
        let Some(pairs) = frame.pairs() else {
            self.fault("6.5", "SETTINGS of a wrong length");
            return None;
        };
        for &(id, value) in &pairs {
            let right = match id {
                2 => value == 0 || value == 1 && self.role == Role::Server,
                4 => value <= 0x7fff_ffff,
                5 => (16_384..=0xff_ffff).contains(&value),
                8 => value <= 1,
                _ => true,
            };
            if !right {
                self.fault("6.5.2", &format!("{} = {value}", name_of(PARAMETERS, id.into())));
            }
            self.settings.insert(id, value);
        }
        Some(Frame::new(SETTINGS, ACK, 0, []))
    }

    /// Our SETTINGS count from now on.
    fn confirmed(&mut self, pairs: &[(u16, u32)]) {
        for &(id, value) in pairs {
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match id {
                1 => self.decoder.set_limit(size),
                2 => self.push = value == 1,
                3 => self.concurrent_max = value,
                4 => self.initial = i64::from(value),
                5 => self.frame_max = size,
                _ => {}
            }
        }
    }

    fn ping(&mut self, frame: &Frame) -> Option<Frame> {
        if frame.payload.len() != 8 {
            self.fault("6.7", "a PING that is not 8 bytes");
        }
        if frame.has(ACK) {
            self.pongs.push(frame.payload.clone());
            return None;
        }
        self.pings += 1;
        Some(Frame::new(PING, ACK, 0, frame.payload.clone()))
    }

    fn goaway(&mut self, frame: &Frame) {
        let (Some(last), Some(code)) = (frame.number_at(0), frame.number_at(4)) else {
            return self.fault("6.8", "a GOAWAY below 8 bytes");
        };
        if self.goaways.last().is_some_and(|(before, _)| last > *before) {
            self.fault("6.8", "a GOAWAY with a higher last stream");
        }
        self.goaways.push((last & 0x7fff_ffff, code));
    }

    fn window_update(&mut self, frame: &Frame, stream: u32) {
        let added = frame.number_at(0).unwrap_or(0) & 0x7fff_ffff;
        if frame.payload.len() != 4 || added == 0 {
            return self.fault("6.9", "a WINDOW_UPDATE of nothing");
        }
        if stream == 0 {
            self.window_added += u64::from(added);
            self.send_window += i64::from(added);
            if self.send_window > WINDOW_MAX {
                self.fault("6.9.1", "a window of the connection over the largest");
            }
        } else {
            self.streams.entry(stream).or_default().window_added += u64::from(added);
        }
    }

    /// The payload without padding and priority.
    fn unpadded(&mut self, frame: &Frame, priority: bool) -> Option<Vec<u8>> {
        let padded = usize::from(frame.has(PADDED));
        let padding = if padded > 0 { frame.payload.first().copied().unwrap_or(0) } else { 0 };
        let start = padded + if priority { 5 } else { 0 };
        let end = frame.payload.len().checked_sub(usize::from(padding));
        let inner = end.and_then(|end| frame.payload.get(start..end));
        if inner.is_none() {
            self.fault("6.1", "more padding than payload");
        }
        inner.map(<[u8]>::to_vec)
    }
}

/// Whether a head is the one of a request, or of a response that is not interim.
pub fn is_final(head: &[Field]) -> bool {
    value(head, ":method").is_some()
        || value(head, ":status").is_some_and(|status| status.first() != Some(&b'1'))
}

/// The first value of a field.
pub fn value<'a>(head: &'a [Field], name: &str) -> Option<&'a [u8]> {
    head.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| &value[..])
}

impl Stream {
    /// Status of the response.
    pub fn status(&self) -> Option<u16> {
        let head = self.heads.iter().find(|head| is_final(head))?;
        std::str::from_utf8(value(head, ":status")?).ok()?.parse().ok()
    }

    /// Head of the request or of the response.
    pub fn head(&self) -> Option<&[Field]> {
        self.heads.iter().find(|head| is_final(head)).map(|head| &head[..])
    }

    /// Whether this side has sent the end of its message, or given the stream up.
    pub fn answered(&self) -> bool {
        self.finished || self.given_up
    }

    /// Trailers.
    pub fn trailers(&self) -> Option<&[Field]> {
        let at = self.heads.iter().position(|head| is_final(head))?;
        self.heads.get(at + 1).map(|head| &head[..])
    }
}

/// What RFC 9113 section 8 says of a header block.
mod rules {
    use super::{Field, Role, value};

    /// Fields of one hop, section 8.2.2.
    const ONE_HOP: &[&[u8]] =
        &[b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

    /// The rules that a block breaks.
    pub fn broken(
        role: Role,
        fields: &[Field],
        trailers: bool,
        ends: bool,
    ) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        let regular = fields.iter().position(|(name, _)| name.first() != Some(&b':'));
        let (pseudo, rest) = fields.split_at(regular.unwrap_or(fields.len()));
        for (name, value) in rest {
            if let Some(wrong) = field(name, value) {
                out.push(("8.2", format!("{wrong} {:?}", name.escape_ascii().to_string())));
            }
        }
        if trailers {
            if !pseudo.is_empty() || !ends {
                out.push(("8.1", "trailers with pseudo fields, or that do not end".into()));
            }
        } else if role == Role::Client {
            let status = value(pseudo, ":status").unwrap_or_default();
            let number = status.len() == 3 && status.iter().all(u8::is_ascii_digit);
            if pseudo.len() != 1 || !number || status == b"101" {
                out.push(("8.3.2", "pseudo fields that are not one :status".into()));
            }
            if status.first() == Some(&b'1') && ends {
                out.push(("8.1", "an interim response that ends the stream".into()));
            }
        } else if let Some(wrong) = request(pseudo, rest) {
            out.push(("8.3.1", wrong.into()));
        }
        out
    }

    fn field(name: &[u8], value: &[u8]) -> Option<&'static str> {
        let token =
            |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(c);
        let blank = |c: Option<&u8>| matches!(c, Some(b' ' | b'\t'));
        if name.is_empty() || !name.iter().all(token) {
            return Some("a name of other characters");
        }
        if value.iter().any(|c| matches!(c, 0 | b'\r' | b'\n')) {
            return Some("CR, LF or NUL in");
        }
        if blank(value.first()) || blank(value.last()) {
            return Some("white space round the value of");
        }
        let te = name == b"te" && value != b"trailers";
        (ONE_HOP.contains(&name) || te).then_some("a field of one hop:")
    }

    fn request(pseudo: &[Field], rest: &[Field]) -> Option<&'static str> {
        let count =
            |name: &str| pseudo.iter().filter(|(other, _)| other == name.as_bytes()).count();
        let known = [":method", ":scheme", ":path", ":authority", ":protocol"];
        if known.iter().map(|name| count(name)).sum::<usize>() != pseudo.len() {
            return Some("a pseudo field that nobody knows");
        }
        if known.iter().any(|name| count(name) > 1) || count(":method") != 1 {
            return Some("a pseudo field twice, or no method");
        }
        let connect = value(pseudo, ":method") == Some(b"CONNECT") && count(":protocol") == 0;
        let path = value(pseudo, ":path").unwrap_or_default();
        if connect {
            let bare = count(":scheme") + count(":path") == 0 && count(":authority") == 1;
            return (!bare).then_some("CONNECT with a scheme or a path");
        }
        if count(":scheme") != 1 || count(":path") != 1 {
            return Some("no scheme or no path");
        }
        if !path.starts_with(b"/") && path != b"*" {
            return Some("a path that does not begin with a slash");
        }
        let host = value(rest, "host");
        let differs = host.is_some() && count(":authority") == 1;
        (differs && host != value(pseudo, ":authority")).then_some("another Host than :authority")
    }
}
