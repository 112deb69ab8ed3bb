//! A family of scripts: the selection of scripts, and the required result.

use std::io::{self, Write};
use std::time::Instant;

use futures::{StreamExt, stream};
use steadfast_testing::TestError;

use crate::differential::client::TestServer;
use crate::differential::compare::{Difference, differences};
use crate::differential::coverage::Coverage;
use crate::differential::execute::ServerResponse;
use crate::differential::script::Script;
use crate::differential::{CONCURRENT_SCRIPTS, assert_no_differences, run_one_script, seed_from_env};

/// Number of scripts after which a long run prints its progress.
const PROGRESS: usize = 250;

/// Family of scripts.
pub struct Family {
    /// Name of the scripts, in the plural.
    pub name: &'static str,
    /// Returns the script of a seed.
    pub script: fn(u64) -> Script,
    /// Default number of scripts.
    pub count: u64,
    /// Minimum number of pairs of verb and option in the default number of scripts.
    pub pairs: usize,
    /// Environment variable that selects a single script.
    pub one: &'static str,
}

impl Family {
    /// Runs the selected scripts on two servers, and checks that the responses are equal.
    pub async fn run(&self, ours: &TestServer, theirs: &TestServer) -> Result<(), TestError> {
        if let Some(seed) = seed_from_env(self.one) {
            return run_one_script(ours, theirs, (self.script)(seed)).await;
        }
        let count = seed_from_env("STEADFAST_SCRIPTS").unwrap_or(self.count);
        let first = seed_from_env("STEADFAST_FIRST_SCRIPT").unwrap_or(1);
        let start = Instant::now();
        let Outcome { coverage, found, ended } = self.compared(ours, theirs, first, count).await;
        println!("{} {first} to {} in {} s", self.name, first + count - 1, start.elapsed().as_secs());
        println!("{coverage}");
        assert_no_differences(&found, count);
        ended?;
        if count >= self.count {
            assert!(coverage.pairs() >= self.pairs, "only {} pairs of verb and option occurred", coverage.pairs());
        }
        let least = usize::try_from(count)? / 100;
        assert_eq!(
            coverage.rarer_than(least),
            Vec::<String>::new(),
            "each pair of verb and option must occur {least} times"
        );
        assert!(coverage.granted_percent() >= 50, "only {}% succeeded", coverage.granted_percent());
        Ok(())
    }

    /// Runs scripts up to the last one, or up to the first that fails to complete.
    async fn compared(&self, ours: &TestServer, theirs: &TestServer, first: u64, count: u64) -> Outcome {
        let start = Instant::now();
        let script = self.script;
        let runs = stream::iter(first..first + count).map(|seed| {
            let (ours, theirs) = (ours.clone(), theirs.clone());
            tokio::spawn(async move { on_both(&ours, &theirs, script(seed)).await })
        });
        let mut runs = runs.buffer_unordered(CONCURRENT_SCRIPTS).enumerate();
        let mut outcome = Outcome { coverage: Coverage::default(), found: Vec::new(), ended: Ok(()) };
        // Writes to the stream directly: the test harness captures the output of `eprintln!` until the test has ended.
        let say = |words: String| drop(writeln!(io::stderr(), "{words}"));
        while let Some((number, run)) = runs.next().await {
            match run.map_err(TestError::from).flatten() {
                Ok((script, theirs, found)) => {
                    if let Some(first) = found.first() {
                        say(first.to_string());
                    }
                    outcome.coverage.count(&script, &theirs);
                    outcome.found.extend(found);
                }
                Err(error) => {
                    say(error.to_string());
                    outcome.ended = Err(error);
                    break;
                }
            }
            if (number + 1).is_multiple_of(PROGRESS) {
                say(format!("{}: {} of {count} after {} s", self.name, number + 1, start.elapsed().as_secs()));
            }
        }
        outcome
    }
}

/// Result of several scripts.
struct Outcome {
    coverage: Coverage,
    found: Vec<Difference>,
    /// Error of a script that did not complete.
    ended: Result<(), TestError>,
}

/// Runs a script on two servers. Returns the responses of the second, and the differences.
async fn on_both(
    ours: &TestServer,
    theirs: &TestServer,
    script: Script,
) -> Result<(Script, Vec<ServerResponse>, Vec<Difference>), TestError> {
    let (ours, theirs) = futures::future::try_join(ours.run(&script), theirs.run(&script)).await?;
    let found = differences(&script, &ours, &theirs);
    Ok((script, theirs, found))
}
