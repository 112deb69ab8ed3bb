//! Scripts from seeds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::families;
use crate::kinds::{COMMON, KINDS, Kind, fields};
use crate::script::{SENTINEL, Script, Step};

/// The names that objects have: few, so that scripts meet their own objects again.
pub const NAMES: &[&str] = &["a", "b", "c", "d.e"];

/// What a script has made so far, as far as its author can tell.
pub struct Plot {
    /// Chance.
    pub chance: Chance,
    /// The namespace.
    pub namespace: String,
    /// The kinds that it is about, as places in `KINDS`.
    pub kinds: Vec<usize>,
    /// The requests so far.
    pub steps: Vec<Step>,
    /// For each object that is thought to exist: the last step that was answered with it.
    pub objects: BTreeMap<(usize, &'static str), usize>,
    /// Steps whose answers are objects that have been, and their kinds.
    pub versions: Vec<(usize, usize)>,
    /// The kinds of which one was given its name by the server.
    pub generated: BTreeSet<usize>,
    /// Kinds that are watched need a last object.
    pub watched: BTreeSet<usize>,
}

impl Plot {
    /// Adds a step; returns its number.
    pub fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    /// The path of a collection: in this namespace, where its objects are in namespaces.
    pub fn collection(&self, kind: usize) -> String {
        let Kind { root, plural, namespaced, .. } = KINDS[kind];
        if namespaced { format!("{root}/namespaces/{}/{plural}", self.namespace) } else { format!("{root}/{plural}") }
    }

    /// What an object is called: scripts share what is in no namespace, and give it names of their own.
    pub fn name(&self, kind: usize, name: &str) -> String {
        if KINDS[kind].namespaced { name.to_owned() } else { format!("{}-{name}", self.namespace) }
    }

    /// The path of an object.
    pub fn at(&self, kind: usize, name: &str) -> String {
        format!("{}/{}", self.collection(kind), self.name(kind, name))
    }

    /// The request for several objects, of which only those of this script are meant.
    pub fn only_own(&self, kind: usize, step: Step) -> Step {
        if KINDS[kind].namespaced && step.path.contains("/namespaces/") {
            return step;
        }
        let own = format!("script%3D{}", self.namespace);
        if let Some((before, after)) = step.path.split_once("labelSelector=") {
            return Step { path: format!("{before}labelSelector={own}%2C{after}"), ..step };
        }
        step.query(&format!("labelSelector={own}"))
    }

    /// One of the kinds.
    pub fn kind(&mut self) -> usize {
        self.chance.one(&self.kinds)
    }

    /// An object that is thought to exist, and the step that told of it.
    pub fn existing(&mut self) -> Option<(usize, &'static str, usize)> {
        if self.objects.is_empty() {
            return None;
        }
        let nth = self.chance.below(self.objects.len());
        self.objects.iter().nth(nth).map(|(&(kind, name), &step)| (kind, name, step))
    }

    /// A step that told of an object of a kind.
    pub fn version_of(&mut self, kind: usize) -> Option<usize> {
        let of_kind: Vec<usize> = self.versions.iter().filter(|(of, _)| *of == kind).map(|(_, step)| *step).collect();
        (!of_kind.is_empty()).then(|| self.chance.one(&of_kind))
    }

    /// Remembers that a step is answered with an object.
    pub fn wrote(&mut self, kind: usize, name: &'static str, step: usize) {
        self.objects.insert((kind, name), step);
        self.versions.push((kind, step));
    }

    /// A new object.
    pub fn object(&mut self, kind: usize, name: &str) -> Value {
        let app = self.chance.one(&["web", "api", "db"]);
        let mut object = fields(&KINDS[kind], &mut self.chance);
        object["apiVersion"] = KINDS[kind].api_version.into();
        object["kind"] = KINDS[kind].kind.into();
        object["metadata"] = json!({"name": self.name(kind, name), "labels": {"script": self.namespace, "app": app}});
        if self.chance.percent(50) {
            object["metadata"]["labels"]["rank"] = self.chance.one(&["3", "7", "20", "x"]).into();
        }
        object
    }
}

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let namespace = format!("script-{seed}");
    let mut chance = Chance::of(seed);
    let kinds = if chance.percent(60) {
        (0..COMMON).collect()
    } else {
        (0..COMMON).map(|_| chance.below(KINDS.len())).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut plot = Plot {
        chance,
        namespace,
        kinds,
        steps: Vec::new(),
        objects: BTreeMap::new(),
        versions: Vec::new(),
        generated: BTreeSet::new(),
        watched: BTreeSet::new(),
    };
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plot.namespace}});
    plot.push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&own).with("namespace"));
    for _ in 0..3 {
        crate::writes::create(&mut plot);
    }
    let length = 18 + plot.chance.below(16);
    for _ in 0..length {
        families::add(&mut plot);
    }
    for kind in plot.watched.clone() {
        let mut last = plot.object(kind, SENTINEL);
        // What every selector of a watch selects.
        for (label, value) in [("app", "web"), ("extra", "yes"), ("rank", "7")] {
            last["metadata"]["labels"][label] = value.into();
        }
        let path = plot.collection(kind);
        plot.push(Step::new("create", "POST", path).json(&last).with("last of all"));
    }
    Script { seed, steps: plot.steps }
}
