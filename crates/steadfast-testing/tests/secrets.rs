//! No output contains a secret: logs of all crates at `trace`, errors with their causes, `Debug` text, diagnostics and
//! metrics, also with `kube` on our connections. The embedded server logs in the same process, and its logs are
//! searched too.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::io::Write;
use std::sync::Once;
use std::time::Duration;

use base64::Engine;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use steadfast::connection::WithheldResponse;
use steadfast::metrics::Metrics;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, BodyCorruption, RequestRule};
use steadfast_testing::{TestError, kube_config};

type Outcome = Result<(), TestError>;

const TIMEOUT: Duration = Duration::from_secs(30);

const TOKEN: &str = "planted-bearer-token";
const STALE_TOKEN: &str = "planted-stale-token";
const PLUGIN_TOKEN: &str = "planted-plugin-token";
const LOGIN_PASSWORD: &str = "planted-login-password";
const PROXY_PASSWORD: &str = "planted-proxy-password";
/// Content of a secret, as plain text and in the server's encoding.
const SECRET_CONTENT: [&str; 2] = ["planted-password", "cGxhbnRlZC1wYXNzd29yZA=="];

/// All output: logs, and the messages that the tests add.
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// The tests share the output, so they run one at a time.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct OutputWriter;

fn output() -> MutexGuard<'static, Vec<u8>> {
    OUTPUT.lock()
}

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        output().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `rustls` uses `log`, not `tracing`.
impl log::Log for OutputWriter {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        writeln!(Self, "{} {}: {}", record.level(), record.target(), record.args()).expect("the write succeeds");
    }

    fn flush(&self) {}
}

/// Captures the logs of all targets from here on.
fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let all_targets = tracing_subscriber::EnvFilter::new("trace");
        tracing_subscriber::fmt().with_env_filter(all_targets).with_ansi(false).with_writer(|| OutputWriter).init();
        log::set_logger(&OutputWriter).expect("no other logger");
        log::set_max_level(log::LevelFilter::Trace);
    });
    output().clear();
}

fn write_debug(value: &(impl Debug + ?Sized)) {
    writeln!(OutputWriter, "{value:?}\n{value:#?}").expect("the write succeeds");
}

fn write_error(error: &(dyn Error + 'static)) {
    let mut next = Some(error);
    while let Some(error) = next {
        writeln!(OutputWriter, "{error}\n{error:?}\n{error:#?}").expect("the write succeeds");
        next = error.source();
    }
}

fn write_text(value: &impl Display) {
    writeln!(OutputWriter, "{value}").expect("the write succeeds");
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns the entries of `planted` that occur in `text`: as plain text, in base64, or as a formatted list of bytes.
fn planted_in<'a>(planted: &[&'a str], text: &str) -> Vec<&'a str> {
    let bytes = |value: &str| value.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    let found = |value: &&&str| text.contains(**value) || text.contains(&base64(value)) || text.contains(&bytes(value));
    planted.iter().filter(found).copied().collect()
}

fn leaked_secrets(text: &str) -> Vec<&'static str> {
    let mut leaks = planted_in(
        &[TOKEN, STALE_TOKEN, PLUGIN_TOKEN, LOGIN_PASSWORD, PROXY_PASSWORD, SECRET_CONTENT[0], SECRET_CONTENT[1]],
        text,
    );
    for (user, password) in [("admin", LOGIN_PASSWORD), ("user", PROXY_PASSWORD)] {
        if text.contains(&base64(&format!("{user}:{password}"))) {
            leaks.push(password);
        }
    }
    leaks
}

/// Checks that the output contains none of the planted secrets and none of `additional`.
#[track_caller]
fn assert_no_leak_of(additional: &[&str]) {
    let text = String::from_utf8_lossy(&output()).into_owned();
    assert!(text.contains("TRACE") && text.contains("DEBUG"), "logs must be captured: {text}");
    for line in text.lines() {
        assert_eq!((leaked_secrets(line), planted_in(additional, line)), (vec![], vec![]), "in: {line}");
    }
    // A value may be split across lines, as `{:#?}` splits lists of bytes.
    let joined = text.replace('\n', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((leaked_secrets(&joined), planted_in(additional, &joined)), (vec![], vec![]), "split across lines");
}

#[track_caller]
fn assert_no_leak() {
    assert_no_leak_of(&[]);
}

fn secret(name: &str) -> Secret {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
        "data": {"password": SECRET_CONTENT[1]},
    });
    serde_json::from_value(secret).expect("a secret")
}

