//! The TLS session of one connection with its buffers. No I/O.
//!
//! Between two suspensions one of two things holds. Either everything in `incoming` was given to the
//! session and is the beginning of something (`pending` is false). Or the session last delivered
//! plain text (`pending` is true): then it holds no handshake message in parts, none of its offsets
//! point into `incoming`, and it may be given nothing instead, which is how a writer gets past
//! records that the reader has not asked for.

use std::io;

use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{CommonState, Error};

use super::Session;
use crate::base::buffer::Buf;
use crate::io::stream::Peek;
use crate::limits::{
    BODY_BUFFER_BYTES, HEAD_BUFFER_BYTES, TLS_INCOMING_BYTES_MAX, TLS_RECEIVE_BYTES_MIN,
    TLS_RECORD_OVERHEAD_BYTES, TLS_RECORD_PLAIN_BYTES_MAX, TLS_WRITE_BYTES_MAX,
};

/// A session and its buffers.
pub(super) struct Engine {
    session: Session,
    /// Received and not consumed by the session.
    incoming: Buf,
    /// Plain text that the reader had no room for: of one record.
    plain: Buf,
    /// Records that the session asked to be sent and that were not.
    owed: Buf,
    /// Whether `incoming` may hold more plain text (see above).
    pending: bool,
    ended: Option<Ended>,
}

/// Why nothing more will be read.
enum Ended {
    /// The peer's close_notify.
    Notified,
    /// What the peer sent is wrong, or it sent an alert.
    Failed(Error),
}

/// What a turn of the session came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There was plain text.
    Data,
    /// Something was encoded or noted; go on.
    Again,
    /// It needs more bytes to go on with its handshake.
    Blocked,
    /// The handshake is over, and what was to be sealed is.
    Ready,
    /// Nothing more will be read.
    Ended,
}

/// What to seal as soon as the session lets us.
#[derive(Clone, Copy)]
enum Say<'a> {
    Nothing,
    Text(&'a [u8]),
    CloseNotify,
    #[cfg(test)]
    KeyUpdate,
}

/// Whether a turn takes what has arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    All,
    /// Only what yields no plain text.
    Nothing,
}

