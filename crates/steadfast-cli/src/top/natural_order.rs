//! Order of strings in which runs of digits compare as numbers: `web-2` before `web-10`.

use std::cmp::Ordering;

/// Compares two strings. Digits compare by value, and other characters without case. Different strings are never equal.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    loop {
        let (Some(first), Some(second)) = (left.first(), right.first()) else {
            return left.len().cmp(&right.len()).then_with(|| one.cmp(other));
        };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (left_number, left_rest) = split_number(left);
            let (right_number, right_rest) = split_number(right);
            // Without leading zeros, a longer number is larger.
            let order = left_number.len().cmp(&right_number.len()).then_with(|| left_number.cmp(right_number));
            if order.is_ne() {
                return order;
            }
            (left, right) = (left_rest, right_rest);
            continue;
        }
        let order = first.to_ascii_lowercase().cmp(&second.to_ascii_lowercase());
        if order.is_ne() {
            return order;
        }
        (left, right) = (&left[1..], &right[1..]);
    }
}

/// Splits the digits at the start of `text`, without leading zeros, from the rest.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().take_while(|byte| **byte == b'0').count();
    (&text[zeros..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_compare_as_numbers() {
        let mut names = ["web-10", "Web-9", "web-2", "10.0.0.12", "10.0.0.3", "web-02", "a", ""];
        names.sort_by(|one, other| compare(one, other));
        assert_eq!(names, ["", "10.0.0.3", "10.0.0.12", "a", "web-02", "web-2", "Web-9", "web-10"]);
    }
}
