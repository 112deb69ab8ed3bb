//! Connection to a cluster and its informers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadfast::unstable::checkpoint_released;
use steadfast::{Checkpoint, Connection, Scope, parse_selector};
use tokio::sync::watch;

use crate::bridge::Bridge;
use crate::cache::Cache;
use crate::client::{ApiRequest, response};
use crate::controller::{Controller, ControllerInformers, ControllerSettings, RelevantChange};
use crate::election::{Election, ElectionSettings};
use crate::errors;
use crate::finalization;
use crate::logs;
use crate::path::Path;
use crate::process::ProcessBound;
use crate::recorder::Recorder;
use crate::session::{ConnectionTarget, Session};
use crate::stored_resources::StoredResources;
use crate::watching::{CheckpointUse, InformerHandle, InformerSettings};

/// Maximum time until the last changes are written to the checkpoint after the close.
const CHECKPOINT_RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection to one cluster, with the thread that serves Python.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Cluster {
    bridge: Bridge,
    state: ProcessBound<Arc<Mutex<ClusterState>>>,
}

#[derive(Default)]
struct ClusterState {
    session: Option<Arc<Session>>,
    informer_handles: Vec<Arc<InformerHandle>>,
    is_closed: bool,
    /// Counter of dropped durable handlers, for the streams of their deliveries.
    handler_drops: watch::Sender<u64>,
    /// Release of the checkpoint after the close, with the session whose threads write to it.
    checkpoint_release: Option<(BoxFuture<'static, ()>, Arc<Session>)>,
}

#[pymethods]
impl Cluster {
    /// Starts the thread. No request is sent before `connect`.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        logs::install(py)?;
        Ok(Self { bridge: Bridge::start()?, state: ProcessBound::new(Arc::default()) })
    }

    /// Opens the connection: reads the kubeconfig, and runs its credential plugin. The first request dials. Then opens the
    /// checkpoint.
    #[pyo3(signature = (kubeconfig=None, context=None, url=None, token=None, checkpoint=None, blocking=false))]
    #[allow(clippy::too_many_arguments, reason = "the Python part passes all settings in one call")]
    fn connect(
        &self,
        py: Python<'_>,
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
        url: Option<String>,
        token: Option<String>,
        checkpoint: Option<PathBuf>,
        blocking: bool,
    ) -> PyResult<Py<PyAny>> {
        let state = self.state.get(py)?.clone();
        let target = ConnectionTarget { kubeconfig, context, url, token };
        let work = async move {
            let connection: Connection = target.connect().await.map_err(ConnectFailure::Config)?;
            let checkpoint = match checkpoint {
                Some(path) => {
                    let server = connection.server().to_owned();
                    Some(open_checkpoint(path, server).await.map_err(ConnectFailure::Checkpoint)?)
                }
                None => None,
            };
            state.lock().session = Some(Arc::new(Session::new(connection, checkpoint)));
            Ok(())
        };
        self.bridge.run(py, blocking, work, |py, result| match result {
            Ok(()) => Ok(py.None()),
            Err(ConnectFailure::Config(message)) => Err(errors::config(py, &message)),
            Err(ConnectFailure::Checkpoint(message)) => Err(errors::checkpoint(py, &message)),
        })
    }

    /// The URL of the server.
    #[getter]
    fn server(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let state = self.state.get(py)?.lock();
        Ok(state.session.as_ref().map(|session| session.connection.server().to_owned()))
    }

    /// The namespace that the configuration names.
    #[getter]
    fn default_namespace(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let state = self.state.get(py)?.lock();
        Ok(state.session.as_ref().map(|session| session.connection.default_namespace().to_owned()))
    }

