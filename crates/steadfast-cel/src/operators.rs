//! Operators.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::ast::Operator;
use crate::compare::{equal, is_same_item, order_holds};
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::value::{CelList, CelValue, ItemIdentity};

/// Evaluates a binary operator.
pub(crate) fn binary<'a>(
    operator: Operator,
    left: &CelValue<'a>,
    right: &CelValue<'a>,
    meter: &mut Meter,
) -> Result<CelValue<'a>, CelErrorKind> {
    let holds: fn(Ordering) -> bool = match operator {
        Operator::Equal => return Ok(CelValue::Bool(equal(left, right, meter)?)),
        Operator::NotEqual => return Ok(CelValue::Bool(!equal(left, right, meter)?)),
        Operator::In => return contains(left, right, meter).map(CelValue::Bool),
        Operator::Less => Ordering::is_lt,
        Operator::LessOrEqual => Ordering::is_le,
        Operator::Greater => Ordering::is_gt,
        Operator::GreaterOrEqual => Ordering::is_ge,
        Operator::Add => return add(left, right, meter),
        Operator::Subtract => return subtract(left, right),
        Operator::Multiply | Operator::Divide | Operator::Modulo => return multiply_or_divide(operator, left, right),
    };
    match order_holds(left, right, meter, holds)? {
        Some(result) => Ok(CelValue::Bool(result)),
        None => Err(no_overload(operator, left, right)),
    }
}

fn no_overload(operator: Operator, left: &CelValue, right: &CelValue) -> CelErrorKind {
    CelErrorKind::no_such_overload(operator.name(), vec![left.type_of().name(), right.type_of().name()])
}

/// `-a`.
pub(crate) fn negate(value: CelValue) -> Result<CelValue, CelErrorKind> {
    match value {
        CelValue::Int(number) => number.checked_neg().map(CelValue::Int).ok_or(CelErrorKind::Overflow),
        CelValue::Double(number) => Ok(CelValue::Double(-number)),
        CelValue::Duration(duration) => duration.negated().map(CelValue::Duration).ok_or(CelErrorKind::Overflow),
        other => Err(CelErrorKind::no_such_overload("-_", vec![other.type_of().name()])),
    }
}

