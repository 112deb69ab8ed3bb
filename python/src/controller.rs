//! Controllers: the library queues the keys and decides when to reconcile, and Python code reconciles.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use steadfast::{FieldPath, Lazy, ObjectKey};
use steadfast_controller::{
    ChangeFilter, Controller as LibraryController, Leader, LeaderElection, RunningController, Source, StalePolicy,
    back_off,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::bridge::Bridge;
use crate::object::Cached;
use crate::path::Path;
use crate::process::ProcessBound;
use crate::reconcile::{Message, Reconciler};
use crate::session::Session;
use crate::stream::seconds_to_duration;
use crate::tree::{JsonTree, Node};
use crate::watching::{InformerHandle, Resource, RunningInformer};

/// Settings of a controller.
pub(crate) struct ControllerSettings {
    pub(crate) name: Option<String>,
    pub(crate) concurrency: usize,
    /// Seconds; `None` for no timeout.
    pub(crate) timeout: Option<f64>,
    /// Doubt of a cache, in seconds, after which reconciles pause; `None` if they never pause.
    pub(crate) pause_when_stale: Option<f64>,
    /// Changes that enqueue an object; empty for all changes.
    pub(crate) changes: Vec<RelevantChange>,
    /// Seconds between reconciles of each object without a change.
    pub(crate) resync: Option<f64>,
    pub(crate) finalizer: Option<String>,
    /// True if deleted objects are reconciled, too.
    pub(crate) reconciles_deleted: bool,
}

/// Change of an object that enqueues it.
pub(crate) enum RelevantChange {
    Generation,
    Labels,
    Annotations,
    Field(Path),
}

impl RelevantChange {
    /// Parses `generation`, `labels`, `annotations` or a path.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "generation" => Self::Generation,
            "labels" => Self::Labels,
            "annotations" => Self::Annotations,
            path => Self::Field(Path::parse(path)?),
        })
    }

    fn filter(self) -> ChangeFilter<JsonTree> {
        match self {
            Self::Generation => ChangeFilter::of_generation(),
            Self::Labels => ChangeFilter::of_labels(),
            Self::Annotations => ChangeFilter::of_annotations(),
            Self::Field(path) => ChangeFilter::of(move |tree: &JsonTree| values_at(tree, &path)),
        }
    }
}

/// Returns the values of a path in an object.
fn values_at(tree: &JsonTree, path: &Path) -> Vec<Node> {
    let mut values = Vec::new();
    if let Some(node) = path.value(&tree.root) {
        path.visit(node, &mut |node| values.push(node.clone()));
    }
    values
}

/// Informers of a controller.
pub(crate) struct ControllerInformers {
    pub(crate) objects: Arc<InformerHandle>,
    pub(crate) owned: Vec<Arc<InformerHandle>>,
    /// Further informers that reconciles read.
    pub(crate) read: Vec<Arc<InformerHandle>>,
}

/// Controller whose reconciles run in an event loop.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Controller {
    bridge: Bridge,
    inner: ProcessBound<ControllerInner>,
}

struct ControllerInner {
    messages: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Message>>>,
    state: Arc<ControllerState>,
}

/// The library's controller, from its start until its stop.
#[derive(Default)]
struct ControllerState {
    phase: Mutex<ControllerPhase>,
    /// True after the stop. Cancels a start that is in progress, and ends the messages.
    is_stopped: watch::Sender<bool>,
}

#[derive(Default)]
enum ControllerPhase {
    /// Keys that were added before the start.
    Starting(Vec<ObjectKey>),
    Running(RunningController),
    #[default]
    Stopped,
}

