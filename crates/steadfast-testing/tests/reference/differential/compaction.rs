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

use crate::differential::chance::SeededRng;
use crate::differential::client::TestServer;
use crate::differential::compare::differences;
use crate::differential::coverage::Coverage;
use crate::differential::execute::ScriptProgress;
use crate::differential::kinds::{KINDS, Kind, fields};
use crate::differential::script::{SENTINEL, Script, Step};
use crate::differential::servers::{self, Embedded};
use crate::differential::{CONCURRENT_SCRIPTS, assert_no_differences, print_and_compare, seed_from_env};

/// Default number of scripts.
const SCRIPTS: u64 = 40;
/// Kinds that scripts write, as indexes into `KINDS`: kinds without server-side defaults.
const WRITTEN: usize = 4;
/// Names of objects.
const NAMES: &[&str] = &["a", "b", "c", "d.e"];

/// Script under construction.
struct ScriptBuilder {
    chance: SeededRng,
    namespace: String,
    /// Kinds of the script, as indexes into `KINDS`.
    kinds: [usize; 2],
    steps: Vec<Step>,
    /// Steps with an object as response, and their kinds.
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
        self.chance.pick(&self.kinds)
    }

    fn collection(&self, kind: usize) -> String {
        let Kind { root, plural, .. } = KINDS[kind];
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    fn object(&mut self, kind: usize, name: &str) -> Value {
        let mut object = fields(&KINDS[kind], &mut self.chance);
        object["apiVersion"] = KINDS[kind].api_version.into();
        object["kind"] = KINDS[kind].kind.into();
        let app = self.chance.pick(&["web", "api"]);
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
        let name = self.chance.pick(NAMES);
        let path = format!("{}/{name}", self.collection(kind));
        let delete = Step::new("delete", "DELETE", path.clone());
        match self.chance.below(12) {
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
        let app = self.chance.pick(&["web", "api", "db"]);
        let mut step = Step::new("patch", "PATCH", path).label("plain");
        step = step
            .json(&json!({"metadata": {"labels": {"app": app}, "annotations": {"at": self.steps.len().to_string()}}}));
        step.content_type = "application/merge-patch+json";
        let step = self.push(step);
        self.versions.push((kind, step));
    }

    /// Returns a version that an object of this or another kind has had.
    fn version(&mut self) -> String {
        let (_, step) = self.versions[self.chance.below(self.versions.len())];
        format!("<<version:{step}>>")
    }
}

/// Returns the script of a seed, and the start of its second round.
fn script(seed: u64) -> (Script, usize) {
    let mut chance = SeededRng::of(seed ^ 0x00C0_4AC7);
    let first = chance.below(WRITTEN);
    let kinds = [first, (first + 1 + chance.below(WRITTEN - 1)) % WRITTEN];
    let mut builder = ScriptBuilder {
        chance,
        namespace: format!("compact-{seed}"),
        kinds,
        steps: Vec::new(),
        versions: Vec::new(),
        pages: Vec::new(),
        watched: BTreeSet::new(),
    };
    let (own, beside) = (builder.namespace.clone(), format!("{}-b", builder.namespace));
    for name in [&own, &beside] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let step = Step::new("create", "POST", "/api/v1/namespaces".to_owned());
        builder.push(step.json(&namespace).label("namespace"));
    }
    for kind in kinds {
        for name in NAMES {
            builder.create(kind, &own, name);
        }
        builder.create(kind, &beside, "a");
        builder.create(kind, &beside, "z");
    }
    for _ in 0..4 + builder.chance.below(4) {
        let kind = builder.kind();
        match builder.chance.below(10) {
            0..4 => builder.change(kind),
            _ => requests::page(&mut builder, kind),
        }
    }
    // The last writes of the round touch both kinds, so that each earlier version is compacted.
    for kind in kinds {
        requests::page(&mut builder, kind);
        builder.create(kind, &own, "e");
    }
    let end = builder.steps.len();
    let forgotten = builder.versions.len() - 1;
    builder.versions.truncate(forgotten);
    for _ in 0..16 + builder.chance.below(6) {
        requests::after(&mut builder);
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
async fn warm(site: &TestServer) -> Result<(), TestError> {
    let list = |kind: &Kind| Step::new("list", "GET", format!("{}/{}?resourceVersion=0", kind.root, kind.plural));
    let steps: Vec<Step> = KINDS[..WRITTEN].iter().map(list).collect();
    for _ in 0..100 {
        // During the replacement, no server listens at the address.
        let responses = site.run(&Script { seed: 0, steps: steps.clone() }).await;
        if responses.is_ok_and(|responses| responses.iter().all(|response| response.code == 200)) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err("the collections are still not served".into())
}

/// A script and its progress on each server.
type Pair = (Script, usize, ScriptProgress, ScriptProgress);

/// Runs a round of all scripts on both servers.
async fn round(ours: &TestServer, theirs: &TestServer, pairs: Vec<Pair>, last: bool) -> Result<Vec<Pair>, TestError> {
    let run = |(script, middle, mut one, mut other): Pair| async move {
        let end = if last { script.steps.len() } else { middle };
        futures::future::try_join(
            ours.run_until_step(&script, end, &mut one),
            theirs.run_until_step(&script, end, &mut other),
        )
        .await?;
        Ok::<_, TestError>((script, middle, one, other))
    };
    stream::iter(pairs.into_iter().map(run)).buffered(CONCURRENT_SCRIPTS).try_collect().await
}

fn pairs(seeds: impl Iterator<Item = u64>) -> Vec<Pair> {
    seeds
        .map(script)
        .map(|(script, middle)| (script, middle, ScriptProgress::default(), ScriptProgress::default()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_versions_are_rejected_equally() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::of(&reference.kube_config().await?)?;
    servers::prepare(&theirs).await?;
    let single = seed_from_env("STEADFAST_COMPACTION_SCRIPT");
    let count = if single.is_some() { 1 } else { seed_from_env("STEADFAST_SCRIPTS").unwrap_or(SCRIPTS) };
    let first = single.or_else(|| seed_from_env("STEADFAST_FIRST_SCRIPT")).unwrap_or(1);
    let started = round(&embedded.site, &theirs, pairs(first..first + count), false).await?;

    reference.compact().await?;
    reference.shut_down(0).await?;
    reference.start_again(0).await?;
    embedded.forget();
    for site in [&embedded.site, &theirs] {
        warm(site).await?;
    }

    let responses = round(&embedded.site, &theirs, started, true).await?;
    if single.is_some() {
        let (script, _, ours, theirs) = &responses[0];
        print_and_compare(script, &ours.responses, &theirs.responses);
        return Ok(());
    }
    let (mut coverage, mut found) = (Coverage::default(), Vec::new());
    for (script, _, ours, theirs) in &responses {
        coverage.count(script, &theirs.responses);
        found.extend(differences(script, &ours.responses, &theirs.responses));
    }
    println!("scripts of compaction {first} to {}\n{coverage}", first + count - 1);
    assert_no_differences(&found, count);
    if count >= SCRIPTS {
        assert!(coverage.pairs() >= requests::PAIRS, "only {} pairs of verb and option occurred", coverage.pairs());
    }
    assert!(coverage.granted_percent() >= 50, "only {}% succeeded", coverage.granted_percent());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_compaction_mutant_is_detected() -> Result<(), TestError> {
    let (one, other) = (Embedded::start(1).await?, Embedded::start(2).await?);
    let started = round(&one.site, &other.site, pairs(1..=12), false).await?;
    for server in [&one, &other] {
        server.forget();
        warm(&server.site).await?;
    }
    let responses = round(&one.site, &other.site, started, true).await?;
    let responses: Vec<_> =
        responses.into_iter().map(|(script, _, one, other)| (script, one.responses, other.responses)).collect();
    crate::differential::assert_mutants_detected(crate::differential::mutants::FORGETTING, &responses);
    Ok(())
}
