//! Random histories over several runs of a program with a handler that fails, panics, is slow or never returns. The
//! check uses the server's history.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::Diagnostic;
use steadfast_apiserver::ApiServer;
use steadfast_core::random::Random;
use steadfast_testing::{InMemory, TestError};

use crate::delivery_check::{DeliveryCounts, HandlerRecord, check_deliveries, lines};
use crate::durable::{HandlerAction, Log, register_durable_handler};
use crate::files::Folder;
use crate::histories::random_change;
use crate::program_run::{ProgramRun, config_maps};

fn random_action(random: &Mutex<Random>, is_last: bool) -> HandlerAction {
    let mut random = random.lock();
    match random.below(if is_last { 40 } else { 12 }) {
        0 => HandlerAction::Fail,
        1 => HandlerAction::Panic,
        2 => HandlerAction::NeverReturn,
        3..6 => HandlerAction::TakeTime(Duration::from_millis(random.below(900))),
        _ => HandlerAction::Acknowledge,
    }
}

/// Damages the file between two runs: only a part of it remains.
fn truncate_file(path: &std::path::Path, random: &mut Random) -> std::io::Result<()> {
    let length = std::fs::metadata(path)?.len();
    std::fs::OpenOptions::new().write(true).open(path)?.set_len(1 + random.below(length / 2))
}

async fn run(seed: u64) -> Result<DeliveryCounts, TestError> {
    let folder = Folder::new(&format!("durable-history-{seed}"))?;
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().seed(seed).start().await?;
    let log = Log::default();
    let mut path = folder.file();
    let runs = 3 + random.below(5);
    for number in 0..runs {
        let is_last = number + 1 == runs;
        let network = InMemory { seed: seed * 100 + number, ..InMemory::default() };
        let program = ProgramRun::start_on_network(&server, &network, &path).await?;
        // The informer reports a damaged file after its start. A run that ends earlier would not report the damage.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let run_log = Log::default();
        let random_actions = Arc::new(Mutex::new(Random::new(seed * 1000 + number)));
        // The handler is added at the start or later. One in six runs has no handler.
        if is_last || random.below(6) > 0 {
            tokio::time::sleep(Duration::from_millis(random.below(2) * random.below(3000))).await;
            register_durable_handler(&program, &run_log, move |_| random_action(&random_actions, is_last))?;
        }
        for round in 0..random.below(60) {
            random_change(&server, &mut random, round);
            let wait = if random.below(8) == 0 { random.below(3000) } else { random.below(80) };
            tokio::time::sleep(Duration::from_millis(wait)).await;
            if random.below(25) == 0 {
                server.faults().reset();
            }
        }
        if is_last {
            tokio::time::sleep(Duration::from_secs(900)).await;
        }
        let is_rejected = !program.diagnostics(|note| matches!(note, Diagnostic::NotRestored { .. })).is_empty();
        path = program.simulate_kill(&folder)?;
        // Later actions of this run's handler are not copied from `run_log`, as if the program had been killed.
        let mut log = log.lock();
        log.push(HandlerRecord::Killed);
        if is_rejected {
            log.push(HandlerRecord::CheckpointRejected);
        }
        log.extend(run_log.lock().iter().cloned());
        drop(log);
        for round in 0..random.below(20) * u64::from(!is_last) {
            random_change(&server, &mut random, 1000 + round);
        }
        match random.below(6) * u64::from(!is_last) {
            1 => {
                server.compact();
                server.faults().expire_events();
            }
            2 => server.faults().restart(),
            3 => truncate_file(&path, &mut random)?,
            _ => {}
        }
    }
    let log = log.lock();
    Ok(check_deliveries(&config_maps(&server)?, &log)
        .map_err(|error| format!("seed {seed}: {error}\n{}", lines(&log)))?)
}

#[test]
fn random_histories_are_delivered_in_order() -> Result<(), TestError> {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(20_u64);
    let mut all = DeliveryCounts::default();
    for seed in 1..=seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let sum = runtime.block_on(run(seed))?;
        all.delivered += sum.delivered;
        all.repeated += sum.repeated;
        all.repeated_after_kill += sum.repeated_after_kill;
        all.deletions += sum.deletions;
    }
    println!("{all:?}");
    assert!(
        all.repeated_after_kill > 0 && all.repeated > all.repeated_after_kill && all.deletions as u64 > seeds,
        "{all:?}"
    );
    Ok(())
}
