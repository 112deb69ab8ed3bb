//! Pods with the life cycle of a Deployment.

use std::time::Duration;

use super::world::{PodId, SHOP, World};

/// A Deployment with `maxSurge` 1 and `maxUnavailable` 0.
#[derive(Debug)]
pub(crate) struct Deployment {
    cluster: usize,
    name: &'static str,
    pub(crate) pods: Vec<PodId>,
    /// Number of pods created so far, used in the next name.
    created: usize,
    /// Time from the creation of a pod until it is ready.
    pub(crate) startup: Duration,
    /// Time from the deletion of a pod until its container stops.
    pub(crate) grace: Duration,
}

impl Deployment {
    /// Creates `replicas` ready pods in [`SHOP`].
    pub(crate) fn create(world: &mut World, cluster: usize, name: &'static str, replicas: usize) -> Self {
        let (startup, grace) = (Duration::from_millis(300), Duration::from_millis(1500));
        let mut deployment = Self { cluster, name, pods: Vec::new(), created: 0, startup, grace };
        for _ in 0..replicas {
            let pod = deployment.start_pod(world);
            world.set_ready(&pod, true);
        }
        deployment
    }

    fn start_pod(&mut self, world: &mut World) -> PodId {
        let pod = world.create(self.cluster, SHOP, &format!("{}-{}", self.name, self.created));
        self.created += 1;
        self.pods.push(pod.clone());
        pod
    }

    /// Creates one pod and waits for its readiness.
    pub(crate) fn add(&mut self, world: &mut World) {
        let pod = self.start_pod(world);
        world.sleep(self.startup);
        world.set_ready(&pod, true);
    }

    /// Replaces all pods one by one: creates a pod, waits for its readiness, deletes an old pod.
    pub(crate) fn roll(&mut self, world: &mut World) {
        self.roll_with(world, |_, _| {});
    }

    /// Like [`roll`](Self::roll), but calls `after_step` with the number of replaced pods after each step.
    pub(crate) fn roll_with(&mut self, world: &mut World, mut after_step: impl FnMut(&mut World, usize)) {
        world.note(&format!("a rolling update of {} pods of {} starts", self.pods.len(), self.name));
        for (step, old) in self.pods.clone().into_iter().enumerate() {
            self.add(world);
            world.delete(&old, self.grace);
            self.pods.retain(|pod| *pod != old);
            after_step(world, step + 1);
        }
        world.note("the rolling update ends");
    }

    /// Deletes pods until `replicas` remain.
    pub(crate) fn scale_down(&mut self, world: &mut World, replicas: usize) {
        world.note(&format!("{} scales from {} to {replicas} pods", self.name, self.pods.len()));
        for pod in self.pods.drain(replicas..) {
            world.delete(&pod, self.grace);
        }
    }

    /// Replaces all pods like a `StatefulSet`: each new pod keeps the name and changes the address.
    pub(crate) fn roll_in_place(&mut self, world: &mut World) {
        world.note(&format!("a rolling update of the StatefulSet {} starts", self.name));
        for pod in self.pods.clone() {
            world.delete(&pod, self.grace);
            world.sleep(self.grace + Duration::from_millis(50));
            let name = pod.rsplit('/').next().unwrap_or_default();
            world.create(self.cluster, SHOP, name);
            world.sleep(self.startup);
            world.set_ready(&pod, true);
        }
    }

    /// Crashes a pod. After `detection`, the control plane notices the crash, and another pod replaces the crashed pod.
    pub(crate) fn replace_crashed(&mut self, world: &mut World, detection: Duration) {
        let lost = self.pods.remove(0);
        world.crash(&lost);
        world.sleep(detection);
        world.set_ready(&lost, false);
        self.add(world);
        world.remove(&lost);
    }
}
