//! Host names as routes compare them: without port and last dot, in lower case, IPv6 addresses in
//! their one short form (RFC 5952).

use std::fmt;
use std::net::Ipv6Addr;

use crate::limits::HOST_BYTES_MAX;

/// The host of a valid `host [ ":" port ]` (RFC 9110 section 7.2), without the dot at its end.
pub fn host_name(authority: &[u8]) -> &[u8] {
    let end = match authority {
        [b'[', ..] => memchr::memchr(b']', authority).map_or(authority.len(), |at| at + 1),
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    let name = &authority[..end];
    match name {
        [rest @ .., b'.'] if !rest.is_empty() => rest,
        name => name,
    }
}

/// A host in the form in which hosts are compared, on the stack.
pub struct HostText {
    bytes: [u8; HOST_BYTES_MAX],
    length: usize,
}

impl HostText {
    /// The host of a valid `host [ ":" port ]`; none where it is longer than a name can be or has an
    /// empty label (RFC 1034 section 3.1), so that no wildcard takes it.
    pub fn of(authority: &[u8]) -> Option<HostText> {
        let name = host_name(authority);
        let mut text = HostText { bytes: [0; HOST_BYTES_MAX], length: 0 };
        if let Some(address) = ipv6(name) {
            fmt::write(&mut text, format_args!("[{address}]")).ok()?;
            return Some(text);
        }
        if !name.is_empty() && has_empty_label(name) {
            return None;
        }
        let room = text.bytes.get_mut(..name.len())?;
        room.copy_from_slice(name);
        room.make_ascii_lowercase();
        text.length = name.len();
        Some(text)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Whether nothing stands before, behind or between dots.
pub fn has_empty_label(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').any(<[u8]>::is_empty)
}

fn ipv6(name: &[u8]) -> Option<Ipv6Addr> {
    let inner = name.strip_prefix(b"[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inner).ok()?.parse().ok()
}

impl fmt::Write for HostText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_port_dot_and_case() {
        for (written, host) in [
            ("Example.COM:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[2001:DB8:0:0::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("[v1.A:b]:1", "[v1.a:b]"),
            ("", ""),
        ] {
            let text = HostText::of(written.as_bytes()).expect("short");
            assert_eq!(text.bytes(), host.as_bytes(), "{written}");
        }
        for written in [".", "..", "a..example.com", ".example.com", "a.example.com..", "a..b:80"] {
            assert!(HostText::of(written.as_bytes()).is_none(), "{written}");
        }
        let long = vec![b'a'; HOST_BYTES_MAX];
        assert!(HostText::of(&long).is_some());
        assert!(HostText::of(&[&long[..], b"a"].concat()).is_none());
        assert!(HostText::of(&[&long[..], b":80"].concat()).is_some());
    }
}
