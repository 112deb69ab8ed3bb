//! One delivery of a durable handler, until its acknowledgement.

use parking_lot::Mutex;
use pyo3::prelude::*;
use steadfast::{DurableEvent, Lazy};
use tokio::sync::oneshot;

use crate::object::Kind;
use crate::process::ProcessBound;
use crate::stream::event_to_python;
use crate::tree::JsonTree;

/// Result of a delivery: an acknowledgement, or the reason of a failure.
pub(crate) type Outcome = Result<(), String>;

/// An event that is delivered until it is acknowledged, also after a restart of the program.
#[pyclass(frozen, weakref, module = "steadfast_kube")]
pub(crate) struct Delivery {
    /// Identifier of the event: the same in each delivery of the event, also after a restart.
    #[pyo3(get)]
    id: String,
    /// Event of the object, relative to the last acknowledged event.
    #[pyo3(get)]
    event: Py<PyAny>,
    /// Number of failed deliveries of this event in this run of the program.
    #[pyo3(get)]
    failures: u32,
    state: ProcessBound<Mutex<DeliveryState>>,
}

enum DeliveryState {
    Open(oneshot::Sender<Outcome>),
    Acknowledged,
    Ended,
}

impl Delivery {
    pub(crate) fn new(
        py: Python<'_>,
        event: DurableEvent<Lazy<JsonTree>>,
        kind: &Kind,
        outcome: oneshot::Sender<Outcome>,
    ) -> PyResult<Self> {
        let DurableEvent { id, event, failures, .. } = event;
        let event = event_to_python(py, event, kind)?;
        Ok(Self { id, event, failures, state: ProcessBound::new(Mutex::new(DeliveryState::Open(outcome))) })
    }
}

#[pymethods]
impl Delivery {
    /// Acknowledges the event. Returns false if the delivery has ended, so that the event is delivered again.
    fn ack(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.state.get(py)?.lock();
        *state = match std::mem::replace(&mut *state, DeliveryState::Ended) {
            // The send fails after the timeout of the delivery, and after the end of its informer.
            DeliveryState::Open(outcome) => match outcome.send(Ok(())) {
                Ok(()) => DeliveryState::Acknowledged,
                Err(_) => DeliveryState::Ended,
            },
            ended => ended,
        };
        Ok(matches!(*state, DeliveryState::Acknowledged))
    }

    /// Ends the delivery without an acknowledgement. The event is delivered again after a backoff.
    #[pyo3(signature = (reason="the handler failed"))]
    fn fail(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let mut state = self.state.get(py)?.lock();
        *state = match std::mem::replace(&mut *state, DeliveryState::Ended) {
            DeliveryState::Open(outcome) => {
                // The delivery may have ended by its timeout, which has the same effect.
                let _ = outcome.send(Err(reason.to_owned()));
                DeliveryState::Ended
            }
            ended => ended,
        };
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let event = self.event.bind(py);
        let (class, key) = (event.get_type().name()?, event.getattr("key")?);
        Ok(format!("<Delivery {} of {class} {key}>", self.id))
    }
}
