//! Exact sums of floats: a fixed-point number that is wide enough for every finite one. So a sum does not
//! depend on the order in which it is made, nor on how it is cut, and is rounded once, at its end.

/// Words of 64 bits: 2098 for the bits of all finite floats, 64 for the carries of 2^64 of them, a sign.
const LIMBS: usize = 34;

/// Words of a sum: the number in two's complement, lowest first, and which of NaN, infinity and minus
/// infinity were added.
pub(crate) const SUM_WORDS: usize = LIMBS + 1;

const NAN: u64 = 1;
const INFINITY: u64 = 2;
const MINUS_INFINITY: u64 = 4;

/// Adds a float to a sum of [`SUM_WORDS`] words, which begins as zeros.
#[inline]
pub(crate) fn add(sum: &mut [u64], value: f64) {
    let Some(sum) = sum.first_chunk_mut::<SUM_WORDS>() else {
        return;
    };
    let bits = value.to_bits();
    let exponent = (bits >> 52) & 0x7ff;
    if exponent == 0x7ff {
        sum[LIMBS] |= match (value.is_nan(), value > 0.0) {
            (true, _) => NAN,
            (false, true) => INFINITY,
            (false, false) => MINUS_INFINITY,
        };
        return;
    }
    let fraction = bits & ((1 << 52) - 1);
    let mantissa = if exponent == 0 { fraction } else { fraction | (1 << 52) };
    // Bit 0 of the sum is the least subnormal.
    let shift = exponent.saturating_sub(1);
    let limb = (shift / 64) as usize;
    let wide = u128::from(mantissa) << (shift % 64);
    let (low, high) = (wide as u64, (wide >> 64) as u64);
    if value.is_sign_negative() {
        let (word, borrow) = subtract_with(sum[limb], low, false);
        sum[limb] = word;
        let (word, mut borrow) = subtract_with(sum[limb + 1], high, borrow);
        sum[limb + 1] = word;
        for word in &mut sum[limb + 2..LIMBS] {
            if !borrow {
                break;
            }
            (*word, borrow) = word.overflowing_sub(1);
        }
    } else {
        let (word, carry) = add_with(sum[limb], low, false);
        sum[limb] = word;
        let (word, mut carry) = add_with(sum[limb + 1], high, carry);
        sum[limb + 1] = word;
        for word in &mut sum[limb + 2..LIMBS] {
            if !carry {
                break;
            }
            (*word, carry) = word.overflowing_add(1);
        }
    }
}

/// `left + right + carry`, and the carry out of it.
#[inline]
fn add_with(left: u64, right: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = left.overflowing_add(right);
    let (sum, second) = sum.overflowing_add(u64::from(carry));
    (sum, first | second)
}

/// `left - right - borrow`, and the borrow out of it.
#[inline]
fn subtract_with(left: u64, right: u64, borrow: bool) -> (u64, bool) {
    let (rest, first) = left.overflowing_sub(right);
    let (rest, second) = rest.overflowing_sub(u64::from(borrow));
    (rest, first | second)
}

/// Adds a sum to another.
pub(crate) fn merge(sum: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (word, other) in sum[..LIMBS].iter_mut().zip(&other[..LIMBS]) {
        (*word, carry) = add_with(*word, *other, carry);
    }
    sum[LIMBS] |= other[LIMBS];
}

/// The float nearest to a sum; of two equally near ones the even one.
pub(crate) fn round(sum: &[u64]) -> f64 {
    let special = sum[LIMBS];
    match special {
        0 => {}
        INFINITY => return f64::INFINITY,
        MINUS_INFINITY => return f64::NEG_INFINITY,
        _ => return f64::NAN,
    }
    let mut words = [0_u64; LIMBS];
    words.copy_from_slice(&sum[..LIMBS]);
    let negative = words[LIMBS - 1] >> 63 == 1;
    if negative {
        let mut carry = true;
        for word in &mut words {
            (*word, carry) = add_with(!*word, 0, carry);
        }
    }
    let Some(top) = words.iter().rposition(|word| *word != 0) else {
        return 0.0;
    };
    let highest = top * 64 + 63 - words[top].leading_zeros() as usize;
    let magnitude = if highest <= 52 {
        // Subnormal or the least of the normal ones: the bits of the float itself.
        f64::from_bits(words[0])
    } else {
        rounded(&words, highest - 52)
    };
    if negative { -magnitude } else { magnitude }
}

