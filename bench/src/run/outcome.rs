//! What was measured, and on what.

use std::path::Path;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, Resource, Team};
use super::faults::Verdict;
use super::machine::Setting;
use crate::Trouble;

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

/// All figures of a part.
#[derive(Serialize, Deserialize)]
pub(super) struct Outcomes {
    pub(super) setting: Setting,
    pub(super) seconds: u64,
    figures: Vec<Figure>,
    failures: Vec<Failure>,
    #[serde(skip)]
    begun: Option<Instant>,
}

/// What became of the clients under faults.
#[derive(Serialize, Deserialize)]
pub(super) struct Ordeal {
    pub(super) setting: Setting,
    pub(super) seconds: u64,
    pub(super) verdicts: Vec<Verdict>,
}

/// One measurement of one contestant, in all rounds.
#[derive(Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) contestant: String,
    pub(super) team: Team,
    pub(super) resource: Resource,
    pub(super) size: usize,
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) rounds: Vec<f64>,
}

/// One that could not be measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) contestant: String,
    pub(super) size: usize,
    pub(super) why: String,
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

    /// Writes everything as JSON.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Trouble> {
        // By another name first: a run that is cut here leaves the last one whole.
        let unfinished = folder.join("results.json.new");
        std::fs::write(&unfinished, serde_json::to_string_pretty(self)?)?;
        Ok(std::fs::rename(unfinished, folder.join(FILE))?)
    }
}

impl Outcomes {
    /// None yet.
    pub(super) fn new(setting: Setting) -> Self {
        Self { setting, seconds: 0, figures: Vec::new(), failures: Vec::new(), begun: Some(Instant::now()) }
    }

    /// One more round.
    pub(super) fn add(&mut self, of: &Contestant, size: usize, what: &str, unit: &str, value: f64) {
        self.seconds = self.begun.map_or(self.seconds, |begun| begun.elapsed().as_secs());
        let same = |figure: &&mut Figure| figure.contestant == of.name && figure.size == size && figure.what == what;
        if let Some(figure) = self.figures.iter_mut().find(same) {
            figure.rounds.push(value);
            return;
        }
        self.figures.push(Figure {
            contestant: of.name.to_owned(),
            team: of.team,
            resource: of.resource,
            size,
            what: what.to_owned(),
            unit: unit.to_owned(),
            rounds: vec![value],
        });
    }

    /// One could not be measured; the same is said once.
    pub(super) fn failed(&mut self, contestant: &str, size: usize, why: &str) {
        let told = |failure: &Failure| failure.contestant == contestant && failure.size == size && failure.why == why;
        if !self.failures.iter().any(told) {
            self.failures.push(Failure { contestant: contestant.to_owned(), size, why: why.to_owned() });
        }
    }

    /// All figures, in the order in which they were first measured.
    pub(super) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// All that could not be measured.
    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The median of one figure at the largest size that is smaller than `size`, with that size.
    pub(super) fn before(&self, contestant: &str, what: &str, size: usize) -> Option<(usize, f64)> {
        let of = |figure: &&Figure| figure.contestant == contestant && figure.what == what && figure.size < size;
        self.figures.iter().filter(of).map(|figure| (figure.size, figure.median())).max_by_key(|(size, _)| *size)
    }
}

impl Figure {
    /// The value in the middle.
    pub(super) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    /// The least and the most, where there was more than one round.
    pub(super) fn spread(&self) -> Option<(f64, f64)> {
        let sorted = self.sorted();
        if sorted.len() > 1 { Some((sorted[0], sorted[sorted.len() - 1])) } else { None }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Whether more of it is better.
    pub(super) fn is_rate(&self) -> bool {
        self.unit == "a second"
    }
}

/// The day, as `2026-11-21`.
pub(super) fn today() -> String {
    Timestamp::now().to_string().split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(rounds: &[f64]) -> Figure {
        Figure {
            contestant: String::new(),
            team: Team::Steadfast,
            resource: Resource::Pods,
            size: 1,
            what: String::new(),
            unit: "s".to_owned(),
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn a_median_is_the_middle_and_a_spread_needs_two_rounds() {
        assert!((figure(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < f64::EPSILON);
        assert!((figure(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < f64::EPSILON);
        assert_eq!(figure(&[3.0, 1.0, 2.0]).spread(), Some((1.0, 3.0)));
        assert_eq!(figure(&[3.0]).spread(), None);
    }
}
