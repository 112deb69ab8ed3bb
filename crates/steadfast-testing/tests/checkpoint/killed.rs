//! A real process with a checkpoint is killed (`SIGKILL`) at random times, during a hundred changes per second. The
//! next process must start without a list, with the state that the server had at the reported version. The check uses
//! the server's own history. The deliveries to the durable handler in all processes must match this history too.
//!
//! `STEADFAST_KILLS=1000` sets the number of kills. Each process is another instance of this test program.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_contract::History;
use steadfast_core::random::Random;
use steadfast_testing::TestError;

use crate::delivery_check::{HandlerRecord, check_deliveries, lines, relevant_changes};
use crate::files::Folder;
use crate::killed_process::{KilledProcess, run_as_child_if_requested};
use crate::server::Server;

#[test]
fn killed_process_leaves_consistent_checkpoint() -> Result<(), TestError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(child) = run_as_child_if_requested() {
        return runtime.block_on(child);
    }
    runtime.block_on(async {
        let folder = Folder::new("killed")?;
        check_kills(Server::embedded(&folder).await?, &folder, 10).await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_on_real_server_is_consistent() -> Result<(), TestError> {
    let folder = Folder::new("killed-really")?;
    let Some(server) = Server::real(&folder).await? else { return Ok(()) };
    check_kills(server, &folder, 10).await
}

/// Returns the server's state at `version`, in the format of the process.
fn state_at_version(history: &History, version: u64) -> String {
    let mut objects = BTreeMap::new();
    for change in relevant_changes(history).filter(|change| change.version <= version) {
        match change.object {
            Some(_) => drop(objects.insert(change.name.clone(), change.version)),
            None => drop(objects.remove(&change.name)),
        }
    }
    let objects = objects.iter().map(|(name, version)| format!(" {name}={version}"));
    format!("{version}{}", objects.collect::<String>())
}

async fn check_kills(mut server: Server, folder: &Folder, default_kills: usize) -> Result<(), TestError> {
    let kills = std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(default_kills);
    let seed = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let (kubeconfig, file) = (server.kubeconfig(), folder.file());
    let is_ended = Arc::new(AtomicBool::new(false));
    let change_task = server.change(seed, is_ended.clone()).await?;

    let (mut resumed_count, mut lists, start, mut log) = (0, 0, Instant::now(), Vec::new());
    for kill in 0..kills {
        let mut process = KilledProcess::start(&kubeconfig, &file)?;
        let cached = process.next_line().await?;
        let version = cached.split(' ').next().unwrap_or_default().parse()?;
        let history = server.history_until(version).await?;
        assert_eq!(
            cached,
            state_at_version(&history, version),
            "kill {kill}: the restored state must match the history"
        );
        tokio::time::sleep(random.between(Duration::ZERO, Duration::from_millis(400))).await;
        if let Some(error) = process.unexpected_line() {
            panic!("kill {kill}: {error}");
        }
        log.push(HandlerRecord::Killed);
        log.extend(process.kill()?);
        let current_lists = server.lists()?;
        resumed_count += usize::from(current_lists == lists);
        lists = current_lists;
    }
    is_ended.store(true, Ordering::Relaxed);
    change_task.await??;
    let mut process = KilledProcess::start(&kubeconfig, &file)?;
    process.next_line().await?;
    let last = process.final_state().await?;
    log.push(HandlerRecord::Killed);
    log.extend(process.kill()?);
    let history = server.history().await?;
    let (last_state, expected) = (last.split_once(' '), state_at_version(&history, u64::MAX));
    let expected = expected.split_once(' ').map(|(_, objects)| objects);
    assert_eq!(Some(last_state.map_or("", |(_, objects)| objects)), expected, "the final state must be complete");
    let counts = check_deliveries(&history, &log).map_err(|error| format!("seed {seed}: {error}\n{}", lines(&log)))?;
    println!("{kills} kills: {counts:?}");
    assert!(counts.deletions * 20 > kills, "deletions must occur: {counts:?}");
    println!("{kills} kills in {:?}: {resumed_count} resumed without a list, {lists} lists", start.elapsed());
    // If a process is killed before its first state is on disk, the next process must list.
    assert!(resumed_count * 2 >= kills, "only {resumed_count} of {kills} resumed without a list");
    Ok(())
}
