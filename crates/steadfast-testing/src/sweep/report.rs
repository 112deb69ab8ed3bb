//! What a sweep has found.

use std::fmt;

use super::disturbance::Disturbance;
use super::play::Played;
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
    plays: usize,
    left_out: usize,
    unreached: Vec<Disturbance>,
    findings: Vec<Finding>,
    story: Vec<String>,
}

impl Report {
    pub(super) fn new(points: usize, objects: usize, left_out: usize) -> Self {
        let (unreached, findings, story) = (Vec::new(), Vec::new(), Vec::new());
        Self { points, objects, plays: 0, left_out, unreached, findings, story }
    }

    pub(super) fn add(&mut self, disturbance: Disturbance, undisturbed: &Played, played: &Played) {
        self.plays += 1;
        if !played.reached {
            return self.unreached.push(disturbance);
        }
        let mut differences: Vec<String> = played.failure.iter().cloned().collect();
        differences.extend(undisturbed.ending.differences(&played.ending));
        if !differences.is_empty() {
            differences.extend(played.ended.iter().take(2).cloned());
            self.findings.push(Finding { disturbance, differences });
        }
    }

    pub(super) fn tell_story(&mut self, played: &Played) {
        self.story = played.points.iter().map(|(at, point)| format!("{:>10.3} s  {point}", at.as_secs_f64())).collect();
        self.story.extend(played.ended.iter().cloned());
    }

    /// How many plays there were with a disturbance.
    pub fn plays(&self) -> usize {
        self.plays
    }

    /// What changes the end, the smallest disturbance first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The disturbances whose point never came, since the play went another way before it.
    pub fn unreached(&self) -> &[Disturbance] {
        &self.unreached
    }

    /// Whether nothing changes the end, as an error that tells what does.
    ///
    /// # Errors
    ///
    /// Where something does; and where nothing was disturbed, for then nothing was tested.
    pub fn check(&self) -> Result<(), Error> {
        if self.plays == self.unreached.len() {
            return Err(format!("nothing was disturbed: {self}").into());
        }
        if self.findings.is_empty() { Ok(()) } else { Err(self.to_string().into()) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        let Self { points, objects, plays, left_out, .. } = self;
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
            write!(f, "; {} points never came", self.unreached.len())?;
        }
        for Finding { disturbance, differences } in self.findings.iter().take(TOLD) {
            write!(f, "\n{}='{disturbance}'", super::VARIABLE)?;
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
pub(super) fn ends(ended: &[String]) -> String {
    ended.first().map_or_else(String::new, |first| format!(" ({first})"))
}
