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
const PROGRESS_INTERVAL: usize = 250;

/// Family of scripts.
pub struct ScriptFamily {
    /// Name of the scripts, in the plural.
    pub name: &'static str,
    /// Returns the script of a seed.
    pub script: fn(u64) -> Script,
    /// Default number of scripts.
    pub count: u64,
    /// Minimum number of pairs of verb and option in the default number of scripts.
    pub min_pairs: usize,
    /// Environment variable that selects a single script.
    pub seed_variable: &'static str,
}

impl ScriptFamily {
    /// Runs the selected scripts on two servers, and checks that the responses are equal.
    pub async fn run(&self, ours: &TestServer, theirs: &TestServer) -> Result<(), TestError> {
        if let Some(seed) = seed_from_env(self.seed_variable) {
            return run_one_script(ours, theirs, (self.script)(seed)).await;
        }
        let count = seed_from_env("STEADFAST_SCRIPTS").unwrap_or(self.count);
        let first_seed = seed_from_env("STEADFAST_FIRST_SCRIPT").unwrap_or(1);
        let start = Instant::now();
        let FamilyRun { coverage, differences, result } = self.compare(ours, theirs, first_seed, count).await;
        println!("{} {first_seed} to {} in {} s", self.name, first_seed + count - 1, start.elapsed().as_secs());
        println!("{coverage}");
        assert_no_differences(&differences, count);
        result?;
        if count >= self.count {
            assert!(coverage.pairs() >= self.min_pairs, "only {} pairs of verb and option occurred", coverage.pairs());
        }
        let min_count = usize::try_from(count)? / 100;
        assert_eq!(
            coverage.pairs_below(min_count),
            Vec::<String>::new(),
            "each pair of verb and option must occur {min_count} times"
        );
        assert!(coverage.success_percent() >= 50, "only {}% succeeded", coverage.success_percent());
        Ok(())
    }

    /// Runs scripts up to the last one, or up to the first that fails to complete.
    async fn compare(&self, ours: &TestServer, theirs: &TestServer, first: u64, count: u64) -> FamilyRun {
        let start = Instant::now();
        let script = self.script;
        let runs = stream::iter(first..first + count).map(|seed| {
            let (ours, theirs) = (ours.clone(), theirs.clone());
            tokio::spawn(async move { run_on_both(&ours, &theirs, script(seed)).await })
        });
        let mut runs = runs.buffer_unordered(CONCURRENT_SCRIPTS).enumerate();
        let mut outcome = FamilyRun { coverage: Coverage::default(), differences: Vec::new(), result: Ok(()) };
        // Writes to the stream directly: the test harness captures the output of `eprintln!` until the test has ended.
        let print_line = |line: String| drop(writeln!(io::stderr(), "{line}"));
        while let Some((number, run)) = runs.next().await {
            match run.map_err(TestError::from).flatten() {
                Ok((script, theirs, found)) => {
                    if let Some(first) = found.first() {
                        print_line(first.to_string());
                    }
                    outcome.coverage.count(&script, &theirs);
                    outcome.differences.extend(found);
                }
                Err(error) => {
                    print_line(error.to_string());
                    outcome.result = Err(error);
                    break;
                }
            }
            if (number + 1).is_multiple_of(PROGRESS_INTERVAL) {
                print_line(format!("{}: {} of {count} after {} s", self.name, number + 1, start.elapsed().as_secs()));
            }
        }
        outcome
    }
}

/// Result of several scripts.
struct FamilyRun {
    coverage: Coverage,
    differences: Vec<Difference>,
    /// Error of a script that did not complete.
    result: Result<(), TestError>,
}

/// Runs a script on two servers. Returns the responses of the second, and the differences.
async fn run_on_both(
    ours: &TestServer,
    theirs: &TestServer,
    script: Script,
) -> Result<(Script, Vec<ServerResponse>, Vec<Difference>), TestError> {
    let (ours, theirs) = futures::future::try_join(ours.run(&script), theirs.run(&script)).await?;
    let found_differences = differences(&script, &ours, &theirs);
    Ok((script, theirs, found_differences))
}
