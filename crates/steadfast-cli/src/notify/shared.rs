//! Shared state of replicas, in a Secret next to the lease.
//!
//! Only the leader writes. The client of the leader sends requests within its term only, and each write carries the resource version
//! of the last read, so a late write of an earlier leader conflicts. A new leader writes its term number first.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Error};
use serde::{Deserialize, Serialize};
use steadfast_notify::SettledVersions;
use tokio::time::{Instant, timeout};

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum interval between publications of versions that moved without a change for any rule.
const QUIET_INTERVAL: Duration = Duration::from_secs(10);

/// Key of the state in the Secret.
const CONTENT: &str = "state.json";

/// Progress of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Versions up to which all messages are delivered or dead letters, by handler.
    pub(super) settled: SettledVersions,
    /// Versions that the caches have reached, by handler.
    pub(super) reached: SettledVersions,
    /// Counter that increases with each evaluated change and each finished message.
    pub(super) activity: u64,
}

/// Published state of a leader.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct PublishedState {
    /// Term of the leader.
    pub(super) term: u64,
    /// Versions up to which all messages are delivered or dead letters, by handler.
    #[serde(default)]
    pub(super) settled: SettledVersions,
    /// Memory of the mirrors: guards, pending and given approvals, and origins of entries.
    #[serde(default)]
    pub(super) memory: String,
}

/// Maximum size of the shared memory of mirrors, in bytes. A Secret has at most 1 MiB. Above the limit, origins of entries are left out.
pub(super) const MAX_MEMORY_BYTES: usize = 640 * 1024;

/// The shared state of the replicas of one lease.
pub(super) struct SharedState {
    secrets: Api<Secret>,
    name: String,
    term: u64,
    /// Resource version of the Secret at the last read or write; `None` if it does not exist.
    version: Option<String>,
    published: PublishedState,
    published_at: Option<Instant>,
    /// Activity of this process at the last publication.
    activity: u64,
}

impl SharedState {
    /// Creates the state for a standby, which only reads.
    pub(super) fn of_standby(client: Client, namespace: &str, lease: &str) -> Self {
        Self::of_leader(client, namespace, lease, 0)
    }

    /// Creates the state for the leader of `term`. `client` must send nothing after the term.
    pub(super) fn of_leader(client: Client, namespace: &str, lease: &str, term: u64) -> Self {
        let secrets = Api::namespaced(client, namespace);
        let published = PublishedState::default();
        Self { secrets, name: settled_name(lease), term, version: None, published, published_at: None, activity: 0 }
    }

    /// Reads the published state; empty if no leader has published yet.
    pub(super) async fn read(&self) -> Result<PublishedState, String> {
        self.secret().await.map(|(_, versions)| versions)
    }

    /// Writes the term of this leader, so that late writes of an earlier leader conflict. Returns the previous state.
    pub(super) async fn take_over(&mut self) -> Result<PublishedState, String> {
        let (version, found) = self.secret().await?;
        self.version = version;
        // Optimistic locking: a write between this read and ours changes the resource version, and the server responds
        // 409.
        let own = PublishedState { term: self.term, ..found.clone() };
        self.write(own).await?;
        Ok(found)
    }

    /// Publishes the settled versions of this leader: immediately after a change for a rule, and otherwise every ten seconds.
    /// Positions that are not watched now keep their published versions.
    pub(super) async fn publish(&mut self, own: &Progress, memory: String) -> Result<(), String> {
        let mut settled = self.published.settled.clone();
        settled.extend(own.settled.iter().map(|(position, version)| (position.clone(), *version)));
        let has_learned = memory != self.published.memory;
        let next = PublishedState { term: self.term, settled, memory };
        // Versions also move with changes for no rule. Publishing each of them would write the Secret every second.
        let is_due = self.published_at.is_none_or(|at| at.elapsed() >= QUIET_INTERVAL);
        if next == self.published || !(is_due || has_learned || own.activity != self.activity) {
            return Ok(());
        }
        self.write(next).await?;
        // Only after a successful write: a failed publication stays due.
        self.activity = own.activity;
        Ok(())
    }

    async fn secret(&self) -> Result<(Option<String>, PublishedState), String> {
        let read = timeout(REQUEST_TIMEOUT, self.secrets.get_opt(&self.name)).await;
        let read = read.map_err(|_| self.failed(&"no response"))?.map_err(|error| self.failed(&error))?;
        let Some(secret) = read else { return Ok((None, PublishedState::default())) };
        let content = secret.data.and_then(|mut data| data.remove(CONTENT)).map(|ByteString(bytes)| bytes);
        // Damaged content counts as empty: the replicas deliver all pending changes once more.
        let versions = content.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default();
        Ok((secret.metadata.resource_version, versions))
    }

    async fn write(&mut self, versions: PublishedState) -> Result<(), String> {
        let content = serde_json::to_vec(&versions).map_err(|error| self.failed(&error))?;
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            resource_version: self.version.clone(),
            ..ObjectMeta::default()
        };
        let data = Some(BTreeMap::from([(CONTENT.to_owned(), ByteString(content))]));
        let secret = Secret { metadata, data, ..Secret::default() };
        let options = PostParams::default();
        let written = async {
            match &self.version {
                Some(_) => self.secrets.replace(&self.name, &options, &secret).await,
                // A concurrent creation by another replica also results in 409 (AlreadyExists).
                None => self.secrets.create(&options, &secret).await,
            }
        };
        match timeout(REQUEST_TIMEOUT, written).await {
            Ok(Ok(secret)) => {
                self.version = secret.metadata.resource_version;
                (self.published, self.published_at) = (versions, Some(Instant::now()));
                Ok(())
            }
            Ok(Err(error)) => {
                let why = self.failed(&error);
                // 409: another writer was first. 404: the Secret was deleted, and the next attempt creates it.
                if matches!(&error, Error::Api(status) if status.code == 409 || status.code == 404) {
                    self.resume().await?;
                }
                Err(why)
            }
            // The server may have executed the request.
            Err(_) => {
                self.resume().await?;
                Err(self.failed(&"no response"))
            }
        }
    }

    /// Reads the Secret again after a failed write, unless a later leader has written it.
    async fn resume(&mut self) -> Result<(), String> {
        let (version, found) = self.secret().await?;
        // A newer term proves that this leader was replaced. Adopting the version would let it overwrite the successor.
        if found.term > self.term {
            return Err(self.failed(&format!("a later leader has written it (term {})", found.term)));
        }
        self.version = version;
        Ok(())
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> String {
        format!("the shared state in the Secret {} cannot be used: {why}", self.name)
    }
}

/// Returns the name of the Secret with the settled versions.
pub(super) fn settled_name(lease: &str) -> String {
    format!("{lease}-settled")
}

#[cfg(test)]
mod tests;
