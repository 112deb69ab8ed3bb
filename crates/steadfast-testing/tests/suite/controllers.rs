//! Controllers: no reconcile runs on a cache that lacks the writes of the previous one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use steadfast::{Connection, Informer, InformerFactory, ObjectKey, Writes};
use steadfast_controller::{Action, Controller, back_off};
use steadfast_testing::TestError;
use steadfast_testing::cluster::TestCluster;
use tokio::time::{sleep, timeout};

use super::EVENT_TIMEOUT;

super::scenarios! {
    naive_controller_creates_no_duplicate_behind_lag: needs [Lag], covers [LaggingReplica];
}

/// State of a program that keeps the required number of children of a parent.
struct Context {
    /// Client of the first server. The caches read from the second server, which lags. A real server completes no
    /// writes while it lags.
    client: kube::Client,
    /// Connection of the caches, which records the writes.
    connection: Connection,
    children: Informer<Secret>,
    namespace: String,
    expected_count: AtomicUsize,
    created_count: AtomicUsize,
}

/// Creates the children that the cache lacks, with generated names.
async fn keep_children(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let Ok(lister) = context.children.lister() else { return Ok(Action::retry()) };
    let uid = parent.uid().unwrap_or_default();
    let is_own = |secret: &Secret| secret.owner_references().iter().any(|owner| owner.uid == uid);
    let own_secrets = lister.namespace(&context.namespace).iter().filter(|secret| is_own(secret)).count();
    let secrets = Api::<Secret>::namespaced(context.client.clone(), &context.namespace);
    for _ in own_secrets..context.expected_count.load(Ordering::SeqCst) {
        let mut child = Secret::default();
        child.metadata.generate_name = Some("child-".to_owned());
        child.metadata.owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
        let created = secrets.create(&PostParams::default(), &child).await?;
        let mut writes = Writes::default();
        writes.add(&created);
        context.connection.record_external_writes(&writes);
        context.created_count.fetch_add(1, Ordering::SeqCst);
    }
    Ok(Action::await_change())
}

async fn naive_controller_creates_no_duplicate_behind_lag(cluster: &mut TestCluster) -> Result<(), TestError> {
    let resource = ApiResource::erase::<Secret>(&());
    cluster.follow(&resource).await?;
    cluster.writer().create("parent", "1").await?;
    // The second server is the lagging one.
    cluster.network().send_to(1);
    let connection = cluster.connection().await?;
    let factory = InformerFactory::new(&connection);
    let context = Arc::new(Context {
        client: Connection::new(cluster.direct().clone())?.client(),
        connection: connection.clone(),
        children: factory.informer(cluster.scope())?,
        namespace: cluster.namespace().to_owned(),
        expected_count: AtomicUsize::new(3),
        created_count: AtomicUsize::new(0),
    });
    let controller = Controller::<ConfigMap>::new(&factory, cluster.scope()).owns::<Secret>(cluster.scope()).run(
        keep_children,
        back_off,
        context.clone(),
    )?;
    let parent = ObjectKey::namespaced(cluster.namespace(), "parent");
    let children_of = |count: usize| {
        let children = context.children.clone();
        async move { children.until(|cache| (cache.len() == count).then_some(()), EVENT_TIMEOUT).await }
    };
    children_of(3).await?;

    for expected_count in 4..8 {
        // The watch that triggers reconciles is another watch of the same objects, and may lag.
        factory.wait_for_writes(&context.children.seen(), EVENT_TIMEOUT).await?;
        cluster.lag(true)?;
        context.expected_count.store(expected_count, Ordering::SeqCst);
        // The first reconcile creates one child. Later ones must not create another, although the cache lacks it.
        for _ in 0..4 {
            controller.queue().add(parent.clone());
            sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(context.created_count.load(Ordering::SeqCst), expected_count);
        assert_eq!(controller.stats().waiting_for_writes, 1, "{:?}", controller.stats());
        if expected_count % 2 == 0 {
            cluster.network().reset();
        }
        cluster.lag(false)?;
        children_of(expected_count).await?;
        timeout(EVENT_TIMEOUT, async {
            while controller.stats().waiting_for_writes > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await?;
    }
    let stop_report = controller.stop(EVENT_TIMEOUT).await;
    assert_eq!((stop_report.cancelled, stop_report.stuck), (0, 0));
    let history = cluster.history_of(&resource).await?;
    let is_child =
        |object: &serde_json::Value| object.pointer("/metadata/ownerReferences/0/name") == Some(&json!("parent"));
    let created_count = history.changes().iter().filter(|change| change.object.as_ref().is_some_and(is_child)).count();
    assert_eq!((created_count, context.created_count.load(Ordering::SeqCst)), (7, 7), "by the server's own history");
    Ok(())
}
