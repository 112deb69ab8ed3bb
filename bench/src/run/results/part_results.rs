//! Measurements of one part of the benchmark.

use std::time::Instant;

use serde::{Deserialize, Deserializer, Serialize};

use crate::run::client_variant::{ClientVariant, Library, Resource};
use crate::run::machine::RunEnvironment;

/// All measurements of one part of the benchmark.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct PartResults {
    #[serde(alias = "setting")]
    pub(in crate::run) environment: RunEnvironment,
    pub(in crate::run) seconds: u64,
    #[serde(alias = "figures")]
    measurements: Vec<Measurement>,
    failures: Vec<Failure>,
    #[serde(skip)]
    started: Option<Instant>,
}

/// One measurement of one client, in all rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Measurement {
    #[serde(alias = "contestant")]
    pub(in crate::run) client: String,
    #[serde(alias = "team")]
    pub(in crate::run) library: Library,
    pub(in crate::run) resource: Resource,
    pub(in crate::run) size: usize,
    #[serde(alias = "what", deserialize_with = "current_name")]
    pub(in crate::run) metric: String,
    #[serde(deserialize_with = "current_name")]
    pub(in crate::run) unit: String,
    pub(in crate::run) rounds: Vec<f64>,
}

/// Metrics and units in files of earlier versions, and their current names.
const RENAMED: [(&str, &str); 8] = [
    ("sync, processor", "sync, CPU time"),
    ("sync, server's processor", "sync, server's CPU time"),
    ("processor an event", "CPU time per event"),
    ("server's processor a write", "server's CPU time per write"),
    ("relist, processor", "relist, CPU time"),
    ("relist, peak to settled", "relist, peak relative to memory before"),
    ("a second", "per second"),
    ("KB an object", "KB per object"),
];

/// Reads a metric or a unit, also from a file of an earlier version.
fn current_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let renamed = RENAMED.iter().find(|(earlier, _)| *earlier == name).map(|(_, current)| (*current).to_owned());
    Ok(renamed.unwrap_or(name))
}

/// Measurement that failed.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::run) struct Failure {
    #[serde(alias = "contestant")]
    pub(in crate::run) client: String,
    pub(in crate::run) size: usize,
    pub(in crate::run) why: String,
}

impl PartResults {
    /// Creates an empty set.
    pub(in crate::run) fn new(environment: RunEnvironment) -> Self {
        Self { environment, seconds: 0, measurements: Vec::new(), failures: Vec::new(), started: Some(Instant::now()) }
    }

    /// Adds the value of one round.
    pub(in crate::run) fn add(&mut self, variant: &ClientVariant, size: usize, metric: &str, unit: &str, value: f64) {
        self.seconds = self.started.map_or(self.seconds, |started| started.elapsed().as_secs());
        let is_same = |measurement: &&mut Measurement| {
            measurement.client == variant.name && measurement.size == size && measurement.metric == metric
        };
        if let Some(measurement) = self.measurements.iter_mut().find(is_same) {
            measurement.rounds.push(value);
            return;
        }
        self.measurements.push(Measurement {
            client: variant.name.to_owned(),
            library: variant.library,
            resource: variant.resource,
            size,
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            rounds: vec![value],
        });
    }

    /// Adds a failure. An equal failure is recorded only once.
    pub(in crate::run) fn add_failure(&mut self, client: &str, size: usize, why: &str) {
        let is_equal = |failure: &Failure| failure.client == client && failure.size == size && failure.why == why;
        if !self.failures.iter().any(is_equal) {
            self.failures.push(Failure { client: client.to_owned(), size, why: why.to_owned() });
        }
    }

    /// Returns all measurements, in the order of their first measurement.
    pub(in crate::run) fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    /// Returns all failures.
    pub(in crate::run) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the median of a metric at the largest size below `size`, with that size.
    pub(in crate::run) fn median_below_size(&self, client: &str, metric: &str, size: usize) -> Option<(usize, f64)> {
        // Smaller sizes run first, so a measurement at a smaller size usually exists.
        let matches = |measurement: &&Measurement| {
            measurement.client == client && measurement.metric == metric && measurement.size < size
        };
        self.measurements
            .iter()
            .filter(matches)
            .map(|measurement| (measurement.size, measurement.median()))
            .max_by_key(|(size, _)| *size)
    }
}

impl Measurement {
    /// Returns the median.
    pub(in crate::run) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        // With an even number of rounds, the median is the mean of both middle values. Two rounds are the default for
        // large sizes.
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
        self.unit == "per second"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(rounds: &[f64]) -> Measurement {
        Measurement {
            client: String::new(),
            library: Library::Steadfast,
            resource: Resource::Pods,
            size: 1,
            metric: String::new(),
            unit: "s".to_owned(),
            rounds: rounds.to_vec(),
        }
    }

    #[test]
    fn spread_needs_two_rounds() {
        assert!((measurement(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < f64::EPSILON);
        assert!((measurement(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < f64::EPSILON);
        assert_eq!(measurement(&[3.0, 1.0, 2.0]).spread(), Some((1.0, 3.0)));
        assert_eq!(measurement(&[3.0]).spread(), None);
    }

    #[test]
    fn earlier_names_are_read() {
        let earlier = r#"{"contestant": "steadfast", "team": "Steadfast", "resource": "Pods", "size": 1,
            "what": "processor an event", "unit": "KB an object", "rounds": [1.0]}"#;
        let measurement: Measurement = serde_json::from_str(earlier).expect("the format of an earlier version");
        assert_eq!((measurement.metric.as_str(), measurement.unit.as_str()), ("CPU time per event", "KB per object"));
    }
}