impl Controller {
    /// Starts the controller after the discovery of all its resources, and after the election.
    pub(crate) fn start(
        py: Python<'_>,
        bridge: Bridge,
        session: Arc<Session>,
        informers: ControllerInformers,
        election: Option<LeaderElection>,
        settings: ControllerSettings,
    ) -> PyResult<Self> {
        let runtime = bridge.handle(py)?;
        let ControllerInformers { objects, owned, read } = informers;
        let (sender, messages) = mpsc::unbounded_channel();
        let state = Arc::new(ControllerState {
            phase: Mutex::new(ControllerPhase::Starting(Vec::new())),
            ..ControllerState::default()
        });
        let run = {
            let state = state.clone();
            async move {
                let Some(running_objects) = objects.until_running().await else { return };
                let Some(owned) = all_running(&owned).await else { return };
                let Some(read) = all_running(&read).await else { return };
                let leader = Arc::new(OnceLock::new());
                let leadership =
                    election.map(|election| until_leader(election, leader.clone(), sender.clone(), Handle::current()));
                let reconciler = Arc::new(Reconciler {
                    objects: running_objects.clone(),
                    connection: session.connection.clone(),
                    leader,
                    finalizer: settings.finalizer.clone(),
                    reconciles_deleted: settings.reconciles_deleted,
                    messages: sender.clone(),
                    calls: AtomicU64::new(0),
                });
                let mut controller = build_controller(&session, &running_objects, &owned, &read, settings);
                if let Some(leadership) = leadership {
                    controller = controller.start_after(leadership);
                }
                let reconcile = |key, reconciler: Arc<Reconciler>| async move { reconciler.reconcile(key).await };
                match controller.run_by_key(reconcile, back_off, reconciler) {
                    Ok(controller) => state.set_running(controller),
                    Err(error) => drop(sender.send(Message::Failed(error.to_string()))),
                }
            }
        };
        let mut is_stopped = state.is_stopped.subscribe();
        runtime.spawn(async move {
            let until_stopped = async { drop(is_stopped.wait_for(|is_stopped| *is_stopped).await) };
            tokio::select! {
                biased;
                () = until_stopped => {}
                () = run => {}
            }
        });
        let messages = Arc::new(tokio::sync::Mutex::new(messages));
        Ok(Self { bridge, inner: ProcessBound::new(ControllerInner { messages, state }) })
    }
}

impl ControllerState {
    fn set_running(&self, controller: RunningController) {
        let mut phase = self.phase.lock();
        if let ControllerPhase::Starting(keys) = &mut *phase {
            for key in std::mem::take(keys) {
                controller.queue().add(key);
            }
            *phase = ControllerPhase::Running(controller);
        }
    }
}

/// Waits until all informers have started. Returns `None` if one has ended.
async fn all_running(informers: &[Arc<InformerHandle>]) -> Option<Vec<Arc<RunningInformer>>> {
    let mut running_informers = Vec::new();
    for informer_handle in informers {
        running_informers.push(informer_handle.until_running().await?);
    }
    Some(running_informers)
}

/// Waits for a term, and reports its end.
async fn until_leader(
    election: LeaderElection,
    leader: Arc<OnceLock<Leader>>,
    messages: mpsc::UnboundedSender<Message>,
    runtime: Handle,
) {
    let Some(term) = election.until_leader().await else { return std::future::pending().await };
    let term = leader.get_or_init(|| term).clone();
    // The term is watched for as long as Python reads the messages.
    runtime.spawn(async move {
        tokio::select! {
            () = term.until_lost() => drop(messages.send(Message::TermEnded)),
            () = messages.closed() => {}
        }
    });
}

fn build_controller(
    session: &Session,
    objects: &RunningInformer,
    owned: &[Arc<RunningInformer>],
    read: &[Arc<RunningInformer>],
    settings: ControllerSettings,
) -> LibraryController<Lazy<JsonTree>> {
    let resource = objects.resource();
    let mut source = Source::from(objects.informer.clone());
    if let Some(changes) = settings.changes.into_iter().map(RelevantChange::filter).reduce(ChangeFilter::or) {
        source = source.filter_changes(changes);
    }
    if let Some(seconds) = settings.resync {
        source = source.resync(seconds_to_duration(seconds));
    }
    let mut controller = LibraryController::new_with(&session.factory, resource.served.api_resource.clone(), source)
        .concurrency(settings.concurrency)
        .timeout(settings.timeout.map(seconds_to_duration))
        .stale_policy(match settings.pause_when_stale {
            Some(seconds) => StalePolicy::pause_after(seconds_to_duration(seconds)),
            None => StalePolicy::never_pause(),
        });
    if let Some(name) = settings.name {
        controller = controller.name(name);
    }
    for owned in owned {
        let resource = resource.clone();
        controller = controller.watches(owned.informer.clone(), move |child: &Cached| owner_keys(child, &resource));
        controller = controller.reads(&owned.informer);
    }
    for read in read {
        controller = controller.reads(&read.informer);
    }
    controller
}