async fn server() -> Result<(ApiServer, Connection), TestError> {
    capture_logs();
    let server = ApiServer::builder().tls(true).token(TOKEN).user("admin", LOGIN_PASSWORD).start().await?;
    server.create(&secret("db"))?;
    let connection = Connection::new(kube_config(&server).await?)?;
    Ok((server, connection))
}

/// Returns the server's own kubeconfig with another user and additional fields of the cluster.
async fn config(server: &ApiServer, user: Value, cluster: &Value) -> Result<kube::Config, TestError> {
    let mut file = Kubeconfig::from_yaml(&server.kubeconfig())?;
    file.auth_infos[0].auth_info = serde_json::from_value(user)?;
    let mut changed = serde_json::to_value(&file.clusters[0].cluster)?;
    for (key, value) in cluster.as_object().expect("an object") {
        changed[key] = value.clone();
    }
    file.clusters[0].cluster = serde_json::from_value(changed)?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Requests a secret without success, with `kube` and with an informer, and records all messages.
async fn request_fails(config: kube::Config) -> Outcome {
    let builder = Connection::builder(config);
    let connection = match builder.build() {
        Ok(connection) => connection,
        Err(error) => {
            write_error(&error);
            return Ok(());
        }
    };
    let request = Api::<Secret>::namespaced(connection.client(), "default");
    // An unreachable server is retried until the timeout.
    match tokio::time::timeout(Duration::from_secs(2), request.get("db")).await {
        Ok(response) => write_error(&response.expect_err("the request must fail")),
        Err(error) => write_error(&error),
    }
    let informer = InformerFactory::new(&connection).informer::<Secret>(Scope::all())?;
    informer.on_diagnostic(|note| write_text(&format!("{note} {note:?}")));
    let error = informer.wait_for_sync(Duration::from_millis(300)).await.expect_err("the request must fail");
    write_error(&error);
    write_debug(&informer.freshness());
    write_text(&informer.freshness());
    write_connection(&connection)
}

fn write_connection(connection: &Connection) -> Outcome {
    write_debug(connection);
    write_debug(&connection.connections());
    write_debug(&connection.recently_closed());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics::new([connection])));
    let mut metrics = String::new();
    encode(&mut metrics, &registry)?;
    assert!(metrics.contains("steadfast_connections"), "{metrics}");
    write_text(&metrics);
    Ok(())
}

#[tokio::test]
async fn search_finds_planted_secrets_in_all_logs() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (_server, connection) = server().await?;
    // `kube` cannot decode the response as a number, and logs the whole response.
    let request = Request::get("/api/v1/namespaces/default/secrets/db").body(Vec::new())?;
    connection.client().request::<u32>(request).await.expect_err("the response is not a number");
    let text = String::from_utf8_lossy(&output()).into_owned();
    assert!(leaked_secrets(&text).contains(&SECRET_CONTENT[1]));
    for target in ["kube_client::client", "h2::", "rustls::", "steadfast::"] {
        assert!(text.contains(target), "{target} must be captured");
    }
    assert_eq!(leaked_secrets(&format!("{:?}", SECRET_CONTENT[0].as_bytes())), [SECRET_CONTENT[0]]);
    assert!(leaked_secrets(&base64(&format!("user:{PROXY_PASSWORD}"))).contains(&PROXY_PASSWORD));
    assert_eq!(leaked_secrets(&base64(TOKEN)), [TOKEN]);
    Ok(())
}

