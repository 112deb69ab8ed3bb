//! Two measurements of all stages beside each other, for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::baseline::{Baseline, TOLERANCE_OF_ALLOCATIONS, Verdict, tolerance};
use crate::figures::{Figures, Machine};

/// A row a stage, and what is to be done.
pub(crate) fn comparison(then: &Baseline, now: &Baseline, verdicts: &BTreeMap<String, Verdict>) -> String {
    let mut text = String::from(
        "| for one object or event | instructions | before | ratio | allocations | before | bytes | before | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, verdict) in verdicts {
        let (before, after) = (then.stages.get(name), now.stages.get(name));
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
    text.push_str(&setting(&then.made_on, &now.made_on));
    let any = |wanted| verdicts.values().any(|verdict| *verdict == wanted);
    if any(Verdict::Worse) {
        text.push_str(
            "A stage costs more than is written down. Find out why; where the price is worth it, write it down and say \
             so in the commit:\n",
        );
    } else if any(Verdict::Better) {
        text.push_str("A stage costs less than is written down. Write that down, so that it stays so:\n");
    } else if any(Verdict::Unknown) {
        text.push_str("A stage is new or gone. Write that down:\n");
    } else {
        return text;
    }
    text.push_str("    cargo run --release -p steadfast-guard -- renew\n");
    text
}

/// What the numbers before and after were made on, and how far they may be apart because of that.
fn setting(then: &Machine, now: &Machine) -> String {
    let Machine { compiler, libc, processor } = now;
    let mut text = format!("\n{compiler}; {libc}; {processor}. ");
    if then != now {
        let Machine { compiler, libc, processor } = then;
        let _ = write!(text, "Before: {compiler}; {libc}; {processor}. ");
    }
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let _ = match tolerance(then, now) {
        Some(tolerance) => write!(text, "Instructions may be {} more", percent(tolerance)),
        None => write!(text, "Instructions are NOT compared, for the processor is another one"),
    };
    let _ = writeln!(text, ", allocations and bytes {}.", percent(TOLERANCE_OF_ALLOCATIONS));
    text
}
