//! An operator with a custom resource, owned children, a status, a finalizer, events, leader election, metrics, and its
//! manifests. `cargo run -p steadfast-examples --bin operator` demonstrates it on an embedded cluster. With the argument
//! `--infer` it runs on your cluster, and serves health and metrics at `LISTEN` (`0.0.0.0:8080`).

mod demo;
mod http;
mod operate;
mod site;
#[cfg(test)]
mod tests;

use http::{Metrics, routes};
use operate::operate;
use steadfast::{Connection, InformerFactory};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type ExampleResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
pub(crate) async fn main() -> ExampleResult {
    if !std::env::args().any(|argument| argument == "--infer") {
        return demo::demo().await;
    }
    let connection = Connection::infer().await?;
    let (informers, metrics) = (InformerFactory::new(&connection), Metrics::default());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "0.0.0.0:8080".to_owned());
    let listener = TcpListener::bind(listen).await?;
    tokio::spawn(axum::serve(listener, routes(&informers, &metrics)).into_future());
    // The kubelet sends this signal before it kills the process.
    let mut terminated = signal(SignalKind::terminate())?;
    operate(&informers, &metrics, async { _ = terminated.recv().await }).await?;
    informers.shutdown();
    Ok(())
}
