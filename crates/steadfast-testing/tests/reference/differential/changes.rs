//! Scripts with definitions that change while they are served: versions, stored versions, columns, names and
//! subresources change, and the definition is deleted with its objects.
//!
//! A real server applies a changed definition some time after its response, by several independent controllers.
//! Therefore each change sets a unique column. After it, the script waits until the resource and its discovery show the
//! change, and until the open watches have ended.

use serde_json::{Value, json};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::differential::chance::SeededRng;
use crate::differential::client::TestServer;
use crate::differential::family::Family;
use crate::differential::reads::TABLE;
use crate::differential::script::{Reading, SENTINEL, Script, Step, Until};
use crate::differential::servers::Embedded;

const CHANGES: Family = Family {
    name: "scripts of definitions that change",
    script,
    count: 16,
    pairs: 25,
    one: "STEADFAST_CHANGES_SCRIPT",
};
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

/// One version of the definition.
#[derive(Clone)]
struct Version {
    name: &'static str,
    served: bool,
    deprecated: bool,
    status: bool,
    /// Default of a field, if any.
    default: Option<&'static str>,
}

impl Version {
    fn new(name: &'static str) -> Self {
        Self { name, served: true, deprecated: false, status: false, default: None }
    }
}

struct ScriptBuilder {
    chance: SeededRng,
    seed: u64,
    namespace: String,
    steps: Vec<Step>,
    versions: Vec<Version>,
    /// Index of the storage version.
    storage: usize,
    /// Versions with stored objects.
    stored: Vec<&'static str>,
    short_names: Vec<&'static str>,
    /// Number of changes of the definition.
    changes: usize,
    /// `true` if a watch is open that the next change of the definition ends.
    watches: bool,
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

    fn things(&self, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{}/things", self.group(), self.namespace)
    }