/// Returns the keys of the owners of an object among the objects of `resource`, in any version.
fn owner_keys(child: &Cached, resource: &Resource) -> Vec<ObjectKey> {
    let references = child.read::<Vec<OwnerReference>>(&FieldPath::new("metadata").then("ownerReferences"));
    // The owner of an undecodable child is unknown. The next state of the child that can be decoded enqueues it.
    let references = references.ok().flatten().unwrap_or_default();
    let owner_references = references.into_iter().filter(|reference| {
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        reference.kind == resource.served.api_resource.kind && group == resource.served.api_resource.group
    });
    let key = |name: &str| match child.key().namespace().filter(|_| resource.served.namespaced) {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    };
    owner_references.map(|reference| key(&reference.name)).collect()
}

#[pymethods]
impl Controller {
    /// Waits for the next message. Returns `None` after the stop.
    fn next(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let inner = self.inner.get(py)?;
        let (messages, bridge) = (inner.messages.clone(), self.bridge.clone());
        let mut is_stopped = inner.state.is_stopped.subscribe();
        let work = async move {
            let mut messages = messages.lock().await;
            let until_stopped = async { drop(is_stopped.wait_for(|is_stopped| *is_stopped).await) };
            tokio::select! {
                biased;
                message = messages.recv() => message,
                () = until_stopped => None,
            }
        };
        self.bridge.run(py, false, work, |py, message| match message {
            Some(message) => message.into_python(py, bridge),
            None => Ok(py.None()),
        })
    }

    /// Enqueues a key.
    fn enqueue(&self, py: Python<'_>, namespace: Option<&str>, name: &str) -> PyResult<()> {
        let key =
            namespace.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name));
        match &mut *self.inner.get(py)?.state.phase.lock() {
            ControllerPhase::Starting(keys) => keys.push(key),
            ControllerPhase::Running(controller) => controller.queue().add(key),
            ControllerPhase::Stopped => {}
        }
        Ok(())
    }

    /// Counters and current state; `None` before the start and after the stop.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (stats, queued) = match &*self.inner.get(py)?.state.phase.lock() {
            ControllerPhase::Running(controller) => (controller.stats(), controller.queue().len()),
            ControllerPhase::Starting(_) | ControllerPhase::Stopped => return Ok(None),
        };
        let counters = PyDict::new(py);
        counters.set_item("succeeded", stats.succeeded)?;
        counters.set_item("requeued", stats.requeued)?;
        counters.set_item("failed", stats.failed)?;
        counters.set_item("timed_out", stats.timed_out)?;
        counters.set_item("running", stats.running)?;
        counters.set_item("queued", queued)?;
        counters.set_item("waiting_for_writes", stats.waiting_for_writes)?;
        counters.set_item("paused", stats.paused)?;
        Ok(Some(counters))
    }

    /// Starts no further reconcile, waits at most `timeout` seconds for the running ones, and cancels the rest. Returns
    /// the number of cancelled reconciles.
    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<Py<PyAny>> {
        let state = self.inner.get(py)?.state.clone();
        let work = async move {
            let phase = std::mem::take(&mut *state.phase.lock());
            let cancelled = match phase {
                ControllerPhase::Running(controller) => controller.stop(seconds_to_duration(timeout)).await.cancelled,
                ControllerPhase::Starting(_) | ControllerPhase::Stopped => 0,
            };
            // Set after `stop`, so that the event loop still receives the cancellations of running reconciles.
            state.is_stopped.send_replace(true);
            cancelled
        };
        self.bridge.run(py, false, work, |py, cancelled| cancelled.into_py_any(py))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let (Some(inner), Some(runtime)) = (self.inner.get_own(), self.bridge.own_handle()) else { return };
        // Dropping the library's controller cancels its reconciles.
        let phase = std::mem::take(&mut *inner.state.phase.lock());
        inner.state.is_stopped.send_replace(true);
        runtime.spawn(async move { drop(phase) });
    }
}
