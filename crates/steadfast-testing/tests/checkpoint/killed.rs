//! A real process with a checkpoint that is killed (`SIGKILL`) at random moments under a hundred changes a second: what the next one
//! begins with is what the server had at the version that it says, by the server's own history, and nothing is listed again. And
//! what its durable handler is told, over all of them, is what the server's history has to be told.
//!
//! `STEADFAST_KILLS=1000` does it so often. Each process is this program once more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_contract::History;
use steadfast_core::random::Random;
use steadfast_testing::WorldError;

use crate::files::Folder;
use crate::judge::{Seen, judge, lines, told_of};
use crate::server::Server;
use crate::victim::{Victim, live_if_asked};

#[test]
fn what_a_killed_process_has_left_is_a_state_that_was() -> Result<(), WorldError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(live) = live_if_asked() {
        return runtime.block_on(live);
    }
    runtime.block_on(async {
        let folder = Folder::new("killed")?;
        kill(Server::embedded(&folder).await?, &folder, 10).await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_beside_a_real_api_server() -> Result<(), WorldError> {
    let folder = Folder::new("killed-really")?;
    let Some(server) = Server::real(&folder).await? else { return Ok(()) };
    kill(server, &folder, 10).await
}

/// What the server had at `version`, in the words of a process.
fn had(history: &History, version: u64) -> String {
    let mut objects = BTreeMap::new();
    for change in told_of(history).filter(|change| change.version <= version) {
        match change.object {
            Some(_) => drop(objects.insert(change.name.clone(), change.version)),
            None => drop(objects.remove(&change.name)),
        }
    }
    let objects = objects.iter().map(|(name, version)| format!(" {name}={version}"));
    format!("{version}{}", objects.collect::<String>())
}

async fn kill(mut server: Server, folder: &Folder, usually: usize) -> Result<(), WorldError> {
    let kills = std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(usually);
    let seed = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let (kubeconfig, file) = (server.kubeconfig(), folder.file());
    let ended = Arc::new(AtomicBool::new(false));
    let changes = server.change(seed, ended.clone()).await?;

    let (mut resumed, mut listed, begun, mut log) = (0, 0, Instant::now(), Vec::new());
    for kill in 0..kills {
        let mut process = Victim::start(&kubeconfig, &file)?;
        let held = process.says().await?;
        let version = held.split(' ').next().unwrap_or_default().parse()?;
        let history = server.history_until(version).await?;
        assert_eq!(held, had(&history, version), "kill {kill}: what it begins with is what there was");
        tokio::time::sleep(random.between(Duration::ZERO, Duration::from_millis(400))).await;
        if let Some(wrong) = process.has_said() {
            panic!("kill {kill}: {wrong}");
        }
        log.push(Seen::Died);
        log.extend(process.kill()?);
        let now = server.lists()?;
        resumed += usize::from(now == listed);
        listed = now;
    }
    ended.store(true, Ordering::Relaxed);
    changes.await??;
    let mut process = Victim::start(&kubeconfig, &file)?;
    process.says().await?;
    let last = process.ends_with().await?;
    log.push(Seen::Died);
    log.extend(process.kill()?);
    let history = server.history().await?;
    let (held, there) = (last.split_once(' '), had(&history, u64::MAX));
    let there = there.split_once(' ').map(|(_, objects)| objects);
    assert_eq!(Some(held.map_or("", |(_, objects)| objects)), there, "all is there in the end");
    let sum = judge(&history, &log).map_err(|wrong| format!("seed {seed}: {wrong}\n{}", lines(&log)))?;
    println!("{kills} kills: {sum:?}");
    assert!(sum.ends * 20 > kills, "deletions are among them: {sum:?}");
    println!("{kills} kills in {:?}: {resumed} went on without a list, {listed} lists", begun.elapsed());
    // One that is killed before its first state is on the disk leaves nothing to the next.
    assert!(resumed * 2 >= kills, "{resumed} of {kills} went on without a list");
    Ok(())
}
