//! The controller with kube-runtime.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::reflector::store::WriterDropped;
use kube_runtime::reflector::{self, Store};
use kube_runtime::{WatchStreamExt, watcher};

use super::pool_spec::{is_of, pod_of, size_of};

struct Context {
    client: Client,
    pods: Store<Pod>,
}

async fn reconcile(pool: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &pool.namespace().unwrap_or_default());
    let own: Vec<_> = context.pods.state().into_iter().filter(|pod| is_of(&**pod, &pool)).collect();
    for _ in own.len()..size_of(&pool) {
        api.create(&PostParams::default(), &pod_of(&pool)).await?;
    }
    for pod in own.iter().skip(size_of(&pool)) {
        api.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    // The store has a watch of its own, and may be older than the change that caused this call.
    Ok(Action::requeue(Duration::from_secs(1)))
}

pub(crate) async fn run(client: Client) -> Result<(), WriterDropped> {
    let of_pools = watcher::Config::default().labels("pool");
    let pods = Api::<Pod>::all(client.clone());
    let (store, writer) = reflector::store();
    let filling = watcher(pods.clone(), of_pools.clone()).default_backoff().reflect(writer);
    tokio::spawn(filling.for_each(|_| ready(())));
    store.wait_until_ready().await?;
    Controller::new(Api::<ConfigMap>::all(client.clone()), of_pools.clone())
        .owns(pods, of_pools)
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new(Context { client, pods: store }))
        .for_each(|called| async move { drop(called.inspect_err(|error| eprintln!("{error}"))) })
        .await;
    Ok(())
}
