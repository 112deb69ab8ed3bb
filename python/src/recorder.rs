//! Events about objects, for `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadfast::Connection;
use steadfast_controller::{EventDraft, EventRecorder};

use crate::bridge::Bridge;
use crate::process::ProcessBound;
use crate::stream::seconds_to_duration;

/// Recorder of events, which sends them in the background.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Recorder {
    bridge: Bridge,
    recorder: ProcessBound<EventRecorder>,
}

impl Recorder {
    pub(crate) fn start(bridge: Bridge, connection: &Connection, controller: String) -> PyResult<Self> {
        let recorder =
            EventRecorder::new(connection, controller).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { bridge, recorder: ProcessBound::new(recorder) })
    }
}

#[pymethods]
impl Recorder {
    /// Records an event about an object. Never waits.
    #[allow(clippy::too_many_arguments, reason = "the Python part passes all fields in one call")]
    fn publish(
        &self,
        py: Python<'_>,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        name: String,
        uid: Option<String>,
        warning: bool,
        reason: String,
        action: String,
        note: String,
    ) -> PyResult<()> {
        let object = ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            namespace,
            name: Some(name),
            uid,
            ..ObjectReference::default()
        };
        let draft = if warning { EventDraft::warning(reason, action) } else { EventDraft::normal(reason, action) };
        self.recorder.get(py)?.publish(&object, draft.note(note));
        Ok(())
    }

    /// Sends the recorded events, for at most `timeout` seconds. Returns the error of unsent events.
    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        let recorder = self.recorder.get(py)?.clone();
        let work =
            async move { recorder.stop(seconds_to_duration(timeout)).await.err().map(|error| error.to_string()) };
        self.bridge.run(py, false, work, |py, error| error.into_py_any(py))
    }
}
