//! Random histories: no write of a holder is accepted after the first write of its successor.
//!
//! A failing seed is printed. `STEADFAST_SEED=n cargo test -p steadfast-testing --test election one_history` repeats
//! the seed alone and prints its faults. `one_coordinated_history` repeats a seed with a coordinator.
//! `STEADFAST_SEEDS=n` runs `n` seeds, starting at `STEADFAST_FIRST_SEED`.

use steadfast_controller::InjectedElectionFault;
use steadfast_testing::WorldError;

use crate::mishaps::{alone, number, tell_all};
use crate::process::Mutant;
use crate::story::{Told, play};
use crate::way::Way;

const COORDINATED: Way = Way::Named(None);

fn run(seed: u64, way: Way, mutant: Option<Mutant>) -> Result<Told, WorldError> {
    alone(play(seed, way, mutant))
}

/// Totals over all histories.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    write_runs: usize,
    writes: usize,
    transfers_from_active_holders: usize,
}

/// Runs the requested seeds. Fails if a history contains a violation.
fn nothing_is_found(way: Way) -> Result<Tally, WorldError> {
    let (mut broken, mut tally) = (Vec::new(), Tally::default());
    let first = number("STEADFAST_FIRST_SEED", 0);
    tally.seeds = number("STEADFAST_SEEDS", 40);
    for seed in first..first + tally.seeds {
        let told = run(seed, way, None)?;
        tally.write_runs += told.write_runs.len();
        tally.writes += told.write_runs.iter().map(|run| run.writes).sum::<usize>();
        tally.transfers_from_active_holders += told.transfers_from_active_holders;
        if !told.problems.is_empty() {
            println!("seed {seed}: {:#?}", told.problems);
            broken.push(seed);
        }
    }
    assert_eq!(broken, [0; 0], "a former leader wrote in these histories, or no candidate led");
    println!("{tally:?}");
    assert!(
        tally.write_runs as u64 > 3 * tally.seeds,
        "too few runs of writes to prove anything: {}",
        tally.write_runs
    );
    Ok(tally)
}

/// Checks that one of the first 200 histories with this omission contains an accepted write of a former leader.
fn is_found(way: Way, mutant: Option<Mutant>) -> Result<(), WorldError> {
    let what = format!("{way:?} {mutant:?}");
    for seed in 0..200 {
        let problems = run(seed, way, mutant)?.problems;
        if let Some(problem) = problems.iter().find(|problem| problem.contains(" wrote at ")) {
            println!("{what} is found by seed {seed}: {problem}");
            return Ok(());
        }
    }
    Err(format!("{what} is not found by 200 histories").into())
}

/// Runs the seed of `STEADFAST_SEED`. Without the variable, checks that a seed determines its history.
fn one(way: Way) -> Result<(), WorldError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, way, None)?, run(1, way, None)?);
        assert_eq!(first.log, second.log, "a seed must determine its faults");
        let write_runs = |told: &Told| format!("{:?}", told.write_runs);
        assert_eq!(write_runs(&first), write_runs(&second), "a seed must determine its writes");
        return Ok(());
    };
    tell_all("steadfast=debug,steadfast_controller=debug");
    let told = run(seed, way, None)?;
    println!("{}\n{:#?}", told.log, told.write_runs);
    assert!(told.problems.is_empty(), "{:#?}", told.problems);
    Ok(())
}

#[test]
fn old_holder_never_writes_after_new() -> Result<(), WorldError> {
    nothing_is_found(Way::First).map(drop)
}

#[test]
fn coordinated_holders_never_write_concurrently() -> Result<(), WorldError> {
    let Tally { seeds, transfers_from_active_holders, .. } = nothing_is_found(COORDINATED)?;
    assert!(
        transfers_from_active_holders as u64 > seeds,
        "too few transfers from an acting holder: {transfers_from_active_holders}"
    );
    Ok(())
}

#[test]
fn what_is_missing_is_found() -> Result<(), WorldError> {
    for mutant in [Mutant::OrdinaryClient, Mutant::PatientKernel, Mutant::WallClock] {
        is_found(Way::First, Some(mutant))?;
    }
    Ok(())
}

#[test]
fn immediate_lease_takeover_is_detected() -> Result<(), WorldError> {
    is_found(Way::Named(Some(InjectedElectionFault::ImmediateLead)), None)
}

#[test]
fn missed_renewal_between_reads_is_detected() -> Result<(), WorldError> {
    is_found(Way::Named(Some(InjectedElectionFault::SkippedReads)), None)
}

#[test]
fn early_lease_release_is_detected() -> Result<(), WorldError> {
    is_found(Way::Named(Some(InjectedElectionFault::UnownedRelease)), None)
}

#[test]
fn one_history() -> Result<(), WorldError> {
    one(Way::First)
}

#[test]
fn one_coordinated_history() -> Result<(), WorldError> {
    one(COORDINATED)
}
