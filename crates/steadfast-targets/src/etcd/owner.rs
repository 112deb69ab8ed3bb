//! Ownership record: a key outside of the prefix, with its own lease. The lease expires if no process renews it.

use serde_json::{Value as Json, json};

use super::Etcd;
use super::client::EtcdClient;
use super::error::EtcdError;
use super::gateway::Retry;
use super::numbers::fnv_hash;
use super::responses::{self, encode_bytes};
use crate::owner::{ClaimResult, OWNER_EXPIRES_SECS, OWNER_RENEW_SECS};
use crate::step_runner::escape_text;

/// Maximum number of attempts if the record changes during a claim.
const MAX_CLAIM_ATTEMPTS: usize = 3;

/// Record of the last read.
struct OwnerRecord {
    instance: String,
    renewed: u64,
    lease: i64,
    revision: i64,
}

impl<R: EtcdClient> Etcd<R> {
    /// Claims the keys of this mark for the process `instance` at `now`, in seconds since 1970.
    ///
    /// The record is a key outside of the prefix (`steadfast-owner/LEASE`). It expires five minutes after its last
    /// renewal, by the clock of etcd. The next claim then replaces the record.
    pub(super) async fn claim_keys(&self, instance: &str, now: u64) -> Result<ClaimResult, EtcdError> {
        let mut claim = ClaimResult::Ours;
        for _ in 0..MAX_CLAIM_ATTEMPTS {
            let record = self.read_owner_record().await?;
            let is_written = match &record {
                // etcd deletes an expired record together with its lease. The recorded time matters only if the record
                // has no lease.
                Some(record) if record.instance != instance => {
                    let is_expired = record.lease == 0 && now.abs_diff(record.renewed) >= OWNER_EXPIRES_SECS;
                    if !is_expired {
                        let instance = escape_text(&record.instance);
                        return Ok(ClaimResult::Other { instance, renewed: record.renewed });
                    }
                    self.write_owner_record(instance, now, record.revision).await?
                }
                Some(record) => {
                    let is_kept = self.keep_lease(record.lease).await?;
                    if is_kept && now.abs_diff(record.renewed) < OWNER_RENEW_SECS {
                        return Ok(ClaimResult::Ours);
                    }
                    self.write_owner_record(instance, now, record.revision).await?
                }
                None => self.write_owner_record(instance, now, 0).await?,
            };
            if is_written {
                return Ok(ClaimResult::Ours);
            }
            // Another process has written the record in between.
            if let Some(OwnerRecord { instance, renewed, .. }) = record {
                claim = ClaimResult::Other { instance: escape_text(&instance), renewed };
            }
        }
        Ok(claim)
    }

    /// Returns the key of the record: outside of the prefix, so that no other mirror takes it for a key of the
    /// registry.
    pub(super) fn owner_key(&self) -> String {
        let key = format!("steadfast-owner/{:016x}", self.lease);
        if key.starts_with(&self.prefix) { format!("_{key}") } else { key }
    }

    async fn read_owner_record(&self) -> Result<Option<OwnerRecord>, EtcdError> {
        let body = json!({ "key": encode_bytes(self.owner_key().as_bytes()) });
        let response = self.gateway.request(Retry::Allowed, "kv/range", &body).await?;
        let key_values =
            responses::parse_key_values(&response).map_err(|reason| self.gateway.unexpected("kv/range", &reason))?;
        Ok(key_values.into_iter().next().map(|key_value| {
            let value: Json = serde_json::from_slice(&key_value.value).unwrap_or_default();
            let instance = value["instance"].as_str().unwrap_or_default().to_owned();
            let renewed = value["renewed"].as_u64().unwrap_or_default();
            OwnerRecord { instance, renewed, lease: key_value.lease, revision: key_value.revision }
        }))
    }

    /// Writes the record, unless another process changed it since `revision`. 0 means a missing record.
    async fn write_owner_record(&self, instance: &str, now: u64, revision: i64) -> Result<bool, EtcdError> {
        // The lease of the record depends on the instance: another process cannot keep it alive.
        let lease = fnv_hash(&["owner", &self.mark, &self.prefix, instance]);
        self.grant_lease(lease, OWNER_EXPIRES_SECS).await?;
        let key = encode_bytes(self.owner_key().as_bytes());
        let value = json!({
            "mark": self.mark, "prefix": self.prefix, "instance": instance, "renewed": now,
        });
        let value = encode_bytes(value.to_string().as_bytes());
        let transaction = json!({
            // Revision 0 matches a missing key only, so two processes cannot both create the record.
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
            "success": [{ "request_put": { "key": key, "value": value, "lease": lease.to_string() } }],
        });
        let response = self.gateway.request(Retry::Never, "kv/txn", &transaction).await?;
        Ok(response["succeeded"] == true)
    }
}