impl Engine {
    pub(super) fn new(session: Session, early: Buf) -> Engine {
        Engine {
            session,
            incoming: early,
            plain: Buf::empty(),
            owed: Buf::empty(),
            pending: true,
            ended: None,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// What has arrived and was not consumed.
    pub(super) fn incoming(&self) -> &[u8] {
        self.incoming.filled()
    }

    /// Why the session failed, if it did.
    pub(super) fn failed(&self) -> Option<&Error> {
        match &self.ended {
            Some(Ended::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// A turn of the handshake. `Ready`: it is over.
    pub(super) fn shake(&mut self) -> Turn {
        // Plain text that came with the end of the handshake must not hide what is to be sent.
        let take = if self.plain.is_empty() { Take::All } else { Take::Nothing };
        let turn = self.turn(&mut Buf::empty(), Say::Nothing, take);
        match turn {
            Turn::Data => Turn::Again,
            // Some look only whether we speak TLS: they close with the handshake's last message.
            Turn::Ended if self.failed().is_none() && !self.session.common().is_handshaking() => {
                Turn::Again
            }
            Turn::Ended => turn,
            Turn::Ready if self.session.common().is_handshaking() => Turn::Blocked,
            _ => turn,
        }
    }

    /// Delivers plain text into the spare room of `buf`. `None`: more must be received first.
    pub(super) fn pull(&mut self, buf: &mut Buf) -> Option<io::Result<usize>> {
        let before = buf.len();
        let count = self.plain.len().min(buf.spare());
        buf.extend(&self.plain.filled()[..count]);
        self.plain.consume(count);
        while self.plain.is_empty() && self.pending && self.ended.is_none() {
            if buf.len() > before && !self.next_fits(buf.spare()) {
                break;
            }
            self.turn(buf, Say::Nothing, Take::All);
        }
        self.give_back();
        match (buf.len() - before, &self.ended) {
            (0, None) => None,
            (0, Some(Ended::Notified)) => Some(Ok(0)),
            (0, Some(Ended::Failed(error))) => Some(Err(invalid(error.clone()))),
            (count, _) => Some(Ok(count)),
        }
    }

    /// The same into our own buffer: tells what a read would find.
    pub(super) fn look(&mut self) -> Peek {
        while self.plain.is_empty() && self.pending && self.ended.is_none() {
            self.turn(&mut Buf::empty(), Say::Nothing, Take::All);
        }
        self.give_back();
        if !self.plain.is_empty() {
            Peek::Bytes
        } else if self.ended.is_some() {
            Peek::Closed
        } else {
            Peek::Nothing
        }
    }

    /// Whether a read would return without receiving: plain text, a whole record, the end.
    pub(super) fn has_something(&self) -> bool {
        !self.plain.is_empty()
            || self.ended.is_some()
            || (self.pending
                && record_bytes(self.incoming.filled())
                    .is_some_and(|bytes| bytes <= self.incoming.len()))
    }

    /// Whether the beginning of a record or message is there.
    pub(super) fn has_part(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Room to receive into, with space in front for what is already there: that stays here, because
    /// a writer may have to show it to the session meanwhile. `wanted` is what the reader would take.
    pub(super) fn room(&self, wanted: usize) -> io::Result<Buf> {
        let part = self.incoming.len();
        if part >= TLS_INCOMING_BYTES_MAX {
            return Err(invalid(Error::General("a handshake message in too many records".into())));
        }
        let record = record_bytes(self.incoming.filled()).unwrap_or_default();
        let needed = record.max(part + TLS_RECEIVE_BYTES_MIN);
        let large = wanted > HEAD_BUFFER_BYTES || needed > HEAD_BUFFER_BYTES;
        let mut room = if large { Buf::for_body() } else { Buf::for_head() };
        if room.capacity() < needed {
            room = Buf::with_capacity(needed);
        }
        room.leave_room(part);
        Ok(room)
    }

    /// Takes what was received into [`Engine::room`].
    pub(super) fn arrived(&mut self, mut received: Buf) {
        let fits = received.prepend(self.incoming.filled());
        assert!(fits, "room was left for what is there, and that does not grow");
        self.incoming = received;
        self.pending = true;
    }

    /// Seals some of `text`: how much, and the records, what was owed first.
    pub(super) fn seal(&mut self, text: &[u8]) -> io::Result<(usize, Buf)> {
        let mut records = records_buffer(text.len().min(TLS_WRITE_BYTES_MAX));
        // Where many slow readers hold all large buffers, records are small too.
        let reserved =
            TLS_RECORD_OVERHEAD_BYTES * (1 + records.capacity() / TLS_RECORD_PLAIN_BYTES_MAX);
        let most = (records.capacity() - reserved).min(TLS_WRITE_BYTES_MAX);
        let count = text.len().min(most);
        self.say(Say::Text(&text[..count]), &mut records)?;
        Ok((count, records))
    }

    /// The alert that ends our direction, where it can still be sent; what was owed first.
    pub(super) fn close_notify(&mut self) -> Option<Buf> {
        let mut records = Buf::empty();
        match self.say(Say::CloseNotify, &mut records) {
            Ok(()) => Some(records),
            Err(_) => Some(self.take_owed()),
        }
    }

    /// Changes our key for writing, and asks the peer to change its own (RFC 8446 section 4.6.3).
    #[cfg(test)]
    pub(super) fn update_key(&mut self) -> io::Result<()> {
        let mut records = Buf::empty();
        self.say(Say::KeyUpdate, &mut records)?;
        self.owed.extend(records.filled());
        records.clear();
        // Only the next turn encodes it.
        self.say(Say::Nothing, &mut records)?;
        self.owed.extend(records.filled());
        Ok(())
    }

    /// Bytes of memory that its buffers hold.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.incoming.capacity() + self.plain.capacity() + self.owed.capacity()
    }

    pub(super) fn owed(&self) -> &Buf {
        &self.owed
    }

    pub(super) fn take_owed(&mut self) -> Buf {
        std::mem::take(&mut self.owed)
    }

    /// `count` bytes of what is owed were sent.
    pub(super) fn paid(&mut self, count: usize) {
        self.owed.consume(count);
        self.give_back();
    }

    /// Has the session seal something into `records`, behind what is owed.
    fn say(&mut self, say: Say<'_>, records: &mut Buf) -> io::Result<()> {
        if let Some(error) = self.failed() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, error.clone()));
        }
        std::mem::swap(&mut self.owed, records);
        // `turn` encodes behind `owed`; the larger buffer goes below what it held.
        self.owed.extend(records.filled());
        records.clear();
        let said = self.say_behind_owed(say);
        std::mem::swap(&mut self.owed, records);
        if said.is_err() {
            self.owed = std::mem::take(records);
        }
        self.give_back();
        said
    }

    fn say_behind_owed(&mut self, say: Say<'_>) -> io::Result<()> {
        loop {
            match self.turn(&mut Buf::empty(), say, Take::Nothing) {
                Turn::Ready => return Ok(()),
                Turn::Data | Turn::Again => {}
                Turn::Ended if self.failed().is_none() => {}
                Turn::Blocked | Turn::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// One turn of the session.
    fn turn(&mut self, read: &mut Buf, say: Say<'_>, take: Take) -> Turn {
        let mut nothing = [];
        let withheld = take == Take::Nothing && self.pending;
        let bytes = if withheld { &mut nothing[..] } else { self.incoming.filled_mut() };
        let mut sinks = Sinks { read, plain: &mut self.plain, outgoing: &mut self.owed, say };
        let (discard, turn) = match &mut self.session {
            Session::Server(session) => sinks.handle(session.process_tls_records(bytes)),
            Session::Client(session) => sinks.handle(session.process_tls_records(bytes)),
        };
        self.incoming.consume(discard);
        match turn {
            Ok(Turn::Data) => self.pending = true,
            Ok(Turn::Blocked | Turn::Ready) if !withheld => self.pending = false,
            Ok(Turn::Ended) => {
                self.ended = Some(Ended::Notified);
                // RFC 8446 section 6.1: data after a closure alert is ignored.
                self.incoming.clear();
            }
            Err(error) => return self.fail(error),
            Ok(_) => {}
        }
        turn.unwrap_or(Turn::Ended)
    }

    /// Encodes the alert that the session has for its peer, and keeps the reason.
    fn fail(&mut self, error: Error) -> Turn {
        while self.session.common().wants_write() {
            let bytes = self.incoming.filled_mut();
            let mut read = Buf::empty();
            let (plain, outgoing) = (&mut self.plain, &mut self.owed);
            let mut sinks = Sinks { read: &mut read, plain, outgoing, say: Say::Nothing };
            let (discard, turn) = match &mut self.session {
                Session::Server(session) => sinks.handle(session.process_tls_records(bytes)),
                Session::Client(session) => sinks.handle(session.process_tls_records(bytes)),
            };
            self.incoming.consume(discard);
            if turn != Ok(Turn::Again) {
                break;
            }
        }
        self.incoming = Buf::empty();
        self.ended = Some(Ended::Failed(error));
        Turn::Ended
    }

    /// Whether the record in front is sure to fit into `spare` bytes.
    fn next_fits(&self, spare: usize) -> bool {
        record_bytes(self.incoming.filled()).is_none_or(|bytes| bytes <= spare)
    }

    /// Gives buffers back that hold nothing.
    fn give_back(&mut self) {
        for buf in [&mut self.incoming, &mut self.plain, &mut self.owed] {
            if buf.is_empty() {
                *buf = Buf::empty();
            }
        }
    }
}

impl Session {
    /// What both sides have in common.
    pub(super) fn common(&self) -> &CommonState {
        match self {
            Session::Server(session) => session,
            Session::Client(session) => session,
        }
    }

    pub(super) fn peer_certificates(&self) -> Vec<rustls::pki_types::CertificateDer<'static>> {
        self.common().peer_certificates().unwrap_or_default().to_vec()
    }
}

/// Where a turn's plain text and records go.
struct Sinks<'a> {
    read: &'a mut Buf,
    plain: &'a mut Buf,
    outgoing: &'a mut Buf,
    say: Say<'a>,
}

impl Sinks<'_> {
    /// Handles a status; also tells how many incoming bytes it has used up.
    fn handle<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<Turn, Error>) {
        let mut discard = status.discard;
        let turn = match status.state {
            Err(error) => Err(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                match traffic.next_record() {
                    Some(Ok(record)) => {
                        discard += record.discard;
                        let direct = record.payload.len().min(self.read.spare());
                        let (direct, rest) = record.payload.split_at(direct);
                        self.read.extend(direct);
                        self.keep(rest);
                    }
                    Some(Err(error)) => break Err(error),
                    None => break Ok(Turn::Data),
                }
            },
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                let encoded =
                    append(self.outgoing, 0, |room| data.encode(room).map_err(Refused::from));
                encoded.map(|()| Turn::Again)
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                // The caller sends what is owed before it waits for an answer.
                data.done();
                Ok(Turn::Again)
            }
            Ok(ConnectionState::WriteTraffic(traffic)) => self.speak(traffic),
            Ok(ConnectionState::BlockedHandshake) => Ok(Turn::Blocked),
            Ok(ConnectionState::PeerClosed) => Ok(Turn::Ended),
            Ok(ConnectionState::Closed) => Ok(Turn::Blocked),
            // No configuration of ours takes early data (RFC 8446 section 8 on replays).
            Ok(_) => Err(Error::General("early data".into())),
        };
        (discard, turn)
    }

    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() && self.plain.capacity() == 0 {
            *self.plain = Buf::for_head();
        }
        self.plain.extend(rest);
    }

    fn speak<D>(&mut self, mut traffic: WriteTraffic<'_, D>) -> Result<Turn, Error> {
        match self.say {
            Say::Nothing | Say::Text([]) => {}
            Say::Text(text) => {
                let records = text.len().div_ceil(TLS_RECORD_PLAIN_BYTES_MAX);
                let room = text.len() + records * TLS_RECORD_OVERHEAD_BYTES;
                let seal = |room: &mut [u8]| traffic.encrypt(text, room).map_err(Refused::from);
                append(self.outgoing, room, seal)?;
            }
            Say::CloseNotify => {
                let seal =
                    |room: &mut [u8]| traffic.queue_close_notify(room).map_err(Refused::from);
                append(self.outgoing, TLS_RECORD_OVERHEAD_BYTES, seal)?;
            }
            #[cfg(test)]
            Say::KeyUpdate => {
                self.say = Say::Nothing;
                traffic.refresh_traffic_keys()?;
            }
        }
        Ok(Turn::Ready)
    }
}

