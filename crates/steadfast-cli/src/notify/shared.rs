//! Shared state of replicas, in a Secret next to the lease.
//!
//! Only the leader writes the state. The client of the leader sends requests within its term only. Each write carries
//! the resource version of the last read, so a late write of an earlier leader conflicts. A new leader writes its term
//! number first.
//!
//! Approvals of removals are the exception: a standby adds the approvals given to this standby, and leaves all other
//! content unchanged. The leader reads the approvals at its next tick, and removes them after its mirrors have taken
//! them.

use std::collections::{BTreeMap, BTreeSet};
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

/// Maximum interval between publications if the versions advance, but no change concerns a rule.
const MAX_PUBLISH_INTERVAL: Duration = Duration::from_secs(10);

/// Key of the state in the Secret.
const STATE_KEY: &str = "state.json";

/// Key of the forwarded approvals in the Secret.
const APPROVALS_KEY: &str = "approvals.json";

/// Maximum number of forwarded approvals. The leader removes them within seconds.
const MAX_APPROVALS: usize = 1000;

/// Number of attempts to forward approvals while other clients write the Secret.
const FORWARD_ATTEMPTS: usize = 4;

/// Approved IDs of each mirror.
pub(super) type ForwardedApprovals = BTreeMap<String, BTreeSet<String>>;

/// Progress of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Versions up to which all messages are delivered or dead letters, by subscription.
    pub(super) settled: SettledVersions,
    /// Versions that the caches have reached, by subscription.
    pub(super) reached: SettledVersions,
    /// Counter that increases with each evaluated change and each finished message.
    pub(super) activity: u64,
    /// Rules that send messages about Secrets. Their settled versions are never stored, so a new leader does not know
    /// which changes the previous leader has settled.
    pub(super) unrecorded_rules: BTreeSet<String>,
}

/// Published state of a leader.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct PublishedState {
    /// Term of the leader.
    pub(super) term: u64,
    /// Versions up to which all messages are delivered or dead letters, by subscription.
    #[serde(default)]
    pub(super) settled: SettledVersions,
    /// Memory of the mirrors: guards, pending and given approvals, and origins of entries.
    #[serde(default)]
    pub(super) memory: String,
}

/// Maximum size of the shared memory of mirrors, in bytes. A Secret has at most 1 MiB. Above the limit, origins of
/// entries are left out.
pub(super) const MAX_MEMORY_BYTES: usize = 640 * 1024;

/// The shared state of the replicas of one lease.
pub(super) struct SharedState {
    secrets: Api<Secret>,
    secret_name: String,
    term: u64,
    /// Resource version of the Secret at the last read or write; `None` if it does not exist.
    version: Option<String>,
    published: PublishedState,
    published_at: Option<Instant>,
    /// Approvals of standbys in this version of the Secret.
    approvals: ForwardedApprovals,
    /// Approvals to remove with the next write.
    settled_approvals: ForwardedApprovals,
    /// Activity of this process at the last publication.
    activity: u64,
}

impl SharedState {
    /// Creates the state for a standby, which only reads.
    pub(super) fn for_standby(client: Client, namespace: &str, lease: &str) -> Self {
        Self::for_leader(client, namespace, lease, 0)
    }

    /// Creates the state for the leader of `term`. `client` must send nothing after the term.
    pub(super) fn for_leader(client: Client, namespace: &str, lease: &str, term: u64) -> Self {
        let secrets = Api::namespaced(client, namespace);
        let published = PublishedState::default();
        Self {
            secrets,
            secret_name: shared_secret_name(lease),
            term,
            version: None,
            published,
            published_at: None,
            approvals: ForwardedApprovals::new(),
            settled_approvals: ForwardedApprovals::new(),
            activity: 0,
        }
    }

    /// Reads the published state; empty if no leader has published yet.
    pub(super) async fn read(&self) -> Result<PublishedState, String> {
        self.read_secret().await.map(|found| found.published)
    }

