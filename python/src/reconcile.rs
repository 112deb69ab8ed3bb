//! One reconcile: a call of Python code, and the requests that belong to it.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use steadfast::{Connection, Lookup, ObjectKey};
use steadfast_controller::{Action, Finalizing, Leader, finalizer};
use tokio::sync::{mpsc, oneshot};

use crate::bridge::Bridge;
use crate::client::{ApiRequest, RequestError, response};
use crate::object::{Cached, Kind, Object};
use crate::process::ProcessBound;
use crate::stream::seconds_to_duration;
use crate::watching::RunningInformer;

/// Message of a controller to the event loop.
pub(crate) enum Message {
    /// Run the reconcile function.
    Call(PendingCall),
    /// The reconcile of this number has timed out, or the controller was stopped.
    Cancel(u64),
    /// The lease was lost. Reconciles must end.
    TermEnded,
    /// The controller cannot start.
    Failed(String),
}

impl Message {
    /// Returns `(name, content)`.
    pub(crate) fn into_python(self, py: Python<'_>, bridge: Bridge) -> PyResult<Py<PyAny>> {
        match self {
            Self::Call(mut pending) => {
                let object = pending.object.take().map(|object| Py::new(py, Object::new(object, pending.kind.clone())));
                let call = Call { bridge, object: object.transpose()?, pending: ProcessBound::new(pending) };
                ("call", call.into_py_any(py)?).into_py_any(py)
            }
            Self::Cancel(id) => ("cancel", id).into_py_any(py),
            Self::TermEnded => ("term_ended", py.None()).into_py_any(py),
            Self::Failed(error) => ("failed", error).into_py_any(py),
        }
    }
}

/// Call of the reconcile function, not yet converted to Python.
pub(crate) struct PendingCall {
    id: u64,
    key: ObjectKey,
    object: Option<Cached>,
    kind: Kind,
    cleanup: bool,
    fencing_token: Option<u64>,
    /// Taken by the first result.
    outcome_sender: Mutex<Option<oneshot::Sender<Result<Action, ReconcileError>>>>,
    requests: mpsc::UnboundedSender<PendingRequest>,
}

/// Request that waits for its reconcile to send it.
struct PendingRequest {
    request: ApiRequest,
    response_sender: oneshot::Sender<Result<Vec<u8>, RequestError>>,
}

/// Failure of a reconcile, as text.
#[derive(Debug)]
pub(crate) struct ReconcileError(String);

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReconcileError {}

/// Parts that all reconciles of a controller share.
pub(crate) struct Reconciler {
    pub(crate) objects: Arc<RunningInformer>,
    pub(crate) connection: Connection,
    /// Current term, if the controller needs one.
    pub(crate) leader: Arc<OnceLock<Leader>>,
    pub(crate) finalizer: Option<String>,
    pub(crate) reconciles_deleted: bool,
    pub(crate) messages: mpsc::UnboundedSender<Message>,
    pub(crate) calls: AtomicU64,
}

/// Reports the end of a reconcile that was dropped before its result arrived.
struct CancelOnDrop<'a> {
    messages: &'a mpsc::UnboundedSender<Message>,
    id: u64,
    is_finished: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            drop(self.messages.send(Message::Cancel(self.id)));
        }
    }
}

impl Reconciler {
    /// Reconciles a key with the state of its object in the cache.
    pub(crate) async fn reconcile(&self, key: ObjectKey) -> Result<Action, ReconcileError> {
        let object = match self.objects.informer.snapshot().get_by_key(&key) {
            Lookup::Found(object) => object,
            Lookup::Absent if self.reconciles_deleted => return self.call(key, None, false).await,
            Lookup::Absent => return Ok(Action::await_change()),
            Lookup::Undecodable { version } => {
                return Err(ReconcileError(format!("the state of {key} at version {version} cannot be decoded")));
            }
        };
        match &self.finalizer {
            Some(name) => self.with_finalizer(name, key, object).await,
            None => self.call(key, Some(object), false).await,
        }
    }

