//! Thread between the library and Python's event loops.
//!
//! The library's threads only wake tasks of this thread and never call Python. This thread passes finished results to an
//! event loop by `call_soon_threadsafe`. One call passes all results that become ready before the loop runs the call.
//!
//! # Locks and the GIL
//!
//! Methods may take a lock with the GIL only if no holder of the lock waits for the GIL. This holds for all locks of the
//! library, whose threads never call Python, and for all locks of this crate: their holders neither call Python nor attach
//! to the interpreter. No lock is held across [`finalization::detach`] or [`finalization::try_attach`]. Methods that may
//! hold or wait for a lock for long run within `detach`.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::finalization;
use crate::logs;
use crate::process::ProcessBound;

/// Interval at which a blocking call checks for signals, so that Ctrl-C ends the call.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

const EXITING: &str = "the interpreter is exiting, and steadfast_kube can no longer return results to an event loop; await \
                       them before the exit, register the atexit handler after the import of steadfast_kube, or use \
                       steadfast_kube.blocking";

/// Conversion of a result to Python, which runs in the thread of the event loop.
type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Handle of the thread. The thread ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Bridge {
    inner: Arc<ProcessBound<Inner>>,
}

struct Inner {
    handle: Handle,
    loop_queues: Mutex<Vec<Arc<LoopQueue>>>,
    /// Ends the thread when dropped.
    _stop_sender: oneshot::Sender<()>,
}

impl Bridge {
    /// Starts the thread.
    pub(crate) fn start() -> PyResult<Self> {
        let (handles, handle) = std::sync::mpsc::channel();
        let (stop_sender, stop_receiver) = oneshot::channel::<()>();
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(handles.send(Err(error))),
            };
            if handles.send(Ok(runtime.handle().clone())).is_ok() {
                runtime.spawn(logs::forward());
                // The sender is only dropped, never used.
                let _ = runtime.block_on(stop_receiver);
            }
        };
        std::thread::Builder::new().name("steadfast-python".to_owned()).spawn(run)?;
        let handle = handle.recv().map_err(|_| PyRuntimeError::new_err("the thread steadfast-python has ended"))??;
        let inner = Inner { handle, loop_queues: Mutex::default(), _stop_sender: stop_sender };
        Ok(Self { inner: Arc::new(ProcessBound::new(inner)) })
    }

    /// Returns the runtime of the thread.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked child.
    pub(crate) fn handle(&self, py: Python<'_>) -> PyResult<&Handle> {
        Ok(&self.inner.get(py)?.handle)
    }

    /// Returns the runtime of the thread; `None` in a forked child.
    pub(crate) fn own_handle(&self) -> Option<&Handle> {
        Some(&self.inner.get_own()?.handle)
    }

    /// Runs `work`. With `blocking`, waits for it and returns its result; otherwise returns an `asyncio.Future`.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked child. Without `blocking`, also returns an error in the thread that exits the
    /// interpreter. A blocking call works until the end, because its caller itself receives the result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        blocking: bool,
        work: impl Future<Output = T> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let inner = self.inner.get(py)?;
        if blocking { inner.block(py, work, convert) } else { inner.spawn(py, work, convert) }
    }
}

