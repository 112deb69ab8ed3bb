//! Runs a server until interrupted: `cargo run -p steadfast-apiserver --example serve -- KUBECONFIG`.

use steadfast_apiserver::ApiServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("missing argument: the path of the kubeconfig to write")?;
    let server = ApiServer::builder().tls(true).token("embedded").start().await?;
    std::fs::write(&path, server.kubeconfig())?;
    println!("serving on {}: kubectl --kubeconfig {path} get namespaces", server.url(0));
    tokio::signal::ctrl_c().await?;
    Ok(())
}
