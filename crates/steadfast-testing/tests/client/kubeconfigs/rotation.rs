//! Rotation of certificates, keys, authorities and tokens: new requests use the new ones, and open watches continue.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast::Connection;
use steadfast::connection::ConnectError;
use steadfast::environment::SharedEnvironment;
use steadfast::environment::local::{LocalEnvironment, Pipe};
use steadfast::transport::{ConnectionState, ResponseBody, Settings};
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_testing::TestError;

use crate::kubeconfigs::support::{
    Folder, Outcome, PODS, SECRET, base64, config, kubeconfig, list_pods, recorded_request,
};

pub(crate) async fn in_memory(builder: ApiServerBuilder) -> Result<ApiServer, TestError> {
    Ok(builder.in_memory().tls(true).require_credentials().start().await?)
}

/// Returns an environment that contains only `server`, in memory and with this runtime's clock.
pub(crate) fn environment_of(server: &ApiServer) -> SharedEnvironment {
    let dialer = server.dialer();
    Arc::new(LocalEnvironment::new(1, move |host, _| {
        let dialer = dialer.clone();
        Box::pin(async move { Ok(Box::new(Pipe::new(dialer.connect(0).await?, host)) as Box<_>) })
    }))
}

/// Replaces the kubeconfig by one with the credentials of `user`.
fn write_user(folder: &Folder, server: &ApiServer, user: &Value) -> PathBuf {
    folder.write("config.yaml", &kubeconfig(server, &json!({}), user).to_string())
}

async fn watch(connection: &Connection) -> Result<ResponseBody, TestError> {
    let response = connection.send(Request::get(format!("{PODS}?watch=true")).body(Body::empty())?).await?;
    assert_eq!(response.status(), 200);
    Ok(response.into_body())
}

/// Creates a pod, and checks that the open watch delivers its event.
async fn assert_watch_continues(server: &ApiServer, watch_body: &mut ResponseBody, name: &str) -> Outcome {
    server.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }))?;
    let event = watch_body.frame().await.ok_or("the watch has ended")??.into_data().map_err(|_| "no data")?;
    assert!(String::from_utf8_lossy(&event).contains(&format!("\"{name}\"")), "{event:?}");
    Ok(())
}

/// Server, and a connection with an open watch that uses the certificate of `first` from files.
struct CertificateSetup {
    server: ApiServer,
    certificate: PathBuf,
    key: PathBuf,
    connection: Connection,
    watch_body: ResponseBody,
    _folder: Folder,
}

async fn certificate_setup() -> Result<CertificateSetup, TestError> {
    let server = in_memory(ApiServer::builder()).await?;
    let folder = Folder::new();
    let first = server.issue_client_certificate("first")?.ok_or("no TLS")?;
    let certificate = folder.write("client.crt", &first.certificate_pem);
    let key = folder.write("client.key", &first.key_pem);
    let user = json!({"client-certificate": certificate, "client-key": key});
    let file = folder.write("config.yaml", &kubeconfig(&server, &json!({}), &user).to_string());
    let connection = Connection::builder(config(&file, None).await?).environment(environment_of(&server)).build()?;
    let watch_body = watch(&connection).await?;
    Ok(CertificateSetup { server, certificate, key, connection, watch_body, _folder: folder })
}

