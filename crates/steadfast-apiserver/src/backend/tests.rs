//! A read-only backend behind the HTTP front end: a recording of config maps, replayed up to a position.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Backend, ChangeBatch, ChangesQuery, ListPage, ListQuery, WatchPosition};
use crate::resources::{GroupResource, Registry, ServedResource};
use crate::server::ApiServer;
use crate::signal::Signal;
use crate::status::Status;
use crate::storage::{Change, ObjectKey};

/// Oldest revision of the recording.
const OLDEST_REVISION: u64 = 10;
const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Debug)]
struct Recording {
    registry: Registry,
    /// All changes of config maps, oldest first.
    changes: Vec<Arc<Change>>,
    /// Revision up to which the recording is replayed.
    position: AtomicU64,
    changed: Signal,
}

fn config_map(name: &str, value: u64, revision: u64) -> Arc<Value> {
    let metadata = json!({
        "name": name, "namespace": "default", "uid": name, "resourceVersion": revision.to_string(),
        "labels": {"name": name},
    });
    Arc::new(json!({"metadata": metadata, "data": {"value": value.to_string()}}))
}

impl Recording {
    /// Records `a`, `b` and `c` at the revisions 11 to 13, a change of `b` at 14, and the deletion of `a` at 15.
    /// Replays the first four changes.
    fn new(changed: Signal) -> Self {
        let resource = GroupResource::new("", "configmaps");
        let change = |revision, name: &str, object: Option<u64>, previous: Option<u64>| {
            let object = object.map(|value| config_map(name, value, revision));
            let previous = previous.map(|value| config_map(name, value, revision - 1));
            Arc::new(Change::new(revision, resource.clone(), ("default", name), object, previous))
        };
        let history = vec![
            change(11, "a", Some(1), None),
            change(12, "b", Some(1), None),
            change(13, "c", Some(1), None),
            change(14, "b", Some(2), Some(1)),
            change(15, "a", None, Some(1)),
        ];
        Self { registry: Registry::with_declared(&[]), changes: history, position: AtomicU64::new(14), changed }
    }

    fn replay_to(&self, revision: u64) {
        self.position.store(revision, Ordering::SeqCst);
        self.changed.raise();
    }

    /// Returns the objects at a revision, ordered by key.
    fn objects(&self, revision: u64) -> BTreeMap<ObjectKey, Arc<Change>> {
        let mut objects = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.revision <= revision) {
            let key = ObjectKey::new(change.namespace.as_deref().unwrap_or_default(), &change.name);
            match change.object {
                Some(_) => objects.insert(key, Arc::clone(change)),
                None => objects.remove(&key),
            };
        }
        objects
    }
}

fn is_recorded(resource: &ServedResource) -> bool {
    resource.name.group().is_empty() && resource.name.resource() == "configmaps"
}

impl Backend for Recording {
    fn registry(&self) -> Registry {
        self.registry.clone()
    }

    fn resource(&self, name: &GroupResource) -> Option<Arc<ServedResource>> {
        self.registry.get(name).cloned()
    }

    fn newest_revision(&self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    fn cached_revision(&self) -> u64 {
        self.newest_revision()
    }

    fn oldest_revision(&self) -> u64 {
        OLDEST_REVISION
    }

    fn confirm_newest_revision(&self) -> BoxFuture<'_, Result<(), Status>> {
        ready(Ok(())).boxed()
    }

