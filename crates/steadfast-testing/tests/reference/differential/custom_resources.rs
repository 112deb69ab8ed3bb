//! Scripts with custom resources with schemas: pruning, defaults and rejections, in each version.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::client::TestServer;
use crate::differential::definitions::{self, GROUP, POOL_SIZE};
use crate::differential::mutants::Mutant;
use crate::differential::rng::SeededRng;
use crate::differential::schemas;
use crate::differential::script::{Script, Step};
use crate::differential::script_family::ScriptFamily;
use crate::differential::servers::Embedded;

const CUSTOM_RESOURCES: ScriptFamily = ScriptFamily {
    name: "scripts of custom resources",
    script,
    count: 100,
    min_pairs: 36,
    seed_variable: "STEADFAST_CUSTOM_SCRIPT",
};
const NAMES: &[&str] = &["a", "b"];
const MERGE: &str = "application/merge-patch+json";

struct ScriptBuilder {
    rng: SeededRng,
    namespace: String,
    number: u64,
    steps: Vec<Step>,
    /// Objects that may exist.
    objects: BTreeSet<&'static str>,
}

impl ScriptBuilder {
    fn version(&mut self) -> &'static str {
        self.rng.pick(&["v1", "v1", "v2"])
    }

    fn path(&self, version: &str) -> String {
        format!("/apis/{GROUP}/{version}/namespaces/{}/pool{}s", self.namespace, self.number)
    }

    fn random_part(&mut self, version: &str, part: &str) -> Value {
        let wrong_percent = self.rng.pick(&[0, 0, 0, 0, 0, 0, 0, 3, 8]);
        let schema = definitions::schema_of(self.number, version);
        schemas::value(&mut self.rng, &schema["properties"][part], wrong_percent)
    }

    fn object(&mut self, version: &str, name: &str) -> Value {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": definitions::kind(self.number),
            "metadata": {"name": name}, "spec": self.random_part(version, "spec"),
        });
        if self.rng.percent(30) {
            object["status"] = self.random_part(version, "status");
        }
        object
    }

    fn push(&mut self, name: &'static str, step: Step) {
        self.steps.push(step);
        self.objects.insert(name);
    }

    /// Adds a random option to a step: the treatment of unknown fields, a dry run, or none.
    fn strictness(&mut self, step: Step) -> Step {
        match self.rng.below(6) {
            0 => step.query("fieldValidation=Strict").label("strict"),
            1 => step.query("fieldValidation=Ignore").label("ignore"),
            2 => step.query("fieldValidation=Warn").label("warn"),
            3 => step.query("dryRun=All").label("dry run"),
            _ => step.label("plain"),
        }
    }

    fn create(&mut self) {
        let (version, name) = (self.version(), self.rng.pick(NAMES));
        let object = self.object(version, name);
        let mut step = Step::new("create", "POST", self.path(version)).json(&object);
        if self.rng.percent(5) {
            step.body = step.body.replacen("\"spec\":{", "\"spec\":{\"zz\":1,\"zz\":2,", 1);
        }
        let step = self.strictness(step);
        self.push(name, step);
    }

    fn pick_object(&mut self) -> &'static str {
        let index = self.rng.below(self.objects.len());
        self.objects.iter().nth(index).map_or("a", |&name| name)
    }

    fn change(&mut self) {
        let (version, name) = (self.version(), self.pick_object());
        let path = format!("{}/{name}", self.path(version));
        // The change needs the version of this object. A list would yield the version of a random object.
        self.steps.push(Step::new("get", "GET", path.clone()).label("plain"));
        let last = self.steps.len() - 1;
        let step = match self.rng.below(8) {
            0..3 => {
                let mut object = self.object(version, name);
                object["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
                Step::new("update", "PUT", path).json(&object)
            }
            3 => {
                let mut object = self.object(version, name);
                object["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
                object["status"] = self.random_part(version, "status");
                Step::new("update status", "PUT", format!("{path}/status")).json(&object)
            }
            4 => {
                let body = json!({"status": self.random_part(version, "status"), "spec": {"a": "ignored"}});
                patch("patch status", format!("{path}/status"), &body)
            }
            5 => {
                let operations = json!([{"op": "add", "path": "/spec/b", "value": self.random_part(version, "spec")}]);
                let mut step = patch("patch", path, &operations);
                step.content_type = "application/json-patch+json";
                step
            }
            _ => patch("patch", path, &json!({"spec": self.random_part(version, "spec")})),
        };
        let step = self.strictness(step);
        self.push(name, step);
    }

    fn scale(&mut self) {
        let (version, name) = (self.version(), self.pick_object());
        let path = format!("{}/{name}", self.path(version));
        self.steps.push(Step::new("get", "GET", path.clone()).label("plain"));
        let (last, path) = (self.steps.len() - 1, format!("{path}/scale"));
        // A random number nearly always changes the scale. A real server may treat an unchanged scale as a change,
        // because of its managers.
        let replicas = if self.rng.percent(15) { json!(-1) } else { self.rng.below(100_000).into() };
        let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                           "metadata": {"name": name, "namespace": self.namespace}, "spec": {"replicas": replicas}});
        let step = match self.rng.below(6) {
            0 | 1 => Step::new("get scale", "GET", path).label("plain"),
            2 => Step::new("update scale", "PUT", path).json(&scale).label("plain"),
            3 => {
                let mut scale = scale;
                scale["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
                Step::new("update scale", "PUT", path).json(&scale).label("version")
            }
            4 => patch("patch scale", path, &json!({"metadata": {"resourceVersion": "1"}})).label("stale version"),
            _ => patch("patch scale", path, &json!({"spec": {"replicas": replicas}})).label("plain"),
        };
        self.steps.push(step);
    }

    fn read(&mut self) {
        let (version, name) = (self.version(), self.pick_object());
        let path = self.path(version);
        let step = match self.rng.below(5) {
            0 | 1 => Step::new("get", "GET", format!("{path}/{name}")).label("plain"),
            2 => Step::new("list", "GET", path).label("plain"),
            3 => {
                let mut step = Step::new("list", "GET", path).label("table");
                step.accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
                step
            }
            _ => Step::new("discovery", "GET", format!("/apis/{GROUP}")).label("plain"),
        };
        self.steps.push(step);
    }
}

