//! Equality and order of values.

use std::cmp::Ordering;

use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::time::nanos_until_flip;
use crate::value::{CelList, CelValue, ItemIdentity};

/// Maximum nesting of values that are compared or converted.
pub(crate) const MAX_VALUE_DEPTH: usize = 256;

/// Returns whether two values are equal. Values of different types are unequal, except for numbers.
///
/// # Errors
///
/// Returns [`CelErrorKind::BudgetExceeded`] if the budget of `meter` has too few units left, and
/// [`CelErrorKind::TooDeep`] for values nested more than 256 levels deep.
pub fn equal<'a>(one: &CelValue<'a>, other: &CelValue<'a>, meter: &mut Meter) -> Result<bool, CelErrorKind> {
    equal_within(one, other, meter, MAX_VALUE_DEPTH)
}

fn equal_within<'a>(
    one: &CelValue<'a>,
    other: &CelValue<'a>,
    meter: &mut Meter,
    depth: usize,
) -> Result<bool, CelErrorKind> {
    let Some(depth) = depth.checked_sub(1) else { return Err(CelErrorKind::TooDeep(MAX_VALUE_DEPTH)) };
    meter.charge(1)?;
    Ok(match (one, other) {
        (CelValue::Null, CelValue::Null) => true,
        (CelValue::Bool(one), CelValue::Bool(other)) => one == other,
        (CelValue::String(one), CelValue::String(other)) => {
            if one.len() != other.len() {
                // Unequal lengths decide without reading, so the comparison costs nothing beyond the step.
                return Ok(false);
            }
            meter.charge_bytes(one.len())?;
            **one == **other
        }
        (CelValue::Bytes(one), CelValue::Bytes(other)) => {
            meter.charge_bytes(one.len().min(other.len()))?;
            one == other
        }
        (CelValue::Type(one), CelValue::Type(other)) => one == other,
        (CelValue::Timestamp(_), CelValue::Timestamp(_)) | (CelValue::Duration(_), CelValue::Duration(_)) => {
            // Equality with a time that advances also changes, so `now == t` must schedule a re-check.
            order_holds(one, other, meter, Ordering::is_eq)?.unwrap_or(false)
        }
        (CelValue::List(one), CelValue::List(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            // As on a real server, only the identity of the left list counts. A list literal has none.
            if *one.identity() != ItemIdentity::Position {
                return equal_ignoring_order(one, other, meter, depth);
            }
            for (one, other) in one.iter().zip(other.iter()) {
                if !equal_within(&one, &other, meter, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        (CelValue::Map(one), CelValue::Map(other)) => {
            // The length can depend on null fields, so counting takes time in proportion to the number of fields.
            meter.charge((one.max_len() + other.max_len()) as u64)?;
            if one.len() != other.len() {
                return Ok(false);
            }
            for (key, value) in one.entries() {
                let Some(counterpart) = other.get(&key) else { return Ok(false) };
                if !equal_within(&value, &counterpart, meter, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        (CelValue::Extension(one), CelValue::Extension(other)) => {
            meter.charge_bytes(one.comparison_bytes().min(other.comparison_bytes()))?;
            one.is_equal(other)
        }
        // Reading an invalid value is an error, and a comparison reads both operands.
        (CelValue::Invalid(reason), _) | (_, CelValue::Invalid(reason)) => {
            return Err(CelErrorKind::Unavailable((*reason).to_owned()));
        }
        (CelValue::Optional(one), CelValue::Optional(other)) => match (one, other) {
            (None, None) => true,
            (Some(one), Some(other)) => equal_within(one, other, meter, depth)?,
            _ => false,
        },
        // Numbers compare by value across `int`, `uint` and `double`. NaN has no order and is equal to nothing, itself
        // included.
        _ => number_order(one, other).flatten() == Some(Ordering::Equal),
    })
}

/// Returns whether each item of `other` equals an item of `one`, which is a set or a list that is a map.
fn equal_ignoring_order<'a>(
    one: &CelList<'a>,
    other: &CelList<'a>,
    meter: &mut Meter,
    depth: usize,
) -> Result<bool, CelErrorKind> {
    // As on a real server, the result depends on the order of the operands if a list has duplicates. Such lists must
    // have none.
    // The time is quadratic, as on a real server. Each comparison is charged, so the budget bounds the time.
    for item in other.iter() {
        let mut is_found = false;
        for counterpart in one.iter() {
            if equal_within(&item, &counterpart, meter, depth)? {
                is_found = true;
                break;
            }
        }
        if !is_found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether two items are the same item by the identity of their lists.
pub(crate) fn is_same_item<'a>(
    identity: &ItemIdentity,
    one: &CelValue<'a>,
    other: &CelValue<'a>,
    meter: &mut Meter,
) -> Result<bool, CelErrorKind> {
    let ItemIdentity::Fields(names) = identity else { return equal(one, other, meter) };
    let (CelValue::Map(one), CelValue::Map(other)) = (one, other) else { return Ok(false) };
    for name in names.iter() {
        let is_same = match (one.field(name), other.field(name)) {
            (Some(one), Some(other)) => equal(&one, &other, meter)?,
            // Two objects that both lack a key field agree on the field, as in the merge key of an associative list.
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the result of `holds` for the order of two values; `None` if their types have no order.
pub(crate) fn order_holds<'a>(
    one: &CelValue<'a>,
    other: &CelValue<'a>,
    meter: &mut Meter,
    holds: fn(Ordering) -> bool,
) -> Result<Option<bool>, CelErrorKind> {
    let order = match (one, other) {
        (CelValue::Bool(one), CelValue::Bool(other)) => one.cmp(other),
        (CelValue::String(one), CelValue::String(other)) => {
            meter.charge_bytes(one.len().min(other.len()))?;
            // UTF-8 orders as code points do.
            (**one).cmp(&**other)
        }
        (CelValue::Bytes(one), CelValue::Bytes(other)) => {
            meter.charge_bytes(one.len().min(other.len()))?;
            one.cmp(other)
        }
        (CelValue::Timestamp(one), CelValue::Timestamp(other)) => {
            // The clock rates determine how the difference changes. A comparison with `now` therefore flips at a
            // computable time.
            let difference = one.instant.as_nanosecond() - other.instant.as_nanosecond();
            meter.recheck_after(nanos_until_flip(difference, one.clock_rate.saturating_sub(other.clock_rate), holds));
            difference.cmp(&0)
        }
        (CelValue::Duration(one), CelValue::Duration(other)) => {
            let difference = one.length.as_nanos() - other.length.as_nanos();
            meter.recheck_after(nanos_until_flip(difference, one.clock_rate.saturating_sub(other.clock_rate), holds));
            difference.cmp(&0)
        }
        // No comparison holds with NaN.
        _ => return Ok(number_order(one, other).map(|order| order.is_some_and(holds))),
    };
    Ok(Some(holds(order)))
}

/// Returns the order of two numbers of any types. The outer `None`: an operand is not a number. The inner `None`: NaN.
#[expect(clippy::option_option, reason = "two reasons without an order")]
fn number_order(one: &CelValue, other: &CelValue) -> Option<Option<Ordering>> {
    Some(match (one, other) {
        (CelValue::Int(one), CelValue::Int(other)) => Some(one.cmp(other)),
        (CelValue::Uint(one), CelValue::Uint(other)) => Some(one.cmp(other)),
        (CelValue::Double(one), CelValue::Double(other)) => one.partial_cmp(other),
        // Neither type can represent the range of the other. 128 bits hold both.
        (CelValue::Int(one), CelValue::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (CelValue::Uint(one), CelValue::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (CelValue::Int(one), CelValue::Double(other)) => integer_double_order(i128::from(*one), *other),
        (CelValue::Uint(one), CelValue::Double(other)) => integer_double_order(i128::from(*one), *other),
        (CelValue::Double(one), CelValue::Int(other)) => {
            integer_double_order(i128::from(*other), *one).map(Ordering::reverse)
        }
        (CelValue::Double(one), CelValue::Uint(other)) => {
            integer_double_order(i128::from(*other), *one).map(Ordering::reverse)
        }
        _ => return None,
    })
}

/// Returns the exact order of an integer of 64 bits and a double.
fn integer_double_order(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // The conversion saturates, far outside of the integer's range.
    let whole = double.trunc() as i128;
    // A positive fraction makes the double larger than its whole part, and a negative fraction makes it smaller.
    let fraction = double - double.trunc();
    Some(integer.cmp(&whole).then_with(|| 0.0.partial_cmp(&fraction).unwrap_or(Ordering::Equal)))
}