#[tokio::test(start_paused = true)]
async fn rotated_certificate_is_used_within_minute() -> Outcome {
    let CertificateSetup { server, certificate, key, connection, mut watch_body, _folder } =
        certificate_setup().await?;
    assert_eq!(recorded_request(&connection, &server).await?.user.as_deref(), Some("first"));

    let second = server.issue_client_certificate("second")?.ok_or("no TLS")?;
    fs::write(&certificate, &second.certificate_pem)?;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(
        recorded_request(&connection, &server).await?.user.as_deref(),
        Some("first"),
        "an incomplete rotation must not apply"
    );
    fs::write(&key, &second.key_pem)?;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(recorded_request(&connection, &server).await?.user.as_deref(), Some("second"));
    let states: Vec<_> = connection.connections().iter().map(|report| (report.carries_watches, report.state)).collect();
    // A TLS connection keeps the certificate of its handshake. Its watch continues, and new requests use another
    // connection.
    assert!(states.contains(&(true, ConnectionState::Draining)), "{states:?}");
    assert_watch_continues(&server, &mut watch_body, "told-on-the-old-connection").await?;

    drop(watch_body);
    tokio::time::sleep(Duration::from_secs(70)).await;
    // A draining connection closes after its last stream.
    let connections = connection.connections();
    assert!(connections.iter().all(|report| report.state != ConnectionState::Draining), "{connections:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rejected_certificate_is_reloaded_immediately() -> Outcome {
    let CertificateSetup { server, certificate, key, connection, mut watch_body, _folder } =
        certificate_setup().await?;
    let second = server.issue_client_certificate("second")?.ok_or("no TLS")?;
    server.revoke_client_certificates("first");
    fs::write(&certificate, &second.certificate_pem)?;
    fs::write(&key, &second.key_pem)?;
    assert_eq!(recorded_request(&connection, &server).await?.user.as_deref(), Some("second"));
    assert_watch_continues(&server, &mut watch_body, "still").await?;

    server.revoke_client_certificates("second");
    assert_eq!(list_pods(&connection).await?, 401, "the caller must receive the 401 if no file helps");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rotated_token_is_read_within_minute() -> Outcome {
    let server = in_memory(ApiServer::builder().token(SECRET).token("second")).await?;
    let folder = Folder::new();
    let token = folder.write("token", SECRET);
    let kubeconfig_file = kubeconfig(&server, &json!({}), &json!({"tokenFile": token}));
    let file = folder.write("config.yaml", &kubeconfig_file.to_string());
    let connection = Connection::builder(config(&file, None).await?).environment(environment_of(&server)).build()?;
    let mut watch_body = watch(&connection).await?;
    fs::write(&token, "second\n")?;
    tokio::time::sleep(Duration::from_secs(61)).await;
    server.faults().replace_tokens(&["second"]);
    let requests_before = server.requests().len();
    assert_eq!(list_pods(&connection).await?, 200);
    assert_eq!(server.requests().len(), requests_before + 1, "the file must be read before the request is sent");

    fs::remove_file(&token)?;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(list_pods(&connection).await?, 200, "the last token must be used after the file is deleted");
    assert_watch_continues(&server, &mut watch_body, "through-it-all").await
}

#[tokio::test(start_paused = true)]
async fn rotated_authority_is_trusted_after_failure() -> Outcome {
    let server = in_memory(ApiServer::builder().token(SECRET)).await?;
    let folder = Folder::new();
    let authority = folder.write("ca.crt", &server.ca_pem().ok_or("no TLS")?);
    let kubeconfig_file = kubeconfig(&server, &json!({}), &json!({"token": SECRET}));
    let file = folder.write("config.yaml", &kubeconfig_file.to_string());
    let mut config = config(&file, None).await?;
    config.root_cert_file = Some(authority.clone());
    let connection = Connection::builder(config).environment(environment_of(&server)).build()?;
    let mut watch_body = watch(&connection).await?;
    server.rotate_authority()?;
    let error = list_pods(&connection).await.expect_err("the authority is unknown");
    assert!(error.to_string().contains("certificate-authority"), "{error}");

    fs::write(&authority, server.ca_pem().ok_or("no TLS")?)?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(list_pods(&connection).await?, 200);
    assert_watch_continues(&server, &mut watch_body, "not-cut").await
}

#[tokio::test(start_paused = true)]
async fn loader_runs_on_rejection_and_periodically() -> Outcome {
    let server = Arc::new(in_memory(ApiServer::builder().token("first").token("second")).await?);
    let folder = Folder::new();
    let write = |token: &str| write_user(&folder, &server, &json!({"token": token}));
    let file = write("first");
    let loads = Arc::new(AtomicUsize::new(0));
    let (count, again) = (loads.clone(), file.clone());
    let connection = Connection::builder(config(&file, None).await?)
        .environment(environment_of(&server))
        .loader(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let file = again.clone();
            async move { config(&file, None).await }
        })
        .build()?;
    let mut watch_body = watch(&connection).await?;
    assert_eq!(list_pods(&connection).await?, 200);

    write("second");
    server.faults().replace_tokens(&["second"]);
    assert_eq!(list_pods(&connection).await?, 200, "the token of the changed kubeconfig");
    assert_eq!(loads.load(Ordering::Relaxed), 1);

    server.rotate_authority()?;
    write("second");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(list_pods(&connection).await?, 200, "the authority of the changed kubeconfig");

    write("third");
    server.faults().replace_tokens(&["second", "third"]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    server.faults().replace_tokens(&["third"]);
    let requests_before = server.requests().len();
    assert_eq!(list_pods(&connection).await?, 200);
    assert_eq!(
        server.requests().len(),
        requests_before + 1,
        "the kubeconfig must be loaded before the request is sent"
    );
    assert_watch_continues(&server, &mut watch_body, "to-the-end").await
}

#[tokio::test(start_paused = true)]
async fn panicking_loader_fails_no_request() -> Outcome {
    let server = Arc::new(in_memory(ApiServer::builder().token("first").token("second")).await?);
    let folder = Folder::new();
    let write = |token: &str| write_user(&folder, &server, &json!({"token": token}));
    let file = write("first");
    let (again, broken) = (file.clone(), Arc::new(AtomicBool::new(true)));
    let breaks = broken.clone();
    let connection = Connection::builder(config(&file, None).await?)
        .environment(environment_of(&server))
        .loader(move || {
            assert!(!breaks.load(Ordering::Relaxed), "the loader must fail");
            let file = again.clone();
            async move { config(&file, None).await }
        })
        .build()?;
    write("second");
    server.faults().replace_tokens(&["second"]);
    assert_eq!(list_pods(&connection).await?, 401, "the caller must receive the 401 if no loader helps");
    tokio::time::sleep(Duration::from_secs(301)).await;
    broken.store(false, Ordering::Relaxed);
    server.faults().replace_tokens(&["first", "second"]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    server.faults().replace_tokens(&["second"]);
    let requests_before = server.requests().len();
    assert_eq!(list_pods(&connection).await?, 200);
    assert_eq!(server.requests().len(), requests_before + 1, "the check after the failed one must load the kubeconfig");
    Ok(())
}

/// A resent request uses the current configuration only.
#[tokio::test(start_paused = true)]
async fn resent_request_uses_changed_configuration() -> Outcome {
    let server = Arc::new(in_memory(ApiServer::builder().token("first").token("second")).await?);
    let folder = Folder::new();
    let write = |name: &str| write_user(&folder, &server, &json!({"token": name, "as": name}));
    let file = write("first");
    let again = file.clone();
    let connection = Connection::builder(config(&file, None).await?)
        .environment(environment_of(&server))
        .loader(move || {
            let file = again.clone();
            async move { config(&file, None).await }
        })
        .build()?;
    write("second");
    server.faults().replace_tokens(&["second"]);
    let acted = recorded_request(&connection, &server).await?.impersonation;
    assert_eq!(acted, [("impersonate-user".to_owned(), "second".to_owned())]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn another_server_is_not_followed() -> Outcome {
    let server = in_memory(ApiServer::builder().token(SECRET)).await?;
    let folder = Folder::new();
    let kubeconfig_file = kubeconfig(&server, &json!({}), &json!({"token": SECRET}));
    let file = folder.write("config.yaml", &kubeconfig_file.to_string());
    let mut other = config(&file, None).await?;
    other.cluster_url = "https://another.example".parse()?;
    other.auth_info.token = Some("for-the-other".to_owned().into());
    let connection = Connection::builder(config(&file, None).await?)
        .environment(environment_of(&server))
        .loader(move || {
            let other = other.clone();
            async move { Ok::<_, ConnectError>(other) }
        })
        .build()?;
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(list_pods(&connection).await?, 200, "the request must use the token for this server");
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn plugin_runs_once_for_token_and_certificate() -> Outcome {
    let server = ApiServer::builder().tls(true).require_credentials().token(SECRET).start().await?;
    let folder = Folder::new();
    let calls = folder.path().join("calls");
    let carol = server.issue_client_certificate("carol")?.ok_or("no TLS")?;
    for status in [
        json!({"token": SECRET}),
        json!({"token": SECRET, "clientCertificateData": carol.certificate_pem, "clientKeyData": carol.key_pem}),
    ] {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        let response = folder.write("credential.json", &credential.to_string());
        fs::write(&calls, "")?;
        let plugin = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
            "args": ["-c", "echo >> \"$0\"; cat \"$1\"", calls, response],
        }});
        let kubeconfig_file = kubeconfig(&server, &json!({}), &plugin);
        let one = crate::kubeconfigs::support::connection(&folder, &kubeconfig_file).await?;
        let other = crate::kubeconfigs::support::connection(&folder, &kubeconfig_file).await?;
        assert_eq!((list_pods(&one).await?, list_pods(&other).await?), (200, 200));
        assert_eq!(fs::read_to_string(&calls)?.len(), 1, "connections of one configuration share its credentials");
    }
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn hanging_plugin_runs_once_until_dropped() -> Outcome {
    let server = ApiServer::builder().tls(true).require_credentials().token(SECRET).start().await?;
    let folder = Folder::new();
    let calls = folder.path().join("calls");
    // A token that has expired is renewed before each request.
    let status = json!({"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"});
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    let response = folder.write("credential.json", &credential.to_string());
    // The plugin hangs from the second run on.
    let script = "if [ -s \"$0\" ]; then echo $$ >> \"$0\"; exec sleep 1000; fi; echo first >> \"$0\"; cat \"$1\"";
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
        "args": ["-c", script, calls, response],
    }});
    let file = write_user(&folder, &server, &plugin);
    let within = Duration::from_millis(300);
    let settings = Settings { headers_timeout: within, ..Settings::default() };
    let connection = Connection::builder(config(&file, None).await?).settings(settings).build()?;
    for _ in 0..3 {
        let outcome = list_pods(&connection).await;
        let waited = outcome.is_err_and(|error| error.to_string().contains("no credentials"));
        assert!(waited, "the plugin hangs");
    }
    let hanging =
        || fs::read_to_string(&calls).map(|calls| calls.lines().skip(1).map(str::to_owned).collect::<Vec<_>>());
    while hanging()?.is_empty() {
        tokio::task::yield_now().await;
    }
    let processes = hanging()?;
    assert_eq!(processes.len(), 1, "all requests wait for one process");
    drop(connection);
    while std::path::Path::new("/proc").join(&processes[0]).exists() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn expired_plugin_token_is_renewed() -> Outcome {
    let server = ApiServer::builder().tls(true).require_credentials().token(SECRET).start().await?;
    let folder = Folder::new();
    let calls = folder.path().join("calls");
    let status = json!({"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"});
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    let response = folder.write("credential.json", &credential.to_string());
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
        "args": ["-c", "echo >> \"$0\"; cat \"$1\"", calls, response],
    }});
    let kubeconfig_file =
        kubeconfig(&server, &json!({"certificate-authority-data": base64(&server.ca_pem().ok_or("no TLS")?)}), &plugin);
    let connection = crate::kubeconfigs::support::connection(&folder, &kubeconfig_file).await?;
    let count = || fs::read_to_string(&calls).map(|lines| lines.len());
    let before = count()?;
    assert_eq!(list_pods(&connection).await?, 200);
    assert_eq!(list_pods(&connection).await?, 200);
    assert!(count()? > before + 1, "an expired token must be renewed at each request");
    Ok(())
}
