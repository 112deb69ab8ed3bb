//! Exceptions and values whose classes are written in Python.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;
use steadfast::{Doubt, Freshness, ObjectKey, ResourceVersion, WaitError};

use crate::session::LookupFailure;

/// Module of the classes.
pub(crate) const MODULE: &str = "steadfast_kube._types";

/// Returns a class of the Python part of the package.
macro_rules! python_class {
    ($py:expr, $name:literal) => {{
        static CLASS: pyo3::sync::PyOnceLock<Py<pyo3::types::PyType>> = pyo3::sync::PyOnceLock::new();
        CLASS.import($py, $crate::errors::MODULE, $name)
    }};
}
pub(crate) use python_class;

/// Creates an exception from its class and arguments.
macro_rules! exception {
    ($py:expr, $name:literal, $arguments:expr) => {
        python_class!($py, $name)
            .and_then(|class| class.call1($arguments))
            .map_or_else(|error| error, |value| PyErr::from_value(value))
    };
}
pub(crate) use exception;

/// Error of a cache before its first complete list.
pub(crate) fn not_synced(py: Python<'_>, name: &str, state: &State) -> PyErr {
    let message = format!("{name} is not synced: {}", state.text());
    match state.to_python(py) {
        Ok(freshness) if state.is_unknown_kind() => exception!(py, "UnknownKind", (state.reason(), freshness)),
        Ok(freshness) => exception!(py, "NotSynced", (message, freshness)),
        Err(error) => error,
    }
}

/// Error of the lookup of a resource for a request.
pub(crate) fn lookup(py: Python<'_>, failure: LookupFailure) -> PyErr {
    match failure {
        LookupFailure::Request(reason) => exception!(py, "RequestFailed", (reason,)),
        LookupFailure::Unknown(reason) => {
            let state =
                State::Discovering { is_unknown_kind: true, doubt: Doubt::new(Duration::ZERO, reason.as_str()) };
            not_synced(py, "", &state)
        }
    }
}

/// Error of a wait.
pub(crate) fn wait(py: Python<'_>, error: &WaitError, state: &State) -> PyErr {
    match error {
        WaitError::Stopped { .. } => stopped(py, &error.to_string()),
        WaitError::Opaque { .. } | WaitError::NoVersion => pyo3::exceptions::PyValueError::new_err(error.to_string()),
        _ => not_reached(py, &error.to_string(), state),
    }
}

pub(crate) fn not_reached(py: Python<'_>, message: &str, state: &State) -> PyErr {
    match state.to_python(py) {
        Ok(freshness) => exception!(py, "NotReached", (message, freshness)),
        Err(error) => error,
    }
}

pub(crate) fn stopped(py: Python<'_>, message: &str) -> PyErr {
    exception!(py, "StoppedError", (message,))
}

pub(crate) fn config(py: Python<'_>, message: &str) -> PyErr {
    exception!(py, "ConfigError", (message,))
}

/// Error of a checkpoint file, or of an informer or durable handler that cannot use it.
pub(crate) fn checkpoint(py: Python<'_>, message: &str) -> PyErr {
    exception!(py, "CheckpointError", (message,))
}

pub(crate) fn undecodable(py: Python<'_>, key: &ObjectKey, version: &ResourceVersion, reason: Option<&str>) -> PyErr {
    let message = match reason {
        Some(reason) => format!("{key} cannot be decoded: {reason}"),
        None => format!("{key} at version {version} cannot be decoded; the next state that can be decoded replaces it"),
    };
    exception!(py, "Unknown", (message, key.to_string(), version.to_string()))
}

pub(crate) fn forked(py: Python<'_>, parent: u32) -> PyErr {
    let message = format!(
        "this belongs to process {parent}, and process {} was forked from it without its threads; open informers of the \
         child's own after the fork",
        std::process::id()
    );
    exception!(py, "Forked", (message,))
}

