//! Main function of the operator: waits until this process leads, reconciles, and shuts down.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{InformerFactory, Scope};
use steadfast_controller::{
    Controller, ControllerMetrics, ElectionMetrics, EventMetrics, EventRecorder, LeaderElection, WorkqueueMetrics,
    back_off,
};

use super::http::Metrics;
use super::site::{Context, Site, reconcile};

/// Timeout of each of the two steps of the shutdown. Together they take less than the 30 seconds that a kubelet grants.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn operate(
    informers: &InformerFactory,
    metrics: &Metrics,
    stopped: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (connection, mut stopped) = (informers.connection(), pin!(stopped));
    metrics.add(steadfast::metrics::Metrics::new([connection]));
    // Caches also fill while another process leads.
    let (_sites, pages) = (informers.informer::<Site>(Scope::all())?, informers.informer(Scope::all())?);
    // In a pod, the default namespace is that of the pod, and the identity of the candidate is the pod's name.
    let election = LeaderElection::builder(connection, connection.default_namespace(), "site-operator").start()?;
    metrics.add(ElectionMetrics::default().with("site-operator", &election));
    let leader = tokio::select! {
        biased;
        () = &mut stopped => None,
        leader = election.until_leader() => leader,
    };
    let Some(leader) = leader else {
        election.stop().await;
        return Ok(());
    };
    let events = EventRecorder::new(connection, "shop.example/site-operator")?;
    metrics.add(EventMetrics::default().with("site-operator", &events));
    // Requests of this client are sent only while the lease is held.
    let context = Context { client: leader.client(), pages, events: events.clone() };
    let controller = Controller::<Site>::new(informers, Scope::all())
        .owns::<k8s_openapi::api::core::v1::ConfigMap>(Scope::all())
        .reads(&context.pages)
        .run(reconcile, back_off, Arc::new(context))?;
    metrics.add(ControllerMetrics::default().with("sites", &controller));
    metrics.add(WorkqueueMetrics::default().with("sites", controller.queue()));
    tokio::select! {
        biased;
        // The process ends. Kubernetes restarts it, and it is a candidate again.
        () = leader.until_lost() => return Err("lost the leadership to another process".into()),
        () = stopped => {}
    }
    let outcome = controller.stop(SHUTDOWN_TIMEOUT).await;
    if (outcome.cancelled, outcome.stuck) != (0, 0) {
        return Err(format!("{} reconciles were cancelled, {} did not end", outcome.cancelled, outcome.stuck).into());
    }
    events.stop(SHUTDOWN_TIMEOUT).await?;
    election.stop().await;
    Ok(())
}
