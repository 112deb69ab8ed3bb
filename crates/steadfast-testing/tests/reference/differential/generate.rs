//! Scripts from seeds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::differential::kinds::{COMMON_KINDS, KINDS, Kind, fields};
use crate::differential::request_families;
use crate::differential::rng::SeededRng;
use crate::differential::script::{SENTINEL, Script, Step};

/// Names of objects: few, so that scripts use their own objects repeatedly.
pub const NAMES: &[&str] = &["a", "b", "c", "d.e"];

/// State of a script under construction, as far as it can be predicted.
pub struct ScriptBuilder {
    /// Random source.
    pub rng: SeededRng,
    /// Namespace.
    pub namespace: String,
    /// Kinds of the script, as indexes into `KINDS`.
    pub kinds: Vec<usize>,
    /// Requests so far.
    pub steps: Vec<Step>,
    /// Objects that probably exist, with the last step that returned each.
    pub objects: BTreeMap<(usize, &'static str), usize>,
    /// Steps with an object as response, and their kinds.
    pub versions: Vec<(usize, usize)>,
    /// Kinds with an object that has a generated name.
    pub generated: BTreeSet<usize>,
    /// Watched kinds, which need a last object.
    pub watched: BTreeSet<usize>,
}

impl ScriptBuilder {
    /// Adds a step, and returns its number.
    pub fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    /// Returns the path of a collection, in this namespace if its kind is namespaced.
    pub fn collection(&self, kind: usize) -> String {
        let Kind { root, plural, is_namespaced, .. } = KINDS[kind];
        if is_namespaced {
            format!("{root}/namespaces/{}/{plural}", self.namespace)
        } else {
            format!("{root}/{plural}")
        }
    }

    /// Returns the name of an object. Scripts share cluster-scoped kinds, and use unique names in them.
    pub fn name(&self, kind: usize, name: &str) -> String {
        if KINDS[kind].is_namespaced { name.to_owned() } else { format!("{}-{name}", self.namespace) }
    }

    /// Returns the path of an object.
    pub fn path_of(&self, kind: usize, name: &str) -> String {
        format!("{}/{}", self.collection(kind), self.name(kind, name))
    }

    /// Restricts a request for several objects to those of this script.
    pub fn limit_to_own_objects(&self, kind: usize, step: Step) -> Step {
        if KINDS[kind].is_namespaced && step.path.contains("/namespaces/") {
            return step;
        }
        let own_objects = format!("script%3D{}", self.namespace);
        if let Some((before, after)) = step.path.split_once("labelSelector=") {
            return Step { path: format!("{before}labelSelector={own_objects}%2C{after}"), ..step };
        }
        step.query(&format!("labelSelector={own_objects}"))
    }

    /// Selects a kind.
    pub fn kind(&mut self) -> usize {
        self.rng.pick(&self.kinds)
    }

    /// Selects an object that probably exists, with the step that returned it.
    pub fn existing_object(&mut self) -> Option<(usize, &'static str, usize)> {
        if self.objects.is_empty() {
            return None;
        }
        let index = self.rng.below(self.objects.len());
        self.objects.iter().nth(index).map(|(&(kind, name), &step)| (kind, name, step))
    }

    /// Selects a step that returned an object of a kind.
    pub fn step_with_version(&mut self, kind: usize) -> Option<usize> {
        let steps: Vec<usize> =
            self.versions.iter().filter(|(step_kind, _)| *step_kind == kind).map(|(_, step)| *step).collect();
        (!steps.is_empty()).then(|| self.rng.pick(&steps))
    }

    /// Records that a step returns an object.
    pub fn record_write(&mut self, kind: usize, name: &'static str, step: usize) {
        self.objects.insert((kind, name), step);
        self.versions.push((kind, step));
    }

    /// Returns a new object.
    pub fn object(&mut self, kind: usize, name: &str) -> Value {
        let app = self.rng.pick(&["web", "api", "db"]);
        let mut object = fields(&KINDS[kind], &mut self.rng);
        object["apiVersion"] = KINDS[kind].api_version.into();
        object["kind"] = KINDS[kind].kind.into();
        object["metadata"] = json!({"name": self.name(kind, name), "labels": {"script": self.namespace, "app": app}});
        if self.rng.percent(50) {
            object["metadata"]["labels"]["rank"] = self.rng.pick(&["3", "7", "20", "x"]).into();
        }
        object
    }
}

/// Returns the script of a seed.
pub fn script(seed: u64) -> Script {
    let namespace = format!("script-{seed}");
    let mut rng = SeededRng::new(seed);
    let kinds = if rng.percent(60) {
        (0..COMMON_KINDS).collect()
    } else {
        (0..COMMON_KINDS).map(|_| rng.below(KINDS.len())).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut builder = ScriptBuilder {
        rng,
        namespace,
        kinds,
        steps: Vec::new(),
        objects: BTreeMap::new(),
        versions: Vec::new(),
        generated: BTreeSet::new(),
        watched: BTreeSet::new(),
    };
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": builder.namespace}});
    builder
        .push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&namespace_object).label("namespace"));
    for _ in 0..3 {
        crate::differential::writes::create(&mut builder);
    }
    let length = 18 + builder.rng.below(16);
    for _ in 0..length {
        request_families::add(&mut builder);
    }
    for kind in builder.watched.clone() {
        let mut last = builder.object(kind, SENTINEL);
        // Labels that match the selector of every watch.
        for (label, value) in [("app", "web"), ("extra", "yes"), ("rank", "7")] {
            last["metadata"]["labels"][label] = value.into();
        }
        let path = builder.collection(kind);
        builder.push(Step::new("create", "POST", path).json(&last).label("last of all"));
    }
    Script { seed, steps: builder.steps }
}
