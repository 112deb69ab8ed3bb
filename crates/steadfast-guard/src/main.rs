//! Guard of the costs of an object: instructions, allocations and bytes of each stage, compared with a baseline.
//!
//! ```sh
//! cargo run --release -p steadfast-guard            # compares, and fails if a stage costs more
//! cargo run --release -p steadfast-guard -- renew   # records the current costs as the baseline
//! ```
//!
//! Measured times are not reliable on a shared machine, but the number of instructions is nearly equal in each run.
//! Each stage runs in its own process under valgrind's callgrind, which counts only the measured part of the stage.
//! `docs/development/testing.md` lists the factors that affect the numbers.

mod baseline;
mod callgrind;
mod figures;
mod meter;
mod sample;
mod stages;
mod table;

use std::process::ExitCode;

use crate::baseline::{Baseline, Verdict};
use crate::figures::{GuardError, Machine};

const USAGE: &str = "usage: steadfast-guard [check | renew | stage NAME]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] | ["check"] => check(),
        ["renew"] => renew(),
        // This process runs under callgrind.
        ["stage", name] => stage(name),
        _ => Err(USAGE.into()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("steadfast-guard: {error}");
        ExitCode::from(2)
    })
}

/// Compares the costs of the stages with the baseline.
fn check() -> Result<ExitCode, GuardError> {
    let (before, now) = (Baseline::read()?, measure()?);
    let verdicts = baseline::compare_baselines(&before, &now);
    print!("{}", table::comparison(&before, &now, &verdicts));
    // A missing stage fails too: a renamed stage would otherwise escape its comparison.
    let is_worse = verdicts.values().any(|verdict| matches!(verdict, Verdict::Worse | Verdict::Unknown));
    Ok(if is_worse { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Renews the baseline.
fn renew() -> Result<ExitCode, GuardError> {
    let now = measure()?;
    print!("{}", table::comparison(&now, &now, &baseline::compare_baselines(&now, &now)));
    now.write()?;
    Ok(ExitCode::SUCCESS)
}

fn measure() -> Result<Baseline, GuardError> {
    let mut made_on = Machine::here()?;
    let mut stages = std::collections::BTreeMap::new();
    for stage in stages::STAGES {
        let (processor, figures) = callgrind::count(stage.name)?;
        // All stages run on one machine, so that the last report is valid for all stages.
        made_on.processor = processor;
        stages.insert(stage.name.to_owned(), figures);
    }
    Ok(Baseline { made_on, stages })
}

fn stage(name: &str) -> Result<ExitCode, GuardError> {
    let stage = stages::STAGES.iter().find(|stage| stage.name == name);
    let stage = stage.ok_or_else(|| format!("unknown stage {name}; see `stages.rs` for the names"))?;
    println!("{}", serde_json::to_string(&stage.run())?);
    Ok(ExitCode::SUCCESS)
}
