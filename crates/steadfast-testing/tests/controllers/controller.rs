//! Controllers on an embedded server, in virtual time.

mod conflicts;
mod finalizers;
mod gates;
mod lifetimes;
mod moving_children;
mod namespaces;
mod own_writes;
mod read_caches;
mod reconcile_checker;
mod reconciles;
mod renewals;
mod settings;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Cacheable, Connection, InformerFactory, ObjectKey};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{Controller, ControllerDiagnostic, RunError, RunningController};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{InMemory, TestError};

const SECOND: Duration = Duration::from_secs(1);

/// Server, and a program's connection and factory.
struct ControllerFixture {
    server: ApiServer,
    network: NetworkFaults,
    connection: Connection,
    factory: InformerFactory,
}

impl ControllerFixture {
    async fn new() -> Result<Self, TestError> {
        Self::seeded(0).await
    }

    async fn seeded(seed: u64) -> Result<Self, TestError> {
        Self::with_server(seed, ApiServer::builder().seed(seed).in_memory().start().await?).await
    }

    /// Creates a fixture for `server`.
    async fn with_server(seed: u64, server: ApiServer) -> Result<Self, TestError> {
        let network = NetworkFaults::seeded(seed);
        let client = InMemory { seed, network: network.clone(), ..InMemory::default() };
        let connection = client.connection(&server).await?;
        let factory = InformerFactory::new(&connection);
        Ok(Self { server, network, connection, factory })
    }

    /// Writes `value` to the config map `name` in `default`.
    fn write(&self, name: &str, value: &str) -> Result<(), TestError> {
        self.server.merge_patch("configmaps", "default", name, json!({ "data": { "value": value } }))?;
        Ok(())
    }

    /// Returns the program's API of config maps in `default`.
    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.connection.client(), "default")
    }

    /// Stops `controller`, whose reconciles must end in time, and drops the factory. Checks that no connection is left.
    async fn assert_stop_closes_connections(self, controller: RunningController) {
        let stop_report = controller.stop(SECOND).await;
        assert_eq!((stop_report.cancelled, stop_report.stuck), (0, 0));
        self.factory.shutdown();
        drop((self.factory, self.connection));
        advance(60 * SECOND).await;
        assert!(
            self.server.connections().iter().all(|connection| connection.ended.is_some()),
            "all connections are closed"
        );
    }
}

/// Events in order, each with its time.
#[derive(Clone)]
struct EventLog {
    start: tokio::time::Instant,
    entries: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { start: tokio::time::Instant::now(), entries: Arc::default() }
    }
}

impl EventLog {
    fn record(&self, text: impl Into<String>) {
        self.lock().push((self.start.elapsed(), text.into()));
    }

    /// Returns a receiver of a controller's diagnostics.
    fn diagnostic_callback(&self) -> impl Fn(&ControllerDiagnostic) + Send + Sync + 'static {
        let log = self.clone();
        move |note| log.record(note.to_string())
    }

    fn all(&self) -> Vec<String> {
        self.lock().iter().map(|(_, text)| text.clone()).collect()
    }

    /// Removes and returns all events since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock()).into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the times of the events with this prefix.
    fn times(&self, prefix: &str) -> Vec<Duration> {
        self.lock().iter().filter(|(_, text)| text.starts_with(prefix)).map(|(at, _)| *at).collect()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<(Duration, String)>> {
        self.entries.lock()
    }
}

/// Error of a reconcile.
#[derive(Debug)]
struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Starts a controller with synced caches, which receive no events from then on. The first reconcile starts later.
async fn start_lagging<K: Cacheable>(
    fixture: &ControllerFixture,
    controller: Controller<K>,
    run: impl FnOnce(Controller<K>) -> Result<RunningController, RunError>,
) -> Result<RunningController, TestError> {
    let (release_start, start_released) = tokio::sync::oneshot::channel::<()>();
    let controller = run(controller.start_after(async { drop(start_released.await) }))?;
    fixture.factory.wait_for_sync(SECOND).await?;
    fixture.server.faults().lag(true);
    drop(release_start);
    Ok(controller)
}

/// Runs all tasks that are ready, and advances the time.
async fn advance(time: Duration) {
    tokio::time::sleep(time).await;
}
