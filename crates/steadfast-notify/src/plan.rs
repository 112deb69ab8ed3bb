//! Checked configuration with compiled expressions.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::config::sinks::SinkConfig;
use crate::config::{ClusterConfig, Config, ReplicasConfig, RuleConfig};
use crate::document::{Document, Parsed};
use crate::expression::Expression;
use crate::problem::{FilePosition, Problem, Problems};
use crate::rule::CompiledRule;
use checks::Checks;

/// Checked configuration of a program.
pub struct Plan {
    /// Clusters by name. Never empty.
    pub clusters: BTreeMap<String, ClusterConfig>,
    /// Sinks by name.
    pub sinks: BTreeMap<String, SinkConfig>,
    /// Compiled expressions of `guard.group`, by mirror.
    pub(crate) groups: BTreeMap<String, Arc<Expression>>,
    /// Rules in the order of the file.
    pub rules: Vec<Arc<CompiledRule>>,
    /// Path of the dead letters.
    pub dead_letters: PathBuf,
    /// Maximum number of dead letters.
    pub max_dead_letters: usize,
    /// Path of the state folder.
    pub state_folder: PathBuf,
    /// True if caches and unsettled changes are stored in the state folder.
    pub has_checkpoint: bool,
    /// Settings of the replicas. `None` for a single process.
    pub replicas: Option<ReplicasConfig>,
    /// Folder of the configuration, the base of relative paths.
    pub folder: PathBuf,
    document: Document,
}

pub use crate::config::DEFAULT_CLUSTER;

