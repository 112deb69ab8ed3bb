//! Clients whose runtime blocks.

use std::pin::pin;
use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use steadfast::{Connection, Freshness, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map, kube_config};
use tokio::runtime::Builder;

/// Number of changes while the runtime is blocked.
const CHANGES: u64 = 500;

/// The runtime blocks with a write in flight. The watch of the same connection continues, and so do other clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_client_runtime_holds_up_no_watch() -> Result<(), TestError> {
    let server = ApiServer::start().await?;
    for name in ["watched", "written"] {
        server.create(&config_map(name, "0"))?;
    }
    let connection = Connection::new(kube_config(&server).await?)?;
    let factory = InformerFactory::new(&connection);
    let config_maps = factory.informer::<ConfigMap>(Scope::all())?;
    factory.wait_for_sync(Duration::from_secs(30)).await?;

    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let maps = Api::<ConfigMap>::namespaced(connection.client_on(runtime.handle()), "default");
    let write = async move |value: &str| {
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        maps.patch("written", &PatchParams::default(), &patch).await
    };
    let (release, release_receiver) = mpsc::channel::<()>();
    let (started, blocked_receiver) = mpsc::channel();
    let writing = runtime.spawn(async move {
        write("1").await?;
        // The second write starts on a thread that blocks before the response can be read.
        let mut second = pin!(write("2"));
        let _ = futures::poll!(second.as_mut());
        started.send(()).expect("the test waits");
        let _ = release_receiver.recv();
        second.await
    });
    tokio::task::spawn_blocking(move || blocked_receiver.recv()).await??;

    let other_client = Api::<ConfigMap>::namespaced(connection.client(), "default");
    for change in 1..=CHANGES {
        let patch = Patch::Merge(json!({ "data": { "value": change.to_string() } }));
        let written = other_client.patch("watched", &PatchParams::default(), &patch).await?;
        config_maps.wait_for(&written).await?;
    }
    assert!(matches!(config_maps.freshness(), Freshness::Fresh { .. }), "{:?}", config_maps.freshness());
    assert!(!writing.is_finished());

    drop(release);
    let written = writing.await??;
    config_maps.wait_for(&written).await?;
    assert_eq!(written.data.unwrap_or_default()["value"], "2");
    runtime.shutdown_background();
    Ok(())
}
