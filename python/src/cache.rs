//! Reads of a cache, and waits for its states.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use steadfast::{Informer, Lazy, Lister, Lookup, ObjectKey, ResourceVersion, WaitError, parse_selector};

use crate::bridge::Bridge;
use crate::errors::{self, State};
use crate::object::{Cached, Object};
use crate::stream::{EventStream, seconds_to_duration};
use crate::tree::Tree;
use crate::watching::{Started, Watching};

/// Cache of one informer.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Cache {
    bridge: Bridge,
    watching: Arc<Watching>,
}

/// Outcome of a wait for the start of an informer.
enum Wait {
    Done,
    /// The server has no such resource, or the deadline passed.
    NotStarted(State),
    Failed(WaitError, State),
}

impl Cache {
    pub(crate) fn new(bridge: Bridge, watching: Arc<Watching>) -> Self {
        Self { bridge, watching }
    }

    /// Returns the reader of a synced cache.
    fn reader(&self, py: Python<'_>) -> PyResult<(&Started, Lister<Lazy<Tree>>)> {
        self.bridge.check_process(py)?;
        if let Some(started) = self.watching.started()
            && let Ok(lister) = started.informer.lister()
        {
            return Ok((started, lister));
        }
        Err(errors::not_synced(py, &self.watching.display_name(), &self.watching.state()))
    }

    /// Parses a key. A name without a namespace belongs to the informer's namespace, or to no namespace.
    fn key(&self, started: &Started, key: &str) -> ObjectKey {
        match key.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => match self.watching.request.scope.in_namespace().filter(|_| started.resource.namespaced) {
                Some(namespace) => ObjectKey::namespaced(namespace, key),
                None => ObjectKey::cluster(key),
            },
        }
    }

    /// Runs a wait that starts once the informer has started, with one deadline for both.
    fn wait<F, R>(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool, wait: F) -> PyResult<Py<PyAny>>
    where
        F: FnOnce(Informer<Lazy<Tree>>, Duration) -> R + Send + 'static,
        R: Future<Output = Result<(), WaitError>> + Send,
    {
        let watching = self.watching.clone();
        let work = async move {
            let deadline = seconds_to_duration(timeout.unwrap_or(f64::MAX));
            let begun = Instant::now();
            let Ok(Some(started)) = tokio::time::timeout(deadline, watching.until_started()).await else {
                return Wait::NotStarted(watching.state());
            };
            let left = deadline.saturating_sub(begun.elapsed());
            match wait(started.informer.clone(), left).await {
                Ok(()) => Wait::Done,
                Err(error) => Wait::Failed(error, watching.state()),
            }
        };
        let watching = self.watching.clone();
        self.bridge.run(py, blocking, work, move |py, outcome| match outcome {
            Wait::Done => Ok(py.None()),
            Wait::NotStarted(state) => Err(errors::not_synced(py, &watching.display_name(), &state)),
            Wait::Failed(error, state) => Err(errors::wait(py, &error, &state)),
        })
    }
}

fn objects(started: &Started, objects: Vec<Cached>) -> Vec<Object> {
    objects.into_iter().map(|object| Object::new(object, started.kind.clone())).collect()
}

#[pymethods]
impl Cache {
    /// Resource and scope, for messages.
    #[getter]
    fn name(&self) -> String {
        self.watching.display_name()
    }

    /// `(api_version, kind, resource, group)` of the resource; `None` before its discovery.
    #[getter]
    fn resource(&self) -> Option<(String, String, String, String)> {
        let resource = &self.watching.started()?.resource.api_resource;
        let (version, kind) = (resource.api_version.clone(), resource.kind.clone());
        Some((version, kind, resource.plural.clone(), resource.group.clone()))
    }

    #[getter]
    fn namespace(&self) -> Option<&str> {
        self.watching.request.scope.in_namespace()
    }

    fn freshness(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.bridge.check_process(py)?;
        self.watching.state().to_python(py)
    }

    fn has_synced(&self) -> bool {
        self.watching.started().is_some_and(|started| started.informer.has_synced())
    }

    fn get(&self, py: Python<'_>, key: &str) -> PyResult<Option<Object>> {
        let (started, lister) = self.reader(py)?;
        match lister.get_by_key(&self.key(started, key)) {
            Ok(found) => Ok(found.map(|object| Object::new(object, started.kind.clone()))),
            Err(error) => Err(errors::unknown(py, &error.key, &error.version, None)),
        }
    }

