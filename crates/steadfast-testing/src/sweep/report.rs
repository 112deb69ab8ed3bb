//! What a sweep has found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::disturbance::{Disturbance, Kind, VARIABLE};
use super::play::{Ended, Played};
use crate::Error;

/// So many findings are told in full.
const TOLD: usize = 10;

/// A disturbance that changes the end.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was disturbed.
    pub disturbance: Disturbance,
    /// What is different then, in words.
    pub differences: Vec<String>,
}

/// What a sweep has found; as text, the smallest disturbances that change the end come first.
#[derive(Clone, Debug)]
pub struct Report {
    points: usize,
    objects: usize,
    plays: BTreeMap<Kind, usize>,
    left_out: usize,
    unreached: Vec<Disturbance>,
    findings: Vec<Finding>,
    /// How processes ended that should not have, whatever came of it.
    panics: BTreeSet<String>,
    story: Vec<String>,
}

impl Report {
    pub(super) fn new(points: usize, objects: usize, left_out: usize) -> Self {
        let (plays, panics) = (BTreeMap::new(), BTreeSet::new());
        let (unreached, findings, story) = (Vec::new(), Vec::new(), Vec::new());
        Self { points, objects, plays, left_out, unreached, findings, panics, story }
    }

    pub(super) fn add(&mut self, disturbance: Disturbance, undisturbed: &Played, played: &Played) {
        if !played.reached {
            return self.unreached.push(disturbance);
        }
        *self.plays.entry(disturbance.kind).or_default() += 1;
        self.panics.extend(played.ended.iter().filter(|ended| ended.is_panic).map(|ended| ended.text.clone()));
        let mut differences: Vec<String> = played.failure.iter().cloned().collect();
        differences.extend(undisturbed.ending.differences(&played.ending));
        if !differences.is_empty() {
            differences.extend(played.ended.iter().take(2).map(|ended| ended.text.clone()));
            self.findings.push(Finding { disturbance, differences });
        }
    }

    pub(super) fn tell_story(&mut self, played: &Played) {
        self.story = played.points.iter().map(|(at, point)| format!("{:>10.3} s  {point}", at.as_secs_f64())).collect();
        self.story.extend(played.ended.iter().map(|ended| ended.text.clone()));
    }

    /// How many plays there were in which something was disturbed.
    pub fn plays(&self) -> usize {
        self.plays.values().sum()
    }

    /// How many of them were disturbed in this way.
    pub fn plays_of(&self, kind: Kind) -> usize {
        self.plays.get(&kind).copied().unwrap_or_default()
    }

    /// What changes the end, the smallest disturbance first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The disturbances that did not come about: the request was given up before, or wrote nothing; or, where plays are not
    /// the same each time, it was never sent.
    pub fn unreached(&self) -> &[Disturbance] {
        &self.unreached
    }

    /// Whether nothing changes the end, as an error that tells what does.
    ///
    /// # Errors
    ///
    /// Where something does, or has a process panic; and where nothing was disturbed, for then nothing was tested.
    pub fn check(&self) -> Result<(), Error> {
        if self.plays() == 0 {
            return Err(format!("nothing was disturbed: {self}").into());
        }
        if self.findings.is_empty() && self.panics.is_empty() { Ok(()) } else { Err(self.to_string().into()) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        let Self { points, objects, left_out, .. } = self;
        let plays = self.plays();
        write!(
            f,
            "{plays} plays with a disturbance, of {points} requests undisturbed that end with {objects} objects: "
        )?;
        match self.findings.len() {
            0 => write!(f, "all end alike")?,
            1 => write!(f, "one ends otherwise")?,
            some => write!(f, "{some} end otherwise")?,
        }
        if *left_out > 0 {
            write!(f, "; {left_out} requests were left as they are, for there were more like them")?;
        }
        if !self.unreached.is_empty() {
            write!(f, "; {} disturbances did not come about", self.unreached.len())?;
        }
        for panic in self.panics.iter().take(TOLD) {
            write!(f, "\n{panic}")?;
        }
        for Finding { disturbance, differences } in self.findings.iter().take(TOLD) {
            write!(f, "\n{VARIABLE}='{disturbance}'")?;
            for difference in differences {
                write!(f, "\n    {difference}")?;
            }
        }
        if self.findings.len() > TOLD {
            write!(f, "\nand {} more", self.findings.len() - TOLD)?;
        }
        Ok(())
    }
}

/// How processes have ended, to be put behind what that led to.
pub(super) fn ends(ended: &[Ended]) -> String {
    ended.first().map_or_else(String::new, |first| format!(" ({})", first.text))
}
