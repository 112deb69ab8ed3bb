//! Seeds of random tests.

/// Seeds of random tests: only `STEADFAST_SEED` if it is set, else the numbers from 1 to `STEADFAST_SEEDS`, which
/// defaults to `default_count`.
pub(crate) fn seeds(default_count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number("STEADFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("STEADFAST_SEEDS").unwrap_or(default_count),
    }
}
