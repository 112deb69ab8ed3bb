//! Operators.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::ast::Operator;
use crate::compare::{equal, ordered, same};
use crate::error::Fault;
use crate::meter::Meter;
use crate::value::{Identity, List, Value};

/// Evaluates a binary operator.
pub(crate) fn binary<'a>(
    operator: Operator,
    left: &Value<'a>,
    right: &Value<'a>,
    meter: &mut Meter,
) -> Result<Value<'a>, Fault> {
    let holds: fn(Ordering) -> bool = match operator {
        Operator::Equal => return Ok(Value::Bool(equal(left, right, meter)?)),
        Operator::NotEqual => return Ok(Value::Bool(!equal(left, right, meter)?)),
        Operator::In => return contains(left, right, meter).map(Value::Bool),
        Operator::Less => Ordering::is_lt,
        Operator::LessOrEqual => Ordering::is_le,
        Operator::Greater => Ordering::is_gt,
        Operator::GreaterOrEqual => Ordering::is_ge,
        Operator::Add => return add(left, right, meter),
        Operator::Subtract => return subtract(left, right),
        Operator::Multiply | Operator::Divide | Operator::Modulo => return scale(operator, left, right),
    };
    match ordered(left, right, meter, holds)? {
        Some(result) => Ok(Value::Bool(result)),
        None => Err(no_overload(operator, left, right)),
    }
}

fn no_overload(operator: Operator, left: &Value, right: &Value) -> Fault {
    Fault::overload(operator.name(), vec![left.type_of().name(), right.type_of().name()])
}

/// `-a`.
pub(crate) fn negate(value: Value) -> Result<Value, Fault> {
    match value {
        Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(Fault::Overflow),
        Value::Double(number) => Ok(Value::Double(-number)),
        Value::Duration(span) => span.negated().map(Value::Duration).ok_or(Fault::Overflow),
        other => Err(Fault::overload("-_", vec![other.type_of().name()])),
    }
}

fn contains<'a>(item: &Value<'a>, of: &Value<'a>, meter: &mut Meter) -> Result<bool, Fault> {
    match of {
        Value::List(list) => {
            for other in list.iter() {
                // Each comparison charges at least one unit, which bounds the scan.
                if equal(item, &other, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => {
            let whole = match item {
                // Whole doubles are looked up as integers, because map keys compare by value across number types.
                Value::Double(number) => whole(*number).map(Value::Int),
                _ => None,
            };
            let key = whole.as_ref().unwrap_or(item).key();
            // For an item that cannot be a key, the result is false, not an error.
            Ok(key.is_some_and(|key| map.get(&key).is_some()))
        }
        _ => Err(no_overload(Operator::In, item, of)),
    }
}

fn add<'a>(left: &Value<'a>, right: &Value<'a>, meter: &mut Meter) -> Result<Value<'a>, Fault> {
    let sum = match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.checked_add(*right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => left.checked_add(*right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            meter.charge_bytes(left.len() + right.len())?;
            Some([&**left, &**right].concat().into())
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.charge_bytes(left.len() + right.len())?;
            Some(Value::Bytes(Arc::from([&**left, &**right].concat())))
        }
        (Value::List(left), Value::List(right)) => return concatenate(left, right, meter),
        (Value::Timestamp(moment), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(moment)) => {
            moment.plus(*span).map(Value::Timestamp)
        }
        (Value::Duration(left), Value::Duration(right)) => left.plus(*right).map(Value::Duration),
        _ => return Err(no_overload(Operator::Add, left, right)),
    };
    sum.ok_or(Fault::Overflow)
}

fn concatenate<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<Value<'a>, Fault> {
    meter.charge((left.len() + right.len()) as u64)?;
    // The left list determines if the result is an ordinary list, a set or a map, as for equality.
    if *left.identity() != Identity::Position {
        return merge(left, right, meter);
    }
    Ok(left.iter().chain(right.iter()).collect::<Vec<_>>().into())
}

/// Union of sets, or of lists that are maps: an item of the right list replaces its counterpart.
fn merge<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<Value<'a>, Fault> {
    let mut items: Vec<Value<'a>> = left.iter().collect();
    for item in right.iter() {
        let mut place = None;
        for (index, known) in items.iter().enumerate() {
            if same(left.identity(), known, &item, meter)? {
                place = Some(index);
                break;
            }
        }
        match place.and_then(|place| items.get_mut(place)) {
            Some(known) => *known = item,
            None => items.push(item),
        }
    }
    Ok(Value::List(left.with(items)))
}

fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Fault> {
    let difference = match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.checked_sub(*right).map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => left.checked_sub(*right).map(Value::Uint),
        (Value::Double(left), Value::Double(right)) => Some(Value::Double(left - right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.since(*right).map(Value::Duration),
        (Value::Timestamp(moment), Value::Duration(span)) => moment.minus(*span).map(Value::Timestamp),
        (Value::Duration(left), Value::Duration(right)) => left.minus(*right).map(Value::Duration),
        _ => return Err(no_overload(Operator::Subtract, left, right)),
    };
    difference.ok_or(Fault::Overflow)
}

/// `*`, `/` and `%`.
fn scale<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Fault> {
    let is_division = operator != Operator::Multiply;
    let result = match (left, right) {
        // The check precedes the match on operators: `checked_div` cannot distinguish division by zero from overflow.
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if is_division => {
            return Err(Fault::DivisionByZero);
        }
        (Value::Int(left), Value::Int(right)) => match operator {
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            // The sign of a remainder follows the dividend, as in Go.
            _ => left.checked_rem(*right),
        }
        .map(Value::Int),
        (Value::Uint(left), Value::Uint(right)) => match operator {
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(Value::Uint),
        (Value::Double(left), Value::Double(right)) if operator == Operator::Multiply => {
            Some(Value::Double(left * right))
        }
        // Division of doubles by zero results in infinity, as IEEE 754 specifies.
        (Value::Double(left), Value::Double(right)) if operator == Operator::Divide => {
            Some(Value::Double(left / right))
        }
        _ => return Err(no_overload(operator, left, right)),
    };
    result.ok_or(Fault::Overflow)
}

/// Converts a double to the integer that equals it, if one does.
pub(crate) fn whole(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    // -2^63 is a double, and 2^63 is the first beyond the range.
    (number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number)).then_some(number as i64)
}