impl Inner {
    /// Starts `work` and returns an `asyncio.Future` of the running event loop. Cancelling the future cancels `work`.
    fn spawn<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = T> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        // `LoopQueue::push` could not deliver the result, and the exit would wait forever.
        if finalization::is_exiting_thread() {
            return Err(PyRuntimeError::new_err(EXITING));
        }
        let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = event_loop.call_method0("create_future")?;
        let queue = self.queue(py, &event_loop)?;
        let result = future.clone().unbind();
        let task = self.handle.spawn(async move {
            // A panic in this task would otherwise leave the awaiting coroutine pending forever.
            let outcome = std::panic::AssertUnwindSafe(work).catch_unwind().await;
            let convert: Convert = match outcome {
                Ok(value) => Box::new(move |py| convert(py, value)),
                Err(_) => Box::new(|_| Err(PyRuntimeError::new_err("steadfast_kube: internal error, see the log"))),
            };
            queue.push(result, convert);
        });
        let abort = ProcessBound::new(task.abort_handle());
        let cancel = PyCFunction::new_closure(py, None, None, move |arguments, _| -> PyResult<()> {
            let is_cancelled: bool = arguments.get_item(0)?.call_method0("cancelled")?.extract()?;
            if let Some(abort) = abort.get_own().filter(|_| is_cancelled) {
                abort.abort();
            }
            Ok(())
        })?;
        future.call_method1("add_done_callback", (cancel,))?;
        Ok(future.unbind())
    }

    /// Waits for `work` without the GIL, and raises the exception of a signal handler.
    fn block<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = T> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let (sender, mut receiver) = std::sync::mpsc::sync_channel(1);
        let task = self.handle.spawn(async move { drop(sender.send(work.await)) });
        loop {
            // A receiver cannot be shared between threads. The closure therefore takes it and returns it.
            let (returned_receiver, outcome) = finalization::detach(py, move || {
                let outcome = receiver.recv_timeout(SIGNAL_CHECK_INTERVAL);
                (receiver, outcome)
            });
            receiver = returned_receiver;
            match outcome {
                Ok(value) => return convert(py, value),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("steadfast_kube: the call was abandoned, see the log"));
                }
            }
            if let Err(interrupt) = py.check_signals() {
                task.abort();
                return Err(interrupt);
            }
        }
    }

    /// Returns the queue of an event loop.
    fn queue(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<LoopQueue>> {
        if let Some(queue) = self.loop_queues.lock().iter().find(|queue| queue.event_loop.is(event_loop)) {
            return Ok(queue.clone());
        }
        let queues = self.loop_queues.lock().clone();
        let queue = Arc::new(LoopQueue {
            event_loop: event_loop.clone().unbind(),
            call_soon: event_loop.getattr("call_soon_threadsafe")?.unbind(),
            ready: ProcessBound::new(Mutex::default()),
        });
        // A program that calls `asyncio.run` repeatedly leaves one closed loop after another, so closed loops are
        // removed here. No lock is held, because `is_closed` runs Python code, which may switch threads.
        let is_closed = |queue: &Arc<LoopQueue>| {
            let closed = queue.event_loop.call_method0(py, "is_closed").and_then(|closed| closed.extract(py));
            closed.unwrap_or(true)
        };
        let closed: Vec<_> = queues.into_iter().filter(is_closed).collect();
        let mut loop_queues = self.loop_queues.lock();
        loop_queues.retain(|queue| !closed.iter().any(|closed| Arc::ptr_eq(closed, queue)));
        loop_queues.push(queue.clone());
        Ok(queue)
    }
}

/// Finished results for one event loop.
struct LoopQueue {
    event_loop: Py<PyAny>,
    call_soon: Py<PyAny>,
    ready: ProcessBound<Mutex<ReadyResults>>,
}

#[derive(Default)]
struct ReadyResults {
    results: Vec<(Py<PyAny>, Convert)>,
    /// True while a call in the event loop is scheduled, which takes all results.
    is_delivery_scheduled: bool,
}

impl LoopQueue {
    /// Queues a result for `future`, and schedules the delivery unless it is scheduled.
    fn push(self: &Arc<Self>, future: Py<PyAny>, convert: Convert) {
        // Only the thread of `Bridge` calls this, which no forked child has.
        let Some(ready) = self.ready.get_own() else { return };
        {
            let mut ready = ready.lock();
            ready.results.push((future, convert));
            if std::mem::replace(&mut ready.is_delivery_scheduled, true) {
                return;
            }
        }
        // During the finalization of the interpreter, no coroutine waits any more.
        let scheduled = finalization::try_attach(|py| {
            let queue = self.clone();
            let deliver = PyCFunction::new_closure(py, None, None, move |arguments, _| queue.deliver(arguments.py()))?;
            self.call_soon.call1(py, (deliver,))
        });
        if !matches!(scheduled, Some(Ok(_))) {
            // The loop is closed: its futures cannot finish.
            let mut ready = ready.lock();
            ready.is_delivery_scheduled = false;
            let undelivered = std::mem::take(&mut ready.results);
            drop(ready);
            drop(undelivered);
        }
    }

    /// Delivers all results; runs in the event loop.
    fn deliver(&self, py: Python<'_>) {
        // A fork copies the scheduled calls of the event loop. Their results belong to the parent.
        let Some(ready) = self.ready.get_own() else { return };
        let results = {
            let mut ready = ready.lock();
            ready.is_delivery_scheduled = false;
            std::mem::take(&mut ready.results)
        };
        for (future, convert) in results {
            if let Err(error) = finish(py, future.bind(py), convert) {
                error.write_unraisable(py, Some(future.bind(py)));
            }
        }
    }
}

fn finish(py: Python<'_>, future: &Bound<'_, PyAny>, convert: Convert) -> PyResult<()> {
    // The coroutine may have been cancelled after the result was queued.
    if future.call_method0("done")?.extract()? {
        return Ok(());
    }
    match convert(py) {
        Ok(value) => future.call_method1("set_result", (value,))?,
        Err(error) => future.call_method1("set_exception", (error.into_value(py),))?,
    };
    Ok(())
}
