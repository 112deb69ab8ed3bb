//! One client from its start to its end, with its figures.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::client_variant::{ClientVariant, Library};
use super::process::Process;
use super::results::PartResults;
use crate::BenchError;

/// Time for memory to settle.
const MEMORY_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Running client, and the destination of its figures.
pub(super) struct Session<'a> {
    pub(super) variant: &'a ClientVariant,
    pub(super) size: usize,
    pub(super) client: Process,
    pub(super) part_results: &'a mut PartResults,
}

impl Session<'_> {
    /// Records the cost of the sync, and of a read of one field of each object. Returns `true` if the client has a
    /// cache.
    pub(super) async fn record_sync(&mut self) -> Result<bool, BenchError> {
        let synced = self.client.expect_response("synced").await?;
        self.record("sync", "s", &synced["seconds"]);
        self.record("sync, CPU time", "s", &synced["cpu"]);
        if self.variant.library == Library::Baseline {
            return Ok(false);
        }
        let fields = self.client.request("fields").await?;
        // One distinct value would mean that the field was not read.
        if fields["distinct"].as_u64().unwrap_or_default() < 2 {
            return Err(format!("the objects have too few distinct nodes: {fields}").into());
        }
        self.record("read a field of each", "s", &fields["seconds"]);
        Ok(true)
    }

    /// Records the settled and the peak resident memory.
    pub(super) async fn record_memory(&mut self) -> Result<(), BenchError> {
        sleep(MEMORY_SETTLE_TIME).await;
        let memory = self.client.request("memory").await?;
        let (settled, peak) = (self.per_object(&memory["resident"]), self.per_object(&memory["peak"]));
        self.record("resident", "KB per object", &settled);
        self.record("resident, peak of the sync", "KB per object", &peak);
        Ok(())
    }

    /// Converts bytes to kilobytes per object.
    pub(super) fn per_object(&self, bytes: &Value) -> Value {
        Value::from(bytes.as_f64().unwrap_or(f64::NAN) / self.size as f64 / 1e3)
    }

    /// Adds one round of a figure, unless the value is missing.
    pub(super) fn record(&mut self, metric: &str, unit: &str, value: &Value) {
        // A JSON null or a missing field means that the client has not measured this value.
        if let Some(value) = value.as_f64().filter(|value| value.is_finite()) {
            self.part_results.add(self.variant, self.size, metric, unit, value);
        }
    }
}
