//! Short watches of all resources. The checks `bookmarks` and `changes` evaluate them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use serde_json::Value;
use steadfast::unstable::catalog::ServedResource;
use tokio::time::sleep;

use super::context::CheckContext;
use super::history::current_version;
use super::requests::{RequestError, stream_error, watch};
use crate::changes::manager;

/// Additional time for a watch to end after its timeout.
const END_GRACE: Duration = Duration::from_secs(3);

/// Maximum number of objects whose changes are counted.
const MAX_COUNTED_OBJECTS: usize = 10_000;

/// Observations of one watch.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchSample {
    /// Number of events.
    pub(super) events: usize,
    /// Times of the bookmarks since the start of the watch.
    pub(super) bookmarks: Vec<Duration>,
    /// Changes of each object: `default/web`.
    pub(super) objects: BTreeMap<String, ObjectChanges>,
    /// Duration of the watch.
    pub(super) duration: Duration,
    /// True if the version of the resource rose during the watch, so that a bookmark was due.
    pub(super) has_advanced: bool,
    /// Message of an `ERROR` record.
    pub(super) error: Option<String>,
}

/// Changes of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectChanges {
    pub(super) changes: usize,
    /// Number of changes by field manager.
    pub(super) managers: BTreeMap<String, usize>,
}

/// Watches all resources concurrently for the duration of the sample.
pub(super) async fn collect(context: &CheckContext) -> Vec<(ServedResource, Result<WatchSample, RequestError>)> {
    let samples = context.resources.iter().map(async |resource| (resource.clone(), sample(context, resource).await));
    join_all(samples).await
}

async fn sample(context: &CheckContext, resource: &ServedResource) -> Result<WatchSample, RequestError> {
    // A watch without a version would start with all objects.
    let version = current_version(context, resource).await?;
    let seconds = context.sample.as_secs().max(1);
    let path = format!(
        "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
        context.path(resource)
    );
    let mut sample = WatchSample::default();
    let started = Instant::now();
    let observed = watch(&context.connection, &path, context.sample + END_GRACE, |record| {
        sample.record(&record, started.elapsed());
        if sample.error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // API servers send a last bookmark 2 s before the timeout. A consistent read before that time raises the version of
    // the watch cache, also without a change of this resource.
    let read = async {
        sleep(context.sample.saturating_sub(Duration::from_secs(4))).await;
        current_version(context, resource).await
    };
    let (ended, reached) = join(observed, read).await;
    ended?;
    sample.duration = started.elapsed();
    sample.has_advanced = reached.is_ok_and(|reached| reached != version);
    Ok(sample)
}

impl WatchSample {
    fn record(&mut self, record: &Value, at: Duration) {
        if let Some(RequestError::Status(_, message)) = stream_error(record) {
            self.error = Some(message);
        } else if record["type"] == "BOOKMARK" {
            self.bookmarks.push(at);
        } else {
            self.events += 1;
            let object = &record["object"];
            let name = name(object);
            // Memory stays limited in a cluster with many short-lived objects.
            if self.objects.len() < MAX_COUNTED_OBJECTS || self.objects.contains_key(&name) {
                let changes = self.objects.entry(name).or_default();
                changes.changes += 1;
                if let Some(manager) = manager::latest(object) {
                    *changes.managers.entry(manager.to_owned()).or_default() += 1;
                }
            }
        }
    }
}

/// Returns namespace and name of an object.
pub(super) fn name(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    text("/metadata/namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}