#[tokio::test]
async fn valid_secrets_do_not_leak() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (_server, connection) = server().await?;
    let api: Api<Secret> = Api::namespaced(connection.client(), "default");
    assert_eq!(api.get("db").await?.data, secret("db").data);
    let list = api.list(&ListParams::default()).await?;
    assert_eq!(list.items.len(), 1);
    assert_eq!(api.list_metadata(&ListParams::default()).await?.items.len(), 1);
    assert_eq!(api.get_metadata("db").await?.metadata.name.as_deref(), Some("db"));
    api.create(&PostParams::default(), &secret("other")).await?;
    api.delete("other", &DeleteParams::default()).await?;
    let version = list.metadata.resource_version.ok_or("no version")?;
    let events = api.watch(&WatchParams::default().timeout(20), &version).await?;
    let events: Vec<_> = events.take(2).try_collect().await?;
    assert!(matches!(&events[..], [WatchEvent::Added(one), WatchEvent::Deleted(_)] if one.data == secret("").data));
    let informer = InformerFactory::new(&connection).informer::<Secret>(Scope::all())?;
    informer.on_diagnostic(|note| write_text(&format!("{note} {note:?}")));
    informer.wait_for_sync(TIMEOUT).await?;
    write_debug(&informer.freshness());
    write_connection(&connection)?;
    assert_no_leak();
    Ok(())
}

#[tokio::test]
async fn undecodable_secret_is_withheld_from_kube() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (server, connection) = server().await?;
    let api: Api<Secret> = Api::namespaced(connection.client(), "default");
    let version = api.list(&ListParams::default()).await?.metadata.resource_version.ok_or("no version")?;
    let assert_withheld = |error: kube::Error| {
        let kube::Error::Service(own_error) = &error else { panic!("{error:?}") };
        assert!(own_error.is::<WithheldResponse>(), "{error}");
        write_error(&error);
    };
    for corruption in [BodyCorruption::Malformed, BodyCorruption::Truncated] {
        server.faults().corrupt(RequestRule::any().resource("secrets"), corruption);
        assert_withheld(api.get("db").await.expect_err("not decoded"));
        assert_withheld(api.list(&ListParams::default()).await.expect_err("not decoded"));
        server.faults().clear_rules();
    }
    server.faults().undecodable("default", "db", true);
    assert_withheld(api.get("db").await.expect_err("not decoded"));
    assert_withheld(api.list(&ListParams::default()).await.expect_err("not decoded"));
    let informer = InformerFactory::new(&connection).informer::<Secret>(Scope::all())?;
    informer.on_diagnostic(|note| write_text(&format!("{note} {note:?}")));
    match informer.wait_for_sync(Duration::from_secs(2)).await {
        Ok(()) => {}
        Err(error) => write_error(&error),
    }
    write_debug(&informer.freshness());
    write_text(&informer.freshness());

    // A watch of `kube` reports this as an error, and continues.
    let mut changed = secret("db");
    changed.type_ = Some("Opaque".to_owned());
    changed.metadata.labels = Some([("changed".to_owned(), "yes".to_owned())].into());
    server.replace(&changed)?;
    server.create(&secret("next"))?;
    let events = api.watch(&WatchParams::default().timeout(20), &version).await?;
    let events: Vec<_> = events.take(2).try_collect().await?;
    let [WatchEvent::Error(status), WatchEvent::Added(next)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((status.reason.as_str(), next.metadata.name.as_deref()), ("Withheld", Some("next")));
    write_debug(&events);
    write_connection(&connection)?;
    assert_no_leak();

    server.faults().undecodable("default", "db", false);
    assert_eq!(api.get("db").await?.data, secret("db").data);
    Ok(())
}

#[tokio::test]
async fn rejected_credentials_do_not_leak() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (server, _) = server().await?;
    request_fails(config(&server, json!({"token": STALE_TOKEN}), &json!({})).await?).await?;
    let wrong_login = json!({"username": "nobody", "password": LOGIN_PASSWORD});
    request_fails(config(&server, wrong_login, &json!({})).await?).await?;
    let invalid_header = json!({"token": format!("{STALE_TOKEN}\nX")});
    request_fails(config(&server, invalid_header, &json!({})).await?).await?;
    assert_no_leak_of(&[&base64(&format!("nobody:{LOGIN_PASSWORD}"))]);
    Ok(())
}

