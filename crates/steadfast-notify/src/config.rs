//! Configuration of resources, rules, messages and sinks.

mod duration;
pub mod endpoints;
pub mod mirrors;
pub mod secret;
pub mod sinks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

pub use duration::{ConfigDuration, MAX_CONFIG_DURATION};
use endpoints::{AddressFamily, EndpointPort, EndpointsConfig};
use sinks::SinkConfig;

/// Configuration of `steadfast notify`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Clusters by the names that rules use. Defaults to a single cluster named `default`, the current context of
    /// kubectl.
    #[serde(default)]
    pub clusters: BTreeMap<String, ClusterConfig>,
    /// Targets of messages, by the names that rules use.
    pub sinks: BTreeMap<String, SinkConfig>,
    /// Rules: conditions and messages.
    pub rules: Vec<RuleConfig>,
    /// File of undeliverable messages.
    #[serde(default)]
    pub dead_letters: DeadLettersConfig,
    /// Folder of state across restarts.
    #[serde(default)]
    pub state: StateConfig,
    /// Several processes with this configuration: one leader, the others on standby. Defaults to a single process.
    pub replicas: Option<ReplicasConfig>,
}

/// Replicas of one configuration. The holder of a lease is the leader.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ReplicasConfig {
    /// The `Lease`, as `NAMESPACE/NAME`. Replicas share state in the Secret `NAME-settled` of the same namespace.
    pub lease: String,
    /// Cluster of the lease. Optional if one cluster is configured.
    pub cluster: Option<String>,
    /// How long standby replicas wait after the last renewal of the lease, in whole seconds. Defaults to `15s`.
    #[serde(default = "default_lease_duration")]
    pub lease_duration: ConfigDuration,
    /// How long a leader continues without a renewal. At most four fifths of `lease_duration`. Defaults to `10s`.
    #[serde(default = "default_renew_deadline")]
    pub renew_deadline: ConfigDuration,
    /// Interval between two attempts to acquire or renew the lease. Defaults to `2s`.
    #[serde(default = "default_retry_period")]
    pub retry_period: ConfigDuration,
}

fn default_lease_duration() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(15))
}

fn default_renew_deadline() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(10))
}

fn default_retry_period() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(2))
}

impl ReplicasConfig {
    /// Returns namespace and name of the lease. `None` for an invalid value.
    pub fn namespace_and_name(&self) -> Option<(&str, &str)> {
        // RFC 1123: a namespace is a label, the name of a Lease is a subdomain with dots.
        let is_name = |name: &str, allows_dots: bool| {
            let is_allowed = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || allows_dots && byte == b'.'
            };
            (1..=MAX_LEASE_NAME_BYTES).contains(&name.len())
                && name.bytes().all(is_allowed)
                && !name.starts_with(['-', '.'])
                && !name.ends_with(['-', '.'])
        };
        self.lease.split_once('/').filter(|(namespace, name)| is_name(namespace, false) && is_name(name, true))
    }
}

/// Longest name of a lease. The name is a prefix in names of Secrets, of up to 253 characters.
const MAX_LEASE_NAME_BYTES: usize = 200;

/// Name of the cluster if the configuration lists no clusters.
pub const DEFAULT_CLUSTER: &str = "default";

/// Connection and cache settings of a cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Path of the kubeconfig. Defaults to the kubeconfig of kubectl.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Defaults to the current context.
    pub context: Option<String>,
    /// Interval between audits, which compare the versions of cached objects with the server. Defaults to `10m`. An
    /// audit detects lost events of a server, and silent changes by a restored backup.
    pub audit: Option<ConfigDuration>,
    /// Maximum size of one cache in bytes. A cache holds the objects of one resource that rules watch or look up, in
    /// one namespace if the rule has `namespaces`. A cache at the limit keeps its contents, is reported as failed, and
    /// is listed again once a minute. No limit by default.
    #[schemars(range(min = 1))]
    pub memory_limit: Option<usize>,
}

impl ClusterConfig {
    /// Returns the interval between audits.
    pub fn audit_interval(&self) -> Duration {
        self.audit.map_or(Duration::from_secs(600), |span| span.0)
    }

