//! gRPC's length-prefixed messages, and the request that the load asks its origin with.

use bytes::{BufMut, Bytes, BytesMut};

/// The method that the origin has. Nobody on the way looks into its messages, so they are not
/// protocol buffers.
pub const METHOD: &str = "/perf.Load/Messages";
/// The content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/grpc";
/// A message's flag byte and length.
pub const PREFIX_BYTES: usize = 5;
/// The longest message that a load may ask for.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most messages that one call may ask for.
pub const MESSAGES_MAX: usize = 1_000_000;
/// An `Ask` on the wire.
const ASK_BYTES: usize = 8;

/// What a request message asks for: this many messages of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Messages in the answer; one makes the call unary.
    pub messages: usize,
    /// Bytes of each message, its prefix not counted.
    pub message_bytes: usize,
}

impl Ask {
    /// Checks both numbers.
    pub fn new(messages: usize, message_bytes: usize) -> Result<Ask, String> {
        if messages > MESSAGES_MAX || message_bytes > MESSAGE_BYTES_MAX {
            return Err(format!(
                "at most {MESSAGES_MAX} messages of at most {MESSAGE_BYTES_MAX} bytes"
            ));
        }
        Ok(Ask { messages, message_bytes })
    }

    /// The request message, padded to `request_bytes`.
    pub fn encode(self, request_bytes: usize) -> Bytes {
        let body_bytes = request_bytes.max(ASK_BYTES);
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + body_bytes);
        put_prefix(&mut bytes, body_bytes);
        for number in [self.messages, self.message_bytes] {
            bytes.put_u32(u32::try_from(number).expect("new() keeps both far below"));
        }
        bytes.put_bytes(b'.', body_bytes - ASK_BYTES);
        bytes.freeze()
    }

    /// Reads what `encode` wrote.
    pub fn parse(message: &[u8]) -> Result<Ask, String> {
        let word = |at: usize| -> Option<usize> {
            let bytes = message.get(PREFIX_BYTES + at..PREFIX_BYTES + at + 4)?;
            usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
        };
        match (word(0), word(4)) {
            (Some(messages), Some(message_bytes)) => Ask::new(messages, message_bytes),
            _ => Err(format!("a request message of {} bytes", message.len())),
        }
    }

    /// One message of the answer, prefix and all.
    pub fn message(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + self.message_bytes);
        put_prefix(&mut bytes, self.message_bytes);
        bytes.put_bytes(b'm', self.message_bytes);
        bytes.freeze()
    }

    /// Bytes of the whole answer.
    pub fn answer_bytes(self) -> usize {
        self.messages * (PREFIX_BYTES + self.message_bytes)
    }
}

fn put_prefix(bytes: &mut BytesMut, body_bytes: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(body_bytes).expect("messages are bounded far below"));
}

/// Finds the messages in the pieces of an answer and checks each one's prefix.
#[derive(Debug)]
pub struct Messages {
    ask: Ask,
    /// Bytes of the message that has begun, prefix included.
    filled: usize,
    /// Whole messages so far.
    pub whole: usize,
}

impl Messages {
    /// Nothing has come yet.
    pub fn new(ask: Ask) -> Messages {
        Messages { ask, filled: 0, whole: 0 }
    }

    /// Takes the next bytes; how many messages they completed.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<usize, String> {
        let before = self.whole;
        let length = u32::try_from(self.ask.message_bytes).expect("new() keeps it far below");
        let [a, b, c, d] = length.to_be_bytes();
        let prefix = [0, a, b, c, d];
        while !bytes.is_empty() {
            if self.filled < PREFIX_BYTES {
                if bytes[0] != prefix[self.filled] {
                    return Err(format!("a wrong prefix at message {}", self.whole));
                }
                self.filled += 1;
                bytes = &bytes[1..];
            } else {
                let whole = PREFIX_BYTES + self.ask.message_bytes;
                let part = bytes.len().min(whole - self.filled);
                if bytes[..part].iter().any(|&byte| byte != b'm') {
                    return Err(format!("wrong bytes in message {}", self.whole));
                }
                self.filled += part;
                bytes = &bytes[part..];
            }
            if self.filled == PREFIX_BYTES + self.ask.message_bytes {
                self.filled = 0;
                self.whole += 1;
            }
        }
        Ok(self.whole - before)
    }

    /// Whether all that was asked for has come, and nothing else.
    pub fn is_complete(&self) -> bool {
        self.filled == 0 && self.whole == self.ask.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_survive_the_wire() {
        let ask = Ask::new(1000, 128).expect("valid");
        for request_bytes in [0, 8, 100] {
            assert_eq!(Ask::parse(&ask.encode(request_bytes)), Ok(ask));
        }
        assert_eq!(ask.encode(100).len(), PREFIX_BYTES + 100);
        assert!(Ask::parse(&ask.encode(0)[..PREFIX_BYTES + 7]).is_err());
        assert!(Ask::new(MESSAGES_MAX + 1, 1).is_err());
        assert!(Ask::new(1, MESSAGE_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn messages_in_any_pieces() {
        let ask = Ask::new(3, 4).expect("valid");
        let answer = ask.message().repeat(3);
        assert_eq!(answer.len(), ask.answer_bytes());
        for piece in 1..=answer.len() {
            let mut messages = Messages::new(ask);
            let found: usize =
                answer.chunks(piece).map(|bytes| messages.push(bytes).expect("valid")).sum();
            assert_eq!(found, 3, "pieces of {piece}");
            assert!(messages.is_complete());
        }
    }

    #[test]
    fn empty_messages_count() {
        let ask = Ask::new(2, 0).expect("valid");
        let mut messages = Messages::new(ask);
        assert_eq!(messages.push(&ask.message().repeat(2)), Ok(2));
        assert!(messages.is_complete());
    }

    #[test]
    fn foreign_bytes_are_errors() {
        let ask = Ask::new(1, 4).expect("valid");
        assert!(Messages::new(ask).push(&[1]).is_err());
        assert!(Messages::new(ask).push(&[0, 0, 0, 0, 5]).is_err());
        assert!(Messages::new(ask).push(&[0, 0, 0, 0, 4, b'x']).is_err());
    }
}
