//! What the stages cost when that was last written down, and what is said of what they cost now.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::figures::{Figures, Machine, Trouble};

/// By how much more instructions may be where all they depend on is the same. Runs of one program differ by a thousandth;
/// the rest is for what a change elsewhere does to a stage: other functions are inlined, memory lies otherwise.
pub(crate) const TOLERANCE: f64 = 0.03;

/// By how much more they may be with another compiler or another libc.
pub(crate) const TOLERANCE_ELSEWHERE: f64 = 0.10;

/// By how much more allocations and their bytes may be, wherever: they depend on the source alone, but for how the
/// standard library lets its collections grow.
pub(crate) const TOLERANCE_OF_ALLOCATIONS: f64 = 0.01;

/// What all stages cost.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    pub(crate) made_on: Machine,
    /// By name.
    pub(crate) stages: BTreeMap<String, Figures>,
}

/// What is said of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It costs what it did.
    Same,
    /// It costs less than the tolerance hides: worth writing down, so that it stays so.
    Better,
    /// It costs more.
    Worse,
    /// It is not written down, or is and is no more.
    Unknown,
}

impl Baseline {
    fn path() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json"))
    }

    /// The one that is written down.
    pub(crate) fn read() -> Result<Self, Trouble> {
        let path = Self::path();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Writes it down.
    pub(crate) fn write(&self) -> Result<(), Trouble> {
        Ok(std::fs::write(Self::path(), serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// By how much more instructions may be, if they can be compared at all: another processor executes others.
pub(crate) fn tolerance(then: &Machine, now: &Machine) -> Option<f64> {
    if then.processor != now.processor {
        None
    } else if then == now {
        Some(TOLERANCE)
    } else {
        Some(TOLERANCE_ELSEWHERE)
    }
}

/// What is to be said of each stage.
pub(crate) fn judge(then: &Baseline, now: &Baseline) -> BTreeMap<String, Verdict> {
    let tolerance = tolerance(&then.made_on, &now.made_on);
    let names = then.stages.keys().chain(now.stages.keys());
    let verdict = |name: &String| match (then.stages.get(name), now.stages.get(name)) {
        (Some(then), Some(now)) => compare(then, now, tolerance),
        _ => Verdict::Unknown,
    };
    names.map(|name| (name.clone(), verdict(name))).collect()
}

fn compare(then: &Figures, now: &Figures, tolerance: Option<f64>) -> Verdict {
    let pairs = [
        (then.instructions, now.instructions, tolerance),
        (then.allocations, now.allocations, Some(TOLERANCE_OF_ALLOCATIONS)),
        (then.bytes, now.bytes, Some(TOLERANCE_OF_ALLOCATIONS)),
    ];
    let compared = || pairs.into_iter().filter_map(|(then, now, tolerance)| Some((then, now, tolerance?)));
    if compared().any(|(then, now, tolerance)| now > then * (1.0 + tolerance)) {
        Verdict::Worse
    } else if compared().any(|(then, now, tolerance)| now < then * (1.0 - tolerance)) {
        Verdict::Better
    } else {
        Verdict::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Figures = Figures { instructions: 1000.0, allocations: 4.0, bytes: 100.0 };

    fn machine(compiler: &str, processor: &str) -> Machine {
        Machine { compiler: compiler.into(), libc: "glibc 2".into(), processor: processor.into() }
    }

    fn judged(now: Figures, made_on: Machine) -> Verdict {
        let baseline = |made_on, figures| Baseline { made_on, stages: [("stage".to_owned(), figures)].into() };
        judge(&baseline(machine("one", "x"), ONE), &baseline(made_on, now))["stage"]
    }

    #[test]
    fn a_stage_may_cost_a_little_more_and_no_more() {
        let here = || machine("one", "x");
        assert_eq!(judged(ONE, here()), Verdict::Same);
        assert_eq!(judged(Figures { instructions: 1029.0, ..ONE }, here()), Verdict::Same);
        assert_eq!(judged(Figures { instructions: 1031.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(judged(Figures { allocations: 5.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(judged(Figures { bytes: 102.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(judged(Figures { instructions: 500.0, ..ONE }, here()), Verdict::Better);
        assert_eq!(judged(Figures { instructions: 500.0, allocations: 5.0, ..ONE }, here()), Verdict::Worse);
    }

    #[test]
    fn another_compiler_has_more_room_and_another_processor_is_not_compared() {
        let more = Figures { instructions: 1090.0, ..ONE };
        assert_eq!(judged(more, machine("two", "x")), Verdict::Same);
        assert_eq!(judged(Figures { instructions: 1110.0, ..ONE }, machine("two", "x")), Verdict::Worse);
        assert_eq!(judged(Figures { instructions: 5000.0, ..ONE }, machine("one", "y")), Verdict::Same);
        assert_eq!(judged(Figures { allocations: 5.0, ..ONE }, machine("one", "y")), Verdict::Worse);
    }

    #[test]
    fn a_stage_that_is_not_written_down_or_no_more_measured_is_no_success() {
        let baseline = |name: &str| Baseline { made_on: machine("one", "x"), stages: [(name.to_owned(), ONE)].into() };
        let verdicts = judge(&baseline("old"), &baseline("new"));
        assert_eq!(verdicts["old"], Verdict::Unknown);
        assert_eq!(verdicts["new"], Verdict::Unknown);
    }
}
