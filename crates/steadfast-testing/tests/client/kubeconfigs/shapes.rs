//! Hundreds of kubeconfigs for kubectl and the library: if kubectl connects, the library must connect as well.
//!
//! The kubeconfigs are generated from variants of clusters, users and whole files, and from their combinations. Both
//! clients list the config maps of the default namespace, so that a wrong namespace is detected as well.

mod clusters;
mod files;
mod permissive_server;
mod users;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast::Connection;
use steadfast::connection::KubeconfigFiles;
use steadfast::environment::SharedEnvironment;
use steadfast::environment::threads::ThreadedEnvironment;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, ClientIdentity};
use steadfast_testing::reference::{kubectl, skip};

use crate::kubeconfigs::support::{Folder, Outcome, SECRET, kubeconfig};

/// Minimum number of shapes. Without this check, a broken generator could compare nothing and succeed.
const MIN_SHAPES: usize = 240;
/// Minimum number of shapes with which kubectl connects.
const MIN_CONNECTED: usize = 220;

/// Intended differences from kubectl, by the prefix of the shape's name.
const DEVIATIONS: &[(&str, &str)] = &[
    ("key: P-521", "`ring` cannot sign with this curve; the error names it, and the feature `aws-lc-rs` can"),
    (
        "plain: unreadable",
        "kubectl sends no credentials without TLS, and so reads none; the library sends them, as `kube` does",
    ),
];

/// Kubeconfig of one or several files.
pub(crate) struct Shape {
    name: String,
    /// Name and content of each file.
    files: Vec<(String, Vec<u8>)>,
    /// Files in `KUBECONFIG`. Relative names are in the folder of the shape.
    listed_files: Vec<String>,
    /// True if the server requests a client certificate and accepts any.
    requests_certificate: bool,
}

impl Shape {
    fn from_text(name: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            files: vec![("config".to_owned(), text.into())],
            listed_files: vec!["config".to_owned()],
            requests_certificate: false,
        }
    }

    /// Creates a shape from JSON, which is YAML in flow style.
    fn from_json(name: impl Into<String>, kubeconfig: &Value) -> Self {
        Self::from_text(name, kubeconfig.to_string())
    }

    fn with_file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), content.into()));
        self
    }

    fn with_listed_files(mut self, names: &[&str]) -> Self {
        self.listed_files = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Writes the files below `folder`, and returns the value of `KUBECONFIG`.
    fn write(&self, folder: &Path) -> OsString {
        fs::create_dir_all(folder).expect("a folder");
        for (name, content) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder of its own")).expect("a folder");
            fs::write(&path, content).expect("a file");
            #[cfg(unix)]
            if path.extension().is_some_and(|extension| extension == "sh") {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
            }
        }
        let paths =
            self.listed_files.iter().map(|name| if name.is_empty() { PathBuf::new() } else { folder.join(name) });
        std::env::join_paths(paths).expect("paths without separators")
    }
}

/// Files and servers to which the shapes refer.
pub(crate) struct ShapeFixtures {
    server: ApiServer,
    /// URL of the server that accepts any certificate.
    permissive_url: String,
    authority: String,
    carol: ClientIdentity,
    /// Server without TLS and without authentication.
    plain_server: ApiServer,
}

impl ShapeFixtures {
    fn kubeconfig_with(&self, cluster: &Value, user: &Value) -> Value {
        kubeconfig(&self.server, cluster, user)
    }

    fn valid_kubeconfig(&self) -> Value {
        self.kubeconfig_with(&json!({}), &json!({"token": SECRET}))
    }
}

async fn fixtures() -> Result<ShapeFixtures, Box<dyn std::error::Error + Send + Sync>> {
    let server =
        ApiServer::builder().tls(true).require_credentials().token(SECRET).user("basil", SECRET).start().await?;
    let plain_server = ApiServer::start().await?;
    plain_server.create(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain", "namespace": "default"}}),
    )?;
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-default", "namespace": "default"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-shop", "namespace": "shop"}}),
    ] {
        server.create(&object)?;
    }
    let carol = server.issue_client_certificate("carol")?.ok_or("no TLS")?;
    let authority = server.ca_pem().ok_or("no TLS")?;
    let permissive_url = permissive_server::start(&carol).await?;
    Ok(ShapeFixtures { server, permissive_url, authority, carol, plain_server })
}