    fn object<'a>(
        &'a self,
        resource: &'a ServedResource,
        key: &'a ObjectKey,
        revision: u64,
    ) -> BoxFuture<'a, Result<Option<Arc<Change>>, Status>> {
        let found = self.objects(revision).remove(key).filter(|_| is_recorded(resource));
        // A backend may have to wait, for example for a disk.
        async move {
            tokio::task::yield_now().await;
            Ok(found)
        }
        .boxed()
    }

    fn list<'a>(&'a self, query: ListQuery<'a>) -> BoxFuture<'a, Result<ListPage, Status>> {
        async move {
            tokio::task::yield_now().await;
            let objects = self.objects(query.revision);
            let in_namespace = objects.range((query.start, Bound::Unbounded));
            let in_namespace =
                in_namespace.filter(|(key, _)| query.namespace.is_none_or(|namespace| key.namespace == namespace));
            Ok(ListPage::select(in_namespace.filter(|_| is_recorded(query.resource)), query.limit, query.selector))
        }
        .boxed()
    }

    fn resume(&self, _: &ServedResource, revision: u64, _: usize) -> Result<WatchPosition, Status> {
        if revision < OLDEST_REVISION {
            return Err(Status::too_old_resource_version(revision, OLDEST_REVISION));
        }
        Ok(WatchPosition { after_revision: revision, bookmark_floor: revision })
    }

    fn restarts(&self) -> u64 {
        0
    }

    fn changes(&self, query: &ChangesQuery<'_>) -> ChangeBatch {
        let position = self.newest_revision();
        let pending =
            self.changes.iter().filter(|change| (query.after_revision + 1..=position).contains(&change.revision));
        let mut changes: Vec<_> = pending.filter(|_| is_recorded(query.resource)).cloned().collect();
        let remaining = changes.len().saturating_sub(query.limit);
        changes.truncate(query.limit);
        let cursor = changes.last().filter(|_| remaining > 0).map_or(position, |last| last.revision);
        ChangeBatch { changes, cursor, remaining, has_ended: false }
    }
}

struct Fixture {
    server: ApiServer,
    recording: Arc<Recording>,
}

impl Fixture {
    async fn start() -> Self {
        let started_recording = Mutex::new(None);
        let server = ApiServer::builder().in_memory().start_with(|_, _, changed| {
            let recording = Arc::new(Recording::new(changed.clone()));
            *started_recording.lock() = Some(Arc::clone(&recording));
            recording
        });
        let server = server.await.expect("a server");
        let recording = started_recording.lock().take().expect("a recording");
        Self { server, recording }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Incoming> {
        let stream = self.server.connect(0).await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::<Bytes>::from(body.to_string())).expect("a request");
        sender.send_request(request).await.expect("a response")
    }

    async fn get(&self, path: &str, accept: &str) -> (u16, Value) {
        let response = self.send(Method::GET, path, &[("accept", accept)], &Value::Null).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
        (code, serde_json::from_slice(&bytes).expect("a body in JSON"))
    }

    async fn list(&self, query: &str) -> Value {
        let (code, list) = self.get(&format!("{CONFIG_MAPS_PATH}?{query}"), "application/json").await;
        assert_eq!(code, 200, "{list}");
        list
    }

    async fn watch(&self, query: &str) -> Events {
        let path = format!("{CONFIG_MAPS_PATH}?watch=true&{query}");
        let response = self.send(Method::GET, &path, &[], &Value::Null).await;
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), pending: Vec::new() }
    }
}

struct Events {
    body: Incoming,
    pending: Vec<u8>,
}

