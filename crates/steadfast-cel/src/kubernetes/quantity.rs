//! Quantities: numbers with a suffix, such as `1500m` and `2Gi`.

use std::cmp::Ordering;

use super::decimal::{Decimal, length_as_i64, scaled};

/// Number of digits after the point that a quantity keeps.
const NANO_SCALE: i64 = 9;
/// Number of decimal digits that always fit an `i64`.
const MAX_INT64_DIGITS: usize = 18;
/// Requirement of a quantity's text.
pub(crate) const QUANTITY_SYNTAX: &str = "a quantity is a number with an optional suffix, such as `1500m` or `2Gi`";

/// Quantity of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Quantity(Amount);

/// Representation of the Go library. Only an `Int64` can be an integer for `isInteger` and `asInteger`.
#[derive(Clone, Debug)]
enum Amount {
    /// `value` times ten to the power of `exponent`.
    Int64 {
        value: i64,
        exponent: i64,
    },
    Decimal(Decimal),
}

/// Parts of a quantity's text.
struct Parts<'t> {
    is_negative: bool,
    whole: &'t str,
    fraction: &'t str,
    has_digits: bool,
    suffix: &'t str,
}

/// Returns the value of a Kubernetes quantity, such as `250m` or `512Mi`, as the nearest float. Returns `None` if `text`
/// is not a quantity, or if its value is too large for a float.
///
/// ```
/// assert_eq!(steadfast_cel::quantity_value("250m"), Some(0.25));
/// assert_eq!(steadfast_cel::quantity_value("1Ki"), Some(1024.0));
/// assert_eq!(steadfast_cel::quantity_value("many"), None);
/// ```
pub fn quantity_value(text: &str) -> Option<f64> {
    Quantity::parse(text).map(|quantity| quantity.approximate()).filter(|value| value.is_finite())
}

