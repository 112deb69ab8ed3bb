//! What was measured.

use std::path::Path;

use serde::Serialize;

use super::contestant::{Contestant, Resource};
use crate::Trouble;

/// All figures of a run.
#[derive(Serialize)]
pub(super) struct Outcomes {
    machine: String,
    figures: Vec<Figure>,
    failures: Vec<Failure>,
}

/// One measurement of one contestant, in all rounds.
#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) contestant: &'static str,
    pub(super) ours: bool,
    pub(super) resource: &'static str,
    pub(super) size: usize,
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) rounds: Vec<f64>,
}

/// One that could not be measured.
#[derive(Serialize)]
pub(super) struct Failure {
    pub(super) contestant: &'static str,
    pub(super) size: usize,
    pub(super) why: String,
}

impl Outcomes {
    /// None yet.
    pub(super) fn new(machine: String) -> Self {
        Self { machine, figures: Vec::new(), failures: Vec::new() }
    }

    /// One more round.
    pub(super) fn add(&mut self, of: &Contestant, size: usize, what: &'static str, unit: &'static str, value: f64) {
        let same = |figure: &&mut Figure| figure.contestant == of.name && figure.size == size && figure.what == what;
        if let Some(figure) = self.figures.iter_mut().find(same) {
            figure.rounds.push(value);
            return;
        }
        let resource = match of.resource {
            Resource::Pods => "pods",
            Resource::Widgets => "custom resources",
        };
        let (contestant, ours) = (of.name, of.is_ours());
        self.figures.push(Figure { contestant, ours, resource, size, what, unit, rounds: vec![value] });
    }

    /// One could not be measured.
    pub(super) fn failed(&mut self, contestant: &'static str, size: usize, why: &str) {
        self.failures.push(Failure { contestant, size, why: why.to_owned() });
    }

    /// All figures, in the order in which they were first measured.
    pub(super) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// All that could not be measured.
    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// What it ran on.
    pub(super) fn machine(&self) -> &str {
        &self.machine
    }

    /// Writes everything as JSON.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Trouble> {
        Ok(std::fs::write(folder.join("results.json"), serde_json::to_string_pretty(self)?)?)
    }
}

impl Figure {
    /// The value in the middle.
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    /// Whether more of it is better.
    pub(super) fn is_rate(&self) -> bool {
        self.unit == "a second"
    }
}

/// The processor and the kernel, as they call themselves.
pub(super) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} × {}, Linux {}", model.trim_start_matches([' ', '\t', ':']), kernel.trim())
}
