//! Event stream of an informer.

use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::Stream;
use futures::future::{Either, select};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use steadfast::{Certainty, DeleteReason, Event, Lazy, Watch};
use tokio::sync::{Notify, watch};

use crate::bridge::Bridge;
use crate::errors::python_class;
use crate::finalization;
use crate::object::{Cached, Kind, Object};
use crate::process::ProcessBound;
use crate::tree::JsonTree;
use crate::watching::{InformerHandle, InformerReader, Resource};

/// Events of an informer, from the library's queue for this stream.
///
/// The queue contains at most one merged event for each object, however slow the reader is (guarantee C8 in
/// `docs/contract.md`). This type has no second queue: `take` reads from the library's queue, and `ready` waits for it.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct EventStream {
    bridge: Bridge,
    subscription: ProcessBound<Subscription>,
}

struct Subscription {
    informer_handle: Arc<InformerHandle>,
    /// Locked also with the GIL: no holder waits for the GIL.
    state: Arc<Mutex<StreamState>>,
    waiters: Arc<Waiters>,
    /// True after `close`, which must end a pending `ready`.
    is_closed: watch::Sender<bool>,
}

#[derive(Default)]
struct StreamState {
    /// The informer's stream, and the resource of its objects.
    watch: Option<(Watch<Lazy<JsonTree>>, Arc<Resource>)>,
    /// Event that `ready` has taken from the queue, which has no method to peek.
    next_event: Option<(Event<Lazy<JsonTree>>, Arc<Resource>)>,
    has_ended: bool,
}

/// All callers that wait in `ready`.
///
/// The library's stream wakes only the caller that polled last. All polls therefore register this waker, which wakes every
/// caller: several threads can read one stream.
#[derive(Default)]
struct Waiters {
    woken: Notify,
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.woken.notify_waiters();
    }
}

impl StreamState {
    /// Subscribes to the informer if it has started.
    fn subscribe_if_running(&mut self, informer_handle: &InformerHandle) {
        if self.watch.is_some() || self.has_ended {
            return;
        }
        match informer_handle.running_informer() {
            Some(running_informer) => {
                self.watch = Some((running_informer.informer.stream(), running_informer.resource().clone()));
            }
            None => self.has_ended = informer_handle.is_ended(),
        }
    }

    /// Finds the next event, and registers `context` if the queue is empty. Returns true for an event and for the end.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if self.next_event.is_some() || self.has_ended {
            return true;
        }
        let Some((watch, resource)) = &mut self.watch else { return false };
        match Pin::new(watch).poll_next(context) {
            Poll::Ready(Some(event)) => self.next_event = Some((event, resource.clone())),
            Poll::Ready(None) => self.close(),
            Poll::Pending => return false,
        }
        true
    }

    /// Ends the stream. Events that were not read are dropped.
    fn close(&mut self) {
        self.has_ended = true;
        self.next_event = None;
        self.watch = None;
    }
}

impl InformerReader for Mutex<StreamState> {
    fn end(&self) {
        self.lock().close();
    }
}

impl EventStream {
    pub(crate) fn new(bridge: Bridge, informer_handle: Arc<InformerHandle>) -> Self {
        let state = Arc::new(Mutex::new(StreamState::default()));
        let weak: Weak<dyn InformerReader> = Arc::downgrade(&(state.clone() as Arc<dyn InformerReader>));
        informer_handle.add_reader(weak);
        // The subscription starts now, so that the stream includes all changes after this call. After `add_reader`, so
        // that an end of the informer in between is not missed.
        state.lock().subscribe_if_running(&informer_handle);
        let (waiters, is_closed) = (Arc::default(), watch::Sender::new(false));
        Self { bridge, subscription: ProcessBound::new(Subscription { informer_handle, state, waiters, is_closed }) }
    }
}