/// Why something was not encoded.
enum Refused {
    TooSmall(usize),
    Never(Error),
}

impl From<EncodeError> for Refused {
    fn from(error: EncodeError) -> Refused {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Refused::TooSmall(required_size)
            }
            EncodeError::AlreadyEncoded => Refused::Never(Error::General("encoded twice".into())),
        }
    }
}

impl From<EncryptError> for Refused {
    fn from(error: EncryptError) -> Refused {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Refused::TooSmall(required_size)
            }
            EncryptError::EncryptExhausted => Refused::Never(Error::EncryptError),
        }
    }
}

/// Appends what `encode` writes into a slice of `room` bytes, or of as many as it then asks for.
fn append(
    buf: &mut Buf,
    room: usize,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Refused>,
) -> Result<(), Error> {
    let bytes = buf.vec_mut();
    let end = bytes.len();
    bytes.resize(end + room, 0);
    let mut encoded = encode(&mut bytes[end..]);
    if let Err(Refused::TooSmall(needed)) = encoded {
        bytes.resize(end + needed, 0);
        encoded = encode(&mut bytes[end..]);
    }
    match encoded {
        Ok(count) => {
            bytes.truncate(end + count);
            Ok(())
        }
        Err(refused) => {
            bytes.truncate(end);
            Err(match refused {
                Refused::Never(error) => error,
                Refused::TooSmall(_) => Error::General("a record outgrew its size".into()),
            })
        }
    }
}

/// A buffer for the records of `bytes` of plain text.
fn records_buffer(bytes: usize) -> Buf {
    if bytes + 2 * TLS_RECORD_OVERHEAD_BYTES <= HEAD_BUFFER_BYTES {
        Buf::for_head()
    } else {
        Buf::for_body()
    }
}

/// Bytes of the record that `bytes` begin with, its header included, where that is there.
fn record_bytes(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [_, _, _, high, low, ..] => Some(5 + usize::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

// The records of one write fit a body buffer.
const _: () = assert!(TLS_WRITE_BYTES_MAX + 8 * TLS_RECORD_OVERHEAD_BYTES <= BODY_BUFFER_BYTES);
