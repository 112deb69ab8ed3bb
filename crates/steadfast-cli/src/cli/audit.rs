//! `steadfast audit`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use hyper::Uri;

use crate::duration;
use crate::kubectl_flags::{ConnectionArgs, server_url};
use crate::names::not_empty;
use crate::output_format::Output;

/// `steadfast audit`.
#[derive(Args, Debug)]
#[command(after_help = AUDIT_HELP)]
pub(crate) struct AuditArgs {
    /// Resources to audit: plural, singular, kind or short name, with version and group if needed. Repeat the argument or
    /// separate with commas. Defaults to pods, services, endpointslices, deployments, configmaps, nodes and namespaces.
    #[arg(value_name = "RESOURCE", value_parser = not_empty, value_delimiter = ',')]
    pub(crate) resources: Vec<String>,

    /// An API server to audit: `https://10.0.0.1:6443`. Can be repeated. Defaults to all addresses of the server's host
    /// name. The certificate of each endpoint is verified for that host name.
    #[arg(long = "endpoint", value_name = "URL", value_parser = server_url)]
    pub(crate) endpoints: Vec<Uri>,

    /// Interval at which each resource is compared with a list. These comparisons find lost events.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period)]
    pub(crate) period: Duration,

    /// Format of findings: text on standard error, or one JSON line each on standard output.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    /// End after this time, with exit code 1 if there was a finding.
    #[arg(long = "for", value_name = "TIME", value_parser = lasts)]
    pub(crate) lasts: Option<Duration>,

    /// Serve `/metrics` for Prometheus, `/livez` and `/readyz` at this address. Port 0 selects a free port, which is printed.
    #[arg(long, visible_alias = "metrics-address", value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Audit an embedded server with a few simulated workloads, as a demonstration.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "endpoints"])]
    pub(crate) embedded: bool,

    /// Server and connection.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Parses the value of `--period`.
fn period(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(10)..=Duration::from_secs(86_400);
    duration::parse_within(text, range, "a duration from 10s to 24h, such as 10m")
}

/// Parses the value of `--for`.
fn lasts(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::from_secs(1).., "a duration of at least 1s, such as 5m")
}

const AUDIT_HELP: &str = "\
The audit watches the metadata of the resources on each endpoint, and compares the watches with each other, with short new \
watches, and with periodic lists. Each finding is reported when it starts and when it ends. docs/audit.md lists the \
findings, their remedies and the metrics. The audit runs until SIGTERM or Ctrl-C.

With -o json, each start and each end of a finding is one line:
  {\"time\":…,\"type\":\"Finding\",\"finding\":\"stalled-stream\",\"state\":\"Started\",\"endpoint\":…,\"resource\":\"pods\",\"evidence\":…}
The line of the end has the state Ended and the field durationSeconds.

Examples:
  steadfast audit
  steadfast audit pods,deploy --endpoint https://10.0.0.1:6443 --endpoint https://10.0.0.2:6443
  steadfast audit --metrics 0.0.0.0:9090
  steadfast audit --for 15m -o json";