impl Plan {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns all errors, each with position and remedy.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        let (name, text) = read_text(file)?;
        Self::read(&name, &text)
    }

    /// Reads a file as far as possible, like [`examine`](Self::examine).
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or parsed at all.
    pub fn examine_file(file: &Path) -> Result<(Self, Vec<Problem>), Problems> {
        let (name, text) = read_text(file)?;
        Self::examine(&name, &text)
    }

    /// Reads a configuration from `text`. `file` is the name of the file.
    ///
    /// # Errors
    ///
    /// Returns all errors, each with position and remedy.
    pub fn read(file: &str, text: &str) -> Result<Self, Problems> {
        let (plan, problems) = Self::examine(file, text)?;
        if problems.is_empty() { Ok(plan) } else { Err(Problems(problems)) }
    }

    /// Reads a configuration from `text` as far as possible. Returns a plan without the erroneous parts, for further
    /// checks, and all errors in the order of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be parsed at all.
    pub fn examine(file: &str, text: &str) -> Result<(Self, Vec<Problem>), Problems> {
        let document = Document::parse(file, text).map_err(|problem| Problems(vec![problem]))?;
        let Parsed { value, mut problems, incomplete } = document.parse_parts::<Config>();
        let Some(config) = value else {
            problems.sort_by_key(|problem| problem.position);
            return Err(Problems(problems));
        };
        let mut checks = Checks::new(&document, incomplete);
        checks.check(&config);
        let rules = checks.compile_rules(&config);
        let groups = checks.compile_groups(&config);
        problems.append(&mut checks.problems);
        problems.sort_by_key(|problem| problem.position);
        let folder = Path::new(file).parent().map(Path::to_owned).unwrap_or_default();
        let mut clusters = config.clusters;
        if clusters.is_empty() {
            clusters.insert(DEFAULT_CLUSTER.to_owned(), ClusterConfig::default());
        }
        let plan = Self {
            clusters,
            sinks: config.sinks,
            groups,
            rules,
            dead_letters: folder.join(config.dead_letters.file),
            max_dead_letters: config.dead_letters.max_letters,
            state_folder: folder.join(config.state.folder),
            has_checkpoint: config.state.checkpoint,
            replicas: config.replicas,
            folder,
            document,
        };
        Ok((plan, problems))
    }

    /// Returns the parsed file.
    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    /// Returns the names of a rule's clusters.
    pub fn clusters_of<'a>(&'a self, rule: &'a RuleConfig) -> Vec<&'a str> {
        let rule_clusters: Vec<&str> = rule.clusters.iter().map(String::as_str).collect();
        if rule_clusters.is_empty() { self.clusters.keys().map(String::as_str).collect() } else { rule_clusters }
    }

    /// Returns the names of a rule's mirrors.
    pub fn mirrors_of<'a>(&'a self, rule: &'a RuleConfig) -> impl Iterator<Item = &'a str> {
        let is_mirror = |name: &&str| self.sinks.get(*name).is_some_and(SinkConfig::is_mirror);
        rule.to.iter().map(String::as_str).filter(is_mirror)
    }

    /// Returns the names of all mirrors.
    pub fn mirrors(&self) -> impl Iterator<Item = &str> {
        self.sinks.iter().filter(|(_, sink)| sink.is_mirror()).map(|(name, _)| name.as_str())
    }

    /// Returns the clusters of all rules of `mirror`, ordered by name.
    pub fn clusters_of_mirror(&self, mirror: &str) -> BTreeSet<&str> {
        let feeds = |rule: &&Arc<CompiledRule>| rule.config.to.iter().any(|sink| sink == mirror);
        self.rules.iter().filter(feeds).flat_map(|rule| self.clusters_of(&rule.config)).collect()
    }

    /// Returns a hash of the configuration of `sink`, and of the contents of secrets and certificates. Equal hashes
    /// mean no change. Compare hashes only within one run: another release may compute other hashes.
    pub fn fingerprint(&self, sink: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(value) = self.document.value_at(&["sinks", sink]) {
            value.to_string().hash(&mut hasher);
            // Contents of referenced files count, so that a rotated certificate reopens the sink on a reload.
            fingerprint_files(value, &self.folder, &mut hasher);
        }
        hasher.finish()
    }

    /// Returns the unique names of a rule's streams.
    pub fn streams_of<'a>(&'a self, rule: &'a RuleConfig) -> impl Iterator<Item = &'a str> {
        let is_stream = |name: &&str| self.sinks.get(*name).is_some_and(|sink| !sink.is_mirror());
        let names: BTreeSet<&str> = rule.to.iter().map(String::as_str).collect();
        names.into_iter().filter(is_stream)
    }

    /// Returns the rule of this name.
    pub fn rule(&self, name: &str) -> Option<&Arc<CompiledRule>> {
        self.rules.iter().find(|rule| rule.config.name == name)
    }

    /// Creates a problem with a resource of a rule (by index), for errors of the server.
    pub fn problem_with_resource(&self, rule: &CompiledRule, number: usize, description: impl Into<String>) -> Problem {
        let field = if rule.endpoints.is_some() { "endpoints".to_owned() } else { format!("resources[{number}]") };
        let path = format!("rules[{}].{field}", rule.number);
        self.document.problem(
            &path,
            description,
            "use a resource of the server; `kubectl api-resources` lists all resources",
        )
    }

    /// Creates a problem with a looked-up resource of a rule, for errors of the server.
    pub fn problem_with_lookup(&self, rule: &CompiledRule, name: &str, description: impl Into<String>) -> Problem {
        let expressions = [("when", &rule.when, &rule.config.when), ("send", &rule.send, &rule.config.send)];
        let found = expressions.into_iter().find_map(|(field, expression, text)| {
            let (_, offset) = expression.as_ref()?.lookups.iter().find(|(looked_up, _)| looked_up == name)?;
            Some((format!("rules[{}].{field}", rule.number), text.as_deref()?, *offset))
        });
        let remedy = "use a resource of the server; `kubectl api-resources` lists all resources";
        match found {
            Some((path, text, offset)) => self.document.problem_within(&path, text, offset, description, remedy),
            None => self.document.problem(&format!("rules[{}]", rule.number), description, remedy),
        }
    }

    /// Creates a problem with the selectors of a rule, for errors of the server.
    pub fn problem_with_selectors(&self, rule: &CompiledRule, description: impl Into<String>) -> Problem {
        let field = if rule.config.fields.is_some() { "fields" } else { "labels" };
        let path = format!("rules[{}].{field}", rule.number);
        self.document.problem(&path, description, "correct the selector")
    }

    /// Creates a problem with a cluster, for connection errors.
    pub fn problem_with_cluster(&self, name: &str, description: impl Into<String>) -> Problem {
        self.document.problem(
            &format!("clusters.{name}"),
            description,
            "correct the kubeconfig, or the cluster in the configuration",
        )
    }

    /// Returns the name of the cluster with the lease of the replicas.
    pub fn replicas_cluster(&self) -> Option<&str> {
        let replicas = self.replicas.as_ref()?;
        replicas.cluster.as_deref().or_else(|| self.clusters.keys().next().map(String::as_str))
    }

    /// Creates a problem with the replicas, for errors of the election.
    pub fn problem_with_replicas(&self, description: impl Into<String>, remedy: impl Into<String>) -> Problem {
        self.document.problem("replicas", description, remedy)
    }

    /// Creates a problem with a sink, for errors of opening.
    pub fn problem_with_sink(&self, path: &str, description: impl Into<String>, remedy: impl Into<String>) -> Problem {
        self.document.problem(&format!("sinks.{path}"), description, remedy)
    }
}

/// Maximum number of bytes of a file in a fingerprint.
const MAX_FINGERPRINT_BYTES: u64 = 1 << 20;

/// Hashes the contents of all files and variables in the fields `file`, `…_file` and `env` of `value`.
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

/// Reads a file. Returns its name and text.
fn read_text(file: &Path) -> Result<(String, String), Problems> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let remedy = "check the path and the permissions".to_owned();
        Problems(vec![Problem {
            file: name.clone(),
            position: FilePosition::START,
            description: format!("cannot read the file: {error}"),
            remedy,
        }])
    })?;
    Ok((name, text))
}
