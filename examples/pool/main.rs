//! The controller of docs/guide-controllers.md, with kube-runtime and with Steadfast:
//! `cargo run -p steadfast-examples --bin pool`.
//!
//! A pool is a config map with the label `pool`. Its `size` is the number of its pods.

mod here;
mod there;
mod wanted;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Children, config_map};

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
pub(crate) async fn main() -> Ended {
    // Embedded clusters for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let running = tokio::spawn(there::run(connection.client()));
    use_it(&server).await?;
    running.abort();
    println!("with kube-runtime, the pool reaches its size");

    let server = ApiServer::start().await?;
    let connection = steadfast_testing::connection(&server).await?;
    let (done, is_done) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(here::run(connection, async { drop(is_done.await) }));
    use_it(&server).await?;
    drop(done);
    running.await??;
    println!("with Steadfast too");
    Ok(())
}

/// Creates a pool, deletes one of its pods and shrinks it.
async fn use_it(server: &ApiServer) -> Ended {
    let mut pool: ConfigMap = config_map("web", "");
    pool.metadata.labels = Some([("pool".to_owned(), String::new())].into());
    pool.data = Some([("size".to_owned(), "3".to_owned())].into());
    server.create(&pool)?;
    let three = pods(server, |pods| pods.len() == 3).await;
    server.delete_named("pods", "default", &three[0])?;
    pods(server, |pods| pods.len() == 3 && !pods.contains(&three[0])).await;
    server.merge_patch("configmaps", "default", "web", json!({ "data": { "size": "1" } }))?;
    let one = pods(server, |pods| pods.len() == 1).await;
    assert!(one[0].starts_with("web-"), "{one:?}");
    Ok(())
}

/// Waits until the pods satisfy the condition, and returns them.
async fn pods(server: &ApiServer, are_well: impl Fn(&[String]) -> bool) -> Vec<String> {
    loop {
        let pods: Vec<_> = Children::of(server, "", "pods").live.into_values().flatten().collect();
        if are_well(&pods) {
            return pods;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
