//! Rejected credentials, and recovery with new ones.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast::Connection;
use steadfast::connection::ConnectError;
use steadfast_apiserver::{ApiServer, ClientIdentity};
use tokio::time::{Instant, sleep};

use crate::kubeconfigs::rotation::{environment_of, in_memory};
use crate::kubeconfigs::support::{Folder, Outcome, PODS, SECRET, config, kubeconfig, list_pods};

/// Slightly longer than the minimum interval of 5 s between reloads after rejected credentials.
const RELOAD_INTERVAL: Duration = Duration::from_secs(6);

/// Sends an upgrade request, which uses an HTTP/1.1 connection of its own, and returns the status code.
async fn exec(connection: &Connection) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
    let request = Request::post(format!("{PODS}/none/exec?command=date"))
        .header("connection", "upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Body::empty())?;
    Ok(connection.send(request).await?.status().as_u16())
}

/// In TLS 1.3 (RFC 8446, section 2), the client completes the handshake before the server verifies the client
/// certificate. The rejection arrives as the first read error.
#[tokio::test(start_paused = true)]
async fn certificate_rejected_after_handshake_is_reloaded() -> Outcome {
    for over_http1 in [false, true] {
        let (server, other) = (in_memory(ApiServer::builder()).await?, in_memory(ApiServer::builder()).await?);
        let folder = Folder::new();
        let foreign_certificate = other.issue_client_certificate("first")?.ok_or("no TLS")?;
        let certificate = folder.write("client.crt", &foreign_certificate.certificate_pem);
        let key = folder.write("client.key", &foreign_certificate.key_pem);
        let user = json!({"client-certificate": certificate, "client-key": key});
        let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &user).to_string());
        let connection =
            Connection::builder(config(&file, None).await?).environment(environment_of(&server)).build()?;
        let send = async || if over_http1 { exec(&connection).await } else { list_pods(&connection).await };
        let error = send().await.expect_err("the authority is unknown").to_string();
        assert!(error.contains("check the client certificate"), "{error}");

        sleep(RELOAD_INTERVAL).await;
        let right = server.issue_client_certificate("second")?.ok_or("no TLS")?;
        fs::write(&certificate, &right.certificate_pem)?;
        fs::write(&key, &right.key_pem)?;
        assert_eq!(send().await?, if over_http1 { 404 } else { 200 }, "the first request must use the new credentials");
    }
    Ok(())
}

#[cfg(unix)]
fn plugin(folder: &Folder, status: &Value) -> Value {
    let output = set_plugin_output(folder, status);
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "interactiveMode": "Never", "args": [output],
    }})
}

/// Sets the plugin's output from now on.
#[cfg(unix)]
fn set_plugin_output(folder: &Folder, status: &Value) -> std::path::PathBuf {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    folder.write("credential.json", &credential.to_string())
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn plugin_certificate_rejected_after_handshake_is_renewed() -> Outcome {
    let (server, other) = (in_memory(ApiServer::builder()).await?, in_memory(ApiServer::builder()).await?);
    let folder = Folder::new();
    let status = |identity: &ClientIdentity| json!({"clientCertificateData": identity.certificate_pem, "clientKeyData": identity.key_pem});
    let foreign_certificate = other.issue_client_certificate("first")?.ok_or("no TLS")?;
    let user = plugin(&folder, &status(&foreign_certificate));
    let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &user).to_string());
    let connection = Connection::builder(config(&file, None).await?).environment(environment_of(&server)).build()?;
    let error = list_pods(&connection).await.expect_err("the authority is unknown").to_string();
    assert!(error.contains("check the client certificate"), "{error}");

    sleep(RELOAD_INTERVAL).await;
    let right = server.issue_client_certificate("second")?.ok_or("no TLS")?;
    set_plugin_output(&folder, &status(&right));
    assert_eq!(list_pods(&connection).await?, 200, "the first request must use the new credentials");
    Ok(())
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn rejected_plugin_token_is_renewed() -> Outcome {
    let server = in_memory(ApiServer::builder().token(SECRET)).await?;
    // The second plugin returns an expired token first, and then a token without an expiration time.
    for first in [json!({"token": "old"}), json!({"token": "old", "expirationTimestamp": "2020-01-01T00:00:00Z"})] {
        let folder = Folder::new();
        let user = plugin(&folder, &first);
        let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &user).to_string());
        let connection =
            Connection::builder(config(&file, None).await?).environment(environment_of(&server)).build()?;
        set_plugin_output(&folder, &json!({"token": SECRET}));
        assert_eq!(list_pods(&connection).await?, 200);
        assert_eq!(list_pods(&connection).await?, 200);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hanging_credential_source_queues_no_requests() -> Outcome {
    let server = Arc::new(in_memory(ApiServer::builder().token("first")).await?);
    let folder = Folder::new();
    let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &json!({"token": "old"})).to_string());
    let connection = Connection::builder(config(&file, None).await?)
        .environment(environment_of(&server))
        .loader(std::future::pending::<Result<kube::Config, ConnectError>>)
        .build()?;
    let start = Instant::now();
    let mut requests = Vec::new();
    for _ in 0..20 {
        let connection = connection.clone();
        requests.push(tokio::spawn(async move { (list_pods(&connection).await, start.elapsed()) }));
        sleep(Duration::from_millis(500)).await;
    }
    for (number, request) in requests.into_iter().enumerate() {
        let (response, after) = request.await?;
        assert_eq!(response?, 401, "without a better credential, the caller must receive the 401");
        // Concurrent requests share one renewal and its timeout, instead of one timeout after the other.
        assert!(after.as_secs() <= 31, "request {number} took {after:?}");
    }
    Ok(())
}