#[tokio::test]
async fn accepted_passwords_and_keys_do_not_leak() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (server, _) = server().await?;
    let identity = server.issue_client_certificate("someone")?.ok_or("the server uses TLS")?;
    let key = identity.key_pem;
    let lines: Vec<&str> = key.lines().filter(|line| !line.starts_with("--")).collect();
    assert!(lines.iter().all(|line| line.len() >= 16), "the lines must be long enough for a search: {lines:?}");
    let certificate = base64(&identity.certificate_pem);
    let user_with_key = |key: &str| json!({"client-certificate-data": certificate, "client-key-data": base64(key)});
    for user in [json!({"username": "admin", "password": LOGIN_PASSWORD}), user_with_key(&key)] {
        let connection = Connection::new(config(&server, user, &json!({})).await?)?;
        let api: Api<Secret> = Api::namespaced(connection.client(), "default");
        assert_eq!(api.get("db").await?.data, secret("db").data);
        write_connection(&connection)?;
    }
    // A malformed key.
    let malformed_key = key.replace("BEGIN", "START");
    request_fails(config(&server, user_with_key(&malformed_key), &json!({})).await?).await?;
    let encoded_key = base64(&key);
    assert_no_leak_of(&[&lines[..], &[&encoded_key]].concat());
    Ok(())
}

#[tokio::test]
async fn untrusted_server_receives_no_secret() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (server, _) = server().await?;
    let unreachable_proxy = json!({"proxy-url": format!("http://user:{PROXY_PASSWORD}@127.0.0.1:1")});
    request_fails(config(&server, json!({"token": TOKEN}), &unreachable_proxy).await?).await?;
    let unsupported_proxy = json!({"proxy-url": format!("ftp://user:{PROXY_PASSWORD}@127.0.0.1:1")});
    request_fails(config(&server, json!({"token": TOKEN}), &unsupported_proxy).await?).await?;
    let trusted_before = config(&server, json!({"token": TOKEN}), &json!({})).await?;
    server.rotate_authority()?;
    request_fails(trusted_before).await?;
    assert_no_leak();
    Ok(())
}

#[tokio::test]
async fn failed_plugin_output_does_not_leak() -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (server, _) = server().await?;
    for script in [
        format!("echo {PLUGIN_TOKEN}; echo {PLUGIN_TOKEN} >&2; exit 1"),
        format!("echo '{{\"kind\":\"ExecCredential\",\"status\":{{\"token\":[\"{PLUGIN_TOKEN}\"]}}}}'"),
        format!("echo {PLUGIN_TOKEN}"),
        format!(
            "echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"{PLUGIN_TOKEN}\\u000a\"}}}}'"
        ),
        // The server rejects its first token, and then the plugin fails.
        format!(
            "echo >> \"$0.ran\"; [ $(wc -l < \"$0.ran\") -gt 1 ] && echo {PLUGIN_TOKEN} && echo {PLUGIN_TOKEN} >&2 && exit 1\n\
             echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\
             \"kind\":\"ExecCredential\",\"status\":{{\"token\":\"{STALE_TOKEN}\"}}}}'"
        ),
    ] {
        // The arguments may be logged, so the script is not an argument.
        let folder = std::env::temp_dir().join(format!("steadfast-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let plugin = folder.join("plugin.sh");
        std::fs::write(&plugin, script)?;
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [plugin],
            "interactiveMode": "Never"});
        let config = config(&server, json!({"exec": exec}), &json!({})).await?;
        tokio::task::spawn_blocking(move || tokio::runtime::Handle::current().block_on(request_fails(config)))
            .await??;
        std::fs::remove_dir_all(&folder)?;
    }
    let text = String::from_utf8_lossy(&output()).into_owned();
    for reason in ["the credential plugin \"sh\" failed", "is not an ExecCredential", "that a header cannot contain"] {
        assert!(text.contains(reason), "{reason}: {text}");
    }
    assert_no_leak();
    Ok(())
}
