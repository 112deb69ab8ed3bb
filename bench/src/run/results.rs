//! What was measured, part by part.

mod ordeal;
mod outcome;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::report;
use crate::Trouble;

pub(super) use ordeal::{Ordeal, Verdict};
pub(super) use outcome::{Figure, Outcomes};

/// The file that a run writes and a report is made from.
const FILE: &str = "results.json";

/// Everything that was measured last, part by part.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// Over the replaying server.
    pub(super) replayed: Option<Outcomes>,
    /// From the real API server.
    pub(super) real: Option<Outcomes>,
    /// Under the faults of the menu.
    pub(super) faults: Option<Ordeal>,
}

impl Results {
    /// What an earlier run wrote into `folder`; nothing where there was none.
    pub(super) fn read(folder: &Path) -> Result<Self, Trouble> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Writes the figures of the rounds over the replaying server so far: an interrupted run keeps them.
    pub(super) fn keep_replayed(&mut self, outcomes: &Outcomes, folder: &Path) -> Result<(), Trouble> {
        self.replayed = Some(outcomes.clone());
        self.write(folder)?;
        report::write_files(self, folder).map(drop)
    }

    /// Writes the figures of the rounds on the real API server so far: an interrupted run keeps them.
    pub(super) fn keep_real(&mut self, outcomes: &Outcomes, folder: &Path) -> Result<(), Trouble> {
        self.real = Some(outcomes.clone());
        self.write(folder)?;
        report::write_files(self, folder).map(drop)
    }

    /// Writes everything as JSON.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Trouble> {
        // By another name first: a run that is cut here leaves the last one whole.
        let unfinished = folder.join("results.json.new");
        std::fs::write(&unfinished, serde_json::to_string_pretty(self)?)?;
        Ok(std::fs::rename(unfinished, folder.join(FILE))?)
    }
}
