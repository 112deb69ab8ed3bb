//! Running servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::connections::{Dialer, MemoryStream};
use crate::direct;
use crate::error::StartError;
use crate::fault_handle::Faults;
use crate::faults::FaultRecord;
use crate::kubeconfig;
use crate::net::{ClientIdentity, LinkEnd, Port, TaskGroup};
use crate::records::{RequestCounts, RequestRecord};
use crate::resources::GroupResource;
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::storage::{History, Patch, State};

/// API server with one history and one or several replicas. Dropping the handle stops the server.
#[derive(Debug)]
pub struct ApiServer {
    cluster: Arc<Cluster>,
    tasks: Arc<TaskGroup>,
    faults: Faults,
}

/// Record of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionRecord {
    /// Number of the connection, ascending in the order of arrival.
    pub id: u64,
    /// Replica of the connection.
    pub replica: usize,
    /// Time of acceptance, since the server's start.
    pub opened_at: Duration,
    /// Time at which a fault broke the connection, by a reset or a black hole.
    pub failed_at: Option<Duration>,
    /// Time and kind of the end; `None` while the connection is open.
    pub ended: Option<(Duration, LinkEnd)>,
}

impl ApiServer {
    pub(crate) fn new(cluster: Arc<Cluster>, tasks: Arc<TaskGroup>) -> Self {
        let faults = Faults::for_all_replicas(Arc::clone(&cluster));
        Self { cluster, tasks, faults }
    }

    // Access.

    /// Returns the number of replicas.
    pub fn replicas(&self) -> usize {
        self.cluster.replicas.len()
    }

