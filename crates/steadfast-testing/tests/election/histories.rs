//! Random histories: never a write is accepted from a holder after another holder's first one.
//!
//! A failing seed is printed; `STEADFAST_SEED=n cargo test -p steadfast-testing --test election one_history` repeats it alone
//! and tells what befell whom, and `STEADFAST_SEEDS=n` tries so many from `STEADFAST_FIRST_SEED` on.

use steadfast_testing::WorldError;

use crate::mishaps::{alone, number, tell_all};
use crate::process::Mutant;
use crate::story::{Told, play};

fn run(seed: u64, mutant: Option<Mutant>) -> Result<Told, WorldError> {
    alone(play(seed, mutant))
}

#[test]
fn of_two_holders_none_writes_after_the_other_has_begun() -> Result<(), WorldError> {
    let (mut broken, mut reigns, mut writes) = (Vec::new(), 0, 0);
    let first = number("STEADFAST_FIRST_SEED", 0);
    let seeds = number("STEADFAST_SEEDS", 40);
    for seed in first..first + seeds {
        let told = run(seed, None)?;
        reigns += told.reigns.len();
        writes += told.reigns.iter().map(|reign| reign.writes).sum::<usize>();
        if !told.problems.is_empty() {
            println!("seed {seed}: {:#?}", told.problems);
            broken.push(seed);
        }
    }
    assert_eq!(broken, [0; 0], "in these histories somebody wrote who was not the leader any more, or nobody led");
    println!("{seeds} histories: {reigns} reigns, {writes} writes");
    assert!(reigns as u64 > 3 * seeds, "only {reigns} reigns: nothing was tried");
    Ok(())
}

#[test]
fn what_is_missing_is_found() -> Result<(), WorldError> {
    for mutant in [Mutant::OrdinaryClient, Mutant::PatientKernel, Mutant::WallClock] {
        let mut found = None;
        for seed in 0..200 {
            let problems = run(seed, Some(mutant))?.problems;
            if let Some(problem) = problems.iter().find(|problem| problem.contains(" wrote at ")) {
                found = Some((seed, problem.clone()));
                break;
            }
        }
        let (seed, problem) = found.ok_or_else(|| format!("{mutant:?} is not found by 200 histories"))?;
        println!("{mutant:?} is found by seed {seed}: {problem}");
    }
    Ok(())
}

#[test]
fn one_history() -> Result<(), WorldError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, None)?, run(1, None)?);
        assert_eq!(first.log, second.log, "one seed, one history");
        let reigns = |told: &Told| format!("{:?}", told.reigns);
        assert_eq!(reigns(&first), reigns(&second), "and one course of it");
        return Ok(());
    };
    tell_all("steadfast=debug,steadfast_controller=debug");
    let told = run(seed, None)?;
    println!("{}\n{:#?}", told.log, told.reigns);
    assert!(told.problems.is_empty(), "{:#?}", told.problems);
    Ok(())
}
