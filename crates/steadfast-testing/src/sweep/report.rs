//! The result of a sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::request_fault::{FAULT_VARIABLE, RequestFault, RequestFaultKind};
use super::run::{RunResult, UnexpectedExit};
use crate::TestkitError;

/// Maximum number of findings that are printed in full.
const MAX_REPORTED: usize = 10;

/// Fault that changes the final state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The fault.
    pub fault: RequestFault,
    /// Differences to the run without a fault, as text.
    pub differences: Vec<String>,
}

/// Result of a sweep. Its text lists the faults that change the final state, the least severe first.
#[derive(Clone, Debug)]
pub struct Report {
    points: usize,
    objects: usize,
    runs: BTreeMap<RequestFaultKind, usize>,
    skipped: usize,
    unreached: Vec<RequestFault>,
    findings: Vec<Finding>,
    /// Ends of processes by a panic, in runs with any final state.
    panics: BTreeSet<String>,
    timeline: Vec<String>,
}

impl Report {
    pub(super) fn new(points: usize, objects: usize, skipped: usize) -> Self {
        let (runs, panics) = (BTreeMap::new(), BTreeSet::new());
        let (unreached, findings, timeline) = (Vec::new(), Vec::new(), Vec::new());
        Self { points, objects, runs, skipped, unreached, findings, panics, timeline }
    }

    pub(super) fn add(&mut self, fault: RequestFault, fault_free: &RunResult, result: &RunResult) {
        // A run whose fault was not injected equals the run without a fault. If it counted, the report would claim
        // a test that did not happen.
        if !result.was_injected {
            return self.unreached.push(fault);
        }
        *self.runs.entry(fault.kind).or_default() += 1;
        // A panic is a bug even if the restarted process repairs the state.
        self.panics.extend(result.exits.iter().filter(|exit| exit.is_panic).map(|exit| exit.text.clone()));
        let mut differences: Vec<String> = result.failure.iter().cloned().collect();
        differences.extend(fault_free.final_state.differences(&result.final_state));
        if !differences.is_empty() {
            differences.extend(result.exits.iter().take(2).map(|exit| exit.text.clone()));
            self.findings.push(Finding { fault, differences });
        }
    }

    pub(super) fn print_requests(&mut self, result: &RunResult) {
        self.timeline =
            result.points.iter().map(|(at, point)| format!("{:>10.3} s  {point}", at.as_secs_f64())).collect();
        self.timeline.extend(result.exits.iter().map(|exit| exit.text.clone()));
    }

    /// Returns the number of runs with a fault.
    pub fn runs(&self) -> usize {
        self.runs.values().sum()
    }

    /// Returns the number of runs with a fault of this kind.
    pub fn runs_of(&self, kind: RequestFaultKind) -> usize {
        self.runs.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the faults that change the final state, the least severe first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the faults that were not injected, because the request was cancelled before, or wrote nothing.
    /// If runs are not reproducible, the request was possibly never sent.
    pub fn unreached(&self) -> &[RequestFault] {
        &self.unreached
    }

    /// Returns the findings as an error.
    ///
    /// # Errors
    ///
    /// Returns an error if a fault changes the final state or makes a process panic. Returns an error if no
    /// fault was injected, because then nothing was tested.
    pub fn check(&self) -> Result<(), TestkitError> {
        // A sweep that injects nothing would pass for every controller.
        if self.runs() == 0 {
            return Err(format!("no fault was injected: {self}").into());
        }
        if self.findings.is_empty() && self.panics.is_empty() { Ok(()) } else { Err(self.to_string().into()) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.timeline {
            writeln!(f, "{line}")?;
        }
        let Self { points, objects, skipped, .. } = self;
        let runs = self.runs();
        write!(f, "{runs} runs with a fault, at {points} requests, compared with {objects} final objects: ")?;
        match self.findings.len() {
            0 => write!(f, "no run differs")?,
            1 => write!(f, "1 differs")?,
            count => write!(f, "{count} differ")?,
        }
        if *skipped > 0 {
            write!(f, "; {skipped} further equal requests were skipped")?;
        }
        if !self.unreached.is_empty() {
            write!(f, "; {} faults were not injected", self.unreached.len())?;
        }
        for panic in self.panics.iter().take(MAX_REPORTED) {
            write!(f, "\n{panic}")?;
        }
        for Finding { fault, differences } in self.findings.iter().take(MAX_REPORTED) {
            write!(f, "\n{FAULT_VARIABLE}='{fault}'")?;
            for difference in differences {
                write!(f, "\n    {difference}")?;
            }
        }
        if self.findings.len() > MAX_REPORTED {
            write!(f, "\nand {} more", self.findings.len() - MAX_REPORTED)?;
        }
        Ok(())
    }
}

/// Describes the ends of processes, as a suffix for an error.
pub(super) fn exits_suffix(exits: &[UnexpectedExit]) -> String {
    exits.first().map_or_else(String::new, |first| format!(" ({})", first.text))
}
