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
use crate::durable::{DeliveryStream, DurableSettings, stats_to_python};
use crate::errors::{self, State};
use crate::finalization;
use crate::object::{Cached, Object};
use crate::process::ProcessBound;
use crate::stream::{EventStream, seconds_to_duration};
use crate::tree::JsonTree;
use crate::watching::{CacheView, CheckpointUse, InformerHandle, RunningInformer, Values};

/// Cache of one informer.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Cache {
    bridge: Bridge,
    informer_handle: ProcessBound<Arc<InformerHandle>>,
}

/// Outcome of a wait for the start of an informer.
enum WaitOutcome {
    Done,
    /// The server has no such resource, the deadline passed, or the informer was stopped.
    NotStarted(State),
    Failed(WaitError, State),
    Stopped,
}

impl Cache {
    pub(crate) fn new(bridge: Bridge, informer_handle: Arc<InformerHandle>) -> Self {
        Self { bridge, informer_handle: ProcessBound::new(informer_handle) }
    }

    /// Returns the informer.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked child.
    pub(crate) fn informer_handle(&self, py: Python<'_>) -> PyResult<&Arc<InformerHandle>> {
        self.informer_handle.get(py)
    }

    /// Returns a snapshot of a synced cache.
    fn view(&self, py: Python<'_>) -> PyResult<CacheView> {
        let informer_handle = self.informer_handle.get(py)?;
        let missing = || errors::not_synced(py, &informer_handle.display_name(), &informer_handle.state());
        informer_handle.view().ok_or_else(missing)
    }

    /// Returns the running informer of a synced cache.
    fn synced_informer(&self, py: Python<'_>) -> PyResult<Arc<RunningInformer>> {
        self.view(py)?;
        let informer_handle = self.informer_handle.get(py)?;
        let stopped = || errors::stopped(py, &format!("{} was stopped", informer_handle.display_name()));
        informer_handle.running_informer().ok_or_else(stopped)
    }

    /// Parses a key. A name without a namespace belongs to the informer's namespace, or to no namespace.
    fn key(&self, py: Python<'_>, view: &CacheView, key: &str) -> PyResult<ObjectKey> {
        Ok(match key.split_once('/') {
            Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
            None => {
                match self
                    .informer_handle
                    .get(py)?
                    .settings
                    .scope
                    .in_namespace()
                    .filter(|_| view.resource.served.namespaced)
                {
                    Some(namespace) => ObjectKey::namespaced(namespace, key),
                    None => ObjectKey::cluster(key),
                }
            }
        })
    }

    /// Returns the values of an index of a synced cache.
    fn index(&self, py: Python<'_>, name: &str) -> PyResult<(CacheView, Values)> {
        let view = self.view(py)?;
        match self.informer_handle.get(py)?.index(name) {
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
        F: FnOnce(Informer<Lazy<JsonTree>>, Duration) -> R + Send + 'static,
        R: Future<Output = Result<(), WaitError>> + Send,
    {
        let informer_handle = self.informer_handle.get(py)?.clone();
        let work = async move {
            let deadline = seconds_to_duration(timeout.unwrap_or(f64::MAX));
            let start = Instant::now();
            let Ok(Some(running_informer)) = tokio::time::timeout(deadline, informer_handle.until_started()).await
            else {
                return WaitOutcome::NotStarted(informer_handle.state());
            };
            let remaining = deadline.saturating_sub(start.elapsed());
            let informer = running_informer.informer.clone();
            drop(running_informer);
            match select(pin!(wait(informer, remaining)), pin!(informer_handle.until_ended())).await {
                Either::Left((Ok(()), _)) => WaitOutcome::Done,
                Either::Left((Err(error), _)) => WaitOutcome::Failed(error, informer_handle.state()),
                Either::Right(_) => WaitOutcome::Stopped,
            }
        };
        let informer_handle = self.informer_handle.get(py)?.clone();
        self.bridge.run(py, blocking, work, move |py, outcome| match outcome {
            WaitOutcome::Done => Ok(py.None()),
            WaitOutcome::NotStarted(state) => Err(errors::not_synced(py, &informer_handle.display_name(), &state)),
            WaitOutcome::Failed(error, state) => Err(errors::wait(py, &error, &state)),
            WaitOutcome::Stopped => {
                Err(errors::stopped(py, &format!("{} was stopped", informer_handle.display_name())))
            }
        })
    }
}

fn objects<'a>(view: &CacheView, objects: impl Iterator<Item = &'a Cached>) -> Vec<Object> {
    objects.map(|object| Object::new(object.clone(), view.resource.kind.clone())).collect()
}

#[pymethods]
impl Cache {
    /// Resource and scope, for messages.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.informer_handle.get(py)?.display_name())
    }

