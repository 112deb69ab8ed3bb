//! Random histories: no write of a holder is accepted after the first write of its successor.
//!
//! A failing seed is printed. `STEADFAST_SEED=n cargo test -p steadfast-testing --test election one_history` repeats
//! the seed alone and prints its faults. `one_coordinated_history` repeats a seed with a coordinator.
//! `STEADFAST_SEEDS=n` runs `n` seeds, starting at `STEADFAST_FIRST_SEED`.

use steadfast_controller::InjectedElectionFault;
use steadfast_testing::TestError;

use crate::election_scheme::ElectionScheme;
use crate::faults::{block_on_virtual_time, enable_logging, env_number};
use crate::process::Mutant;
use crate::random_history::{HistoryResult, run_history};

const COORDINATED: ElectionScheme = ElectionScheme::Coordinated(None);

fn run(seed: u64, scheme: ElectionScheme, mutant: Option<Mutant>) -> Result<HistoryResult, TestError> {
    block_on_virtual_time(run_history(seed, scheme, mutant))
}

/// Totals over all histories.
#[derive(Debug, Default)]
struct HistoryTotals {
    seeds: u64,
    write_runs: usize,
    writes: usize,
    transfers_from_active_holders: usize,
}

/// Runs the requested seeds. Fails if a history contains a violation.
fn run_seeds_without_violation(scheme: ElectionScheme) -> Result<HistoryTotals, TestError> {
    let (mut failed_seeds, mut totals) = (Vec::new(), HistoryTotals::default());
    let first = env_number("STEADFAST_FIRST_SEED", 0);
    totals.seeds = env_number("STEADFAST_SEEDS", 40);
    for seed in first..first + totals.seeds {
        let result = run(seed, scheme, None)?;
        totals.write_runs += result.write_runs.len();
        totals.writes += result.write_runs.iter().map(|run| run.writes).sum::<usize>();
        totals.transfers_from_active_holders += result.transfers_from_active_holders;
        if !result.problems.is_empty() {
            println!("seed {seed}: {:#?}", result.problems);
            failed_seeds.push(seed);
        }
    }
    assert_eq!(failed_seeds, [0; 0], "a former leader wrote in these histories, or no candidate led");
    println!("{totals:?}");
    assert!(
        totals.write_runs as u64 > 3 * totals.seeds,
        "too few runs of writes to prove anything: {}",
        totals.write_runs
    );
    Ok(totals)
}

/// Checks that one of the first 200 histories with this omission contains an accepted write of a former leader.
fn assert_mutant_detected(scheme: ElectionScheme, mutant: Option<Mutant>) -> Result<(), TestError> {
    let omission = format!("{scheme:?} {mutant:?}");
    for seed in 0..200 {
        let problems = run(seed, scheme, mutant)?.problems;
        if let Some(problem) = problems.iter().find(|problem| problem.contains(" wrote at ")) {
            println!("{omission} is found by seed {seed}: {problem}");
            return Ok(());
        }
    }
    Err(format!("{omission} is not found by 200 histories").into())
}

/// Runs the seed of `STEADFAST_SEED`. Without the variable, checks that a seed determines its history.
fn run_one_seed(scheme: ElectionScheme) -> Result<(), TestError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, scheme, None)?, run(1, scheme, None)?);
        assert_eq!(first.log, second.log, "a seed must determine its faults");
        let write_runs = |result: &HistoryResult| format!("{:?}", result.write_runs);
        assert_eq!(write_runs(&first), write_runs(&second), "a seed must determine its writes");
        return Ok(());
    };
    enable_logging("steadfast=debug,steadfast_controller=debug");
    let result = run(seed, scheme, None)?;
    println!("{}\n{:#?}", result.log, result.write_runs);
    assert!(result.problems.is_empty(), "{:#?}", result.problems);
    Ok(())
}

#[test]
fn old_holder_never_writes_after_new() -> Result<(), TestError> {
    run_seeds_without_violation(ElectionScheme::FirstCandidate).map(drop)
}

#[test]
fn coordinated_holders_never_write_concurrently() -> Result<(), TestError> {
    let HistoryTotals { seeds, transfers_from_active_holders, .. } = run_seeds_without_violation(COORDINATED)?;
    assert!(
        transfers_from_active_holders as u64 > seeds,
        "too few transfers from an acting holder: {transfers_from_active_holders}"
    );
    Ok(())
}

#[test]
fn missing_protections_are_detected() -> Result<(), TestError> {
    for mutant in [Mutant::OrdinaryClient, Mutant::UnlimitedSendBuffer, Mutant::WallClock] {
        assert_mutant_detected(ElectionScheme::FirstCandidate, Some(mutant))?;
    }
    Ok(())
}

#[test]
fn immediate_lease_takeover_is_detected() -> Result<(), TestError> {
    assert_mutant_detected(ElectionScheme::Coordinated(Some(InjectedElectionFault::ImmediateLead)), None)
}

#[test]
fn missed_renewal_between_reads_is_detected() -> Result<(), TestError> {
    assert_mutant_detected(ElectionScheme::Coordinated(Some(InjectedElectionFault::SkippedReads)), None)
}

#[test]
fn early_lease_release_is_detected() -> Result<(), TestError> {
    assert_mutant_detected(ElectionScheme::Coordinated(Some(InjectedElectionFault::UnownedRelease)), None)
}

#[test]
fn one_history() -> Result<(), TestError> {
    run_one_seed(ElectionScheme::FirstCandidate)
}

#[test]
fn one_coordinated_history() -> Result<(), TestError> {
    run_one_seed(COORDINATED)
}
