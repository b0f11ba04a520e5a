//! CRC-32C (RFC 4960 appendix B), over a table of 256: headers are short and checksums rare.

/// The sum of all pieces, one behind the other.
pub(super) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let step = |sum: u32, byte: &u8| TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !pieces.iter().copied().flatten().fold(!0, step)
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    /// The polynomial of Castagnoli, lowest bit first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut sum = index as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4.
    #[test]
    fn sums_are_those_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, sum) in [
            (&b"123456789"[..], 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ] {
            assert_eq!(crc32c(&[bytes]), sum);
            assert_eq!(crc32c(&[&bytes[..3], b"", &bytes[3..]]), sum);
        }
    }
}
