//! Servers, folders and kubeconfigs for these tests.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast::Connection;
use steadfast::connection::{ConnectError, KubeconfigFiles};
use steadfast_apiserver::{ApiServer, RequestRecord};

pub(crate) type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// Secret that no message may contain.
pub(crate) const SECRET: &str = "hunter2-planted";

/// Temporary folder of one test, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("steadfast-kubeconfigs-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Returns a kubeconfig for `server` with these fields of the cluster and this user. A `null` removes a field.
pub(crate) fn kubeconfig(server: &ApiServer, cluster: &Value, user: &Value) -> Value {
    let mut kubeconfig_file = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server.url(0)}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    });
    if let Some(pem) = server.ca_pem() {
        kubeconfig_file["clusters"][0]["cluster"]["certificate-authority-data"] = base64(&pem).into();
    }
    for (key, value) in cluster.as_object().expect("an object") {
        if value.is_null() {
            kubeconfig_file["clusters"][0]["cluster"].as_object_mut().expect("an object").remove(key);
        } else {
            kubeconfig_file["clusters"][0]["cluster"][key] = value.clone();
        }
    }
    kubeconfig_file
}

pub(crate) fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns the configuration of the kubeconfig in `file`, for its current context or for `context`.
pub(crate) async fn config(file: &Path, context: Option<&str>) -> Result<kube::Config, ConnectError> {
    KubeconfigFiles::from_path(file).read()?.config(context)
}

/// Writes the kubeconfig `content` to a file in `folder`, and returns a connection with it.
pub(crate) async fn connection(folder: &Folder, content: &Value) -> Result<Connection, ConnectError> {
    let file = folder.write("config.yaml", &content.to_string());
    let config = config(&file, None).await?;
    tokio::task::spawn_blocking(|| Connection::new(config)).await.expect("no panic")
}

/// Lists pods, and returns the status code.
pub(crate) async fn list_pods(connection: &Connection) -> Result<u16, Box<dyn Error + Send + Sync>> {
    let response = connection.send(Request::get(PODS).body(Body::empty())?).await?;
    let code = response.status().as_u16();
    response.into_body().collect().await?;
    Ok(code)
}

/// Lists pods successfully, and returns the server's record of the request.
pub(crate) async fn recorded_request(
    connection: &Connection,
    server: &ApiServer,
) -> Result<RequestRecord, Box<dyn Error + Send + Sync>> {
    assert_eq!(list_pods(connection).await?, 200);
    Ok(server.requests().pop().ok_or("no request")?)
}
