//! Durable handler of an informer, read as a stream of deliveries.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadfast::{DurableEvent, DurableRegistration, HandlerError, Lazy};
use tokio::sync::{Notify, oneshot};

use crate::bridge::Bridge;
use crate::delivery::{Delivery, Outcome};
use crate::errors::{self, python_class};
use crate::finalization;
use crate::object::Kind;
use crate::process::ProcessBound;
use crate::stream::seconds_to_duration;
use crate::tree::JsonTree;
use crate::watching::{InformerHandle, InformerReader, RunningInformer};

/// Settings of a durable handler.
#[derive(Clone, Debug)]
pub(crate) struct DurableSettings {
    pub(crate) name: String,
    /// Maximum number of deliveries that are queued, or read and not acknowledged.
    pub(crate) concurrency: usize,
    /// Time in seconds between the read of a delivery and its acknowledgement. `None` sets no limit.
    pub(crate) ack_timeout: Option<f64>,
}

/// Deliveries of a durable handler.
///
/// Each delivery is one call of the library's handler, which ends with the acknowledgement. The library limits the
/// number of concurrent calls, and thereby the length of this queue.
///
/// The methods take the lock of the queue without the GIL, because the library's registration is used under that lock.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct DeliveryStream {
    bridge: Bridge,
    handler: ProcessBound<DurableHandler>,
}

struct DurableHandler {
    informer_handle: Arc<InformerHandle>,
    queue: Arc<DeliveryQueue>,
}

struct DeliveryQueue {
    settings: DurableSettings,
    state: Mutex<QueueState>,
    /// Notified of each delivery and of the end.
    changed: Notify,
}

#[derive(Default)]
struct QueueState {
    /// Registration at the informer, and the kind of its objects.
    registration: Option<(DurableRegistration<JsonTree>, Kind)>,
    deliveries: VecDeque<QueuedDelivery>,
    has_ended: bool,
}

struct QueuedDelivery {
    event: DurableEvent<Lazy<JsonTree>>,
    /// Notified when the delivery is read, which starts the acknowledgement timeout.
    read: oneshot::Sender<()>,
    outcome: oneshot::Sender<Outcome>,
}

impl DeliveryQueue {
    /// Registers the handler if the informer has started. Ends the stream if its handler was dropped.
    ///
    /// The caller must be in the context of the runtime that runs the calls.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer has no checkpoint, or if the name is in use or invalid.
    fn register_if_running(self: &Arc<Self>, informer_handle: &Arc<InformerHandle>) -> Result<(), HandlerError> {
        self.close_if_dropped();
        let mut state = self.state.lock();
        if state.registration.is_some() || state.has_ended {
            return Ok(());
        }
        match informer_handle.running_informer() {
            Some(running_informer) => match self.register(&running_informer, informer_handle) {
                Ok(registration) => {
                    state.registration = Some((registration, running_informer.resource().kind.clone()));
                }
                Err(HandlerError::Stopped { .. }) => state.has_ended = true,
                Err(error) => return Err(error),
            },
            None => state.has_ended = informer_handle.is_ended(),
        }
        Ok(())
    }

    fn register(
        self: &Arc<Self>,
        running_informer: &RunningInformer,
        informer_handle: &Arc<InformerHandle>,
    ) -> Result<DurableRegistration<JsonTree>, HandlerError> {
        let DurableSettings { name, concurrency, .. } = &self.settings;
        let (queue, informer_handle) = (Arc::downgrade(self), informer_handle.clone());
        // The library's timeout would include the time in the queue. `deliver` applies the configured timeout instead.
        let builder = running_informer.informer.durable(name).deadline(seconds_to_duration(f64::MAX));
        builder.concurrency(*concurrency).on_event(move |event| {
            let (queue, informer_handle) = (queue.clone(), informer_handle.clone());
            async move {
                match queue.upgrade() {
                    Some(queue) => queue.deliver(event, &informer_handle).await,
                    None => Err("the stream of deliveries was dropped".to_owned()),
                }
            }
        })
    }

