//! Checks the reconciles of a controller against the server's own history.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Resource;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use steadfast::{Cacheable, Informer, ObjectKey};
use steadfast_apiserver::{ApiServer, Change};

use crate::TestkitError;

/// Maximum number of violations in the message.
const MAX_REPORTED_VIOLATIONS: usize = 10;

/// Observes the reconciles of a controller, and checks at the end that the controller met these guarantees:
///
/// - no two concurrent reconciles of one key;
/// - no reconcile uses a cache that lacks writes of earlier reconciles of the same key, to the object of the key or to
///   an object that it owns;
/// - each change is followed by a reconcile that started after the change;
/// - no reconcile starts after the controller was stopped.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use steadfast::{InformerFactory, Scope};
/// use steadfast_apiserver::ApiServer;
/// use steadfast_controller::{Action, Controller, back_off};
/// use steadfast_testing::{ReconcileChecker, InMemory, TestError, config_map};
///
/// async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///     Ok(Action::await_change())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), TestError> {
/// let server = Arc::new(ApiServer::builder().in_memory().start().await?);
/// let informers = InformerFactory::new(&InMemory::default().connection(&server).await?);
/// let checker = ReconcileChecker::of(&server, "configmaps");
/// let controller =
///     Controller::<ConfigMap>::new(&informers, Scope::all()).run(checker.wrap(reconcile), back_off, Arc::new(()))?;
///
/// server.create(&config_map("a", "1"))?;
/// tokio::time::sleep(Duration::from_secs(1)).await;
/// controller.stop(Duration::from_secs(1)).await;
/// checker.stopped();
/// assert_eq!(checker.check()?.reconciles, 1);
/// # Ok(())
/// # }
/// ```
///
/// A write belongs to a reconcile if a request wrote the object of the reconcile, or an object that this object owns,
/// while the reconcile ran. Other writers in a test should use the methods of [`ApiServer`]. These methods bypass the
/// API, so their writes belong to no reconcile. A server that was [restored](steadfast_apiserver::Faults::restore)
/// issues the same version twice, so this checker cannot check it.
#[derive(Clone)]
pub struct ReconcileChecker {
    inner: Arc<Inner>,
}

struct Inner {
    server: Arc<ApiServer>,
    plural: String,
    follows: Box<dyn Fn(&Change) -> bool + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: Vec<ReconcileRun>,
    read_caches: Vec<ReadCache>,
    /// Revision of the server when the controller was stopped.
    stop_revision: Option<u64>,
    violations: Vec<String>,
}

/// Cache that the reconciles read.
#[derive(Clone)]
struct ReadCache {
    plural: String,
    version: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
}

/// One reconcile.
struct ReconcileRun {
    key: Key,
    /// True if the argument is a key. The object of the key may be missing.
    is_by_key: bool,
    /// Version of the object that was passed to the reconcile.
    version: Option<u64>,
    /// Version of each cache that the reconcile reads, at the start of the reconcile.
    read_caches: Vec<(String, Option<u64>)>,
    /// Revision of the server at the start and at the end of the reconcile.
    start_revision: u64,
    end_revision: Option<u64>,
}

type Key = (Option<String>, String);

/// Counts of a check that found no violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconcileStats {
    /// Number of reconciles.
    pub reconciles: usize,
    /// Number of writes by a reconcile that a later reconcile of the same key could read.
    pub writes: usize,
    /// Number of objects whose last change required a reconcile.
    pub changed_objects: usize,
}

/// Argument of a reconcile: an object, or a key.
pub trait ReconcileArgument: sealed::ReconcileArgument {}

impl<S: sealed::ReconcileArgument> ReconcileArgument for S {}

mod sealed {
    use super::Key;

    pub trait ReconcileArgument {
        /// True if the argument is a key. The object of the key may be missing.
        const BY_KEY: bool;
        fn key(&self) -> Key;
        fn version(&self) -> Option<u64>;
    }
}

impl<K: Resource> sealed::ReconcileArgument for Arc<K> {
    const BY_KEY: bool = false;

    fn key(&self) -> Key {
        let meta = self.meta();
        (meta.namespace.clone(), meta.name.clone().unwrap_or_default())
    }

    fn version(&self) -> Option<u64> {
        self.meta().resource_version.as_ref()?.parse().ok()
    }
}

impl sealed::ReconcileArgument for ObjectKey {
    const BY_KEY: bool = true;

    fn key(&self) -> Key {
        (self.namespace().map(str::to_owned), self.name().to_owned())
    }

    fn version(&self) -> Option<u64> {
        None
    }
}

impl ReconcileChecker {
    /// Observes a controller of the resource `plural` on `server`.
    pub fn of(server: &Arc<ApiServer>, plural: &str) -> Self {
        Self::with_predicate(server, plural, |_| true)
    }

