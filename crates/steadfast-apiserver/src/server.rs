//! The running server.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::direct;
use crate::error::StartError;
use crate::faults::{FaultRecord, Faults};
use crate::kubeconfig;
use crate::net::{ClientIdentity, Dialer, LinkEnd, MemoryStream, Port, TaskGroup};
use crate::records::{RequestCounts, RequestRecord};
use crate::resources::GroupResource;
use crate::status::Status;
use crate::storage::{History, Patch, State};

/// An API server: one history, one or several replicas. All of it ends when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    cluster: Arc<Cluster>,
    tasks: Arc<TaskGroup>,
    faults: Faults,
}

/// A connection there was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Its number; they rise in the order in which connections came.
    pub id: u64,
    /// The replica it was made to.
    pub replica: usize,
    /// When it was accepted, since the server's start.
    pub opened_at: Duration,
    /// When a fault broke it, by a reset or a black hole.
    pub failed_at: Option<Duration>,
    /// When it ended, and how; `None` while it is open.
    pub ended: Option<(Duration, LinkEnd)>,
}

impl ApiServer {
    pub(crate) fn new(cluster: Arc<Cluster>, tasks: Arc<TaskGroup>) -> Self {
        let faults = Faults::of_all(Arc::clone(&cluster));
        Self { cluster, tasks, faults }
    }

    // Reaching it.

    /// How many replicas there are.
    pub fn replicas(&self) -> usize {
        self.cluster.replicas.len()
    }

    /// The base URL of a replica; of a server in memory, a name that represents it.
    ///
    /// # Panics
    /// Where there is no such replica.
    pub fn url(&self, replica: usize) -> String {
        let scheme = if self.cluster.tls().is_some() { "https" } else { "http" };
        match self.address(replica) {
            Some(address) => format!("{scheme}://{address}"),
            None => format!("{scheme}://localhost:{}", 6443 + replica),
        }
    }

    /// The address of a replica; `None` where the server is in memory.
    ///
    /// # Panics
    /// Where there is no such replica.
    pub fn address(&self, replica: usize) -> Option<std::net::SocketAddr> {
        self.cluster.replicas[replica].port.as_ref().map(Port::address)
    }

    /// The certificate of the authority, as PEM, where TLS is on.
    pub fn ca_pem(&self) -> Option<String> {
        self.cluster.tls().map(|tls| tls.ca_pem)
    }

