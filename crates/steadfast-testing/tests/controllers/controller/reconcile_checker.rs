//! The reconcile checker reports deliberate violations. It reports no violation for controllers on a server with
//! random faults.

use std::future::Future;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use steadfast::{InformerFactory, ObjectKey, Scope};
use steadfast_apiserver::{ApiServer, Change};
use steadfast_controller::back_off;
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{FaultSchedule, InMemory, ReconcileChecker, ReconcileStats, TestError, config_map};

use super::own_writes::{child_controller_of, context_of, ensure_children};
use super::{SECOND, advance};

struct CheckerFixture {
    server: Arc<ApiServer>,
    checker: ReconcileChecker,
    maps: Api<ConfigMap>,
}

impl CheckerFixture {
    async fn new() -> Result<Self, TestError> {
        let server = Arc::new(ApiServer::builder().in_memory().start().await?);
        server.create(&config_map("a", "1"))?;
        let connection = InMemory::default().connection(&server).await?;
        let maps = Api::namespaced(connection.client(), "default");
        Ok(Self { checker: ReconcileChecker::of(&server, "configmaps"), server, maps })
    }

    /// Returns the current object.
    async fn read_a(&self) -> Result<Arc<ConfigMap>, TestError> {
        Ok(Arc::new(self.maps.get("a").await?))
    }

    /// Simulates a reconcile that writes nothing.
    fn reconcile(&self, map: Arc<ConfigMap>) -> impl Future<Output = ()> + use<> {
        self.checker.wrap(|_: Arc<ConfigMap>, (): ()| async {})(map, ())
    }

    /// Simulates a reconcile that writes to its own object.
    fn reconcile_with_write(
        &self,
        map: Arc<ConfigMap>,
    ) -> impl Future<Output = Result<ConfigMap, kube::Error>> + use<> {
        let maps = self.maps.clone();
        let write = move |map: Arc<ConfigMap>, (): ()| {
            let maps = maps.clone();
            async move {
                let patch = Patch::Merge(json!({ "data": { "own": "write" } }));
                maps.patch(&map.name_any(), &PatchParams::default(), &patch).await
            }
        };
        self.checker.wrap(write)(map, ())
    }

    fn violation(&self) -> String {
        self.checker.check().map_or_else(|error| error.to_string(), |result| format!("nothing: {result:?}"))
    }
}

