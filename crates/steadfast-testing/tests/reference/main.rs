//! Informers on a real kube-apiserver, judged by the checker with a history that comes from the etcd itself.
//!
//! Where the reference is not built these are skipped, and say so; see `docs/testing.md`.

mod lagging;
mod limits;
mod silence;
mod stories;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde_json::json;
use steadfast::{Informer, Kept, Note};
use steadfast_contract::{Verdict, check};
use steadfast_testing::reference::Reference;
use steadfast_testing::{Recorder, Recording, WorldError};

const SOON: Duration = Duration::from_secs(30);

/// What an informer said of itself, in its own words.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn by<K: Kept + Resource>(informer: &Informer<K>) -> Self {
        let said = Self::default();
        let own = said.clone();
        informer.on_note(move |note| {
            let word = match note {
                Note::Relisted { .. } => "relisted",
                Note::Resumed { .. } => "resumed",
                Note::FellBackToPages { .. } => "fell back to pages",
                _ => return,
            };
            own.0.lock().unwrap_or_else(PoisonError::into_inner).push(word.to_owned());
        });
        said
    }

    fn times(&self, word: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|said| *said == word).count()
    }
}

/// Writes config maps in `default`.
struct Writer {
    client: Client,
    config_maps: Api<ConfigMap>,
}

impl Writer {
    /// Straight at the first server.
    async fn at(reference: &Reference) -> Result<Self, WorldError> {
        Ok(Self::over(reference.connection().await?.client()))
    }

    fn over(client: Client) -> Self {
        Self { config_maps: Api::namespaced(client.clone(), "default"), client }
    }

    async fn get(&self, name: &str) -> Result<ConfigMap, WorldError> {
        Ok(self.config_maps.get(name).await?)
    }

    async fn create(&self, config_map: &ConfigMap) -> Result<ConfigMap, WorldError> {
        Ok(self.config_maps.create(&PostParams::default(), config_map).await?)
    }

    async fn set(&self, name: &str, value: &str) -> Result<ConfigMap, WorldError> {
        self.patch(name, json!({ "data": { "value": value } })).await
    }

    async fn label(&self, name: &str, app: &str) -> Result<ConfigMap, WorldError> {
        self.patch(name, json!({ "metadata": { "labels": { "app": app } } })).await
    }

    async fn patch(&self, name: &str, patch: serde_json::Value) -> Result<ConfigMap, WorldError> {
        Ok(self.config_maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    async fn delete(&self, name: &str) -> Result<(), WorldError> {
        self.config_maps.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// A write of another resource: the etcd is past all that an informer of config maps has seen.
    async fn write_something_else(&self, name: &str) -> Result<(), WorldError> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await?;
        Ok(())
    }
}

/// Waits until all is quiet, and judges what was recorded of config maps.
async fn judge(reference: &mut Reference, recorder: &Recorder) -> Result<Verdict, WorldError> {
    reference.settle(recorder).await?;
    Ok(check(&reference.history("", "configmaps").await?, &recorder.trace())?)
}

/// Waits until the handler has been told so many things of `key`: what waits for it may be merged otherwise.
async fn until_told<K: Kept>(recording: &Recording<K>, key: &str, times: usize) -> Result<(), WorldError> {
    let told = async {
        while recording.of(key).len() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(SOON, told).await;
    waited.map_err(|_| format!("{key} has {:?} after {SOON:?}", recording.story(key)).into())
}

/// How often the first server has streamed a list of `resource`, in its own count.
async fn streamed_lists(writer: &Writer, resource: &str) -> Result<u64, WorldError> {
    let request = kube::core::Request::new("").get("metrics", &GetParams::default())?;
    let metrics = writer.client.request_text(request).await?;
    let wanted = format!("resource=\"{resource}\"");
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_watch_list_duration_seconds_count{") && line.contains(&wanted))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    Ok(counts.sum())
}

fn assert_fresh<K: Kept>(recording: &Recording<K>) {
    let freshness = recording.informer().freshness();
    assert!(freshness.is_fresh(), "{}: {freshness}", recording.informer().name());
}