    /// Returns the base URL of a replica, counted from 0. For a server in memory, the URL contains a placeholder name.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    pub fn url(&self, replica: usize) -> String {
        let scheme = if self.cluster.tls().is_some() { "https" } else { "http" };
        match self.address(replica) {
            Some(address) => format!("{scheme}://{address}"),
            // A placeholder: clients in memory use a dialer, which ignores the address.
            None => format!("{scheme}://localhost:{}", 6443 + replica),
        }
    }

    /// Returns the address of a replica, counted from 0; `None` for a server in memory.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    pub fn address(&self, replica: usize) -> Option<std::net::SocketAddr> {
        self.cluster.replicas[replica].port.as_ref().map(Port::address)
    }

    /// Returns the certificate of the authority in PEM; `None` without TLS.
    pub fn ca_pem(&self) -> Option<String> {
        self.cluster.tls().map(|tls| tls.ca_pem)
    }

    /// Issues a client certificate for the user `name`. Returns `None` without TLS.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be created.
    pub fn issue_client_certificate(&self, name: &str) -> Result<Option<ClientIdentity>, StartError> {
        self.cluster.tls().map(|tls| tls.issue(name)).transpose()
    }

    /// Revokes all client certificates of the user `name`.
    pub fn revoke_client_certificates(&self, name: &str) {
        if let Some(tls) = self.cluster.tls() {
            tls.revoke(name);
        }
    }

    /// Replaces the authority and the certificate of the server, for new connections. Has no effect without TLS.
    ///
    /// # Errors
    /// Returns an error if the certificates cannot be created.
    pub fn rotate_authority(&self) -> Result<(), StartError> {
        let rotated = self.cluster.tls().map(|tls| tls.with_new_authority()).transpose()?;
        // Open connections keep the old certificate. Only new connections see the new authority.
        *self.cluster.tls.lock() = rotated;
        Ok(())
    }

    /// Returns a kubeconfig for the first replica, as YAML.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(0)
    }

    /// Returns a kubeconfig for a replica, counted from 0, as YAML.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    pub fn kubeconfig_of(&self, replica: usize) -> String {
        let tokens = self.cluster.tokens();
        kubeconfig::render(&self.url(replica), self.ca_pem().as_deref(), tokens.first().map(String::as_str))
    }

    /// Opens an in-memory connection to a replica, counted from 0.
    ///
    /// # Errors
    /// Returns `ConnectionRefused` if the replica is stopped or rejects connections, or if it does not exist.
    pub async fn connect(&self, replica: usize) -> io::Result<MemoryStream> {
        self.dialer().connect(replica).await
    }

    /// Returns a dialer that opens in-memory connections, for use in a client.
    pub fn dialer(&self) -> Dialer {
        Dialer { cluster: Arc::clone(&self.cluster), tasks: Arc::clone(&self.tasks) }
    }

    // Access to the history that bypasses the API.

    /// Creates an object of its own kind and version. The object may contain a status.
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn create(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::create(&self.cluster, object).map(|(created, _)| created)
    }

    /// Creates an object like [`create`](Self::create), and returns the API's warnings. The API warns of objects that
    /// are stored without effect, such as a webhook, which this server never calls.
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn create_with_warnings(&self, object: &impl Serialize) -> Result<(Value, Vec<String>), Status> {
        direct::create(&self.cluster, object)
    }

    /// Replaces an object with its status. If the object has a `resourceVersion`, only that version is replaced.
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn replace(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::replace(&self.cluster, object)
    }

    /// Changes an object, including its status, by a JSON merge patch.
    ///
    /// `resource` is a plural name, with its group if several groups have it: `pods`, `events.events.k8s.io`.
    /// `namespace` is empty for cluster-scoped resources.
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn merge_patch(&self, resource: &str, namespace: &str, name: &str, patch: Value) -> Result<Value, Status> {
        direct::patch(&self.cluster, resource, namespace, name, Patch::Merge(patch))
    }

    /// Deletes an object, or marks it as terminating if it has finalizers. If the metadata of `object` contains a
    /// `uid`, only an object with this UID is deleted.
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn delete(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::delete(&self.cluster, object)
    }

    /// Deletes an object by its name. `resource` and `namespace` have the form of [`merge_patch`](Self::merge_patch).
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn delete_named(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        direct::delete_named(&self.cluster, resource, namespace, name)
    }

    /// Returns the newest state of an object. `resource` and `namespace` have the form of
    /// [`merge_patch`](Self::merge_patch).
    ///
    /// # Errors
    /// Returns the error that the API would return.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        direct::get(&self.cluster, resource, namespace, name)
    }

    /// Compacts the history at the current revision: old lists and continue tokens expire.
    ///
    /// Watches continue and can resume. Each replica has its own window of events until it restarts or
    /// [`expire_events`](Faults::expire_events) ends the window.
    pub fn compact(&self) {
        self.cluster.store.write(State::compact);
    }

    /// Removes all changes but the newest `keep` from the history, so that a load test of hours has bounded memory.
    ///
    /// The current objects stay. Exact reads and watches of removed revisions receive `410`, as after a compaction. A
    /// watch that has not received a removed change ends.
    pub fn forget_history(&self, keep: usize) {
        self.cluster.store.write(|state| state.forget(keep));
    }

    /// Returns all changes since the server's start, except those that
    /// [`forget_history`](Self::forget_history) has removed.
    pub fn history(&self) -> History {
        self.cluster.store.read(State::history)
    }

    /// Returns all live objects, for [`ApiServerBuilder::snapshot`](crate::ApiServerBuilder::snapshot) of another server.
    pub fn snapshot(&self) -> Snapshot {
        self.cluster.store.read(State::snapshot)
    }

    /// Waits until the state differs from a snapshot of this server.
    pub async fn changed_since(&self, snapshot: &Snapshot) {
        self.cluster.store.until(|state| state.change_mark() != snapshot.mark()).await;
    }

    /// Returns the served resources by group and plural name, without subresources.
    pub fn resources(&self) -> Vec<GroupResource> {
        self.cluster.store.read(|state| state.registry.all().map(|served| served.name.clone()).collect())
    }

    /// Returns the current revision.
    pub fn revision(&self) -> u64 {
        self.cluster.store.read(State::revision)
    }

    /// Returns the revision that the watch cache of a replica has reached.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    pub fn applied_revision(&self, replica: usize) -> u64 {
        self.cluster.store.read(|state| state.caches[replica].applied_revision)
    }

    /// Returns the time since the server's start on tokio's clock, the time base of all records.
    pub fn elapsed(&self) -> Duration {
        self.cluster.clock.elapsed()
    }

    // Requests and connections.

    /// Returns all requests in the order of arrival.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.cluster.requests.records()
    }

    /// Returns the numbers of requests by kind.
    pub fn request_counts(&self) -> RequestCounts {
        self.cluster.requests.counts()
    }

    /// Returns the number of open watches on a replica.
    ///
    /// # Panics
    /// Panics if the replica does not exist.
    pub fn open_watches(&self, replica: usize) -> usize {
        self.cluster.replicas[replica].streams.all().len()
    }

    /// Returns all connections in the order of arrival.
    pub fn connections(&self) -> Vec<ConnectionRecord> {
        let links = self.cluster.links.lock();
        let record = |link: &Arc<crate::net::Link>| ConnectionRecord {
            id: link.id,
            replica: link.replica,
            opened_at: link.opened_at,
            failed_at: link.failed_at(),
            ended: link.end_state(),
        };
        links.iter().map(record).collect()
    }

    // Faults.

    /// Returns the handle for the faults of all replicas. [`Faults::replica`] selects one replica.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the log of fault switches.
    pub fn fault_log(&self) -> Vec<FaultRecord> {
        self.cluster.fault_log.records()
    }

    /// Stops the server: breaks connections, closes ports and ends tasks. Dropping the server has the same effect.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for (index, replica) in self.cluster.replicas.iter().enumerate() {
            // Dialers may outlive the server. Their connections are then refused.
            replica.change(|condition| condition.is_stopped = true);
            self.cluster.reset_links(index);
        }
        // Dialers that wait at a black hole see the stopped replica.
        self.cluster.changed.raise();
        self.tasks.close();
    }
}
