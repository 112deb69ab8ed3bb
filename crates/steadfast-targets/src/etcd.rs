//! Keys under a prefix of etcd, with a lease: a registry that empties when no process maintains it.
//!
//! A key belongs to the mirror if it has the mirror's lease; all other keys under the prefix stay unchanged. The ID of
//! the lease follows from the mirror's mark and the prefix. So the ID stays equal after a restart, and values need no
//! mark. Each change is a transaction. It requires that the key still has the lease, or does not exist. So a key
//! written by another client since the last read stays unchanged.
//!
//! [`Target::renew`] and each read keep the lease alive. If the lease has expired, etcd has removed all of its keys,
//! and the mirror adds them again. A watch of the prefix reports this, and every other change of the mirror's keys,
//! at once.
//!
//! Requests go to the JSON gateway (`/v3`) of etcd 3.4 and newer, at the endpoint that responded last. Each attempt has
//! its own deadline. A failed read continues at the next endpoint. A write without a response is not sent again: the
//! next read, from another endpoint, shows whether the write was applied.

mod client;
mod error;
mod gateway;
mod numbers;
mod owner;
mod pages;
mod responses;
mod term;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use crate::batches::{BatchLimits, BatchSender, FailedChanges, RejectionCache, send_in_batches};
use crate::entry::{ActualState, EntryValue, Step, Target};
use crate::owner::ClaimResult;
pub use client::{Body, EtcdClient, PlainEtcdClient};
pub use error::EtcdError;
use gateway::{Gateway, Retry, TOO_LARGE, User};
use numbers::{fnv_hash, lease_id, prefix_end};
use pages::PageSizes;
use responses::{KeyValue, encode_bytes};
use watch::LastRead;

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdValue(pub String);

impl EntryValue for EtcdValue {}

/// Bounds of one transaction. The size counts bytes of JSON. The defaults of etcd are 128 operations and 1.5 MiB. etcd
/// limits the number of conditions too, and a replica adds one for its term.
const TRANSACTION_LIMITS: BatchLimits = BatchLimits { count: 127, bytes: 768 * 1024 };

/// Upper bound of a key with its value: etcd's request limit of 1.5 MiB minus 4 KiB for the surrounding transaction.
const MAX_ENTRY_BYTES: usize = 1536 * 1024 - 4096;

/// Keys under one prefix that belong to a mirror.
#[derive(Clone, Debug)]
pub struct Etcd<R = PlainEtcdClient> {
    gateway: Gateway<R>,
    prefix: String,
    mark: String,
    lease: i64,
    lease_ttl: Duration,
    last_read: Arc<Mutex<LastRead>>,
    /// Revisions of the mirror's own transactions since the last read. Locked while a transaction is in flight.
    own_revisions: Arc<tokio::sync::Mutex<BTreeSet<i64>>>,
    failed_changes: FailedChanges,
    rejections: RejectionCache,
    pages: PageSizes,
    /// Term that each write requires. `None` for writes without this condition.
    required_term: Arc<Mutex<Option<u64>>>,
}

impl Etcd {
    /// Creates the target for the keys of `mark` under `prefix`, in the etcd with the client URLs `endpoints`:
    /// `http://HOST:PORT` each.
    ///
    /// # Errors
    ///
    /// Returns an error if an endpoint is not such a URL, or the prefix or the mark is empty.
    pub fn new(endpoints: &[&str], prefix: &str, mark: &str) -> Result<Self, EtcdError> {
        Self::open(PlainEtcdClient, endpoints, &["http"], prefix, mark)
    }
}

impl<R: EtcdClient> Etcd<R> {
    /// Creates the target like [`new`](Etcd::new), and sends its requests with the client `client`. Endpoints may be
    /// `https://HOST:PORT`.
    ///
    /// # Errors
    ///
    /// Returns an error if an endpoint is not such a URL, or the prefix or the mark is empty.
    pub fn with_client(client: R, endpoints: &[&str], prefix: &str, mark: &str) -> Result<Self, EtcdError> {
        Self::open(client, endpoints, &["http", "https"], prefix, mark)
    }

