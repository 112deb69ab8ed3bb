//! The history of one resource in one namespace, from a separate watch. Used for clusters that offer only their API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchParams};
use kube::core::WatchEvent;
use parking_lot::Mutex;
use steadfast_contract::{Change, History};
use tokio::task::JoinHandle;

use crate::TestkitError;

/// Maximum time for the watch to report the state of a list.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// A list, and a watch from its version, directly at the server. The watch is independent of the reflectors, and
/// never resumes. If the watch breaks, no history is available, and a scenario that needs the history fails.
pub(super) struct EventLog {
    pub(super) resource: ApiResource,
    objects: Api<DynamicObject>,
    state: Arc<Mutex<WatchState>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct WatchState {
    changes: Vec<Change>,
    failure: Option<String>,
}

impl EventLog {
    /// Starts with the existing objects. Times count from `started`.
    pub(super) async fn start(
        client: kube::Client,
        namespace: &str,
        resource: &ApiResource,
        started: Instant,
    ) -> Result<Self, TestkitError> {
        let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, resource);
        let list = objects.list(&ListParams::default()).await?;
        let list_version = list.metadata.resource_version.clone().ok_or("the list has no version")?;
        let mut existing =
            list.items.into_iter().map(|object| change(&object, false)).collect::<Result<Vec<_>, _>>()?;
        // A list is in the order of names. Sorted by version, the existing objects look like a sequence of changes.
        existing.sort_by_key(|change| change.version);
        let changes = existing.into_iter().map(|change| change.at(started.elapsed())).collect();
        let state = Arc::new(Mutex::new(WatchState { changes, failure: None }));
        // The watch never resumes: a resumed watch could skip the changes that this history must prove.
        let mut events = objects.watch(&WatchParams::default(), &list_version).await?.boxed();
        let task_state = state.clone();
        let task = tokio::spawn(async move {
            let failure = loop {
                let event = match events.try_next().await {
                    Ok(Some(event)) => event,
                    Ok(None) => break "the watch ended".to_owned(),
                    Err(error) => break error.to_string(),
                };
                let change = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => change(&object, false),
                    WatchEvent::Deleted(object) => change(&object, true),
                    // A bookmark has a version and no change.
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => break status.message,
                };
                match change {
                    Ok(change) => task_state.lock().changes.push(change.at(started.elapsed())),
                    Err(error) => break error.to_string(),
                }
            };
            task_state.lock().failure = Some(failure);
        });
        Ok(Self { resource: resource.clone(), objects, state, task })
    }

    /// Returns all changes up to now.
    ///
    /// # Errors
    ///
    /// Returns an error if the watch broke, or does not reach the state of a list.
    pub(super) async fn history(&self) -> Result<History, TestkitError> {
        // The list is a consistent read. So it is at least as new as every write that the scenario has completed.
        let listed_versions: BTreeMap<String, String> = self
            .objects
            .list(&ListParams::default())
            .await?
            .items
            .iter()
            .map(|object| (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default()))
            .collect();
        let started = Instant::now();
        loop {
            {
                let state = self.state.lock();
                if let Some(failure) = &state.failure {
                    return Err(format!("the watch of the history broke: {failure}").into());
                }
                // Versions alone would not show a missing deletion. The comparison of all UIDs and versions shows it.
                if live_versions(&state.changes) == listed_versions {
                    let mut history = History::new();
                    state.changes.iter().cloned().for_each(|change| history.push(change));
                    return Ok(history);
                }
            }
            if started.elapsed() > CATCH_UP_TIMEOUT {
                return Err(format!("the watch of the history still lacks changes after {CATCH_UP_TIMEOUT:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the UIDs and versions of the objects that exist after `changes`.
fn live_versions(changes: &[Change]) -> BTreeMap<String, String> {
    // Only the last change of a UID counts. A recreated object has another UID, so its predecessor needs its own
    // deletion.
    let mut live_versions = BTreeMap::new();
    for change in changes {
        if change.object.is_some() {
            live_versions.insert(change.uid.clone(), change.version.to_string());
        } else {
            live_versions.remove(&change.uid);
        }
    }
    live_versions
}

fn change(object: &DynamicObject, is_deleted: bool) -> Result<Change, TestkitError> {
    let version = object.resource_version().ok_or("an object has no version")?.parse()?;
    let uid = object.uid().ok_or("an object has no UID")?;
    let (namespace, name) = (object.namespace(), object.name_any());
    Ok(if is_deleted {
        Change::deleted(version, &uid, namespace.as_deref(), &name)
    } else {
        Change::new(version, &uid, namespace.as_deref(), &name, serde_json::to_value(object)?)
    })
}
