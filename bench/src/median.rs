//! Median of a figure over several runs.

/// Returns the median of a figure over at least one run.
pub(crate) fn median<R>(runs: &[R], figure: impl Fn(&R) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
