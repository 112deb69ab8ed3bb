//! Lists that a real server compresses.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Connection, Diagnostic, InformerFactory, Lazy, Scope};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::support::{EVENT_TIMEOUT, until};

/// Number of objects: enough for a response above 128 KB, which a server compresses (`APIResponseCompression`).
const OBJECTS: usize = 200;
const VALUE_BYTES: usize = 2_000;

/// Returns the bytes that were received on all connections.
fn received_bytes(connection: &Connection) -> u64 {
    connection.connections().iter().map(|connection| connection.received).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_list_equals_plain_list() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    // Requests use the same server under an address that looks like another machine's.
    let mut remote_config = reference.kube_config().await?;
    let port = remote_config.cluster_url.port_u16().ok_or("a port")?;
    remote_config.cluster_url = format!("https://0.0.0.0:{port}").parse()?;
    remote_config.tls_server_name = Some("localhost".to_owned());
    let maps: Api<ConfigMap> = Api::namespaced(reference.connection().await?.client(), "default");
    for number in 0..OBJECTS {
        let text: String = format!("line {number} of a text that is like others; ").repeat(VALUE_BYTES / 45);
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": text}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    for (streamed, protobuf) in [(true, true), (true, false), (false, true), (false, false)] {
        let description = format!("streamed {streamed}, protobuf {protobuf}");
        let remote = Connection::new(remote_config.clone())?;
        let local = reference.connection().await?;
        let mut caches = Vec::new();
        let notes = Arc::new(Mutex::new(Vec::new()));
        for connection in [&remote, &local] {
            let factory = InformerFactory::new(connection);
            let builder = factory.builder::<Lazy<ConfigMap>>(Scope::namespace("default"));
            let informer = builder.streamed_lists(streamed).protobuf(protobuf).start()?;
            let notes = notes.clone();
            informer.on_diagnostic(move |note| notes.lock().push(note.clone()));
            informer.wait_for_sync(EVENT_TIMEOUT).await?;
            caches.push(informer);
        }
        let (compressed, plain) = (received_bytes(&remote), received_bytes(&local));
        assert!(plain > (OBJECTS * VALUE_BYTES) as u64 * 9 / 10, "{description}: {plain} bytes");
        // Each flush of a stream is compressed separately, in the worst case a single event.
        let min_ratio = if streamed { 4 } else { 10 };
        assert!(compressed * min_ratio < plain, "{description}: {compressed} bytes instead of {plain}");
        let notes = notes.lock().split_off(0);
        let read_at_once =
            notes.iter().all(|note| matches!(note, Diagnostic::Synced { .. } | Diagnostic::Resumed { .. }));
        assert!(read_at_once, "{description}: {notes:?}");
        // The stream continues after the list, and its next event must arrive immediately.
        let map = json!({"metadata": {"name": format!("after-{streamed}-{protobuf}")}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
        let contents = |cache: &steadfast::Informer<Lazy<ConfigMap>>| -> Result<Vec<ConfigMap>, TestError> {
            let mut objects = Vec::new();
            for map in cache.lister()?.all() {
                objects.push((*map.get()?).clone());
            }
            Ok(objects)
        };
        let name = format!("after-{streamed}-{protobuf}");
        until("both caches have the last object", || {
            let has_object = |cache: &steadfast::Informer<_>| cache.snapshot().entry(Some("default"), &name).is_some();
            caches.iter().all(has_object)
        })
        .await?;
        assert_eq!(contents(&caches[0])?, contents(&caches[1])?, "{description}");
    }
    Ok(())
}