    fn open(client: R, endpoints: &[&str], schemes: &[&str], prefix: &str, mark: &str) -> Result<Self, EtcdError> {
        if prefix.is_empty() || mark.is_empty() {
            return Err(EtcdError::EmptyPrefixOrMark);
        }
        // The lease ID derives from mark and prefix: a restarted process finds its keys without stored state.
        let (gateway, lease) = (Gateway::new(client, endpoints, schemes)?, lease_id(mark, prefix));
        let (prefix, mark, lease_ttl) = (prefix.to_owned(), mark.to_owned(), Duration::from_secs(300));
        let (last_read, own_revisions) = (Arc::default(), Arc::default());
        Ok(Self {
            gateway,
            prefix,
            mark,
            lease,
            lease_ttl,
            last_read,
            own_revisions,
            failed_changes: FailedChanges::default(),
            rejections: RejectionCache::default(),
            pages: PageSizes::default(),
            required_term: Arc::default(),
        })
    }

    /// Sets how long the lease lasts after its last renewal, in whole seconds. Defaults to five minutes. etcd raises a
    /// duration below its minimum, which depends on the election timeout of etcd.
    #[must_use]
    pub fn with_lease_ttl(self, lease_ttl: Duration) -> Self {
        Self { lease_ttl, ..self }
    }

    /// Authenticates as the user `name`. `password` is called for each new token, so that a changed password is read
    /// again.
    #[must_use]
    pub fn user(mut self, name: &str, password: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        self.gateway.user = Some(User { name: name.to_owned(), password: Arc::new(password) });
        self
    }