#[pymethods]
impl EventStream {
    /// Returns the next event if one is queued.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let subscription = self.subscription.get(py)?;
        let next_event = {
            let mut state = subscription.state.lock();
            state.subscribe_if_running(&subscription.informer_handle);
            // With the waker of `ready`: another waker would replace it, so that no caller in `ready` would be woken.
            state.poll(&mut Context::from_waker(&Waker::from(subscription.waiters.clone())));
            state.next_event.take()
        };
        next_event.map(|(event, resource)| event_to_python(py, event, &resource.kind)).transpose()
    }

    /// Waits until an event is queued, and returns true; or returns false after the end or the timeout.
    #[pyo3(signature = (timeout=None, blocking=false))]
    fn ready(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let Subscription { informer_handle, state, waiters, is_closed } = self.subscription.get(py)?;
        let (informer_handle, state, mut is_closed) = (informer_handle.clone(), state.clone(), is_closed.subscribe());
        let (handle_for_end, waiters) = (informer_handle.clone(), waiters.clone());
        let has_event = async move {
            if informer_handle.until_running().await.is_none() {
                state.lock().close();
                return false;
            }
            let waker = Waker::from(waiters.clone());
            loop {
                // Registered before the poll, so that no wake-up in between is missed.
                let woken = waiters.woken.notified();
                {
                    let mut state = state.lock();
                    state.subscribe_if_running(&informer_handle);
                    if state.poll(&mut Context::from_waker(&waker)) {
                        return !state.has_ended;
                    }
                }
                woken.await;
            }
        };
        let work = async move {
            let until_closed = async { drop(is_closed.wait_for(|is_closed| *is_closed).await) };
            let until_end = async {
                let _ = select(pin!(until_closed), pin!(handle_for_end.until_ended())).await;
            };
            let has_event = async {
                match select(pin!(has_event), pin!(until_end)).await {
                    Either::Left((has_event, _)) => has_event,
                    Either::Right(_) => false,
                }
            };
            match timeout {
                None => has_event.await,
                Some(seconds) => tokio::time::timeout(seconds_to_duration(seconds), has_event).await.unwrap_or(false),
            }
        };
        self.bridge.run(py, blocking, work, |py, has_event| has_event.into_py_any(py))
    }

    /// True after the informer or the stream has ended and all events were taken.
    #[getter]
    fn ended(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.subscription.get(py)?.state.lock();
        Ok(state.has_ended && state.next_event.is_none())
    }

    /// Ends the stream, also for a caller that waits in `ready`. Has no effect in a forked child, which may leave a block of
    /// its parent.
    fn close(&self, py: Python<'_>) {
        let Some(subscription) = self.subscription.get_own() else { return };
        // Dropping the stream takes locks of the library, whose holders never wait for the GIL.
        finalization::detach(py, || subscription.state.lock().close());
        subscription.is_closed.send_replace(true);
    }
}

/// Converts a timeout in seconds. The result is at most a century, which never expires in practice.
pub(crate) fn seconds_to_duration(seconds: f64) -> Duration {
    const CENTURY: f64 = 3.2e9;
    Duration::try_from_secs_f64(seconds.clamp(0.0, CENTURY)).unwrap_or_default()
}

/// Converts an event of objects of `kind`.
pub(crate) fn event_to_python(py: Python<'_>, event: Event<Lazy<JsonTree>>, kind: &Kind) -> PyResult<Py<PyAny>> {
    let object = |object: Cached| Object::new(object, kind.clone());
    let event = match event {
        Event::Added { object: added, initial } => python_class!(py, "Added")?.call1((object(added), initial))?,
        Event::Updated { old, new } => python_class!(py, "Updated")?.call1((object(old), object(new)))?,
        Event::Deleted { last, version, certainty, reason } => {
            let certainty = match certainty {
                Certainty::Observed => "observed",
                Certainty::Inferred => "inferred",
            };
            let reason = match reason {
                DeleteReason::Replaced => "replaced",
                DeleteReason::Deleted => "deleted",
                // Streams have no filter of their own, so that `Left` does not occur.
                DeleteReason::DeletedOrLeft | DeleteReason::Left => "deleted or left",
            };
            let version = version.map(|version| version.to_string());
            python_class!(py, "Deleted")?.call1((object(last), certainty, reason, version))?
        }
        // Only handlers with a resync period receive `Resynced`, and a stream has no resync period.
        Event::Resynced { object: same } => python_class!(py, "Added")?.call1((object(same), false))?,
    };
    Ok(event.unbind())
}
