//! Background task that writes pending changes in batches, so that no cache update waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::Diagnostic;
use tokio::sync::{oneshot, watch};

use super::database::{CheckpointFileError, PartitionChange};
use super::write_queue::{PartitionWriter, WriteQueue};
use crate::environment::SharedEnvironment;

/// Time to collect changes into one batch. A transaction costs one disk sync, independent of its size.
const BATCH_DELAY: Duration = Duration::from_millis(50);

/// Backoff after a failed write.
const RETRY_BACKOFF: BackoffSettings = BackoffSettings {
    initial_delay: Duration::from_millis(500),
    second_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(30),
};

/// Registers `writer` with the writer of the file, and starts the writer on `environment` if none runs.
pub(super) fn attach(queue: &Arc<WriteQueue>, writer: Arc<dyn PartitionWriter>, environment: &SharedEnvironment) {
    if queue.attach(writer) {
        environment.spawn(Box::pin(run(queue.clone(), environment.clone())));
    }
}

type WatchedPartition = (Arc<dyn PartitionWriter>, watch::Receiver<u64>);

/// Runs until all attached informers have finished.
async fn run(queue: Arc<WriteQueue>, environment: SharedEnvironment) {
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(RETRY_BACKOFF);
    let mut partitions: Vec<WatchedPartition> = Vec::new();
    while let Some(new_writers) = queue.take_new_writers(partitions.len()) {
        partitions.extend(new_writers.into_iter().map(|writer| {
            // Changes before the registration count too.
            let mut changes = writer.changes();
            changes.mark_changed();
            (writer, changes)
        }));
        if !partitions.is_empty() {
            until_changed(&queue, &mut partitions).await;
        }
        environment.sleep_until(environment.now() + BATCH_DELAY).await;
        // Marked before the write, so that a change during the write triggers another write.
        for (_, changes) in &mut partitions {
            changes.mark_unchanged();
        }
        // Read before the write: an informer that is finished at this point has no later changes.
        let finished: Vec<bool> = partitions.iter().map(|(writer, _)| writer.is_finished()).collect();
        let written = write(&queue, &partitions, &environment).await;
        let is_new_failure = queue.record_result(&written);
        if written.is_ok() {
            backoff.reset();
            let mut finished = finished.into_iter();
            partitions.retain(|_| finished.next() == Some(false));
            continue;
        }
        if let Some(reason) = is_new_failure {
            tracing::warn!(checkpoint = queue.display_path(), why = %reason, "the cache cannot be written to the checkpoint; the write is retried");
            for (writer, _) in &partitions {
                writer.report(&Diagnostic::CheckpointNotWritten { reason: reason.clone() });
            }
        }
        // The changes of the failed write are still pending, and possibly no later change wakes this task.
        for (_, changes) in &mut partitions {
            changes.mark_changed();
        }
        environment.sleep_until(environment.now() + backoff.fail(&mut random)).await;
        // An informer that has ended is dropped while writes fail, so that the writer can end.
        partitions.retain(|(writer, _)| !writer.is_finished());
    }
}

/// Waits until an informer may have pending changes.
async fn until_changed(queue: &WriteQueue, partitions: &mut [WatchedPartition]) {
    let any_change = select_all(partitions.iter_mut().map(|(_, changes)| Box::pin(changes.changed())));
    tokio::select! {
        biased;
        () = queue.wake_writer.notified() => {}
        _ = any_change => {}
    }
}

/// Writes all pending changes on a thread where blocking delays no other task.
async fn write(
    queue: &Arc<WriteQueue>,
    partitions: &[WatchedPartition],
    environment: &SharedEnvironment,
) -> Result<Option<super::database::Written>, CheckpointFileError> {
    let writers: Vec<_> = partitions.iter().map(|(writer, _)| writer.clone()).collect();
    let (done, is_done) = oneshot::channel();
    let queue = queue.clone();
    environment.run_blocking(Box::new(move || {
        let steps = || -> Vec<PartitionChange<'_>> { writers.iter().filter_map(|writer| writer.step()).collect() };
        let written = queue.database.write(steps);
        // On this thread, so that the result is recorded even if the writer task was dropped.
        for writer in &writers {
            writer.finish_write(written.is_ok());
        }
        drop(done.send(written));
    }));
    is_done.await.unwrap_or_else(|_| Err(CheckpointFileError("the writer thread has ended".into())))
}
