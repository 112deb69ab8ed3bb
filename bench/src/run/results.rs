//! Results of the measurements, by part.

mod fault_results;
mod part_results;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;

pub(super) use fault_results::{FaultResult, FaultResults};
pub(super) use part_results::{Measurement, PartResults};

/// File that a run writes and a report reads.
const FILE: &str = "results.json";

/// Latest results of all parts.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// Results with the replaying server.
    pub(super) replayed: Option<PartResults>,
    /// Results with the real API server.
    pub(super) real: Option<PartResults>,
    /// Results with the faults of the catalog.
    pub(super) faults: Option<FaultResults>,
}

impl Results {
    /// Reads the results of an earlier run from `folder`. Returns empty results if the file does not exist.
    pub(super) fn read(folder: &Path) -> Result<Self, BenchError> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Writes all results as JSON.
    pub(super) fn write(&self, folder: &Path) -> Result<(), BenchError> {
        // The file is first written under another name, so that an interrupted run keeps the previous file.
        let unfinished = folder.join("results.json.new");
        std::fs::write(&unfinished, serde_json::to_string_pretty(self)?)?;
        // A rename within one folder is atomic.
        Ok(std::fs::rename(unfinished, folder.join(FILE))?)
    }
}
