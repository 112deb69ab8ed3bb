//! The recorded baseline of the stages' costs, and its comparison with the current costs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::figures::{Figures, GuardError, Machine};

/// Tolerated increase of instructions on an equal machine, as a fraction.
///
/// Runs of one program differ by a thousandth. The rest of the tolerance allows for effects of changes elsewhere, such
/// as other inlining or another memory layout.
pub(crate) const TOLERANCE: f64 = 0.03;

/// Tolerated increase of instructions with another compiler or another libc, as a fraction.
pub(crate) const TOLERANCE_OTHER_TOOLCHAIN: f64 = 0.10;

/// Tolerated increase of allocations and allocated bytes on any machine, as a fraction.
///
/// Both depend on the source alone, except for the growth strategy of the standard library's collections.
pub(crate) const TOLERANCE_OF_ALLOCATIONS: f64 = 0.01;

/// Costs of all stages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    pub(crate) made_on: Machine,
    /// Costs by name of the stage.
    pub(crate) stages: BTreeMap<String, Figures>,
}

/// Result of the comparison of a stage with its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The costs are equal within the tolerance.
    Same,
    /// The costs have decreased beyond the tolerance. The baseline should be renewed, so that a later increase is
    /// detected.
    Better,
    /// The costs have increased beyond the tolerance.
    Worse,
    /// The stage is missing in the baseline or in the measurement.
    Unknown,
}

impl Baseline {
    fn path() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json"))
    }

    /// Reads the baseline.
    pub(crate) fn read() -> Result<Self, GuardError> {
        let path = Self::path();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Writes the baseline.
    pub(crate) fn write(&self) -> Result<(), GuardError> {
        Ok(std::fs::write(Self::path(), serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// Returns the tolerance for instructions. Returns `None` for another processor, since it executes other instructions.
pub(crate) fn tolerance(before: &Machine, now: &Machine) -> Option<f64> {
    // libc selects its functions by the instruction set, so counts of different processors are not comparable.
    if before.processor != now.processor {
        None
    } else if before == now {
        Some(TOLERANCE)
    } else {
        Some(TOLERANCE_OTHER_TOOLCHAIN)
    }
}

/// Compares each stage with its baseline.
pub(crate) fn compare_baselines(before: &Baseline, now: &Baseline) -> BTreeMap<String, Verdict> {
    let tolerance = tolerance(&before.made_on, &now.made_on);
    // Includes the stages of both measurements: a removed stage must be reported like a new stage.
    let names = before.stages.keys().chain(now.stages.keys());
    let verdict = |name: &String| match (before.stages.get(name), now.stages.get(name)) {
        (Some(before), Some(now)) => compare(before, now, tolerance),
        _ => Verdict::Unknown,
    };
    names.map(|name| (name.clone(), verdict(name))).collect()
}

fn compare(before: &Figures, now: &Figures, tolerance: Option<f64>) -> Verdict {
    let pairs = [
        (before.instructions, now.instructions, tolerance),
        (before.allocations, now.allocations, Some(TOLERANCE_OF_ALLOCATIONS)),
        (before.bytes, now.bytes, Some(TOLERANCE_OF_ALLOCATIONS)),
    ];
    let compared = || pairs.into_iter().filter_map(|(before, now, tolerance)| Some((before, now, tolerance?)));
    // An increase in one figure outweighs decreases in the others.
    if compared().any(|(before, now, tolerance)| now > before * (1.0 + tolerance)) {
        Verdict::Worse
    } else if compared().any(|(before, now, tolerance)| now < before * (1.0 - tolerance)) {
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

    fn compared_with_one(now: Figures, made_on: Machine) -> Verdict {
        let baseline = |made_on, figures| Baseline { made_on, stages: [("stage".to_owned(), figures)].into() };
        compare_baselines(&baseline(machine("one", "x"), ONE), &baseline(made_on, now))["stage"]
    }

    #[test]
    fn small_cost_increase_is_tolerated() {
        let here = || machine("one", "x");
        assert_eq!(compared_with_one(ONE, here()), Verdict::Same);
        assert_eq!(compared_with_one(Figures { instructions: 1029.0, ..ONE }, here()), Verdict::Same);
        assert_eq!(compared_with_one(Figures { instructions: 1031.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(compared_with_one(Figures { allocations: 5.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(compared_with_one(Figures { bytes: 102.0, ..ONE }, here()), Verdict::Worse);
        assert_eq!(compared_with_one(Figures { instructions: 500.0, ..ONE }, here()), Verdict::Better);
        assert_eq!(compared_with_one(Figures { instructions: 500.0, allocations: 5.0, ..ONE }, here()), Verdict::Worse);
    }

    #[test]
    fn tolerance_depends_on_compiler_and_processor() {
        let more = Figures { instructions: 1090.0, ..ONE };
        assert_eq!(compared_with_one(more, machine("two", "x")), Verdict::Same);
        assert_eq!(compared_with_one(Figures { instructions: 1110.0, ..ONE }, machine("two", "x")), Verdict::Worse);
        assert_eq!(compared_with_one(Figures { instructions: 5000.0, ..ONE }, machine("one", "y")), Verdict::Same);
        assert_eq!(compared_with_one(Figures { allocations: 5.0, ..ONE }, machine("one", "y")), Verdict::Worse);
    }

    #[test]
    fn unknown_stage_is_reported() {
        let baseline = |name: &str| Baseline { made_on: machine("one", "x"), stages: [(name.to_owned(), ONE)].into() };
        let verdicts = compare_baselines(&baseline("old"), &baseline("new"));
        assert_eq!(verdicts["old"], Verdict::Unknown);
        assert_eq!(verdicts["new"], Verdict::Unknown);
    }
}
