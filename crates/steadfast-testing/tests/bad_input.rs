//! Bad input: an informer reports the problem of a server, a network or a configuration, continues, and recovers
//! afterwards. Nothing panics, and no message contains a secret.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use steadfast::ObjectKey;
use steadfast::{Cacheable, Connection, Freshness, Informer, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, BodyCorruption, InjectedResponse, RequestRule, Verb};
use steadfast_contract::check;
use steadfast_testing::{Recorder, TestError, config_map, history, kube_config, widget_definition};
use tracing_subscriber::EnvFilter;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum duration of a fault.
const MIN_FAULT_TIME: Duration = Duration::from_millis(700);
const OBJECT_LIMIT_BYTES: usize = 64 * 1024;

const TOKEN: &str = "token-of-nobody";
/// `hunter2` in the server's encoding.
const PASSWORD: &str = "aHVudGVyMg==";

/// All output: logs, and the messages that the tests add.
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// Number of panics in the library's own code.
static PANIC_COUNT: AtomicUsize = AtomicUsize::new(0);

struct OutputWriter;

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        OUTPUT.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records all logs and counts all panics of the library from here on.
fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("steadfast=trace,steadfast_core=trace");
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| OutputWriter).init();
        let default_hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic_info| {
            let is_own_file = |file: &str| {
                ["crates/steadfast/src", "crates/steadfast-core/src"].iter().any(|directory| file.contains(directory))
            };
            if panic_info.location().is_some_and(|location| is_own_file(location.file())) {
                PANIC_COUNT.fetch_add(1, Ordering::Relaxed);
            }
            default_hook(panic_info);
        }));
    });
}

/// Returns an informer on `connection` with a limit on the size of a record, and its diagnostics. The faults here
/// corrupt JSON bodies. The tests of `malformed_responses`, in the library itself, cover protobuf.
fn informer<K>(
    connection: &Connection,
    kind: &K::DynamicType,
    streamed: bool,
) -> Result<(Informer<K>, Notes), TestError>
where
    K: Cacheable<Resource = K> + kube::Resource,
{
    capture_logs();
    let factory = InformerFactory::new(connection);
    let builder = factory.builder_with::<K>(kind, Scope::all());
    let informer = builder.streamed_lists(streamed).protobuf(false).object_limit(OBJECT_LIMIT_BYTES).start()?;
    let notes = Notes::default();
    let captured_notes = notes.clone();
    informer.on_diagnostic(move |note| captured_notes.0.lock().push(note.to_string()));
    Ok((informer, notes))
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn text(&self) -> String {
        self.0.lock().join("\n")
    }
}

/// Checks that `informer` is not synced during a fault, and that the informer reports the reason. Its error, its
/// freshness and its diagnostics must contain each of `names`, within a timeout for a busy machine.
async fn assert_reports_fault<K: Cacheable>(informer: &Informer<K>, notes: &Notes, names: &[&str]) {
    let start = Instant::now();
    loop {
        let Err(error) = informer.wait_for_sync(MIN_FAULT_TIME).await else {
            panic!("the informer must not sync: {}\n{}", informer.freshness(), notes.text());
        };
        let text = format!("{error}\n{}", notes.text());
        let _ = writeln!(OutputWriter, "{text}\n{error:?}");
        let missing: Vec<_> = names.iter().filter(|name| !text.contains(**name)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "the report must name {missing:?}: {text}");
    }
}

/// Checks the recovery: `informer` is synced, fresh, and has `objects`.
async fn assert_recovers<K: Cacheable>(informer: &Informer<K>, objects: usize) -> Result<(), TestError> {
    informer.wait_for_sync(TIMEOUT).await?;
    until_fresh(informer).await?;
    assert_eq!(informer.snapshot().len(), objects);
    assert_no_secret_in_output();
    Ok(())
}

/// Waits until `informer` is fresh, which may be shortly after its sync.
async fn until_fresh<K: Cacheable>(informer: &Informer<K>) -> Result<(), TestError> {
    let mut changed = informer.changed();
    let fresh = async { while !informer.freshness().is_fresh() && changed.changed().await.is_ok() {} };
    let result = tokio::time::timeout(TIMEOUT, fresh).await;
    result.map_err(|_| format!("not fresh after {TIMEOUT:?}: {}", informer.freshness()).into())
}