    /// Adds approvals of a standby for the leader. Returns false before the first leader has published.
    pub(super) async fn forward(&self, approvals: &ForwardedApprovals) -> Result<bool, String> {
        for _ in 1..FORWARD_ATTEMPTS {
            match self.try_forward(approvals).await? {
                // Another client wrote in between. The next attempt adds the approvals to the new content.
                Err(Error::Api(status)) if status.code == 409 => {}
                written => return written.map_err(|error| self.error_message(&error)),
            }
        }
        self.try_forward(approvals).await?.map_err(|error| self.error_message(&error))
    }

    async fn try_forward(&self, approvals: &ForwardedApprovals) -> Result<Result<bool, Error>, String> {
        let read = self.await_response(self.secrets.get_opt(&self.secret_name)).await?;
        let Some(mut secret) = read.map_err(|error| self.error_message(&error))? else { return Ok(Ok(false)) };
        let data = secret.data.get_or_insert_default();
        let mut all = approvals_in(data);
        for (mirror, ids) in approvals {
            all.entry(mirror.clone()).or_default().extend(ids.iter().cloned());
        }
        let count: usize = all.values().map(BTreeSet::len).sum();
        if count > MAX_APPROVALS {
            return Err(
                self.error_message(&format!("{count} approvals wait for the leader, at most {MAX_APPROVALS} can"))
            );
        }
        let content = serde_json::to_vec(&all).map_err(|error| self.error_message(&error))?;
        data.insert(APPROVALS_KEY.to_owned(), ByteString(content));
        // The write carries the resource version of the read, so a concurrent write of the leader or another standby
        // causes a conflict.
        let options = PostParams::default();
        let written = self.await_response(self.secrets.replace(&self.secret_name, &options, &secret)).await?;
        Ok(written.map(|_| true))
    }

    /// Returns the approvals of standbys. Reads the Secret if another client has written it.
    pub(super) async fn forwarded_approvals(&mut self) -> Result<&ForwardedApprovals, String> {
        let read = self.await_response(self.secrets.get_metadata_opt(&self.secret_name)).await?;
        let read = read.map_err(|error| self.error_message(&error))?;
        // A deleted Secret is created again by the next publication.
        if read.is_some_and(|secret| secret.metadata.resource_version != self.version) {
            self.reread().await?;
        }
        Ok(&self.approvals)
    }

    /// Removes a forwarded approval with the next publication.
    pub(super) fn settle_approval(&mut self, mirror: &str, id: &str) {
        self.settled_approvals.entry(mirror.to_owned()).or_default().insert(id.to_owned());
    }

    /// Writes the term of this leader, so that late writes of an earlier leader conflict. Returns the previous state.
    pub(super) async fn take_over(&mut self) -> Result<PublishedState, String> {
        let content = self.read_secret().await?;
        (self.version, self.approvals) = (content.version, content.approvals);
        let previous = content.published;
        // Optimistic locking: a write between this read and ours changes the resource version, and the server responds
        // 409.
        let new_state = PublishedState { term: self.term, ..previous.clone() };
        self.write_secret(new_state).await?;
        Ok(previous)
    }

    /// Publishes the settled versions of this leader: immediately after a change for a rule, and otherwise every ten
    /// seconds. Subscriptions that are not watched now keep their published versions.
    pub(super) async fn publish(&mut self, progress: &Progress, memory: String) -> Result<(), String> {
        let mut settled = self.published.settled.clone();
        settled.extend(progress.settled.iter().map(|(subscription, version)| (subscription.clone(), *version)));
        let has_new_memory = memory != self.published.memory;
        let next = PublishedState { term: self.term, settled, memory };
        // Versions also advance with changes that concern no rule. Publishing each version would write the Secret every
        // second.
        let is_due = self.published_at.is_none_or(|at| at.elapsed() >= MAX_PUBLISH_INTERVAL);
        let has_approvals = !self.settled_approvals.is_empty();
        let is_equal = next == self.published && !has_approvals;
        if is_equal || !(is_due || has_new_memory || has_approvals || progress.activity != self.activity) {
            return Ok(());
        }
        self.write_secret(next).await?;
        // Recorded only after a successful write, so that a failed publication stays due.
        self.activity = progress.activity;
        Ok(())
    }

    /// Awaits the response to `request`.
    async fn await_response<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, String> {
        timeout(REQUEST_TIMEOUT, request).await.map_err(|_| self.error_message(&"no response"))
    }