    /// `(api_version, kind, resource, group)` of the resource; `None` before its discovery.
    #[getter]
    fn resource(&self, py: Python<'_>) -> PyResult<Option<(String, String, String, String)>> {
        let resource = self.informer_handle.get(py)?.resource();
        Ok(resource.map(|resource| {
            let resource = &resource.served.api_resource;
            let (version, kind) = (resource.api_version.clone(), resource.kind.clone());
            (version, kind, resource.plural.clone(), resource.group.clone())
        }))
    }

    #[getter]
    fn ended(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.informer_handle.get(py)?.is_ended())
    }

    #[getter]
    fn namespace(&self, py: Python<'_>) -> PyResult<Option<&str>> {
        Ok(self.informer_handle.get(py)?.settings.scope.in_namespace())
    }

    fn freshness(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.informer_handle.get(py)?.state().to_python(py)
    }

    fn has_synced(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.informer_handle.get(py)?.view().is_some())
    }

    fn get(&self, py: Python<'_>, key: &str) -> PyResult<Option<Object>> {
        let view = self.view(py)?;
        let key = self.key(py, &view, key)?;
        match view.snapshot.get_by_key(&key) {
            Lookup::Found(object) => Ok(Some(Object::new(object, view.resource.kind.clone()))),
            Lookup::Absent => Ok(None),
            Lookup::Undecodable { version } => Err(errors::undecodable(py, &key, &version, None)),
        }
    }

    /// True if the object exists, also if its newest state cannot be decoded.
    fn contains(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        let view = self.view(py)?;
        Ok(!matches!(view.snapshot.get_by_key(&self.key(py, &view, key)?), Lookup::Absent))
    }

    fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.view(py)?.snapshot.len())
    }

    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let view = self.view(py)?;
        Ok(finalization::detach(py, || view.snapshot.iter().map(|entry| entry.key().to_string()).collect()))
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<Object>> {
        let view = self.view(py)?;
        Ok(finalization::detach(py, || objects(&view, view.snapshot.decodable())))
    }

    #[pyo3(signature = (labels, namespace=None))]
    fn select(&self, py: Python<'_>, labels: &str, namespace: Option<&str>) -> PyResult<Vec<Object>> {
        let view = self.view(py)?;
        let selector = parse_selector(labels).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(finalization::detach(py, || objects(&view, view.snapshot.select(namespace, &selector))))
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
        let informer_handle = self.informer_handle.get(py)?.clone();
        Ok(finalization::detach(py, || EventStream::new(self.bridge.clone(), informer_handle)))
    }

    /// Registers a durable handler.
    fn durable(
        &self,
        py: Python<'_>,
        name: String,
        concurrency: usize,
        ack_timeout: Option<f64>,
    ) -> PyResult<DeliveryStream> {
        let informer_handle = self.informer_handle.get(py)?;
        if informer_handle.settings.checkpoint == CheckpointUse::Never {
            let message = format!(
                "{} has no checkpoint for the pending events of a durable handler; open the informers with \
                 `Informers(checkpoint=…)`, and watch without `checkpoint=False`",
                informer_handle.display_name()
            );
            return Err(errors::checkpoint(py, &message));
        }
        let settings = DurableSettings { name, concurrency, ack_timeout };
        DeliveryStream::new(py, self.bridge.clone(), informer_handle.clone(), settings)
    }

    /// Counters of the durable handlers by name, also of handlers that this run has not registered.
    fn durable_handlers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let handlers = PyDict::new(py);
        let running_informer = self.synced_informer(py)?;
        for (name, stats) in finalization::detach(py, move || running_informer.informer.durable_handlers()) {
            handlers.set_item(&*name, stats_to_python(py, stats)?)?;
        }
        Ok(handlers)
    }

    /// Removes a durable handler with its pending deliveries, and returns true if it existed. Ends its open stream.
    fn drop_durable(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let (running_informer, informer_handle) = (self.synced_informer(py)?, self.informer_handle.get(py)?);
        Ok(finalization::detach(py, || {
            let existed = running_informer.informer.drop_durable(name);
            drop(running_informer);
            informer_handle.notify_handler_drop();
            existed
        }))
    }

    #[pyo3(signature = (timeout=None, blocking=false))]
    fn synced(&self, py: Python<'_>, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let informer_handle = self.informer_handle.get(py)?.clone();
        let work = async move {
            let deadline = seconds_to_duration(timeout.unwrap_or(f64::MAX));
            let start = Instant::now();
            let Ok(Some(running_informer)) = tokio::time::timeout(deadline, informer_handle.until_started()).await
            else {
                return Err(informer_handle.state());
            };
            let remaining = deadline.saturating_sub(start.elapsed());
            let informer = running_informer.informer.clone();
            drop(running_informer);
            match select(pin!(informer.wait_for_sync(remaining)), pin!(informer_handle.until_ended())).await {
                Either::Left((synced, _)) => synced.map_err(|error| State::Informer(error.state)),
                // An informer that was synced stays synced.
                Either::Right(_) if informer_handle.view().is_some() => Ok(()),
                Either::Right(_) => Err(informer_handle.state()),
            }
        };
        let informer_handle = self.informer_handle.get(py)?.clone();
        self.bridge.run(py, blocking, work, move |py, synced| match synced {
            Ok(()) => Ok(py.None()),
            Err(state) => Err(errors::not_synced(py, &informer_handle.display_name(), &state)),
        })
    }

    /// Waits until the cache has reached a version of its resource.
    #[pyo3(signature = (version, timeout, blocking=false))]
    fn wait_for(&self, py: Python<'_>, version: &str, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let version = ResourceVersion::from(version);
        self.wait(py, timeout, blocking, move |informer, remaining| async move {
            informer.wait_for_version(&version, remaining).await
        })
    }

    /// Counter of the changes of the cache and its freshness, for `changed`.
    fn changes(&self, py: Python<'_>) -> PyResult<u64> {
        let informer_handle = self.informer_handle.get(py)?;
        let changed =
            informer_handle.running_informer().map(|running_informer| *running_informer.informer.changed().borrow());
        Ok(counter(*informer_handle.progress().borrow(), changed))
    }

    /// Waits until the counter differs from `seen`, and returns true; or returns false after the timeout.
    #[pyo3(signature = (seen, timeout=None, blocking=false))]
    fn changed(&self, py: Python<'_>, seen: u64, timeout: Option<f64>, blocking: bool) -> PyResult<Py<PyAny>> {
        let informer_handle = self.informer_handle.get(py)?.clone();
        let work = async move {
            let changed = async {
                let mut progress = informer_handle.progress();
                loop {
                    let count = *progress.borrow_and_update();
                    let mut informer =
                        informer_handle.running_informer().map(|running_informer| running_informer.informer.changed());
                    let changed = informer.as_mut().map(|changed| *changed.borrow_and_update());
                    if counter(count, changed) != seen {
                        return;
                    }
                    match &mut informer {
                        Some(informer) => {
                            let _ = select(pin!(progress.changed()), pin!(informer.changed())).await;
                        }
                        None => drop(progress.changed().await),
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
        let informer_handle = self.informer_handle.get(py)?;
        let state = informer_handle.state();
        let message = format!("{}: {message}; {}", informer_handle.display_name(), state.text());
        Err(errors::not_reached(py, &message, &state))
    }

    /// Memory of the cache in bytes.
    fn memory(&self, py: Python<'_>) -> PyResult<usize> {
        let informer_handle = self.informer_handle.get(py)?;
        Ok(finalization::detach(py, || {
            let running_informer = informer_handle.running_informer();
            running_informer.map_or(0, |running_informer| running_informer.informer.memory().total())
        }))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let informer_handle = self.informer_handle.get(py)?;
        finalization::detach(py, || informer_handle.stop());
        Ok(())
    }
}

/// Combines the counters of the informer handle and of the library's informer, which exists only while the handle is
/// running.
fn counter(progress: u64, changed: Option<u64>) -> u64 {
    (progress << 40) + changed.unwrap_or_default()
}
