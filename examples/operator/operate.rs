//! The operator itself, while it leads and until it is stopped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{InformerFactory, Scope};
use steadfast_controller::{
    Controller, ControllerMetrics, ElectionMetrics, EventMetrics, EventRecorder, LeaderElection, WorkqueueMetrics,
    back_off,
};

use super::outside::Metrics;
use super::site::{Context, Site, reconcile};

/// How long the end may take, twice: together less than the 30 seconds that a kubelet gives.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn operate(
    informers: &InformerFactory,
    metrics: &Metrics,
    stopped: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (connection, mut stopped) = (informers.connection(), pin!(stopped));
    metrics.add(steadfast::metrics::Metrics::new([connection]));
    // Caches fill while another one leads.
    let (_sites, pages) = (informers.informer::<Site>(Scope::all())?, informers.informer(Scope::all())?);
    // In a pod, the default namespace is its own, and the candidate's name is the pod's.
    let election = LeaderElection::builder(connection, connection.default_namespace(), "site-operator").build()?;
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
    // What this client sends is sent while the lease holds, or not at all.
    let context = Context { client: leader.client(), pages, events: events.clone() };
    let controller = Controller::<Site>::new(informers, Scope::all())
        .owns::<k8s_openapi::api::core::v1::ConfigMap>(Scope::all())
        .reads(&context.pages)
        .run(reconcile, back_off, Arc::new(context))?;
    metrics.add(ControllerMetrics::default().with("sites", &controller));
    metrics.add(WorkqueueMetrics::default().with("sites", controller.queue()));
    tokio::select! {
        biased;
        // The process ends then, and begins anew as a candidate.
        () = leader.lost() => return Err("another one leads".into()),
        () = stopped => {}
    }
    let left = controller.stop(PATIENCE).await;
    if (left.cancelled, left.stuck) != (0, 0) {
        return Err(format!("{} calls were cancelled, {} did not end", left.cancelled, left.stuck).into());
    }
    events.stop(PATIENCE).await?;
    election.stop().await;
    Ok(())
}