/// The 53 bits of `words` from bit `shift` on, which hold the highest one, rounded by those below.
fn rounded(words: &[u64; LIMBS], shift: usize) -> f64 {
    let bit = |at: usize| (words[at / 64] >> (at % 64)) & 1;
    let low = words[shift / 64] >> (shift % 64);
    let high = match shift % 64 {
        0 => 0,
        part => words.get(shift / 64 + 1).map_or(0, |word| word << (64 - part)),
    };
    let mantissa = (low | high) & ((1 << 53) - 1);
    let half = shift - 1;
    let below = words[..half / 64].iter().any(|word| *word != 0)
        || words[half / 64] & ((1 << (half % 64)) - 1) != 0;
    let up = bit(half) == 1 && (below || mantissa & 1 == 1);
    // A carry out of the mantissa is one more in the exponent, as it should be.
    let bits = ((shift as u64) << 52) + mantissa + u64::from(up);
    if bits >= 0x7ff << 52 { f64::INFINITY } else { f64::from_bits(bits) }
}

/// The words of a sum that are neither zeros at its lower end nor copies of the sign at its upper end.
pub(crate) fn significant(sum: &[u64]) -> std::ops::Range<usize> {
    let sign = if sum[LIMBS - 1] >> 63 == 1 { u64::MAX } else { 0 };
    let end = sum[..LIMBS].iter().rposition(|word| *word != sign).map_or(0, |last| last + 1);
    let start = sum[..end].iter().position(|word| *word != 0).unwrap_or(end);
    start..end
}

/// Whether a sum is below zero.
pub(crate) fn is_negative(sum: &[u64]) -> bool {
    sum[LIMBS - 1] >> 63 == 1
}

/// A sum of its significant words. `None` if they are too many, or the marks are unknown.
pub(crate) fn expand(
    start: usize,
    words: &[u64],
    negative: bool,
    special: u64,
) -> Option<[u64; SUM_WORDS]> {
    let mut sum = [0; SUM_WORDS];
    let end = start.checked_add(words.len()).filter(|end| *end <= LIMBS)?;
    sum[start..end].copy_from_slice(words);
    if negative {
        sum[end..LIMBS].fill(u64::MAX);
    }
    sum[LIMBS] = special;
    (special <= 7).then_some(sum)
}

/// The marks of what is no number.
pub(crate) fn special(sum: &[u64]) -> u64 {
    sum[LIMBS]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum_of(values: &[f64]) -> [u64; SUM_WORDS] {
        let mut sum = [0; SUM_WORDS];
        values.iter().for_each(|value| add(&mut sum, *value));
        sum
    }

    #[test]
    fn known_sums() {
        let least = f64::from_bits(1);
        for (values, expected) in [
            (&[][..], 0.0),
            (&[1e100, 1.0, -1e100], 1.0),
            (&[0.1; 10], 1.0),
            (&[f64::MAX, f64::MAX], f64::INFINITY),
            (&[f64::MAX, f64::MAX, -f64::MAX], f64::MAX),
            (&[-f64::MAX, -f64::MAX], f64::NEG_INFINITY),
            (&[least, least], f64::from_bits(2)),
            (&[-least], -least),
            (&[f64::MIN_POSITIVE, -least], f64::from_bits(f64::MIN_POSITIVE.to_bits() - 1)),
            // Halves go to the even one, and anything below decides.
            (&[9007199254740992.0, 1.0], 9007199254740992.0),
            (&[9007199254740992.0, 1.0, least], 9007199254740994.0),
            (&[9007199254740994.0, 1.0], 9007199254740996.0),
            (&[-9007199254740992.0, -1.0, -least], -9007199254740994.0),
            (&[f64::INFINITY, 1.0], f64::INFINITY),
        ] {
            assert_eq!(round(&sum_of(values)), expected, "{values:?}");
        }
        assert!(round(&sum_of(&[f64::INFINITY, f64::NEG_INFINITY])).is_nan());
        assert!(round(&sum_of(&[f64::NAN])).is_nan());
    }

    proptest! {
        #[test]
        fn two_are_added_as_the_processor_does(left in any::<f64>(), right in any::<f64>()) {
            let (sum, expected) = (round(&sum_of(&[left, right])), left + right);
            prop_assert!(sum == expected || (sum.is_nan() && expected.is_nan()));
        }

        #[test]
        fn order_and_cuts_do_not_matter(
            mut values in proptest::collection::vec(any::<f64>(), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = sum_of(&values);
            let (left, right) = values.split_at(cut.index(values.len() + 1));
            let (mut left, right) = (sum_of(left), sum_of(right));
            merge(&mut left, &right);
            prop_assert_eq!(left, whole);
            values.reverse();
            prop_assert_eq!(sum_of(&values), whole);
            let range = significant(&whole);
            let back = expand(range.start, &whole[range], is_negative(&whole), special(&whole));
            prop_assert_eq!(back, Some(whole));
        }

        #[test]
        fn alone_it_is_itself(value in any::<f64>()) {
            let sum = round(&sum_of(&[value]));
            prop_assert!(sum == value || (sum.is_nan() && value.is_nan()));
        }
    }
}
