//! Simulated workloads of `--embedded`: deployments that replace their pods one step at a time, without end.

use std::time::Duration;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use steadfast::Connection;
use steadfast_apiserver::{ApiServer, Status};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::console;
use crate::failure::Failure;

/// Interval between two steps of the simulation.
const STEP_INTERVAL: Duration = Duration::from_millis(120);

/// Number of steps from the start of a cycle to its outage.
const STEPS_BEFORE_OUTAGE: u32 = 8;

/// Number of steps during an outage.
const STEPS_PER_OUTAGE: u32 = 16;

/// Number of steps from the end of an outage to the end of its cycle. After several failed attempts, the next attempt and
/// the list take a few seconds.
const STEPS_AFTER_OUTAGE: u32 = 40;

/// Embedded server with continuous changes; both end when this is dropped.
pub(crate) struct Fleet {
    kubeconfig: String,
    task: JoinHandle<()>,
}

impl Fleet {
    /// Starts the server with all deployments and pods, and then the changes. With `outage_clock`, the server is
    /// disconnected at regular intervals and drops its event history each time. Both are reported on standard error,
    /// with times of the `outage_clock`.
    pub(crate) async fn start(outage_clock: Option<Clock>) -> Result<Self, Failure> {
        let start_failure =
            |error: &dyn std::fmt::Display| Failure::run(format!("the embedded server did not start: {error}"));
        let server = ApiServer::builder().tls(true).start().await.map_err(|error| start_failure(&error))?;
        server
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
            .map_err(|error| start_failure(&error))?;
        let mut deployments = vec![
            Deployment::new("default", "web", 3),
            Deployment::new("default", "worker", 2),
            Deployment::new("shop", "cart", 2),
        ];
        for (phase_offset, deployment) in deployments.iter_mut().enumerate() {
            deployment.set_up(&server).map_err(|error| start_failure(&error))?;
            // The deployments start in different phases, so that every type of change is visible soon.
            (0..phase_offset + phase_offset / 2)
                .try_for_each(|_| deployment.step(&server))
                .map_err(|error| start_failure(&error))?;
        }
        let kubeconfig = server.kubeconfig();
        let task = tokio::spawn(async move {
            let mut steps = 0_u64;
            loop {
                for deployment in &mut deployments {
                    sleep(STEP_INTERVAL).await;
                    if let Some(clock) = &outage_clock {
                        start_or_end_outage(steps, &server, clock);
                    }
                    steps += 1;
                    if let Err(status) = deployment.step(&server) {
                        tracing::error!(%status, "the simulated workloads have stopped: a write was rejected");
                        // The task owns the server. Its end would look like an outage to the informers.
                        return std::future::pending().await;
                    }
                }
            }
        });
        Ok(Self { kubeconfig, task })
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let file = Kubeconfig::from_yaml(&self.kubeconfig).map_err(Failure::run)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.map_err(Failure::run)?;
        Connection::new(config).map_err(Failure::run)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The task owns the server, so the abort stops both.
        self.task.abort();
    }
}

/// Disconnects or reconnects the server if an outage starts or ends at this step.
fn start_or_end_outage(step: u64, server: &ApiServer, clock: &Clock) {
    let step_of_cycle = step % u64::from(STEPS_BEFORE_OUTAGE + STEPS_PER_OUTAGE + STEPS_AFTER_OUTAGE);
    if step_of_cycle == u64::from(STEPS_BEFORE_OUTAGE) {
        let seconds = (STEP_INTERVAL * STEPS_PER_OUTAGE).as_secs_f64();
        report(clock, &format!("cut off for {seconds:.1} s; its history will lack the changes of this time"));
        server.faults().cut();
    } else if step_of_cycle == u64::from(STEPS_BEFORE_OUTAGE + STEPS_PER_OUTAGE) {
        // The history is dropped before the connection returns: no watch can resume, and the informers must list again.
        server.compact();
        server.faults().expire_events();
        server.faults().heal();
        report(clock, "can be reached again");
    }
}

fn report(clock: &Clock, description: &str) {
    console::report(format_args!(
        "{} # the embedded server: {description}",
        clock.format_time_of_day(Timestamp::now())
    ));
}

/// A simulated deployment and its pods.
struct Deployment {
    namespace: &'static str,
    name: &'static str,
    replicas: usize,
    image: u32,
    started_pods: u32,
    /// Number of ready pods with the current image.
    updated_pods: usize,
    /// Names of the pods, oldest first.
    pods: Vec<String>,
    next_step: RolloutStep,
}

/// Next step of a rollout: a new image, then the replacement of one pod after the other.
#[derive(Clone, Copy)]
enum RolloutStep {
    Release,
    Start,
    Ready,
    Remove { remaining: usize },
}

