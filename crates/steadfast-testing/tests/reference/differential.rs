//! Compares the embedded server with a real kube-apiserver. Random scripts of requests run on both, and the responses
//! must be equal, except for unavoidable differences and for those that `docs/embedded-server.md` lists.
//!
//! `STEADFAST_SCRIPTS=5000` sets the number of scripts per family, and `STEADFAST_FIRST_SCRIPT` the first one.
//! `STEADFAST_SCRIPT=17` runs one script and prints the responses of both servers. `STEADFAST_ALL_DIFFERENCES` also
//! prints differences that follow another one in their script. Without the reference, the tests are skipped with a
//! message.

#![allow(unreachable_pub, reason = "modules of a test program")]

mod apply;
mod client;
mod compaction;
mod compare;
mod coverage;
mod custom_resources;
mod definition_changes;
mod definitions;
mod discovery;
mod events;
mod execute;
mod generate;
mod kinds;
mod known;
mod mutants;
mod namespaces;
mod normalise;
mod patches;
mod reads;
mod rejected;
mod request_families;
mod rng;
mod schemas;
mod script;
mod script_family;
mod servers;
mod watches;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::env;

use futures::{StreamExt, TryStreamExt, stream};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use client::TestServer;
use compare::{Difference, differences};
use execute::ServerResponse;
use generate::script;
use mutants::{MUTANTS, Mutant};
use script::Script;
use script_family::ScriptFamily;
use servers::Embedded;

/// Number of concurrent scripts.
const CONCURRENT_SCRIPTS: usize = 40;
/// Family for the general API.
const GENERAL: ScriptFamily = ScriptFamily {
    name: "scripts",
    script: generate::script,
    count: 150,
    min_pairs: 102,
    seed_variable: "STEADFAST_SCRIPT",
};

fn seed_from_env(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_respond_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::from_config(&reference.kube_config().await?)?;
    servers::fill(&theirs).await?;
    servers::prepare(&theirs).await?;
    GENERAL.run(&embedded.test_server, &theirs).await
}

/// Prints the differences, and fails if any exist.
fn assert_no_differences(differences: &[Difference], count: u64) {
    let mut classes: BTreeMap<String, (usize, &Difference)> = BTreeMap::new();
    // The differences after the first one in a script may be its consequences.
    let mut reported_seeds = BTreeSet::new();
    let reports_all = env::var_os("STEADFAST_ALL_DIFFERENCES").is_some();
    for difference in differences.iter().filter(|difference| reported_seeds.insert(difference.seed) || reports_all) {
        classes.entry(difference.class()).or_insert((0, difference)).0 += 1;
    }
    let mut classes: Vec<_> = classes.into_values().collect();
    classes.sort_by_key(|(count, _)| *count);
    for (count, example) in classes {
        println!("{count} like this: {example}");
    }
    let seeds: BTreeSet<u64> = differences.iter().map(|difference| difference.seed).collect();
    assert!(differences.is_empty(), "{} of {count} scripts have different responses: {seeds:?}", seeds.len());
}

/// Runs one script, and prints all of it.
async fn run_one_script(ours: &TestServer, theirs: &TestServer, script: Script) -> Result<(), TestError> {
    let (ours, theirs) = futures::future::try_join(ours.run(&script), theirs.run(&script)).await?;
    print_and_compare(&script, &ours, &theirs);
    Ok(())
}

/// Prints the requests and the responses, and fails if they differ.
fn print_and_compare(script: &Script, ours: &[ServerResponse], theirs: &[ServerResponse]) {
    for (number, step) in script.steps.iter().enumerate() {
        println!("step {number}: {} {} {} {}", step.method, step.path, step.accept, step.body);
        for (server, response) in [("embedded ", &ours[number]), ("reference", &theirs[number])] {
            println!("  {server} {} {:?} {}", response.code, response.headers, response.body);
            for event in &response.events {
                println!("            {event}");
            }
        }
    }
    let found_differences = differences(script, ours, theirs);
    for difference in &found_differences {
        println!("{difference}");
    }
    assert!(found_differences.is_empty(), "{} steps have different responses", found_differences.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mutant_is_detected() -> Result<(), TestError> {
    let first = Embedded::start(1).await?;
    let second = Embedded::start(2).await?;
    run_and_assert_mutants_detected(MUTANTS, &first.test_server, &second.test_server, (1..=60).map(script)).await
}

/// Applies each mutant to the responses of one of two equal servers, and checks that it is detected.
async fn run_and_assert_mutants_detected(
    mutants: &[Mutant],
    first: &TestServer,
    second: &TestServer,
    scripts: impl Iterator<Item = Script>,
) -> Result<(), TestError> {
    let responses = stream::iter(scripts).map(|script| async move {
        let (first, second) = futures::future::try_join(first.run(&script), second.run(&script)).await?;
        Ok::<_, TestError>((script, first, second))
    });
    let responses: Vec<_> = responses.buffered(CONCURRENT_SCRIPTS).try_collect().await?;
    assert_mutants_detected(mutants, &responses);
    Ok(())
}

/// Applies each mutant to the responses of the second of two equal servers, and checks that it is detected.
fn assert_mutants_detected(mutants: &[Mutant], responses: &[(Script, Vec<ServerResponse>, Vec<ServerResponse>)]) {
    for (script, first, second) in responses {
        let self_differences = differences(script, first, second);
        assert!(self_differences.is_empty(), "the server differs from itself: {}", self_differences[0]);
    }
    let is_detected = |mutant: &&Mutant| {
        responses.iter().any(|(script, first, second)| {
            let mut altered = second.clone();
            for (step, response) in script.steps.iter().zip(&mut altered) {
                (mutant.alter)(step, response);
            }
            altered != *second && !differences(script, first, &altered).is_empty()
        })
    };
    let undetected: Vec<&str> =
        mutants.iter().filter(|mutant| !is_detected(mutant)).map(|mutant| mutant.name).collect();
    assert!(undetected.is_empty(), "undetected mutants: {undetected:?}");
}

#[test]
fn intended_differences_are_documented() {
    let page = include_str!("../../../../docs/embedded-server.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for difference in known::KNOWN_DIFFERENCES {
        assert!(page.contains(difference.entry), "docs/embedded-server.md does not contain: {}", difference.entry);
    }
}
