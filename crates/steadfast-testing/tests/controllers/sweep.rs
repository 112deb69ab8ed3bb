//! Sweeps over controllers: a controller with a known bug must have findings, and a correct controller must have none.

mod honest;
mod planted;
mod rules;

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_controller::{Action, ChangeFilter, Controller, Source, back_off};
use steadfast_testing::sweep::Fixture;
use steadfast_testing::{TestError, labelled_config_map};

/// Selector of the parents: config maps with this label. The controllers depend on their data.
const PARENTS: &str = "role=parent";

/// State of a reconcile. `memory` belongs to the process.
struct Context {
    client: Client,
    memory: Mutex<BTreeSet<String>>,
}

impl Context {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates an object without an owner reference to the parent, such as a volume at a provider. Only the controller
    /// can delete this object.
    async fn create_unowned(&self, name: &str) -> Result<(), kube::Error> {
        let map: ConfigMap = empty_config_map(name);
        self.maps().create(&PostParams::default(), &map).await.map(drop)
    }

    /// Creates or updates the child of a parent with the parent's value.
    async fn apply_child(&self, parent: &ConfigMap) -> Result<(), kube::Error> {
        let mut map = empty_config_map(&child_name(parent));
        map.data = Some([("value".to_owned(), value(parent, "value"))].into());
        match self.maps().create(&PostParams::default(), &map).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.patch(&child_name(parent), json!({ "data": map.data })).await
            }
            result => result.map(drop),
        }
    }

    async fn delete(&self, name: &str) -> Result<(), kube::Error> {
        self.maps().delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn patch(&self, name: &str, patch: serde_json::Value) -> Result<(), kube::Error> {
        self.maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Reads a map from the server, and returns the number under `key`, or 0.
    async fn number(&self, name: &str, key: &str) -> Result<i64, kube::Error> {
        Ok(self.maps().get_opt(name).await?.map_or(0, |map| value(&map, key).parse().unwrap_or_default()))
    }
}

fn empty_config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// Returns the value under `key` in the data of a map, or an empty string.
fn value(map: &ConfigMap, key: &str) -> String {
    map.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default()
}

/// Returns `true` for a 404. A deletion treats a missing object as success.
fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Source of the parents. Changes of `value`, of the finalizers and the deletion trigger reconciles.
fn parents() -> Source<ConfigMap> {
    Source::from(Scope::all().labels(PARENTS)).filter_changes(ChangeFilter::of(|map: &ConfigMap| value(map, "value")))
}

/// Runs one process: a controller of parents that calls `reconcile` until the process is killed.
async fn run_controller<F, R>(connection: Connection, reconcile: F) -> Result<(), TestError>
where
    F: Fn(Arc<ConfigMap>, Arc<Context>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, kube::Error>> + Send + 'static,
{
    let client = connection.client();
    run_controller_with(&connection, client, reconcile).await
}

/// Does the same as [`run_controller`], but with the given client instead of the connection's own.
async fn run_controller_with<F, R>(connection: &Connection, client: Client, reconcile: F) -> Result<(), TestError>
where
    F: Fn(Arc<ConfigMap>, Arc<Context>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, kube::Error>> + Send + 'static,
{
    let informers = InformerFactory::new(connection);
    let context = Arc::new(Context { client, memory: Mutex::default() });
    let _running = Controller::<ConfigMap>::new(&informers, parents()).run(reconcile, back_off, context)?;
    pending().await
}

/// Creates a parent.
async fn create_parent(fixture: &Fixture, name: &str) -> Result<(), TestError> {
    let maps = Api::<ConfigMap>::namespaced(fixture.client(), "default");
    maps.create(&PostParams::default(), &labelled_config_map(name, "1", ("role", "parent"))).await?;
    Ok(())
}

/// Changes the value of a parent.
async fn change_parent(fixture: &Fixture, name: &str, value: &str) -> Result<(), TestError> {
    let maps = Api::<ConfigMap>::namespaced(fixture.client(), "default");
    let patch = Patch::Merge(json!({ "data": { "value": value } }));
    maps.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Creates a parent.
async fn create_parent_scenario(fixture: Fixture) -> Result<(), TestError> {
    create_parent(&fixture, "a").await?;
    Ok(fixture.settle().await?)
}

/// Creates, changes and deletes a parent.
async fn create_change_delete_scenario(fixture: Fixture) -> Result<(), TestError> {
    create_parent(&fixture, "a").await?;
    fixture.settle().await?;
    change_parent(&fixture, "a", "2").await?;
    fixture.settle().await?;
    let maps = Api::<ConfigMap>::namespaced(fixture.client(), "default");
    maps.delete("a", &DeleteParams::default()).await?;
    Ok(fixture.settle().await?)
}

/// Returns the name of a parent's child.
fn child_name(parent: &ConfigMap) -> String {
    format!("{}-belonging", parent.name_any())
}
