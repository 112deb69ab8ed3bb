//! Serves caches over HTTP, with `/readyz`: `cargo run -p steadfast-examples --bin readyz`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::{Informer, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::config_map;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns 200 with `ok`, or 503 with the informers that are not synced or not fresh, and the reasons.
async fn readyz(State(informers): State<InformerFactory>) -> (StatusCode, String) {
    let freshness = informers.freshness();
    (freshness.status(), freshness.to_string())
}

/// Returns the names of the config maps in a namespace, from the cache, with their freshness.
async fn names(State(config_maps): State<Informer<ConfigMap>>, Path(namespace): Path<String>) -> (StatusCode, String) {
    match config_maps.lister() {
        Ok(lister) => {
            let names: Vec<_> = lister.namespace(&namespace).iter().map(|object| object.name_any()).collect();
            (StatusCode::OK, format!("{} ({})\n", names.join(" "), lister.freshness()))
        }
        Err(not_synced) => (StatusCode::SERVICE_UNAVAILABLE, format!("{not_synced}\n")),
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    // An embedded cluster for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    server.create(&config_map("settings", "1"))?;
    let connection = steadfast_testing::connection(&server).await?;
    server.faults().cut();

    let informers = InformerFactory::new(&connection);
    let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
    let app = Router::new()
        .route("/readyz", get(readyz))
        .with_state(informers.clone())
        .merge(Router::new().route("/names/{namespace}", get(names)).with_state(config_maps));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // The server starts immediately. Early requests receive 503.
    let serving = tokio::spawn(axum::serve(listener, app).into_future());

    let unready = until(address, "503").await?;
    assert!(unready.contains("configmaps in all namespaces: starting for "), "{unready}");
    server.faults().heal();
    assert!(until(address, "200").await?.ends_with("\r\n\r\nok\n"));
    let found = request(address, "/names/default").await?;
    assert!(found.contains("settings (fresh, proven "), "{found}");
    server.faults().cut();
    println!("{}", until(address, "503").await?);

    serving.abort();
    informers.shutdown();
    Ok(())
}

/// Requests `/readyz` until the response has `status`, and returns that response.
async fn until(address: SocketAddr, status: &str) -> Result<String, Error> {
    loop {
        let response = request(address, "/readyz").await?;
        if response.starts_with(&format!("HTTP/1.1 {status}")) {
            return Ok(response);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn request(address: SocketAddr, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
