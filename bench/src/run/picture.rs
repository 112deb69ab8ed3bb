//! Pictures: bars, the shorter the better, one file for each measurement that tells most.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Figure, Outcomes};
use crate::Trouble;

/// What is drawn, and how its file is called.
const DRAWN: &[(&str, &str)] = &[
    ("sync", "sync"),
    ("resident", "memory"),
    ("processor an event", "events"),
    ("write to handler, p99", "latency"),
    ("relist, peak to settled", "relist"),
];

const BAR: usize = 22;
const LABELS: usize = 330;
const WIDTH: usize = 460;

/// Draws what was measured at the largest size.
pub(super) fn draw(outcomes: &Outcomes, folder: &Path) -> Result<(), Trouble> {
    let largest = outcomes.figures().iter().map(|figure| figure.size).max().unwrap_or_default();
    for (what, file) in DRAWN {
        let figures: Vec<&Figure> =
            outcomes.figures().iter().filter(|figure| figure.size == largest && figure.what == *what).collect();
        if !figures.is_empty() {
            std::fs::write(folder.join(format!("{file}.svg")), bars(what, largest, &figures))?;
        }
    }
    Ok(())
}

fn bars(what: &str, size: usize, figures: &[&Figure]) -> String {
    let most = figures.iter().map(|figure| figure.median()).fold(f64::MIN_POSITIVE, f64::max);
    let unit = figures.first().map_or("", |figure| figure.unit);
    let (width, height) = (LABELS + WIDTH + 90, (figures.len() + 2) * BAR);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\" font-weight=\"bold\">{what}, {unit}; {size} objects; shorter is better</text>\n"
    );
    for (row, figure) in figures.iter().enumerate() {
        let y = (row + 1) * BAR + 6;
        let length = (figure.median() / most * WIDTH as f64).max(1.0);
        let colour = if figure.ours { "#0a7d5a" } else { "#9aa4ad" };
        let text = y + 14;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{y}\" width=\"{length:.0}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{text}\">{:.2}</text>",
            LABELS - 8,
            figure.contestant,
            BAR - 4,
            LABELS as f64 + length + 6.0,
            figure.median(),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
