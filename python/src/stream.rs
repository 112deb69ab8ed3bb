//! Event stream of an informer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use futures::future::{Either, select};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use steadfast::{Certainty, DeleteReason, Event, Lazy, Watch};
use tokio::sync::watch;

use crate::bridge::Bridge;
use crate::errors::class;
use crate::object::{Cached, Kind, Object};
use crate::tree::Tree;
use crate::watching::{Resource, Watching};

/// Events of an informer, from the library's queue for this stream.
///
/// The queue contains at most one merged event for each object, however slow the reader is (C8). Nothing is queued
/// a second time here: `take` reads from that queue, and `ready` waits for it.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct EventStream {
    bridge: Bridge,
    watching: Arc<Watching>,
    state: Arc<Mutex<StreamState>>,
    /// True after `close`, which must end a pending `ready`.
    closed: watch::Sender<bool>,
}

#[derive(Default)]
pub(crate) struct StreamState {
    /// The informer's stream, and the resource of its objects.
    watch: Option<(Watch<Lazy<Tree>>, Arc<Resource>)>,
    /// Event that `ready` has taken from the queue, which has no method to peek.
    found: Option<(Event<Lazy<Tree>>, Arc<Resource>)>,
    ended: bool,
}

impl StreamState {
    /// Subscribes to the informer if it has started.
    fn open(&mut self, watching: &Watching) {
        if self.watch.is_some() || self.ended {
            return;
        }
        match watching.started() {
            Some(started) => self.watch = Some((started.informer.stream(), started.resource().clone())),
            None => self.ended = watching.is_ended(),
        }
    }

    /// Finds the next event, and registers `context` if the queue is empty. Returns true for an event and for the end.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if self.found.is_some() || self.ended {
            return true;
        }
        let Some((watch, resource)) = &mut self.watch else { return false };
        match Pin::new(watch).poll_next(context) {
            Poll::Ready(Some(event)) => self.found = Some((event, resource.clone())),
            Poll::Ready(None) => self.close(),
            Poll::Pending => return false,
        }
        true
    }

    /// Ends the stream. Events that were not read are dropped.
    pub(crate) fn close(&mut self) {
        self.ended = true;
        self.found = None;
        self.watch = None;
    }
}

impl EventStream {
    pub(crate) fn new(bridge: Bridge, watching: Arc<Watching>) -> Self {
        let state = Arc::new(Mutex::new(StreamState::default()));
        watching.add_stream(&state);
        // Subscribed now, so that the stream includes all changes after this call. After `add_stream`, so that an end of
        // the informer in between is not missed.
        state.lock().open(&watching);
        Self { bridge, watching, state, closed: watch::Sender::new(false) }
    }
}

#[pymethods]
impl EventStream {
    /// Returns the next event if one is queued.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.bridge.check_process(py)?;
        let found = {
            let mut state = self.state.lock();
            state.open(&self.watching);
            state.poll(&mut Context::from_waker(Waker::noop()));
            state.found.take()
        };
        found.map(|(event, resource)| to_python(py, event, &resource.kind)).transpose()
    }

    /// Waits until an event is queued, and returns true; or returns false after the end or the timeout.
    #[pyo3(signature = (timeout=None, blocking=false))]
    fn ready(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let (watching, state, mut closed) = (self.watching.clone(), self.state.clone(), self.closed.subscribe());
        let ended = self.watching.clone();
        let found = async move {
            if watching.until_running().await.is_none() {
                state.lock().close();
                return false;
            }
            futures::future::poll_fn(|context| {
                let mut state = state.lock();
                state.open(&watching);
                if state.poll(context) { Poll::Ready(!state.ended) } else { Poll::Pending }
            })
            .await
        };
        let work = async move {
            let closed = async { drop(closed.wait_for(|closed| *closed).await) };
            let stopped = async {
                let _ = select(pin!(closed), pin!(ended.until_ended())).await;
            };
            let found = async {
                match select(pin!(found), pin!(stopped)).await {
                    Either::Left((found, _)) => found,
                    Either::Right(_) => false,
                }
            };
            match timeout {
                None => found.await,
                Some(seconds) => tokio::time::timeout(seconds_to_duration(seconds), found).await.unwrap_or(false),
            }
        };
        self.bridge.run(py, blocking, work, |py, found| found.into_py_any(py))
    }

    /// True after the informer or the stream has ended and all events were taken.
    #[getter]
    fn ended(&self) -> bool {
        let state = self.state.lock();
        state.ended && state.found.is_none()
    }

    /// Ends the stream, also for a caller that waits in `ready`.
    fn close(&self, py: Python<'_>) {
        // Dropping the stream takes locks of the library, whose holders never wait for the GIL.
        py.detach(|| self.state.lock().close());
        self.closed.send_replace(true);
    }
}

/// Converts a timeout. Larger values than a century wait without a limit.
pub(crate) fn seconds_to_duration(seconds: f64) -> Duration {
    const CENTURY: f64 = 3.2e9;
    Duration::try_from_secs_f64(seconds.clamp(0.0, CENTURY)).unwrap_or_default()
}

fn to_python(py: Python<'_>, event: Event<Lazy<Tree>>, kind: &Kind) -> PyResult<Py<PyAny>> {
    let object = |object: Cached| Object::new(object, kind.clone());
    let event = match event {
        Event::Added { object: added, initial } => class!(py, "Added")?.call1((object(added), initial))?,
        Event::Updated { old, new } => class!(py, "Updated")?.call1((object(old), object(new)))?,
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
            class!(py, "Deleted")?.call1((object(last), certainty, reason, version))?
        }
        // Only a handler with a resync period receives `Resynced`, and a stream has no resync period.
        Event::Resynced { object: same } => class!(py, "Added")?.call1((object(same), false))?,
    };
    Ok(event.unbind())
}
