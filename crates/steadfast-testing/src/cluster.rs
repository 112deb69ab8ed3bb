//! A cluster under test: one scenario that runs on any server.
//!
//! `STEADFAST_SERVER` selects the server: the embedded one (the default), the reference, or the cluster of a
//! kubeconfig. A scenario writes directly to the server, while informers watch through a proxy that injects network
//! faults. A scenario must declare all other faults in advance, as [`ServerFault`]s. If the server does not support
//! one of these faults, the scenario is [`Unsupported`], with the reason. The checker uses the server's own history:
//! that of the embedded server, or that of the reference's etcd. For another cluster, the history comes from a
//! separate watch in the scenario's own namespace. On our own servers, this watch is compared with the server's
//! history. So the watch is reliable on other clusters, too.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steadfast::InformerFactory;
//! use steadfast_testing::cluster::{ServerKind, TestCluster};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), steadfast_testing::TestkitError> {
//! let cluster = TestCluster::start(&ServerKind::Embedded, &[]).await?.map_err(|unsupported| unsupported.reason)?;
//! let recorder = cluster.recorder();
//! let factory = InformerFactory::new(&cluster.connection().await?);
//! recorder.record(&factory.informer::<ConfigMap>(cluster.scope())?).until_synced().await;
//!
//! cluster.network().cut();
//! cluster.writer().create("a", "1").await?;
//! cluster.network().heal();
//!
//! cluster.settle(&recorder).await?;
//! steadfast_contract::check(&cluster.history().await?, &recorder.trace())?;
//! cluster.end().await
//! # }
//! ```

mod event_log;
mod reference_guard;
mod server;
mod server_fault;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::Value;
use steadfast::transport::Settings;
use steadfast::{Connection, Scope};
use steadfast_contract::History;

use crate::proxy::{FaultProxy, NetworkFaults};
use crate::{Recorder, TestkitError};
use event_log::EventLog;
use server::Server;
pub use server_fault::{ServerFault, ServerKind};
pub use writer::Writer;

/// Maximum time for informers to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why a scenario cannot run on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsupported {
    /// The unsupported fault.
    pub need: ServerFault,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not supported: {}", self.need, self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// A server, a namespace in it, a writer in that namespace, and the network between the server and the informers.
pub struct TestCluster {
    kind: ServerKind,
    needs: Vec<ServerFault>,
    server: Server,
    proxy: FaultProxy,
    config: kube::Config,
    namespace: String,
    writer: Writer,
    event_logs: Vec<EventLog>,
    /// Names of the definitions that the scenario created.
    definitions: Vec<String>,
    /// Revision of the store when the backup was created.
    backup: Option<u64>,
    started: Instant,
}

impl TestCluster {
    /// Starts a cluster of this kind that supports `needs`. A scenario without needs may share the server with others.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start or does not respond. The inner error is returned if the server
    /// does not support one of `needs`.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current.
    pub async fn start(kind: &ServerKind, needs: &[ServerFault]) -> Result<Result<Self, Unsupported>, TestkitError> {
        for need in needs {
            if let Some(reason) = need.unsupported_reason(kind) {
                return Ok(Err(Unsupported { need: *need, reason }));
            }
        }
        let started = Instant::now();
        let server = Server::start(kind, needs).await?;
        let config = server.config().await?;
        let client = Connection::new(config.clone())?.client();
        let namespace = unused_namespace_name()?;
        create_namespace(&client, &namespace).await?;
        let proxy = FaultProxy::start(server.addresses())?;
        let writer = Writer::new(client, &namespace);
        let (kind, needs) = (kind.clone(), needs.to_vec());
        let (event_logs, definitions, backup) = (Vec::new(), Vec::new(), None);
        let mut cluster =
            Self { kind, needs, server, proxy, config, namespace, writer, event_logs, definitions, backup, started };
        cluster.follow(&ApiResource::erase::<ConfigMap>(&())).await?;
        Ok(Ok(cluster))
    }

    /// Returns the kind of server.
    pub fn kind(&self) -> &ServerKind {
        &self.kind
    }

    /// Returns the scenario's own namespace, in which no other client writes.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the scope of the scenario's own namespace.
    pub fn scope(&self) -> Scope {
        Scope::namespace(&self.namespace)
    }

    /// Returns the key of `name` in the scenario's own namespace, as in recordings.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Returns the writer in the scenario's own namespace. It writes directly to the first API server.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Creates one more namespace for the scenario, and a writer in it. Only the server's own history contains its
    /// changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the namespace cannot be created, or if the server has no history of its own.
    pub async fn another_namespace(&self) -> Result<(String, Writer), TestkitError> {
        if matches!(self.kind, ServerKind::Other(_)) {
            return Err("this server has no history of another namespace".into());
        }
        let name = unused_namespace_name()?;
        create_namespace(&self.writer.client(), &name).await?;
        let writer = Writer::new(self.writer.client(), &name);
        Ok((name, writer))
    }

