//! Chart of a run: one SVG with a lane for each fault, informer and kind of request, above a common time axis.
//!
//! Horizontal positions are percentages, so that the chart fits any width without scaling its text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::scale::{Scale, format_tick, format_time};
use crate::html::escape;

/// Height of a lane's label in pixels.
const LABEL_HEIGHT: u32 = 18;
/// Height of a lane's bar in pixels.
const BAR_HEIGHT: u32 = 14;
/// Distance between two lanes in pixels.
const GAP: u32 = 8;
/// Height of the axis with its labels in pixels.
const AXIS_HEIGHT: u32 = 20;
/// Minimum width of an interval in percent of the axis. A shorter interval has the width `MIN_PIXELS`.
const MIN_PERCENT: f64 = 0.3;
/// Width of short intervals in pixels.
const MIN_PIXELS: &str = "2";
/// Number of columns in which marks are drawn. Marks in one column are combined, so that the size of the page is
/// limited.
const COLUMNS: u32 = 400;

/// Interval of a lane.
#[derive(Debug)]
pub(super) struct ChartSpan {
    pub(super) start: Duration,
    pub(super) end: Duration,
    /// Class of the style sheet.
    pub(super) class: &'static str,
    pub(super) label: String,
}

/// Event of a lane.
#[derive(Debug)]
pub(super) struct ChartMark {
    pub(super) at: Duration,
    /// Class of the style sheet.
    pub(super) class: &'static str,
    /// Row of the mark, from the top.
    pub(super) row: u32,
    /// Number of rows of the lane.
    pub(super) rows: u32,
    pub(super) label: String,
}

/// Chart in progress.
pub(super) struct Chart {
    scale: Scale,
    lanes: String,
    height: u32,
}

impl Chart {
    pub(super) fn new(scale: Scale) -> Self {
        Self { scale, lanes: String::new(), height: 0 }
    }

    /// Appends a lane with intervals and marks, both in the order of their times.
    pub(super) fn add_lane(&mut self, label: &str, spans: &[ChartSpan], marks: &[ChartMark]) {
        let baseline = self.height + LABEL_HEIGHT - 5;
        let top = self.height + LABEL_HEIGHT;
        let _ = writeln!(self.lanes, "<g><text x=\"0\" y=\"{baseline}\">{}</text>", escape(label));
        let _ =
            writeln!(self.lanes, "<rect class=\"track\" x=\"0\" y=\"{top}\" width=\"100%\" height=\"{BAR_HEIGHT}\"/>");
        for span in spans {
            self.put_span(span, top);
        }
        for (_, (mark, count)) in combine(marks, self.scale) {
            self.put_mark(mark, count, top);
        }
        self.lanes.push_str("</g>\n");
        self.height = top + BAR_HEIGHT + GAP;
    }

    fn put_span(&mut self, span: &ChartSpan, top: u32) {
        let (start, end) = (self.scale.percent(span.start), self.scale.percent(span.end));
        // A fresh cache is the normal state. Its bar is thin, so that doubts stand out.
        let (y, height) = if span.class == "fresh" { (top + 5, 4) } else { (top, BAR_HEIGHT) };
        let times = if span.start == span.end {
            format_time(span.start)
        } else {
            format!("{} to {}", format_time(span.start), format_time(span.end))
        };
        // A fault without a duration would have a rectangle of width 0, which is invisible.
        let width = if end - start < MIN_PERCENT { MIN_PIXELS.to_owned() } else { format!("{:.3}%", end - start) };
        let (class, label) = (span.class, escape(&span.label));
        let _ = writeln!(
            self.lanes,
            "<rect class=\"span {class}\" x=\"{start:.3}%\" y=\"{y}\" width=\"{width}\" height=\"{height}\">\
             <title>{times}: {label}</title></rect>"
        );
    }

    fn put_mark(&mut self, mark: &ChartMark, count: usize, top: u32) {
        let height = (BAR_HEIGHT / mark.rows).max(2);
        let (x, y) = (self.scale.percent(mark.at), top + mark.row * BAR_HEIGHT / mark.rows);
        let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
        let (class, time, label) = (mark.class, format_time(mark.at), escape(&mark.label));
        let _ = writeln!(
            self.lanes,
            "<rect class=\"{class}\" x=\"{x:.3}%\" y=\"{y}\" width=\"2\" height=\"{height}\">\
             <title>{time}: {label}{more}</title></rect>"
        );
    }

    /// Returns the SVG. `description` is the text for screen readers.
    pub(super) fn finish(self, description: &str) -> String {
        let mut grid = String::new();
        let height = self.height + AXIS_HEIGHT;
        let (line_end, label_y) = (self.height, self.height + AXIS_HEIGHT - 5);
        for tick in self.scale.ticks() {
            let x = self.scale.percent(tick);
            // The first and the last label would exceed the chart if they were centred.
            let anchor = match x {
                ..3.0 => "start",
                97.0.. => "end",
                _ => "middle",
            };
            let label = format_tick(tick);
            let _ = writeln!(
                grid,
                "<line class=\"grid\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"0\" y2=\"{line_end}\"/>\
                 <text class=\"tick\" x=\"{x:.3}%\" y=\"{label_y}\" text-anchor=\"{anchor}\">{label}</text>"
            );
        }
        let description = escape(description);
        format!(
            "<svg width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"{description}\">\n{grid}{}</svg>\n",
            self.lanes
        )
    }
}

/// Combines marks with an equal column, row and class. Returns the first mark of each group and the size of the
/// group, in the order of the times.
fn combine(marks: &[ChartMark], scale: Scale) -> BTreeMap<(u32, u32, &'static str), (&ChartMark, usize)> {
    let mut groups = BTreeMap::new();
    for mark in marks {
        let column = scale.column(mark.at, COLUMNS);
        groups.entry((column, mark.row, mark.class)).or_insert((mark, 0)).1 += 1;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(ms: u64, row: u32) -> ChartMark {
        ChartMark { at: Duration::from_millis(ms), class: "mark", row, rows: 3, label: format!("m{ms}") }
    }

    #[test]
    fn interval_without_duration_is_visible() {
        let mut chart = Chart::new(Scale::until(Duration::from_secs(40)));
        let at = Duration::from_secs(10);
        chart.add_lane("fault", &[ChartSpan { start: at, end: at, class: "fault", label: "reset".to_owned() }], &[]);
        let svg = chart.finish("a chart");
        assert!(svg.contains("width=\"2\"") && svg.contains("<title>10.000 s: reset</title>"), "{svg}");
    }

    #[test]
    fn close_marks_are_combined() {
        let mut chart = Chart::new(Scale::until(Duration::from_secs(40)));
        chart.add_lane("events", &[], &[mark(10, 0), mark(20, 0), mark(20, 1), mark(30_000, 0)]);
        let svg = chart.finish("a chart");
        assert_eq!(svg.matches("class=\"mark\"").count(), 3, "{svg}");
        assert!(svg.contains("<title>0.010 s: m10, and 1 more</title>"), "{svg}");
        assert!(svg.contains("x=\"75.000%\""), "{svg}");
    }
}
