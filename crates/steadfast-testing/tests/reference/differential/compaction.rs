//! Scripts with versions, continue tokens and watches from before a compaction, and with versions that do not exist
//! yet.
//!
//! A compaction affects a whole server. Therefore all scripts run in two rounds on two servers of their own. Between
//! the rounds, the servers are compacted and their caches restarted. After a compaction alone, a real server continues
//! to serve from its cache, including exact lists and pages, while the cache contains the events and snapshots. The
//! duration depends on other writes and on a timer, so it is not compared. Therefore the API server is replaced, and
//! each collection is requested once before the second round. By then each cache contains the whole first round and
//! nothing of the second. The newest version that an error states is not compared either.

mod requests;

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::client::TestServer;
use crate::differential::compare::differences;
use crate::differential::coverage::Coverage;
use crate::differential::execute::ScriptProgress;
use crate::differential::kinds::{KINDS, Kind, fields};
use crate::differential::rng::SeededRng;
use crate::differential::script::{SENTINEL, Script, Step};
use crate::differential::servers::{self, Embedded};
use crate::differential::{CONCURRENT_SCRIPTS, assert_no_differences, print_and_compare, seed_from_env};

/// Default number of scripts.
const DEFAULT_SCRIPTS: u64 = 40;
/// Number of kinds that scripts write: the first kinds in `KINDS`, which have no server-side defaults.
const WRITTEN_KINDS: usize = 4;
/// Names of objects.
const NAMES: &[&str] = &["a", "b", "c", "d.e"];

/// Script under construction.
struct ScriptBuilder {
    rng: SeededRng,
    namespace: String,
    /// Kinds of the script, as indexes into `KINDS`.
    kinds: [usize; 2],
    steps: Vec<Step>,
    /// Kinds as indexes into `KINDS`, each with the index of a step whose response is an object of that kind.
    versions: Vec<(usize, usize)>,
    /// Steps of the first round with a page as response, and their requests.
    pages: Vec<(usize, Step)>,
    /// Kinds with watches that wait for a last object.
    watched: BTreeSet<usize>,
}

impl ScriptBuilder {
    fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    fn kind(&mut self) -> usize {
        self.rng.pick(&self.kinds)
    }

    fn collection(&self, kind: usize) -> String {
        let Kind { root, plural, .. } = KINDS[kind];
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    fn object(&mut self, kind: usize, name: &str) -> Value {
        let mut object = fields(&KINDS[kind], &mut self.rng);
        object["apiVersion"] = KINDS[kind].api_version.into();
        object["kind"] = KINDS[kind].kind.into();
        let app = self.rng.pick(&["web", "api"]);
        object["metadata"] = json!({"name": name, "labels": {"script": self.namespace, "app": app}});
        object
    }

    fn create(&mut self, kind: usize, namespace: &str, name: &str) {
        let object = self.object(kind, name);
        let Kind { root, plural, .. } = KINDS[kind];
        let path = format!("{root}/namespaces/{namespace}/{plural}");
        let step = self.push(Step::new("create", "POST", path).json(&object).label("plain"));
        self.versions.push((kind, step));
    }

    fn change(&mut self, kind: usize) {
        let name = self.rng.pick(NAMES);
        let path = format!("{}/{name}", self.collection(kind));
        let delete = Step::new("delete", "DELETE", path.clone());
        match self.rng.below(12) {
            0..3 => {
                self.push(delete.label("plain"));
                return;
            }
            3 => {
                let query = format!("resourceVersion={}", self.version());
                self.push(delete.query(&query).label("version in the query"));
                return;
            }
            _ => {}
        }
        let app = self.rng.pick(&["web", "api", "db"]);
        let mut step = Step::new("patch", "PATCH", path).label("plain");
        step = step
            .json(&json!({"metadata": {"labels": {"app": app}, "annotations": {"at": self.steps.len().to_string()}}}));
        step.content_type = "application/merge-patch+json";
        let step = self.push(step);
        self.versions.push((kind, step));
    }

    /// Returns a version that an object of this or another kind has had.
    fn version(&mut self) -> String {
        let (_, step) = self.versions[self.rng.below(self.versions.len())];
        format!("<<version:{step}>>")
    }
}

/// Returns the script of a seed, and the start of its second round.
fn script(seed: u64) -> (Script, usize) {
    let mut rng = SeededRng::new(seed ^ 0x00C0_4AC7);
    let first = rng.below(WRITTEN_KINDS);
    let kinds = [first, (first + 1 + rng.below(WRITTEN_KINDS - 1)) % WRITTEN_KINDS];
    let mut builder = ScriptBuilder {
        rng,
        namespace: format!("compact-{seed}"),
        kinds,
        steps: Vec::new(),
        versions: Vec::new(),
        pages: Vec::new(),
        watched: BTreeSet::new(),
    };
    let (namespace, second_namespace) = (builder.namespace.clone(), format!("{}-b", builder.namespace));
    for name in [&namespace, &second_namespace] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let step = Step::new("create", "POST", "/api/v1/namespaces".to_owned());
        builder.push(step.json(&namespace).label("namespace"));
    }
    for kind in kinds {
        for name in NAMES {
            builder.create(kind, &namespace, name);
        }
        builder.create(kind, &second_namespace, "a");
        builder.create(kind, &second_namespace, "z");
    }
    for _ in 0..4 + builder.rng.below(4) {
        let kind = builder.kind();
        match builder.rng.below(10) {
            0..4 => builder.change(kind),
            _ => requests::add_page(&mut builder, kind),
        }
    }
    // The last writes of the round touch both kinds, so that each earlier version is compacted.
    for kind in kinds {
        requests::add_page(&mut builder, kind);
        builder.create(kind, &namespace, "e");
    }
    let end = builder.steps.len();
    let kept_versions = builder.versions.len() - 1;
    builder.versions.truncate(kept_versions);
    for _ in 0..16 + builder.rng.below(6) {
        requests::add_request_after_compaction(&mut builder);
    }
    for kind in builder.watched.clone() {
        let mut last = builder.object(kind, SENTINEL);
        last["metadata"]["labels"]["app"] = "web".into();
        let path = builder.collection(kind);
        builder.push(Step::new("create", "POST", path).json(&last).label("last of all"));
    }
    (Script { seed, steps: builder.steps }, end)
}

