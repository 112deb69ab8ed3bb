//! Formatting of numbers and durations.

/// Formats a number for a table. Below 1,000, numbers have at most three significant digits; from 1,000 on, they are
/// rounded to integers with a comma after each three digits. Fractions have at most two decimal places.
pub(super) fn format_number(value: f64) -> String {
    let rounded = format!("{value:.0}");
    match value {
        _ if value >= 1000.0 => {
            let groups: Vec<&str> =
                rounded.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
            groups.join(",")
        }
        _ if value.fract() == 0.0 || value >= 100.0 => rounded,
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a duration to a tenth of a second.
pub(super) fn format_seconds(seconds: f64) -> String {
    if seconds < 0.1 { "< 0.1 s".to_owned() } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_for_tables() {
        let formatted = [0.1234, 12.34, 123.4, 1234.5, 123_456.7, 1_234_567.0, 3.0].map(format_number);
        assert_eq!(formatted, ["0.12", "12.3", "123", "1,234", "123,457", "1,234,567", "3"]);
    }
}
