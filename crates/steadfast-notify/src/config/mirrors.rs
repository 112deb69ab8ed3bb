//! Configuration of mirrors.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::duration::ConfigDuration;
use super::secret::SecretFrom;

/// Servers of a backend of `HAProxy`, managed by the runtime socket. The mirror owns the servers with the name prefix.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct HaproxyConfig {
    /// Path of the runtime socket, which needs `level admin`. A relative path starts at the folder of the
    /// configuration.
    pub socket: PathBuf,
    /// Name of the backend, which needs a dynamic balancing algorithm.
    pub backend: String,
    /// Name prefix of the mirror's servers. Defaults to `sf-`.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Options of the servers that the mirror adds, as on a `server` line: `check inter 2s maxconn 100`. Options of
    /// `default-server` do not apply.
    #[serde(default)]
    pub server_options: ServerOptionsConfig,
}

/// Options of servers in the syntax of `HAProxy`: a string, or a list of strings.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(untagged)]
pub enum ServerOptionsConfig {
    /// All options, separated by spaces.
    Text(String),
    /// One option or several in each item.
    List(Vec<String>),
}

impl Default for ServerOptionsConfig {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl ServerOptionsConfig {
    /// Returns all options as one text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(items) => items.join(" "),
        }
    }
}

fn default_prefix() -> String {
    "sf-".to_owned()
}

/// Forwarding by nftables, in a dedicated table.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct NftablesConfig {
    /// Virtual address and port, as `192.0.2.1:80` or `[2001:db8::1]:80`.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Protocol of the port. Defaults to TCP.
    #[serde(default)]
    pub protocol: ProtocolConfig,
    /// Name of the table after the prefix `steadfast_`. Defaults to the name of the sink.
    pub name: Option<String>,
    /// Command of the tool, such as `["sudo", "nft"]`. Defaults to `["nft"]`.
    #[serde(default = "default_nft_command")]
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
}

fn default_nft_command() -> Vec<String> {
    vec!["nft".to_owned()]
}

/// Real servers of an IPVS (LVS) virtual service. The mirror owns the whole virtual service. Linux only.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct IpvsConfig {
    /// Virtual address and port, as `192.0.2.1:80` or `[2001:db8::1]:80`.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Protocol of the virtual service. Defaults to TCP.
    #[serde(default)]
    pub protocol: ProtocolConfig,
    /// Scheduler by the kernel's name: `rr`, `wrr`, `lc`, `sh`, `mh`…. Defaults to `wlc`.
    pub scheduler: Option<String>,
    /// Session affinity in seconds: a client keeps the same server for this time. Defaults to none.
    pub persistent: Option<u32>,
    /// Forwarding method. Defaults to `masquerade`.
    #[serde(default)]
    pub forward: ForwardConfig,
}

/// Protocol of a virtual service.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ProtocolConfig {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Forwarding method of packets to a real server.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ForwardConfig {
    /// Rewrites the destination address. Responses return through this machine.
    #[default]
    Masquerade,
    /// Forwards unchanged packets to servers on a shared network.
    Direct,
    /// Encapsulates unchanged packets in IP tunnels.
    Tunnel,
}

/// Names of a DNS zone with the mirror's mark, written by dynamic updates.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DnsConfig {
    /// Primary server of the zones: a comma-separated list of addresses or names, each with a port unless the port is
    /// 53. The mirror tries all addresses, starting with the address that responded last.
    pub server: String,
    /// The fully qualified zone, or a list of zones. A record belongs to the zone with the longest matching name.
    pub zone: ZonesConfig,
    /// Source of the signing key (TSIG), in the format of nsupdate: `ALGORITHM:NAME:SECRET`.
    pub secret: SecretFrom,
    /// Owner mark of this mirror's names.
    pub mark: String,
    /// TTL in seconds of records without an explicit TTL. Defaults to 30.
    #[serde(default = "default_ttl")]
    #[schemars(range(max = 2_147_483_647))]
    pub ttl: u32,
}

/// One zone name, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(untagged, expecting = "the name of a zone, or a list of names")]
pub enum ZonesConfig {
    /// One zone.
    One(String),
    /// Several zones.
    Several(Vec<String>),
}

impl ZonesConfig {
    /// Returns all zone names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

fn default_ttl() -> u32 {
    30
}

/// Keys of etcd under a prefix, attached to the mirror's lease.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// Client URLs of the members, `http://HOST:PORT` or `https://HOST:PORT` each. The mirror first tries the member
    /// that responded last.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<String>,
    /// Prefix of the keys, followed by the `key` of an entry.
    pub prefix: String,
    /// Owner mark of this mirror's keys. The ID of the lease derives from the mark.
    pub mark: String,
    /// How long the keys exist after the last renewal of the lease. Defaults to five minutes.
    pub lease: Option<ConfigDuration>,
    /// User of etcd. Without it, requests are not authenticated.
    pub user: Option<String>,
    /// Source of the user's password, read for each new token.
    pub password: Option<SecretFrom>,
    /// Certificate authorities of `https` endpoints, PEM. Defaults to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    pub key_file: Option<PathBuf>,
}

/// Items of an HTTP registry with the mirror's mark as owner.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RegistryConfig {
    /// URL of an item for reading, writing and deleting. `{key}` in the path is replaced by the `key` of an entry.
    pub url: String,
    /// URL of the list of items, on the same server. `{mark}` is replaced by the mark.
    pub list: String,
    /// Owner mark of this mirror's items.
    pub mark: String,
    /// JSON pointer to the array of items in the list (`/items`). Defaults to the whole document.
    #[serde(default)]
    pub items: String,
    /// Field names of an item.
    #[serde(default)]
    pub fields: RegistryFieldsConfig,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Additional headers with secret values: `Authorization`.
    #[serde(default)]
    pub secret_headers: BTreeMap<String, SecretFrom>,
    /// Certificate authorities of the server, PEM. Defaults to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// Proxy URL: `http://`, `https://`, `socks5://`.
    pub proxy: Option<String>,
}

/// Field names of an item of a registry.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryFieldsConfig {
    /// Field with the key. Defaults to `key`.
    pub key: String,
    /// Field with the owner. Defaults to `owner`.
    pub owner: String,
    /// Field with the value. Defaults to `value`.
    pub value: String,
}

impl Default for RegistryFieldsConfig {
    fn default() -> Self {
        let [key, owner, value] = ["key", "owner", "value"].map(str::to_owned);
        Self { key, owner, value }
    }
}

/// Limits on removals from a mirror within `window`. Removals beyond the limits need approval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Fraction of entries that may be missing without approval. It refers to the highest number in service within the
    /// window. Defaults to one third.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: Option<f64>,
    /// Number of entries that may always be missing. Defaults to 1.
    pub always_allowed: Option<usize>,
    /// Window for the highest number in service. Defaults to five minutes.
    pub window: Option<ConfigDuration>,
    /// Allow removal of the last entry without approval. Defaults to false.
    #[serde(default)]
    pub allow_empty: bool,
    /// CEL expression over `object`, `event` and `entry`. Its result, a string, is the group of the entry. Defaults to
    /// cluster and namespace of the object.
    pub group: Option<String>,
}