    /// Returns true if both have the same kubeconfig and context, regardless of cache settings.
    pub fn is_same_cluster(&self, other: &Self) -> bool {
        (&self.kubeconfig, &self.context) == (&other.kubeconfig, &other.context)
    }
}

/// A rule: resources, condition, message and sinks.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Name of the rule; also the key of the rule's delivery state in the state folder.
    pub name: String,
    /// Resources of the rule, by any name that kubectl accepts: `pods`, `deploy`, `widgets.example.com`.
    #[serde(default)]
    pub resources: Vec<String>,
    /// For mirrors, instead of `resources` and `send`: Services with mirrored endpoints, `NAMESPACE/SERVICE` each.
    pub endpoints: Option<EndpointsConfig>,
    /// With `endpoints`: the port, by name or by number at the endpoints. Optional if the Service has one port.
    pub port: Option<EndpointPort>,
    /// With `endpoints`: the address family, `ipv4` or `ipv6`. For a sink of nftables or IPVS, defaults to the family
    /// of the sink's address; for other sinks, to both.
    pub family: Option<AddressFamily>,
    /// With `endpoints` and a sink of `dns`: DNS name of the addresses. An endpoint with a host name, such as a pod of
    /// a `StatefulSet`, also gets the name `HOSTNAME.HOST`.
    pub host: Option<String>,
    /// Clusters of the rule. Defaults to all configured clusters.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Namespaces of the rule. Defaults to all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Label selector: `app=web,tier in (a,b)`.
    pub labels: Option<String>,
    /// Field selector: `status.phase=Running`.
    pub fields: Option<String>,
    /// Kinds of changes. Defaults to all.
    #[serde(default = "all_event_kinds")]
    pub events: Vec<EventKind>,
    /// Condition in CEL. Defaults to `true`.
    pub when: Option<String>,
    /// Message in CEL. Defaults to the identity of the object.
    pub send: Option<String>,
    /// Names of the target sinks.
    pub to: Vec<String>,
    /// Also send messages for objects of the initial list. Defaults to false.
    #[serde(default)]
    pub initial: bool,
    /// Limits on the result of `send` for one object.
    #[serde(default)]
    pub limits: ResultLimits,
}

/// Limits on the result of a rule's expression for one object. A result beyond a limit is reported and not sent.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ResultLimits {
    /// Maximum number of entries for a mirror. Defaults to 1000.
    #[schemars(range(min = 1))]
    pub entries: usize,
    /// Maximum number of bytes as JSON. Defaults to 1048576.
    #[schemars(range(min = 1))]
    pub bytes: usize,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self { entries: 1_000, bytes: 1 << 20 }
    }
}

/// Kind of a change of an object.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The object was created, or started to match.
    Added,
    /// The object changed.
    Updated,
    /// The object was deleted, or no longer matches.
    Deleted,
}

impl EventKind {
    /// Returns the name in configurations and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Updated => "Updated",
            Self::Deleted => "Deleted",
        }
    }
}

fn all_event_kinds() -> Vec<EventKind> {
    vec![EventKind::Added, EventKind::Updated, EventKind::Deleted]
}

/// File of undeliverable messages.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLettersConfig {
    /// Path of the file, one message a line. A relative path starts at the folder of the configuration.
    pub file: PathBuf,
    /// Maximum number of messages in the file. While the file is full, sinks retry messages instead. Namespaces with few
    /// messages in a full file may add some more, up to twice this number in total. Defaults to 10000.
    #[schemars(range(min = 1))]
    pub max_letters: usize,
}

impl Default for DeadLettersConfig {
    fn default() -> Self {
        Self { file: "dead-letters.ndjson".into(), max_letters: 10_000 }
    }
}

/// Folder of state across restarts.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Path of the folder, created if missing. A relative path starts at the folder of the configuration. Only one
    /// program at a time can use the folder.
    pub folder: PathBuf,
    /// Stores caches and undelivered messages on disk, so that no change is lost in a restart. Secrets are never
    /// stored. Defaults to true.
    pub checkpoint: bool,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self { folder: "steadfast-state".into(), checkpoint: true }
    }
}

/// Returns the JSON Schema of a configuration.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Config).to_value()
}
