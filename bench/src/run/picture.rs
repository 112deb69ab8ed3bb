//! Bar charts, one file for each of the main measurements. The title of a chart states if longer or shorter bars are
//! better. The chart of recovery times has no such title: shorter bars are better.

use std::fmt::Write;
use std::path::Path;

use super::client_variant::{Library, Resource};
use super::results::{FaultResult, FaultResults, Measurement, PartResults};
use crate::BenchError;

/// Measurements with a chart, and the names of their files.
const CHARTS: &[(&str, &str)] = &[
    ("sync", "sync"),
    ("resident", "memory"),
    ("CPU time per event", "events"),
    ("write to handler, p99", "latency"),
    ("relist, peak relative to memory before", "relist"),
];

/// Height of a row and maximum widths, in pixels.
const ROW_HEIGHT: usize = 22;
const LABEL_WIDTH: usize = 330;
const MAX_BAR_WIDTH: usize = 460;

/// Draws the measurements of pods, each at its largest size. File names start with `part`.
pub(super) fn draw(part_results: &PartResults, part: &str, folder: &Path) -> Result<(), BenchError> {
    for (metric, file) in CHARTS {
        let measurements = || {
            part_results
                .measurements()
                .iter()
                .filter(|measurement| measurement.resource == Resource::Pods && measurement.metric == *metric)
        };
        // The largest size has the least noise.
        let Some(largest) = measurements().map(|measurement| measurement.size).max() else { continue };
        let measurements: Vec<&Measurement> =
            measurements().filter(|measurement| measurement.size == largest).collect();
        std::fs::write(folder.join(format!("{part}-{file}.svg")), bars(metric, largest, &measurements))?;
    }
    Ok(())
}

/// Draws the recovery time of each library. Without a recovery within the timeout, the bar has the length of the
/// timeout and the label "not in N s".
pub(super) fn draw_faults(fault_results: &FaultResults, folder: &Path) -> Result<(), BenchError> {
    let finished: Vec<&FaultResult> =
        fault_results.results.iter().filter(|fault_result| fault_result.error.is_none()).collect();
    let max = fault_results.results.iter().map(|fault_result| fault_result.recovery_timeout as f64).fold(1.0, f64::max);
    let (width, height) = (2 * LABEL_WIDTH + MAX_BAR_WIDTH + 90, (finished.len() + 2) * ROW_HEIGHT);
    let mut svg = head(width, height, "from the end of each fault until the cache is right, s, on a logarithmic scale");
    for (row, fault_result) in finished.iter().enumerate() {
        // A missing recovery has a bar of the length of the timeout.
        let seconds = fault_result.recovered.unwrap_or(fault_result.recovery_timeout as f64);
        // The scale starts at 50 ms, the interval of the comparisons. It is logarithmic, because recoveries range
        // from milliseconds to minutes.
        let length = (seconds.max(0.05) / 0.05).ln() / (max / 0.05).ln() * MAX_BAR_WIDTH as f64;
        let label = format!("{} {}, {}", fault_result.fault, fault_result.title, fault_result.library);
        let value = fault_result
            .recovered
            .map_or_else(|| format!("not in {} s", fault_result.recovery_timeout), |time| format!("{time:.1}"));
        bar(&mut svg, row, 2 * LABEL_WIDTH, length.max(1.0), fault_result.library, &label, &value);
    }
    svg.push_str("</svg>\n");
    Ok(std::fs::write(folder.join("faults-recover.svg"), svg)?)
}

fn bars(metric: &str, size: usize, measurements: &[&Measurement]) -> String {
    let max = measurements.iter().map(|measurement| measurement.median()).fold(f64::MIN_POSITIVE, f64::max);
    let unit = measurements.first().map_or("", |measurement| &measurement.unit);
    let (width, height) = (LABEL_WIDTH + MAX_BAR_WIDTH + 90, (measurements.len() + 2) * ROW_HEIGHT);
    let better =
        if measurements.first().is_some_and(|measurement| measurement.is_rate()) { "longer" } else { "shorter" };
    let mut svg = head(width, height, &format!("{metric}, {unit}; {size} objects; {better} is better"));
    for (row, measurement) in measurements.iter().enumerate() {
        let length = (measurement.median() / max * MAX_BAR_WIDTH as f64).max(1.0);
        let value = format!("{:.2}", measurement.median());
        bar(&mut svg, row, LABEL_WIDTH, length, measurement.library, &measurement.client, &value);
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(width: usize, height: usize, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\" font-weight=\"bold\">{title}</text>\n"
    )
}

/// Draws one bar with its label and its value.
fn bar(svg: &mut String, row: usize, left: usize, length: f64, library: Library, label: &str, value: &str) {
    let y = (row + 1) * ROW_HEIGHT + 6;
    let colour = match library {
        Library::Steadfast => "#0a7d5a",
        Library::Kube => "#c26a3d",
        Library::ClientGo => "#4a7db0",
        Library::Earlier => "#8fb8a8",
        Library::Baseline => "#999999",
    };
    let text = y + 14;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\
         <rect x=\"{left}\" y=\"{y}\" width=\"{length:.0}\" height=\"{}\" fill=\"{colour}\"/>\
         <text x=\"{:.0}\" y=\"{text}\">{value}</text>",
        left - 8,
        ROW_HEIGHT - 4,
        left as f64 + length + 6.0,
    );
}