    /// Adds the finalizer first, and removes it after the cleanup.
    async fn with_finalizer(&self, name: &str, key: ObjectKey, object: Cached) -> Result<Action, ReconcileError> {
        let api_resource = &self.objects.resource().served.api_resource;
        let decoded = object.get().map_err(|error| ReconcileError(format!("{key} cannot be decoded: {error}")))?;
        // The finalizer needs the metadata only.
        let mut metadata_object = DynamicObject::new(key.name(), api_resource);
        metadata_object.metadata = decoded.meta().clone();
        let api: Api<DynamicObject> = match key.namespace() {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, api_resource),
            None => Api::all_with(self.client(), api_resource),
        };
        let reconcile_step = |event| {
            let cleanup = matches!(event, Finalizing::Cleanup(_));
            self.call(key.clone(), Some(object.clone()), cleanup)
        };
        let result = finalizer(&api, name, Arc::new(metadata_object), reconcile_step).await;
        result.map_err(|error| ReconcileError(error.to_string()))
    }

    /// Lets Python code reconcile, and sends its requests in the meantime.
    ///
    /// The requests are sent by this task, so that the library knows which reconcile wrote: the next reconcile of the
    /// key starts after the caches contain these writes.
    async fn call(&self, key: ObjectKey, object: Option<Cached>, cleanup: bool) -> Result<Action, ReconcileError> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let (outcome_sender, mut outcome) = oneshot::channel();
        let outcome_sender = Mutex::new(Some(outcome_sender));
        let (request_sender, mut request_receiver) = mpsc::unbounded_channel::<PendingRequest>();
        let kind = self.objects.resource().kind.clone();
        let fencing_token = self.leader.get().map(Leader::fencing_token);
        let call =
            PendingCall { id, key, object, kind, cleanup, fencing_token, outcome_sender, requests: request_sender };
        if self.messages.send(Message::Call(call)).is_err() {
            return Err(ReconcileError("the controller was stopped".to_owned()));
        }
        let mut cancel = CancelOnDrop { messages: &self.messages, id, is_finished: false };
        let client = self.client();
        let mut in_flight = FuturesUnordered::new();
        let outcome = loop {
            tokio::select! {
                biased;
                Some(()) = in_flight.next() => {}
                Some(request) = request_receiver.recv() => in_flight.push(request.run(&client)),
                outcome = &mut outcome => break outcome,
            }
        };
        cancel.is_finished = true;
        // Requests of tasks that the function did not wait for belong to this reconcile, too.
        while in_flight.next().await.is_some() {}
        outcome.unwrap_or_else(|_| Err(ReconcileError("the reconcile function ended without a result".to_owned())))
    }

    fn client(&self) -> Client {
        match self.leader.get() {
            Some(leader) => leader.client(),
            None => self.connection.client(),
        }
    }
}

impl PendingRequest {
    /// Sends the request. A caller that no longer waits cancels it.
    async fn run(self, client: &Client) {
        let Self { request, mut response_sender } = self;
        tokio::select! {
            response = request.send(client) => drop(response_sender.send(response)),
            () = response_sender.closed() => {}
        }
    }
}

/// Reconcile that Python code runs.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Call {
    bridge: Bridge,
    /// State of the object at the start, decoded at most once.
    object: Option<Py<Object>>,
    pending: ProcessBound<PendingCall>,
}

#[pymethods]
impl Call {
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.pending.get(py)?.id)
    }

    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.pending.get(py)?.key.to_string())
    }

    #[getter]
    fn namespace(&self, py: Python<'_>) -> PyResult<Option<&str>> {
        Ok(self.pending.get(py)?.key.namespace())
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.pending.get(py)?.key.name())
    }

    /// State of the object at the start; `None` after its deletion.
    #[getter]
    fn object(&self, py: Python<'_>) -> Option<Py<Object>> {
        self.object.as_ref().map(|object| object.clone_ref(py))
    }

    /// True if the object is being deleted and its finalizer is removed after this call.
    #[getter]
    fn cleanup(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.pending.get(py)?.cleanup)
    }

    /// Fencing token of the leader's term.
    #[getter]
    fn fencing_token(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.pending.get(py)?.fencing_token)
    }

    /// Ends the reconcile: with an error, with a delay until the next one in seconds, or until a change.
    #[pyo3(signature = (requeue_after=None, error=None))]
    fn finish(&self, py: Python<'_>, requeue_after: Option<f64>, error: Option<String>) -> PyResult<()> {
        let outcome = match (error, requeue_after) {
            (Some(error), _) => Err(ReconcileError(error)),
            (None, Some(seconds)) => Ok(Action::requeue(seconds_to_duration(seconds))),
            (None, None) => Ok(Action::await_change()),
        };
        if let Some(sender) = self.pending.get(py)?.outcome_sender.lock().take() {
            // The reconcile may have timed out.
            drop(sender.send(outcome));
        }
        Ok(())
    }

    /// Sends a request that belongs to this reconcile.
    fn request(
        &self,
        py: Python<'_>,
        method: String,
        path: String,
        body: Vec<u8>,
        content_type: String,
    ) -> PyResult<Py<PyAny>> {
        let pending = self.pending.get(py)?;
        let (response_sender, response_receiver) = oneshot::channel();
        let description = format!("{method} {path}");
        let request = ApiRequest { method, path, body, content_type };
        let was_sent = pending.requests.send(PendingRequest { request, response_sender }).is_ok();
        let key = pending.key.to_string();
        let work = async move {
            match response_receiver.await {
                Ok(result) if was_sent => result,
                _ => Err(RequestError::Failed(format!("cannot {description}: the reconcile of {key} has ended"))),
            }
        };
        self.bridge.run(py, false, work, response)
    }
}