/// State of a cache, also before its kind is known.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Informer(Freshness),
    /// The resource is not found yet. With `is_unknown_kind`, the server responded that it has no such resource.
    Discovering {
        is_unknown_kind: bool,
        doubt: Doubt,
    },
    /// The informers ended before the resource was found.
    Ended(Doubt),
}

impl State {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Informer(freshness) => freshness.to_string(),
            Self::Discovering { is_unknown_kind: true, doubt } => format!("failed for {doubt}"),
            Self::Discovering { is_unknown_kind: false, doubt } => format!("starting for {doubt}"),
            Self::Ended(doubt) => format!("stopped for {doubt}"),
        }
    }

    fn is_unknown_kind(&self) -> bool {
        matches!(self, Self::Discovering { is_unknown_kind: true, .. })
    }

    fn reason(&self) -> String {
        match self {
            Self::Informer(freshness) => freshness.doubt().map(|doubt| doubt.reason.to_string()).unwrap_or_default(),
            Self::Discovering { doubt, .. } | Self::Ended(doubt) => doubt.reason.to_string(),
        }
    }

    pub(crate) fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (class, doubt) = match self {
            Self::Informer(Freshness::Fresh { version, age, tainted, polled, .. }) => {
                let polled = match polled {
                    Some(polled) => Some(
                        python_class!(py, "Polled")?.call1((polled.every.as_secs_f64(), polled.reason.to_string()))?,
                    ),
                    None => None,
                };
                let version = version.as_ref().map(ToString::to_string);
                let tainted = PyFrozenSet::new(py, tainted.iter().map(ToString::to_string))?;
                let fields = (self.text(), age.as_secs_f64(), version, tainted, polled);
                return Ok(python_class!(py, "Fresh")?.call1(fields)?.unbind());
            }
            Self::Informer(Freshness::Resuming(doubt)) => (python_class!(py, "Resuming")?, doubt),
            Self::Informer(Freshness::Suspect(doubt)) => (python_class!(py, "Suspect")?, doubt),
            Self::Informer(Freshness::Stale(doubt)) => (python_class!(py, "Stale")?, doubt),
            Self::Informer(Freshness::Failed(doubt)) | Self::Discovering { is_unknown_kind: true, doubt } => {
                (python_class!(py, "Failed")?, doubt)
            }
            Self::Informer(Freshness::Stopped(doubt)) | Self::Ended(doubt) => (python_class!(py, "Stopped")?, doubt),
            Self::Informer(Freshness::Starting(doubt)) | Self::Discovering { is_unknown_kind: false, doubt } => {
                (python_class!(py, "Starting")?, doubt)
            }
            // The library may add states. Each of them is a doubt.
            Self::Informer(other) => {
                let Some(doubt) = other.doubt() else {
                    return Err(pyo3::exceptions::PyRuntimeError::new_err(format!("unknown freshness: {other}")));
                };
                (python_class!(py, "Suspect")?, doubt)
            }
        };
        Ok(class.call1(self.fields(py, doubt)?)?.unbind())
    }

    /// Returns the fields of a doubt, in the order of the Python class.
    #[allow(clippy::type_complexity, reason = "the arguments of one constructor")]
    fn fields<'py>(
        &self,
        py: Python<'py>,
        doubt: &Doubt,
    ) -> PyResult<(String, Bound<'py, PyAny>, f64, String, Option<f64>, Option<String>, u32, Option<f64>)> {
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        let datetime = py.import("datetime")?;
        let now =
            datetime.getattr("datetime")?.call_method1("now", (datetime.getattr("timezone")?.getattr("utc")?,))?;
        // The arguments are days and seconds.
        let doubt_duration = datetime.getattr("timedelta")?.call1((0, doubt.elapsed.as_secs_f64()))?;
        Ok((
            self.text(),
            now.sub(doubt_duration)?,
            doubt.elapsed.as_secs_f64(),
            doubt.reason.to_string(),
            seconds(doubt.age),
            doubt.version.as_ref().map(ToString::to_string),
            doubt.attempts,
            seconds(doubt.next_attempt),
        ))
    }
}
