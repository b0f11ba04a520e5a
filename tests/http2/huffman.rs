//! The Huffman code of RFC 7541 appendix B. It is canonical: the lengths alone say the codes.

use std::sync::LazyLock;

/// Writes bytes in the code, padded with the first bits of EOS.
pub fn encode(text: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u64, 0);
    for &byte in text {
        let (code, length) = CODES[usize::from(byte)];
        bits = bits << length | u64::from(code);
        count += u32::from(length);
        while count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).expect("eight bits"));
        }
    }
    if count > 0 {
        let padded = bits << (8 - count) | (0xff >> count);
        out.push(u8::try_from(padded & 0xff).expect("eight bits"));
    }
    out
}

/// Reads the code; says what is wrong with it, section 5.2.
pub fn decode(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (mut out, mut code, mut length) = (Vec::new(), 0_u32, 0_u8);
    for at in 0..bytes.len() * 8 {
        code = code << 1 | u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
        length += 1;
        match CODES.iter().position(|known| *known == (code, length)) {
            Some(EOS) => return Err("EOS inside a string"),
            Some(symbol) => {
                out.push(u8::try_from(symbol).expect("EOS is the only symbol beyond a byte"));
                (code, length) = (0, 0);
            }
            None => {}
        }
    }
    if length > 7 {
        return Err("more than seven bits of padding");
    }
    if code != (1 << length) - 1 {
        return Err("padding that is not the beginning of EOS");
    }
    Ok(out)
}

/// The symbol that must not stand in a string.
pub const EOS: usize = 256;

/// Code and length of every symbol.
static CODES: LazyLock<Vec<(u32, u8)>> = LazyLock::new(|| {
    let mut order: Vec<usize> = (0..LENGTHS.len()).collect();
    order.sort_by_key(|&symbol| (LENGTHS[symbol], symbol));
    let mut codes = vec![(0, 0); LENGTHS.len()];
    let (mut next, mut before) = (0_u32, 0);
    for symbol in order {
        next <<= LENGTHS[symbol] - before;
        codes[symbol] = (next, LENGTHS[symbol]);
        (next, before) = (next + 1, LENGTHS[symbol]);
    }
    codes
});

/// Bits of the code of every byte, and of EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// RFC 7541 appendix C.4 and C.6.
#[test]
fn the_code_is_that_of_the_examples() {
    let examples: [(&[u8], &[u8]); 3] = [
        (b"www.example.com", b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"),
        (b"no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
        (b"302", b"\x64\x02"),
    ];
    for (text, code) in examples {
        assert_eq!(encode(text), code);
        assert_eq!(decode(code).as_deref(), Ok(text));
    }
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(decode(&encode(&all)), Ok(all));
}

/// RFC 7541 section 5.2.
#[test]
fn wrong_padding_and_eos_are_told() {
    assert!(decode(b"\x64\x02\xff").is_err(), "a byte of padding");
    assert!(decode(b"\x1e").is_err(), "a zero among the padding");
    assert!(decode(b"\xff\xff\xff\xff").is_err(), "EOS");
}