    /// Returns the faults of the network between the informers and the API servers. The API servers are the network's
    /// targets.
    pub fn network(&self) -> &NetworkFaults {
        self.proxy.faults()
    }

    /// Opens a connection through the faulty network, with the default settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    pub async fn connection(&self) -> Result<Connection, TestkitError> {
        self.connection_with_settings(Settings::default()).await
    }

    /// Opens a connection through the faulty network, with these timeouts and limits.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    #[allow(clippy::unused_async, reason = "same signature as the other methods that connect")]
    pub async fn connection_with_settings(&self, settings: Settings) -> Result<Connection, TestkitError> {
        Ok(Connection::builder(self.proxied()?).settings(settings).build()?)
    }

    /// Returns the configuration of a client that connects directly to the first API server.
    pub fn direct(&self) -> &kube::Config {
        &self.config
    }

    /// Returns the configuration of a client that connects through the faulty network.
    ///
    /// # Errors
    ///
    /// Returns an error if the server's address is invalid.
    pub fn proxied(&self) -> Result<kube::Config, TestkitError> {
        let mut config = self.config.clone();
        let scheme = config.cluster_url.scheme_str().unwrap_or("https").to_owned();
        // The certificate is issued for the server behind the proxy, so the name for TLS stays that of the server.
        let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        config.tls_server_name.get_or_insert(host);
        let url = format!("{scheme}://{}", self.proxy.address());
        config.cluster_url = url.parse().map_err(|error| format!("{url}: {error}"))?;
        Ok(config)
    }

    /// Returns a recorder that uses the clock of the history.
    pub fn recorder(&self) -> Recorder {
        self.server.recorder()
    }

    /// Waits until everything that `recorder` observes has caught up, and records the final state. From here on,
    /// nothing may be written and the server must be reachable.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not return its newest version.
    pub async fn settle(&self, recorder: &Recorder) -> Result<(), TestkitError> {
        recorder.settle_at(&self.writer.newest_version().await?, CATCH_UP_TIMEOUT).await;
        Ok(())
    }

    /// Creates a custom resource definition that exists until the scenario ends.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the definition.
    pub async fn define(&mut self, definition: Value) -> Result<(), TestkitError> {
        let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
        let definitions: Api<CustomResourceDefinition> = Api::all(self.writer.client());
        let created = definitions.create(&PostParams::default(), &definition).await?;
        self.definitions.extend(created.metadata.name);
        Ok(())
    }

    /// Records the history of one more resource in the scenario's own namespace. Call this before anything of the
    /// resource is written.
    ///
    /// # Errors
    ///
    /// Returns an error if the resource cannot be listed and watched.
    pub async fn follow(&mut self, resource: &ApiResource) -> Result<(), TestkitError> {
        // A scenario with needs may break this watch, and a broken watch provides no history.
        if self.needs.is_empty() {
            let started = self.started;
            self.event_logs.push(EventLog::start(self.writer.client(), &self.namespace, resource, started).await?);
        }
        Ok(())
    }

    /// Returns the history of config maps, for the checker.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`history_of`](Self::history_of).
    pub async fn history(&self) -> Result<History, TestkitError> {
        self.history_of(&ApiResource::erase::<ConfigMap>(&())).await
    }

    /// Returns the history of a resource that was passed to [`follow`](Self::follow).
    ///
    /// # Errors
    ///
    /// Returns an error if the history is incomplete, or if the server's history and that of the watch differ.
    pub async fn history_of(&self, resource: &ApiResource) -> Result<History, TestkitError> {
        let revision = self.writer.write_unrelated().await?;
        let server_history = self.server.history(revision, &resource.group, &resource.plural).await?;
        let watch_history = match self.event_logs.iter().find(|event_log| event_log.resource == *resource) {
            Some(event_log) => Some(event_log.history().await?),
            None => None,
        };
        match (server_history, watch_history) {
            (Some(server_history), Some(watch_history)) => {
                check_agreement(&server_history, &watch_history, &self.namespace)?;
                Ok(server_history)
            }
            (Some(history), None) | (None, Some(history)) => Ok(history),
            (None, None) => {
                Err(format!("{} was not followed; call `follow` before the first write", resource.plural).into())
            }
        }
    }

    /// Returns the number of lists of config maps that the first API server has streamed, from its own metrics. Other
    /// scenarios on the same server increase this number. Returns `None` for a server whose metrics are not
    /// available.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not respond.
    pub async fn streamed_lists(&self) -> Result<Option<u64>, TestkitError> {
        self.server.streamed_lists(&self.writer.client()).await
    }

    // Faults of the servers: 0 is the first API server, 1 the second.

    /// Kills an API server: all its connections are reset immediately.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario did not declare this [need](ServerFault).
    pub fn kill(&mut self, server: usize) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Kill)?;
        self.server.kill(server)
    }

    /// Shuts an API server down gracefully.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not stop, or if the scenario did not declare this need.
    pub async fn shut_down(&mut self, server: usize) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Shutdown)?;
        self.server.shut_down(server).await
    }

    /// Starts a stopped API server again, at the same address.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start.
    pub async fn start_again(&mut self, server: usize) -> Result<(), TestkitError> {
        self.server.start_again(server).await?;
        self.renew_writer()
    }

    fn renew_writer(&self) -> Result<(), TestkitError> {
        // Writes are never retried, so a write must not be the first request on a dead connection.
        self.writer.renew(Connection::new(self.config.clone())?.client());
        Ok(())
    }

    /// Freezes the first API server with its sockets open, or resumes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario did not declare this need.
    pub fn freeze(&mut self, on: bool) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Freeze)?;
        self.server.freeze(on)
    }

    /// Freezes the store behind the API server, or resumes it. Writes are not possible while the store is frozen.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario did not declare this need.
    pub fn freeze_store(&mut self, on: bool) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::FreezeStore)?;
        self.server.freeze_store(on)
    }

    /// Compacts the store to its current state. A running API server keeps its window of events.
    ///
    /// # Errors
    ///
    /// Returns an error if the compaction fails, or if the scenario did not declare this need.
    pub async fn compact(&mut self) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Compact)?;
        self.server.compact().await
    }

    /// Creates a backup of the store. Nothing may be written concurrently.
    ///
    /// # Errors
    ///
    /// Returns an error if the backup fails, or if the scenario did not declare the need
    /// [`Restore`](ServerFault::Restore).
    pub async fn back_up(&mut self) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Restore)?;
        self.backup = Some(self.server.back_up().await?);
        Ok(())
    }

    /// Restores the store from its backup. All connections are reset, and later writes are undone.
    ///
    /// # Errors
    ///
    /// Returns an error if no backup exists, if a server does not start again, or if the scenario did not declare this
    /// need.
    pub async fn restore(&mut self) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Restore)?;
        self.server.restore(self.backup.ok_or("no backup exists; call `back_up` first")?).await?;
        self.renew_writer()
    }

    /// Makes the second API server stop following the store, or catch up.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario did not declare this need.
    pub fn lag(&mut self, on: bool) -> Result<(), TestkitError> {
        self.require_declared(ServerFault::Lag)?;
        self.server.lag(on)
    }

    fn require_declared(&self, need: ServerFault) -> Result<(), TestkitError> {
        // Without this check, a scenario could start on a server that does not support the fault.
        if !self.needs.contains(&need) {
            return Err(format!("the scenario did not declare the need {need:?}").into());
        }
        Ok(())
    }

    /// Removes the persistent objects of the scenario, and repairs the parts that scenarios share.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be removed or the server cannot be repaired.
    pub async fn end(self) -> Result<(), TestkitError> {
        self.remove_objects().await?;
        self.server.repair_and_release().await
    }

    /// Cleans up after a failed scenario. A shared server in an unknown state is not returned for reuse.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot be removed.
    pub async fn clean_up_after_failure(self) -> Result<(), TestkitError> {
        // A server of our own is dropped with its objects, and may not respond any more.
        if matches!(self.kind, ServerKind::Other(_)) { self.remove_objects().await } else { Ok(()) }
    }

    async fn remove_objects(&self) -> Result<(), TestkitError> {
        let client = self.writer.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for name in &self.definitions {
            definitions.delete(name, &DeleteParams::default()).await?;
        }
        if matches!(self.kind, ServerKind::Other(_)) {
            let namespaces: Api<Namespace> = Api::all(client);
            namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// Returns an unused name for a namespace.
fn unused_namespace_name() -> Result<String, TestkitError> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(format!("steadfast-{now:x}-{}-{number}", std::process::id()))
}

async fn create_namespace(client: &kube::Client, name: &str) -> Result<(), TestkitError> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Checks that both histories of `namespace` agree: the same objects, changed at the same versions.
fn check_agreement(server_history: &History, watch_history: &History, namespace: &str) -> Result<(), TestkitError> {
    fn summarize<'a>(history: &'a History, namespace: &str) -> Vec<(u64, &'a str, &'a str, bool)> {
        let changes = history.changes().iter().filter(|change| change.namespace.as_deref() == Some(namespace));
        changes.map(|change| (change.version, &*change.uid, &*change.name, change.object.is_some())).collect()
    }
    let (server_history, watch_history) = (summarize(server_history, namespace), summarize(watch_history, namespace));
    if server_history == watch_history {
        Ok(())
    } else {
        Err(format!("the server's history is {server_history:?}, and that of the watch {watch_history:?}").into())
    }
}