/// Returns kubectl's result with this `KUBECONFIG`: the names of config maps, or its error.
fn by_kubectl(
    kubectl: &Path,
    home: &Path,
    kubeconfig: &OsString,
    requests_certificate: bool,
) -> Result<String, String> {
    let mut command = Command::new(kubectl);
    let arguments: &[&str] =
        if requests_certificate { &["get", "--raw", "/version"] } else { &["get", "configmaps", "-o", "name"] };
    command.args(arguments).arg("--request-timeout=10s").env("HOME", home).env("KUBECONFIG", kubeconfig);
    // A proxy of the machine must not affect the comparison.
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns the library's result with this `KUBECONFIG`.
async fn by_library(
    environment: SharedEnvironment,
    kubeconfig: &OsString,
    requests_certificate: bool,
) -> Result<String, String> {
    let kubeconfig_list = kubeconfig.clone();
    let connection = tokio::task::spawn_blocking(move || {
        let config = KubeconfigFiles::from_list(&kubeconfig_list).read()?.config(None)?;
        let timeout = Duration::from_secs(10);
        let settings = Settings { connect_timeout: timeout, headers_timeout: timeout, ..Settings::default() };
        Connection::builder(config).environment(environment).settings(settings).build()
    });
    let connection = connection.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if requests_certificate {
        let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
        let response = connection.send(request).await.map_err(|error| error.to_string())?;
        return if response.status() == 200 { Ok("{}".to_owned()) } else { Err(response.status().to_string()) };
    }
    let maps: Api<ConfigMap> = Api::namespaced(connection.client(), connection.default_namespace());
    let maps = maps.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let names = maps.items.iter().filter_map(|map| map.metadata.name.as_deref());
    Ok(names.map(|name| format!("configmap/{name}")).collect::<Vec<_>>().join("\n"))
}

/// Returns kubectl's result for each of `lists`, from a few concurrent processes.
fn all_by_kubectl(kubectl: &Path, home: &Path, lists: &[(OsString, bool)]) -> Vec<Result<String, String>> {
    let next_index = AtomicUsize::new(0);
    let mut results: Vec<(usize, Result<String, String>)> = std::thread::scope(|scope| {
        let work = || {
            let mut results = Vec::new();
            while let Some((index, (list, requests_certificate))) =
                lists.iter().enumerate().nth(next_index.fetch_add(1, Ordering::Relaxed))
            {
                results.push((index, by_kubectl(kubectl, home, list, *requests_certificate)));
            }
            results
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kubeconfig_of_kubectl_connects() -> Outcome {
    let Some(kubectl) = kubectl()? else { return Ok(skip("there is no kubectl; $KUBECTL names one")?) };
    let fixtures = fixtures().await?;
    let shapes: Vec<Shape> = [clusters::shapes(&fixtures), users::shapes(&fixtures), files::shapes(&fixtures)]
        .into_iter()
        .flatten()
        .collect();
    let folder = Folder::new();
    let home = folder.path().join("home");
    fs::create_dir_all(&home)?;
    let lists: Vec<(OsString, bool)> = shapes
        .iter()
        .enumerate()
        .map(|(number, shape)| (shape.write(&folder.path().join(number.to_string())), shape.requests_certificate))
        .collect();

    let queried_lists = lists.clone();
    let kubectl_results = tokio::task::spawn_blocking(move || all_by_kubectl(&kubectl, &home, &queried_lists));
    let environment: SharedEnvironment = Arc::new(ThreadedEnvironment::new()?);
    let mut library_results = Vec::new();
    for (list, requests_certificate) in &lists {
        library_results.push(by_library(environment.clone(), list, *requests_certificate).await);
    }
    let kubectl_results = kubectl_results.await?;

    let mut problems = Vec::new();
    for ((shape, kubectl_result), library_result) in shapes.iter().zip(&kubectl_results).zip(&library_results) {
        let deviation = DEVIATIONS.iter().find(|(name, _)| shape.name.starts_with(name));
        match (kubectl_result, library_result, deviation) {
            (Ok(kubectl_names), Ok(library_names), None) if kubectl_names == library_names => {}
            // An error of kubectl permits either result: the library may be more tolerant.
            (Ok(_), Err(_), Some(_)) | (Err(_), _, None) => {}
            _ => problems.push(format!("{}: kubectl {kubectl_result:?}, library {library_result:?}", shape.name)),
        }
        if let Err(error) = library_result {
            assert!(!error.contains(SECRET), "{}: {error}", shape.name);
        }
    }
    assert!(problems.is_empty(), "{} of {} shapes differ:\n{}", problems.len(), shapes.len(), problems.join("\n"));
    let connected_count = kubectl_results.iter().filter(|result| result.is_ok()).count();
    assert!(shapes.len() >= MIN_SHAPES, "only {} shapes", shapes.len());
    assert!(connected_count >= MIN_CONNECTED, "kubectl connects with only {connected_count} of {}", shapes.len());
    Ok(())
}