    /// True if the object exists, also if its newest state cannot be decoded.
    fn contains(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        let (started, lister) = self.reader(py)?;
        Ok(!matches!(lister.snapshot().get_by_key(&self.key(started, key)), Lookup::Absent))
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.reader(py)?.1.len())
    }

    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let snapshot = self.reader(py)?.1.snapshot();
        Ok(py.detach(|| snapshot.iter().map(|entry| entry.key().to_string()).collect()))
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<Object>> {
        let (started, lister) = self.reader(py)?;
        Ok(objects(started, py.detach(|| lister.all())))
    }

    #[pyo3(signature = (labels, namespace=None))]
    fn select(&self, py: Python<'_>, labels: &str, namespace: Option<&str>) -> PyResult<Vec<Object>> {
        let (started, lister) = self.reader(py)?;
        let selector = parse_selector(labels).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let found = py.detach(|| match namespace {
            Some(namespace) => lister.select_in(namespace, &selector),
            None => lister.select(&selector),
        });
        Ok(objects(started, found))
    }

    fn by(&self, py: Python<'_>, index: &str, value: &str) -> PyResult<Vec<Object>> {
        let (started, _) = self.reader(py)?;
        match started.indexes.get(index) {
            Some(index) => Ok(objects(started, index.get(value))),
            None => Err(no_index(started, index)),
        }
    }

    /// Values of an index, with the number of objects of each.
    fn index_counts<'py>(&self, py: Python<'py>, index: &str) -> PyResult<Bound<'py, PyDict>> {
        let (started, _) = self.reader(py)?;
        let Some(index) = started.indexes.get(index) else { return Err(no_index(started, index)) };
        let counts = PyDict::new(py);
        for (value, count) in index.snapshot().counts() {
            counts.set_item(value, count)?;
        }
        Ok(counts)
    }

    fn stream(&self, py: Python<'_>) -> PyResult<EventStream> {
        self.bridge.check_process(py)?;
        Ok(EventStream::new(self.bridge.clone(), self.watching.clone()))
    }

    #[pyo3(signature = (timeout=None, blocking=false))]
    fn synced(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let watching = self.watching.clone();
        let work = async move {
            let deadline = seconds_to_duration(timeout.unwrap_or(f64::MAX));
            let begun = Instant::now();
            let Ok(Some(started)) = tokio::time::timeout(deadline, watching.until_started()).await else {
                return Err(watching.state());
            };
            let left = deadline.saturating_sub(begun.elapsed());
            started.informer.wait_for_sync(left).await.map_err(|error| State::Informer(error.state))
        };
        let watching = self.watching.clone();
        self.bridge.run(py, blocking, work, move |py, synced| match synced {
            Ok(()) => Ok(py.None()),
            Err(state) => Err(errors::not_synced(py, &watching.display_name(), &state)),
        })
    }

    /// Waits until the cache has reached a version of its resource.
    #[pyo3(signature = (version, timeout, blocking=false))]
    fn wait_for(&self, py: Python<'_>, version: &str, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let version = ResourceVersion::from(version);
        self.wait(py, timeout, blocking, move |informer, left| async move {
            informer.wait_for_version(&version, left).await
        })
    }

    /// Counter of the changes of the cache and its freshness, for `changed`.
    fn changes(&self) -> u64 {
        let begun = *self.watching.moved().borrow();
        begun + self.watching.started().map_or(0, |started| *started.informer.changed().borrow())
    }

    /// Waits until the counter differs from `seen`, and returns true; or returns false after the timeout.
    #[pyo3(signature = (seen, timeout=None, blocking=false))]
    fn changed(&self, py: Python<'_>, seen: u64, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let watching = self.watching.clone();
        let work = async move {
            let changed = async {
                loop {
                    let mut moved = watching.moved();
                    let begun = *moved.borrow_and_update();
                    let Some(started) = watching.started() else {
                        if begun != seen {
                            return;
                        }
                        let _ = moved.changed().await;
                        continue;
                    };
                    let mut changed = started.informer.changed();
                    if begun + *changed.borrow_and_update() != seen {
                        return;
                    }
                    drop(select(pin!(moved.changed()), pin!(changed.changed())).await);
                }
            };
            match timeout {
                None => {
                    changed.await;
                    true
                }
                Some(seconds) => {
                    let sleep = tokio::time::sleep(seconds_to_duration(seconds));
                    matches!(select(pin!(changed), pin!(sleep)).await, Either::Left(_))
                }
            }
        };
        self.bridge.run(py, blocking, work, |py, changed| changed.into_py_any(py))
    }

    /// Raises the error for a condition that did not hold in time.
    fn fail(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        let state = self.watching.state();
        let message = format!("{}: {message}; {}", self.watching.display_name(), state.text());
        Err(errors::not_reached(py, &message, &state))
    }

    /// Memory of the cache in bytes.
    fn memory(&self) -> usize {
        self.watching.started().map_or(0, |started| started.informer.memory().total())
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.bridge.check_process(py)?;
        py.detach(|| self.watching.stop());
        Ok(())
    }
}

fn no_index(started: &Started, index: &str) -> PyErr {
    let known: Vec<&str> = started.indexes.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    PyKeyError::new_err(format!("the informer has no index {index:?}; its indexes: {known}"))
}
