//! Queue of objects to reconcile, timers, and retries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use super::kind::Kind;
use super::options::World;
use super::plan::Plan;
use super::pods::Kubelet;
use super::view::{Key, View, owner_uid, owners};
use super::{daemon_sets, deployments, endpoint_slices, garbage, jobs, nodes, replica_sets, stateful_sets};
use crate::cluster::Cluster;
use crate::metadata;
use crate::storage::Change;

/// Delay of the first retry after a rejected write. It doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Maximum delay of a retry.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// All controllers.
pub(super) struct Machine {
    view: View,
    kubelet: Kubelet,
    /// Number of recorded changes, since the server's start, that the view already contains.
    observed: usize,
    epoch: u32,
    queue: VecDeque<Key>,
    queued: HashSet<Key>,
    timers: BTreeSet<(Duration, Key)>,
    timer_of: HashMap<Key, Duration>,
    failures: BTreeMap<Key, u32>,
}

impl Machine {
    pub(super) fn new(cluster: &Cluster, world: World) -> Self {
        nodes::create(cluster, world.nodes);
        let resource = Kind::Pod.resource();
        let kubelet = cluster.store.read(|state| {
            let pods = state.live(&resource, None);
            Kubelet::new(world, pods.filter_map(|(_, change)| change.object.as_deref()))
        });
        Self {
            view: View::default(),
            kubelet,
            observed: 0,
            epoch: 0,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            timers: BTreeSet::new(),
            timer_of: HashMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Reads the changes since the last call, and enqueues the objects that they concern.
    pub(super) fn observe(&mut self, cluster: &Cluster) {
        let (epoch, changes) =
            cluster.store.read(|state| (state.epoch(), state.recorded_since(self.observed).map(<[_]>::to_vec)));
        let Some(changes) = changes.filter(|_| epoch == self.epoch) else {
            self.epoch = epoch;
            self.rebuild(cluster);
            return;
        };
        self.observed += changes.len();
        for change in &changes {
            self.observe_change(change);
        }
    }

    /// Reads all objects again. This is required after a restore, which records no changes for the restored states. It
    /// is also required if changes were removed from the history before they were observed.
    fn rebuild(&mut self, cluster: &Cluster) {
        self.view.clear();
        // Times of the abandoned history do not apply to the restored states. A pod that starts again, for example,
        // must not wait for its exit. All objects are enqueued below, and set their timers again.
        self.kubelet.clear();
        self.timers.clear();
        self.timer_of.clear();
        self.failures.clear();
        let (live, observed) = cluster.store.read(|state| {
            let resources: Vec<_> = state.resources().cloned().collect();
            let mut live = Vec::new();
            for resource in resources {
                live.extend(state.live(&resource, None).map(|(_, change)| Arc::clone(change)));
            }
            (live, state.recorded_count())
        });
        self.observed = observed;
        for change in &live {
            self.view.set(&key_of(change), change.object.clone());
        }
        let keys: Vec<Key> = self.view.keys().cloned().collect();
        for key in keys {
            self.enqueue(key);
        }
    }

    fn observe_change(&mut self, change: &Change) {
        let key = key_of(change);
        let previous = self.view.set(&key, change.object.clone());
        for object in [previous.as_ref(), change.object.as_ref()].into_iter().flatten() {
            self.enqueue_related(&key, object);
        }
        if change.object.is_none() {
            self.kubelet.forget(&change.uid);
            self.failures.remove(&key);
            self.stop_timer(&key);
        }
        self.enqueue(key);
    }

    /// Enqueues the owners and dependents of an object, and the objects that read it without a reference.
    fn enqueue_related(&mut self, key: &Key, object: &Arc<Value>) {
        let mut related: Vec<Key> = owners(object)
            .filter_map(|owner| self.view.by_uid(owner_uid(owner)))
            .map(|(owner, _)| owner.clone())
            .collect();
        // The deletion of an owner concerns its dependents.
        let is_ending = metadata::is_terminating(object) || self.view.get(key).is_none();
        if is_ending {
            related.extend(self.view.dependents(metadata::text(object, "uid")).map(|(key, _)| key.clone()));
        }
        match key.kind() {
            Some(Kind::Pod) => {
                related.extend(self.view.in_namespace(Kind::Service, &key.namespace).map(|(key, _)| key.clone()));
                // A pod without an owner may be adopted.
                if owners(object).next().is_none() {
                    related
                        .extend(self.view.in_namespace(Kind::ReplicaSet, &key.namespace).map(|(key, _)| key.clone()));
                }
            }
            Some(Kind::Node) => {
                related.extend(self.view.all(Kind::Pod).map(|(key, _)| key.clone()));
                related.extend(self.view.all(Kind::DaemonSet).map(|(key, _)| key.clone()));
            }
            _ => {}
        }
        for key in related {
            self.enqueue(key);
        }
    }

    fn enqueue(&mut self, key: Key) {
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    /// Reconciles the next object of the queue. Returns false if the queue is empty.
    pub(super) fn reconcile_next(&mut self, cluster: &Cluster) -> bool {
        let now = cluster.clock.elapsed();
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.timers.pop_first() else { break };
            self.timer_of.remove(&key);
            self.enqueue(key);
        }
        let Some(key) = self.queue.pop_front() else { return false };
        self.queued.remove(&key);
        let Some(object) = self.view.get(&key).cloned() else { return true };
        let context = Context { view: &self.view, clock: cluster.clock, now };
        let mut plan = Plan::default();
        // An object that the garbage collector deletes is no longer reconciled.
        if !garbage::collect(&context, &key, &object, &mut plan) {
            reconcile_kind(&mut self.kubelet, &context, &key, &object, &mut plan);
        }
        self.execute(cluster, &key, plan, now);
        true
    }

    fn execute(&mut self, cluster: &Cluster, key: &Key, plan: Plan, now: Duration) {
        self.stop_timer(key);
        let mut again_at = plan.again_at;
        let mut failed = None;
        for write in plan.writes {
            if let Err(status) = write.apply(cluster) {
                failed = Some(status);
                break;
            }
        }
        if let Some(status) = failed {
            let failures = self.failures.entry(key.clone()).or_default();
            let delay = (FIRST_RETRY * 2_u32.saturating_pow(*failures)).min(MAX_RETRY);
            // Capped, so that the power above stays small.
            *failures = (*failures + 1).min(10);
            tracing::warn!(resource = %key.resource, namespace = key.namespace, name = key.name, %status,
                "a simulated controller's write was rejected; it is repeated in {delay:?}");
            again_at = Some(now + delay);
        } else {
            self.failures.remove(key);
        }
        if let Some(due) = again_at {
            self.timers.insert((due, key.clone()));
            self.timer_of.insert(key.clone(), due);
        }
    }

    fn stop_timer(&mut self, key: &Key) {
        if let Some((key, due)) = self.timer_of.remove_entry(key) {
            self.timers.remove(&(due, key));
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the time of the next timer.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }
}

/// Runs the controller of the object's kind.
fn reconcile_kind(kubelet: &mut Kubelet, context: &Context<'_>, key: &Key, object: &Value, plan: &mut Plan) {
    match key.kind() {
        Some(Kind::Pod) => kubelet.reconcile(context, key, object, plan),
        Some(Kind::DaemonSet) => daemon_sets::reconcile(context, key, object, plan),
        Some(Kind::Deployment) => deployments::reconcile(context, key, object, plan),
        Some(Kind::Job) => jobs::reconcile(context, key, object, plan),
        Some(Kind::ReplicaSet) => replica_sets::reconcile(context, key, object, plan),
        Some(Kind::Service) => endpoint_slices::reconcile(context, key, object, plan),
        Some(Kind::StatefulSet) => stateful_sets::reconcile(context, key, object, plan),
        Some(Kind::EndpointSlice | Kind::Node | Kind::PersistentVolumeClaim) | None => {}
    }
}

fn key_of(change: &Change) -> Key {
    Key {
        resource: change.resource.clone(),
        namespace: change.namespace.clone().unwrap_or_default(),
        name: change.name.clone(),
    }
}
