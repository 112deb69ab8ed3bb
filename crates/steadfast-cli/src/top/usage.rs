//! Processor and memory of pods and nodes, from the API `metrics.k8s.io` of servers that have it.
//!
//! This API has no watch. It is requested periodically while its tab is open. A failed request affects only the two
//! columns: they become empty when their values are too old.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource};
use steadfast_cel::quantity_value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::row::RowKey;

/// Number of columns of the usage. They are the last ones.
pub(super) const USAGE_COLUMNS: usize = 2;

/// Time between two requests. A metrics server measures every 15 s by default.
const PERIOD: Duration = Duration::from_secs(15);

/// Maximum time between two requests after failures.
const MAX_PERIOD: Duration = Duration::from_secs(240);

/// Time after which values without a successful request are removed.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Maximum time of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a response: that of about 100,000 pods.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Usage of one object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    /// Processor, in thousandths of a core; a whole number.
    millicores: f64,
    /// Memory, in units of 2²⁰ bytes; a whole number.
    mebibytes: f64,
}

/// Path of the usage of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsagePath(String);

/// Latest usage of the objects of a resource.
#[derive(Debug, Default)]
pub(super) struct UsageTable {
    usage: Mutex<HashMap<RowKey, Usage>>,
    /// Objects with another usage that the screen has not taken yet.
    changed: Mutex<Vec<RowKey>>,
}

/// Periodic requests, which end when this is dropped.
pub(super) struct UsagePoll(AbortHandle);

impl Drop for UsagePoll {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UsagePath {
    /// Returns the path of the usage of `resource`, or `None` if the server has none. `namespace` restricts pods.
    pub(super) fn find(catalog: &Catalog, resource: &ServedResource, namespace: Option<&str>) -> Option<Self> {
        let api_resource = &resource.api_resource;
        if !api_resource.group.is_empty() {
            return None;
        }
        let path = match (api_resource.plural.as_str(), namespace) {
            ("nodes", _) => "nodes".to_owned(),
            ("pods", None) => "pods".to_owned(),
            ("pods", Some(namespace)) => format!("namespaces/{namespace}/pods"),
            _ => return None,
        };
        match catalog.find(&format!("{}.metrics.k8s.io", api_resource.plural)) {
            // The API has no watch.
            Ok(_) | Err(NotFound::Unwatchable(_)) => Some(Self(format!("/apis/metrics.k8s.io/v1beta1/{path}"))),
            Err(NotFound::Unknown(_)) => None,
        }
    }
}

impl Usage {
    /// Returns the cells of the two columns: `250m` and `512Mi`, with the units of `kubectl top`.
    fn cells(self) -> [String; USAGE_COLUMNS] {
        [format!("{}m", self.millicores), format!("{}Mi", self.mebibytes)]
    }
}

impl UsageTable {
    /// Returns the cells of an object, which are empty without a usage.
    pub(super) fn cells(&self, key: &RowKey) -> [String; USAGE_COLUMNS] {
        let usage = self.usage.lock().get(key).copied();
        usage.map_or_else(Default::default, Usage::cells)
    }

    /// Takes at most `max_objects` objects whose usage has changed.
    pub(super) fn take_changed(&self, max_objects: usize) -> Vec<RowKey> {
        let mut changed = self.changed.lock();
        let kept = changed.len().saturating_sub(max_objects);
        changed.split_off(kept)
    }