fn contains<'a>(item: &CelValue<'a>, container: &CelValue<'a>, meter: &mut Meter) -> Result<bool, CelErrorKind> {
    match container {
        CelValue::List(list) => {
            for other in list.iter() {
                // Each comparison charges at least one unit, which bounds the scan.
                if equal(item, &other, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        CelValue::Map(map) => {
            let integer = match item {
                // Whole doubles are looked up as integers, because map keys compare by value across number types.
                CelValue::Double(number) => exact_integer(*number).map(CelValue::Int),
                _ => None,
            };
            let key = integer.as_ref().unwrap_or(item).key();
            // For an item that cannot be a key, the result is false, not an error.
            Ok(key.is_some_and(|key| map.get(&key).is_some()))
        }
        _ => Err(no_overload(Operator::In, item, container)),
    }
}

fn add<'a>(left: &CelValue<'a>, right: &CelValue<'a>, meter: &mut Meter) -> Result<CelValue<'a>, CelErrorKind> {
    let sum = match (left, right) {
        (CelValue::Int(left), CelValue::Int(right)) => left.checked_add(*right).map(CelValue::Int),
        (CelValue::Uint(left), CelValue::Uint(right)) => left.checked_add(*right).map(CelValue::Uint),
        (CelValue::Double(left), CelValue::Double(right)) => Some(CelValue::Double(left + right)),
        (CelValue::String(left), CelValue::String(right)) => {
            meter.charge_bytes(left.len() + right.len())?;
            Some([&**left, &**right].concat().into())
        }
        (CelValue::Bytes(left), CelValue::Bytes(right)) => {
            meter.charge_bytes(left.len() + right.len())?;
            Some(CelValue::Bytes(Arc::from([&**left, &**right].concat())))
        }
        (CelValue::List(left), CelValue::List(right)) => return concatenate(left, right, meter),
        (CelValue::Timestamp(timestamp), CelValue::Duration(duration))
        | (CelValue::Duration(duration), CelValue::Timestamp(timestamp)) => {
            timestamp.plus(*duration).map(CelValue::Timestamp)
        }
        (CelValue::Duration(left), CelValue::Duration(right)) => left.plus(*right).map(CelValue::Duration),
        _ => return Err(no_overload(Operator::Add, left, right)),
    };
    sum.ok_or(CelErrorKind::Overflow)
}

fn concatenate<'a>(left: &CelList<'a>, right: &CelList<'a>, meter: &mut Meter) -> Result<CelValue<'a>, CelErrorKind> {
    meter.charge((left.len() + right.len()) as u64)?;
    // The left list determines whether the result is an ordinary list, a set or a map, as for equality.
    if *left.identity() != ItemIdentity::Position {
        return merge(left, right, meter);
    }
    Ok(left.iter().chain(right.iter()).collect::<Vec<_>>().into())
}

/// Union of sets, or of lists that are maps: an item of the right list replaces its counterpart.
fn merge<'a>(left: &CelList<'a>, right: &CelList<'a>, meter: &mut Meter) -> Result<CelValue<'a>, CelErrorKind> {
    let mut items: Vec<CelValue<'a>> = left.iter().collect();
    for item in right.iter() {
        let mut existing_index = None;
        for (index, existing) in items.iter().enumerate() {
            if is_same_item(left.identity(), existing, &item, meter)? {
                existing_index = Some(index);
                break;
            }
        }
        match existing_index.and_then(|existing_index| items.get_mut(existing_index)) {
            Some(existing) => *existing = item,
            None => items.push(item),
        }
    }
    Ok(CelValue::List(left.with_items(items)))
}

fn subtract<'a>(left: &CelValue<'a>, right: &CelValue<'a>) -> Result<CelValue<'a>, CelErrorKind> {
    let difference = match (left, right) {
        (CelValue::Int(left), CelValue::Int(right)) => left.checked_sub(*right).map(CelValue::Int),
        (CelValue::Uint(left), CelValue::Uint(right)) => left.checked_sub(*right).map(CelValue::Uint),
        (CelValue::Double(left), CelValue::Double(right)) => Some(CelValue::Double(left - right)),
        (CelValue::Timestamp(left), CelValue::Timestamp(right)) => left.since(*right).map(CelValue::Duration),
        (CelValue::Timestamp(timestamp), CelValue::Duration(duration)) => {
            timestamp.minus(*duration).map(CelValue::Timestamp)
        }
        (CelValue::Duration(left), CelValue::Duration(right)) => left.minus(*right).map(CelValue::Duration),
        _ => return Err(no_overload(Operator::Subtract, left, right)),
    };
    difference.ok_or(CelErrorKind::Overflow)
}

/// `*`, `/` and `%`.
fn multiply_or_divide<'a>(
    operator: Operator,
    left: &CelValue<'a>,
    right: &CelValue<'a>,
) -> Result<CelValue<'a>, CelErrorKind> {
    let is_division = operator != Operator::Multiply;
    let result = match (left, right) {
        // The check precedes the match on operators: `checked_div` cannot distinguish division by zero from overflow.
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) if is_division => {
            return Err(CelErrorKind::DivisionByZero);
        }
        (CelValue::Int(left), CelValue::Int(right)) => match operator {
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            // The sign of a remainder follows the dividend, as in Go.
            _ => left.checked_rem(*right),
        }
        .map(CelValue::Int),
        (CelValue::Uint(left), CelValue::Uint(right)) => match operator {
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(CelValue::Uint),
        (CelValue::Double(left), CelValue::Double(right)) if operator == Operator::Multiply => {
            Some(CelValue::Double(left * right))
        }
        // Division of doubles by zero results in infinity, as IEEE 754 specifies.
        (CelValue::Double(left), CelValue::Double(right)) if operator == Operator::Divide => {
            Some(CelValue::Double(left / right))
        }
        _ => return Err(no_overload(operator, left, right)),
    };
    result.ok_or(CelErrorKind::Overflow)
}

/// Converts a double to the integer that equals it, if one does.
pub(crate) fn exact_integer(number: f64) -> Option<i64> {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    // -2^63 is a double, and 2^63 is the first beyond the range.
    (number.fract() == 0.0 && (-TWO_POW_63..TWO_POW_63).contains(&number)).then_some(number as i64)
}