/// Checks that nothing has panicked, and that no output contains a secret.
fn assert_no_secret_in_output() {
    assert_eq!(PANIC_COUNT.load(Ordering::Relaxed), 0, "the library has panicked");
    let output = output();
    for secret in [TOKEN, PASSWORD, "hunter2"] {
        let line = output.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret was logged");
    }
}

fn output() -> String {
    String::from_utf8_lossy(&OUTPUT.lock()).into_owned()
}

/// Returns a server with two secrets.
async fn server(builder: ApiServerBuilder) -> Result<ApiServer, TestError> {
    let server = builder.start().await?;
    for name in ["a", "b"] {
        server.create(&secret(name, &json!({ "password": PASSWORD })))?;
    }
    Ok(server)
}

fn secret(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" }, "data": data })
}

async fn secrets_informer(server: &ApiServer) -> Result<(Informer<Secret>, Notes), TestError> {
    informer::<Secret>(&Connection::new(kube_config(server).await?)?, &(), true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connection_names_address() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    server.faults().cut();
    let (informer, notes) = secrets_informer(&server).await?;
    let address = server.address(0).ok_or("the server has no address")?;
    assert_reports_fault(&informer, &notes, &[&format!("cannot connect to {address}"), "refused"]).await;
    server.faults().heal();
    assert_recovers(&informer, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_connection_is_reported_and_backed_off() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    server.faults().accept_and_close(true);
    let (informer, notes) = secrets_informer(&server).await?;
    // The message depends on how far the request came before the connection was closed.
    assert_reports_fault(&informer, &notes, &["the connection "]).await;
    // The connections are counted first. An attempt between the two counts then raises only the limit.
    let connections = server.connections().len();
    let attempts = notes.0.lock().len() + 1;
    // No request is sent again at once: a server that closes a new connection would close the next one too.
    assert!(connections <= attempts, "{connections} connections in {attempts} attempts");
    // With backoff, more attempts take longer than `TIMEOUT`.
    assert!(attempts <= 10, "{attempts} attempts");
    server.faults().accept_and_close(false);
    assert_recovers(&informer, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_certificate_is_rejected_with_advice() -> Result<(), TestError> {
    let (server, other_server) =
        (server(ApiServer::builder().tls(true)).await?, server(ApiServer::builder().tls(true)).await?);
    let mut config = kube_config(&other_server).await?;
    config.cluster_url = server.url(0).parse()?;
    let (informer, notes) = informer::<Secret>(&Connection::new(config)?, &(), true)?;
    assert_reports_fault(
        &informer,
        &notes,
        &["the TLS handshake with", "check certificate-authority in the kubeconfig"],
    )
    .await;
    assert_eq!(server.requests().len(), 0, "the server received no request, and no token");
    assert_recovers(&secrets_informer(&server).await?.0, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_tls_is_distinguished() -> Result<(), TestError> {
    let (server_without_tls, server_with_tls) =
        (server(ApiServer::builder()).await?, server(ApiServer::builder().tls(true)).await?);
    let mut config = kube_config(&server_with_tls).await?;
    config.cluster_url = server_without_tls.url(0).replace("http:", "https:").parse()?;
    let (informer, notes) = informer::<Secret>(&Connection::new(config)?, &(), true)?;
    assert_reports_fault(&informer, &notes, &["does not use TLS at this address: check port and scheme"]).await;
    assert_no_secret_in_output();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_token_is_reported_until_accepted() -> Result<(), TestError> {
    let server = server(ApiServer::builder().token(TOKEN)).await?;
    let config = kube_config(&server).await?;
    server.faults().replace_tokens(&["another"]);
    let (informer, notes) = informer::<Secret>(&Connection::new(config)?, &(), true)?;
    assert_reports_fault(&informer, &notes, &["401 Unauthorized"]).await;
    assert!(matches!(informer.freshness(), Freshness::Failed(_)), "{}", informer.freshness());
    server.faults().replace_tokens(&[TOKEN]);
    assert_recovers(&informer, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_resource_does_not_delay_others() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    server.create(&config_map("a", "1"))?;
    server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::Forbidden);
    let connection = Connection::new(kube_config(&server).await?)?;
    let (forbidden, notes) = informer::<Secret>(&connection, &(), true)?;
    assert_recovers(&informer::<ConfigMap>(&connection, &(), true)?.0, 1).await?;
    assert_reports_fault(&forbidden, &notes, &["403 Forbidden", "secrets"]).await;
    assert!(matches!(forbidden.freshness(), Freshness::Failed(_)), "{}", forbidden.freshness());
    server.faults().clear_rules();
    assert_recovers(&forbidden, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_resource_is_reported_until_defined() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("steadfast.test", "v1", "Widget"));
    let connection = Connection::new(kube_config(&server).await?)?;
    let (informer, notes) = informer::<DynamicObject>(&connection, &kind, true)?;
    assert_reports_fault(&informer, &notes, &["widgets.steadfast.test", "404"]).await;
    assert!(matches!(informer.freshness(), Freshness::Failed(_)), "{}", informer.freshness());
    server.create(&widget_definition("steadfast.test"))?;
    assert_recovers(&informer, 0).await
}

/// Corruptions of responses, and the messages of an informer about them.
const CORRUPTIONS: [(BodyCorruption, &str); 4] = [
    (BodyCorruption::Malformed, "malformed JSON"),
    (BodyCorruption::Truncated, "ended early"),
    (BodyCorruption::Oversized(2 * OBJECT_LIMIT_BYTES), "longer than the limit of 65536 bytes"),
    (BodyCorruption::WrongContentType, "unsupported content type \"text/html\""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_list_is_reported_and_retried() -> Result<(), TestError> {
    for (corruption, cause) in CORRUPTIONS {
        for streamed in [true, false] {
            // `Malformed` changes a byte in the middle of the body. In an empty list, this byte belongs to the list
            // itself. In a longer list, it would belong to an object. A streamed list consists of objects only.
            let is_malformed = corruption == BodyCorruption::Malformed;
            // In a streamed list, an oversized object makes only this object unknown. The list stays readable.
            let is_in_one_record = is_malformed || matches!(corruption, BodyCorruption::Oversized(_));
            if is_in_one_record && streamed {
                continue;
            }
            let server = if is_malformed { ApiServer::start().await? } else { server(ApiServer::builder()).await? };
            server.faults().corrupt(RequestRule::any().resource("secrets"), corruption);
            let connection = Connection::new(kube_config(&server).await?)?;
            let (informer, notes) = informer::<Secret>(&connection, &(), streamed)?;
            let cause = if is_malformed { "the response is not a list" } else { cause };
            assert_reports_fault(&informer, &notes, &[cause]).await;
            let request_count = server.requests().len();
            assert!(request_count < 20, "{request_count} requests, {corruption:?}, streamed: {streamed}");
            server.faults().clear_rules();
            assert_recovers(&informer, if is_malformed { 0 } else { 2 }).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_object_is_the_only_unknown() -> Result<(), TestError> {
    let (malformed, oversized) = (BodyCorruption::Malformed, BodyCorruption::Oversized(2 * OBJECT_LIMIT_BYTES));
    for (corruption, streamed) in [(malformed, true), (malformed, false), (oversized, true)] {
        let server = server(ApiServer::builder()).await?;
        server.faults().corrupt(RequestRule::any().resource("secrets"), corruption);
        let connection = Connection::new(kube_config(&server).await?)?;
        let (informer, _) = informer::<Secret>(&connection, &(), streamed)?;
        assert_recovers(&informer, 2).await?;
        let Freshness::Fresh { tainted, .. } = informer.freshness() else {
            return Err("the informer is not fresh".into());
        };
        let (Some(key), 1) = (tainted.iter().next(), tainted.len()) else {
            panic!("one object must be unknown, not {tainted:?}")
        };
        let lister = informer.lister()?;
        let are_known = ["a", "b"].map(|name| lister.get("default", name).is_ok());
        assert_eq!(are_known, ["a", "b"].map(|name| name != key.name()), "only {key} may be unknown");
        server.faults().clear_rules();

        let patch = json!({ "metadata": { "labels": { "app": "web" } } });
        let patched: Secret = serde_json::from_value(server.merge_patch("secrets", "default", key.name(), patch)?)?;
        informer.wait_for(&patched).await?;
        assert!(lister.get("default", key.name())?.is_some(), "its next state is complete");
        assert_no_secret_in_output();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_watch_is_reported_without_loss() -> Result<(), TestError> {
    for (corruption, cause) in CORRUPTIONS {
        let server = server(ApiServer::builder()).await?;
        let (informer, notes) = secrets_informer(&server).await?;
        let recorder = Recorder::of(&server);
        let recording = recorder.record(&informer);
        recording.until_synced().await;

        recorder.fault("corrupt", true);
        server.faults().corrupt(RequestRule::any().resource("secrets").verb(Verb::Watch), corruption);
        server.faults().end_watches();
        server.create(&secret("c", &json!({ "password": PASSWORD })))?;
        server.delete_named("secrets", "default", "a")?;
        let report = async {
            while !notes.text().contains(cause) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, report).await;
        let _ = writeln!(OutputWriter, "{}", notes.text());
        result.map_err(|_| format!("{corruption:?} was not reported: {}", notes.text()))?;
        server.faults().clear_rules();
        recorder.fault("corrupt", false);

        recorder.settle(&server).await;
        check(&history(&server, "", "secrets")?, &recorder.trace())?;
        assert_recovers(&informer, 2).await?;
    }
    Ok(())
}

/// Secret type of a program that wrongly expects numbers as values. The password cannot be decoded as a number.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Secret)]
struct Numbers {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, u32>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_objects_are_named_without_content() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    server.create(&secret("empty", &json!({})))?;
    let connection = Connection::new(kube_config(&server).await?)?;
    let (informer, _) = informer::<Numbers>(&connection, &(), true)?;
    assert_recovers(&informer, 3).await?;

    let Freshness::Fresh { tainted, .. } = informer.freshness() else { return Err("the informer is not fresh".into()) };
    let unknown_objects: Vec<String> = tainted.iter().map(ObjectKey::to_string).collect();
    assert_eq!(unknown_objects, ["default/a", "default/b"]);
    let lister = informer.lister()?;
    assert_eq!(lister.get("default", "empty")?.map(|empty| empty.data.len()), Some(0));
    let error = lister.get("default", "a").expect_err("the object must be unknown").to_string();
    assert!(error.contains("default/a") && error.contains("could not be decoded"), "{error}");
    let _ = writeln!(OutputWriter, "{error} {}", informer.freshness());
    let log_count =
        output().lines().filter(|line| line.contains("WARN") && line.contains("default/a at version")).count();
    assert!(log_count > 0, "the unknown object must be logged");
    assert_no_secret_in_output();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_object_is_unknown_until_valid() -> Result<(), TestError> {
    let server = server(ApiServer::builder()).await?;
    server.faults().undecodable("default", "a", true);
    let (informer, _) = secrets_informer(&server).await?;
    let recorder = Recorder::of(&server);
    let recording = recorder.record(&informer);
    recording.until_synced().await;
    until_fresh(&informer).await?;
    let lister = informer.lister()?;
    assert!(lister.get("default", "a").is_err(), "the object must not decode");
    assert!(lister.get("default", "b")?.is_some(), "other objects are not affected");
    assert!(informer.freshness().to_string().contains("default/a"), "{}", informer.freshness());
    let lists = server.request_counts().full_transfers();

    let patch = |value: &str| json!({ "data": { "password": value } });
    server.merge_patch("secrets", "default", "a", patch("YQ=="))?;
    server.faults().undecodable("default", "a", false);
    // Open streams keep the encoding with which they started.
    server.faults().end_watches();
    let patched: Secret = serde_json::from_value(server.merge_patch("secrets", "default", "a", patch("Yg=="))?)?;
    informer.wait_for(&patched).await?;
    assert!(lister.get("default", "a")?.is_some(), "its next state decodes");

    recorder.settle(&server).await;
    check(&history(&server, "", "secrets")?, &recorder.trace())?;
    assert_eq!(server.request_counts().full_transfers(), lists, "no list is sent for it");
    let _ = writeln!(OutputWriter, "{}", informer.freshness());
    assert_recovers(&informer, 2).await
}