fn patch(verb: &'static str, path: String, body: &Value) -> Step {
    let mut step = Step::new(verb, "PATCH", path).json(body);
    step.content_type = MERGE;
    step
}

/// Returns the script of a seed.
fn script(seed: u64) -> Script {
    let mut rng = SeededRng::new(seed.wrapping_add(77_000));
    let number = rng.below(POOL_SIZE as usize) as u64;
    let namespace = format!("customs-{seed}");
    let mut builder = ScriptBuilder { rng, namespace, number, steps: Vec::new(), objects: BTreeSet::new() };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder.steps.push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object));
    for _ in 0..4 {
        builder.create();
    }
    for _ in 0..20 {
        match builder.rng.below(100) {
            0..14 => builder.create(),
            14..52 => builder.change(),
            52..64 => builder.scale(),
            64..91 => builder.read(),
            91..95 => {
                let step = definitions::random_definition_attempt(&mut builder.rng);
                builder.steps.push(step);
            }
            _ => {
                let (version, name) = (builder.version(), builder.pick_object());
                let path = format!("{}/{name}", builder.path(version));
                builder.steps.push(Step::new("delete", "DELETE", path).label("plain"));
            }
        }
    }
    Script { seed, steps: builder.steps }
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_behave_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::from_config(&reference.kube_config().await?)?;
    definitions::prepare(&embedded.test_server).await?;
    definitions::prepare(&theirs).await?;
    CUSTOM_RESOURCES.run(&embedded.test_server, &theirs).await
}

/// Mutants that only scripts with schemas detect.
const MUTANTS: &[Mutant] = &[
    Mutant { name: "no warnings", alter: |_, response| drop(response.headers.remove("warning")) },
    Mutant {
        name: "rejections without their first cause",
        alter: |_, response| {
            let causes = response.body.pointer_mut("/details/causes").and_then(Value::as_array_mut);
            if let Some(causes) = causes.filter(|causes| !causes.is_empty()) {
                causes.remove(0);
            }
        },
    },
    Mutant {
        name: "causes without a field",
        alter: |_, response| {
            for cause in
                response.body.pointer_mut("/details/causes").and_then(Value::as_array_mut).into_iter().flatten()
            {
                cause["field"] = Value::Null;
            }
        },
    },
    Mutant {
        name: "unknown fields are kept",
        alter: |step, response| {
            if step.body.contains("\"unknown\"") && response.code < 300 {
                response.body["spec"]["unknown"] = json!({"deep": [1]});
            }
        },
    },
    Mutant {
        name: "defaults are not filled in",
        alter: |_, response| {
            if let Some(spec) = response.body.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|_, value| value != "given" && value != "one" && *value != 3);
            }
        },
    },
    Mutant {
        name: "another version than requested",
        alter: |step, response| {
            if step.path.contains("/v2/") && response.body["apiVersion"] == format!("{GROUP}/v2") {
                response.body["apiVersion"] = format!("{GROUP}/v1").into();
            }
        },
    },
    Mutant {
        name: "strict requests are granted",
        alter: |step, response| {
            if step.options.contains(&"strict") && response.code == 400 {
                response.code = 201;
            }
        },
    },
    Mutant {
        name: "a scale of another size",
        alter: |_, response| {
            if response.body["kind"] == "Scale" {
                response.body["spec"]["replicas"] = 99.into();
            }
        },
    },
    Mutant {
        name: "a status that can be created",
        alter: |step, response| {
            if step.verb == "create" && step.body.contains("\"status\"") && response.code == 201 {
                response.body["status"] = json!({"phase": "A"});
            }
        },
    },
    Mutant {
        name: "a table without its columns",
        alter: |_, response| {
            if let Some(columns) = response.body.get_mut("columnDefinitions").and_then(Value::as_array_mut) {
                columns.truncate(1);
            }
        },
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn each_custom_resource_mutant_is_detected() -> Result<(), TestError> {
    let (first, second) = (Embedded::start(1).await?, Embedded::start(2).await?);
    definitions::prepare(&first.test_server).await?;
    definitions::prepare(&second.test_server).await?;
    crate::differential::run_and_assert_mutants_detected(
        MUTANTS,
        &first.test_server,
        &second.test_server,
        (1..=40).map(script),
    )
    .await
}
