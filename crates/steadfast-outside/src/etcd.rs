//! Keys under a prefix of etcd, with a lease: a registry of what there is, which ends when nobody keeps it up.
//!
//! A key is the mirror's if it has the mirror's lease; all others under the prefix are left alone. The number of the lease follows from the
//! mirror's mark and the prefix, so that it is the same after a restart, and nothing of it stands in the values, which are as they are wanted to the last byte. Each
//! change is a transaction which takes that the key has the lease, or that there is no such key: what somebody has put there since it was
//! looked at stays theirs.
//!
//! Each look keeps the lease alive. Where nobody has looked for as long as the lease lasts, etcd takes all of it away; the next look
//! finds that, and it is put there again. So the lease has to last several times as long as it is between two looks.
//!
//! It is spoken to by its JSON gateway, `/v3`, which etcd 3.4 and newer have.

mod answers;
mod gateway;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::entry::{Found, Step, Target, Value};
use crate::together::{Sender, together};
use answers::{Kv, bytes};
pub use gateway::EtcdError;
use gateway::Gateway;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl Value for Text {}

/// So many keys are read at once.
const PAGE: usize = 1000;

/// So many keys are changed by one transaction, unless something is wrong with one of them. etcd takes no more than 128.
const TOGETHER: usize = 64;

/// The keys under one prefix that are a mirror's.
#[derive(Clone, Debug)]
pub struct Etcd {
    gateway: Gateway,
    prefix: String,
    lease: i64,
    lasts: Duration,
}

impl Etcd {
    /// The keys under `prefix` that are of `mark`, in the etcd whose client URLs are `endpoints`: `http://HOST:PORT` each; the first that
    /// answers is asked.
    ///
    /// # Errors
    ///
    /// Where an endpoint is none, or the prefix or the mark is empty: all of etcd is nobody's alone.
    pub fn new(endpoints: &[&str], prefix: &str, mark: &str) -> Result<Self, EtcdError> {
        if prefix.is_empty() || mark.is_empty() {
            return Err(EtcdError::Empty);
        }
        let (gateway, lease) = (Gateway::new(endpoints)?, lease_of(mark, prefix));
        Ok(Self { gateway, prefix: prefix.to_owned(), lease, lasts: Duration::from_secs(300) })
    }

    /// Has the lease last so long, in whole seconds, after the last look: five minutes unless this is said. etcd makes it longer where
    /// it is less than the time of its elections.
    #[must_use]
    pub fn lasting(self, lasts: Duration) -> Self {
        Self { lasts, ..self }
    }

    /// How long the lease lasts after the last look.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Whether the lease is there, and kept so from now on.
    async fn keep(&self) -> Result<bool, EtcdError> {
        let kept = self.gateway.ask("lease/keepalive", &json!({ "ID": self.lease.to_string() })).await?;
        // Of one that is not there no time is left.
        Ok(answers::number(&kept["result"]["TTL"]) > 0)
    }

    async fn grant(&self) -> Result<(), EtcdError> {
        if self.keep().await? {
            return Ok(());
        }
        let lasts = self.lasts.as_secs().max(1);
        let granted = json!({ "ID": self.lease.to_string(), "TTL": lasts.to_string() });
        self.gateway.ask("lease/grant", &granted).await.map(drop)
    }

