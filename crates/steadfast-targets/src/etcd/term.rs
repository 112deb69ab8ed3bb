//! Record of the leader's term. Every transaction of a replica requires that the record contains the replica's term. So
//! etcd rejects late writes of an earlier leader.

use serde_json::{Value as Json, json};

use super::Etcd;
use super::client::EtcdClient;
use super::error::EtcdError;
use super::gateway::Retry;
use super::numbers::fnv_hash;
use super::responses::{self, encode_bytes};
use crate::owner::OWNER_EXPIRES_SECS;
use crate::step_runner::escape_text;

/// Maximum number of attempts if the record changes in between.
const MAX_RECORD_ATTEMPTS: usize = 3;

impl<R: EtcdClient> Etcd<R> {
    /// Returns the key of the record: the key of the ownership record with a suffix.
    fn term_key(&self) -> String {
        format!("{}/term", self.owner_key())
    }

    /// Records `term`, and makes each later transaction of this target require it. Returns false if a later term is
    /// already recorded.
    ///
    /// The record has its own lease, and expires five minutes after its last renewal. It must expire, because terms
    /// restart after a restore of the API server from a backup.
    ///
    /// If the user has no permission to write the record, transactions are sent without this condition.
    pub(super) async fn record_term(&self, term: u64) -> Result<bool, EtcdError> {
        let result = self.try_record_term(term).await;
        if matches!(&result, Err(EtcdError::Rejected { message, .. }) if message.contains("permission denied")) {
            *self.required_term.lock() = None;
        }
        result
    }

    async fn try_record_term(&self, term: u64) -> Result<bool, EtcdError> {
        let (key, lease) = (encode_bytes(self.term_key().as_bytes()), fnv_hash(&["term", &self.mark, &self.prefix]));
        // The term is set before the write, so that each following transaction requires it.
        *self.required_term.lock() = Some(term);
        for _ in 0..MAX_RECORD_ATTEMPTS {
            let response = self.gateway.request(Retry::Allowed, "kv/range", &json!({ "key": key })).await?;
            let key_values = responses::parse_key_values(&response)
                .map_err(|reason| self.gateway.unexpected("kv/range", &reason))?;
            let mut revision = 0;
            if let Some(record) = key_values.into_iter().next() {
                let recorded_term: u64 = String::from_utf8_lossy(&record.value).parse().unwrap_or_default();
                // Terms only increase. A later recorded term means that another replica leads. Only that replica may
                // renew the lease: after a restore of the API server, the later term has no replica and must expire.
                if recorded_term > term {
                    return Ok(false);
                }
                if recorded_term == term && self.keep_lease(record.lease).await? {
                    return Ok(true);
                }
                revision = record.revision;
            }
            self.grant_lease(lease, OWNER_EXPIRES_SECS).await?;
            let (value, lease) = (encode_bytes(term.to_string().as_bytes()), lease.to_string());
            let transaction = json!({
                "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
                "success": [{ "request_put": { "key": key, "value": value, "lease": lease } }],
            });
            let response = self.gateway.request(Retry::Never, "kv/txn", &transaction).await?;
            if response["succeeded"] == true {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the additional condition of each transaction, and the operation after a failed condition: a read of
    /// the record.
    pub(super) fn term_condition(&self) -> (Option<Json>, Vec<Json>) {
        let Some(term) = *self.required_term.lock() else { return (None, Vec::new()) };
        let (key, value) = (encode_bytes(self.term_key().as_bytes()), encode_bytes(term.to_string().as_bytes()));
        let condition = json!({ "key": key, "target": "VALUE", "result": "EQUAL", "value": value });
        // The failed transaction returns the recorded term, which distinguishes a changed term from a changed key.
        (Some(condition), vec![json!({ "request_range": { "key": key } })])
    }

    /// Returns an error if a transaction failed because another term is recorded.
    pub(super) fn check_term(&self, response: &Json) -> Result<(), EtcdError> {
        let Some(term) = *self.required_term.lock() else { return Ok(()) };
        let found = &response["responses"][0]["response_range"]["kvs"][0]["value"];
        let found = responses::decode_bytes(found).unwrap_or_default();
        let found = escape_text(&String::from_utf8_lossy(&found));
        if found == term.to_string() { Ok(()) } else { Err(EtcdError::Superseded { term, found }) }
    }
}