    /// Requests an informer. It starts after the discovery of its resource.
    #[pyo3(signature = (kind, namespace, labels, fields, indexes, managed_fields, protobuf, memory_limit, checkpoint))]
    #[allow(clippy::too_many_arguments, reason = "the Python part passes all settings in one call")]
    fn watch(
        &self,
        py: Python<'_>,
        kind: String,
        namespace: Option<String>,
        labels: Option<&str>,
        fields: Option<&str>,
        indexes: Vec<(String, String)>,
        managed_fields: bool,
        protobuf: bool,
        memory_limit: Option<usize>,
        checkpoint: Option<bool>,
    ) -> PyResult<Cache> {
        let runtime = self.bridge.handle(py)?;
        if let Some(namespace) = namespace.as_deref().filter(|name| !name.is_empty() && !is_dns_label(name)) {
            return Err(PyValueError::new_err(format!(
                "{namespace:?} is not a valid name of a namespace: at most 63 lowercase letters, digits and '-', which is \
                 neither first nor last"
            )));
        }
        let mut scope = namespace.map_or_else(Scope::all, Scope::namespace);
        if let Some(labels) = labels {
            // An invalid selector would only appear as a rejected list.
            parse_selector(labels).map_err(|error| PyValueError::new_err(error.to_string()))?;
            scope = scope.labels(labels);
        }
        if let Some(fields) = fields {
            scope = scope.fields(fields);
        }
        let parse = |(name, path): (String, String)| Path::parse(&path).map(|path| (name, path));
        let indexes = indexes.into_iter().map(parse).collect::<Result<_, _>>().map_err(PyValueError::new_err)?;
        let session = self.session(py)?;
        let checkpoint = match checkpoint {
            _ if session.checkpoint.lock().is_none() => CheckpointUse::Never,
            None => CheckpointUse::ByDefault,
            Some(true) => CheckpointUse::Requested,
            Some(false) => CheckpointUse::Never,
        };
        let settings =
            InformerSettings { name: kind, scope, indexes, managed_fields, protobuf, memory_limit, checkpoint };
        let informer_handle = {
            let mut state = self.state.get(py)?.lock();
            let informer_handle = InformerHandle::new(settings, state.handler_drops.clone());
            state.informer_handles.retain(|informer_handle| !informer_handle.is_ended());
            state.informer_handles.push(informer_handle.clone());
            informer_handle
        };
        runtime.spawn(informer_handle.clone().run(session));
        Ok(Cache::new(self.bridge.clone(), informer_handle))
    }

    /// `(api_version, resource, namespaced)` of a resource, by any name that kubectl takes.
    #[pyo3(signature = (kind, blocking=false))]
    fn resolve(&self, py: Python<'_>, kind: String, blocking: bool) -> PyResult<Py<PyAny>> {
        let session = self.session(py)?;
        let work = async move { session.resolve(&kind).await };
        self.bridge.run(py, blocking, work, |py, result| match result {
            Ok(resource) => {
                let api_resource = resource.api_resource;
                (api_resource.api_version, api_resource.plural, resource.namespaced).into_py_any(py)
            }
            Err(failure) => Err(errors::lookup(py, failure)),
        })
    }

    /// Sends a request and returns the body of the response.
    #[pyo3(signature = (method, path, body, content_type, blocking=false))]
    fn request(
        &self,
        py: Python<'_>,
        method: String,
        path: String,
        body: Vec<u8>,
        content_type: String,
        blocking: bool,
    ) -> PyResult<Py<PyAny>> {
        let session = self.session(py)?;
        let request = ApiRequest { method, path, body, content_type };
        let work = async move { request.send(&session.connection.client()).await };
        self.bridge.run(py, blocking, work, response)
    }

    /// Starts a candidate for a lease.
    #[pyo3(signature = (namespace, name, identity, lease_duration, renew_deadline, retry_period))]
    #[allow(clippy::too_many_arguments, reason = "the Python part passes all settings in one call")]
    fn elect(
        &self,
        py: Python<'_>,
        namespace: String,
        name: String,
        identity: Option<String>,
        lease_duration: f64,
        renew_deadline: f64,
        retry_period: f64,
    ) -> PyResult<Election> {
        let session = self.session(py)?;
        let settings = ElectionSettings { namespace, name, identity, lease_duration, renew_deadline, retry_period };
        Election::start(self.bridge.clone(), &session.connection, settings)
    }

    /// Starts a recorder of events.
    fn recorder(&self, py: Python<'_>, controller: String) -> PyResult<Recorder> {
        let session = self.session(py)?;
        Recorder::start(self.bridge.clone(), &session.connection, controller)
    }

