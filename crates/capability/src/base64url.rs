//! Secrets as text: base64url (RFC 4648, section 5) without padding. What is made is wiped.

use zeroize::Zeroizing;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The text of some bytes.
pub fn encode(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len().div_ceil(3) * 4));
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

/// The bytes of a text; `None` where there are none. Each run of bytes has exactly one text: bits that
/// are left over must be 0.
pub fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0_u32;
        for byte in chunk {
            let value = ALPHABET.iter().position(|known| known == byte)?;
            word = word << 6 | u32::try_from(value).ok()?;
        }
        let count = match chunk.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        let surplus = 6 * chunk.len() - 8 * count;
        if word & ((1 << surplus) - 1) != 0 {
            return None;
        }
        let word = (word >> surplus) << (8 * (3 - count));
        bytes.extend_from_slice(&word.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff], "-_8"),
        ] {
            assert_eq!(*encode(bytes), text);
            assert_eq!(decode(text).unwrap()[..], *bytes);
        }
        for bad in ["Z", "Zh", "Zm9", "Zg==", "Z+", "Zm9vY"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
