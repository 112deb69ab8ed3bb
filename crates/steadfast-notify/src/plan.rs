//! A configuration that was looked through: what is in it goes together, and its expressions are read.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::config::sinks::Sink;
use crate::config::{Cluster, Config, Replicas, Rule};
use crate::document::{Document, Parsed};
use crate::expression::Expression;
use crate::problem::{Place, Problem, Problems};
use crate::rule::Compiled;
use checks::Checks;

/// What a program acts on.
pub struct Plan {
    /// The clusters, by name; never none.
    pub clusters: BTreeMap<String, Cluster>,
    /// The sinks, by name.
    pub sinks: BTreeMap<String, Sink>,
    /// The expressions of `guard.group`, by mirror.
    pub(crate) groups: BTreeMap<String, Arc<Expression>>,
    /// The rules, in the order of the file.
    pub rules: Vec<Arc<Compiled>>,
    /// Where messages end that could not be delivered.
    pub dead_letters: PathBuf,
    /// How many of those are kept.
    pub most_dead_letters: usize,
    /// The folder of what no restart may forget.
    pub state: PathBuf,
    /// Whether caches, and what rules have still to send, are kept there.
    pub keeps: bool,
    /// The replicas; none where one process acts alone.
    pub replicas: Option<Replicas>,
    /// The folder of the configuration, from which relative paths begin.
    pub folder: PathBuf,
    document: Document,
}

pub use crate::config::DEFAULT_CLUSTER;