impl Deployment {
    fn new(namespace: &'static str, name: &'static str, replicas: usize) -> Self {
        Self {
            namespace,
            name,
            replicas,
            image: 1,
            started_pods: 0,
            updated_pods: 0,
            pods: Vec::new(),
            next_step: RolloutStep::Release,
        }
    }

    fn set_up(&mut self, server: &ApiServer) -> Result<(), Status> {
        server.create(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": self.namespace, "name": self.name, "labels": {"app": self.name}},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": self.template(),
            },
        }))?;
        for _ in 0..self.replicas {
            self.start_pod(server)?;
            self.mark_pod_ready(server)?;
        }
        self.updated_pods = self.replicas;
        self.write_status(server)
    }

    /// Executes the next step: a change of the deployment's template, or of a pod and of the deployment's status.
    fn step(&mut self, server: &ApiServer) -> Result<(), Status> {
        self.next_step = match self.next_step {
            RolloutStep::Release => {
                (self.image, self.updated_pods) = (self.image + 1, 0);
                let spec = json!({"spec": {"template": self.template()}});
                server.merge_patch("deployments.apps", self.namespace, self.name, spec)?;
                RolloutStep::Start
            }
            RolloutStep::Start => {
                self.start_pod(server)?;
                RolloutStep::Ready
            }
            RolloutStep::Ready => {
                self.mark_pod_ready(server)?;
                self.updated_pods += 1;
                self.write_status(server)?;
                // `started_pods` counts the initial pods too, so each multiple of `replicas` completes a rollout.
                RolloutStep::Remove { remaining: self.started_pods as usize % self.replicas }
            }
            RolloutStep::Remove { remaining } => {
                let oldest = self.pods.remove(0);
                server.delete_named("pods", self.namespace, &oldest)?;
                self.write_status(server)?;
                if remaining == 0 { RolloutStep::Release } else { RolloutStep::Start }
            }
        };
        Ok(())
    }

    fn start_pod(&mut self, server: &ApiServer) -> Result<(), Status> {
        self.started_pods += 1;
        // Multiplication by an odd number is a bijection modulo 2^16: names look random and do not repeat for 65,536
        // pods.
        let name = format!("{}-{:04x}", self.name, self.started_pods.wrapping_mul(40_503) & 0xffff);
        server.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": self.namespace, "name": name, "labels": {"app": self.name}},
            "spec": {"nodeName": format!("node-{}", self.started_pods % 3), "containers": [self.container()]},
            "status": {"phase": "Pending"},
        }))?;
        self.pods.push(name);
        Ok(())
    }

    fn mark_pod_ready(&self, server: &ApiServer) -> Result<(), Status> {
        let Some(newest) = self.pods.last() else { return Ok(()) };
        let containers = json!([{
            "name": "main", "image": self.image(), "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}},
        }]);
        let status = json!({"status": {
            "phase": "Running",
            "podIP": format!("10.0.0.{}", self.started_pods % 250 + 1),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": containers,
        }});
        server.merge_patch("pods", self.namespace, newest, status).map(drop)
    }

    fn write_status(&self, server: &ApiServer) -> Result<(), Status> {
        let (pod_count, updated) = (self.pods.len(), self.updated_pods);
        // As on a real cluster, a count of zero is absent.
        let updated = (updated > 0).then_some(updated);
        let status = json!({"status": {"replicas": pod_count, "readyReplicas": pod_count, "updatedReplicas": updated}});
        server.merge_patch("deployments.apps", self.namespace, self.name, status).map(drop)
    }

    fn template(&self) -> Value {
        json!({"metadata": {"labels": {"app": self.name}}, "spec": {"containers": [self.container()]}})
    }

    fn container(&self) -> Value {
        json!({"name": "main", "image": self.image()})
    }

    fn image(&self) -> String {
        format!("example.test/{}:1.{}", self.name, self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rollout_keeps_deployment_size() -> Result<(), Box<dyn std::error::Error>> {
        let server = ApiServer::builder().in_memory().start().await?;
        let mut deployment = Deployment::new("default", "web", 3);
        deployment.set_up(&server)?;
        for _ in 0..200 {
            deployment.step(&server)?;
            assert!((3..=4).contains(&deployment.pods.len()), "{:?}", deployment.pods);
        }
        let (mut created, mut updated, mut deleted) = (0, 0, 0);
        for change in server.history().changes_of("", "pods") {
            match (&change.previous, &change.object) {
                (None, _) => created += 1,
                (Some(_), Some(_)) => updated += 1,
                (Some(_), None) => deleted += 1,
            }
        }
        assert!(created > 30 && updated > 30 && deleted > 30, "{created} {updated} {deleted}");
        Ok(())
    }
}