    fn served(&mut self) -> &'static str {
        let served: Vec<&'static str> = self.versions.iter().filter(|one| one.served).map(|one| one.name).collect();
        self.chance.pick(&served)
    }

    /// Returns the value of `versions` in the definition.
    fn versions(&self) -> Value {
        let of = |(place, version): (usize, &Version)| {
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
            let mark = format!("Change {}", self.changes);
            let mut one = json!({
                "name": version.name, "served": version.served, "storage": place == self.storage,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": mark, "type": "string", "jsonPath": ".spec.text"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                ],
            });
            if version.deprecated {
                one["deprecated"] = true.into();
            }
            if version.status {
                one["subresources"] = json!({"status": {}});
            }
            one
        };
        self.versions.iter().enumerate().map(of).collect()
    }

    fn define(&mut self) {
        let group = self.group();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": self.versions(),
                "names": {"plural": "things", "kind": "Thing", "shortNames": self.short_names},
            },
        });
        self.push(Step::new("define", "POST", DEFINITIONS.to_owned()).json(&definition).label("definition"));
        self.settle();
    }

    /// Waits until the definition is served as specified, and reads everything that it serves.
    fn settle(&mut self) {
        let versions = self.versions.clone();
        let mark = format!("Change {}", self.changes);
        for version in versions.iter().filter(|version| version.served) {
            let mut step = Step::new("list", "GET", self.things(version.name)).label("table after a change");
            step.accept = TABLE;
            step.until = Some(Until::Has(mark.clone()));
            step.after_watches = true;
            self.push(step);
            let path = format!("/apis/{}/{}", self.group(), version.name);
            let mut step = Step::new("discovery", "GET", path).label("version served");
            // Discovery is complete only when the entries before the names are listed.
            let names: String = self.short_names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
            let names = if names.is_empty() { "\"things\"".to_owned() } else { format!("\"shortNames\":[{names}]") };
            let status =
                if version.status { Until::Has("things/status".into()) } else { Until::Lacks("things/status".into()) };
            step.until = Some(Until::Both(Box::new(Until::Has(names)), Box::new(status)));
            if self.short_names.is_empty() {
                step.until =
                    step.until.map(|one| Until::Both(Box::new(one), Box::new(Until::Lacks("shortNames".into()))));
            }
            self.push(step);
        }
        for version in versions.iter().filter(|version| !version.served) {
            let mut step = Step::new("list", "GET", self.things(version.name)).label("version not served");
            step.until = Some(Until::Code(404));
            self.push(step);
            let path = format!("/apis/{}/{}", self.group(), version.name);
            let mut step = Step::new("discovery", "GET", path).label("version not served");
            step.until = Some(Until::Code(404));
            self.push(step);
        }
        let mut step = Step::new("discovery", "GET", format!("/apis/{}", self.group())).label("group");
        let mut until = Until::Code(200);
        for version in &versions {
            let text = format!("/{}\"", version.name);
            let is = if version.served { Until::Has(text) } else { Until::Lacks(text) };
            until = Until::Both(Box::new(until), Box::new(is));
        }
        step.until = Some(until);
        self.push(step);
        self.watches = false;
    }

    /// Adds a change of the definition, and reads its effects.
    fn change(&mut self) {
        self.changes += 1;
        let mut option = "columns";
        match self.chance.below(9) {
            0 | 1 if self.versions.len() < 4 => {
                let name = ["v1", "v2", "v1beta1", "v3alpha1"][self.versions.len()];
                let mut version = Version::new(name);
                version.default = self.chance.pick(&[None, Some("given")]);
                self.versions.push(version);
                option = "version added";
            }
            2 | 3 => {
                self.storage = self.chance.below(self.versions.len());
                let name = self.versions[self.storage].name;
                if !self.stored.contains(&name) {
                    self.stored.push(name);
                }
                option = "storage";
            }
            4 if self.versions.len() > 1 => {
                let place = self.chance.below(self.versions.len());
                let served = self.versions[place].served;
                if !served || self.versions.iter().filter(|one| one.served).count() > 1 {
                    self.versions[place].served = !served;
                    option = "served";
                }
            }
            5 => {
                let place = self.chance.below(self.versions.len());
                self.versions[place].deprecated = !self.versions[place].deprecated;
                option = "deprecated";
            }
            6 => {
                let place = self.chance.below(self.versions.len());
                self.versions[place].status = !self.versions[place].status;
                option = "subresource";
            }
            7 => {
                let place = self.chance.below(self.versions.len());
                self.versions[place].default = self.chance.pick(&[None, Some("other")]);
                option = "default";
            }
            8 => {
                self.short_names = self.chance.pick(&[&["th"][..], &["tg", "ti"], &[]]).to_vec();
                option = "short names";
            }
            _ => {}
        }
        let spec = json!({"versions": self.versions(), "names": {"shortNames": self.short_names}});
        let mut step = Step::new("change", "PATCH", self.definition_path()).json(&json!({"spec": spec})).label(option);
        step.content_type = MERGE;
        // The rest of the response depends on the progress of the controllers.
        step.accept = crate::differential::reads::METADATA;
        step.code_only = true;
        self.push(step);
        self.settle();
    }

    /// Adds a change that is rejected.
    fn refused(&mut self) {
        let mut versions = self.versions();
        let all = versions.as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
        match self.chance.below(4) {
            0 => all[0]["additionalPrinterColumns"][1]["jsonPath"] = "size".into(),
            1 => all[0]["schema"]["openAPIV3Schema"]["type"] = "string".into(),
            2 => all[0]["name"] = "V1".into(),
            _ => {
                // Replaces a version that has stored objects by another one.
                let stored = self.stored[0];
                for version in all.iter_mut().filter(|version| version["name"] == stored) {
                    version["name"] = "v9".into();
                }
            }
        }
        let mut step = Step::new("change", "PATCH", self.definition_path()).label("refused");
        step = step.json(&json!({"spec": {"versions": versions}}));
        step.content_type = MERGE;
        step.code_only = true;
        self.push(step);
    }

    fn thing(&mut self, version: &str, name: &str) -> Value {
        let mut spec = json!({"size": self.chance.below(9)});
        if self.chance.percent(50) {
            spec["text"] = "own".into();
        }
        for field in ["v1", "v2"] {
            if self.chance.percent(50) {
                spec[field] = field.into();
            }
        }
        let mut thing = json!({
            "apiVersion": format!("{}/{version}", self.group()), "kind": "Thing",
            "metadata": {"name": name}, "spec": spec,
        });
        if self.chance.percent(30) {
            thing["status"] = json!({"phase": "Given"});
        }
        thing
    }

    fn write(&mut self) {
        let version = self.served();
        let name = self.chance.pick(&["a", "b", "c"]);
        let (path, thing) = (self.things(version), self.thing(version, name));
        let at = format!("{path}/{name}");
        let mut change = Step::new("patch", "PATCH", at.clone()).json(&json!({"spec": {"size": self.changes}}));
        change.content_type = MERGE;
        let step = match self.chance.below(6) {
            0..3 => Step::new("create", "POST", path).json(&thing).label("thing"),
            3 => change.label("thing"),
            4 => Step { path: format!("{at}/status"), body: r#"{"status":{"phase":"B"}}"#.into(), ..change }
                .label("status"),
            _ => Step::new("delete", "DELETE", at).label("thing"),
        };
        self.push(step);
    }

    fn read(&mut self) {
        let version = self.served();
        let path = self.things(version);
        let name = self.chance.pick(&["a", "b", "c"]);
        let mut step = match self.chance.below(4) {
            0 => Step::new("get", "GET", format!("{path}/{name}")).label("thing"),
            1 => {
                let resource_path = format!("/apis/{}/{version}/things", self.group());
                Step::new("list", "GET", resource_path).label("all namespaces")
            }
            _ => Step::new("list", "GET", path).label("things"),
        };
        if self.chance.percent(25) {
            step.accept = TABLE;
        }
        self.push(step);
    }

    /// Adds a watch that the next change ends.
    fn watch(&mut self) {
        let path = self.things(self.versions.iter().find(|one| one.served).map_or("v1", |one| one.name));
        let mut step = Step::new("watch", "GET", path.clone()).query("watch=1").query("timeoutSeconds=60");
        step.reading = Reading::UntilSentinel;
        step.wait_for_watch_cache = Some(path);
        step = if self.chance.percent(50) { step.query("resourceVersion=0") } else { step };
        self.watches = true;
        self.push(step.label("ended by a change"));
    }

    /// Adds the deletion of the definition, with its objects.
    fn end(&mut self, held: bool) {
        let version = self.served();
        let path = self.things(version);
        if held {
            let mut thing = self.thing(version, "held");
            thing["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            self.push(Step::new("create", "POST", path.clone()).json(&thing).label("finalizers"));
        }
        if self.chance.percent(50) {
            self.watch();
        }
        let (at, group) = (self.definition_path(), self.group());
        let mut wrong_uid = Step::new("undefine", "DELETE", at.clone()).query("uid=another").label("wrong uid");
        wrong_uid.code_only = true;
        self.push(wrong_uid);
        let mut step = Step::new("undefine", "DELETE", at.clone()).label("definition");
        step.code_only = true;
        self.push(step);
        if held {
            let mut step = Step::new("get", "GET", format!("{path}/held")).label("terminating");
            step.until = Some(Until::Has("deletionTimestamp".into()));
            self.push(step);
            let late_object = self.thing(version, "late");
            self.push(Step::new("create", "POST", path.clone()).json(&late_object).label("while terminating"));
            let mut change = Step::new("patch", "PATCH", format!("{path}/held")).label("finalizers");
            change = change.json(&json!({"metadata": {"finalizers": null}}));
            change.content_type = MERGE;
            self.push(change);
        }
        for (verb, place) in [("get", at), ("list", path), ("discovery", format!("/apis/{group}"))] {
            let mut step = Step::new(verb, "GET", place).label("gone");
            step.until = Some(Until::Code(404));
            step.after_watches = verb == "discovery";
            self.push(step);
        }
    }
}

/// Returns the script of a seed.
fn script(seed: u64) -> Script {
    let chance = SeededRng::of(seed ^ 0x00C4_A6E5);
    let mut builder = ScriptBuilder {
        chance,
        seed,
        namespace: format!("changes-{seed}"),
        steps: Vec::new(),
        versions: vec![Version::new("v1")],
        storage: 0,
        stored: vec!["v1"],
        short_names: vec!["th"],
        changes: 0,
        watches: false,
    };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder
        .push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object).label("namespace"));
    builder.define();
    for _ in 0..3 + builder.chance.below(3) {
        for _ in 0..2 + builder.chance.below(3) {
            builder.write();
            if builder.chance.percent(60) {
                builder.read();
            }
        }
        if builder.chance.percent(30) {
            builder.refused();
        }
        if builder.chance.percent(40) {
            builder.watch();
            builder.write();
        }
        builder.change();
        builder.read();
    }
    if builder.chance.percent(60) {
        let has_finalizer = builder.chance.percent(25);
        builder.end(has_finalizer);
    } else {
        builder.watch();
        let version = builder.served();
        let (path, last) = (builder.things(version), builder.thing(version, SENTINEL));
        builder.push(Step::new("create", "POST", path).json(&last).label("last of all"));
    }
    Script { seed, steps: builder.steps }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_definitions_are_served_equally() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let embedded = Embedded::start(1).await?;
    let theirs = TestServer::of(&reference.kube_config().await?)?;
    CHANGES.run(&embedded.site, &theirs).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_definition_change_mutant_is_detected() -> Result<(), TestError> {
    let (one, other) = (Embedded::start(1).await?, Embedded::start(2).await?);
    crate::differential::run_and_assert_mutants_detected(
        crate::differential::mutants::CHANGING,
        &one.site,
        &other.site,
        (1..=20).map(script),
    )
    .await
}
