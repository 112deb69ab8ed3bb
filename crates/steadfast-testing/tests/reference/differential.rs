//! Compares the embedded server with a real kube-apiserver. Random scripts of requests run on both, and the responses
//! must be equal, except for unavoidable differences and for those that `docs/embedded-server.md` lists.
//!
//! `STEADFAST_SCRIPTS=5000` sets the number of scripts per family, and `STEADFAST_FIRST_SCRIPT` the first one.
//! `STEADFAST_SCRIPT=17` runs one script and prints the responses of both servers. `STEADFAST_ALL_DIFFERENCES` also
//! prints differences that follow another one in their script. Without the reference, the tests are skipped with a
//! message.

#![allow(unreachable_pub, reason = "modules of a test program")]

mod apply;
mod chance;
mod changes;
mod client;
mod compaction;
mod compare;
mod coverage;
mod customs;
mod definitions;
mod discovery;
mod events;
mod execute;
mod families;
mod family;
mod generate;
mod kinds;
mod known;
mod mutants;
mod namespaces;
mod normalise;
mod patches;
mod reads;
mod refused;
mod schemas;
mod script;
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
use family::Family;
use generate::script;
use mutants::{MUTANTS, Mutant};
use script::Script;
use servers::Embedded;

/// Number of concurrent scripts.
const CONCURRENT_SCRIPTS: usize = 40;
/// Family for the general API.
const GENERAL: Family =
    Family { name: "scripts", script: generate::script, count: 150, pairs: 102, one: "STEADFAST_SCRIPT" };

fn seed_from_env(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_respond_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::of(&reference.kube_config().await?)?;
    servers::fill(&theirs).await?;
    servers::prepare(&theirs).await?;
    GENERAL.run(&embedded.site, &theirs).await
}

/// Prints the differences, and fails if any exist.
fn assert_no_differences(found: &[Difference], count: u64) {
    let mut sorts: BTreeMap<String, (usize, &Difference)> = BTreeMap::new();
    // The differences after the first one in a script may be its consequences.
    let mut reported = BTreeSet::new();
    let all = env::var_os("STEADFAST_ALL_DIFFERENCES").is_some();
    for difference in found.iter().filter(|difference| reported.insert(difference.seed) || all) {
        sorts.entry(difference.sort()).or_insert((0, difference)).0 += 1;
    }
    let mut sorts: Vec<_> = sorts.into_values().collect();
    sorts.sort_by_key(|(count, _)| *count);
    for (count, example) in sorts {
        println!("{count} like this: {example}");
    }
    let seeds: BTreeSet<u64> = found.iter().map(|difference| difference.seed).collect();
    assert!(found.is_empty(), "{} of {count} scripts have different responses: {seeds:?}", seeds.len());
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
    let found = differences(script, ours, theirs);
    for difference in &found {
        println!("{difference}");
    }
    assert!(found.is_empty(), "{} steps have different responses", found.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mutant_is_detected() -> Result<(), TestError> {
    let one = Embedded::start(1).await?;
    let other = Embedded::start(2).await?;
    run_and_assert_mutants_detected(MUTANTS, &one.site, &other.site, (1..=60).map(script)).await
}

/// Applies each mutant to the responses of one of two equal servers, and checks that it is detected.
async fn run_and_assert_mutants_detected(
    mutants: &[Mutant],
    one: &TestServer,
    other: &TestServer,
    scripts: impl Iterator<Item = Script>,
) -> Result<(), TestError> {
    let responses = stream::iter(scripts).map(|script| async move {
        let (one, other) = futures::future::try_join(one.run(&script), other.run(&script)).await?;
        Ok::<_, TestError>((script, one, other))
    });
    let responses: Vec<_> = responses.buffered(CONCURRENT_SCRIPTS).try_collect().await?;
    assert_mutants_detected(mutants, &responses);
    Ok(())
}

/// Applies each mutant to the responses of the second of two equal servers, and checks that it is detected.
fn assert_mutants_detected(mutants: &[Mutant], responses: &[(Script, Vec<ServerResponse>, Vec<ServerResponse>)]) {
    for (script, one, other) in responses {
        let found = differences(script, one, other);
        assert!(found.is_empty(), "the server differs from itself: {}", found[0]);
    }
    let is_detected = |mutant: &&Mutant| {
        responses.iter().any(|(script, one, other)| {
            let mut altered = other.clone();
            for (step, response) in script.steps.iter().zip(&mut altered) {
                (mutant.alter)(step, response);
            }
            altered != *other && !differences(script, one, &altered).is_empty()
        })
    };
    let missed: Vec<&str> = mutants.iter().filter(|mutant| !is_detected(mutant)).map(|mutant| mutant.name).collect();
    assert!(missed.is_empty(), "undetected mutants: {missed:?}");
}

#[test]
fn intended_differences_are_documented() {
    let page = include_str!("../../../../docs/embedded-server.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for known in known::KNOWN_DIFFERENCES {
        assert!(page.contains(known.listed), "docs/embedded-server.md does not contain: {}", known.listed);
    }
}
