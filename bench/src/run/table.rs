//! Tables in Markdown: a row for each measurement, a column for each contestant.

use super::outcome::{Figure, Outcomes};

/// Prints a table for each size and resource.
pub(super) fn print(outcomes: &Outcomes) {
    println!("\n{}", outcomes.machine());
    let mut tables: Vec<(usize, &str)> = Vec::new();
    for figure in outcomes.figures() {
        if !tables.contains(&(figure.size, figure.resource)) {
            tables.push((figure.size, figure.resource));
        }
    }
    for (size, resource) in tables {
        let figures: Vec<&Figure> =
            outcomes.figures().iter().filter(|figure| (figure.size, figure.resource) == (size, resource)).collect();
        let rounds = figures.iter().map(|figure| figure.rounds.len()).max().unwrap_or_default();
        println!("\n### {size} {resource}, medians of {rounds} rounds\n");
        print_one(&figures);
    }
    for failure in outcomes.failures() {
        println!("\nnot measured: {} with {} objects: {}", failure.contestant, failure.size, failure.why);
    }
}

fn print_one(figures: &[&Figure]) {
    let contestants = distinct(figures.iter().map(|figure| figure.contestant));
    println!("| | {} |", contestants.join(" | "));
    println!("|---|{}", "---|".repeat(contestants.len()));
    for what in distinct(figures.iter().map(|figure| figure.what)) {
        let row: Vec<&&Figure> = figures.iter().filter(|figure| figure.what == what).collect();
        let ours = row.iter().find(|figure| figure.ours).map(|figure| figure.median());
        let cells = contestants.iter().map(|contestant| {
            let figure = row.iter().find(|figure| figure.contestant == *contestant);
            figure.map_or_else(|| "-".to_owned(), |figure| cell(figure, ours))
        });
        let unit = row.first().map_or("", |figure| figure.unit);
        println!("| {what} ({unit}) | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// The median, and how many times ours it is worse: below 1 it is better.
fn cell(figure: &Figure, ours: Option<f64>) -> String {
    let median = rounded(figure.median());
    match ours {
        Some(ours) if !figure.ours => {
            let ratio = if figure.is_rate() { ours / figure.median() } else { figure.median() / ours };
            format!("{median} ({ratio:.1}×)")
        }
        _ => median,
    }
}

/// Three digits that mean something.
fn rounded(value: f64) -> String {
    match value {
        _ if value >= 1000.0 => {
            let digits = format!("{value:.0}");
            let split = digits.len() - 3;
            if digits.len() > 6 {
                format!("{},{},{}", &digits[..split - 3], &digits[split - 3..split], &digits[split..])
            } else {
                format!("{},{}", &digits[..split], &digits[split..])
            }
        }
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_mean_something() {
        let told = [0.1234, 12.34, 123.4, 1234.5, 123_456.7, 1_234_567.0].map(rounded);
        assert_eq!(told, ["0.12", "12.3", "123", "1,234", "123,457", "1,234,567"]);
    }
}
