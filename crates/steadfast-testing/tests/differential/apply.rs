//! Scripts of server-side apply: several managers, mixed with updates and patches, on kinds that are filled in by nobody.

mod bodies;
mod requests;

use serde_json::json;
use steadfast_testing::WorldError;
use steadfast_testing::reference::Reference;

use crate::chance::Chance;
use crate::client::Site;
use crate::script::{Script, Step};
use crate::servers::{self, Embedded};
use crate::{asked, compared, told};

/// How many scripts are run unless something else is asked for.
const SCRIPTS: u64 = 100;
/// The pairs of verb and option that the scripts are made of.
const PAIRS: usize = 45;

/// A collection that is applied to.
#[allow(clippy::struct_field_names, reason = "the API's own word")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The path before the namespace.
    pub root: &'static str,
    /// The API version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural name.
    pub plural: &'static str,
}

const fn kind(root: &'static str, api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { root, api_version, kind, plural }
}

/// What scripts apply to: maps, sets, lists with keys and without, with a schema and with none.
pub const KINDS: &[Kind] = &[
    kind("/api/v1", "v1", "ConfigMap", "configmaps"),
    kind("/api/v1", "v1", "ServiceAccount", "serviceaccounts"),
    kind("/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1", "Role", "roles"),
    kind("/apis/apply.steadfast.dev/v1", "apply.steadfast.dev/v1", "Gadget", "gadgets"),
    kind("/apis/apply.steadfast.dev/v1", "apply.steadfast.dev/v1", "Gadget", "gadgets"),
    kind("/apis/differential.steadfast.dev/v1", "differential.steadfast.dev/v1", "Widget", "widgets"),
];

/// A script that is being written.
pub struct Plot {
    /// Chance.
    pub chance: Chance,
    /// The namespace.
    pub namespace: String,
    /// The requests so far.
    pub steps: Vec<Step>,
    /// What the script is about: one object of each.
    pub kind: Kind,
}

impl Plot {
    /// The path of the script's object.
    pub fn object(&self) -> String {
        format!("{}/namespaces/{}/{}/it", self.kind.root, self.namespace, self.kind.plural)
    }

    /// The path of its collection.
    pub fn collection(&self) -> String {
        format!("{}/namespaces/{}/{}", self.kind.root, self.namespace, self.kind.plural)
    }

    /// Whether its kind is one that a definition made.
    pub fn custom(&self) -> bool {
        self.kind.api_version.ends_with("steadfast.dev/v1")
    }
}

/// The script of a seed: one object, that many write.
pub fn script(seed: u64) -> Script {
    let mut chance = Chance::of(seed ^ 0xA991);
    let kind = chance.one(KINDS);
    let mut plot = Plot { chance, namespace: format!("apply-{seed}"), steps: Vec::new(), kind };
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plot.namespace}});
    plot.steps.push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&own).with("namespace"));
    let length = 14 + plot.chance.below(14);
    for _ in 0..length {
        match plot.chance.below(100) {
            0..50 => requests::apply(&mut plot),
            50..57 => requests::create(&mut plot),
            57..66 => requests::update(&mut plot),
            66..77 => requests::patch(&mut plot),
            77..82 => requests::status(&mut plot),
            82..86 => requests::delete(&mut plot),
            86..90 => requests::read(&mut plot),
            _ => requests::refused(&mut plot),
        }
    }
    for (verb, path) in [("get", plot.object()), ("list", plot.collection())] {
        plot.steps.push(Step::new(verb, "GET", path).with("at the end"));
    }
    Script { seed, steps: plot.steps }
}

/// Defines what the scripts need.
async fn prepare(site: &Site) -> Result<(), WorldError> {
    servers::define(&site.open().await?, &bodies::definition()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_apply_alike() -> Result<(), WorldError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = Site::of(&reference.kube_config().await?)?;
    servers::prepare(&theirs).await?;
    for site in [&embedded.site, &theirs] {
        prepare(site).await?;
    }
    if let Some(seed) = asked("STEADFAST_APPLY_SCRIPT") {
        return crate::one(&embedded.site, &theirs, script(seed)).await;
    }
    let count = asked("STEADFAST_SCRIPTS").unwrap_or(SCRIPTS);
    let first = asked("STEADFAST_FIRST_SCRIPT").unwrap_or(1);
    let (coverage, found) = compared(&embedded.site, &theirs, (first..first + count).map(script)).await?;
    println!("scripts of apply {first} to {}\n{coverage}", first + count - 1);
    told(&found, count);
    if count >= SCRIPTS {
        assert_eq!(coverage.pairs(), PAIRS, "so many pairs of verb and option there are");
    }
    assert!(coverage.granted_percent() >= 50, "{}% are granted", coverage.granted_percent());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mutant_that_applies_wrongly_is_told_from_the_server_it_was_made_of() -> Result<(), WorldError> {
    let (one, other) = (Embedded::start(1).await?, Embedded::start(2).await?);
    for site in [&one.site, &other.site] {
        prepare(site).await?;
    }
    crate::each_is_caught(crate::mutants::APPLYING, &one.site, &other.site, (1..=40).map(script)).await
}
