//! Functions of lists.

use std::cmp::Ordering;

use super::call_result::CallResult;
use crate::ast::Operator;
use crate::compare::{MAX_VALUE_DEPTH, equal, order_holds};
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::operators;
use crate::value::{CelList, CelValue};

/// Names of functions that only lists have.
pub(super) const LIST_ONLY_FUNCTIONS: [&str; 10] =
    ["distinct", "first", "flatten", "isSorted", "last", "max", "min", "slice", "sort", "sum"];

/// Maximum number of items that `lists.range` builds.
const MAX_RANGE_ITEMS: i64 = 100_000;

/// Calls the member function of a name. Returns `Ok(None)` if the function is not defined for these types.
pub(super) fn member<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::List(list), rest @ ..] = arguments else { return Ok(None) };
    // Each call is charged for the whole list here, before the function copies a part of the list.
    meter.charge(1 + list.len() as u64)?;
    match (name, rest) {
        ("distinct", []) => distinct(list, meter).map(Some),
        ("first", []) => Ok(Some(CelValue::Optional(list.get(0).map(std::sync::Arc::new)))),
        ("last", []) => {
            let end = list.len().checked_sub(1).and_then(|index| list.get(index));
            Ok(Some(CelValue::Optional(end.map(std::sync::Arc::new))))
        }
        ("flatten", []) => flatten(list, 1, meter).map(Some),
        ("flatten", [CelValue::Int(depth)]) if *depth >= 0 => flatten(list, *depth, meter).map(Some),
        // CEL rejects negative depths instead of treating them as zero.
        ("flatten", [CelValue::Int(_)]) => Err(CelErrorKind::invalid_argument(name, "the depth must not be negative")),
        ("indexOf" | "lastIndexOf", [needle]) => index_of(list, needle, name == "lastIndexOf", meter).map(Some),
        ("isSorted", []) => {
            for (one, other) in list.iter().zip(list.iter().skip(1)) {
                match order_holds(&one, &other, meter, Ordering::is_le)? {
                    Some(true) => {}
                    Some(false) => return Ok(Some(CelValue::Bool(false))),
                    // A pair without an order is a missing overload, not `false`: a list of mixed types is a type
                    // error.
                    None => return Ok(None),
                }
            }
            Ok(Some(CelValue::Bool(true)))
        }
        ("max" | "min", []) => extreme(name, list, meter),
        ("reverse", []) => {
            let mut items: Vec<CelValue<'a>> = list.iter().collect();
            items.reverse();
            Ok(Some(items.into()))
        }
        ("slice", [CelValue::Int(start), CelValue::Int(end)]) => {
            let checked_index = |index: &i64| usize::try_from(*index).ok().filter(|index| *index <= list.len());
            match (checked_index(start), checked_index(end)) {
                (Some(start), Some(end)) if start <= end => {
                    Ok(Some(list.iter().skip(start).take(end - start).collect::<Vec<_>>().into()))
                }
                _ => Err(CelErrorKind::invalid_argument(name, "the bounds must be in order and within the list")),
            }
        }
        ("sort", []) => sort(list, meter),
        ("sum", []) => sum(list, meter),
        _ => Ok(None),
    }
}

/// Calls `includes`: returns whether a list has an item. A value other than a list must equal the argument.
pub(super) fn includes<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    match arguments {
        [CelValue::List(list), needle] => {
            for item in list.iter() {
                if equal(&item, needle, meter)? {
                    return Ok(Some(CelValue::Bool(true)));
                }
            }
            Ok(Some(CelValue::Bool(false)))
        }
        [value, needle] => Ok(Some(CelValue::Bool(equal(value, needle, meter)?))),
        _ => Ok(None),
    }
}

/// Calls `lists.range(n)`: returns the numbers from 0 up to `n`, without `n`.
pub(super) fn range<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::Int(end)] = arguments else { return Ok(None) };
    if *end > MAX_RANGE_ITEMS {
        return Err(CelErrorKind::invalid_argument("lists.range", "the range is too large"));
    }
    meter.charge(u64::try_from(*end).unwrap_or(0))?;
    // A negative end results in an empty list.
    Ok(Some((0..*end).map(CelValue::Int).collect::<Vec<_>>().into()))
}

fn distinct<'a>(list: &CelList<'a>, meter: &mut Meter) -> Result<CelValue<'a>, CelErrorKind> {
    let mut distinct_items: Vec<CelValue<'a>> = Vec::new();
    for item in list.iter() {
        let mut is_duplicate = false;
        // The time is quadratic, because values have no hash. Each comparison is charged.
        for earlier in &distinct_items {
            if equal(earlier, &item, meter)? {
                is_duplicate = true;
                break;
            }
        }
        if !is_duplicate {
            distinct_items.push(item);
        }
    }
    Ok(distinct_items.into())
}

