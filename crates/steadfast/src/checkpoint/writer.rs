//! Background task that writes pending changes in batches, so that no cache update waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::Diagnostic;
use tokio::sync::{oneshot, watch};

use super::database::{Fault, PartitionChange};
use super::write_queue::{PartitionWriter, WriteQueue};
use crate::environment::SharedEnvironment;

/// Time to collect changes into one batch. A transaction costs one disk sync, independent of its size.
const BATCH: Duration = Duration::from_millis(50);

/// Backoff after a failed write.
const RETRY_BACKOFF: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(500),
    second: Duration::from_secs(1),
    ceiling: Duration::from_secs(30),
};

/// Registers `attached` with the writer of the file, and starts the writer on `environment` if none runs.
pub(super) fn attach(queue: &Arc<WriteQueue>, attached: Arc<dyn PartitionWriter>, environment: &SharedEnvironment) {
    if queue.attach(attached) {
        environment.spawn(Box::pin(run(queue.clone(), environment.clone())));
    }
}

type WatchedPartition = (Arc<dyn PartitionWriter>, watch::Receiver<u64>);

/// Runs until no attached informer has pending changes.
async fn run(queue: Arc<WriteQueue>, environment: SharedEnvironment) {
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(RETRY_BACKOFF);
    let mut followed: Vec<WatchedPartition> = Vec::new();
    while let Some(newcomers) = queue.newcomers(followed.len()) {
        followed.extend(newcomers.into_iter().map(|attached| {
            // Changes before the registration count too.
            let mut changes = attached.changes();
            changes.mark_changed();
            (attached, changes)
        }));
        if !followed.is_empty() {
            until_changed(&queue, &mut followed).await;
        }
        environment.sleep_until(environment.now() + BATCH).await;
        // Marked before the write, so that a change during the write triggers another write.
        for (_, changes) in &mut followed {
            changes.mark_unchanged();
        }
        // Read before the write: an informer that is finished at this point has no later changes.
        let finished: Vec<bool> = followed.iter().map(|(attached, _)| attached.is_over()).collect();
        let written = write(&queue, &followed, &environment).await;
        let is_new_failure = queue.count(&written);
        if written.is_ok() {
            backoff.reset();
            let mut finished = finished.into_iter();
            followed.retain(|_| finished.next() == Some(false));
            continue;
        }
        if let Some(why) = is_new_failure {
            tracing::warn!(checkpoint = queue.display_path(), %why, "the cache cannot be written to the checkpoint; the write is retried");
            for (attached, _) in &followed {
                attached.report(&Diagnostic::CheckpointNotWritten { why: why.clone() });
            }
        }
        // The changes of the failed write are still pending, and possibly no later change wakes this task.
        for (_, changes) in &mut followed {
            changes.mark_changed();
        }
        environment.sleep_until(environment.now() + backoff.fail(&mut random)).await;
        // An informer that has ended is dropped while writes fail, so that the writer can end.
        followed.retain(|(attached, _)| !attached.is_over());
    }
}

/// Waits until an informer may have pending changes.
async fn until_changed(queue: &WriteQueue, followed: &mut [WatchedPartition]) {
    let any = select_all(followed.iter_mut().map(|(_, changes)| Box::pin(changes.changed())));
    tokio::select! {
        biased;
        () = queue.called.notified() => {}
        _ = any => {}
    }
}

/// Writes all pending changes on a thread where blocking delays no other task.
async fn write(
    queue: &Arc<WriteQueue>,
    followed: &[WatchedPartition],
    environment: &SharedEnvironment,
) -> Result<Option<super::database::Written>, Fault> {
    let all: Vec<_> = followed.iter().map(|(attached, _)| attached.clone()).collect();
    let (done, is_done) = oneshot::channel();
    let queue = queue.clone();
    environment.run_blocking(Box::new(move || {
        let steps = || -> Vec<PartitionChange<'_>> { all.iter().filter_map(|attached| attached.step()).collect() };
        let written = queue.database.write(steps);
        // On this thread, so that the result is recorded even if the writer task was dropped.
        for attached in &all {
            attached.finish_write(written.is_ok());
        }
        drop(done.send(written));
    }));
    is_done.await.unwrap_or_else(|_| Err(Fault("the writer thread has ended".into())))
}
