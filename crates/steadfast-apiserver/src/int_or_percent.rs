//! Numbers that are absolute, or a percentage of a total: `IntOrString` of the API.

use serde_json::Value;

/// Rounding of a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    Up,
}

/// Returns a number, or a percentage of `total`; `None` for any other value.
pub(crate) fn resolve(value: &Value, total: i64, rounding: Rounding) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let hundredths = total.saturating_mul(percent);
    Some(match rounding {
        Rounding::Down => hundredths / 100,
        Rounding::Up => hundredths.saturating_add(99) / 100,
    })
}