    /// Observes a controller that reconciles only after the changes that `follows` accepts. For example, a controller
    /// may follow only changes in one namespace, of objects with a label, or of the generation.
    pub fn with_predicate(
        server: &Arc<ApiServer>,
        plural: &str,
        follows: impl Fn(&Change) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (server, plural, follows) = (server.clone(), plural.to_owned(), Box::new(follows));
        Self { inner: Arc::new(Inner { server, plural, follows, state: Mutex::default() }) }
    }

    /// Registers a cache of the resource `plural` that the reconciles read. The cache must contain the earlier writes
    /// of a key. A cache that is registered after the first reconcile counts from then on.
    pub fn reads<K: Cacheable>(&self, plural: &str, informer: &Informer<K>) {
        let informer = informer.clone();
        // Versions are opaque to clients. The embedded server uses numbers, so that a test may compare them.
        let version = move || informer.snapshot().version().and_then(|version| version.as_str().parse().ok());
        self.inner.lock().read_caches.push(ReadCache { plural: plural.to_owned(), version: Arc::new(version) });
    }

    /// Wraps the reconcile function so that each call is observed.
    pub fn wrap<S, C, F, R>(
        &self,
        reconcile: F,
    ) -> impl Fn(S, C) -> BoxFuture<'static, R::Output> + Send + Sync + 'static
    where
        S: ReconcileArgument + Send + 'static,
        C: Send + 'static,
        F: Fn(S, C) -> R + Send + Sync + 'static,
        R: Future + Send + 'static,
    {
        let inner = self.inner.clone();
        move |argument, context| {
            // Registered synchronously: the start counts from the call, not from the first poll of the future.
            let running_reconcile = RunningReconcile::start(&inner, &argument);
            let call = reconcile(argument, context);
            Box::pin(async move {
                let _running_reconcile = running_reconcile;
                call.await
            })
        }
    }

    /// Marks the controller as stopped. No reconcile may start from here on, and later changes need none.
    pub fn stopped(&self) {
        // The revision is read before the lock is taken. A reconcile that starts in between counts as started before
        // the stop.
        let revision = self.inner.server.revision();
        self.inner.lock().stop_revision = Some(revision);
    }

    /// Returns the counts of the check.
    ///
    /// # Errors
    ///
    /// Returns an error that lists each violation. Also returns an error if no reconcile ran, because then nothing
    /// was checked.
    pub fn check(&self) -> Result<ReconcileStats, TestkitError> {
        let state = self.inner.lock();
        if state.runs.is_empty() {
            return Err("no reconcile ran, so nothing was checked".into());
        }
        let mut violations = state.violations.clone();
        let history = self.inner.server.history();
        let writes = self.check_own_writes(&state.runs, &history.changes, &mut violations);
        let final_revision = state.stop_revision.unwrap_or(history.revision);
        let changed_objects = self.check_changes(&state.runs, &history.changes, final_revision, &mut violations);
        if violations.is_empty() {
            return Ok(ReconcileStats { reconciles: state.runs.len(), writes, changed_objects });
        }
        let omitted = violations.len().saturating_sub(MAX_REPORTED_VIOLATIONS);
        violations.truncate(MAX_REPORTED_VIOLATIONS);
        let omitted = if omitted > 0 { format!("; and {omitted} more") } else { String::new() };
        Err(format!("{}{omitted}", violations.join("; ")).into())
    }

    /// Checks that each reconcile could read the earlier writes of its key. Returns the number of writes that a later
    /// reconcile could read.
    fn check_own_writes(&self, runs: &[ReconcileRun], changes: &[Arc<Change>], violations: &mut Vec<String>) -> usize {
        let mut seen_writes = BTreeSet::new();
        let mut writes_by_key = BTreeMap::<&Key, Vec<&Change>>::new();
        for run in runs {
            let own_writes = writes_by_key.entry(&run.key).or_default();
            for change in own_writes.iter() {
                // A cache without a version has received nothing, and lacks every write.
                let lacks = |version: &Option<u64>| version.is_none_or(|version| version < change.revision);
                let is_argument = self.is_of(change, &run.key) && !run.is_by_key;
                let read_caches = run.read_caches.iter().filter(|(plural, _)| plural == change.resource.resource());
                // Only caches of the written resource count. A reconcile need not have read the others.
                let read_caches: Vec<_> = read_caches.map(|(_, version)| version).collect();
                if is_argument && lacks(&run.version) {
                    violations.push(format!(
                        "{} was reconciled with an object older than its own earlier write: {}",
                        key_text(&run.key),
                        describe(change)
                    ));
                } else if read_caches.iter().any(|version| lacks(version)) {
                    violations.push(format!(
                        "{} was reconciled while a cache lacked its own earlier write: {}",
                        key_text(&run.key),
                        describe(change)
                    ));
                } else if is_argument || !read_caches.is_empty() {
                    seen_writes.insert(change.revision);
                }
            }
            // A write counts if it happened while the reconcile ran. Requests of other clients during this time count
            // as well.
            let is_within_run = |change: &&Arc<Change>| {
                change.request.is_some()
                    && change.revision > run.start_revision
                    && run.end_revision.is_none_or(|end_revision| change.revision <= end_revision)
            };
            // The reconcile handles the object that existed at its start. The UID distinguishes this object from an
            // earlier object of the same name.
            let owner =
                changes.iter().rfind(|change| self.is_of(change, &run.key) && change.revision <= run.start_revision);
            for change in changes.iter().filter(is_within_run) {
                let is_own = self.is_of(change, &run.key) || owner.is_some_and(|owner| owns(&owner.uid, change));
                // The next object under this name has another UID. Its reconciles need not see this deletion.
                if self.is_of(change, &run.key) && change.object.is_none() {
                    own_writes.clear();
                }
                if is_own {
                    own_writes.push(change);
                }
            }
        }
        seen_writes.len()
    }

