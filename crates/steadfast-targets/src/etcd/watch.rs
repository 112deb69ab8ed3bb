//! Watch of the prefix, which reports changes of other clients immediately.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::Etcd;
use super::client::EtcdClient;
use super::error::EtcdError;
use super::numbers::prefix_end;
use super::responses::{self, encode_bytes};
use crate::step_runner::escape_text;

/// Shortest time between two notifications: other clients may write under the prefix all the time.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of requests that check whether the endpoint still takes part in the cluster. Without them, a frozen member
/// would look like a prefix without changes.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Delays before a watch is opened again after a failure.
const RETRY_INITIAL_DELAY: Duration = Duration::from_secs(1);
const RETRY_MAX_DELAY: Duration = Duration::from_secs(30);

/// Maximum size of a parsed event. A larger event counts as a change.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// The state of the prefix at the last read.
#[derive(Clone, Debug, Default)]
pub(super) struct LastRead {
    /// Revision of the store; 0 before the first read.
    pub(super) revision: i64,
    /// Keys of the mirror, in full.
    pub(super) own: BTreeSet<Vec<u8>>,
    /// Keys of others under the prefix, in full.
    pub(super) others: BTreeSet<Vec<u8>>,
    /// Instant and revision of the last reported change.
    pub(super) reported: Option<(Instant, i64)>,
}

impl<R: EtcdClient> Etcd<R> {
    /// Completes when another client has changed relevant keys since the last read.
    ///
    /// The watch starts at the revision of that read, or of the last report. It recognises the mirror's own
    /// transactions by their revisions.
    pub(super) async fn watch(&self) {
        let mut delay = RETRY_INITIAL_DELAY;
        let revision = loop {
            let started = Instant::now();
            let endpoint = self.gateway.order().into_iter().next().unwrap_or_default();
            match self.watch_at(&endpoint).await {
                Ok(revision) => break revision,
                Err(error) => {
                    tracing::debug!(%error, endpoint, "the watch of etcd ended; it is opened again");
                    self.gateway.forget_token(&error);
                }
            }
            // A watch that stayed open was healthy; its end is not a repeated failure.
            if started.elapsed() > RETRY_MAX_DELAY {
                delay = RETRY_INITIAL_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_MAX_DELAY);
        };
        let reported = self.last_read().reported;
        // Changes are reported at most once per interval, even if other clients write constantly.
        if let Some((reported, _)) = reported {
            sleep_until(reported + MIN_REPORT_INTERVAL).await;
        }
        self.last_read().reported = Some((Instant::now(), revision));
    }

    /// Watches through one endpoint until a change concerns the mirror, and returns the revision of the change.
    async fn watch_at(&self, endpoint: &str) -> Result<i64, EtcdError> {
        // A watch needs the revision of the first read as its start.
        while self.last_read().revision == 0 {
            sleep(MIN_REPORT_INTERVAL).await;
        }
        let revision = {
            let last_read = self.last_read();
            last_read.reported.map_or(0, |(_, revision)| revision).max(last_read.revision)
        };
        let range = (encode_bytes(self.prefix.as_bytes()), encode_bytes(&prefix_end(self.prefix.as_bytes())));
        let create_request = json!({ "create_request": {
            // The watch starts at the revision after the read, so that no event in between is missed.
            "key": range.0, "range_end": range.1, "start_revision": revision.saturating_add(1).to_string(),
        }});
        let ping = json!({ "key": range.0, "range_end": range.1, "limit": "1", "keys_only": true });
        let mut lines = self.gateway.open(endpoint, "watch", &create_request).await?;
        loop {
            let line = tokio::select! {
                line = lines.next_line(MAX_EVENT_BYTES) => line?,
                // A silent watch and a dead connection look alike. A cheap request detects a partitioned endpoint.
                () = sleep(PING_INTERVAL) => {
                    self.gateway.request_at(endpoint, "kv/range", &ping).await?;
                    continue;
                }
            };
            let stream_end = || self.gateway.unexpected("watch", "the stream ended");
            // The event of an own write often precedes its response. The lock makes the event wait for the response.
            let own_revisions = self.own_revisions.lock().await;
            if let Some(revision) = self.relevant_revision(&line.ok_or_else(stream_end)?, revision, &own_revisions)? {
                return Ok(revision);
            }
        }
    }

    /// Returns the revision of a message of the watch, if the message concerns the mirror. The watch reports changes
    /// after `start_revision`.
    fn relevant_revision(
        &self,
        line: &[u8],
        start_revision: i64,
        own_revisions: &BTreeSet<i64>,
    ) -> Result<Option<i64>, EtcdError> {
        let Ok(message) = serde_json::from_slice::<Json>(line) else {
            // An incomplete line: a client has written a large value.
            return Ok(Some(start_revision));
        };
        if let Some(error) = message["error"]["message"].as_str().or(message["error"].as_str()) {
            return Err(EtcdError::Rejected { method: "watch", message: escape_text(error) });
        }
        let result = &message["result"];
        let current_revision = responses::parse_number(&result["header"]["revision"]);
        if result["canceled"] == true {
            // etcd compacted the start revision away. Events are lost, so the mirror reads everything again.
            if responses::parse_number(&result["compact_revision"]) > 0 {
                return Ok(Some(current_revision.max(responses::parse_number(&result["compact_revision"]))));
            }
            let reason = result["cancel_reason"].as_str().unwrap_or("the watch was cancelled");
            return Err(EtcdError::Rejected { method: "watch", message: escape_text(reason) });
        }
        // After a restore from a backup the revisions start again, and a watch of a future revision would stay silent.
        if current_revision > 0 && current_revision < start_revision {
            *self.last_read() = LastRead::default();
            return Ok(Some(0));
        }
        let last_read = self.last_read();
        let is_relevant = |event: &Json| {
            let revision = responses::parse_number(&event["kv"]["mod_revision"]);
            if revision <= last_read.revision || own_revisions.contains(&revision) {
                return false;
            }
            let key = responses::decode_bytes(&event["kv"]["key"]).unwrap_or_default();
            let is_deleted = event["type"] == "DELETE";
            let is_of_lease = responses::parse_number(&event["kv"]["lease"]) == self.lease;
            // Additions of foreign keys are irrelevant. A deletion of a foreign key is relevant: its name becomes
            // available.
            is_of_lease || last_read.own.contains(&key) || (is_deleted && last_read.others.contains(&key))
        };
        let has_relevant_event = result["events"].as_array().is_some_and(|events| events.iter().any(is_relevant));
        Ok(has_relevant_event.then_some(current_revision))
    }
}