fn flatten<'a>(list: &CelList<'a>, depth: i64, meter: &mut Meter) -> Result<CelValue<'a>, CelErrorKind> {
    // Values are at most a few hundred levels deep, and so is the recursion.
    fn flatten_into<'a>(
        list: &CelList<'a>,
        depth: usize,
        items: &mut Vec<CelValue<'a>>,
        meter: &mut Meter,
    ) -> Result<(), CelErrorKind> {
        for item in list.iter() {
            meter.charge(1)?;
            match item {
                CelValue::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, items, meter)?,
                other => items.push(other),
            }
        }
        Ok(())
    }
    let mut items = Vec::new();
    let depth = usize::try_from(depth).unwrap_or(MAX_VALUE_DEPTH).min(MAX_VALUE_DEPTH);
    flatten_into(list, depth, &mut items, meter)?;
    Ok(items.into())
}

fn index_of<'a>(
    list: &CelList<'a>,
    needle: &CelValue<'a>,
    is_last: bool,
    meter: &mut Meter,
) -> Result<CelValue<'a>, CelErrorKind> {
    let mut found = -1;
    for (index, item) in list.iter().enumerate() {
        if equal(&item, needle, meter)? {
            found = i64::try_from(index).unwrap_or(i64::MAX);
            if !is_last {
                break;
            }
        }
    }
    Ok(CelValue::Int(found))
}

fn extreme<'a>(name: &str, list: &CelList<'a>, meter: &mut Meter) -> CallResult<'a> {
    let holds: fn(Ordering) -> bool = if name == "max" { Ordering::is_gt } else { Ordering::is_lt };
    let mut items = list.iter();
    let Some(mut best) = items.next() else {
        return Err(CelErrorKind::invalid_argument(name, "the list must not be empty"));
    };
    for item in items {
        match order_holds(&item, &best, meter, holds)? {
            Some(true) => best = item,
            Some(false) => {}
            None => return Ok(None),
        }
    }
    Ok(Some(best))
}

fn sort<'a>(list: &CelList<'a>, meter: &mut Meter) -> CallResult<'a> {
    let sorted = sorted_pairs(list.iter().map(|item| (item, ())), meter)?;
    Ok(sorted.map(|sorted| sorted.into_iter().map(|(item, ())| item).collect::<Vec<_>>().into()))
}

/// Returns the items in the order of their keys, for `sortBy`. Items with equal keys keep their order.
pub(crate) fn sort_by<'a>(
    items: Vec<CelValue<'a>>,
    keys: Vec<CelValue<'a>>,
    meter: &mut Meter,
) -> Result<CelValue<'a>, CelErrorKind> {
    let types: Vec<_> = keys.first().map(|key| key.type_of().name()).into_iter().collect();
    let sorted = sorted_pairs(keys.into_iter().zip(items), meter)?;
    let sorted = sorted.ok_or_else(|| CelErrorKind::no_such_overload("sortBy", types))?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>().into())
}

/// Sorts pairs by their first values. Returns `None` if two of the values have no order.
fn sorted_pairs<'a, T>(
    pairs: impl Iterator<Item = (CelValue<'a>, T)>,
    meter: &mut Meter,
) -> Result<Option<Vec<(CelValue<'a>, T)>>, CelErrorKind> {
    let mut sorted: Vec<(CelValue<'a>, T)> = Vec::with_capacity(pairs.size_hint().0);
    for pair in pairs {
        // Insertion by bisection: the comparison can fail, which a sort of the standard library does not allow.
        let (mut low, mut high) = (0, sorted.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match order_holds(&pair.0, &sorted[middle].0, meter, Ordering::is_lt)? {
                Some(true) => high = middle,
                Some(false) => low = middle + 1,
                None => return Ok(None),
            }
        }
        // Moving the tail of the vector costs time that the comparisons do not cover.
        meter.charge((sorted.len() - low) as u64 / 16)?;
        sorted.insert(low, pair);
    }
    Ok(Some(sorted))
}

fn sum<'a>(list: &CelList<'a>, meter: &mut Meter) -> CallResult<'a> {
    let mut items = list.iter();
    // An empty list has no item type, so its sum is the integer 0.
    let Some(first) = items.next() else { return Ok(Some(CelValue::Int(0))) };
    if !matches!(first, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_) | CelValue::Duration(_)) {
        return Ok(None);
    }
    let mut total = first;
    for item in items {
        total = operators::binary(Operator::Add, &total, &item, meter)?;
    }
    Ok(Some(total))
}