    /// All that is under the prefix, as of one moment.
    async fn keys(&self) -> Result<Vec<Kv>, EtcdError> {
        let (mut keys, mut from, mut revision) = (Vec::new(), self.prefix.clone().into_bytes(), 0);
        loop {
            let asked = json!({
                "key": bytes(&from), "range_end": bytes(&after(self.prefix.as_bytes())),
                "limit": PAGE.to_string(), "revision": revision.to_string(),
            });
            let page = self.gateway.ask("kv/range", &asked).await?;
            revision = answers::number(&page["header"]["revision"]).max(revision);
            let kvs = answers::kvs(&page).map_err(|why| self.gateway.unexpected("kv/range", &why))?;
            let last = kvs.last().map(|kv| kv.key.clone());
            keys.extend(kvs);
            match (page["more"].as_bool(), last) {
                (Some(true), Some(last)) => from = [last, vec![0]].concat(),
                _ => return Ok(keys),
            }
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// What a step takes, and what it does.
    fn transaction(&self, step: &Step<Text>) -> (Json, Json) {
        let key = bytes(self.key(step.name()).as_bytes());
        let own = json!({ "key": key, "target": "LEASE", "result": "EQUAL", "lease": self.lease.to_string() });
        let put = |Text(value): &Text| {
            let value = bytes(value.as_bytes());
            json!({ "request_put": { "key": key, "value": value, "lease": self.lease.to_string() } })
        };
        match step {
            Step::Add { value, .. } => {
                (json!({ "key": key, "target": "VERSION", "result": "EQUAL", "version": "0" }), put(value))
            }
            Step::Change { to, .. } => (own, put(to)),
            Step::Remove { .. } => (own, json!({ "request_delete_range": { "key": key } })),
        }
    }
}

impl Sender for &Etcd {
    type Change = Step<Text>;
    type Error = EtcdError;

    async fn send(&mut self, steps: &[Step<Text>]) -> Result<(), EtcdError> {
        let (compared, done): (Vec<_>, Vec<_>) = steps.iter().map(|step| self.transaction(step)).unzip();
        let answer = self.gateway.ask("kv/txn", &json!({ "compare": compared, "success": done })).await?;
        if answer["succeeded"] == true {
            return Ok(());
        }
        Err(EtcdError::Taken { keys: steps.iter().map(|step| self.key(step.name())).collect() })
    }

    fn is_of_one(error: &EtcdError) -> bool {
        match error {
            EtcdError::Taken { .. } => true,
            EtcdError::Refused { answer, .. } => answer.contains("too large") || answer.contains("permission denied"),
            _ => false,
        }
    }
}

/// The number of a lease, the same in any release of this program: FNV-1a over both, and positive.
fn lease_of(mark: &str, prefix: &str) -> i64 {
    let bytes = mark.bytes().chain([0]).chain(prefix.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    i64::try_from(hash >> 1).unwrap_or(i64::MAX).max(1)
}

/// The first key that comes after all that begin with `prefix`; `\0` is etcd's word for the end.
fn after(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        Some(last) => [&prefix[..last], &[prefix[last] + 1]].concat(),
        None => vec![0],
    }
}

impl Target for Etcd {
    type Value = Text;
    type Error = EtcdError;

    async fn look(&self) -> Result<Found<Text>, EtcdError> {
        self.keep().await?;
        let mut found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for Kv { key, value, lease } in self.keys().await? {
            let name = String::from_utf8_lossy(&key[self.prefix.len().min(key.len())..]).into_owned();
            if lease == self.lease {
                found.own.insert(name, Text(String::from_utf8_lossy(&value).into_owned()));
            } else {
                found.others.insert(name);
            }
        }
        Ok(found)
    }

    async fn act(&self, steps: &[Step<Text>]) -> Result<(), EtcdError> {
        self.grant().await?;
        together(self, steps, TOGETHER).await
    }

    fn describe(&self, _found: &Found<Text>, steps: &[Step<Text>]) -> Vec<String> {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let endpoints = self.gateway.endpoints();
        let described = steps.iter().map(|step| {
            let key = quoted(&self.key(step.name()));
            match step {
                Step::Add { value, .. } | Step::Change { to: value, .. } => {
                    format!(
                        "etcdctl --endpoints={endpoints} put --lease={:x} -- {key} {}",
                        self.lease,
                        quoted(&value.0)
                    )
                }
                Step::Remove { .. } => format!("etcdctl --endpoints={endpoints} del -- {key}"),
            }
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests;
