//! Scripts with definitions that change while they are served: versions, stored versions, columns, names and
//! subresources change, and the definition is deleted with its objects.
//!
//! A real server applies a changed definition some time after its response, by several independent controllers.
//! Therefore each change sets a unique column. After it, the script waits until the resource and its discovery show the
//! change, and until the open watches have ended.

use serde_json::{Value, json};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::client::TestServer;
use crate::differential::reads::TABLE;
use crate::differential::rng::SeededRng;
use crate::differential::script::{ReadMode, ResponseCondition, SENTINEL, Script, Step};
use crate::differential::script_family::ScriptFamily;
use crate::differential::servers::Embedded;

const CHANGES: ScriptFamily = ScriptFamily {
    name: "scripts of definitions that change",
    script,
    count: 16,
    min_pairs: 25,
    seed_variable: "STEADFAST_CHANGES_SCRIPT",
};
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

/// One version of the definition.
#[derive(Clone)]
struct Version {
    name: &'static str,
    is_served: bool,
    is_deprecated: bool,
    has_status: bool,
    /// Default of a field, if any.
    default: Option<&'static str>,
}

impl Version {
    fn new(name: &'static str) -> Self {
        Self { name, is_served: true, is_deprecated: false, has_status: false, default: None }
    }
}

struct ScriptBuilder {
    rng: SeededRng,
    seed: u64,
    namespace: String,
    steps: Vec<Step>,
    versions: Vec<Version>,
    /// Index of the storage version.
    storage_index: usize,
    /// Versions with stored objects.
    stored_versions: Vec<&'static str>,
    short_names: Vec<&'static str>,
    /// Number of changes of the definition.
    changes: usize,
    /// `true` if a watch is open that the next change of the definition ends.
    has_watch: bool,
}

impl ScriptBuilder {
    fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn group(&self) -> String {
        format!("s{}.changes.steadfast.dev", self.seed)
    }

    fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/things.{}", self.group())
    }

    fn collection_path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{}/things", self.group(), self.namespace)
    }

    fn pick_served_version(&mut self) -> &'static str {
        let served: Vec<&'static str> =
            self.versions.iter().filter(|version| version.is_served).map(|version| version.name).collect();
        self.rng.pick(&served)
    }

    /// Returns the value of `versions` in the definition.
    fn versions_json(&self) -> Value {
        let version_json = |(index, version): (usize, &Version)| {
            let mut text = json!({"type": "string"});
            if let Some(default) = version.default {
                text["default"] = default.into();
            }
            let mut fields = json!({"text": text, "size": {"type": "integer"}});
            // Each version has a field that the others do not have.
            fields[version.name] = json!({"type": "string"});
            let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let schema = json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields}, "status": status,
            }});
            let column_name = format!("Change {}", self.changes);
            let mut entry = json!({
                "name": version.name, "served": version.is_served, "storage": index == self.storage_index,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": column_name, "type": "string", "jsonPath": ".spec.text"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                ],
            });
            if version.is_deprecated {
                entry["deprecated"] = true.into();
            }
            if version.has_status {
                entry["subresources"] = json!({"status": {}});
            }
            entry
        };
        self.versions.iter().enumerate().map(version_json).collect()
    }

    fn add_definition(&mut self) {
        let group = self.group();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": self.versions_json(),
                "names": {"plural": "things", "kind": "Thing", "shortNames": self.short_names},
            },
        });
        self.push(Step::new("define", "POST", DEFINITIONS.to_owned()).json(&definition).label("definition"));
        self.wait_until_served();
    }

    /// Waits until the definition is served as specified, and reads everything that it serves.
    fn wait_until_served(&mut self) {
        let versions = self.versions.clone();
        let column_name = format!("Change {}", self.changes);
        for version in versions.iter().filter(|version| version.is_served) {
            let mut step = Step::new("list", "GET", self.collection_path(version.name)).label("table after a change");
            step.accept = TABLE;
            step.condition = Some(ResponseCondition::Has(column_name.clone()));
            step.waits_for_watches = true;
            self.push(step);
            let path = format!("/apis/{}/{}", self.group(), version.name);
            let mut step = Step::new("discovery", "GET", path).label("version served");
            // Discovery is complete only when the entries before the names are listed.
            let names: String = self.short_names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
            let names = if names.is_empty() { "\"things\"".to_owned() } else { format!("\"shortNames\":[{names}]") };
            let status = if version.has_status {
                ResponseCondition::Has("things/status".into())
            } else {
                ResponseCondition::Lacks("things/status".into())
            };
            step.condition = Some(ResponseCondition::Both(Box::new(ResponseCondition::Has(names)), Box::new(status)));
            if self.short_names.is_empty() {
                step.condition = step.condition.map(|condition| {
                    ResponseCondition::Both(
                        Box::new(condition),
                        Box::new(ResponseCondition::Lacks("shortNames".into())),
                    )
                });
            }
            self.push(step);
        }
        for version in versions.iter().filter(|version| !version.is_served) {
            let mut step = Step::new("list", "GET", self.collection_path(version.name)).label("version not served");
            step.condition = Some(ResponseCondition::Code(404));
            self.push(step);
            let path = format!("/apis/{}/{}", self.group(), version.name);
            let mut step = Step::new("discovery", "GET", path).label("version not served");
            step.condition = Some(ResponseCondition::Code(404));
            self.push(step);
        }
        let mut step = Step::new("discovery", "GET", format!("/apis/{}", self.group())).label("group");
        let mut condition = ResponseCondition::Code(200);
        for version in &versions {
            let text = format!("/{}\"", version.name);
            let is_listed =
                if version.is_served { ResponseCondition::Has(text) } else { ResponseCondition::Lacks(text) };
            condition = ResponseCondition::Both(Box::new(condition), Box::new(is_listed));
        }
        step.condition = Some(condition);
        self.push(step);
        self.has_watch = false;
    }

    /// Adds a change of the definition, and reads its effects.
    fn add_change(&mut self) {
        self.changes += 1;
        let mut option = "columns";
        match self.rng.below(9) {
            0 | 1 if self.versions.len() < 4 => {
                let name = ["v1", "v2", "v1beta1", "v3alpha1"][self.versions.len()];
                let mut version = Version::new(name);
                version.default = self.rng.pick(&[None, Some("given")]);
                self.versions.push(version);
                option = "version added";
            }
            2 | 3 => {
                self.storage_index = self.rng.below(self.versions.len());
                let name = self.versions[self.storage_index].name;
                if !self.stored_versions.contains(&name) {
                    self.stored_versions.push(name);
                }
                option = "storage";
            }
            4 if self.versions.len() > 1 => {
                let index = self.rng.below(self.versions.len());
                let is_served = self.versions[index].is_served;
                if !is_served || self.versions.iter().filter(|version| version.is_served).count() > 1 {
                    self.versions[index].is_served = !is_served;
                    option = "served";
                }
            }
            5 => {
                let index = self.rng.below(self.versions.len());
                self.versions[index].is_deprecated = !self.versions[index].is_deprecated;
                option = "deprecated";
            }
            6 => {
                let index = self.rng.below(self.versions.len());
                self.versions[index].has_status = !self.versions[index].has_status;
                option = "subresource";
            }
            7 => {
                let index = self.rng.below(self.versions.len());
                self.versions[index].default = self.rng.pick(&[None, Some("other")]);
                option = "default";
            }
            8 => {
                self.short_names = self.rng.pick(&[&["th"][..], &["tg", "ti"], &[]]).to_vec();
                option = "short names";
            }
            _ => {}
        }
        let spec = json!({"versions": self.versions_json(), "names": {"shortNames": self.short_names}});
        let mut step = Step::new("change", "PATCH", self.definition_path()).json(&json!({"spec": spec})).label(option);
        step.content_type = MERGE;
        // The rest of the response depends on the progress of the controllers.
        step.accept = crate::differential::reads::METADATA;
        step.compares_code_only = true;
        self.push(step);
        self.wait_until_served();
    }

    /// Adds a change that is rejected.
    fn add_rejected_change(&mut self) {
        let mut versions = self.versions_json();
        let entries = versions.as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
        match self.rng.below(4) {
            0 => entries[0]["additionalPrinterColumns"][1]["jsonPath"] = "size".into(),
            1 => entries[0]["schema"]["openAPIV3Schema"]["type"] = "string".into(),
            2 => entries[0]["name"] = "V1".into(),
            _ => {
                // Replaces a version that has stored objects by another one.
                let stored = self.stored_versions[0];
                for version in entries.iter_mut().filter(|version| version["name"] == stored) {
                    version["name"] = "v9".into();
                }
            }
        }
        let mut step = Step::new("change", "PATCH", self.definition_path()).label("refused");
        step = step.json(&json!({"spec": {"versions": versions}}));
        step.content_type = MERGE;
        step.compares_code_only = true;
        self.push(step);
    }

    fn object(&mut self, version: &str, name: &str) -> Value {
        let mut spec = json!({"size": self.rng.below(9)});
        if self.rng.percent(50) {
            spec["text"] = "own".into();
        }
        for field in ["v1", "v2"] {
            if self.rng.percent(50) {
                spec[field] = field.into();
            }
        }
        let mut thing = json!({
            "apiVersion": format!("{}/{version}", self.group()), "kind": "Thing",
            "metadata": {"name": name}, "spec": spec,
        });
        if self.rng.percent(30) {
            thing["status"] = json!({"phase": "Given"});
        }
        thing
    }

    fn add_write(&mut self) {
        let version = self.pick_served_version();
        let name = self.rng.pick(&["a", "b", "c"]);
        let (path, thing) = (self.collection_path(version), self.object(version, name));
        let at = format!("{path}/{name}");
        let mut change = Step::new("patch", "PATCH", at.clone()).json(&json!({"spec": {"size": self.changes}}));
        change.content_type = MERGE;
        let step = match self.rng.below(6) {
            0..3 => Step::new("create", "POST", path).json(&thing).label("thing"),
            3 => change.label("thing"),
            4 => Step { path: format!("{at}/status"), body: r#"{"status":{"phase":"B"}}"#.into(), ..change }
                .label("status"),
            _ => Step::new("delete", "DELETE", at).label("thing"),
        };
        self.push(step);
    }

    fn add_read(&mut self) {
        let version = self.pick_served_version();
        let path = self.collection_path(version);
        let name = self.rng.pick(&["a", "b", "c"]);
        let mut step = match self.rng.below(4) {
            0 => Step::new("get", "GET", format!("{path}/{name}")).label("thing"),
            1 => {
                let resource_path = format!("/apis/{}/{version}/things", self.group());
                Step::new("list", "GET", resource_path).label("all namespaces")
            }
            _ => Step::new("list", "GET", path).label("things"),
        };
        if self.rng.percent(25) {
            step.accept = TABLE;
        }
        self.push(step);
    }

    /// Adds a watch that the next change ends.
    fn add_watch(&mut self) {
        let path = self.collection_path(
            self.versions.iter().find(|version| version.is_served).map_or("v1", |version| version.name),
        );
        let mut step = Step::new("watch", "GET", path.clone()).query("watch=1").query("timeoutSeconds=60");
        step.read_mode = ReadMode::UntilSentinel;
        step.wait_for_watch_cache = Some(path);
        step = if self.rng.percent(50) { step.query("resourceVersion=0") } else { step };
        self.has_watch = true;
        self.push(step.label("ended by a change"));
    }

    /// Adds the deletion of the definition, with its objects.
    fn add_deletion(&mut self, has_finalizer: bool) {
        let version = self.pick_served_version();
        let path = self.collection_path(version);
        if has_finalizer {
            let mut thing = self.object(version, "held");
            thing["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            self.push(Step::new("create", "POST", path.clone()).json(&thing).label("finalizers"));
        }
        if self.rng.percent(50) {
            self.add_watch();
        }
        let (at, group) = (self.definition_path(), self.group());
        let mut wrong_uid = Step::new("undefine", "DELETE", at.clone()).query("uid=another").label("wrong uid");
        wrong_uid.compares_code_only = true;
        self.push(wrong_uid);
        let mut step = Step::new("undefine", "DELETE", at.clone()).label("definition");
        step.compares_code_only = true;
        self.push(step);
        if has_finalizer {
            let mut step = Step::new("get", "GET", format!("{path}/held")).label("terminating");
            step.condition = Some(ResponseCondition::Has("deletionTimestamp".into()));
            self.push(step);
            let late_object = self.object(version, "late");
            self.push(Step::new("create", "POST", path.clone()).json(&late_object).label("while terminating"));
            let mut change = Step::new("patch", "PATCH", format!("{path}/held")).label("finalizers");
            change = change.json(&json!({"metadata": {"finalizers": null}}));
            change.content_type = MERGE;
            self.push(change);
        }
        for (verb, path_to_check) in [("get", at), ("list", path), ("discovery", format!("/apis/{group}"))] {
            let mut step = Step::new(verb, "GET", path_to_check).label("gone");
            step.condition = Some(ResponseCondition::Code(404));
            step.waits_for_watches = verb == "discovery";
            self.push(step);
        }
    }
}

/// Returns the script of a seed.
fn script(seed: u64) -> Script {
    let rng = SeededRng::new(seed ^ 0x00C4_A6E5);
    let mut builder = ScriptBuilder {
        rng,
        seed,
        namespace: format!("changes-{seed}"),
        steps: Vec::new(),
        versions: vec![Version::new("v1")],
        storage_index: 0,
        stored_versions: vec!["v1"],
        short_names: vec!["th"],
        changes: 0,
        has_watch: false,
    };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder
        .push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object).label("namespace"));
    builder.add_definition();
    for _ in 0..3 + builder.rng.below(3) {
        for _ in 0..2 + builder.rng.below(3) {
            builder.add_write();
            if builder.rng.percent(60) {
                builder.add_read();
            }
        }
        if builder.rng.percent(30) {
            builder.add_rejected_change();
        }
        if builder.rng.percent(40) {
            builder.add_watch();
            builder.add_write();
        }
        builder.add_change();
        builder.add_read();
    }
    if builder.rng.percent(60) {
        let has_finalizer = builder.rng.percent(25);
        builder.add_deletion(has_finalizer);
    } else {
        builder.add_watch();
        let version = builder.pick_served_version();
        let (path, last) = (builder.collection_path(version), builder.object(version, SENTINEL));
        builder.push(Step::new("create", "POST", path).json(&last).label("last of all"));
    }
    Script { seed, steps: builder.steps }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_definitions_are_served_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::from_config(&reference.kube_config().await?)?;
    CHANGES.run(&embedded.test_server, &theirs).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_definition_change_mutant_is_detected() -> Result<(), TestError> {
    let (first, second) = (Embedded::start(1).await?, Embedded::start(2).await?);
    crate::differential::run_and_assert_mutants_detected(
        crate::differential::mutants::DEFINITION_CHANGE_MUTANTS,
        &first.test_server,
        &second.test_server,
        (1..=20).map(script),
    )
    .await
}
