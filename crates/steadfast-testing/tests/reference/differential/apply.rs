//! Scripts of server-side apply: several managers, mixed with updates and patches, on kinds without server-side
//! defaults.

mod bodies;
mod requests;

use serde_json::json;
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::client::TestServer;
use crate::differential::kinds::{Kind, WIDGET, built_in, custom};
use crate::differential::rng::SeededRng;
use crate::differential::script::{Script, Step};
use crate::differential::script_family::ScriptFamily;
use crate::differential::servers::{self, Embedded};

const APPLY: ScriptFamily = ScriptFamily {
    name: "scripts of apply",
    script,
    count: 100,
    min_pairs: 45,
    seed_variable: "STEADFAST_APPLY_SCRIPT",
};

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
    pub rng: SeededRng,
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
    let mut rng = SeededRng::new(seed ^ 0xA991);
    let kind = rng.pick(KINDS);
    let mut builder = ScriptBuilder { rng, namespace: format!("apply-{seed}"), steps: Vec::new(), kind };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder
        .steps
        .push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object).label("namespace"));
    let length = 14 + builder.rng.below(14);
    for _ in 0..length {
        match builder.rng.below(100) {
            0..50 => requests::apply(&mut builder),
            50..57 => requests::create(&mut builder),
            57..66 => requests::update(&mut builder),
            66..77 => requests::patch(&mut builder),
            77..82 => requests::status(&mut builder),
            82..86 => requests::delete(&mut builder),
            86..90 => requests::read(&mut builder),
            _ => requests::add_rejected_apply(&mut builder),
        }
    }
    for (verb, path) in [("get", builder.object()), ("list", builder.collection())] {
        builder.steps.push(Step::new(verb, "GET", path).label("at the end"));
    }
    Script { seed, steps: builder.steps }
}

/// Defines the custom resources that the scripts need.
async fn prepare(server: &TestServer) -> Result<(), TestError> {
    servers::define(&server.open().await?, &bodies::definition()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_apply_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::from_config(&reference.kube_config().await?)?;
    servers::prepare(&theirs).await?;
    for server in [&embedded.test_server, &theirs] {
        prepare(server).await?;
    }
    APPLY.run(&embedded.test_server, &theirs).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_apply_mutant_is_detected() -> Result<(), TestError> {
    let (first, second) = (Embedded::start(1).await?, Embedded::start(2).await?);
    for server in [&first.test_server, &second.test_server] {
        prepare(server).await?;
    }
    crate::differential::run_and_assert_mutants_detected(
        crate::differential::mutants::APPLY_MUTANTS,
        &first.test_server,
        &second.test_server,
        (1..=40).map(script),
    )
    .await
}