/// Requests each collection once, so that each has a cache.
async fn warm_caches(server: &TestServer) -> Result<(), TestError> {
    let list = |kind: &Kind| Step::new("list", "GET", format!("{}/{}?resourceVersion=0", kind.root, kind.plural));
    let steps: Vec<Step> = KINDS[..WRITTEN_KINDS].iter().map(list).collect();
    for _ in 0..100 {
        // During the replacement, no server listens at the address.
        let responses = server.run(&Script { seed: 0, steps: steps.clone() }).await;
        if responses.is_ok_and(|responses| responses.iter().all(|response| response.code == 200)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err("the collections are still not served".into())
}

/// A script, the start of its second round, and its progress on each server.
type ScriptRun = (Script, usize, ScriptProgress, ScriptProgress);

/// Runs a round of all scripts on both servers.
async fn run_round(
    ours: &TestServer,
    theirs: &TestServer,
    runs: Vec<ScriptRun>,
    is_last_round: bool,
) -> Result<Vec<ScriptRun>, TestError> {
    let run = |(script, round_start, mut our_progress, mut their_progress): ScriptRun| async move {
        let end = if is_last_round { script.steps.len() } else { round_start };
        futures::future::try_join(
            ours.run_until_step(&script, end, &mut our_progress),
            theirs.run_until_step(&script, end, &mut their_progress),
        )
        .await?;
        Ok::<_, TestError>((script, round_start, our_progress, their_progress))
    };
    stream::iter(runs.into_iter().map(run)).buffered(CONCURRENT_SCRIPTS).try_collect().await
}

fn start_scripts(seeds: impl Iterator<Item = u64>) -> Vec<ScriptRun> {
    seeds
        .map(script)
        .map(|(script, round_start)| (script, round_start, ScriptProgress::default(), ScriptProgress::default()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_versions_are_rejected_equally() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::from_config(&reference.kube_config().await?)?;
    servers::prepare(&theirs).await?;
    let single = seed_from_env("STEADFAST_COMPACTION_SCRIPT");
    let count = if single.is_some() { 1 } else { seed_from_env("STEADFAST_SCRIPTS").unwrap_or(DEFAULT_SCRIPTS) };
    let first = single.or_else(|| seed_from_env("STEADFAST_FIRST_SCRIPT")).unwrap_or(1);
    let first_round = run_round(&embedded.test_server, &theirs, start_scripts(first..first + count), false).await?;

    reference.compact().await?;
    reference.shut_down(0).await?;
    reference.start_again(0).await?;
    embedded.compact_and_restart_cache();
    for server in [&embedded.test_server, &theirs] {
        warm_caches(server).await?;
    }

    let responses = run_round(&embedded.test_server, &theirs, first_round, true).await?;
    if single.is_some() {
        let (script, _, ours, theirs) = &responses[0];
        print_and_compare(script, &ours.responses, &theirs.responses);
        return Ok(());
    }
    let (mut coverage, mut found_differences) = (Coverage::default(), Vec::new());
    for (script, _, ours, theirs) in &responses {
        coverage.count(script, &theirs.responses);
        found_differences.extend(differences(script, &ours.responses, &theirs.responses));
    }
    println!("scripts of compaction {first} to {}\n{coverage}", first + count - 1);
    assert_no_differences(&found_differences, count);
    if count >= DEFAULT_SCRIPTS {
        assert!(coverage.pairs() >= requests::MIN_PAIRS, "only {} pairs of verb and option occurred", coverage.pairs());
    }
    assert!(coverage.success_percent() >= 50, "only {}% succeeded", coverage.success_percent());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_compaction_mutant_is_detected() -> Result<(), TestError> {
    let (first, second) = (Embedded::start(1).await?, Embedded::start(2).await?);
    let first_round = run_round(&first.test_server, &second.test_server, start_scripts(1..=12), false).await?;
    for server in [&first, &second] {
        server.compact_and_restart_cache();
        warm_caches(&server.test_server).await?;
    }
    let responses = run_round(&first.test_server, &second.test_server, first_round, true).await?;
    let responses: Vec<_> =
        responses.into_iter().map(|(script, _, first, second)| (script, first.responses, second.responses)).collect();
    crate::differential::assert_mutants_detected(crate::differential::mutants::COMPACTION_MUTANTS, &responses);
    Ok(())
}