    /// Queues an event, and waits until it is read and acknowledged.
    async fn deliver(
        self: Arc<Self>,
        event: DurableEvent<Lazy<JsonTree>>,
        informer_handle: &InformerHandle,
    ) -> Result<(), String> {
        let (read, is_read) = oneshot::channel();
        let (outcome, mut has_outcome) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.has_ended {
                return Err("the stream of deliveries was closed".to_owned());
            }
            state.deliveries.push_back(QueuedDelivery { event, read, outcome });
        }
        self.changed.notify_waiters();
        let ack_timeout = self.settings.ack_timeout;
        // A stream that was closed or dropped drops its queued deliveries.
        drop(self);
        if is_read.await.is_err() {
            return Err("the stream of deliveries was closed before this delivery was read".to_owned());
        }
        let timeout = async {
            match ack_timeout {
                Some(seconds) => {
                    tokio::time::sleep(seconds_to_duration(seconds)).await;
                    format!("no acknowledgement within {seconds} s")
                }
                None => std::future::pending().await,
            }
        };
        let ended = async {
            informer_handle.until_ended().await;
            "the informer was stopped".to_owned()
        };
        let reason = match select(&mut has_outcome, select(pin!(timeout), pin!(ended))).await {
            Either::Left((outcome, _)) => return outcome.unwrap_or_else(|_| Err(DROPPED.to_owned())),
            Either::Right((Either::Left((reason, _)) | Either::Right((reason, _)), _)) => reason,
        };
        // An acknowledgement that arrived in the meantime counts, because the caller of `ack` has received `True`.
        has_outcome.close();
        has_outcome.try_recv().unwrap_or(Err(reason))
    }

    fn close(&self) {
        let (registration, deliveries) = {
            let mut state = self.state.lock();
            state.has_ended = true;
            let registration = state.registration.take();
            // The registration ends before all calls that end with this stream, so that the library counts none of them as
            // failed. Under the lock, because a call that finds the ended stream fails immediately.
            if let Some((registration, _)) = &registration {
                registration.remove();
            }
            (registration, std::mem::take(&mut state.deliveries))
        };
        drop((registration, deliveries));
        self.changed.notify_waiters();
    }

    /// Ends the stream if its handler was dropped, or if the library's informer has ended.
    fn close_if_dropped(&self) {
        let state = self.state.lock();
        let is_dropped =
            state.registration.as_ref().is_some_and(|(registration, _)| !registration.stats().is_registered);
        drop(state);
        if is_dropped {
            self.close();
        }
    }
}

const DROPPED: &str = "the delivery was dropped without an acknowledgement";

impl InformerReader for DeliveryQueue {
    fn end(&self) {
        self.close();
    }
}

impl DeliveryStream {
    /// Creates the stream, and registers its handler if the informer has started.
    ///
    /// # Errors
    ///
    /// Returns the errors of the registration.
    pub(crate) fn new(
        py: Python<'_>,
        bridge: Bridge,
        informer_handle: Arc<InformerHandle>,
        settings: DurableSettings,
    ) -> PyResult<Self> {
        let queue = Arc::new(DeliveryQueue { settings, state: Mutex::default(), changed: Notify::new() });
        let weak: std::sync::Weak<dyn InformerReader> = Arc::downgrade(&(queue.clone() as Arc<dyn InformerReader>));
        informer_handle.add_reader(weak);
        let stream = Self { bridge, handler: ProcessBound::new(DurableHandler { informer_handle, queue }) };
        stream.register_if_running(py)?;
        Ok(stream)
    }

    fn register_if_running(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |_| ())
    }

    /// Registers the handler if the informer has started, and returns a part of the state.
    fn with_state<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&mut QueueState) -> T + Send) -> PyResult<T> {
        let DurableHandler { informer_handle, queue } = self.handler.get(py)?;
        let runtime = self.bridge.handle(py)?;
        let result = finalization::detach(py, || {
            let _runtime = runtime.enter();
            queue.register_if_running(informer_handle)?;
            Ok(read(&mut queue.state.lock()))
        });
        result.map_err(|error| handler_error(py, &error))
    }

    /// Returns a value of the registration; `None` without one.
    fn of_registration<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&DurableRegistration<JsonTree>) -> T + Send,
    ) -> PyResult<Option<T>> {
        let queue = &self.handler.get(py)?.queue;
        Ok(finalization::detach(py, || {
            queue.close_if_dropped();
            queue.state.lock().registration.as_ref().map(|(registration, _)| read(registration))
        }))
    }
}

