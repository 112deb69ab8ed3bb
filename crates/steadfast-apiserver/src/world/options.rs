//! Settings of the simulation.

use std::ops::Range;
use std::time::Duration;

/// Simulated cluster of a server: controllers, a scheduler, and nodes that run no containers.
///
/// [`ApiServerBuilder::world`](crate::ApiServerBuilder::world) starts it with the server. Deployments, `ReplicaSets`,
/// `StatefulSets`, `DaemonSets` and Jobs then have pods, the pods become ready after some time, services have endpoints,
/// and dependents of a deleted object are deleted too. The writes bypass the API. Faults of the network therefore do not
/// stop them, and a disconnected client misses changes.
///
/// Annotations of a pod, usually set in its template, control the simulated containers:
///
/// | annotation | value | default |
/// |---|---|---|
/// | `world.steadfast.dev/ready-after` | seconds from the start until the pod is ready; `never` | random, see [`pod_start`](Self::pod_start) |
/// | `world.steadfast.dev/exit-after` | seconds from readiness until the containers exit; `never` | `never` if `restartPolicy` is `Always`, else [`pod_run`](Self::pod_run) |
/// | `world.steadfast.dev/exit-code` | exit code; 137 is shown as `OOMKilled` | 0 |
///
/// A deleted node loses its pods. A node that is cordoned (`spec.unschedulable`) receives no more pods, except for pods
/// of `DaemonSets`.
///
/// ```
/// use std::time::Duration;
/// use serde_json::json;
/// use steadfast_apiserver::{ApiServer, World};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::builder().in_memory().world(World::default().nodes(2)).start().await?;
/// server.create(&json!({
///     "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
///     "spec": {
///         "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
///         "template": {
///             "metadata": {"labels": {"app": "web"}},
///             "spec": {"containers": [{"name": "main", "image": "web:1"}]},
///         },
///     },
/// }))?;
/// tokio::time::sleep(Duration::from_secs(10)).await;
/// assert_eq!(server.get("deployments", "default", "web")?["status"]["readyReplicas"], 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct World {
    pub(super) nodes: u16,
    pub(super) pod_start: Range<Duration>,
    pub(super) pod_run: Duration,
}

impl Default for World {
    fn default() -> Self {
        Self {
            nodes: 3,
            pod_start: Duration::from_millis(800)..Duration::from_millis(2500),
            pod_run: Duration::from_secs(3),
        }
    }
}

impl World {
    /// Sets the number of nodes, which are named `node-1`, `node-2` and so on. Defaults to 3.
    #[must_use]
    pub fn nodes(mut self, nodes: u16) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the range of the random time between the scheduling of a pod and its readiness. Defaults to 0.8 to 2.5 s.
    #[must_use]
    pub fn pod_start(mut self, bounds: Range<Duration>) -> Self {
        self.pod_start = bounds;
        self
    }

    /// Sets the time after which the containers of a pod exit if its `restartPolicy` is `Never` or `OnFailure`, such as
    /// a pod of a Job. Defaults to 3 s.
    #[must_use]
    pub fn pod_run(mut self, duration: Duration) -> Self {
        self.pod_run = duration;
        self
    }
}
