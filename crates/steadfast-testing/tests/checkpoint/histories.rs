//! Random histories over several runs of a program. All runs form one trace, in which each run is a separate informer.
//! The contract checker checks the trace.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_contract::check;
use steadfast_core::random::Random;
use steadfast_testing::{InMemory, Recorder, TestError, config_map, history};

use crate::files::Folder;
use crate::program_run::{ProgramRun, lists, server_objects};

/// Counts of one history, or of all histories.
#[derive(Default)]
struct RunCounts {
    lists: usize,
    runs: usize,
    restored: usize,
}

fn random_name(random: &mut Random) -> String {
    format!("a-{}", random.below(12))
}

pub(crate) fn random_change(server: &ApiServer, random: &mut Random, round: u64) {
    let name = random_name(random);
    let exists = server.get("configmaps", "default", &name).is_ok();
    // An error is ignored: the change is then skipped.
    let _ = match (exists, random.below(4)) {
        (true, 0) => server.delete_named("configmaps", "default", &name).map(drop),
        (true, 1) => server
            .delete_named("configmaps", "default", &name)
            .and_then(|_| server.create(&config_map(&name, &round.to_string())))
            .map(drop),
        (true, _) => server.replace(&config_map(&name, &round.to_string())).map(drop),
        (false, _) => server.create(&config_map(&name, &round.to_string())).map(drop),
    };
}

async fn run_history(seed: u64) -> Result<RunCounts, TestError> {
    let folder = Folder::new(&format!("history-{seed}"))?;
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().seed(seed).start().await?;
    let recorder = Recorder::of(&server);
    let mut counts = RunCounts::default();
    let mut path = folder.file();
    let runs = 3 + random.below(4);
    for number in 0..runs {
        let network = InMemory { seed: seed * 100 + number, ..InMemory::default() };
        let program = ProgramRun::start_on_network(&server, &network, &path).await?;
        let recording = recorder.record_as(&program.informer, &format!("run {number}"));
        for round in 0..random.below(40) {
            random_change(&server, &mut random, round);
            let wait = if random.below(5) == 0 { random.below(4000) } else { random.below(60) };
            tokio::time::sleep(Duration::from_millis(wait)).await;
            if random.below(25) == 0 {
                server.faults().reset();
            }
        }
        counts.runs += 1;
        counts.restored += program.diagnostics(|note| matches!(note, steadfast::Diagnostic::Restored { .. })).len();
        if number + 1 == runs {
            recorder.settle(&server).await;
            assert!(program.informer.freshness().is_fresh(), "seed {seed}: {}", program.informer.freshness());
            assert_eq!(
                program.cached_objects(),
                server_objects(&server, (0..12).map(|index| format!("a-{index}"))),
                "seed {seed}"
            );
            drop(recording);
            program.simulate_kill(&folder)?;
            break;
        }
        path = program.simulate_kill(&folder)?;
        for round in 0..random.below(20) {
            random_change(&server, &mut random, 1000 + round);
        }
        match random.below(5) {
            0 => {
                server.compact();
                server.faults().expire_events();
            }
            1 => server.faults().restart(),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(random.below(3000))).await;
    }
    counts.lists = lists(&server);
    check(&history(&server, "", "configmaps")?, &recorder.trace())
        .map_err(|broken| format!("seed {seed}: {broken}"))?;
    Ok(counts)
}

#[test]
fn random_histories_over_runs_keep_contract() -> Result<(), TestError> {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(20);
    let mut sum = RunCounts::default();
    for seed in 1..=seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let counts = runtime.block_on(run_history(seed))?;
        sum.runs += counts.runs;
        sum.restored += counts.restored;
        sum.lists += counts.lists;
    }
    println!("{} runs, {} of them from a checkpoint, {} lists", sum.runs, sum.restored, sum.lists);
    assert!(sum.restored * 2 > sum.runs, "most runs must start from a checkpoint: {} of {}", sum.restored, sum.runs);
    assert!(sum.lists < sum.runs, "some runs must not list: {} lists, {} runs", sum.lists, sum.runs);
    Ok(())
}
