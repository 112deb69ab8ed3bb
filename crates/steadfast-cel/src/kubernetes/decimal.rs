//! Exact decimal numbers.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

/// Decimal number: `digits` times ten to the power of `exponent`.
///
/// The digits of a number have neither leading nor trailing zeros, and zero has no digits. A large exponent takes no
/// memory.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    is_negative: bool,
    digits: Arc<[u8]>,
    exponent: i64,
    /// Number of digits after the point in the representation of the Go library. The rounding of floats depends on
    /// this number.
    scale: i64,
}

/// Returns a length as a signed number. No length in memory exceeds the range.
pub(super) fn length_as_i64(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

impl Decimal {
    /// Creates a number from its digits, as numbers from 0 to 9.
    pub(super) fn new(is_negative: bool, digits: &[u8], exponent: i64, scale: i64) -> Self {
        let start = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
        let end = digits.iter().rposition(|digit| *digit != 0).map_or(start, |last| last + 1);
        let trailing_zeros = length_as_i64(digits.len() - end);
        let digits: Arc<[u8]> = Arc::from(digits.get(start..end).unwrap_or_default());
        if digits.is_empty() {
            // Zero has no sign, so that `-0` and `0` are equal.
            return Self { is_negative: false, digits, exponent: 0, scale };
        }
        Self { is_negative, digits, exponent: exponent.saturating_add(trailing_zeros), scale }
    }

    /// Creates `value` times ten to the power of `exponent`.
    pub(super) fn from_scaled(value: i64, exponent: i64) -> Self {
        let digits: Vec<u8> = value.unsigned_abs().to_string().bytes().map(|byte| byte - b'0').collect();
        Self::new(value < 0, &digits, exponent, -exponent)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// Returns the number of digits in memory.
    pub(super) fn len(&self) -> usize {
        self.digits.len()
    }

    pub(super) fn negated(&self) -> Self {
        Self { is_negative: !self.is_negative && !self.is_zero(), ..self.clone() }
    }

    /// Compares two numbers. Reads the digits of the shorter number at most.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return if other.is_negative { Ordering::Greater } else { Ordering::Less },
            (false, true) => return if self.is_negative { Ordering::Less } else { Ordering::Greater },
            (false, false) => {}
        }
        match (self.is_negative, other.is_negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.magnitude_order(other),
            (true, true) => other.magnitude_order(self),
        }
    }

    fn magnitude_order(&self, other: &Self) -> Ordering {
        // Position of the first digit. Digits without trailing zeros compare like text: a longer number is larger.
        let top_position = |number: &Self| number.exponent.saturating_add(length_as_i64(number.digits.len()));
        top_position(self).cmp(&top_position(other)).then_with(|| self.digits.cmp(&other.digits))
    }

    /// Returns the number of digits that [`sum`](Self::sum) builds.
    pub(super) fn sum_len(&self, other: &Self) -> u64 {
        if self.is_zero() || other.is_zero() {
            return self.digits.len().max(other.digits.len()) as u64;
        }
        let top_position = |number: &Self| number.exponent.saturating_add(length_as_i64(number.digits.len()));
        let top_position = top_position(self).max(top_position(other));
        top_position.saturating_sub(self.exponent.min(other.exponent)).unsigned_abs().saturating_add(1)
    }

    /// Adds two numbers. Takes memory in proportion to [`sum_len`](Self::sum_len), which the caller must bound.
    pub(super) fn sum(&self, other: &Self) -> Self {
        // Go's `inf.Dec` keeps the larger scale of the operands, even if the digits after the point are zeros.
        let scale = self.scale.max(other.scale);
        if self.is_zero() {
            return Self { scale, ..other.clone() };
        }
        if other.is_zero() {
            return Self { scale, ..self.clone() };
        }
        let exponent = self.exponent.min(other.exponent);
        let len = usize::try_from(self.sum_len(other)).unwrap_or(0);
        // Subtracting the smaller magnitude from the larger never borrows beyond the first digit.
        let (larger, smaller) = if self.magnitude_order(other).is_ge() { (self, other) } else { (other, self) };
        let mut digits = larger.aligned(exponent, len);
        let smaller_digits = smaller.aligned(exponent, len);
        let is_sum = larger.is_negative == smaller.is_negative;
        let mut carry = 0_i8;
        for (digit, other) in digits.iter_mut().zip(&smaller_digits).rev() {
            let (one, other) = (digit.cast_signed(), other.cast_signed());
            let result = if is_sum { one + other + carry } else { one - other - carry };
            // A digit outside of 0 to 9 carries into the next position for sums, and borrows for differences.
            carry = i8::from(!(0..10).contains(&result));
            *digit = result.rem_euclid(10).cast_unsigned();
        }
        Self::new(larger.is_negative, &digits, exponent, scale)
    }

    /// Returns `len` digits of the number as a multiple of ten to the power of `exponent`.
    fn aligned(&self, exponent: i64, len: usize) -> Vec<u8> {
        let zeros = usize::try_from(self.exponent.saturating_sub(exponent)).unwrap_or(0);
        let start = len.saturating_sub(zeros).saturating_sub(self.digits.len());
        let mut digits = vec![0; len];
        for (target, digit) in digits.iter_mut().skip(start).zip(self.digits.iter()) {
            *target = *digit;
        }
        digits
    }

    /// Multiplies by two to the power of `bits`. `bits` is at most 64.
    pub(super) fn shifted(&self, bits: u32) -> Self {
        // The factor has at most 65 bits, so the product with a digit plus the carry fits 128 bits.
        let factor = 1_u128 << bits.min(64);
        let mut reversed = Vec::with_capacity(self.digits.len() + 20);
        let mut carry = 0_u128;
        for digit in self.digits.iter().rev() {
            let product = u128::from(*digit) * factor + carry;
            reversed.push((product % 10) as u8);
            carry = product / 10;
        }
        while carry > 0 {
            reversed.push((carry % 10) as u8);
            carry /= 10;
        }
        reversed.reverse();
        Self::new(self.is_negative, &reversed, self.exponent, self.scale)
    }

    /// Rounds away from zero to `scale` digits after the point.
    pub(super) fn rounded_away_from_zero(&self, scale: i64) -> Self {
        let excess = (-scale).saturating_sub(self.exponent);
        if self.is_zero() || excess <= 0 {
            return Self { scale, ..self.clone() };
        }
        let kept_digits =
            usize::try_from(excess).ok().and_then(|excess| self.digits.len().checked_sub(excess)).unwrap_or(0);
        let whole = Self::new(self.is_negative, self.digits.get(..kept_digits).unwrap_or_default(), -scale, scale);
        // The digits have no trailing zeros, so the dropped part is not zero.
        whole.sum(&Self::new(self.is_negative, &[1], -scale, scale))
    }

    /// Returns an approximation of the number as a float. Like the Go library, it rounds twice, so the result may not
    /// be the nearest float.
    pub(super) fn approximate(&self) -> f64 {
        let mut text = String::with_capacity(self.digits.len() + 24);
        text.push_str(if self.is_negative { "-0" } else { "0" });
        text.extend(self.digits.iter().map(|digit| char::from(b'0' + digit)));
        let _ = write!(text, "e{}", self.exponent.saturating_add(self.scale));
        let base = text.parse().unwrap_or_default();
        scaled(base, self.scale.saturating_neg())
    }
}

/// Multiplies a float by a power of ten, as the Go library does.
pub(super) fn scaled(base: f64, exponent: i64) -> f64 {
    // Go computes a power of ten from two tables.
    let power = |exponent: i64| format!("1e{exponent}").parse::<f64>().unwrap_or_default();
    match exponent {
        0 => base,
        1..=308 => base * (power(exponent / 32 * 32) * power(exponent % 32)),
        -323..=-1 => base * (power(exponent / 32 * 32) / power(-exponent % 32)),
        309.. => base * f64::INFINITY,
        _ => base * 0.0,
    }
}