impl Events {
    /// Returns the next event as its type, its object's name and its version.
    async fn next(&mut self) -> (String, String, String) {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event in JSON");
                let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                return (text("/type"), text("/object/metadata/name"), text("/object/metadata/resourceVersion"));
            }
            let frame = self.body.frame().await.expect("an open stream").expect("an intact stream");
            self.pending.extend_from_slice(&frame.into_data().expect("data"));
        }
    }

    async fn expect(&mut self, kind: &str, name: &str, version: &str) {
        assert_eq!(self.next().await, (kind.to_owned(), name.to_owned(), version.to_owned()));
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_serves_lists_and_pages() {
    let fixture = Fixture::start().await;
    let list = fixture.list("").await;
    assert_eq!((names(&list), &list["metadata"]["resourceVersion"]), (vec!["a", "b", "c"], &json!("14")));
    assert_eq!(list["items"][1]["data"]["value"], "2");
    let earlier = fixture.list("resourceVersion=12&resourceVersionMatch=Exact").await;
    assert_eq!((names(&earlier), &earlier["items"][1]["data"]["value"]), (vec!["a", "b"], &json!("1")));
    assert_eq!(names(&fixture.list("labelSelector=name%3Dc").await), ["c"]);
    let page = fixture.list("limit=2").await;
    assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(1)));
    // The recording continues, but the pages show one revision.
    fixture.recording.replay_to(15);
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let rest = fixture.list(&format!("limit=2&continue={token}")).await;
    assert_eq!((names(&rest), &rest["metadata"]["resourceVersion"]), (vec!["c"], &json!("14")));
    assert_eq!(names(&fixture.list("").await), ["b", "c"]);
    let (code, expired) =
        fixture.get(&format!("{CONFIG_MAPS_PATH}?resourceVersion=9&resourceVersionMatch=Exact"), "").await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_serves_single_objects() {
    let fixture = Fixture::start().await;
    let (code, object) = fixture.get(&format!("{CONFIG_MAPS_PATH}/b"), "").await;
    assert_eq!((code, &object["kind"], &object["data"]["value"]), (200, &json!("ConfigMap"), &json!("2")));
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS_PATH}/x"), "").await.0, 404);
    assert_eq!(fixture.get("/api/v1/namespaces/default/pods/b", "").await.0, 404);
    let (code, resources) = fixture.get("/api/v1", "").await;
    let listed = resources["resources"].as_array().expect("resources");
    assert!(code == 200 && listed.iter().any(|resource| resource["name"] == "configmaps"), "{resources}");
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_serves_tables() {
    let fixture = Fixture::start().await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (code, table) = fixture.get(CONFIG_MAPS_PATH, accept).await;
    assert_eq!((code, &table["kind"], &table["metadata"]["resourceVersion"]), (200, &json!("Table"), &json!("14")));
    let rows: Vec<_> = table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(rows, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_serves_watches() {
    let fixture = Fixture::start().await;
    let mut events = fixture.watch("resourceVersion=12").await;
    events.expect("ADDED", "c", "13").await;
    events.expect("MODIFIED", "b", "14").await;
    fixture.recording.replay_to(15);
    events.expect("DELETED", "a", "15").await;
    let mut selected = fixture.watch("resourceVersion=10&labelSelector=name%3Db&allowWatchBookmarks=true").await;
    selected.expect("ADDED", "b", "12").await;
    selected.expect("MODIFIED", "b", "14").await;
    selected.expect("BOOKMARK", "", "15").await;
    let mut expired = fixture.watch("resourceVersion=9").await;
    assert_eq!(expired.next().await.0, "ERROR");
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_serves_streamed_lists() {
    let fixture = Fixture::start().await;
    let options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = fixture.watch(options).await;
    for (name, version) in [("a", "11"), ("b", "14"), ("c", "13")] {
        events.expect("ADDED", name, version).await;
    }
    events.expect("BOOKMARK", "", "14").await;
    fixture.recording.replay_to(15);
    events.expect("DELETED", "a", "15").await;
}

#[tokio::test(start_paused = true)]
async fn read_only_backend_rejects_writes() {
    let fixture = Fixture::start().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let existing = format!("{CONFIG_MAPS_PATH}/a");
    let existing = existing.as_str();
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let eviction = "/api/v1/namespaces/default/pods/p/eviction";
    for (method, path, media_suffix) in [
        (Method::POST, CONFIG_MAPS_PATH, "json"),
        (Method::PUT, existing, "json"),
        (Method::PATCH, existing, "merge-patch+json"),
        (Method::DELETE, existing, "json"),
        (Method::DELETE, CONFIG_MAPS_PATH, "json"),
        (Method::PUT, scale, "json"),
        (Method::POST, eviction, "json"),
    ] {
        let content_type = format!("application/{media_suffix}");
        let response = fixture.send(method.clone(), path, &[("content-type", &content_type)], &object).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
        let status: Value = serde_json::from_slice(&bytes).expect("a status");
        assert_eq!((code, &status["reason"]), (405, &json!("MethodNotAllowed")), "{method} {path}: {status}");
        assert!(status["message"].as_str().is_some_and(|message| message.contains("read-only")), "{status}");
    }
    assert_eq!(names(&fixture.list("").await), ["a", "b", "c"]);
}
