//! Tasks that end with their owner.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Spawns tasks on one runtime and aborts them on drop.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    runtime: Handle,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    handles: Vec<AbortHandle>,
    /// Number of tasks at which finished tasks are removed.
    prune_at: usize,
    is_closed: bool,
}

impl TaskGroup {
    pub(crate) fn with_runtime(runtime: Handle) -> Arc<Self> {
        Arc::new(Self { runtime, tasks: Mutex::new(Tasks { prune_at: 64, ..Tasks::default() }) })
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        // A closed group starts no task, so no task outlives its connection.
        if tasks.is_closed {
            return;
        }
        tasks.handles.push(self.runtime.spawn(task).abort_handle());
        // Finished handles are removed after the number has doubled.
        if tasks.handles.len() >= tasks.prune_at {
            tasks.handles.retain(|handle| !handle.is_finished());
            tasks.prune_at = (tasks.handles.len() * 2).max(64);
        }
    }

    /// Aborts all tasks and rejects new ones.
    pub(crate) fn close(&self) {
        let mut tasks = self.tasks.lock();
        tasks.is_closed = true;
        for handle in tasks.handles.drain(..) {
            handle.abort();
        }
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        self.close();
    }
}

/// Executor for hyper's tasks of a connection, which end with the connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionExecutor(pub(crate) Arc<TaskGroup>);

impl<F> hyper::rt::Executor<F> for ConnectionExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