    /// Replaces the usage of all objects. Returns whether any has changed.
    fn replace(&self, new: HashMap<RowKey, Usage>) -> bool {
        let mut usage = self.usage.lock();
        let removed = usage.keys().filter(|key| !new.contains_key(*key)).cloned();
        let mut changed: Vec<RowKey> = removed.collect();
        changed.extend(new.iter().filter(|(key, value)| usage.get(*key) != Some(*value)).map(|(key, _)| key.clone()));
        *usage = new;
        drop(usage);
        let has_changed = !changed.is_empty();
        // Without a reader, each object is in this list at most once for each request.
        self.changed.lock().extend(changed);
        has_changed
    }
}

impl UsagePoll {
    /// Starts the requests. `notify` is notified after each change.
    pub(super) fn start(client: kube::Client, path: UsagePath, table: Arc<UsageTable>, notify: Arc<Notify>) -> Self {
        let task = tokio::spawn(async move {
            let (mut period, mut succeeded_at) = (PERIOD, Instant::now());
            loop {
                let new = if let Ok(Ok(usage)) = timeout(REQUEST_TIMEOUT, request(&client, &path)).await {
                    (period, succeeded_at) = (PERIOD, Instant::now());
                    Some(usage)
                } else {
                    period = (period * 2).min(MAX_PERIOD);
                    (succeeded_at.elapsed() > MAX_AGE).then(HashMap::new)
                };
                if new.is_some_and(|usage| table.replace(usage)) {
                    notify.notify_one();
                }
                sleep(period).await;
            }
        });
        Self(task.abort_handle())
    }
}

/// Any error of a request: the columns show no errors.
type UsageError = Box<dyn std::error::Error + Send + Sync>;

async fn request(client: &kube::Client, path: &UsagePath) -> Result<HashMap<RowKey, Usage>, UsageError> {
    let request = hyper::Request::get(&path.0).header("accept", "application/json").body(Body::empty())?;
    let response = client.send(request).await?;
    if !response.status().is_success() {
        return Err(response.status().to_string().into());
    }
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await?.to_bytes();
    parse(&body)
}

/// A `PodMetricsList` or a `NodeMetricsList`.
#[derive(Deserialize)]
struct MetricsList {
    items: Vec<ObjectMetrics>,
}

#[derive(Deserialize)]
struct ObjectMetrics {
    metadata: ObjectName,
    /// Usage of a node.
    usage: Option<Quantities>,
    /// Usage of the containers of a pod.
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ObjectName {
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    usage: Quantities,
}

#[derive(Deserialize)]
struct Quantities {
    cpu: String,
    memory: String,
}

/// Returns the usage of all objects. Objects with values that are not valid quantities are left out.
fn parse(body: &[u8]) -> Result<HashMap<RowKey, Usage>, UsageError> {
    let list: MetricsList = serde_json::from_slice(body)?;
    let usage = list.items.iter().filter_map(|item| {
        let parts = item.usage.iter().chain(item.containers.iter().map(|container| &container.usage));
        let (mut cores, mut bytes) = (0.0, 0.0);
        for part in parts {
            cores += quantity_value(&part.cpu)?;
            bytes += quantity_value(&part.memory)?;
        }
        // kubectl rounds the processor up and the memory down.
        let usage = Usage { millicores: (cores * 1e3).ceil(), mebibytes: (bytes / f64::from(1 << 20)).floor() };
        Some((RowKey::new(&item.metadata.namespace, &item.metadata.name), usage))
    });
    Ok(usage.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(body: &serde_json::Value, key: &RowKey) -> Option<[String; USAGE_COLUMNS]> {
        let usage = parse(body.to_string().as_bytes()).expect("a list");
        usage.get(key).map(|usage| usage.cells())
    }

    #[test]
    fn containers_of_pod_are_added() {
        let containers = json!([
            { "name": "main", "usage": { "cpu": "250m", "memory": "512Mi" } },
            { "name": "sidecar", "usage": { "cpu": "1500001n", "memory": "1048576" } },
        ]);
        let body =
            json!({ "items": [{ "metadata": { "namespace": "shop", "name": "web" }, "containers": containers }] });
        let key = RowKey::new("shop", "web");
        assert_eq!(cells(&body, &key), Some(["252m".to_owned(), "513Mi".to_owned()]));
        let node = json!({ "items": [{ "metadata": { "name": "n1" }, "usage": { "cpu": "2", "memory": "1.5Gi" } }] });
        assert_eq!(cells(&node, &RowKey::new("", "n1")), Some(["2000m".to_owned(), "1536Mi".to_owned()]));
    }

    #[test]
    fn invalid_quantity_affects_one_object() {
        let item =
            |name: &str, cpu: &str| json!({ "metadata": { "name": name }, "usage": { "cpu": cpu, "memory": "1e6" } });
        let body = json!({ "items": [item("a", "many"), item("b", "5Xi"), item("c", "1e3"), item("d", ""), item("e", "1e999")] });
        let usage = parse(body.to_string().as_bytes()).expect("a list");
        assert_eq!(usage.keys().map(RowKey::name).collect::<Vec<_>>(), ["c"]);
        assert_eq!(cells(&body, &RowKey::new("", "c")), Some(["1000000m".to_owned(), "0Mi".to_owned()]));
        assert!(parse(b"{}").is_err());
    }

    #[test]
    fn only_changed_usage_is_reported() {
        let (table, key) = (UsageTable::default(), |name: &str| RowKey::new("shop", name));
        let usage = |millicores| Usage { millicores, mebibytes: 1.0 };
        let map = |entries: &[(&str, f64)]| entries.iter().map(|(name, cpu)| (key(name), usage(*cpu))).collect();
        assert!(table.replace(map(&[("a", 1.0), ("b", 1.0)])));
        assert_eq!(table.take_changed(9).len(), 2);
        assert!(!table.replace(map(&[("a", 1.0), ("b", 1.0)])));
        assert!(table.replace(map(&[("b", 2.0)])));
        let mut changed = table.take_changed(1);
        changed.extend(table.take_changed(9));
        changed.sort_unstable();
        assert_eq!(changed, [key("a"), key("b")]);
        assert_eq!(table.cells(&key("a")), ["", ""]);
        assert_eq!(table.cells(&key("b")), ["2m", "1Mi"]);
    }
}
