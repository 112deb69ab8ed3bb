//! Table that compares two measurements of all stages.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::baseline::{Baseline, TOLERANCE_OF_ALLOCATIONS, Verdict, tolerance};
use crate::figures::{Figures, Machine};

/// Returns a table with a row per stage, and the action to take.
pub(crate) fn comparison(before: &Baseline, now: &Baseline, verdicts: &BTreeMap<String, Verdict>) -> String {
    let mut text = String::from(
        "| for one object or event | instructions | before | ratio | allocations | before | bytes | before | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, verdict) in verdicts {
        let (before, after) = (before.stages.get(name), now.stages.get(name));
        let of = |figures: Option<&Figures>, figure: fn(&Figures) -> f64| {
            figures.map_or_else(|| "-".to_owned(), |figures| figure(figures).to_string())
        };
        let pair = |figure| format!("{} | {}", of(after, figure), of(before, figure));
        let ratio = before.zip(after).map_or_else(
            || "-".to_owned(),
            |(before, after)| format!("{:.3}", after.instructions / before.instructions),
        );
        let (instructions, allocations, bytes) =
            (pair(|it| it.instructions), pair(|it| it.allocations), pair(|it| it.bytes));
        let verdict = match verdict {
            Verdict::Same => "",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Unknown => "NOT IN BOTH",
        };
        let _ = writeln!(text, "| {name} | {instructions} | {ratio} | {allocations} | {bytes} | {verdict} |");
    }
    text.push_str(&describe_machines(&before.made_on, &now.made_on));
    let any = |wanted| verdicts.values().any(|verdict| *verdict == wanted);
    if any(Verdict::Worse) {
        text.push_str(
            "A stage costs more than its baseline. Find the cause. If the cost is justified, renew the baseline and \
             explain the increase in the commit:\n",
        );
    } else if any(Verdict::Better) {
        text.push_str(
            "A stage costs less than its baseline. Renew the baseline, so that a later increase is detected:\n",
        );
    } else if any(Verdict::Unknown) {
        text.push_str("A stage was added or removed. Renew the baseline:\n");
    } else {
        return text;
    }
    text.push_str("    cargo run --release -p steadfast-guard -- renew\n");
    text
}

/// Describes both machines and the tolerances between them.
fn describe_machines(before: &Machine, now: &Machine) -> String {
    let Machine { compiler, libc, processor } = now;
    let mut text = format!("\n{compiler}; {libc}; {processor}. ");
    if before != now {
        let Machine { compiler, libc, processor } = before;
        let _ = write!(text, "Before: {compiler}; {libc}; {processor}. ");
    }
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let _ = match tolerance(before, now) {
        Some(tolerance) => write!(text, "Instructions may be {} more", percent(tolerance)),
        None => write!(text, "Instructions are NOT compared, because the processors differ"),
    };
    let _ = writeln!(text, ", allocations and bytes {}.", percent(TOLERANCE_OF_ALLOCATIONS));
    text
}
