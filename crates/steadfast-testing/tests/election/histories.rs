//! Random histories: never a write is accepted from a holder after another holder's first one.
//!
//! A failing seed is printed; `STEADFAST_SEED=n cargo test -p steadfast-testing --test election one_history` repeats it alone
//! and tells what befell whom, `one_coordinated_history` one with a coordinator, and `STEADFAST_SEEDS=n` tries so many from
//! `STEADFAST_FIRST_SEED` on.

use steadfast_controller::ElectionBreach;
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
    reigns: usize,
    writes: usize,
    given_while_acting: usize,
}

/// Plays all that are asked for, in which nothing may be that must not.
fn nothing_is_found(way: Way) -> Result<Tally, WorldError> {
    let (mut broken, mut tally) = (Vec::new(), Tally::default());
    let first = number("STEADFAST_FIRST_SEED", 0);
    tally.seeds = number("STEADFAST_SEEDS", 40);
    for seed in first..first + tally.seeds {
        let told = run(seed, way, None)?;
        tally.reigns += told.reigns.len();
        tally.writes += told.reigns.iter().map(|reign| reign.writes).sum::<usize>();
        tally.given_while_acting += told.given_while_acting;
        if !told.problems.is_empty() {
            println!("seed {seed}: {:#?}", told.problems);
            broken.push(seed);
        }
    }
    assert_eq!(broken, [0; 0], "in these histories somebody wrote who was not the leader any more, or nobody led");
    println!("{tally:?}");
    assert!(tally.reigns as u64 > 3 * tally.seeds, "only {} reigns: nothing was tried", tally.reigns);
    Ok(tally)
}

/// One of the first histories has somebody write who was not the leader any more.
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

/// The one that is asked for, or whether one seed is one history.
fn one(way: Way) -> Result<(), WorldError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, way, None)?, run(1, way, None)?);
        assert_eq!(first.log, second.log, "one seed, one history");
        let reigns = |told: &Told| format!("{:?}", told.reigns);
        assert_eq!(reigns(&first), reigns(&second), "and one course of it");
        return Ok(());
    };
    tell_all("steadfast=debug,steadfast_controller=debug");
    let told = run(seed, way, None)?;
    println!("{}\n{:#?}", told.log, told.reigns);
    assert!(told.problems.is_empty(), "{:#?}", told.problems);
    Ok(())
}

#[test]
fn old_holder_never_writes_after_new() -> Result<(), WorldError> {
    nothing_is_found(Way::First).map(drop)
}

#[test]
fn coordinated_holders_never_write_concurrently() -> Result<(), WorldError> {
    let Tally { seeds, given_while_acting, .. } = nothing_is_found(COORDINATED)?;
    assert!(given_while_acting as u64 > seeds, "{given_while_acting} leases were given away while their holders acted");
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
    is_found(Way::Named(Some(ElectionBreach::AtOnce)), None)
}

#[test]
fn missed_renewal_between_reads_is_detected() -> Result<(), WorldError> {
    is_found(Way::Named(Some(ElectionBreach::Overlooked)), None)
}

#[test]
fn early_lease_release_is_detected() -> Result<(), WorldError> {
    is_found(Way::Named(Some(ElectionBreach::EmptyName)), None)
}

#[test]
fn one_history() -> Result<(), WorldError> {
    one(Way::First)
}

#[test]
fn one_coordinated_history() -> Result<(), WorldError> {
    one(COORDINATED)
}
