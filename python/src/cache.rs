//! Reads of a cache, and waits for its states.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use steadfast::{Informer, Lazy, Lookup, ObjectKey, ResourceVersion, WaitError, parse_selector};

use crate::bridge::Bridge;
use crate::errors::{self, State};
use crate::object::{Cached, Object};
use crate::stream::{EventStream, seconds_to_duration};
use crate::tree::Tree;
use crate::watching::{Values, View, Watching};

/// Cache of one informer.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Cache {
    bridge: Bridge,
    pub(crate) watching: Arc<Watching>,
}

/// Outcome of a wait for the start of an informer.
enum Wait {
    Done,
    /// The server has no such resource, or the deadline passed.
    NotStarted(State),
    Failed(WaitError, State),
    Stopped,
}

impl Cache {
    pub(crate) fn new(bridge: Bridge, watching: Arc<Watching>) -> Self {
        Self { bridge, watching }
    }

    /// Returns a snapshot of a synced cache.
    fn view(&self, py: Python<'_>) -> PyResult<View> {
        self.bridge.check_process(py)?;
        let missing = || errors::not_synced(py, &self.watching.display_name(), &self.watching.state());
        self.watching.view().ok_or_else(missing)
    }

    /// Parses a key. A name without a namespace belongs to the informer's namespace, or to no namespace.
    fn key(&self, view: &View, key: &str) -> ObjectKey {
        match key.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => match self.watching.request.scope.in_namespace().filter(|_| view.resource.served.namespaced) {
                Some(namespace) => ObjectKey::namespaced(namespace, key),
                None => ObjectKey::cluster(key),
            },
        }
    }

    /// Returns the values of an index of a synced cache.
    fn index(&self, py: Python<'_>, name: &str) -> PyResult<(View, Values)> {
        let view = self.view(py)?;
        match self.watching.index(name) {
            Ok(values) => Ok((view, values)),
            Err(names) => {
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(PyKeyError::new_err(format!("the informer has no index {name:?}; its indexes: {names}")))
            }
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
            let informer = started.informer.clone();
            drop(started);
            match select(pin!(wait(informer, left)), pin!(watching.until_ended())).await {
                Either::Left((Ok(()), _)) => Wait::Done,
                Either::Left((Err(error), _)) => Wait::Failed(error, watching.state()),
                Either::Right(_) => Wait::Stopped,
            }
        };
        let watching = self.watching.clone();
        self.bridge.run(py, blocking, work, move |py, outcome| match outcome {
            Wait::Done => Ok(py.None()),
            Wait::NotStarted(state) => Err(errors::not_synced(py, &watching.display_name(), &state)),
            Wait::Failed(error, state) => Err(errors::wait(py, &error, &state)),
            Wait::Stopped => Err(errors::stopped(py, &format!("{} was stopped", watching.display_name()))),
        })
    }
}

fn objects<'a>(view: &View, objects: impl Iterator<Item = &'a Cached>) -> Vec<Object> {
    objects.map(|object| Object::new(object.clone(), view.resource.kind.clone())).collect()
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
        let resource = self.watching.resource()?;
        let resource = &resource.served.api_resource;
        let (version, kind) = (resource.api_version.clone(), resource.kind.clone());
        Some((version, kind, resource.plural.clone(), resource.group.clone()))
    }

    #[getter]
    fn ended(&self) -> bool {
        self.watching.is_ended()
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
        self.watching.view().is_some()
    }

    fn get(&self, py: Python<'_>, key: &str) -> PyResult<Option<Object>> {
        let view = self.view(py)?;
        let key = self.key(&view, key);
        match view.snapshot.get_by_key(&key) {
            Lookup::Found(object) => Ok(Some(Object::new(object, view.resource.kind.clone()))),
            Lookup::Absent => Ok(None),
            Lookup::Unknown { version } => Err(errors::unknown(py, &key, &version, None)),
        }
    }

    /// True if the object exists, also if its newest state cannot be decoded.
    fn contains(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        let view = self.view(py)?;
        Ok(!matches!(view.snapshot.get_by_key(&self.key(&view, key)), Lookup::Absent))
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.view(py)?.snapshot.len())
    }

    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let view = self.view(py)?;
        Ok(py.detach(|| view.snapshot.iter().map(|entry| entry.key().to_string()).collect()))
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<Object>> {
        let view = self.view(py)?;
        Ok(py.detach(|| objects(&view, view.snapshot.decodable())))
    }

    #[pyo3(signature = (labels, namespace=None))]
    fn select(&self, py: Python<'_>, labels: &str, namespace: Option<&str>) -> PyResult<Vec<Object>> {
        let view = self.view(py)?;
        let selector = parse_selector(labels).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(py.detach(|| objects(&view, view.snapshot.select(namespace, &selector))))
    }

    fn by(&self, py: Python<'_>, index: &str, value: &str) -> PyResult<Vec<Object>> {
        let (view, values) = self.index(py, index)?;
        Ok(objects(&view, values.get(value)))
    }

    /// Values of an index, with the number of objects of each.
    fn index_counts<'py>(&self, py: Python<'py>, index: &str) -> PyResult<Bound<'py, PyDict>> {
        let (_, values) = self.index(py, index)?;
        let counts = PyDict::new(py);
        for (value, count) in values.counts() {
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
            let informer = started.informer.clone();
            drop(started);
            match select(pin!(informer.wait_for_sync(left)), pin!(watching.until_ended())).await {
                Either::Left((synced, _)) => synced.map_err(|error| State::Informer(error.state)),
                // An informer that was synced stays synced.
                Either::Right(_) if watching.view().is_some() => Ok(()),
                Either::Right(_) => Err(watching.state()),
            }
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
        let changed = self.watching.started().map(|started| *started.informer.changed().borrow());
        counter(*self.watching.moved().borrow(), changed)
    }

    /// Waits until the counter differs from `seen`, and returns true; or returns false after the timeout.
    #[pyo3(signature = (seen, timeout=None, blocking=false))]
    fn changed(&self, py: Python<'_>, seen: u64, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let watching = self.watching.clone();
        let work = async move {
            let changed = async {
                let mut moved = watching.moved();
                loop {
                    let count = *moved.borrow_and_update();
                    let mut informer = watching.started().map(|started| started.informer.changed());
                    let changed = informer.as_mut().map(|changed| *changed.borrow_and_update());
                    if counter(count, changed) != seen {
                        return;
                    }
                    match &mut informer {
                        Some(informer) => {
                            let _ = select(pin!(moved.changed()), pin!(informer.changed())).await;
                        }
                        None => drop(moved.changed().await),
                    }
                }
            };
            match timeout {
                None => {
                    changed.await;
                    true
                }
                Some(seconds) => tokio::time::timeout(seconds_to_duration(seconds), changed).await.is_ok(),
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

/// Combines the counters of the request and of the library's informer, which ends earlier.
fn counter(moved: u64, changed: Option<u64>) -> u64 {
    (moved << 40) + changed.unwrap_or_default()
}
