//! Pieces of a line: dates, addresses, numbers, and texts made harmless.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

/// The date of the second that the last record began in, as text: records of one second share it.
#[derive(Debug)]
pub struct DateText {
    second: u64,
    combined: [u8; COMBINED_BYTES],
    rfc3339: [u8; RFC3339_BYTES],
}

impl DateText {
    /// With the date of the epoch.
    pub fn new() -> DateText {
        let mut dates = DateText {
            second: 0,
            combined: *b"[01/Jan/1970:00:00:00 +0000]",
            rfc3339: *b"1970-01-01T00:00:00.000000Z",
        };
        dates.render(0);
        dates
    }

    /// `[30/Nov/2026:00:38:29 +0000]`, in UTC.
    #[inline]
    pub fn combined(&mut self, since_epoch_us: u64) -> &[u8] {
        self.turn_to(since_epoch_us / MICROS);
        &self.combined
    }

    /// `2026-11-30T00:38:29.004217Z`: RFC 3339, in UTC.
    #[inline]
    pub fn rfc3339(&mut self, since_epoch_us: u64) -> &[u8] {
        self.turn_to(since_epoch_us / MICROS);
        let mut rest = since_epoch_us % MICROS;
        for digit in self.rfc3339[20..26].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.rfc3339
    }

    #[inline]
    fn turn_to(&mut self, second: u64) {
        if second != self.second {
            self.render(second);
        }
    }

    #[cold]
    fn render(&mut self, second: u64) {
        self.second = second;
        let mut http = [0; HTTP_BYTES];
        let date = UNIX_EPOCH + Duration::from_secs(second.min(SECOND_MAX));
        // "Mon, 30 Nov 2026 00:38:29 GMT" (RFC 9110 section 5.6.7) holds all the parts.
        let written = write!(&mut http[..], "{}", httpdate::HttpDate::from(date));
        debug_assert!(written.is_ok(), "an IMF-fixdate has 29 bytes");
        let (day, month, year, time) = (&http[5..7], &http[8..11], &http[12..16], &http[17..25]);
        self.combined[1..3].copy_from_slice(day);
        self.combined[4..7].copy_from_slice(month);
        self.combined[8..12].copy_from_slice(year);
        self.combined[13..21].copy_from_slice(time);
        let number = 1 + MONTHS.iter().position(|name| *name == month).unwrap_or(0) as u8;
        self.rfc3339[..4].copy_from_slice(year);
        self.rfc3339[5..7].copy_from_slice(&[b'0' + number / 10, b'0' + number % 10]);
        self.rfc3339[8..10].copy_from_slice(day);
        self.rfc3339[11..19].copy_from_slice(time);
    }
}

impl Default for DateText {
    fn default() -> DateText {
        DateText::new()
    }
}

/// Appends a number in decimal.
#[inline]
pub fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends an address; an IPv4 one that a dual-stack socket shows as IPv6 as what it is.
#[inline]
pub fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            for (octet, dot) in [(a, true), (b, true), (c, true), (d, false)] {
                number(out, u64::from(octet));
                if dot {
                    out.push(b'.');
                }
            }
        }
        IpAddr::V6(v6) => {
            let _ = write!(out, "{v6}");
        }
    }
}

/// The first `bytes_max` bytes of a text, less what would be the beginning of a character.
#[inline]
pub fn cut(text: &[u8], bytes_max: usize) -> &[u8] {
    if text.len() <= bytes_max {
        return text;
    }
    let continues = |at: usize| text[at] & 0b1100_0000 == 0b1000_0000;
    let end = (bytes_max.saturating_sub(3)..=bytes_max).rev().find(|&end| !continues(end));
    &text[..end.unwrap_or(bytes_max)]
}

/// Appends a text as `combined` has it: a byte outside printable ASCII, a quote and a backslash
/// become `\xHH`.
#[inline]
pub fn hex_escaped(out: &mut Vec<u8>, text: &[u8]) {
    if is_plain(text) {
        return out.extend_from_slice(text);
    }
    for &byte in text {
        if plain(byte) {
            out.push(byte);
        } else {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(&[b'\\', b'x', digits[0], digits[1]]);
        }
    }
}

/// Appends the inside of a JSON string (RFC 8259 section 7). UTF-8 stays as it is, but for what may
/// end a line; a byte that is not UTF-8 becomes `\u00XX` of its value.
#[inline]
pub fn json_escaped(out: &mut Vec<u8>, text: &[u8]) {
    if is_plain(text) {
        return out.extend_from_slice(text);
    }
    json_escaped_slowly(out, text);
}

#[cold]
fn json_escaped_slowly(out: &mut Vec<u8>, text: &[u8]) {
    for piece in text.utf8_chunks() {
        for character in piece.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                // The separators U+2028 and U+2029 end a line for some readers.
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    unicode_escape(out, character as u16);
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for &byte in piece.invalid() {
            unicode_escape(out, u16::from(byte));
        }
    }
}

