//! The configuration: what to look at, when to act, what to send and where to.

pub mod endpoints;
pub mod mirrors;
pub mod secret;
pub mod sinks;
mod span;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use endpoints::{EndpointPort, Endpoints, Family};
use sinks::Sink;
pub use span::{MAX_SPAN, Span};

/// What `steadfast notify` acts on, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The clusters that are looked at, each by the name that rules have for it. Without any there is one, called
    /// `default`: what kubectl would talk to.
    #[serde(default)]
    pub clusters: BTreeMap<String, Cluster>,
    /// Where messages go, each by the name that rules have for it.
    pub sinks: BTreeMap<String, Sink>,
    /// What is sent, and when.
    pub rules: Vec<Rule>,
    /// Where messages end that could not be delivered.
    #[serde(default)]
    pub dead_letters: DeadLetters,
    /// What no restart may forget.
    #[serde(default)]
    pub state: StateFolder,
    /// Several processes that act by this configuration together: one is the leader, the others stand by. By default there is
    /// one process.
    pub replicas: Option<Replicas>,
}

/// Several processes that act by one configuration, of which the holder of a lease is the leader.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// The `Lease`, as `NAMESPACE/NAME`. The state that replicas share lies in Secrets next to it, whose names begin with
    /// `NAME-`.
    pub lease: String,
    /// The cluster that has the lease. Optional if one cluster is configured.
    pub cluster: Option<String>,
    /// How long the others wait for a leader that does not renew the lease, in whole seconds. Defaults to `15s`.
    #[serde(default = "lease_duration")]
    pub lease_duration: Span,
    /// How long a leader acts that cannot renew the lease. At most four fifths of `lease_duration`. Defaults to `10s`.
    #[serde(default = "renew_deadline")]
    pub renew_deadline: Span,
    /// Interval between two attempts to acquire or renew the lease. Defaults to `2s`.
    #[serde(default = "retry_period")]
    pub retry_period: Span,
}

fn lease_duration() -> Span {
    Span(Duration::from_secs(15))
}

fn renew_deadline() -> Span {
    Span(Duration::from_secs(10))
}

fn retry_period() -> Span {
    Span(Duration::from_secs(2))
}

impl Replicas {
    /// Returns namespace and name of the lease; `None` if they are not valid.
    pub fn place(&self) -> Option<(&str, &str)> {
        let is_name = |name: &str, dots: bool| {
            let fits = |letter: u8| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-' || dots && letter == b'.'
            };
            (1..=MAX_LEASE_NAME).contains(&name.len())
                && name.bytes().all(fits)
                && !name.starts_with(['-', '.'])
                && !name.ends_with(['-', '.'])
        };
        self.lease.split_once('/').filter(|(namespace, name)| is_name(namespace, false) && is_name(name, true))
    }
}

/// Longest name of a lease: names of Secrets, of up to 253 characters, begin with it.
const MAX_LEASE_NAME: usize = 200;

/// What the only cluster is called, where none is configured.
pub const DEFAULT_CLUSTER: &str = "default";

/// A cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The kubeconfig; what kubectl would use unless given.
    pub kubeconfig: Option<PathBuf>,
    /// The context within it; its current one unless given.
    pub context: Option<String>,
    /// How often what is held is compared with what the server has, by a list of versions; `10m` unless given. It finds what a
    /// server has lost, or what a backup that was restored has changed unseen.
    pub audit: Option<Span>,
    /// Maximum size of one cache in bytes: of the objects of one resource that rules watch or look up, in one namespace if the rule
    /// has `namespaces`. A cache that would exceed it keeps its contents, is reported as failed, and is listed again once a minute.
    /// No limit by default.
    #[schemars(range(min = 1))]
    pub memory_limit: Option<usize>,
}

impl Cluster {
    /// How often what is held is compared with what the server has.
    pub fn audit_every(&self) -> Duration {
        self.audit.map_or(Duration::from_secs(600), |span| span.0)
    }

    /// Whether it is the same as `other`, whatever the settings of its caches.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (&self.kubeconfig, &self.context) == (&other.kubeconfig, &other.context)
    }
}

/// What is sent, and when.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it is called: what was sent by it is remembered under this name.
    pub name: String,
    /// Resources that the rule reads, by any name that kubectl takes: `pods`, `deploy`, `widgets.example.com`.
    #[serde(default)]
    pub resources: Vec<String>,
    /// For mirrors, instead of `resources` and `send`: the Services whose endpoints are mirrored, `NAMESPACE/SERVICE` each.
    pub endpoints: Option<Endpoints>,
    /// With `endpoints`: the port, by its name or by its number at the endpoints. Optional if the Service has one port.
    pub port: Option<EndpointPort>,
    /// With `endpoints`: the address family, `ipv4` or `ipv6`. Both by default; for a sink of nftables or IPVS the family of its
    /// own address.
    pub family: Option<Family>,
    /// With `endpoints` and a sink of `dns`: the name that the addresses get. An endpoint with a host name, such as a pod of a
    /// `StatefulSet`, has the name `HOSTNAME.HOST` too.
    pub host: Option<String>,
    /// In which clusters; all that are configured unless given.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// In which namespaces; all unless given.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Only objects whose labels match: `app=web,tier in (a,b)`.
    pub labels: Option<String>,
    /// Only objects whose fields match: `status.phase=Running`.
    pub fields: Option<String>,
    /// Which changes are looked at; all unless given.
    #[serde(default = "every_kind")]
    pub events: Vec<EventKind>,
    /// When to send, in CEL; always unless given.
    pub when: Option<String>,
    /// What to send, in CEL; who the object is, and no more, unless given.
    pub send: Option<String>,
    /// The sinks to send it to, by name.
    pub to: Vec<String>,
    /// Whether to send, too, what is there already when the program begins to look.
    #[serde(default)]
    pub initial: bool,
    /// Limits on what `send` results in for one object.
    #[serde(default)]
    pub limits: ResultLimits,
}

/// Limits on what an expression of a rule results in for one object. An object beyond a limit is reported, and nothing is
/// sent of it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ResultLimits {
    /// Maximum number of entries of a mirror. Defaults to 1000.
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

/// What happened to an object.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// It came to be, or came to match.
    Added,
    /// It changed.
    Updated,
    /// It is gone, or does not match any more.
    Deleted,
}

impl EventKind {
    /// The kind's name, as in configurations and in what is sent.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Updated => "Updated",
            Self::Deleted => "Deleted",
        }
    }
}

fn every_kind() -> Vec<EventKind> {
    vec![EventKind::Added, EventKind::Updated, EventKind::Deleted]
}

/// Where messages end that could not be delivered.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetters {
    /// The file, one message a line; one that is not absolute lies beside the configuration.
    pub file: PathBuf,
    /// How many it may hold. While it is full, messages are tried on and not given up.
    #[schemars(range(min = 1))]
    pub most: usize,
}

impl Default for DeadLetters {
    fn default() -> Self {
        Self { file: "dead-letters.ndjson".into(), most: 10_000 }
    }
}

/// Where is kept what no restart may forget.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StateFolder {
    /// The folder, which is made where it is not there; one that is not absolute lies beside the configuration. One program at a
    /// time acts by it.
    pub folder: PathBuf,
    /// Whether caches are kept there, and what rules have still to send, so that a restart misses no change; Secrets never are.
    pub checkpoint: bool,
}

impl Default for StateFolder {
    fn default() -> Self {
        Self { folder: "steadfast-state".into(), checkpoint: true }
    }
}

/// What a configuration may have, as JSON Schema.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Config).to_value()
}
