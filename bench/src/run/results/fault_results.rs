//! Results of the libraries under faults.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::client_variant::Library;
use crate::run::machine::RunEnvironment;
use crate::run::number::format_seconds;

/// Results of all faults.
#[derive(Serialize, Deserialize)]
pub(in crate::run) struct FaultResults {
    #[serde(alias = "setting")]
    pub(in crate::run) environment: RunEnvironment,
    /// Duration of the whole run.
    #[serde(rename = "seconds")]
    pub(in crate::run) run_seconds: u64,
    #[serde(rename = "verdicts")]
    pub(in crate::run) results: Vec<FaultResult>,
}

/// Result of one library under one fault. Times are in seconds.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct FaultResult {
    pub(in crate::run) fault: String,
    pub(in crate::run) title: String,
    #[serde(alias = "team")]
    pub(in crate::run) library: Library,
    /// Time from the fault until the library reported an error to its user. `None` without a report.
    #[serde(rename = "noticed")]
    pub(in crate::run) reported_after: Option<f64>,
    /// The reported error.
    #[serde(alias = "said")]
    pub(in crate::run) reported_error: Option<String>,
    /// Time from the end of the fault until the cache equalled the server. `None` if it exceeded `recovery_timeout`.
    pub(in crate::run) recovered: Option<f64>,
    #[serde(alias = "patience")]
    pub(in crate::run) recovery_timeout: u64,
    /// Number of full transfers since the start of the fault, listed or streamed.
    pub(in crate::run) lists: usize,
    /// Number of watches that started at a version, not with a list, since the start of the fault.
    pub(in crate::run) watches: usize,
    /// Bytes in both directions, including TLS, since the start of the fault.
    pub(in crate::run) bytes: u64,
    /// Number of objects without a delivery of their last state or of their deletion.
    pub(in crate::run) lost: usize,
    /// Number of recreated objects that were delivered as one changed object.
    pub(in crate::run) merged: usize,
    /// Number of events without a change.
    #[serde(alias = "again")]
    pub(in crate::run) repeated: usize,
    /// Number of events with an older version than an earlier event of the object.
    #[serde(alias = "back")]
    pub(in crate::run) older: usize,
    /// Reason why the scenario could not be completed.
    #[serde(alias = "trouble")]
    pub(in crate::run) error: Option<String>,
}

impl FaultResult {
    /// Creates an empty result.
    pub(in crate::run) fn new(fault: &str, title: &str, library: Library) -> Self {
        Self {
            fault: fault.to_owned(),
            title: title.to_owned(),
            library,
            reported_after: None,
            reported_error: None,
            recovered: None,
            recovery_timeout: 0,
            lists: 0,
            watches: 0,
            bytes: 0,
            lost: 0,
            merged: 0,
            repeated: 0,
            older: 0,
            error: None,
        }
    }

    /// Formats the recovery time.
    pub(in crate::run) fn recovery(&self) -> String {
        match self.recovered {
            Some(seconds) => format_seconds(seconds),
            None => format!("**not in {} s**", self.recovery_timeout),
        }
    }
}

impl fmt::Display for FaultResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}: ", self.fault, self.title, self.library)?;
        match &self.error {
            Some(error) => write!(f, "not run: {error}"),
            None => write!(
                f,
                "reported after {}, back after {}, {} LISTs, {} WATCHes, lost {}, merged {}",
                self.reported_after.map_or_else(|| "never".to_owned(), format_seconds),
                self.recovery(),
                self.lists,
                self.watches,
                self.lost,
                self.merged
            ),
        }
    }
}
