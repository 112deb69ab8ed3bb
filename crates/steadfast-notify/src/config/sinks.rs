//! Configuration of sinks, the targets of messages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::duration::ConfigDuration;
use super::mirrors::{DnsConfig, EtcdConfig, GuardConfig, HaproxyConfig, IpvsConfig, NftablesConfig, RegistryConfig};
use super::secret::{SecretFrom, UrlFrom};

/// Target of messages. A stream has exactly one of `stdout`, `exec` and `webhook`, with delivery settings. A mirror has
/// exactly one of `haproxy`, `nftables`, `ipvs`, `dns`, `etcd` and `registry`, with reconciliation settings. The mirror
/// contains the entries that the rules return.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct SinkConfig {
    /// Standard output, one message a line.
    pub stdout: Option<StdoutConfig>,
    /// Program, started for each message.
    pub exec: Option<ExecConfig>,
    /// HTTP server.
    pub webhook: Option<WebhookConfig>,
    /// Servers of a backend of `HAProxy`.
    pub haproxy: Option<HaproxyConfig>,
    /// Forwarding by nftables.
    pub nftables: Option<NftablesConfig>,
    /// Real servers of an IPVS virtual service.
    pub ipvs: Option<IpvsConfig>,
    /// Names of a DNS zone.
    pub dns: Option<DnsConfig>,
    /// Keys of etcd.
    pub etcd: Option<EtcdConfig>,
    /// Items of an HTTP registry.
    pub registry: Option<RegistryConfig>,
    /// For mirrors: limits on removals.
    pub guard: Option<GuardConfig>,
    /// For mirrors: how long to drain an entry with open connections before removal. Defaults to 30 s.
    pub drain: Option<ConfigDuration>,
    /// For mirrors: maximum interval between comparisons with the target. Defaults to one minute.
    pub compare: Option<ConfigDuration>,
    /// For mirrors: add and change entries, but never remove any. Defaults to false.
    #[serde(default)]
    pub upsert_only: bool,
    /// Time for which a message waits before its delivery. Without a checkpoint, a newer message of the same rule and
    /// object replaces the waiting message. With a checkpoint, the receiver gets both: the waiting message, and then one
    /// message with the newest state.
    pub debounce: Option<ConfigDuration>,
    /// Rate limit.
    pub rate: Option<RateConfig>,
    /// Retry policy for failed messages.
    #[serde(default)]
    pub retry: RetryConfig,
    /// Maximum number of concurrent deliveries, each for another object. Defaults to 4.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

impl SinkConfig {
    /// Returns the kind by the configuration key. `None` for none or several kinds.
    pub fn kind(&self) -> Option<&'static str> {
        // A sink with two kinds has no kind; `Checks` reports the mistake.
        let mut kinds = self.kinds();
        kinds.next().filter(|_| kinds.next().is_none())
    }

    /// Returns true for mirrors and false for streams.
    pub fn is_mirror(&self) -> bool {
        self.kind().is_some_and(|kind| MIRROR_KINDS.contains(&kind))
    }

    /// Returns all configured kinds.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let kinds = [
            ("stdout", self.stdout.is_some()),
            ("exec", self.exec.is_some()),
            ("webhook", self.webhook.is_some()),
            ("haproxy", self.haproxy.is_some()),
            ("nftables", self.nftables.is_some()),
            ("ipvs", self.ipvs.is_some()),
            ("dns", self.dns.is_some()),
            ("etcd", self.etcd.is_some()),
            ("registry", self.registry.is_some()),
        ];
        kinds.into_iter().filter(|(_, is_set)| *is_set).map(|(kind, _)| kind)
    }
}

/// Kinds of streams, which receive messages.
pub(crate) const STREAM_KINDS: [&str; 3] = ["stdout", "exec", "webhook"];

/// Kinds of mirrors, which contain the entries that rules return.
pub(crate) const MIRROR_KINDS: [&str; 6] = ["haproxy", "nftables", "ipvs", "dns", "etcd", "registry"];

fn default_concurrency() -> usize {
    4
}

/// Standard output.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct StdoutConfig {}

/// Program, started for each message. The message is the standard input.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// The program and arguments, executed without a shell.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Maximum run time. Afterwards the process group of the program is killed. Defaults to 30 s.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
    /// Additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Additional environment variables with secret values.
    #[serde(default)]
    pub secret_env: BTreeMap<String, SecretFrom>,
}

/// HTTP server that receives `CloudEvents`, or a custom `body`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The URL, or a reference: `{file = "…"}` or `{env = "…"}`. `{NAME}` is replaced by a secret.
    pub url: UrlFrom,
    /// Secrets by name: `{NAME}` in `url` and `headers`, and `secrets.NAME` in `body`.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFrom>,
    /// HTTP method. Defaults to `POST`.
    #[serde(default)]
    pub method: WebhookMethod,
    /// Body of a request, in CEL over `message` (in batches over `messages`) and `secrets`. A string is sent unchanged,
    /// other values as JSON. Defaults to `CloudEvents`.
    pub body: Option<String>,
    /// Content type of `body`. Defaults to `application/json`, and for strings to `text/plain; charset=utf-8`.
    pub content_type: Option<String>,
    /// One message per request, or several. Defaults to `structured`.
    #[serde(default)]
    pub mode: WebhookMode,
    /// Maximum number of messages per request in batched mode. Defaults to 100.
    #[serde(default = "default_batch")]
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// Timeout of a response. Defaults to 30 s.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Additional headers with secret values: `Authorization`.
    #[serde(default)]
    pub secret_headers: BTreeMap<String, SecretFrom>,
    /// Key of the body signature (HMAC with SHA-256) in the header `Steadfast-Signature`.
    pub hmac: Option<SecretFrom>,
    /// Certificate authorities of the server, PEM. Defaults to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// Proxy URL: `http://`, `https://`, `socks5://`.
    pub proxy: Option<String>,
}

/// HTTP method of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum WebhookMethod {
    /// `POST`
    #[default]
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
}

impl From<WebhookMethod> for http::Method {
    fn from(method: WebhookMethod) -> Self {
        match method {
            WebhookMethod::Post => Self::POST,
            WebhookMethod::Put => Self::PUT,
            WebhookMethod::Patch => Self::PATCH,
        }
    }
}

/// Number of messages per request.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WebhookMode {
    /// One message per request.
    #[default]
    Structured,
    /// Several messages per request, in order.
    Batched,
}

/// Rate limit (token bucket).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// Average number of attempts per second.
    #[schemars(range(min = 0.001, max = 1_000_000.0))]
    pub per_second: f64,
    /// Maximum number of immediate attempts after an idle period. Defaults to 1.
    #[serde(default = "default_burst")]
    #[schemars(range(min = 1))]
    pub burst: u32,
}

fn default_burst() -> u32 {
    1
}

/// Retry policy for failed messages.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Delay before the second attempt. Each further delay doubles, with jitter. Defaults to 1 s.
    pub first: ConfigDuration,
    /// Maximum delay between attempts. Defaults to 60 s.
    pub longest: ConfigDuration,
    /// Maximum age of a message. Older messages become dead letters. Defaults to one hour.
    pub give_up_after: ConfigDuration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        let seconds = |seconds| ConfigDuration(Duration::from_secs(seconds));
        Self { first: seconds(1), longest: seconds(60), give_up_after: seconds(3600) }
    }
}

fn default_timeout() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(30))
}

fn default_batch() -> usize {
    100
}
