//! Quantiles of durations, as JSON.

use serde_json::{Value, json};

/// Returns the median and the 99th percentile of `times` in microseconds. `times` are in nanoseconds.
pub(super) fn quantiles(phase: &str, mut times: Vec<u64>) -> Value {
    times.sort_unstable();
    // An empty phase has no quantile, and JSON shows null instead of zero.
    let quantile_micros = |percent: usize| times.get(times.len() * percent / 100).map(|time| *time as f64 / 1e3);
    json!({ "phase": phase, "times": times.len(), "p50_us": quantile_micros(50), "p99_us": quantile_micros(99) })
}
