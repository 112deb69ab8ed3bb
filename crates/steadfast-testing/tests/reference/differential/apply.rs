//! Scripts of server-side apply: several managers, mixed with updates and patches, on kinds without server-side
//! defaults.

mod bodies;
mod requests;

use serde_json::json;
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::chance::SeededRng;
use crate::differential::client::TestServer;
use crate::differential::family::Family;
use crate::differential::kinds::{Kind, WIDGET, built_in, custom};
use crate::differential::script::{Script, Step};
use crate::differential::servers::{self, Embedded};

const APPLY: Family = Family { name: "scripts of apply", script, count: 100, pairs: 45, one: "STEADFAST_APPLY_SCRIPT" };

const GADGET: Kind = custom("/apis/apply.steadfast.dev/v1", "apply.steadfast.dev/v1", "Gadget", "gadgets");

/// Kinds for apply: maps, sets, lists with and without keys, with and without a schema.
const KINDS: &[Kind] = &[
    built_in("/api/v1", "v1", "ConfigMap", "configmaps"),
    built_in("/api/v1", "v1", "ServiceAccount", "serviceaccounts"),
    built_in("/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1", "Role", "roles"),
    GADGET,
    GADGET,
    WIDGET,
];

/// Script under construction.
pub struct ScriptBuilder {
    /// Random source.
    pub chance: SeededRng,
    /// Namespace.
    pub namespace: String,
    /// Requests so far.
    pub steps: Vec<Step>,
    /// Kind of the script's only object.
    pub kind: Kind,
}

impl ScriptBuilder {
    /// Returns the path of the script's object.
    pub fn object(&self) -> String {
        format!("{}/namespaces/{}/{}/it", self.kind.root, self.namespace, self.kind.plural)
    }

    /// Returns the path of its collection.
    pub fn collection(&self) -> String {
        format!("{}/namespaces/{}/{}", self.kind.root, self.namespace, self.kind.plural)
    }
}

/// Returns the script of a seed: one object with several writers.
pub fn script(seed: u64) -> Script {
    let mut chance = SeededRng::of(seed ^ 0xA991);
    let kind = chance.pick(KINDS);
    let mut builder = ScriptBuilder { chance, namespace: format!("apply-{seed}"), steps: Vec::new(), kind };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder
        .steps
        .push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object).label("namespace"));
    let length = 14 + builder.chance.below(14);
    for _ in 0..length {
        match builder.chance.below(100) {
            0..50 => requests::apply(&mut builder),
            50..57 => requests::create(&mut builder),
            57..66 => requests::update(&mut builder),
            66..77 => requests::patch(&mut builder),
            77..82 => requests::status(&mut builder),
            82..86 => requests::delete(&mut builder),
            86..90 => requests::read(&mut builder),
            _ => requests::refused(&mut builder),
        }
    }
    for (verb, path) in [("get", builder.object()), ("list", builder.collection())] {
        builder.steps.push(Step::new(verb, "GET", path).label("at the end"));
    }
    Script { seed, steps: builder.steps }
}

/// Defines the custom resources that the scripts need.
async fn prepare(site: &TestServer) -> Result<(), TestError> {
    servers::define(&site.open().await?, &bodies::definition()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_apply_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::of(&reference.kube_config().await?)?;
    servers::prepare(&theirs).await?;
    for site in [&embedded.site, &theirs] {
        prepare(site).await?;
    }
    APPLY.run(&embedded.site, &theirs).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_apply_mutant_is_detected() -> Result<(), TestError> {
    let (one, other) = (Embedded::start(1).await?, Embedded::start(2).await?);
    for site in [&one.site, &other.site] {
        prepare(site).await?;
    }
    crate::differential::run_and_assert_mutants_detected(
        crate::differential::mutants::APPLYING,
        &one.site,
        &other.site,
        (1..=40).map(script),
    )
    .await
}
