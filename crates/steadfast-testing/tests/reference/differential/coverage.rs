//! Coverage of the scripts: the number of requests and of successes.

use std::collections::BTreeMap;
use std::fmt;

use crate::differential::execute::ServerResponse;
use crate::differential::script::Script;

/// Number of requests and of successes, for each pair of verb and option.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), (usize, usize)>, usize, usize);

impl Coverage {
    /// Counts a script and its responses.
    pub fn count(&mut self, script: &Script, responses: &[ServerResponse]) {
        for (step, response) in script.steps.iter().zip(responses) {
            let succeeded = usize::from((200..300).contains(&response.code));
            self.1 += 1;
            self.2 += succeeded;
            for option in &step.options {
                let (sent, successes) = self.0.entry((step.verb, option)).or_default();
                *sent += 1;
                *successes += succeeded;
            }
        }
    }

    /// Returns the pairs that occurred less than `min_count` times.
    pub fn pairs_below(&self, min_count: usize) -> Vec<String> {
        let rare_pairs = self.0.iter().filter(|(_, (sent, _))| *sent < min_count);
        rare_pairs.map(|((verb, option), (sent, _))| format!("{verb}, {option}: {sent}")).collect()
    }

    /// Returns the number of pairs of verb and option.
    pub fn pairs(&self) -> usize {
        self.0.len()
    }

    /// Returns the percentage of successful requests.
    pub fn success_percent(&self) -> usize {
        self.2 * 100 / self.1.max(1)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((verb, option), (sent, succeeded)) in &self.0 {
            writeln!(f, "{verb:18} {option:28} {sent:7} {succeeded:7} granted")?;
        }
        writeln!(f, "{} requests, {}% granted", self.1, self.success_percent())
    }
}
