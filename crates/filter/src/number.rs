//! Numbers as text: how they are read, how they are written, how floats are ordered.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// Without the spaces around it.
#[inline]
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

/// An integer: a sign or none, and decimal digits, with spaces around or without. Nothing else, and no
/// number outside of `i64`.
#[inline]
pub(crate) fn parse_int(text: &[u8]) -> Option<i64> {
    let text = trimmed(text);
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() > 18 {
        return parse_long_int(text, digits);
    }
    let (mut value, rest) = match digits.split_first_chunk::<8>() {
        Some((eight, rest)) => (eight_digits(*eight)?, rest),
        None => (0, digits),
    };
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// What eight digits are together; `None` if one of them is none.
#[inline]
fn eight_digits(digits: [u8; 8]) -> Option<i64> {
    const fn each(byte: u8) -> u64 {
        0x0101_0101_0101_0101 * byte as u64
    }
    // The first digit is the lowest byte.
    let word = u64::from_le_bytes(digits);
    let high = |word: u64| word & each(0xf0) == each(0x30);
    if !high(word) || !high(word.wrapping_add(each(0x06))) {
        return None;
    }
    // Neighbours are put together: to pairs, to fours, and to all eight.
    let pairs = (word & each(0x0f)).wrapping_mul((10 << 8) + 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul((100 << 16) + 1) >> 16;
    let eight = (fours & 0x0000_ffff_0000_ffff).wrapping_mul((10_000 << 32) + 1) >> 32;
    Some(eight as i64)
}

#[cold]
fn parse_long_int(text: &[u8], digits: &[u8]) -> Option<i64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Powers of ten that a float holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A float: decimal with or without exponent, or `nan`, `inf` or `infinity` in any case; with a sign or
/// none, and spaces around or none. Too large ones are infinite.
#[inline]
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = trimmed(text);
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // Up to 15 digits are an integer below 2^53, so one division rounds correctly.
    if digits.len() <= 16 && !digits.is_empty() {
        let (mut mantissa, mut point, mut count) = (0_u64, None, 0);
        for (index, &byte) in digits.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                mantissa = mantissa * 10 + u64::from(digit);
                count += 1;
            } else if byte == b'.' && point.is_none() {
                point = Some(index);
            } else {
                return parse_any_float(text);
            }
        }
        if (1..=15).contains(&count) {
            let decimals = point.map_or(0, |point| digits.len() - 1 - point);
            let value = mantissa as f64 / TENS[decimals];
            return Some(if negative { -value } else { value });
        }
    }
    parse_any_float(text)
}

fn parse_any_float(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The order of floats: NaN equals NaN and is greater than all others; the zeros are equal.
#[inline]
pub(crate) fn float_order(left: f64, right: f64) -> Ordering {
    match left.partial_cmp(&right) {
        Some(order) => order,
        None => left.is_nan().cmp(&right.is_nan()),
    }
}

/// The bits of a float, the same for every NaN.
#[inline]
pub(crate) fn float_bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// Text of a number, on the stack.
pub(crate) struct NumberText {
    bytes: [u8; 48],
    length: usize,
}

impl NumberText {
    /// Decimal.
    pub(crate) fn of_int(value: i64) -> NumberText {
        let mut text = NumberText { bytes: [0; 48], length: 0 };
        // 20 characters at most: always fits.
        let _ = write!(text, "{value}");
        text
    }

    /// The shortest that is read back as the same: with a point or an exponent, or `inf`, `-inf`, `NaN`.
    pub(crate) fn of_float(value: f64) -> NumberText {
        let mut text = NumberText { bytes: [0; 48], length: 0 };
        // 17 digits, sign, point and exponent at most: always fits.
        let _ = write!(text, "{value:?}");
        text
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl std::fmt::Write for NumberText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len());
        room.ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+7", Some(7)),
            (" 12 ", Some(12)),
            (" ", None),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("1.0", None),
            ("1e3", None),
            ("0x10", None),
            ("1 2", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("0000000000000000000000012", Some(12)),
            ("+0000000000000000000000012", Some(12)),
            ("1234567890123456789x", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn eight_digits_are_a_number(bytes in prop::array::uniform8(prop_oneof![9 => b'0'..=b'9', 1 => any::<u8>()])) {
            let slowly = bytes.iter().try_fold(0, |value, byte| {
                byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
            });
            prop_assert_eq!(eight_digits(bytes), slowly);
        }

        #[test]
        fn integers_of_any_length_are_what_the_standard_library_reads(text in "[+-]?[0-9]{1,18}[x/:]?[0-9]{0,3}") {
            prop_assert_eq!(parse_int(text.as_bytes()), text.parse().ok());
        }
    }

    #[test]
    fn floats() {
        for (text, value) in [
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("-1.25", Some(-1.25)),
            ("+1", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("Infinity", Some(f64::INFINITY)),
            (" 2 ", Some(2.0)),
            (".", None),
            ("", None),
            ("-", None),
            ("1_0", None),
            ("e1", None),
            ("1e", None),
            ("1.2.3", None),
        ] {
            assert_eq!(parse_float(text.as_bytes()), value, "{text:?}");
        }
        assert!(parse_float(b"nan").is_some_and(f64::is_nan));
        assert!(parse_float(b"-0").is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
    }

    proptest! {
        #[test]
        fn as_the_standard_library(value in any::<i64>(), digits in "-?[0-9]{1,12}\\.?[0-9]{0,9}") {
            prop_assert_eq!(parse_int(NumberText::of_int(value).as_bytes()), Some(value));
            prop_assert_eq!(parse_float(digits.as_bytes()), digits.parse().ok());
        }

        #[test]
        fn floats_are_read_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let back = parse_float(NumberText::of_float(value).as_bytes()).unwrap();
            prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
        }
    }
}
