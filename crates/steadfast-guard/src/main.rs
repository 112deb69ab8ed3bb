//! The guard of what an object costs: instructions, allocations and bytes, stage by stage, beside those written down.
//!
//! ```sh
//! cargo run --release -p steadfast-guard            # compares, and fails where a stage costs more
//! cargo run --release -p steadfast-guard -- renew   # writes down what the stages cost now
//! ```
//!
//! Time says little on a machine that others use; the number of instructions is the same in each run. Each stage runs in
//! a process of its own under valgrind's callgrind, which counts only while the stage itself is at work. `docs/development/testing.md`
//! says what the numbers depend on.

mod baseline;
mod callgrind;
mod figures;
mod meter;
mod sample;
mod stages;
mod table;

use std::process::ExitCode;

use crate::baseline::{Baseline, Verdict};
use crate::figures::{Machine, Trouble};

const USAGE: &str = "usage: steadfast-guard [check | renew | stage NAME]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] | ["check"] => check(),
        ["renew"] => renew(),
        // What runs under callgrind.
        ["stage", name] => stage(name),
        _ => Err(USAGE.into()),
    };
    done.unwrap_or_else(|trouble| {
        eprintln!("steadfast-guard: {trouble}");
        ExitCode::from(2)
    })
}

/// Compares what the stages cost with what is written down.
fn check() -> Result<ExitCode, Trouble> {
    let (then, now) = (Baseline::read()?, measure()?);
    let verdicts = baseline::judge(&then, &now);
    print!("{}", table::comparison(&then, &now, &verdicts));
    let is_worse = verdicts.values().any(|verdict| matches!(verdict, Verdict::Worse | Verdict::Unknown));
    Ok(if is_worse { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes down what the stages cost.
fn renew() -> Result<ExitCode, Trouble> {
    let now = measure()?;
    print!("{}", table::comparison(&now, &now, &baseline::judge(&now, &now)));
    now.write()?;
    Ok(ExitCode::SUCCESS)
}

fn measure() -> Result<Baseline, Trouble> {
    let mut made_on = Machine::here()?;
    let mut stages = std::collections::BTreeMap::new();
    for stage in stages::STAGES {
        let (told, figures) = callgrind::count(stage.name)?;
        made_on.processor = told;
        stages.insert(stage.name.to_owned(), figures);
    }
    Ok(Baseline { made_on, stages })
}

fn stage(name: &str) -> Result<ExitCode, Trouble> {
    let stage = stages::STAGES.iter().find(|stage| stage.name == name);
    let stage = stage.ok_or_else(|| format!("no stage is called {name}"))?;
    println!("{}", serde_json::to_string(&stage.run())?);
    Ok(ExitCode::SUCCESS)
}
