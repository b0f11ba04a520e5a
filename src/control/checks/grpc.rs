//! Messages of `grpc.health.v1`, of one field each.

use bytes::{BufMut, Bytes, BytesMut};

/// The path of its method.
pub const PATH: &str = "/grpc.health.v1.Health/Check";

/// `HealthCheckRequest { service }`, with the prefix of a message.
pub fn request(service: &str) -> Bytes {
    let mut field = BytesMut::new();
    if !service.is_empty() {
        // Field 1, a string.
        field.put_u8(0x0a);
        put_varint(&mut field, service.len() as u64);
        field.put_slice(service.as_bytes());
    }
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + field.len());
    message.put_u8(0);
    message.put_u32(field.len() as u32);
    message.put_slice(&field);
    message.freeze()
}

/// What `HealthCheckResponse { status }` says, in a word; none where it is no such message.
pub fn status(message: &[u8]) -> Option<&'static str> {
    let (prefix, mut rest) = message.split_at_checked(PREFIX_BYTES)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if prefix[0] != 0 || rest.len() != usize::try_from(length).ok()? {
        return None;
    }
    let mut status = 0;
    while !rest.is_empty() {
        let key = take_varint(&mut rest)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = take_varint(&mut rest)?,
            // Fields of a later version.
            (_, 0) => {
                take_varint(&mut rest)?;
            }
            (_, 1) => rest = rest.get(8..)?,
            (_, 5) => rest = rest.get(4..)?,
            (_, 2) => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            _ => return None,
        }
    }
    let name = |status| STATUSES.get(usize::try_from(status).ok()?).copied();
    Some(name(status).unwrap_or("UNKNOWN"))
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

const PREFIX_BYTES: usize = 5;

/// `ServingStatus`
const STATUSES: &[&str] = &["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_their_service() {
        assert_eq!(&request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&request("a.B")[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        let long = request(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn answers_say_a_status() {
        for (message, said) in [
            (&[0, 0, 0, 0, 2, 0x08, 1][..], Some("SERVING")),
            (&[0, 0, 0, 0, 2, 0x08, 2], Some("NOT_SERVING")),
            (&[0, 0, 0, 0, 0], Some("UNKNOWN")),
            (&[0, 0, 0, 0, 2, 0x08, 9], Some("UNKNOWN")),
            // Other fields: a string, a varint, eight and four bytes.
            (&[0, 0, 0, 0, 7, 0x12, 1, b'x', 0x18, 5, 0x08, 1], Some("SERVING")),
            (&[0, 0, 0, 0, 7, 0x25, 1, 2, 3, 4, 0x08, 1], Some("SERVING")),
            (&[0, 0, 0, 0, 11, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x08, 1], Some("SERVING")),
            (&[1, 0, 0, 0, 2, 0x08, 1], None),
            (&[0, 0, 0, 0, 3, 0x08, 1], None),
            (&[0, 0, 0, 0, 1, 0x08], None),
            (&[0, 0, 0, 0, 2, 0x12, 9], None),
            (&[0, 0, 0, 0, 1, 0x0b], None),
            (&[0, 0], None),
        ] {
            assert_eq!(status(message), said, "{message:?}");
        }
        let endless = [&[0, 0, 0, 0, 11][..], &[0xff; 11]].concat();
        assert_eq!(status(&endless), None);
    }
}
