//! The controller of docs/guide-controllers.md, with kube-runtime and with Steadfast:
//! `cargo run -p steadfast-examples --bin pool`.
//!
//! A pool is a config map with the label `pool`. Its `size` is the number of its pods.

mod pool_spec;
mod with_kube_runtime;
mod with_steadfast;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Children, config_map};

type Result = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
pub(crate) async fn main() -> Result {
    // Embedded clusters for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let running = tokio::spawn(with_kube_runtime::run(connection.client()));
    exercise_pool(&server).await?;
    running.abort();
    println!("with kube-runtime, the pool reaches its size");

    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(with_steadfast::run(connection, async { drop(stopped.await) }));
    exercise_pool(&server).await?;
    drop(stop);
    running.await??;
    println!("with Steadfast, the pool reaches its size, too");
    Ok(())
}

/// Creates a pool, deletes one of its pods, and shrinks the pool.
async fn exercise_pool(server: &ApiServer) -> Result {
    let mut pool: ConfigMap = config_map("web", "");
    pool.metadata.labels = Some([("pool".to_owned(), String::new())].into());
    pool.data = Some([("size".to_owned(), "3".to_owned())].into());
    server.create(&pool)?;
    let three = wait_for_pods(server, |pods| pods.len() == 3).await;
    server.delete_named("pods", "default", &three[0])?;
    wait_for_pods(server, |pods| pods.len() == 3 && !pods.contains(&three[0])).await;
    server.merge_patch("configmaps", "default", "web", json!({ "data": { "size": "1" } }))?;
    let one = wait_for_pods(server, |pods| pods.len() == 1).await;
    assert!(one[0].starts_with("web-"), "{one:?}");
    Ok(())
}

/// Waits until the pods satisfy the condition, and returns them.
async fn wait_for_pods(server: &ApiServer, condition: impl Fn(&[String]) -> bool) -> Vec<String> {
    loop {
        let pods: Vec<_> = Children::of(server, "", "pods").live.into_values().flatten().collect();
        if condition(&pods) {
            return pods;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
