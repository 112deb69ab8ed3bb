//! Guarantees of informers beyond the contract's checker, in virtual time on a server in memory.

mod caches;
mod decode_helpers;
mod deliver_each;
mod differences;
mod filters;
mod handlers;
mod layers;
mod lazy;
mod lifetimes;
mod memory;
mod messages;
mod metrics;
mod namespaces;
mod on_demand;
mod readers;
mod reentrant;
mod scopes;
mod uncached;
mod user_code_isolation;
mod waits;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Cacheable, Event, Informer, InformerFactory, Object, Registration, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_testing::{InMemory, TestError};

const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

struct InformerFixture {
    server: ApiServer,
    factory: InformerFactory,
}

impl InformerFixture {
    async fn with_builder(builder: ApiServerBuilder) -> Result<Self, TestError> {
        let server = builder.in_memory().start().await?;
        let factory = InformerFactory::new(&InMemory::default().connection(&server).await?);
        Ok(Self { server, factory })
    }

    async fn new() -> Result<Self, TestError> {
        Self::with_builder(ApiServer::builder()).await
    }

    async fn synced_informer(&self) -> Result<Informer<ConfigMap>, TestError> {
        let informer = self.factory.informer::<ConfigMap>(Scope::all())?;
        informer.wait_for_sync(EVENT_TIMEOUT).await?;
        Ok(informer)
    }

    /// Writes `value` to the config map `name` in `default`.
    fn write(&self, name: &str, value: &str) -> Result<ConfigMap, TestError> {
        let patch = json!({ "data": { "value": value } });
        Ok(serde_json::from_value(self.server.merge_patch("configmaps", "default", name, patch)?)?)
    }
}

/// Descriptions of the delivered events.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn record(&self, text: String) {
        self.0.lock().push(text);
    }

    fn record_event<K: Resource>(&self, event: &Event<K>) {
        let initial = if matches!(event, Event::Added { initial: true, .. }) { " initially" } else { "" };
        self.record(format!("{} {}{initial}", event.name(), event.object().name_any()));
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// Captures the log of this thread. On a paused clock, that is the complete log.
struct CapturedLog {
    bytes: Arc<Mutex<Vec<u8>>>,
    _here: tracing::subscriber::DefaultGuard,
}

impl CapturedLog {
    fn capture() -> Self {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let captured_bytes = bytes.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || LogWriter(captured_bytes.clone())).finish();
        Self { bytes, _here: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns the lines that contain `text`.
    fn lines(&self, text: &str) -> Vec<String> {
        let bytes = self.bytes.lock();
        String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

struct LogWriter(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets all ready tasks run, and timers of up to 500 ms elapse.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

fn follow<K: Cacheable + Resource>(informer: &Informer<K>) -> (EventLog, Registration<K>) {
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration =
        informer.on_event(move |event| captured_log.record_event(&event)).expect("the informer must be running");
    (log, registration)
}

fn names<K: Resource>(objects: &[Object<K>]) -> Vec<String> {
    objects.iter().map(|object| object.name_any()).collect()
}
