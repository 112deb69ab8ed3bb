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
use crate::durable::{HandlerAction, Log, register_durable_handler};
use crate::files::Folder;
use crate::histories::random_change;
use crate::program_run::{ProgramRun, config_maps};

/// Result of a test with one outage of the disk.
struct OutageResult {
    writes: u64,
    unwritten: u64,
    was_noted: bool,
}

/// Runs the program twice on a disk that fails `failure_count` writes, starting at the write with the number
/// `first_failure`.
async fn run_with_outage(first_failure: u64, failure_count: u64) -> Result<Option<OutageResult>, TestError> {
    let folder = Folder::new(&format!("full-{first_failure}-{failure_count}"))?;
    let (path, writes) = (folder.file(), Arc::new(AtomicU64::new(0)));
    let captured_writes = writes.clone();
    let fails = move || {
        let write_count = captured_writes.fetch_add(1, Ordering::Relaxed) + 1;
        write_count >= first_failure && write_count - first_failure < failure_count
    };
    let Ok(checkpoint) = failing_checkpoint(&path, fails) else { return Ok(None) };
    let server = ApiServer::builder().in_memory().start().await?;
    let mut random = Random::new(11);
    for round in 0..6 {
        random_change(&server, &mut random, round);
    }
    let (log, network) = (Log::default(), InMemory::default());
    let program = ProgramRun::start_with(&server, &network, checkpoint, &path).await?;
    let registration = register_durable_handler(&program, &log, |event| match event.failures {
        0 if event.id.ends_with('3') => HandlerAction::Fail,
        _ => HandlerAction::Acknowledge,
    })?;
    for round in 0..12 {
        random_change(&server, &mut random, 10 + round);
        tokio::time::sleep(Duration::from_millis(if round % 4 == 0 { 700 } else { 60 })).await;
    }
    // The handler must not wait longer than this for an event, even if the disk is full.
    tokio::time::sleep(Duration::from_secs(60)).await;
    check_deliveries(&config_maps(&server)?, &log.lock())
        .map_err(|error| format!("{failure_count} writes from {first_failure}: {error}"))?;
    let unwritten = registration.stats().unrecorded;
    let was_noted = !program.diagnostics(|note| matches!(note, Diagnostic::DeliveredUnrecorded { .. })).is_empty();
    let write_count = writes.load(Ordering::Relaxed);
    let has_recovered = write_count >= first_failure.saturating_add(failure_count);

    random_change(&server, &mut random, 30);
    tokio::time::sleep(Duration::from_millis(20 + random.below(100))).await;
    let path = program.simulate_kill(&folder)?;
    log.lock().push(HandlerRecord::Killed);
    random_change(&server, &mut random, 31);
    let next_log = Log::default();
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &next_log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut log = log.lock().clone();
    // The next run cannot repeat events that were not written.
    if !has_recovered || !program.diagnostics(|note| matches!(note, Diagnostic::NotRestored { .. })).is_empty() {
        log = vec![HandlerRecord::CheckpointRejected];
    }
    log.extend(next_log.lock().iter().cloned());
    if has_recovered {
        check_deliveries(&config_maps(&server)?, &log).map_err(|error| {
            format!("{failure_count} writes from {first_failure}, the next run: {error}\n{}", lines(&log))
        })?;
    }
    Ok(Some(OutageResult { writes: write_count, unwritten, was_noted }))
}

#[test]
fn full_disk_delays_no_delivery() -> Result<(), TestError> {
    let in_virtual_time = |first_failure, failure_count| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(run_with_outage(first_failure, failure_count))
    };
    let full_run = in_virtual_time(u64::MAX, 0)?.ok_or("the checkpoint opens")?;
    assert!(full_run.unwritten == 0 && !full_run.was_noted && full_run.writes > 100, "{}", full_run.writes);
    let is_exhaustive = std::env::var("STEADFAST_DISK_FAILURES").is_ok_and(|scope| scope == "all");
    let step = if is_exhaustive { 1 } else { 29 };
    let (mut runs, mut unwritten, mut noted_count) = (0, 0, 0);
    for first_failure in (1..=full_run.writes).step_by(step) {
        for failure_count in [1, 4, u64::MAX] {
            let Some(result) = in_virtual_time(first_failure, failure_count)? else { continue };
            assert_eq!(result.unwritten > 0, result.was_noted, "{failure_count} writes from {first_failure}");
            (runs, unwritten, noted_count) =
                (runs + 1, unwritten + result.unwritten, noted_count + u64::from(result.was_noted));
        }
    }
    println!(
        "{} writes, {runs} runs, {unwritten} events delivered before they were written, reported in {noted_count} runs",
        full_run.writes
    );
    assert!(noted_count > 3 && noted_count < runs, "{noted_count} of {runs}");
    Ok(())
}
