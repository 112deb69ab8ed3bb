//! What the scripts asked for, and how much of it was granted.

use std::collections::BTreeMap;
use std::fmt;

use crate::execute::Seen;
use crate::script::Script;

/// How often each verb came with each option, and how often it was granted.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), (usize, usize)>, usize, usize);

impl Coverage {
    /// Counts a script and the answers to it.
    pub fn count(&mut self, script: &Script, answers: &[Seen]) {
        for (step, seen) in script.steps.iter().zip(answers) {
            let granted = usize::from((200..300).contains(&seen.code));
            self.1 += 1;
            self.2 += granted;
            for option in &step.options {
                let (asked, got) = self.0.entry((step.verb, option)).or_default();
                *asked += 1;
                *got += granted;
            }
        }
    }

    /// The verbs and options that came less than `least` times.
    pub fn rarer_than(&self, least: usize) -> Vec<String> {
        let rare = self.0.iter().filter(|(_, (asked, _))| *asked < least);
        rare.map(|((verb, option), (asked, _))| format!("{verb}, {option}: {asked}")).collect()
    }

    /// How many pairs of verb and option there were.
    pub fn pairs(&self) -> usize {
        self.0.len()
    }

    /// The share of requests that were granted, in percent.
    pub fn granted_percent(&self) -> usize {
        self.2 * 100 / self.1.max(1)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((verb, option), (asked, granted)) in &self.0 {
            writeln!(f, "{verb:18} {option:28} {asked:7} {granted:7} granted")?;
        }
        writeln!(f, "{} requests, {}% granted", self.1, self.granted_percent())
    }
}
