//! Measurements of one part of the benchmark.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::run::client_variant::{ClientVariant, Library, Resource};
use crate::run::machine::RunEnvironment;

/// All measurements of one part of the benchmark.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Outcomes {
    pub(in crate::run) setting: RunEnvironment,
    pub(in crate::run) seconds: u64,
    figures: Vec<Figure>,
    failures: Vec<Failure>,
    #[serde(skip)]
    begun: Option<Instant>,
}

/// One measurement of one client, in all rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Figure {
    #[serde(alias = "contestant")]
    pub(in crate::run) client: String,
    #[serde(alias = "team")]
    pub(in crate::run) library: Library,
    pub(in crate::run) resource: Resource,
    pub(in crate::run) size: usize,
    pub(in crate::run) what: String,
    pub(in crate::run) unit: String,
    pub(in crate::run) rounds: Vec<f64>,
}

/// Measurement that failed.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Failure {
    #[serde(alias = "contestant")]
    pub(in crate::run) client: String,
    pub(in crate::run) size: usize,
    pub(in crate::run) why: String,
}

impl Outcomes {
    /// Creates an empty set.
    pub(in crate::run) fn new(setting: RunEnvironment) -> Self {
        Self { setting, seconds: 0, figures: Vec::new(), failures: Vec::new(), begun: Some(Instant::now()) }
    }

    /// Adds the value of one round.
    pub(in crate::run) fn add(&mut self, of: &ClientVariant, size: usize, what: &str, unit: &str, value: f64) {
        self.seconds = self.begun.map_or(self.seconds, |begun| begun.elapsed().as_secs());
        let same = |figure: &&mut Figure| figure.client == of.name && figure.size == size && figure.what == what;
        if let Some(figure) = self.figures.iter_mut().find(same) {
            figure.rounds.push(value);
            return;
        }
        self.figures.push(Figure {
            client: of.name.to_owned(),
            library: of.library,
            resource: of.resource,
            size,
            what: what.to_owned(),
            unit: unit.to_owned(),
            rounds: vec![value],
        });
    }

    /// Adds a failure. An equal failure is recorded only once.
    pub(in crate::run) fn failed(&mut self, client: &str, size: usize, why: &str) {
        let is_equal = |failure: &Failure| failure.client == client && failure.size == size && failure.why == why;
        if !self.failures.iter().any(is_equal) {
            self.failures.push(Failure { client: client.to_owned(), size, why: why.to_owned() });
        }
    }

    /// Returns all figures, in the order of their first measurement.
    pub(in crate::run) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Returns all failures.
    pub(in crate::run) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the median of a figure at the largest size below `size`, with that size.
    pub(in crate::run) fn before(&self, client: &str, what: &str, size: usize) -> Option<(usize, f64)> {
        // Smaller sizes run first, so a measurement at a smaller size usually exists.
        let of = |figure: &&Figure| figure.client == client && figure.what == what && figure.size < size;
        self.figures.iter().filter(of).map(|figure| (figure.size, figure.median())).max_by_key(|(size, _)| *size)
    }
}

impl Figure {
    /// Returns the median.
    pub(in crate::run) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        // The mean of both middle values, since two rounds are the default for large sizes.
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    /// Returns the minimum and the maximum, or `None` for a single round.
    pub(in crate::run) fn spread(&self) -> Option<(f64, f64)> {
        let sorted = self.sorted();
        if sorted.len() > 1 { Some((sorted[0], sorted[sorted.len() - 1])) } else { None }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Returns `true` if higher values are better.
    pub(in crate::run) fn is_rate(&self) -> bool {
        self.unit == "a second"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(rounds: &[f64]) -> Figure {
        Figure {
            client: String::new(),
            library: Library::Steadfast,
            resource: Resource::Pods,
            size: 1,
            what: String::new(),
            unit: "s".to_owned(),
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn spread_needs_two_rounds() {
        assert!((figure(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < f64::EPSILON);
        assert!((figure(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < f64::EPSILON);
        assert_eq!(figure(&[3.0, 1.0, 2.0]).spread(), Some((1.0, 3.0)));
        assert_eq!(figure(&[3.0]).spread(), None);
    }
}