fn unicode_escape(out: &mut Vec<u8>, code: u16) {
    let digit = |shift: u16| HEX[usize::from(code >> shift & 15)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// Whether a text needs no escape in either format: nearly all, so that this loop has no branch and
/// becomes vector instructions.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |all, &byte| all & plain(byte))
}

#[inline]
fn plain(byte: u8) -> bool {
    (byte.wrapping_sub(b' ') < 0x5f) & (byte != b'"') & (byte != b'\\')
}

const MICROS: u64 = 1_000_000;
/// 9999-12-31T23:59:59Z, where a year has four digits for the last time.
const SECOND_MAX: u64 = 253_402_300_799;
const COMBINED_BYTES: usize = 28;
const RFC3339_BYTES: usize = 27;
const HTTP_BYTES: usize = 29;
const HEX: &[u8; 16] = b"0123456789ABCDEF";
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &[u8]) -> String {
        String::from_utf8_lossy(of).into_owned()
    }

    #[test]
    fn dates_turn_with_the_second_in_both_directions() {
        let mut dates = DateText::new();
        for (second, combined, rfc3339) in [
            (0, "[01/Jan/1970:00:00:00 +0000]", "1970-01-01T00:00:00.000007Z"),
            (951_782_399, "[28/Feb/2000:23:59:59 +0000]", "2000-02-28T23:59:59.000007Z"),
            (951_782_400, "[29/Feb/2000:00:00:00 +0000]", "2000-02-29T00:00:00.000007Z"),
            (1_795_999_109, "[30/Nov/2026:00:38:29 +0000]", "2026-11-30T00:38:29.000007Z"),
            (951_782_400, "[29/Feb/2000:00:00:00 +0000]", "2000-02-29T00:00:00.000007Z"),
            (SECOND_MAX, "[31/Dec/9999:23:59:59 +0000]", "9999-12-31T23:59:59.000007Z"),
            (SECOND_MAX + 1, "[31/Dec/9999:23:59:59 +0000]", "9999-12-31T23:59:59.000007Z"),
        ] {
            let at = second * MICROS + 7;
            assert_eq!(text(dates.combined(at)), combined);
            assert_eq!(text(dates.rfc3339(at)), rfc3339);
        }
        assert_eq!(text(dates.rfc3339(1_795_999_109_999_999)), "2026-11-30T00:38:29.999999Z");
        assert_eq!(text(&dates.rfc3339(u64::MAX)[..19]), "9999-12-31T23:59:59");
    }

    #[test]
    fn addresses_are_those_of_the_client() {
        for (given, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("0.10.200.255", "0.10.200.255"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("::1", "::1"),
        ] {
            let mut out = Vec::new();
            address(&mut out, given.parse().expect("an address"));
            assert_eq!(text(&out), shown);
        }
    }

    #[test]
    fn a_cut_takes_no_half_character() {
        assert_eq!(cut(b"abc", 3), b"abc");
        assert_eq!(cut(b"abcd", 3), b"abc");
        assert_eq!(cut("abé".as_bytes(), 3), b"ab");
        assert_eq!(cut("aé€".as_bytes(), 5), "aé".as_bytes());
        assert_eq!(cut("a\u{1f600}b".as_bytes(), 4), b"a");
        assert_eq!(cut("a\u{1f600}b".as_bytes(), 5), "a\u{1f600}".as_bytes());
        assert_eq!(cut(&[0x80; 9], 5), [0x80; 5], "what is no character is cut anywhere");
    }

    #[test]
    fn every_byte_is_made_harmless() {
        for byte in 0..=u8::MAX {
            let kept = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
            assert_eq!(plain(byte), kept, "{byte:#x}");
            let mut out = Vec::new();
            hex_escaped(&mut out, &[b'a', byte]);
            let expected =
                if kept { format!("a{}", byte as char) } else { format!("a\\x{byte:02X}") };
            assert_eq!(text(&out), expected);
            out.clear();
            out.push(b'"');
            json_escaped(&mut out, &[b'a', byte]);
            out.push(b'"');
            let parsed: String = serde_json::from_slice(&out).expect("a string");
            assert_eq!(parsed, format!("a{}", byte as char));
            assert!(out.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", text(&out));
        }
    }

    #[test]
    fn json_keeps_utf8_and_no_end_of_line() {
        let mut out = Vec::new();
        json_escaped(&mut out, "grün €\u{1f600}\u{2028}\u{85}\u{7f}\t\\\"".as_bytes());
        assert_eq!(text(&out), "grün €\u{1f600}\\u2028\\u0085\\u007F\\t\\\\\\\"");
        out.clear();
        json_escaped(&mut out, b"\xff\xc3\xa9\xe2\x82");
        assert_eq!(text(&out), "\\u00FFé\\u00E2\\u0082");
    }
}
