//! Byte counts for people.

/// Formats a byte count: `812 B`, `12.3 kB`, `4.5 MB`, `1.2 GB`.
pub(crate) fn format_bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_units() {
        let texts = [812, 12_345, 4_500_000, 1_200_000_000].map(format_bytes);
        assert_eq!(texts, ["812 B", "12.3 kB", "4.5 MB", "1.2 GB"]);
    }
}
