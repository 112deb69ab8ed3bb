//! Watch of the prefix, which reports changes of other clients immediately.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::Etcd;
use super::client::EtcdClient;
use super::error::EtcdError;
use super::numbers::after;
use super::responses::{self, bytes};

/// Shortest time between two notifications: other clients may write under the prefix all the time.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of requests that check that the endpoint still takes part in the cluster. A frozen member also sends no
/// events.
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
            let opened = Instant::now();
            let endpoint = self.gateway.order().into_iter().next().unwrap_or_default();
            match self.watch_at(&endpoint).await {
                Ok(revision) => break revision,
                Err(error) => {
                    tracing::debug!(%error, endpoint, "the watch of etcd ended; it is opened again");
                    self.gateway.forget_token(&error);
                }
            }
            // A watch that stayed open was healthy; its end is not a repeated failure.
            if opened.elapsed() > RETRY_MAX_DELAY {
                delay = RETRY_INITIAL_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_MAX_DELAY);
        };
        let reported = self.last_read().reported;
        // At most one report per interval, even if other clients write constantly.
        if let Some((reported, _)) = reported {
            sleep_until(reported + MIN_INTERVAL).await;
        }
        self.last_read().reported = Some((Instant::now(), revision));
    }

    /// Watches through one endpoint until a change concerns the mirror, and returns the revision of the change.
    async fn watch_at(&self, endpoint: &str) -> Result<i64, EtcdError> {
        // A watch needs the revision of the first read as its start.
        while self.last_read().revision == 0 {
            sleep(MIN_INTERVAL).await;
        }
        let revision = {
            let last_read = self.last_read();
            last_read.reported.map_or(0, |(_, revision)| revision).max(last_read.revision)
        };
        let range = (bytes(self.prefix.as_bytes()), bytes(&after(self.prefix.as_bytes())));
        let created = json!({ "create_request": {
            // The watch starts at the revision after the read, so that no event in between is missed.
            "key": range.0, "range_end": range.1, "start_revision": revision.saturating_add(1).to_string(),
        }});
        let ping = json!({ "key": range.0, "range_end": range.1, "limit": "1", "keys_only": true });
        let mut lines = self.gateway.open(endpoint, "watch", &created).await?;
        loop {
            let line = tokio::select! {
                line = lines.next(MAX_EVENT_BYTES) => line?,
                // A silent watch and a dead connection look alike. A cheap request detects a partitioned endpoint.
                () = sleep(PING_INTERVAL) => {
                    self.gateway.request_at(endpoint, "kv/range", &ping).await?;
                    continue;
                }
            };
            let ended = || self.gateway.unexpected("watch", "the stream ended");
            // The event of an own write often precedes its response. The lock makes the event wait for the response.
            let written = self.written.lock().await;
            if let Some(revision) = self.concerns(&line.ok_or_else(ended)?, revision, &written)? {
                return Ok(revision);
            }
        }
    }

    /// Returns the revision of a message of the watch, if the message concerns the mirror. The watch was opened at
    /// `opened`.
    fn concerns(&self, line: &[u8], opened: i64, written: &BTreeSet<i64>) -> Result<Option<i64>, EtcdError> {
        let Ok(message) = serde_json::from_slice::<Json>(line) else {
            // An incomplete line: a client has written a large value.
            return Ok(Some(opened));
        };
        if let Some(error) = message["error"]["message"].as_str().or(message["error"].as_str()) {
            return Err(EtcdError::Rejected { method: "watch", message: error.to_owned() });
        }
        let result = &message["result"];
        let current = responses::number(&result["header"]["revision"]);
        if result["canceled"] == true {
            // etcd compacted the start revision away. Events are lost, so the mirror reads everything again.
            if responses::number(&result["compact_revision"]) > 0 {
                return Ok(Some(current.max(responses::number(&result["compact_revision"]))));
            }
            let reason = result["cancel_reason"].as_str().unwrap_or("the watch was cancelled").to_owned();
            return Err(EtcdError::Rejected { method: "watch", message: reason });
        }
        // After a restore from a backup the revisions start again, and a watch of a future revision would stay silent.
        if current > 0 && current < opened {
            *self.last_read() = LastRead::default();
            return Ok(Some(0));
        }
        let last_read = self.last_read();
        let concerns = |event: &Json| {
            let revision = responses::number(&event["kv"]["mod_revision"]);
            if revision <= last_read.revision || written.contains(&revision) {
                return false;
            }
            let key = responses::decoded(&event["kv"]["key"]).unwrap_or_default();
            let is_deleted = event["type"] == "DELETE";
            let is_of_lease = responses::number(&event["kv"]["lease"]) == self.lease;
            // Additions of foreign keys are irrelevant. A deletion of a foreign key is relevant: its name becomes
            // available.
            is_of_lease || last_read.own.contains(&key) || (is_deleted && last_read.others.contains(&key))
        };
        let is_any = result["events"].as_array().is_some_and(|events| events.iter().any(concerns));
        Ok(is_any.then_some(current))
    }
}