    async fn read_secret(&self) -> Result<SecretContent, String> {
        let read = self.await_response(self.secrets.get_opt(&self.secret_name)).await?;
        let Some(secret) = read.map_err(|error| self.error_message(&error))? else {
            return Ok(SecretContent::default());
        };
        let data = secret.data.unwrap_or_default();
        // Damaged content counts as empty: the replicas deliver all pending changes once more.
        let published = data.get(STATE_KEY).and_then(|ByteString(content)| serde_json::from_slice(content).ok());
        let (version, approvals) = (secret.metadata.resource_version, approvals_in(&data));
        Ok(SecretContent { version, published: published.unwrap_or_default(), approvals })
    }

    async fn write_secret(&mut self, state: PublishedState) -> Result<(), String> {
        let content = serde_json::to_vec(&state).map_err(|error| self.error_message(&error))?;
        let metadata = ObjectMeta {
            name: Some(self.secret_name.clone()),
            resource_version: self.version.clone(),
            ..ObjectMeta::default()
        };
        let mut data = BTreeMap::from([(STATE_KEY.to_owned(), ByteString(content))]);
        // `self.approvals` are the approvals in this version of the Secret. If the Secret has newer approvals, the
        // write conflicts.
        let mut approvals = self.approvals.clone();
        for (mirror, settled) in &self.settled_approvals {
            if let Some(ids) = approvals.get_mut(mirror) {
                ids.retain(|id| !settled.contains(id));
            }
        }
        approvals.retain(|_, ids| !ids.is_empty());
        if !approvals.is_empty() {
            let content = serde_json::to_vec(&approvals).map_err(|error| self.error_message(&error))?;
            data.insert(APPROVALS_KEY.to_owned(), ByteString(content));
        }
        let data = Some(data);
        let secret = Secret { metadata, data, ..Secret::default() };
        let options = PostParams::default();
        let written = async {
            match &self.version {
                Some(_) => self.secrets.replace(&self.secret_name, &options, &secret).await,
                // A concurrent creation by another replica also results in 409 (AlreadyExists).
                None => self.secrets.create(&options, &secret).await,
            }
        };
        match timeout(REQUEST_TIMEOUT, written).await {
            Ok(Ok(secret)) => {
                self.version = secret.metadata.resource_version;
                (self.published, self.published_at) = (state, Some(Instant::now()));
                self.approvals = approvals;
                self.settled_approvals.clear();
                Ok(())
            }
            Ok(Err(error)) => {
                let reason = self.error_message(&error);
                // 409: another writer was first. 404: the Secret was deleted, and the next attempt creates it.
                if matches!(&error, Error::Api(status) if status.code == 409 || status.code == 404) {
                    self.reread().await?;
                }
                Err(reason)
            }
            // The server may have executed the request.
            Err(_) => {
                self.reread().await?;
                Err(self.error_message(&"no response"))
            }
        }
    }

    /// Reads the Secret again after a failed write, unless a later leader has written it.
    async fn reread(&mut self) -> Result<(), String> {
        let content = self.read_secret().await?;
        // A newer term proves that this leader was replaced. With the new version, this leader could overwrite the
        // state of its successor.
        let term = content.published.term;
        if term > self.term {
            return Err(self.error_message(&format!("a later leader has written it (term {term})")));
        }
        (self.version, self.approvals) = (content.version, content.approvals);
        Ok(())
    }

    fn error_message(&self, reason: &dyn std::fmt::Display) -> String {
        format!("the shared state in the Secret {} cannot be used: {reason}", self.secret_name)
    }
}

/// Content of the Secret. Empty if it does not exist.
#[derive(Default)]
struct SecretContent {
    version: Option<String>,
    published: PublishedState,
    approvals: ForwardedApprovals,
}

/// Returns the forwarded approvals. Damaged content counts as empty: the removals still need approval.
fn approvals_in(data: &BTreeMap<String, ByteString>) -> ForwardedApprovals {
    let content = data.get(APPROVALS_KEY).and_then(|ByteString(content)| serde_json::from_slice(content).ok());
    content.unwrap_or_default()
}

/// Returns the name of the Secret with the settled versions.
pub(super) fn shared_secret_name(lease: &str) -> String {
    format!("{lease}-settled")
}

#[cfg(test)]
mod tests;