#[tokio::test(start_paused = true)]
async fn check_without_reconciles_fails() -> Result<(), TestError> {
    assert_eq!(CheckerFixture::new().await?.violation(), "no reconcile ran, so nothing was checked");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn concurrent_reconciles_of_key_are_detected() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    let (first, second) = (fixture.reconcile(fixture.read_a().await?), fixture.reconcile(fixture.read_a().await?));
    tokio::join!(first, second);
    assert_eq!(fixture.violation(), "default/a was reconciled concurrently");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reconcile_after_stop_is_reported() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    fixture.reconcile(fixture.read_a().await?).await;
    assert_eq!(fixture.checker.check()?, ReconcileStats { reconciles: 1, writes: 0, changed_objects: 1 });
    fixture.checker.stopped();
    fixture.reconcile(fixture.read_a().await?).await;
    assert_eq!(fixture.violation(), "default/a was reconciled after the controller was stopped");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unreconciled_change_is_detected() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    let old_map = fixture.read_a().await?;
    fixture.reconcile(old_map.clone()).await;
    fixture.server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": "2" } }))?;
    assert!(
        fixture
            .violation()
            .starts_with("default/a was not reconciled after: configmaps default/a was written in version")
    );
    // This reconcile receives the object from before the change, so the change still needs a reconcile.
    fixture.reconcile(old_map).await;
    assert!(fixture.violation().starts_with("default/a was not reconciled after"));
    fixture.reconcile(fixture.read_a().await?).await;
    assert_eq!(fixture.checker.check()?, ReconcileStats { reconciles: 3, writes: 0, changed_objects: 1 });
    // After a reconcile with a write, another client changes the object during the next reconcile. This change must
    // not count as an own write.
    fixture.reconcile_with_write(fixture.read_a().await?).await?;
    let (current_map, server) = (fixture.read_a().await?, fixture.server.clone());
    let key_mapping = move |_: Arc<ConfigMap>, (): ()| {
        let server = server.clone();
        async move { server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": "3" } })) }
    };
    fixture.checker.wrap(key_mapping)(current_map.clone(), ()).await?;
    fixture.reconcile(current_map).await;
    fixture.reconcile(fixture.read_a().await?).await;
    assert_eq!(fixture.checker.check()?, ReconcileStats { reconciles: 7, writes: 1, changed_objects: 1 });
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reconcile_before_own_write_is_detected() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    let old_map = fixture.read_a().await?;
    fixture.reconcile_with_write(old_map.clone()).await?;
    fixture.reconcile(fixture.read_a().await?).await;
    assert_eq!(fixture.checker.check()?, ReconcileStats { reconciles: 2, writes: 1, changed_objects: 1 });
    fixture.reconcile(old_map).await;
    assert!(fixture.violation().starts_with(
        "default/a was reconciled with an object older than its own earlier write: configmaps default/a was written in"
    ));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reconcile_of_own_deletion_is_detected() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    let (old_map, maps) = (fixture.read_a().await?, fixture.maps.clone());
    let delete = move |map: Arc<ConfigMap>, (): ()| {
        let maps = maps.clone();
        async move { maps.delete(&map.name_any(), &DeleteParams::default()).await.map(drop) }
    };
    fixture.checker.wrap(delete)(old_map.clone(), ()).await?;
    assert_eq!(fixture.checker.check()?, ReconcileStats { reconciles: 1, writes: 0, changed_objects: 0 });
    fixture.reconcile(old_map).await;
    assert!(fixture.violation().starts_with(
        "default/a was reconciled with an object older than its own earlier write: configmaps default/a was deleted"
    ));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_triggering_changes_need_reconciles() -> Result<(), TestError> {
    let CheckerFixture { server, maps, .. } = CheckerFixture::new().await?;
    let is_labelled =
        |change: &Change| change.object.as_ref().is_some_and(|map| map.pointer("/metadata/labels/app").is_some());
    let checker = ReconcileChecker::with_predicate(&server, "configmaps", is_labelled);
    checker.wrap(|_: Arc<ConfigMap>, (): ()| async {})(Arc::new(maps.get("a").await?), ()).await;
    server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": "2" } }))?;
    assert_eq!(checker.check()?, ReconcileStats { reconciles: 1, writes: 0, changed_objects: 0 });
    server.merge_patch("configmaps", "default", "a", json!({ "metadata": { "labels": { "app": "web" } } }))?;
    assert!(checker.check().is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn keyed_reconcile_before_own_write_is_detected() -> Result<(), TestError> {
    let fixture = CheckerFixture::new().await?;
    let informers = InformerFactory::new(&InMemory::default().connection(&fixture.server).await?);
    let maps = informers.informer::<ConfigMap>(Scope::all())?;
    maps.wait_for_sync(SECOND).await?;
    fixture.checker.reads("configmaps", &maps);
    fixture.server.faults().lag(true);
    fixture.reconcile_with_write(fixture.read_a().await?).await?;
    let by_key = fixture.checker.wrap(|_: ObjectKey, (): ()| async {});
    by_key(super::key("a"), ()).await;
    assert!(fixture.violation().starts_with(
        "default/a was reconciled while a cache lacked its own earlier write: configmaps default/a was written"
    ));
    Ok(())
}

#[test]
fn random_faults_violate_no_guarantee() -> Result<(), TestError> {
    let mut sum = ReconcileStats::default();
    for seed in 0..20 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let checked = runtime.block_on(async {
            let server = Arc::new(ApiServer::builder().seed(seed).in_memory().start().await?);
            let network = NetworkFaults::seeded(seed);
            let connection =
                InMemory { seed, network: network.clone(), ..InMemory::default() }.connection(&server).await?;
            let factory = InformerFactory::new(&connection);
            for parent in ["a", "b"] {
                server.create(&config_map(parent, "1"))?;
            }
            let (checker, context) = (ReconcileChecker::of(&server, "configmaps"), context_of(&connection, &factory)?);
            checker.reads("pods", &factory.informer::<Pod>(Scope::all())?);
            let controller = child_controller_of(&factory).run(checker.wrap(ensure_children), back_off, context)?;
            let mut faults = FaultSchedule::new(seed, &server, &network);
            for step in 0..30 {
                faults.inject_next().await;
                let parent = ["a", "b"][faults.random(2) as usize];
                let value = json!({ "data": { "value": step.to_string() } });
                server.merge_patch("configmaps", "default", parent, value)?;
            }
            faults.end();
            advance(120 * SECOND).await;
            controller.stop(SECOND).await;
            checker.stopped();
            server.merge_patch("configmaps", "default", "a", json!({ "data": { "value": "late" } }))?;
            advance(10 * SECOND).await;
            checker.check().map_err(|error| TestError::from(format!("seed {seed}: {error}")))
        })?;
        sum.reconciles += checked.reconciles;
        sum.writes += checked.writes;
    }
    assert!(sum.reconciles > 200 && sum.writes > 100, "{sum:?}");
    Ok(())
}
