//! Random histories over several runs of a program. Each run has its own informer in the trace, which the contract
//! checker checks.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_contract::check;
use steadfast_core::random::Random;
use steadfast_testing::{InMemory, Recorder, WorldError, config_map, history};

use crate::files::Folder;
use crate::life::{Life, lists, there};

/// Result of a run.
#[derive(Default)]
struct Told {
    lists: usize,
    lives: usize,
    restored: usize,
}

fn name(random: &mut Random) -> String {
    format!("a-{}", random.below(12))
}

pub(crate) fn change(server: &ApiServer, random: &mut Random, round: u64) {
    let name = name(random);
    let there = server.get("configmaps", "default", &name).is_ok();
    // Changes that an earlier change has made impossible are skipped.
    let _ = match (there, random.below(4)) {
        (true, 0) => server.delete_named("configmaps", "default", &name).map(drop),
        (true, 1) => server
            .delete_named("configmaps", "default", &name)
            .and_then(|_| server.create(&config_map(&name, &round.to_string())))
            .map(drop),
        (true, _) => server.replace(&config_map(&name, &round.to_string())).map(drop),
        (false, _) => server.create(&config_map(&name, &round.to_string())).map(drop),
    };
}

async fn run(seed: u64) -> Result<Told, WorldError> {
    let folder = Folder::new(&format!("history-{seed}"))?;
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().seed(seed).start().await?;
    let recorder = Recorder::of(&server);
    let mut told = Told::default();
    let mut path = folder.file();
    let lives = 3 + random.below(4);
    for number in 0..lives {
        let network = InMemory { seed: seed * 100 + number, ..InMemory::default() };
        let life = Life::begin_over(&server, &network, &path).await?;
        let recording = recorder.record_as(&life.informer, &format!("life {number}"));
        for round in 0..random.below(40) {
            change(&server, &mut random, round);
            let wait = if random.below(5) == 0 { random.below(4000) } else { random.below(60) };
            tokio::time::sleep(Duration::from_millis(wait)).await;
            if random.below(25) == 0 {
                server.faults().reset();
            }
        }
        told.lives += 1;
        told.restored += life.noted(|note| matches!(note, steadfast::Diagnostic::Restored { .. })).len();
        if number + 1 == lives {
            recorder.settle(&server).await;
            assert!(life.informer.freshness().is_fresh(), "seed {seed}: {}", life.informer.freshness());
            assert_eq!(life.held(), there(&server, (0..12).map(|index| format!("a-{index}"))), "seed {seed}");
            drop(recording);
            life.die(&folder)?;
            break;
        }
        path = life.die(&folder)?;
        for round in 0..random.below(20) {
            change(&server, &mut random, 1000 + round);
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
    told.lists = lists(&server);
    check(&history(&server, "", "configmaps")?, &recorder.trace())
        .map_err(|broken| format!("seed {seed}: {broken}"))?;
    Ok(told)
}

#[test]
fn random_histories_over_runs_keep_contract() -> Result<(), WorldError> {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(20);
    let mut sum = Told::default();
    for seed in 1..=seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let told = runtime.block_on(run(seed))?;
        sum.lives += told.lives;
        sum.restored += told.restored;
        sum.lists += told.lists;
    }
    println!("{} runs, {} of them from a checkpoint, {} lists", sum.lives, sum.restored, sum.lists);
    assert!(sum.restored * 2 > sum.lives, "most runs must start from a checkpoint: {} of {}", sum.restored, sum.lives);
    assert!(sum.lists < sum.lives, "some runs must not list: {} lists, {} runs", sum.lists, sum.lives);
    Ok(())
}