    /// A certificate by which a client is known as `name`; `None` without TLS.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn issue_client_certificate(&self, name: &str) -> Result<Option<ClientIdentity>, StartError> {
        self.cluster.tls().map(|tls| tls.issue(name)).transpose()
    }

    /// Accepts no certificate of `name` any more.
    pub fn revoke_client_certificates(&self, name: &str) {
        if let Some(tls) = self.cluster.tls() {
            tls.revoke(name);
        }
    }

    /// Another authority and another certificate of the server, for connections from now on; nothing without TLS.
    ///
    /// # Errors
    /// Where they cannot be made.
    pub fn rotate_authority(&self) -> Result<(), StartError> {
        let rotated = self.cluster.tls().map(|tls| tls.rotated()).transpose()?;
        *self.cluster.tls.lock().unwrap_or_else(PoisonError::into_inner) = rotated;
        Ok(())
    }

    /// A kubeconfig for the first replica, as YAML.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(0)
    }

    /// A kubeconfig for a replica, as YAML.
    ///
    /// # Panics
    /// Where there is no such replica.
    pub fn kubeconfig_of(&self, replica: usize) -> String {
        let tokens = self.cluster.tokens();
        kubeconfig::render(&self.url(replica), self.ca_pem().as_deref(), tokens.first().map(String::as_str))
    }

    /// Opens an in-memory connection to a replica.
    ///
    /// # Errors
    /// `ConnectionRefused` where the replica is stopped or refuses, or where there is none.
    pub async fn connect(&self, replica: usize) -> io::Result<MemoryStream> {
        self.dialer().connect(replica).await
    }

    /// What opens in-memory connections, to be handed to a client.
    pub fn dialer(&self) -> Dialer {
        Dialer { cluster: Arc::clone(&self.cluster), tasks: Arc::clone(&self.tasks) }
    }

    // The history, past the API.

    /// Creates an object; its kind and version say where, and it may come with a status.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn create(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::create(&self.cluster, object).map(|(created, _)| created)
    }

    /// Creates an object like [`create`](Self::create), and says what the API would warn of: what is stored without
    /// effect, as a webhook that this server never calls.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn create_with_warnings(&self, object: &impl Serialize) -> Result<(Value, Vec<String>), Status> {
        direct::create(&self.cluster, object)
    }

    /// Replaces an object, status included; with a `resourceVersion`, only that version.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn replace(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::replace(&self.cluster, object)
    }

    /// Changes an object, status included, by a JSON merge patch.
    ///
    /// `resource` is a plural name, with its group where several groups have it: `pods`, `events.events.k8s.io`. The
    /// namespace of what is cluster-scoped is empty.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn merge_patch(&self, resource: &str, namespace: &str, name: &str, patch: Value) -> Result<Value, Status> {
        direct::patch(&self.cluster, resource, namespace, name, Patch::Merge(patch))
    }

    /// Deletes an object, or marks it where finalizers hold it; with a `uid` in its metadata, only that one.
    ///
    /// # Errors
    /// What the API would answer.
    pub fn delete(&self, object: &impl Serialize) -> Result<Value, Status> {
        direct::delete(&self.cluster, object)
    }

    /// Deletes an object by its name; `resource` and `namespace` as for [`merge_patch`](Self::merge_patch).
    ///
    /// # Errors
    /// What the API would answer.
    pub fn delete_named(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        direct::delete_named(&self.cluster, resource, namespace, name)
    }

    /// The newest state of an object; `resource` and `namespace` as for [`merge_patch`](Self::merge_patch).
    ///
    /// # Errors
    /// What the API would answer.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        direct::get(&self.cluster, resource, namespace, name)
    }

    /// Drops the history below now: old lists and continue tokens have expired.
    ///
    /// Watches go on, and resume, for each replica has a window of events of its own until it restarts or
    /// [`expire_events`](Faults::expire_events) ends it.
    pub fn compact(&self) {
        self.cluster.store.write(State::compact);
    }

    /// Every change there ever was.
    pub fn history(&self) -> History {
        self.cluster.store.read(State::history)
    }

    /// The resources that are served now, by group and plural name, subresources aside.
    pub fn resources(&self) -> Vec<GroupResource> {
        self.cluster.store.read(|state| state.registry.all().map(|served| served.name.clone()).collect())
    }

    /// The revision of now.
    pub fn revision(&self) -> u64 {
        self.cluster.store.read(State::revision)
    }

    /// The revision that a replica's watch cache has reached.
    ///
    /// # Panics
    /// Where there is no such replica.
    pub fn applied_revision(&self, replica: usize) -> u64 {
        self.cluster.store.read(|state| state.caches[replica].applied)
    }

    /// Time since the server's start, by tokio's clock: what all records are dated by.
    pub fn elapsed(&self) -> Duration {
        self.cluster.clock.elapsed()
    }

    // What was asked, and by whom.

    /// Every request there was, in the order they came.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.cluster.requests.records()
    }

    /// How often each was requested of the server.
    pub fn request_counts(&self) -> RequestCounts {
        self.cluster.requests.counts()
    }

    /// How many watches are open on a replica.
    ///
    /// # Panics
    /// Where there is no such replica.
    pub fn open_watches(&self, replica: usize) -> usize {
        self.cluster.replicas[replica].streams.all().len()
    }

    /// Every connection there was, in the order they came.
    pub fn connections(&self) -> Vec<ConnectionRecord> {
        let links = self.cluster.links.lock().unwrap_or_else(PoisonError::into_inner);
        let record = |link: &Arc<crate::net::Link>| ConnectionRecord {
            id: link.id,
            replica: link.replica,
            opened_at: link.opened_at,
            failed_at: link.failed_at(),
            ended: link.ended(),
        };
        links.iter().map(record).collect()
    }

    // Faults.

    /// The faults of all replicas together; [`Faults::replica`] narrows it to one.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// When which fault was switched.
    pub fn fault_log(&self) -> Vec<FaultRecord> {
        self.cluster.fault_log.records()
    }

    /// Stops the server: connections break, ports close, tasks end. Dropping it does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for (index, replica) in self.cluster.replicas.iter().enumerate() {
            // Dialers may outlive the server, and are refused then.
            replica.change(|now| now.stopped = true);
            self.cluster.reset_links(index);
        }
        self.cluster.changed.raise();
        self.tasks.close();
    }
}
