//! A disk is full for some time, starting at each of its writes in turn. A durable handler must still receive all
//! events in order, and the next run must deliver the unacknowledged ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast::Diagnostic;
use steadfast::unstable::failing_checkpoint;
use steadfast_apiserver::ApiServer;
use steadfast_core::random::Random;
use steadfast_testing::{InMemory, TestError};

use crate::delivery_check::{HandlerRecord, check_deliveries, lines};
use crate::durable::{HandlerAction, Log, mirror};
use crate::files::Folder;
use crate::histories::change;
use crate::program_run::{ProgramRun, config_maps};

/// Result of a test with one outage of the disk.
struct Run {
    changes: u64,
    unwritten: u64,
    was_noted: bool,
}

/// Runs the program twice on a disk that fails `many` writes, starting at the write with the number `from`.
async fn run(from: u64, many: u64) -> Result<Option<Run>, TestError> {
    let folder = Folder::new(&format!("full-{from}-{many}"))?;
    let (path, changes) = (folder.file(), Arc::new(AtomicU64::new(0)));
    let count = changes.clone();
    let fails = move || {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        number >= from && number - from < many
    };
    let Ok(checkpoint) = failing_checkpoint(&path, fails) else { return Ok(None) };
    let server = ApiServer::builder().in_memory().start().await?;
    let mut random = Random::new(11);
    for round in 0..6 {
        change(&server, &mut random, round);
    }
    let (log, network) = (Log::default(), InMemory::default());
    let program = ProgramRun::start_with(&server, &network, checkpoint, &path).await?;
    let registration = mirror(&program, &log, |event| match event.failures {
        0 if event.id.ends_with('3') => HandlerAction::Fail,
        _ => HandlerAction::Acknowledge,
    })?;
    for round in 0..12 {
        change(&server, &mut random, 10 + round);
        tokio::time::sleep(Duration::from_millis(if round % 4 == 0 { 700 } else { 60 })).await;
    }
    // The handler must not wait longer than this for an event, even if the disk is full.
    tokio::time::sleep(Duration::from_secs(60)).await;
    check_deliveries(&config_maps(&server)?, &log.lock())
        .map_err(|error| format!("{many} writes from {from}: {error}"))?;
    let unwritten = registration.stats().unrecorded;
    let was_noted = !program.noted(|note| matches!(note, Diagnostic::DeliveredUnrecorded { .. })).is_empty();
    let number = changes.load(Ordering::Relaxed);
    let is_well = number >= from.saturating_add(many);

    change(&server, &mut random, 30);
    tokio::time::sleep(Duration::from_millis(20 + random.below(100))).await;
    let path = program.simulate_kill(&folder)?;
    log.lock().push(HandlerRecord::Killed);
    change(&server, &mut random, 31);
    let again = Log::default();
    let program = ProgramRun::start(&server, &path, 2).await?;
    mirror(&program, &again, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut log = log.lock().clone();
    // The next run cannot know events that were not written.
    if !is_well || !program.noted(|note| matches!(note, Diagnostic::NotRestored { .. })).is_empty() {
        log = vec![HandlerRecord::CheckpointRejected];
    }
    log.extend(again.lock().iter().cloned());
    if is_well {
        check_deliveries(&config_maps(&server)?, &log)
            .map_err(|error| format!("{many} writes from {from}, the next run: {error}\n{}", lines(&log)))?;
    }
    Ok(Some(Run { changes: number, unwritten, was_noted }))
}

#[test]
fn full_disk_delays_no_delivery() -> Result<(), TestError> {
    let in_virtual_time = |from, many| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(run(from, many))
    };
    let full_run = in_virtual_time(u64::MAX, 0)?.ok_or("the checkpoint opens")?;
    assert!(full_run.unwritten == 0 && !full_run.was_noted && full_run.changes > 100, "{}", full_run.changes);
    let all = std::env::var("STEADFAST_DISK_FAILURES").is_ok_and(|which| which == "all");
    let step = if all { 1 } else { 29 };
    let (mut runs, mut unwritten, mut noted) = (0, 0, 0);
    for from in (1..=full_run.changes).step_by(step) {
        for many in [1, 4, u64::MAX] {
            let Some(run) = in_virtual_time(from, many)? else { continue };
            assert_eq!(run.unwritten > 0, run.was_noted, "{many} writes from {from}");
            (runs, unwritten, noted) = (runs + 1, unwritten + run.unwritten, noted + u64::from(run.was_noted));
        }
    }
    println!(
        "{} writes, {runs} runs, {unwritten} events delivered before they were written, reported in {noted} runs",
        full_run.changes
    );
    assert!(noted > 3 && noted < runs, "{noted} of {runs}");
    Ok(())
}
