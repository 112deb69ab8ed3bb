//! Pods with the life cycle of a Deployment.

use std::time::Duration;

use super::fixture::{Fixture, PodId, SHOP};

/// A Deployment with `maxSurge` 1 and `maxUnavailable` 0.
#[derive(Debug)]
pub(crate) struct Deployment {
    cluster: usize,
    name: &'static str,
    pub(crate) pods: Vec<PodId>,
    /// Number of pods created so far, used in the next name.
    pod_count: usize,
    /// Time from the creation of a pod until it is ready.
    pub(crate) startup: Duration,
    /// Time from the deletion of a pod until its container stops.
    pub(crate) grace: Duration,
}

impl Deployment {
    /// Creates `replicas` ready pods in [`SHOP`].
    pub(crate) fn create(fixture: &mut Fixture, cluster: usize, name: &'static str, replicas: usize) -> Self {
        let (startup, grace) = (Duration::from_millis(300), Duration::from_millis(1500));
        let mut deployment = Self { cluster, name, pods: Vec::new(), pod_count: 0, startup, grace };
        for _ in 0..replicas {
            let pod = deployment.start_pod(fixture);
            fixture.set_ready(&pod, true);
        }
        deployment
    }

    fn start_pod(&mut self, fixture: &mut Fixture) -> PodId {
        let pod = fixture.create(self.cluster, SHOP, &format!("{}-{}", self.name, self.pod_count));
        self.pod_count += 1;
        self.pods.push(pod.clone());
        pod
    }

    /// Creates one pod and waits for its readiness.
    pub(crate) fn add_pod(&mut self, fixture: &mut Fixture) {
        let pod = self.start_pod(fixture);
        fixture.sleep(self.startup);
        fixture.set_ready(&pod, true);
    }

    /// Replaces all pods one by one: creates a pod, waits for its readiness, deletes an old pod.
    pub(crate) fn replace_pods(&mut self, fixture: &mut Fixture) {
        self.replace_pods_with(fixture, |_, _| {});
    }

    /// Like [`replace_pods`](Self::replace_pods), but calls `after_step` with the number of replaced pods after each step.
    pub(crate) fn replace_pods_with(&mut self, fixture: &mut Fixture, mut after_step: impl FnMut(&mut Fixture, usize)) {
        fixture.log_event(&format!("a rolling update of {} pods of {} starts", self.pods.len(), self.name));
        for (step, old) in self.pods.clone().into_iter().enumerate() {
            self.add_pod(fixture);
            fixture.delete(&old, self.grace);
            self.pods.retain(|pod| *pod != old);
            after_step(fixture, step + 1);
        }
        fixture.log_event("the rolling update ends");
    }

    /// Deletes pods until `replicas` remain.
    pub(crate) fn scale_down(&mut self, fixture: &mut Fixture, replicas: usize) {
        fixture.log_event(&format!("{} scales from {} to {replicas} pods", self.name, self.pods.len()));
        for pod in self.pods.drain(replicas..) {
            fixture.delete(&pod, self.grace);
        }
    }

    /// Replaces all pods like a `StatefulSet`: each new pod keeps the name and changes the address.
    pub(crate) fn restart_pods_in_place(&mut self, fixture: &mut Fixture) {
        fixture.log_event(&format!("a rolling update of the StatefulSet {} starts", self.name));
        for pod in self.pods.clone() {
            fixture.delete(&pod, self.grace);
            fixture.sleep(self.grace + Duration::from_millis(50));
            let name = pod.rsplit('/').next().unwrap_or_default();
            fixture.create(self.cluster, SHOP, name);
            fixture.sleep(self.startup);
            fixture.set_ready(&pod, true);
        }
    }

    /// Crashes a pod. After `detection`, the control plane notices the crash, and another pod replaces the crashed pod.
    pub(crate) fn replace_crashed(&mut self, fixture: &mut Fixture, detection: Duration) {
        let crashed_pod = self.pods.remove(0);
        fixture.crash(&crashed_pod);
        fixture.sleep(detection);
        fixture.set_ready(&crashed_pod, false);
        self.add_pod(fixture);
        fixture.remove(&crashed_pod);
    }
}
