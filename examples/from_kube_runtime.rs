//! Feeds a `Controller` and a `Store` of kube-runtime from an informer:
//! `cargo run -p steadfast-examples --bin from_kube_runtime`.
//!
//! Code for kube-runtime stays unchanged, except for the source of its stream. The new stream does not end on errors,
//! and delivers missed deletions. The `Store` has a copy of each object. If that needs too much memory, read from the
//! `Lister`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::{WatchStreamExt, reflector, watcher};
use steadfast::{Cacheable, Event, Scope, Watch};
use steadfast_apiserver::ApiServer;
use steadfast_testing::config_map;
use tokio::sync::mpsc;

/// Converts the events of `watch` into those of kube-runtime's `watcher`, for `reflect` and the combinators after it.
fn watcher_of<K: Cacheable + Resource + Clone>(
    mut watch: Watch<K>,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send {
    let started = async move {
        // The initial objects are collected, and forwarded together after the sync. If an object is deleted before the
        // sync, the receiver gets no event for it.
        let mut first = BTreeMap::new();
        let mut synced = Box::pin(watch.until_synced());
        loop {
            let event = tokio::select! {
                biased;
                Some(event) = watch.next() => event,
                _ = &mut synced => break,
            };
            let key = (event.object().namespace(), event.object().name_any());
            match event {
                Event::Deleted { .. } => drop(first.remove(&key)),
                event => drop(first.insert(key, K::clone(event.object()))),
            }
        }
        let first = first.into_values().map(watcher::Event::InitApply);
        let first = [watcher::Event::Init].into_iter().chain(first).chain([watcher::Event::InitDone]);
        let later = watch.map(|event| match event {
            Event::Deleted { last, .. } => watcher::Event::Delete(K::clone(&last)),
            event => watcher::Event::Apply(K::clone(event.object())),
        });
        stream::iter(first).chain(later)
    };
    stream::once(started).flatten().map(Ok)
}

/// Reconcile function of the user, unchanged. It runs for each changed object.
async fn reconcile(
    object: Arc<ConfigMap>,
    seen: Arc<mpsc::UnboundedSender<String>>,
) -> Result<Action, std::convert::Infallible> {
    let value = object.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default();
    let _ = seen.send(format!("{}={value}", object.name_any()));
    Ok(Action::await_change())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // An embedded cluster for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    server.create(&config_map("a", "1"))?;
    let connection = steadfast_testing::connection(&server).await?;

    let (store, writer) = reflector::store();
    // Before: `watcher(api, watcher::Config::default()).default_backoff()`.
    let events = watcher_of(steadfast::watch::<ConfigMap>(&connection, Scope::all())?);
    let changed = events.reflect(writer).applied_objects();
    let (seen, mut reconciled) = mpsc::unbounded_channel();
    let controller = Controller::for_stream(changed, store.clone())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new(seen))
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);

    // Not `store.wait_until_ready()` next to a controller: if several tasks wait, kube-runtime 5.0 may wake only one.
    assert_eq!(reconciled.recv().await.as_deref(), Some("a=1"));
    server.merge_patch("configmaps", "default", "a", serde_json::json!({ "data": { "value": "2" } }))?;
    assert_eq!(reconciled.recv().await.as_deref(), Some("a=2"));

    // Changes during a disconnect are delivered afterwards, including deletions.
    server.faults().cut();
    server.delete_named("configmaps", "default", "a")?;
    server.create(&config_map("b", "1"))?;
    server.faults().heal();
    assert_eq!(reconciled.recv().await.as_deref(), Some("b=1"));
    while store.get(&ObjectRef::new("a").within("default")).is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("the store of kube-runtime contains {} object", store.len());
    assert_eq!(store.len(), 1);

    controller.abort();
    Ok(())
}
