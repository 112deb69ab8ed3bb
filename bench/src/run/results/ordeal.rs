//! What became of the libraries under faults.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::contestant::Team;
use crate::run::machine::Setting;
use crate::run::number::time;

/// What became of the clients under faults.
#[derive(Serialize, Deserialize)]
pub(in crate::run) struct Ordeal {
    pub(in crate::run) setting: Setting,
    pub(in crate::run) seconds: u64,
    pub(in crate::run) verdicts: Vec<Verdict>,
}

/// What became of one library under one fault. Times are in seconds.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Verdict {
    pub(in crate::run) fault: String,
    pub(in crate::run) title: String,
    pub(in crate::run) team: Team,
    /// From the fault until the library told its user that something is wrong; none where it never did.
    pub(in crate::run) noticed: Option<f64>,
    /// What it said.
    pub(in crate::run) said: Option<String>,
    /// From the end of the fault until the cache was what the server has; none where that took longer than `patience`.
    pub(in crate::run) recovered: Option<f64>,
    pub(in crate::run) patience: u64,
    /// Full transfers from the fault on, listed or streamed.
    pub(in crate::run) lists: usize,
    /// Watches from a version, from the fault on.
    pub(in crate::run) watches: usize,
    /// Both ways over the wire, TLS included, from the fault on.
    pub(in crate::run) bytes: u64,
    /// Objects whose last state or whose end the handler was never told.
    pub(in crate::run) lost: usize,
    /// Objects that were deleted and created anew, and told as one that changed.
    pub(in crate::run) merged: usize,
    /// Events that told nothing new.
    pub(in crate::run) again: usize,
    /// Events older than one before.
    pub(in crate::run) back: usize,
    /// Why it could not be played to its end.
    pub(in crate::run) trouble: Option<String>,
}

impl Verdict {
    /// Nothing is known yet.
    pub(in crate::run) fn of(fault: &str, title: &str, team: Team) -> Self {
        Self {
            fault: fault.to_owned(),
            title: title.to_owned(),
            team,
            noticed: None,
            said: None,
            recovered: None,
            patience: 0,
            lists: 0,
            watches: 0,
            bytes: 0,
            lost: 0,
            merged: 0,
            again: 0,
            back: 0,
            trouble: None,
        }
    }

    /// How soon it was back, as it is told.
    pub(in crate::run) fn recovery(&self) -> String {
        match self.recovered {
            Some(seconds) => time(seconds),
            None => format!("**not in {} s**", self.patience),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}: ", self.fault, self.title, self.team)?;
        match &self.trouble {
            Some(trouble) => write!(f, "not played: {trouble}"),
            None => write!(
                f,
                "reported after {}, back after {}, {} LISTs, {} WATCHes, lost {}",
                self.noticed.map_or_else(|| "never".to_owned(), time),
                self.recovery(),
                self.lists,
                self.watches,
                self.lost + self.merged
            ),
        }
    }
}