    /// Checks that a reconcile follows the last change of each object up to `final_revision`. Returns the number of
    /// checked objects.
    fn check_changes(
        &self,
        runs: &[ReconcileRun],
        changes: &[Arc<Change>],
        final_revision: u64,
        violations: &mut Vec<String>,
    ) -> usize {
        let mut last_changes = BTreeMap::<Key, &Change>::new();
        for change in changes.iter().filter(|change| change.revision <= final_revision) {
            if change.resource.resource() == self.inner.plural {
                let key = key_of_change(change);
                if change.object.is_none() {
                    // If an object was created and immediately deleted, possibly no cache has seen it. Then no
                    // reconcile is needed.
                    let was_reconciled = runs.iter().any(|run| run.is_by_key && run.key == key);
                    if was_reconciled {
                        last_changes.insert(key, change)
                    } else {
                        last_changes.remove(&key)
                    };
                } else if (self.inner.follows)(change) {
                    last_changes.insert(key, change);
                }
            }
        }
        for (key, change) in &last_changes {
            let is_reconciled_by = |run: &ReconcileRun| {
                // A reconcile by key reads the cache itself, so only its start time matters.
                let has_seen = run.is_by_key || run.version.is_none_or(|version| version >= change.revision);
                run.key == *key && run.start_revision >= change.revision && has_seen
            };
            if !runs.iter().any(is_reconciled_by) {
                violations.push(format!("{} was not reconciled after: {}", key_text(key), describe(change)));
            }
        }
        last_changes.len()
    }

    /// Returns `true` if the change belongs to the object of this key.
    fn is_of(&self, change: &Change, (namespace, name): &Key) -> bool {
        change.resource.resource() == self.inner.plural && change.namespace == *namespace && change.name == *name
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Reconcile in progress. It ends when this guard is dropped, even by a panic or a cancellation.
struct RunningReconcile {
    inner: Arc<Inner>,
    number: usize,
}

impl RunningReconcile {
    fn start<S: ReconcileArgument>(inner: &Arc<Inner>, argument: &S) -> Self {
        let read_caches = inner.lock().read_caches.clone();
        let read_caches = read_caches.into_iter().map(|cache| (cache.plural, (cache.version)())).collect();
        let start_revision = inner.server.revision();
        let run = ReconcileRun {
            key: argument.key(),
            is_by_key: S::BY_KEY,
            version: argument.version(),
            read_caches,
            start_revision,
            end_revision: None,
        };
        let mut state = inner.lock();
        if state.stop_revision.is_some() {
            state.violations.push(format!("{} was reconciled after the controller was stopped", key_text(&run.key)));
        }
        // The check and the registration share one lock, so that two concurrent starts cannot miss each other.
        if state.runs.iter().any(|other| other.end_revision.is_none() && other.key == run.key) {
            state.violations.push(format!("{} was reconciled concurrently", key_text(&run.key)));
        }
        state.runs.push(run);
        Self { inner: inner.clone(), number: state.runs.len() - 1 }
    }
}

impl Drop for RunningReconcile {
    fn drop(&mut self) {
        // The revision is read outside of the lock. A later revision only extends the recorded time of the reconcile.
        let revision = self.inner.server.revision();
        self.inner.lock().runs[self.number].end_revision = Some(revision);
    }
}

/// Returns `true` if the object with this UID owns the changed object: after the change, or before a deletion.
fn owns(uid: &str, change: &Change) -> bool {
    // A deleted object has no state, so its previous state names the owner.
    let object = change.object.as_deref().or(change.previous.as_deref());
    let owners = object.and_then(|object| object.pointer("/metadata/ownerReferences")).and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid)))
}

fn key_of_change(change: &Change) -> Key {
    (change.namespace.clone(), change.name.clone())
}

fn key_text((namespace, name): &Key) -> String {
    namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Describes a change in a message.
fn describe(change: &Change) -> String {
    let verb = match (&change.previous, &change.object) {
        (None, _) => "was created",
        (_, None) => "was deleted",
        _ => "was written",
    };
    format!("{} {} {verb} in version {}", change.resource, key_text(&key_of_change(change)), change.revision)
}

impl fmt::Debug for ReconcileChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.inner.lock().runs.len();
        f.debug_struct("ReconcileChecker").field("of", &self.inner.plural).field("runs", &runs).finish()
    }
}
