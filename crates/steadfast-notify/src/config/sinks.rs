//! Where messages go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::mirrors::{Dns, Etcd, Guard, Haproxy, Ipvs, Nftables, Registry};
use super::secret::{SecretFrom, UrlFrom};
use super::span::Span;

/// A stream, to which messages go: exactly one of `stdout`, `exec` and `webhook`, and how they are delivered there. Or a
/// mirror, which is made equal to what its rules send: exactly one of `haproxy`, `nftables`, `ipvs`, `dns`, `etcd` and `registry`, and how it is kept so.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// Standard output, one message a line.
    pub stdout: Option<Stdout>,
    /// A program that is started for each message.
    pub exec: Option<Exec>,
    /// A server that gets HTTP requests.
    pub webhook: Option<Webhook>,
    /// The servers of a backend of `HAProxy`.
    pub haproxy: Option<Haproxy>,
    /// What nftables sends on.
    pub nftables: Option<Nftables>,
    /// The real servers behind a virtual service of IPVS.
    pub ipvs: Option<Ipvs>,
    /// The names of a DNS zone.
    pub dns: Option<Dns>,
    /// Keys of etcd.
    pub etcd: Option<Etcd>,
    /// Items of a registry by HTTP.
    pub registry: Option<Registry>,
    /// Of a mirror: how much may be taken out at once.
    pub guard: Option<Guard>,
    /// Of a mirror: how long what is to go is waited for while somebody still uses it; 30 s unless given.
    pub drain: Option<Span>,
    /// Of a mirror: how often it is looked whether all is as it is wanted, though nothing has changed; once a minute unless
    /// given.
    pub compare: Option<Span>,
    /// Of a mirror: whether it only adds and changes entries, and never removes any. Defaults to false.
    #[serde(default)]
    pub upsert_only: bool,
    /// How long a message waits for a newer one of the same rule and object, which takes its place.
    pub debounce: Option<Span>,
    /// How much may be sent.
    pub rate: Option<Rate>,
    /// What happens to what could not be delivered.
    #[serde(default)]
    pub retry: Retry,
    /// How many may be under way at a time, each for another object.
    #[serde(default = "four")]
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

impl Sink {
    /// What it is, as it is called in a configuration; none where it is nothing or several things.
    pub fn kind(&self) -> Option<&'static str> {
        let mut kinds = self.kinds();
        kinds.next().filter(|_| kinds.next().is_none())
    }

    /// Whether it is made equal to what rules send, and does not only hear of changes.
    pub fn is_mirror(&self) -> bool {
        self.kind().is_some_and(|kind| MIRRORS.contains(&kind))
    }

    /// All that it is.
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
        kinds.into_iter().filter(|(_, is_there)| *is_there).map(|(kind, _)| kind)
    }
}

/// What messages go to.
pub(crate) const STREAMS: [&str; 3] = ["stdout", "exec", "webhook"];

/// What is made equal to what rules send.
pub(crate) const MIRRORS: [&str; 6] = ["haproxy", "nftables", "ipvs", "dns", "etcd", "registry"];

fn four() -> usize {
    4
}

/// Standard output.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Stdout {}

/// A program that is started for each message, which it gets on its standard input.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The program and its arguments; no shell reads them.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// How long it may run, before it is killed with all that it has started.
    #[serde(default = "half_a_minute")]
    pub timeout: Span,
    /// More for its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// More for its environment, which is nobody else's to see.
    #[serde(default)]
    pub secret_env: BTreeMap<String, SecretFrom>,
}

/// A server that gets HTTP requests: `CloudEvents`, or a `body` of its own.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// The URL, or where it is to be found: `{file = "…"}` or `{env = "…"}`. `{NAME}` in it stands for a secret.
    pub url: UrlFrom,
    /// Secrets by name: `{NAME}` in `url` and `headers`, and `secrets.NAME` in `body`.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFrom>,
    /// The method of requests. Defaults to `POST`.
    #[serde(default)]
    pub method: Method,
    /// The body of a request, in CEL over `message` (in batches over `messages`) and `secrets`: a text, or anything else as JSON.
    /// Defaults to `CloudEvents`.
    pub body: Option<String>,
    /// The content type of `body`. Defaults to `application/json`, and for a text to `text/plain; charset=utf-8`.
    pub content_type: Option<String>,
    /// One message a request, or several.
    #[serde(default)]
    pub mode: Mode,
    /// How many messages a request may have, where it may have several.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// How long an answer may take.
    #[serde(default = "half_a_minute")]
    pub timeout: Span,
    /// More headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// More headers, whose values are nobody else's to see: `Authorization`.
    #[serde(default)]
    pub secret_headers: BTreeMap<String, SecretFrom>,
    /// The key by which each body is signed (HMAC with SHA-256), in the header `Steadfast-Signature`.
    pub hmac: Option<SecretFrom>,
    /// The authorities that may vouch for the server, PEM; the system's unless given.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to the server, PEM.
    pub certificate_file: Option<PathBuf>,
    /// The key of that certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// The proxy to go through: `http://`, `https://`, `socks5://`.
    pub proxy: Option<String>,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `POST`
    #[default]
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
        }
    }
}

/// How messages are put into requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One a request.
    #[default]
    Structured,
    /// Several a request, in order.
    Batched,
}

/// How much may be sent.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// How many attempts a second, in the long run.
    #[schemars(range(min = 0.001, max = 1_000_000.0))]
    pub per_second: f64,
    /// How many at once, after a while in which there were none.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub burst: u32,
}

fn one() -> u32 {
    1
}

/// What happens to what could not be delivered.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// How long to wait before the second attempt; the wait is doubled each time, and jittered.
    pub first: Span,
    /// The longest that an attempt waits for.
    pub longest: Span,
    /// How old a message may become before it is given up.
    pub give_up_after: Span,
}

impl Default for Retry {
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        Self { first: seconds(1), longest: seconds(60), give_up_after: seconds(3600) }
    }
}

fn half_a_minute() -> Span {
    Span(Duration::from_secs(30))
}

fn hundred() -> usize {
    100
}
