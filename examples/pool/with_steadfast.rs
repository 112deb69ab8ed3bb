//! The controller with Steadfast.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, PartialObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use steadfast::{Connection, Informer, InformerFactory, NotSynced, Scope};
use steadfast_controller::{Action, Controller, back_off};

use super::pool_spec::{is_of, pod_of, size_of};

struct Context {
    client: Client,
    pods: Informer<PartialObjectMeta<Pod>>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error(transparent)]
    Cache(#[from] NotSynced),
}

async fn reconcile(pool: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Failure> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &pool.namespace().unwrap_or_default());
    let own: Vec<_> = context.pods.lister()?.all().into_iter().filter(|pod| is_of(&**pod, &pool)).collect();
    for _ in own.len()..size_of(&pool) {
        api.create(&PostParams::default(), &pod_of(&pool)).await?;
    }
    for pod in own.iter().skip(size_of(&pool)) {
        api.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    Ok(Action::await_change())
}

pub(crate) async fn run(
    connection: Connection,
    stopped: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let informers = InformerFactory::new(&connection);
    let of_pools = Scope::all().labels("pool");
    let pods = informers.informer::<PartialObjectMeta<Pod>>(of_pools.clone())?;
    let context = Arc::new(Context { client: connection.client(), pods: pods.clone() });
    let controller =
        Controller::<ConfigMap>::new(&informers, of_pools).owns::<Pod>(pods).run(reconcile, back_off, context)?;
    stopped.await;
    controller.stop(Duration::from_secs(30)).await;
    informers.shutdown();
    Ok(())
}
