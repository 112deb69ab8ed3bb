//! What is made equal to the cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::secret::SecretFrom;
use super::span::Span;

/// The servers of a backend of `HAProxy`, by its runtime socket. Those whose names begin with the prefix are the mirror's.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Haproxy {
    /// The runtime socket, which has to be of `level admin`; one that is not absolute lies beside the configuration.
    pub socket: PathBuf,
    /// The backend, which has to balance dynamically.
    pub backend: String,
    /// What the names of the mirror's servers begin with.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// Options of the servers that the mirror adds, as on a `server` line: `check inter 2s maxconn 100`. They inherit nothing from `default-server`.
    #[serde(default)]
    pub server_options: ServerOptions,
}

/// Options of servers, in `HAProxy`'s words: one text, or a list of them.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(untagged)]
pub enum ServerOptions {
    /// All options, separated by spaces.
    Text(String),
    /// One option or several in each item.
    List(Vec<String>),
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl ServerOptions {
    /// Returns all options as one text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(items) => items.join(" "),
        }
    }
}

fn prefix() -> String {
    "sf-".to_owned()
}

/// What nftables sends on, in a table of its own.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Nftables {
    /// What is sent on: an address and a port, as `192.0.2.1:80` or `[2001:db8::1]:80`.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Protocol of the port; TCP unless given.
    #[serde(default)]
    pub protocol: Protocol,
    /// What the table is called, behind `steadfast_`; as the sink unless given.
    pub name: Option<String>,
    /// What runs the tool: `["sudo", "nft"]`; `nft` alone unless given.
    #[serde(default = "nft")]
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
}

fn nft() -> Vec<String> {
    vec!["nft".to_owned()]
}

/// The real servers behind a virtual service of IPVS (LVS), which is the mirror's as a whole. On Linux.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Ipvs {
    /// What is sent on: an address and a port, as `192.0.2.1:80` or `[2001:db8::1]:80`.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// What is sent on is of this protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// Who is chosen, as the kernel calls it: `rr`, `wrr`, `lc`, `sh`, `mh`…; `wlc` unless given.
    pub scheduler: Option<String>,
    /// For so many seconds whoever came goes to the same server again.
    pub persistent: Option<u32>,
    /// How packets reach a server.
    #[serde(default)]
    pub forward: Forward,
}

/// What a virtual service speaks.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// How packets reach a real server.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Forward {
    /// With its address written into them; the answers come back this way.
    #[default]
    Masquerade,
    /// As they are, on the network that it shares with this machine.
    Direct,
    /// As they are, inside of others.
    Tunnel,
}

/// The names of a DNS zone that bear a mark, by dynamic update.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// Primary server of the zones: an address or a name, or several with commas in between, each with a port unless the port is 53. All
    /// addresses are tried, the last one that responded first.
    pub server: String,
    /// The zone, in full, or a list of zones: a record goes to the zone with the longest name that it lies in.
    pub zone: Zones,
    /// Where the key is to be found that signs (TSIG), as nsupdate takes it: `ALGORITHM:NAME:SECRET`.
    pub secret: SecretFrom,
    /// What tells this mirror's names from those of others.
    pub mark: String,
    /// TTL of records without one of their own, in seconds. Defaults to 30.
    #[serde(default = "half_a_minute")]
    #[schemars(range(max = 2_147_483_647))]
    pub ttl: u32,
}

/// The name of a zone, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(untagged, expecting = "the name of a zone, or a list of names")]
pub enum Zones {
    /// One zone.
    One(String),
    /// Several zones.
    Several(Vec<String>),
}

impl Zones {
    /// Returns all names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

fn half_a_minute() -> u32 {
    30
}

/// The keys of etcd under a prefix that have the mirror's lease.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Etcd {
    /// Client URLs of its members, `http://HOST:PORT` or `https://HOST:PORT` each. The one that responded last is asked first.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<String>,
    /// What the keys begin with; the `key` of an entry comes behind it.
    pub prefix: String,
    /// What tells this mirror's keys from those of others: its lease follows from it.
    pub mark: String,
    /// How long the keys exist after the last renewal of their lease. Defaults to five minutes.
    pub lease: Option<Span>,
    /// User of etcd. Without it, requests are not authenticated.
    pub user: Option<String>,
    /// Where the password of the user is. It is read for each new token.
    pub password: Option<SecretFrom>,
    /// Certificate authorities of the endpoints, PEM. Defaults to those of the system. For `https` endpoints.
    pub ca_file: Option<PathBuf>,
    /// Certificate for the endpoints, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Key of that certificate, PEM.
    pub key_file: Option<PathBuf>,
}

/// The items of a registry by HTTP whose owner is the mirror's mark.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// The URL of an item, at which it is read, put and deleted; in its path `{key}` stands for the `key` of an entry.
    pub url: String,
    /// The URL at which the items are listed, of the same server; in it `{mark}` stands for the mark.
    pub list: String,
    /// What tells this mirror's items from those of others: their owner.
    pub mark: String,
    /// Where in the list its array of items is, as a JSON pointer (`/items`); the list is that array unless given.
    #[serde(default)]
    pub items: String,
    /// What the fields of an item are called.
    #[serde(default)]
    pub fields: Fields,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// More headers, whose values are nobody else's to see: `Authorization`.
    #[serde(default)]
    pub secret_headers: BTreeMap<String, SecretFrom>,
    /// The authorities that may vouch for the server, PEM; the system's unless given.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to the server, PEM.
    pub certificate_file: Option<PathBuf>,
    /// The key of that certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// The proxy to go through: `http://`, `https://`, `socks5://`.
    pub proxy: Option<String>,
}

/// What the fields of an item of a registry are called.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// What it is called.
    pub key: String,
    /// Whose it is.
    pub owner: String,
    /// What it has.
    pub value: String,
}

impl Default for Fields {
    fn default() -> Self {
        let [key, owner, value] = ["key", "owner", "value"].map(str::to_owned);
        Self { key, owner, value }
    }
}

/// How much may be taken out of a mirror at once; what is more has to be approved of.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// Part of the highest number in service within the window that may be missing without approval. Defaults to a third.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: Option<f64>,
    /// Number of entries that may be missing in any case. Defaults to 1.
    pub few: Option<usize>,
    /// How long the highest number in service counts. Defaults to five minutes.
    pub window: Option<Span>,
    /// Whether the last entry of the mirror may be removed without approval. Defaults to false.
    #[serde(default)]
    pub allow_empty: bool,
    /// CEL expression over `object`, `event` and `entry` that gives the group of an entry, as text. Defaults to cluster and namespace
    /// of the object.
    pub group: Option<String>,
}