impl Quantity {
    /// Parses a quantity as a real server does: strings such as `.` and `-` are zero.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let parts = split_parts(text)?;
        let (is_binary, exponent) = parse_suffix(parts.suffix)?;
        // The Go library stores small numbers as `int64` and others as `inf.Dec`. `isInteger` and rounding depend on
        // the representation.
        Self::parse_fast(&parts, is_binary, exponent).or_else(|| Self::parse_exact(&parts, is_binary, exponent))
    }

    /// Creates a quantity of an integer.
    pub(crate) fn from_integer(value: i64) -> Self {
        Self(Amount::Int64 { value, exponent: 0 })
    }

    fn parse_fast(parts: &Parts, is_binary: bool, exponent: i64) -> Option<Self> {
        let digits = parts.whole.len() + parts.fraction.len();
        let (mantissa, scale) = if is_binary {
            // 2^10 has about three decimal digits.
            let shift = u32::try_from(exponent).ok()?;
            let digits = digits + usize::try_from(shift * 3 / 10).ok()? + 1;
            // The limit of the fast path in the Go parser: about 15 decimal digits for value and mantissa together.
            if !parts.fraction.is_empty() || digits > 15 {
                return None;
            }
            (1_i64 << shift.min(62), 0)
        } else {
            (1, exponent)
        };
        let scale = scale - length_as_i64(parts.fraction.len());
        if digits > MAX_INT64_DIGITS || scale < -NANO_SCALE {
            return None;
        }
        let text = [parts.whole, parts.fraction].concat();
        // Overflow is not an error here: the exact representation takes over.
        let value = text.parse::<i64>().ok()?.checked_mul(mantissa)?;
        Some(Self(Amount::Int64 { value: if parts.is_negative { -value } else { value }, exponent: scale }))
    }

    fn parse_exact(parts: &Parts, is_binary: bool, exponent: i64) -> Option<Self> {
        if !parts.has_digits {
            return None;
        }
        let digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|byte| byte - b'0').collect();
        let fraction_digits = length_as_i64(parts.fraction.len());
        let mut amount = if is_binary {
            Decimal::new(false, &digits, -fraction_digits, fraction_digits).shifted(u32::try_from(exponent).ok()?)
        } else {
            Decimal::new(false, &digits, exponent - fraction_digits, fraction_digits - exponent)
        };
        // Quantities round up to nano units, so that a request is never rounded down to zero.
        if !amount.is_zero() {
            amount = amount.rounded_away_from_zero(NANO_SCALE);
        }
        let largest = Decimal::from_scaled(i64::MAX, 0);
        // Binary suffixes saturate at the largest `int64`; decimal suffixes do not.
        if is_binary && amount.order(&largest).is_gt() {
            amount = largest;
        }
        Some(Self(Amount::Decimal(if parts.is_negative { amount.negated() } else { amount })))
    }

    fn decimal(&self) -> Decimal {
        match &self.0 {
            Amount::Int64 { value, exponent } => Decimal::from_scaled(*value, *exponent),
            Amount::Decimal(decimal) => decimal.clone(),
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Amount::Int64 { .. } => 16,
            Amount::Decimal(decimal) => decimal.len() + 16,
        }
    }

    /// Compares two quantities by their amounts.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.decimal().order(&other.decimal())
    }

    /// Returns the sign: -1, 0 or 1.
    pub(crate) fn sign(&self) -> i64 {
        match &self.0 {
            Amount::Int64 { value, .. } => value.signum(),
            Amount::Decimal(decimal) if decimal.is_zero() => 0,
            Amount::Decimal(decimal) => {
                if decimal.is_negative() {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Returns the amount as an integer, unless a conversion loses precision. As in Go, an amount that is stored as a
    /// decimal number is never an integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        match &self.0 {
            Amount::Int64 { value, exponent } => multiplied(*value, *exponent),
            Amount::Decimal(_) => None,
        }
    }

    /// Returns the nearest float.
    pub(crate) fn approximate(&self) -> f64 {
        match &self.0 {
            Amount::Int64 { value, exponent } => scaled(*value as f64, *exponent),
            Amount::Decimal(decimal) => decimal.approximate(),
        }
    }

    /// Returns the negative quantity.
    pub(crate) fn negated(&self) -> Self {
        match &self.0 {
            Amount::Int64 { value, exponent } => match value.checked_neg() {
                Some(value) => Self(Amount::Int64 { value, exponent: *exponent }),
                // The negative of the smallest `int64` needs the exact representation.
                None => Self(Amount::Decimal(self.decimal().negated())),
            },
            Amount::Decimal(decimal) => Self(Amount::Decimal(decimal.negated())),
        }
    }

    /// Returns the number of digits that [`sum`](Self::sum) may build.
    pub(crate) fn sum_len(&self, other: &Self) -> u64 {
        if self.fast_sum(other).is_some() { 16 } else { self.decimal().sum_len(&other.decimal()) }
    }

    /// Adds two quantities. Takes memory in proportion to [`sum_len`](Self::sum_len), which the caller must bound.
    pub(crate) fn sum(&self, other: &Self) -> Self {
        let sum = self.fast_sum(other).unwrap_or_else(|| Amount::Decimal(self.decimal().sum(&other.decimal())));
        Self(sum)
    }

    fn fast_sum(&self, other: &Self) -> Option<Amount> {
        let (
            Amount::Int64 { value: one, exponent: one_exponent },
            Amount::Int64 { value: other, exponent: other_exponent },
        ) = (&self.0, &other.0)
        else {
            return None;
        };
        // If one operand is zero, Go returns the other operand unchanged, with its exponent.
        if *other == 0 {
            return Some(self.0.clone());
        }
        if *one == 0 {
            return Some(Amount::Int64 { value: *other, exponent: *other_exponent });
        }
        let exponent = *one_exponent.min(other_exponent);
        let value =
            multiplied(*one, one_exponent - exponent)?.checked_add(multiplied(*other, other_exponent - exponent)?)?;
        Some(Amount::Int64 { value, exponent })
    }
}

/// Multiplies by a power of ten; `None` beyond the range, and for a negative power.
fn multiplied(value: i64, exponent: i64) -> Option<i64> {
    if value == 0 && exponent >= 0 {
        return Some(0);
    }
    value.checked_mul(10_i64.checked_pow(u32::try_from(exponent).ok()?)?)
}

/// Splits a quantity's text; `None` for characters that are neither part of a number nor of a suffix.
fn split_parts(text: &str) -> Option<Parts<'_>> {
    let is_negative = text.starts_with('-');
    let signless = text.strip_prefix(['-', '+']).unwrap_or(text);
    // Leading zeros do not count as digits for the fast path.
    let stripped = signless.trim_start_matches('0');
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = stripped.split_at(digits(stripped));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let has_digits = stripped.len() < signless.len() || !whole.is_empty() || !fraction.is_empty();
    let whole = if whole.is_empty() { "0" } else { whole };
    // All letters of suffixes are skipped together. Combinations that do not exist fail later in `parse_suffix`.
    let exponent = suffix.trim_start_matches(|character| "eEinumkKMGTP".contains(character));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let has_integer_exponent = exponent.bytes().all(|byte| byte.is_ascii_digit());
    has_integer_exponent.then_some(Parts { is_negative, whole, fraction, has_digits, suffix })
}

/// Returns whether a suffix is binary, and its exponent.
fn parse_suffix(text: &str) -> Option<(bool, i64)> {
    let decimal = |exponent| Some((false, exponent));
    match text {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some((true, 10)),
        "Mi" => Some((true, 20)),
        "Gi" => Some((true, 30)),
        "Ti" => Some((true, 40)),
        "Pi" => Some((true, 50)),
        "Ei" => Some((true, 60)),
        _ => {
            let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
            // A real server keeps 32 bits of the exponent.
            decimal(i64::from(exponent as i32))
        }
    }
}