#[pymethods]
impl DeliveryStream {
    /// Returns the next delivery if one is queued.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Delivery>> {
        let next = self.with_state(py, |state| {
            let kind = state.registration.as_ref().map(|(_, kind)| kind.clone());
            state.deliveries.pop_front().zip(kind)
        })?;
        let Some((QueuedDelivery { event, read, outcome }, kind)) = next else { return Ok(None) };
        // The call waits for this notification as long as the delivery is queued.
        let _ = read.send(());
        Delivery::new(py, event, &kind, outcome).map(Some)
    }

    /// Waits until a delivery is queued, and returns true; or returns false after the end or the timeout.
    #[pyo3(signature = (timeout=None, blocking=false))]
    fn ready(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let DurableHandler { informer_handle, queue } = self.handler.get(py)?;
        let (informer_handle, queue) = (informer_handle.clone(), queue.clone());
        let work = async move {
            let has_delivery = async {
                let (mut progress, mut handler_drops) = (informer_handle.progress(), informer_handle.handler_drops());
                loop {
                    // Registered before the check, so that no change in between is missed.
                    let changed = queue.changed.notified();
                    progress.mark_unchanged();
                    handler_drops.mark_unchanged();
                    queue.register_if_running(&informer_handle)?;
                    {
                        let state = queue.state.lock();
                        if state.has_ended || !state.deliveries.is_empty() {
                            return Ok(!state.deliveries.is_empty());
                        }
                    }
                    tokio::select! {
                        () = changed => {}
                        _ = progress.changed() => {}
                        _ = handler_drops.changed() => {}
                    }
                }
            };
            match timeout {
                None => has_delivery.await,
                Some(seconds) => {
                    tokio::time::timeout(seconds_to_duration(seconds), has_delivery).await.unwrap_or(Ok(false))
                }
            }
        };
        self.bridge.run(py, blocking, work, |py, ready| match ready {
            Ok(has_delivery) => has_delivery.into_py_any(py),
            Err(error) => Err(handler_error(py, &error)),
        })
    }

    /// True after the end of the informer, of the handler or of the stream.
    #[getter]
    fn ended(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = &self.handler.get(py)?.queue;
        Ok(finalization::detach(py, || {
            queue.close_if_dropped();
            queue.state.lock().has_ended
        }))
    }

    /// Counters of the handler; `None` before the informer has started and after the end.
    fn stats(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let stats = self.of_registration(py, DurableRegistration::stats)?;
        stats.map(|stats| stats_to_python(py, stats)).transpose()
    }

    /// `(reached, first_pending)`; `None` before the informer has synced and after the end.
    fn position(&self, py: Python<'_>) -> PyResult<Option<(String, Option<String>)>> {
        let position = self.of_registration(py, DurableRegistration::position)?.flatten();
        let text = |position: steadfast::DurablePosition| {
            (position.reached.to_string(), position.first_pending.map(|version| version.to_string()))
        };
        Ok(position.map(text))
    }

    /// Ends the stream, also for a caller that waits in `ready`. Pending deliveries stay stored. Has no effect in a forked
    /// child, which may leave a block of its parent.
    fn close(&self, py: Python<'_>) {
        if let Some(handler) = self.handler.get_own() {
            finalization::detach(py, || handler.queue.close());
        }
    }
}

impl Drop for DeliveryStream {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.get_own() {
            // The registration would otherwise keep the name, and the informer would keep running.
            handler.queue.close();
        }
    }
}

/// Converts the counters of a durable handler.
pub(crate) fn stats_to_python(py: Python<'_>, stats: steadfast::DurableStats) -> PyResult<Py<PyAny>> {
    let steadfast::DurableStats { acknowledged, failed, unrecorded, pending, running, is_registered, .. } = stats;
    let fields = (acknowledged, failed, unrecorded, pending, running, is_registered);
    Ok(python_class!(py, "DurableStats")?.call1(fields)?.unbind())
}

fn handler_error(py: Python<'_>, error: &HandlerError) -> PyErr {
    match error {
        HandlerError::InvalidName { .. } => PyValueError::new_err(error.to_string()),
        _ => errors::checkpoint(py, &error.to_string()),
    }
}
