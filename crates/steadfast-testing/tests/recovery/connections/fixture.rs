//! A server in memory with one client, with or without an injected fault, and their recordings.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::transport::Settings;
use steadfast::{Connection, Informer, InformerFactory, InjectedFault, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, Verb};
use steadfast_contract::Bounds;
use steadfast_testing::{
    CachedForm, ConfigMapInForm, EventRecording, InMemory, Recorder, TestError, builder_with_form, config_map_in,
    history,
};
use tracing_subscriber::filter::LevelFilter;

/// Server in memory, an HTTP/2 client, and a recorder of informers.
pub(crate) struct ConnectionFixture {
    pub(crate) server: ApiServer,
    pub(crate) memory: InMemory,
    pub(crate) connection: Connection,
    pub(crate) factory: InformerFactory,
    pub(crate) recorder: Recorder,
    fault: Option<InjectedFault>,
}

impl ConnectionFixture {
    pub(crate) async fn new(fault: Option<InjectedFault>) -> Result<Self, TestError> {
        Self::with_builder(ApiServer::builder(), fault).await
    }

    /// Creates a server with these settings, and a client of that server with this injected fault.
    pub(crate) async fn with_builder(
        builder: ApiServerBuilder,
        fault: Option<InjectedFault>,
    ) -> Result<Self, TestError> {
        let settings = Settings { prior_knowledge: true, ..Settings::default() };
        Self::with_settings(builder, fault.into_iter().fold(settings, Settings::inject_fault), fault).await
    }

    /// Creates a server, and an HTTP/1.1 client without an injected fault.
    pub(crate) async fn over_http1() -> Result<Self, TestError> {
        Self::with_settings(ApiServer::builder(), Settings::default(), None).await
    }

    /// Creates a server, and a client with these `settings`.
    pub(crate) async fn with_settings(
        builder: ApiServerBuilder,
        settings: Settings,
        fault: Option<InjectedFault>,
    ) -> Result<Self, TestError> {
        let server = builder.in_memory().protobuf(CachedForm::current().protobuf).start().await?;
        let memory = InMemory { seed: 7, settings, ..InMemory::default() };
        let connection = memory.connection(&server).await?;
        let factory = InformerFactory::new(&connection);
        Ok(Self { recorder: Recorder::of(&server), server, memory, connection, factory, fault })
    }

    /// Starts an informer of the new namespace `team-<index>`, with one object.
    pub(crate) fn informer(&self, index: usize) -> Result<Informer<ConfigMapInForm>, TestError> {
        let namespace = format!("team-{index}");
        self.server.create(&serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace }
        }))?;
        self.server.create(&config_map_in(&namespace, "a", "0"))?;
        let builder = builder_with_form(&self.factory, Scope::namespace(namespace));
        Ok(builder.inject_fault(self.fault).start()?)
    }

    /// Starts, records and syncs this number of informers, each in its own namespace.
    pub(crate) async fn start_informers(
        &self,
        count: usize,
    ) -> Result<Vec<EventRecording<ConfigMapInForm>>, TestError> {
        let mut recordings = Vec::new();
        for index in 0..count {
            recordings.push(self.recorder.record(&self.informer(index)?));
        }
        self.factory.wait_for_sync(Duration::from_secs(60)).await?;
        for recording in &recordings {
            recording.until_synced().await;
        }
        Ok(recordings)
    }

    /// Changes the object of an informer.
    pub(crate) fn update(&self, index: usize, value: &str) -> Result<(), TestError> {
        let patch = serde_json::json!({ "data": { "value": value } });
        self.server.merge_patch("configmaps", &format!("team-{index}"), "a", patch)?;
        Ok(())
    }

    pub(crate) fn lists(&self) -> usize {
        self.server.request_counts().full_transfers()
    }

    /// Returns the number of opened watches, without streamed lists that became watches.
    pub(crate) fn watches(&self) -> usize {
        self.server.requests().iter().filter(|request| request.verb == Verb::Watch).count()
    }

    /// Returns the number of connections that the server has open.
    pub(crate) fn open_connections(&self) -> usize {
        self.server.connections().iter().filter(|connection| connection.ended.is_none()).count()
    }

    /// Checks the recordings, after all events have arrived.
    pub(crate) async fn check_contract(&self) -> Result<(), TestError> {
        self.recorder.settle(&self.server).await;
        let report = Bounds::default().report(&history(&self.server, "", "configmaps")?, &self.recorder.trace());
        ensure(report.passed(), || format!("{report:#?}"))
    }
}

impl Drop for ConnectionFixture {
    fn drop(&mut self) {
        // The recorder's tasks hold the informers, which would retry forever without a server.
        self.factory.shutdown();
    }
}

/// Returns an error with this text unless the condition holds.
pub(crate) fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), TestError> {
    if condition { Ok(()) } else { Err(message().into()) }
}

/// Waits until `condition` returns `true`, and returns the duration. After `limit`, returns an error with the text
/// `description`.
pub(crate) async fn until(
    limit: Duration,
    description: &str,
    condition: impl Fn() -> bool,
) -> Result<Duration, TestError> {
    let result = steadfast_testing::until(limit, condition).await;
    result.map_err(|_| format!("in vain waited {limit:?} until {description}").into())
}

/// Captured log of this thread at info level and above.
pub(crate) struct Log {
    lines: Lines,
    _current: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn capture_info() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _current: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns the captured log, which is empty during a healthy run.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.0.lock()).into_owned()
    }
}
