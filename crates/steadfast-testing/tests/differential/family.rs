//! A family of scripts: which of them are run, and what has to come of it.

use std::io::{self, Write};
use std::time::Instant;

use futures::{StreamExt, stream};
use steadfast_testing::WorldError;

use crate::client::Site;
use crate::compare::{Difference, differences};
use crate::coverage::Coverage;
use crate::execute::Seen;
use crate::script::Script;
use crate::{AT_ONCE, asked, one, told};

/// After so many scripts a long run says where it is.
const PROGRESS: usize = 250;

/// Scripts of one sort.
pub struct Family {
    /// What they are called, several of them.
    pub name: &'static str,
    /// The script of a seed.
    pub script: fn(u64) -> Script,
    /// How many are run unless something else is asked for.
    pub count: u64,
    /// So many pairs of verb and option so many scripts are made of at the least.
    pub pairs: usize,
    /// The variable that asks for one of them alone.
    pub one: &'static str,
}

impl Family {
    /// Runs the scripts that are asked for on two servers, which answer alike.
    pub async fn run(&self, ours: &Site, theirs: &Site) -> Result<(), WorldError> {
        if let Some(seed) = asked(self.one) {
            return one(ours, theirs, (self.script)(seed)).await;
        }
        let count = asked("STEADFAST_SCRIPTS").unwrap_or(self.count);
        let first = asked("STEADFAST_FIRST_SCRIPT").unwrap_or(1);
        let begun = Instant::now();
        let Outcome { coverage, found, ended } = self.compared(ours, theirs, first, count).await;
        println!("{} {first} to {} in {} s", self.name, first + count - 1, begun.elapsed().as_secs());
        println!("{coverage}");
        told(&found, count);
        ended?;
        if count >= self.count {
            assert!(coverage.pairs() >= self.pairs, "only {} pairs of verb and option came", coverage.pairs());
        }
        let least = usize::try_from(count)? / 100;
        assert_eq!(coverage.rarer_than(least), Vec::<String>::new(), "each verb comes with each option {least} times");
        assert!(coverage.granted_percent() >= 50, "{}% are granted", coverage.granted_percent());
        Ok(())
    }

    /// Runs scripts until the last one, or the first that does not come to its end.
    async fn compared(&self, ours: &Site, theirs: &Site, first: u64, count: u64) -> Outcome {
        let begun = Instant::now();
        let script = self.script;
        let runs = stream::iter(first..first + count).map(|seed| {
            let (ours, theirs) = (ours.clone(), theirs.clone());
            tokio::spawn(async move { on_both(&ours, &theirs, script(seed)).await })
        });
        let mut runs = runs.buffer_unordered(AT_ONCE).enumerate();
        let mut outcome = Outcome { coverage: Coverage::default(), found: Vec::new(), ended: Ok(()) };
        // Not by a macro: what those print is held back until the test has ended.
        let say = |words: String| drop(writeln!(io::stderr(), "{words}"));
        while let Some((number, run)) = runs.next().await {
            match run.map_err(WorldError::from).flatten() {
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
                say(format!("{}: {} of {count} after {} s", self.name, number + 1, begun.elapsed().as_secs()));
            }
        }
        outcome
    }
}

/// What came of several scripts.
struct Outcome {
    coverage: Coverage,
    found: Vec<Difference>,
    /// Why a script did not come to its end, where one did not.
    ended: Result<(), WorldError>,
}

/// Runs a script on two servers; with what the second one answered, and how the first one differs.
async fn on_both(
    ours: &Site,
    theirs: &Site,
    script: Script,
) -> Result<(Script, Vec<Seen>, Vec<Difference>), WorldError> {
    let (ours, theirs) = futures::future::try_join(ours.run(&script), theirs.run(&script)).await?;
    let found = differences(&script, &ours, &theirs);
    Ok((script, theirs, found))
}