    /// Returns the duration of the lease after its last renewal.
    pub fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.last_read.lock()
    }

    /// Renews a lease. Returns true if the lease exists.
    async fn keep_lease(&self, lease: i64) -> Result<bool, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let response = self.gateway.request(Retry::Allowed, "lease/keepalive", &body).await?;
        // A lease that does not exist has no time left.
        Ok(responses::parse_number(&response["result"]["TTL"]) > 0)
    }

    /// Renews a lease, or creates it.
    async fn grant_lease(&self, lease: i64, seconds: u64) -> Result<(), EtcdError> {
        if self.keep_lease(lease).await? {
            return Ok(());
        }
        let body = json!({ "ID": lease.to_string(), "TTL": seconds.max(1).to_string() });
        match self.gateway.request(Retry::Allowed, "lease/grant", &body).await {
            // An earlier attempt without a response was successful.
            Err(EtcdError::Rejected { message, .. }) if message.contains("lease already exists") => Ok(()),
            result => result.map(drop),
        }
    }

    /// Returns all keys under the prefix, and the revision of the read.
    async fn read_keys(&self) -> Result<(Vec<KeyValue>, i64), EtcdError> {
        let (mut keys, mut from, mut revision) = (Vec::new(), self.prefix.clone().into_bytes(), 0);
        let mut size = self.pages.start();
        loop {
            let body = json!({
                // A fixed revision gives all pages one snapshot. The first request sends 0, which means the current
                // revision.
                "key": encode_bytes(&from), "range_end": encode_bytes(&prefix_end(self.prefix.as_bytes())),
                "limit": size.keys().to_string(), "revision": revision.to_string(),
            });
            let started = Instant::now();
            let page = match self.gateway.request(Retry::Allowed, "kv/range", &body).await {
                // Keys can be small and values large. Fewer keys per page keep the response below the limit.
                Err(EtcdError::Rejected { message, .. }) if message == TOO_LARGE && size.halve() => continue,
                Err(error @ EtcdError::Unreachable { .. }) => {
                    self.pages.record_failure(&size);
                    return Err(error);
                }
                page => page?,
            };
            size.record_duration(started.elapsed());
            revision = responses::parse_number(&page["header"]["revision"]).max(revision);
            let key_values =
                responses::parse_key_values(&page).map_err(|reason| self.gateway.unexpected("kv/range", &reason))?;
            let last_key = key_values.last().map(|key_value| key_value.key.clone());
            keys.extend(key_values);
            let Some(last_key) = last_key.filter(|_| page["more"].as_bool() == Some(true)) else {
                self.pages.record_success(&size);
                return Ok((keys, revision));
            };
            // The key with a zero byte appended is the direct successor, the first key of the next page.
            from = [last_key, vec![0]].concat();
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns an error if etcd cannot store the value.
    fn check_size(&self, name: &str, EtcdValue(value): &EtcdValue) -> Result<(), EtcdError> {
        let key = self.key(name);
        let bytes = key.len() + value.len();
        if bytes > MAX_ENTRY_BYTES {
            return Err(EtcdError::TooLarge { key: error::display_key(&key), bytes });
        }
        Ok(())
    }

    /// Returns the condition of a step, and the operation.
    fn condition_and_operation(&self, step: &Step<EtcdValue>) -> (Json, Json) {
        let key = encode_bytes(self.key(step.name()).as_bytes());
        // The lease of a key marks its owner. The comparison fails if another client replaced the key in between.
        let own_condition =
            json!({ "key": key, "target": "LEASE", "result": "EQUAL", "lease": self.lease.to_string() });
        let put = |EtcdValue(value): &EtcdValue| {
            let value = encode_bytes(value.as_bytes());
            json!({ "request_put": { "key": key, "value": value, "lease": self.lease.to_string() } })
        };
        match step {
            Step::Add { value, .. } => {
                // Version 0 means that the key does not exist: an addition never overwrites a foreign key.
                (json!({ "key": key, "target": "VERSION", "result": "EQUAL", "version": "0" }), put(value))
            }
            Step::Change { to, .. } => (own_condition, put(to)),
            Step::Remove { .. } => (own_condition, json!({ "request_delete_range": { "key": key } })),
        }
    }
}

impl<R: EtcdClient> BatchSender for &Etcd<R> {
    type Change = Step<EtcdValue>;
    type Error = EtcdError;

    fn size(&self, step: &Step<EtcdValue>) -> usize {
        let value = match step {
            Step::Add { value: EtcdValue(value), .. } | Step::Change { to: EtcdValue(value), .. } => value.len(),
            Step::Remove { .. } => 0,
        };
        let key = self.prefix.len() + step.name().len();
        // Base64 has four bytes for three, the key occurs twice, and the constant covers the JSON around them.
        (value + 2 * key) / 3 * 4 + 256
    }

    fn id(&self, step: &Step<EtcdValue>) -> String {
        step.name().to_owned()
    }

    async fn send(&mut self, steps: &[&Step<EtcdValue>]) -> Result<(), EtcdError> {
        for step in steps {
            if let Step::Add { value, .. } | Step::Change { to: value, .. } = step {
                self.check_size(step.name(), value)?;
            }
        }
        let (mut conditions, operations): (Vec<_>, Vec<_>) =
            steps.iter().map(|step| self.condition_and_operation(step)).unzip();
        let (condition, failure_operations) = self.term_condition();
        conditions.extend(condition);
        let transaction = json!({ "compare": conditions, "success": operations, "failure": failure_operations });
        // The lock is held until the response is recorded. The watch takes this lock too, so that it recognises the
        // event of this write.
        let mut own_revisions = self.own_revisions.lock().await;
        // A transaction without a response may have been committed. A retry would fail its own conditions.
        let response = self.gateway.request(Retry::Never, "kv/txn", &transaction).await;
        if let (
            Err(error @ EtcdError::Rejected { .. }),
            [Step::Add { name, value } | Step::Change { name, to: value, .. }],
        ) = (&response, steps)
            && !self.ends_attempt(error)
        {
            self.rejections.add(std::iter::once(rejection_key(name, value)), error);
        }
        let response = response?;
        if response["succeeded"] == true {
            own_revisions.insert(responses::parse_number(&response["header"]["revision"]));
            self.rejections.record_success();
            return Ok(());
        }
        self.check_term(&response)?;
        Err(EtcdError::Conflict { keys: steps.iter().map(|step| error::display_key(&self.key(step.name()))).collect() })
    }

    fn ends_attempt(&self, error: &EtcdError) -> bool {
        // A later transaction would fail as well: the lease, the term, the endpoint or the token is invalid for all
        // keys.
        let is_lease_missing =
            matches!(error, EtcdError::Rejected { message, .. } if message.contains("lease not found"));
        let is_superseded = matches!(error, EtcdError::Superseded { .. });
        is_lease_missing
            || is_superseded
            || error.may_succeed_elsewhere()
            || error.needs_new_token()
            || matches!(error, EtcdError::Password { .. })
    }
}

/// Returns the text that identifies a rejected entry with its value.
fn rejection_key(name: &str, EtcdValue(value): &EtcdValue) -> String {
    format!("{:x} {name}", fnv_hash(&[value]))
}

impl<R: EtcdClient> Target for Etcd<R> {
    type Value = EtcdValue;
    type Error = EtcdError;

    const HAS_OWNER_RECORD: bool = true;

    async fn read(&self) -> Result<ActualState<EtcdValue>, EtcdError> {
        // The lease is renewed before the range request: an expired lease deletes its keys, and the read must show
        // this.
        self.keep_lease(self.lease).await?;
        let (keys, revision) = self.read_keys().await?;
        let mut found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        let mut last_read = LastRead { revision, ..LastRead::default() };
        for KeyValue { key, value, lease, .. } in keys {
            let name = String::from_utf8_lossy(&key[self.prefix.len().min(key.len())..]).into_owned();
            if lease == self.lease {
                found.own.insert(name, EtcdValue(String::from_utf8_lossy(&value).into_owned()));
                last_read.own.insert(key);
            } else {
                found.others.insert(name);
                last_read.others.insert(key);
            }
        }
        // The read includes the events up to this revision, so the set no longer needs the writes up to this
        // revision.
        self.own_revisions.lock().await.retain(|own_revision| *own_revision > revision);
        let mut previous_read = self.last_read();
        // After a restore from a backup, an earlier report can be ahead of the cluster. Such a report is dropped.
        last_read.reported = previous_read.reported.filter(|(_, reported)| *reported <= revision);
        *previous_read = last_read;
        Ok(found)
    }

    async fn apply(&self, steps: &[Step<EtcdValue>]) -> Result<(), EtcdError> {
        self.grant_lease(self.lease, self.lease_ttl.as_secs()).await?;
        send_in_batches(self, steps, TRANSACTION_LIMITS, &self.failed_changes).await
    }

    fn describe(&self, _found: &ActualState<EtcdValue>, steps: &[Step<EtcdValue>]) -> Vec<String> {
        let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let endpoints = self.gateway.endpoints();
        let commands = steps.iter().map(|step| {
            let key = quote(&self.key(step.name()));
            match step {
                Step::Add { value, .. } | Step::Change { to: value, .. } => {
                    format!("etcdctl --endpoints={endpoints} put --lease={:x} -- {key} {}", self.lease, quote(&value.0))
                }
                Step::Remove { .. } => format!("etcdctl --endpoints={endpoints} del -- {key}"),
            }
        });
        commands.collect()
    }

    fn validate(&self, desired: &mut BTreeMap<String, EtcdValue>) -> BTreeMap<String, String> {
        let mut rejected = BTreeMap::new();
        desired.retain(|name, value| {
            let checked = self.check_size(name, value).map_err(|error| error.to_string());
            let checked =
                checked.and_then(|()| self.rejections.reason(&rejection_key(name, value)).map_or(Ok(()), Err));
            let is_accepted = checked.is_ok();
            rejected.extend(checked.err().map(|reason| (name.clone(), reason)));
            is_accepted
        });
        rejected
    }

    async fn changed(&self) {
        self.watch().await;
    }

    async fn claim(&self, instance: &str, now: u64) -> Result<ClaimResult, EtcdError> {
        self.claim_keys(instance, now).await
    }

    async fn record_term(&self, term: u64, _now: u64) -> Result<bool, EtcdError> {
        self.record_term(term).await
    }

    async fn renew(&self) -> Result<(), EtcdError> {
        // The result is ignored: a missing lease has no keys, and the first write of a key grants the lease.
        self.keep_lease(self.lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