    /// Starts a controller. `owned` and `read` are caches that reconciles read.
    #[pyo3(signature = (
        objects, owned, read, election, name, concurrency, timeout, pause_when_stale, changes, resync, finalizer, deleted
    ))]
    #[allow(clippy::too_many_arguments, reason = "the Python part passes all settings in one call")]
    fn controller(
        &self,
        py: Python<'_>,
        objects: &Cache,
        owned: Vec<Py<Cache>>,
        read: Vec<Py<Cache>>,
        election: Option<Py<Election>>,
        name: Option<String>,
        concurrency: usize,
        timeout: Option<f64>,
        pause_when_stale: Option<f64>,
        changes: Vec<String>,
        resync: Option<f64>,
        finalizer: Option<String>,
        deleted: bool,
    ) -> PyResult<Controller> {
        let session = self.session(py)?;
        let changes = changes.iter().map(|change| RelevantChange::parse(change)).collect::<Result<_, _>>();
        let changes = changes.map_err(PyValueError::new_err)?;
        let settings = ControllerSettings {
            name,
            concurrency,
            timeout,
            pause_when_stale,
            changes,
            resync,
            finalizer,
            reconciles_deleted: deleted,
        };
        let handles = |caches: &[Py<Cache>]| -> PyResult<Vec<_>> {
            caches.iter().map(|cache| cache.get().informer_handle(py).cloned()).collect()
        };
        let objects = objects.informer_handle(py)?.clone();
        let informers = ControllerInformers { objects, owned: handles(&owned)?, read: handles(&read)? };
        let election = election.as_ref().map(|election| election.get().library(py).cloned()).transpose()?;
        Controller::start(py, self.bridge.clone(), session, informers, election, settings)
    }

    /// Stops all informers and closes the connection.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state.get(py)?;
        finalization::detach(py, || {
            let (session, informer_handles) = {
                let mut state = state.lock();
                state.is_closed = true;
                (state.session.take(), std::mem::take(&mut state.informer_handles))
            };
            for informer_handle in &informer_handles {
                informer_handle.stop();
            }
            if let Some(session) = session {
                session.factory.shutdown();
                if let Some(checkpoint) = session.checkpoint.lock().take() {
                    let release = checkpoint_released(checkpoint).boxed();
                    state.lock().checkpoint_release = Some((release, session.clone()));
                }
            }
        });
        Ok(())
    }

    /// Waits after `close` until the last changes and acknowledgements are written, and the checkpoint is unlocked.
    #[pyo3(signature = (blocking=false))]
    fn checkpoint_released(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let release = self.state.get(py)?.lock().checkpoint_release.take();
        let work = async move {
            let Some((release, _session)) = release else { return };
            if tokio::time::timeout(CHECKPOINT_RELEASE_TIMEOUT, release).await.is_err() {
                tracing::warn!(
                    "the last changes were not written to the checkpoint within {CHECKPOINT_RELEASE_TIMEOUT:?}; \
                     unwritten acknowledgements are lost, so that their events are delivered again"
                );
            }
        };
        self.bridge.run(py, blocking, work, |py, ()| Ok(py.None()))
    }
}

impl Cluster {
    /// Returns the open connection.
    fn session(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        let state = self.state.get(py)?.lock();
        let session = state.session.clone().filter(|_| !state.is_closed);
        drop(state);
        session.ok_or_else(|| errors::stopped(py, "the informers are not open; use them within `async with` or `with`"))
    }
}

fn is_dns_label(name: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(is_permitted)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Failure to open a connection with its checkpoint.
enum ConnectFailure {
    Config(String),
    Checkpoint(String),
}

/// Opens the checkpoint on a thread where blocking delays no other task.
async fn open_checkpoint(path: PathBuf, server: String) -> Result<(Checkpoint, StoredResources), String> {
    let open = move || {
        let checkpoint = Checkpoint::open(&path).map_err(|error| error.to_string())?;
        Ok((checkpoint, StoredResources::read(&path, &server)))
    };
    tokio::task::spawn_blocking(open).await.map_err(|error| error.to_string())?
}