impl Plan {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// All that is wrong with it: each with its place and what to do.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        let (name, text) = text_of(file)?;
        Self::read(&name, &text)
    }

    /// Reads as much of a file as possible; see [`examine`](Self::examine).
    ///
    /// # Errors
    ///
    /// If the file cannot be read at all, or lacks what a plan needs.
    pub fn examine_file(file: &Path) -> Result<(Self, Vec<Problem>), Problems> {
        let (name, text) = text_of(file)?;
        Self::examine(&name, &text)
    }

    /// Reads a configuration from `text`, which a file of this name has.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn read(file: &str, text: &str) -> Result<Self, Problems> {
        let (plan, problems) = Self::examine(file, text)?;
        if problems.is_empty() { Ok(plan) } else { Err(Problems(problems)) }
    }

    /// Reads as much of a configuration from `text` as possible: a plan without what is wrong, for further checks, and all that is
    /// wrong, in the order of the file.
    ///
    /// # Errors
    ///
    /// If the text cannot be read at all, or lacks what a plan needs.
    pub fn examine(file: &str, text: &str) -> Result<(Self, Vec<Problem>), Problems> {
        let document = Document::read(file, text).map_err(|problem| Problems(vec![problem]))?;
        let Parsed { value, mut problems, incomplete } = document.parse_parts::<Config>();
        let Some(config) = value else {
            problems.sort_by_key(|problem| problem.place);
            return Err(Problems(problems));
        };
        let mut checks = Checks::new(&document, incomplete);
        checks.look_through(&config);
        let rules = checks.compiled(&config);
        let groups = checks.groups(&config);
        problems.append(&mut checks.problems);
        problems.sort_by_key(|problem| problem.place);
        let folder = Path::new(file).parent().map(Path::to_owned).unwrap_or_default();
        let mut clusters = config.clusters;
        if clusters.is_empty() {
            clusters.insert(DEFAULT_CLUSTER.to_owned(), Cluster::default());
        }
        let plan = Self {
            clusters,
            sinks: config.sinks,
            groups,
            rules,
            dead_letters: folder.join(config.dead_letters.file),
            most_dead_letters: config.dead_letters.most,
            state: folder.join(config.state.folder),
            keeps: config.state.checkpoint,
            replicas: config.replicas,
            folder,
            document,
        };
        Ok((plan, problems))
    }

    /// The file that the plan was read from.
    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    /// The clusters of a rule, by name.
    pub fn clusters_of<'a>(&'a self, rule: &'a Rule) -> Vec<&'a str> {
        let named: Vec<&str> = rule.clusters.iter().map(String::as_str).collect();
        if named.is_empty() { self.clusters.keys().map(String::as_str).collect() } else { named }
    }

    /// The mirrors that a rule feeds, by name.
    pub fn mirrors_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a str> {
        let is_mirror = |name: &&str| self.sinks.get(*name).is_some_and(Sink::is_mirror);
        rule.to.iter().map(String::as_str).filter(is_mirror)
    }

    /// Returns the names of all mirrors.
    pub fn mirrors(&self) -> impl Iterator<Item = &str> {
        self.sinks.iter().filter(|(_, sink)| sink.is_mirror()).map(|(name, _)| name.as_str())
    }

    /// Returns the clusters of all rules that feed `mirror`, in the order of their names.
    pub fn clusters_of_mirror(&self, mirror: &str) -> BTreeSet<&str> {
        let feeds = |rule: &&Arc<Compiled>| rule.config.to.iter().any(|sink| sink == mirror);
        self.rules.iter().filter(feeds).flat_map(|rule| self.clusters_of(&rule.config)).collect()
    }

    /// Returns a hash of what the configuration says of `sink`, and of the files and variables that it names: of secrets and
    /// certificates. Two equal ones mean that nothing has changed. It differs between runs of the program.
    pub fn fingerprint(&self, sink: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(value) = self.document.at(&["sinks", sink]) {
            value.to_string().hash(&mut hasher);
            fingerprint_files(value, &self.folder, &mut hasher);
        }
        hasher.finish()
    }

    /// Returns the streams of a rule, by name, each once.
    pub fn streams_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a str> {
        let is_stream = |name: &&str| self.sinks.get(*name).is_some_and(|sink| !sink.is_mirror());
        let names: std::collections::BTreeSet<&str> = rule.to.iter().map(String::as_str).collect();
        names.into_iter().filter(is_stream)
    }

    /// The rule of this name.
    pub fn rule(&self, name: &str) -> Option<&Arc<Compiled>> {
        self.rules.iter().find(|rule| rule.config.name == name)
    }

    /// A problem with the `number`th resource of a rule, which is found out only when a server is asked.
    pub fn problem_with_resource(&self, rule: &Compiled, number: usize, what: impl Into<String>) -> Problem {
        let field = if rule.endpoints.is_some() { "endpoints".to_owned() } else { format!("resources[{number}]") };
        let path = format!("rules[{}].{field}", rule.number);
        self.document.problem(&path, what, "name one that the server has; `kubectl api-resources` lists them")
    }

    /// A problem with a resource that a rule looks up, which is found out only when a server is asked.
    pub fn problem_with_lookup(&self, rule: &Compiled, name: &str, what: impl Into<String>) -> Problem {
        let expressions = [("when", &rule.when, &rule.config.when), ("send", &rule.send, &rule.config.send)];
        let place = expressions.into_iter().find_map(|(field, expression, text)| {
            let (_, offset) = expression.as_ref()?.lookups.iter().find(|(looked_up, _)| looked_up == name)?;
            Some((format!("rules[{}].{field}", rule.number), text.as_deref()?, *offset))
        });
        let remedy = "name one that the server has; `kubectl api-resources` lists them";
        match place {
            Some((path, text, offset)) => self.document.problem_within(&path, text, offset, what, remedy),
            None => self.document.problem(&format!("rules[{}]", rule.number), what, remedy),
        }
    }

    /// A problem with the selectors of a rule, which is found out only when a server is asked.
    pub fn problem_with_selectors(&self, rule: &Compiled, what: impl Into<String>) -> Problem {
        let field = if rule.config.fields.is_some() { "fields" } else { "labels" };
        let path = format!("rules[{}].{field}", rule.number);
        self.document.problem(&path, what, "correct the selector")
    }

    /// A problem with a cluster, which is found out only when it is connected to.
    pub fn problem_with_cluster(&self, name: &str, what: impl Into<String>) -> Problem {
        self.document.problem(&format!("clusters.{name}"), what, "correct the kubeconfig, or what is said of it here")
    }

    /// Returns the name of the cluster that has the lease of the replicas, if there are any.
    pub fn replicas_cluster(&self) -> Option<&str> {
        let replicas = self.replicas.as_ref()?;
        replicas.cluster.as_deref().or_else(|| self.clusters.keys().next().map(String::as_str))
    }

    /// A problem with the replicas, which is found out only when the election begins.
    pub fn problem_with_replicas(&self, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        self.document.problem("replicas", what, remedy)
    }

    /// A problem with a sink, which is found out only when it is made.
    pub fn problem_with_sink(&self, path: &str, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        self.document.problem(&format!("sinks.{path}"), what, remedy)
    }
}

/// Longest part of a file that counts for a fingerprint, in bytes.
const MAX_FINGERPRINT_BYTES: u64 = 1 << 20;

/// Hashes the content of all files and variables that `value` names as `file`, `…_file` or `env`.
fn fingerprint_files(value: &Value, folder: &Path, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(path) if key == "file" || key.ends_with("_file") => {
                        let mut content = Vec::new();
                        let file = File::open(folder.join(path));
                        let read = file.and_then(|file| file.take(MAX_FINGERPRINT_BYTES).read_to_end(&mut content));
                        (read.is_ok(), content).hash(hasher);
                    }
                    Some(variable) if key == "env" => std::env::var_os(variable).hash(hasher),
                    Some(_) => {}
                    None => fingerprint_files(value, folder, hasher),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fingerprint_files(value, folder, hasher)),
        _ => {}
    }
}

/// Returns the name and the text of a file.
fn text_of(file: &Path) -> Result<(String, String), Problems> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let remedy = "name a file that is there and may be read".to_owned();
        Problems(vec![Problem {
            file: name.clone(),
            place: Place::START,
            what: format!("it cannot be read: {error}"),
            remedy,
        }])
    })?;
    Ok((name, text))
}
