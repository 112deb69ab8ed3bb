//! Scripts from seeds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::script::{SENTINEL, Script, Step};
use crate::{reads, refused, writes};

/// A collection that scripts write to.
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
    /// Whether it is a custom resource.
    pub custom: bool,
}

/// Those that every script draws from.
pub const KINDS: &[Kind] = &[
    Kind { root: "/api/v1", api_version: "v1", kind: "ConfigMap", plural: "configmaps", custom: false },
    Kind { root: "/api/v1", api_version: "v1", kind: "Secret", plural: "secrets", custom: false },
    Kind {
        root: "/apis/coordination.k8s.io/v1",
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        plural: "leases",
        custom: false,
    },
    Kind {
        root: "/apis/differential.steadfast.dev/v1",
        api_version: "differential.steadfast.dev/v1",
        kind: "Widget",
        plural: "widgets",
        custom: true,
    },
];

/// The names that objects have: few, so that scripts meet their own objects again.
pub const NAMES: &[&str] = &["a", "b", "c", "d.e"];

/// What a script has made so far, as far as its author can tell.
pub struct Plot {
    /// Chance.
    pub chance: Chance,
    /// The namespace.
    pub namespace: String,
    /// The requests so far.
    pub steps: Vec<Step>,
    /// For each object that is thought to exist: the last step that was answered with it.
    pub objects: BTreeMap<(usize, &'static str), usize>,
    /// Steps whose answers are objects that have been, and their kinds.
    pub versions: Vec<(usize, usize)>,
    /// The kinds of which one was given its name by the server.
    pub generated: BTreeSet<usize>,
}

impl Plot {
    /// Adds a step; returns its number.
    pub fn push(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    /// The path of a collection in this namespace.
    pub fn collection(&self, kind: Kind) -> String {
        format!("{}/namespaces/{}/{}", kind.root, self.namespace, kind.plural)
    }

    /// One of the kinds; the first one that has objects, more often.
    pub fn kind(&mut self) -> usize {
        self.chance.below(KINDS.len())
    }

    /// An object that is thought to exist, and the step that told of it.
    pub fn existing(&mut self) -> Option<(usize, &'static str, usize)> {
        if self.objects.is_empty() {
            return None;
        }
        let nth = self.chance.below(self.objects.len());
        self.objects.iter().nth(nth).map(|(&(kind, name), &step)| (kind, name, step))
    }

    /// A new object.
    pub fn object(&mut self, kind: usize, name: &str) -> Value {
        let Kind { api_version, kind, .. } = KINDS[kind];
        let app = self.chance.one(&["web", "api", "db"]);
        let text = self.chance.one(&["one", "two", "three"]);
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "labels": {"script": self.namespace, "app": app}},
        });
        match kind {
            "ConfigMap" => object["data"] = json!({"text": text, "more": "x"}),
            "Secret" => object["data"] = json!({"key": "c2VjcmV0"}),
            "Lease" => object["spec"] = json!({"holderIdentity": text, "leaseDurationSeconds": 15}),
            _ => object["spec"] = json!({"color": text, "size": self.chance.below(4), "parts": ["p", "q"]}),
        }
        object
    }
}

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let namespace = format!("script-{seed}");
    let chance = Chance::of(seed);
    let mut plot = Plot {
        chance,
        namespace,
        steps: Vec::new(),
        objects: BTreeMap::new(),
        versions: Vec::new(),
        generated: BTreeSet::new(),
    };
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plot.namespace}});
    plot.push(Step::new("create", "POST", "/api/v1/namespaces".to_owned()).json(&own).with("namespace"));
    for _ in 0..3 {
        writes::create(&mut plot);
    }
    let length = 18 + plot.chance.below(16);
    for _ in 0..length {
        match plot.chance.below(100) {
            0..16 => writes::create(&mut plot),
            16..28 => writes::update(&mut plot),
            28..42 => writes::patch(&mut plot),
            42..51 => writes::delete(&mut plot),
            51..54 => writes::delete_collection(&mut plot),
            54..62 => reads::get(&mut plot),
            62..78 => reads::list(&mut plot),
            78..87 => reads::watch(&mut plot),
            87..90 => reads::discovery(&mut plot),
            _ => refused::request(&mut plot),
        }
    }
    for (kind, of) in KINDS.iter().enumerate() {
        let mut last = plot.object(kind, SENTINEL);
        last["metadata"]["labels"]["app"] = "web".into();
        let path = plot.collection(*of);
        plot.push(Step::new("create", "POST", path).json(&last));
    }
    Script { seed, steps: plot.steps }
}
