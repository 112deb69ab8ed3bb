//! Definition of the command line: commands, flags and help texts.

mod audit;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use regex::Regex;
use steadfast_testing::CachedForm;

use crate::duration;
use crate::failure::EXIT_CODES;
use crate::kubectl_flags::{ConnectionArgs, KubectlFlags};
use crate::names::{ResourceArg, not_empty, token};
use crate::output_format::OutputFormat;
use crate::until::Until;

pub(crate) use crate::output_format::Output;
pub(crate) use audit::AuditArgs;

/// Returns the version of the package, with the commit of the build if `STEADFAST_COMMIT` was set for the compiler.
///
/// The commit comes from the environment and not from a build script, so that builds outside of a repository succeed. A
/// new commit alone also causes no rebuild.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| match option_env!("STEADFAST_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    });
    &VERSION
}

/// Watch resources of a Kubernetes cluster, act on their changes, and test the library against an embedded API server.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version = version(), after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch resources and print every change; reconnects until it is stopped.
    Watch(WatchArgs),
    /// Show resources in a full-screen table that is always current, with filters, changes, events and logs; read-only.
    Top(TopArgs),
    /// Check what informers need from a cluster: reachability, permissions, streamed lists, bookmarks, sizes; not workloads.
    Doctor(DoctorArgs),
    /// Audit the watches of each API server endpoint continuously: frozen endpoints, stalled watches, lost events, lagging replicas.
    Audit(AuditArgs),
    /// Act on changes: the rules of a configuration define which messages are sent, when, and to which sinks.
    Notify(NotifyArgs),
    /// Run fault scenarios against this library over real sockets, and check the results against the contract.
    Lab(LabArgs),
    /// Run the embedded API server in the foreground, for kubectl and any other client.
    Serve(ServeArgs),
    /// Inject faults into a running `steadfast serve`: lost connections, a replica that lags, error statuses instead of responses.
    Fault(FaultArgs),
    /// Write shell completions and man pages to a folder, for packages of this program.
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// `steadfast generate`.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// The folder, which is created if it does not exist. Existing files are overwritten.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// `steadfast watch`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_HELP)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct WatchArgs {
    /// Resources to watch: plural, singular, kind or short name, with version and group if needed, or one object. Repeat
    /// the argument or separate with commas: `pods`, `deploy,svc`, `deployments.v1.apps`, `deploy/web`.
    #[arg(value_name = "RESOURCE[/NAME]", required_unless_present = "embedded", value_delimiter = ',')]
    pub(crate) resources: Vec<ResourceArg>,

    /// Print the tree of owners and children of the named objects, then follow all of them with their services,
    /// endpoints and events. `--until` considers the named objects only.
    #[arg(long, conflicts_with_all = ["wait_for_kind", "labels", "fields"])]
    pub(crate) related: bool,

    /// Wait for a kind that the server does not serve yet, instead of ending with an error. Kinds that exist are watched
    /// in the meantime. `--wait` limits the wait.
    #[arg(long)]
    pub(crate) wait_for_kind: bool,

    /// The namespaces to watch. Repeat the flag or separate with commas. Defaults to the namespace of the context.
    #[arg(short = 'n', long = "namespace", value_name = "NAME", value_parser = not_empty, value_delimiter = ',', conflicts_with = "all_namespaces")]
    pub(crate) namespaces: Vec<String>,

    /// Watch all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,

    /// Only objects whose labels match: `app=web,tier in (a,b),!legacy`.
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR")]
    pub(crate) labels: Option<String>,

    /// Only objects whose fields match: `status.phase=Running`.
    #[arg(long = "field-selector", value_name = "SELECTOR")]
    pub(crate) fields: Option<String>,

    /// The kubeconfig. Defaults to $KUBECONFIG, then ~/.kube/config. If no kubeconfig exists, the service account of the
    /// pod is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The contexts within the kubeconfig. Repeat the flag or separate with commas to watch several clusters. Defaults to
    /// the current context.
    #[arg(long = "context", value_name = "NAME", value_parser = not_empty, value_delimiter = ',')]
    pub(crate) contexts: Vec<String>,

    /// Output format of events: text, wide (with the current state), json, yaml, name, jsonpath=TEMPLATE or
    /// custom-columns=HEADING:PATH,…
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: OutputFormat,

    /// Print each changed value in full, below its line.
    #[arg(long)]
    pub(crate) diff: bool,

    /// Labels to print on each line. Repeat the flag or separate with commas.
    #[arg(short = 'L', long, value_name = "LABEL", value_parser = not_empty, value_delimiter = ',')]
    pub(crate) label_columns: Vec<String>,

    /// Print all labels on each line.
    #[arg(long)]
    pub(crate) show_labels: bool,

    /// With `-o json`, write the whole object too, without its `managedFields`.
    #[arg(long)]
    pub(crate) full: bool,

    /// Also show changes of bookkeeping fields: versions, field managers, heartbeats, lease renewals, timestamps
    /// of a status.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Show the values of Secrets. By default, all formats show only the names of the changed keys.
    #[arg(long)]
    pub(crate) show_secrets: bool,

    /// Write times in UTC instead of the local time zone ($TZ, else the system's). JSON always has UTC.
    #[arg(long)]
    pub(crate) utc: bool,

    /// End after this number of events, after this time (`30s`), or when all watched objects satisfy a condition:
    /// `condition=Ready`, `delete`, or a CEL expression over `object`. If the flag is repeated, the first condition that is
    /// met ends the program. The exit code is 4 if a time limit expires before another condition is met.
    #[arg(long, value_name = "N|TIME|CONDITION")]
    pub(crate) until: Vec<Until>,

    /// First print the changes within this time before the start. Facts whose time is recorded in an object or in an
    /// Event come first, marked as reconstructed. Exact changes follow, as far back as a watch can start. With
    /// `--related`, the history of the related objects follows the tree.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Duration>,

    /// Also print the logs of the containers of the watched pods, including the pods of `--related`. Logs of existing pods
    /// start now, or with `--since` at that time.
    #[arg(long)]
    pub(crate) logs: bool,

    /// With `--logs`, only containers whose names match this regular expression.
    #[arg(short = 'c', long = "container", value_name = "REGEX", requires = "logs")]
    pub(crate) containers: Option<Regex>,

    /// With `--logs`, the maximum number of logs that are read concurrently. Further logs wait until another log ends.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_log_requests: u16,

    /// Fail if the server cannot be reached within this time at the start. Waits without a limit by default.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u64>,

    /// Serve `/metrics` for Prometheus, `/healthz` and `/readyz` at this address. Port 0 selects a free port, which is printed.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Watch an embedded server with a few simulated workloads, as a demonstration. Watches deployments and pods in all
    /// namespaces by default.
    #[arg(long, conflicts_with_all = ["kubeconfig", "contexts"])]
    pub(crate) embedded: bool,

    /// Disconnect the embedded server for two seconds at regular intervals, to show doubts and missed changes.
    #[arg(long, requires = "embedded")]
    pub(crate) outages: bool,

    /// Flags of kubectl for the connection.
    #[command(flatten)]
    pub(crate) kubectl: KubectlFlags,
}

/// Parses the value of `--since`.
fn since(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::from_nanos(1).., "a duration such as 10m")
}

const WATCH_HELP: &str = "\
Events: + added, ~ updated, - deleted, = synced. An update shows the changed fields, worded for the kind of \
the object, and the field manager. Updates of versions, heartbeats and timestamps alone are not printed. The end of an \
interruption shows the number of changes during it, and Ctrl-C the number of all changes. A deletion is `observed` if the \
server sent it, and `inferred` if a complete list no longer contained the object. Up to 1024 events may be pending for \
output, one line for each change. Beyond this limit, changes of an object are merged into one line, marked `(3 changes)`; an object that was added \
and deleted while pending is not printed. Doubts about freshness are printed on standard error. From a doubt until \
the line `fresh again`, the printed changes may be incomplete.

With -o json, a line is printed at the start and at the end of a doubt. Lines after the end are changes after the doubt:
  {\"time\":…,\"type\":\"Freshness\",\"resource\":\"pods\",\"namespace\":\"shop\",\"state\":\"Stale\",\"why\":…,\"doubtSeconds\":58.1}
  {\"time\":…,\"type\":\"Freshness\",\"resource\":\"pods\",\"namespace\":\"shop\",\"state\":\"Fresh\",\"why\":null,\"doubtSeconds\":60.4}
These lines do not count toward --until.

Examples:
  steadfast watch pods
  steadfast watch deploy/web pods -n shop
  steadfast watch deploy,rs,po -n shop -l app=web -o json
  steadfast watch deploy/web --diff
  steadfast watch deploy/web --related
  steadfast watch deploy/web --related --logs
  steadfast watch deploy/web --related --since 10m
  steadfast watch deploy,rs,po -n shop --since 10m
  steadfast watch pods -l app=web --until condition=Ready --until 2m
  steadfast watch deploy/web --until \"object.status.readyReplicas == object.spec.replicas\"
  steadfast watch pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase
  steadfast watch widgets.example.com --wait-for-kind
  steadfast watch deploy -A --context east,west
  steadfast watch pods -A --metrics 127.0.0.1:9090
  steadfast watch --embedded --until 20";

/// `steadfast top`.
#[derive(Args, Debug)]
#[command(after_help = TOP_HELP)]
pub(crate) struct TopArgs {
    /// Resources to show, one tab for each: plural, singular, kind or short name, with version and group if needed. Repeat
    /// the argument or separate with commas. Defaults to pods, deployments, services, configmaps, events and nodes.
    #[arg(value_name = "RESOURCE", value_parser = not_empty, value_delimiter = ',')]
    pub(crate) resources: Vec<String>,

    /// The namespace to show. Defaults to the namespace of the context.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty, conflicts_with = "all_namespaces")]
    pub(crate) namespace: Option<String>,

    /// Show all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,

    /// Show times in UTC instead of the local time zone ($TZ, else the system's).
    #[arg(long)]
    pub(crate) utc: bool,

    /// Fail if the server cannot be reached within this time at the start. Waits without a limit by default.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u64>,

    /// Show an embedded server with a few simulated workloads, as a demonstration. Shows all namespaces by default.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) embedded: bool,

    /// Server and connection.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

const TOP_HELP: &str = "\
Keys: Tab shows the next resource, `:KIND` another one, `/TEXT` filters, s sorts, Enter opens the recent changes of an object, \
y its YAML, e its events, l the logs of a pod. ? shows all keys, and q quits. The last line shows whether the table is fresh, \
and the time since the cache was last confirmed to be current. The watch of a resource starts when its tab is shown for the first time. Values of Secrets are hidden.

Examples:
  steadfast top
  steadfast top deploy,po,ev -n shop
  steadfast top pods -A
  steadfast top --embedded";

/// `steadfast doctor`.
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    /// Resources to check: plural, singular, kind or short name, with version and group if needed. Repeat the argument or
    /// separate with commas. Defaults to pods, services, endpointslices, deployments, configmaps, events, nodes and
    /// namespaces.
    #[arg(value_name = "RESOURCE", value_parser = not_empty, value_delimiter = ',')]
    pub(crate) resources: Vec<String>,

    /// Check informers of this namespace only. Defaults to all namespaces.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty)]
    pub(crate) namespace: Option<String>,

    /// Duration of the watches that observe bookmarks and changes.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = sample)]
    pub(crate) sample: Duration,

    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    /// Exit with code 1 for warnings too.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Repeat the checks until stopped. Text output then shows new and resolved findings only; JSON has one line for each
    /// round.
    #[arg(short = 'w', long)]
    pub(crate) watch: bool,

    /// Pause between two rounds of `--watch`.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = pause, requires = "watch")]
    pub(crate) interval: Duration,

    /// Server and connection.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Parses the value of `--sample`.
fn sample(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(600);
    duration::parse_within(text, range, "a duration from 1s to 10m, such as 10s")
}

/// Parses the value of `--interval`.
fn pause(text: &str) -> Result<Duration, String> {
    duration::parse_within(text, Duration::from_secs(1).., "a duration of at least 1s, such as 1m")
}

const DOCTOR_HELP: &str = "\
Each finding has a severity (ok, not checked, warning, failure), a subject, its effect on informers, and a remedy. All \
requests are reads or access reviews, with deadlines and limits: a few for each resource, and at most 100 objects of each. Sizes \
and memory are estimates from these objects. Secrets are requested only if they are named, and never printed.

This command checks the network path, the API servers and the permissions of informers. It does not check workloads and \
their manifests.

Exit codes: 0 without a failure, and with --strict also without a warning; 1 otherwise. As for all commands, 2 is an invalid \
command line, and 3 an unusable kubeconfig.

Examples:
  steadfast doctor
  steadfast doctor deploy,widgets.example.com -n shop
  steadfast doctor --as system:serviceaccount:shop:controller
  steadfast doctor --strict -o json
  steadfast doctor --watch --interval 5m";

/// `steadfast notify`.
#[derive(Args, Debug)]
#[command(after_help = NOTIFY_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NotifyArgs {
    /// Command to run instead of acting on changes.
    #[command(subcommand)]
    pub(crate) command: Option<NotifyCommand>,

    /// The configuration file, TOML or YAML.
    #[arg(short = 'c', long = "config", value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,

    /// Act on an embedded server with a few simulated workloads, as a demonstration. Runs for ten seconds unless --for
    /// is given.
    #[arg(long)]
    pub(crate) embedded: bool,

    /// Print the commands that each mirror would run, in the syntax of its target's tool, without running them.
    #[arg(long, conflicts_with_all = ["embedded", "lasts"])]
    pub(crate) dry_run: bool,

    /// End after this number of seconds.
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) lasts: Option<u64>,

    /// Serve `/metrics` for Prometheus, `/livez`, `/readyz` and `/status` at this address. Port 0 selects a free port, which is printed.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Maximum time for delivering pending messages after a request to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) drain: u64,

    /// Name of this process in the lease of its replicas. Defaults to the host name, which is the name of the pod in a cluster.
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
}

/// The subcommands of `steadfast notify`.
#[derive(Debug, Subcommand)]
pub(crate) enum NotifyCommand {
    /// Print the current state: rules and their sources, sinks and their queues, mirrors, dead letters.
    Status {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Output format.
        #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },

    /// Validate a configuration; report each mistake with its position and a remedy.
    Check {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Also query the clusters and sinks: check that the watched resources exist and the sinks can be reached.
        #[arg(long)]
        online: bool,
    },
    /// Print which rules fire for the current state of an object, which messages they send, and why the other rules do not fire.
    Explain {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// The object: `deploy/web`.
        #[arg(value_name = "RESOURCE/NAME")]
        object: ResourceArg,

        /// The namespace of the object. Defaults to the namespace of the context.
        #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty)]
        namespace: Option<String>,

        /// The cluster of the object, by its name in the configuration. Defaults to the only cluster.
        #[arg(long, value_name = "NAME", value_parser = not_empty)]
        cluster: Option<String>,

        /// Query an embedded server with a few simulated workloads instead of the clusters.
        #[arg(long)]
        embedded: bool,
    },
    /// Approve pending removals of mirrors. Fails if no removal is pending.
    Approve {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Approve removals of this mirror only.
        #[arg(value_name = "SINK")]
        sink: Option<String>,

        /// Approve the removals with this ID or unique ID prefix only. Changes since then are not approved.
        #[arg(value_name = "ID", requires = "sink")]
        id: Option<String>,
    },
    /// Print manifests with the minimum permissions of the program: a service account, its roles and bindings.
    Rbac {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// The namespace of the service account.
        #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty, default_value = "default")]
        namespace: String,

        /// Query an embedded server for the resource names instead of the clusters.
        #[arg(long)]
        embedded: bool,
    },
    /// Print the JSON schema of configurations.
    Schema,
    /// Deliver dead letters again, each once. A letter that fails again remains a dead letter.
    Redrive {
        /// The configuration file, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Dead letters for this sink only.
        #[arg(long, value_name = "NAME", value_parser = not_empty)]
        sink: Option<String>,
    },
}

const NOTIFY_HELP: &str = "\
docs/notify.md documents the messages. SIGHUP reloads the configuration: an invalid configuration changes nothing \
and is reported. SIGTERM and Ctrl-C end the program after pending messages are delivered.

Examples:
  steadfast notify --embedded -c examples/notify/services.toml
  steadfast notify check -c notify.toml
  steadfast notify explain -c notify.toml deploy/web -n shop
  steadfast notify -c notify.toml --dry-run
  steadfast notify approve -c notify.toml
  steadfast notify -c notify.toml";

/// `steadfast lab`.
#[derive(Args, Debug)]
#[command(after_help = LAB_HELP)]
pub(crate) struct LabArgs {
    /// Scenarios to run: names, numbers of faults (`F4`), or `all`. Defaults to the scenarios outside of the fault
    /// catalog, which take seconds.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Describe the scenarios instead of running them.
    #[arg(long)]
    pub(crate) list: bool,

    /// Run the named faults concurrently; the seed decides when each fault starts and ends. Defaults to all faults that
    /// can be combined. Takes about seven minutes.
    #[arg(long, conflicts_with = "list")]
    pub(crate) together: bool,

    /// Seed of all random decisions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Form of the informers' cached objects and of their requests: typed-json, lazy-json, typed-protobuf or lazy-protobuf.
    #[arg(long, value_name = "FORM", default_value_t = CachedForm::default())]
    pub(crate) form: CachedForm,

    /// Write the results as an HTML page, too: for each scenario its checks, and a time line of faults, freshness, events and
    /// requests. The page is one file without scripts, and loads nothing else.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub(crate) report: Option<PathBuf>,

    /// Output format of the results.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

const LAB_HELP: &str = "\
Columns: changes of the server that a handler must see, summed over the handlers; changes seen individually (the others \
were merged into a later one); objects whose last state or deletion was lost; repeated events; events out of order; time from the fault to the \
first doubt of the informer, and its upper bound if the fault must be detected; time from the end of the fault until the cache is \
complete and fresh; full transfers, streamed or paged; watches; bytes of all responses.";

/// `steadfast serve`.
#[derive(Args, Debug)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// The kubeconfig to merge a context into; the context becomes the current one, and a missing file is created. Defaults
    /// to a separate file in the temporary folder, whose path is printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Name of the context, its cluster and its user. Contexts of further replicas have their number as a suffix.
    #[arg(long, value_name = "NAME", default_value = "steadfast", value_parser = not_empty)]
    pub(crate) context: String,

    /// The port of the first replica on 127.0.0.1; the other replicas use the following ports. 0 selects free ports.
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,

    /// Number of replicas that serve one history, each with its own watch cache.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) replicas: u16,

    /// The accepted bearer token, which is written to the kubeconfig. Defaults to a random token. Other users of this machine
    /// can see command-line arguments.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(crate) token: Option<String>,

    /// Serve HTTPS, with a certificate authority created at the start, or plain HTTP. Plain HTTP needs no token:
    /// kubectl and Helm send none.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) tls: bool,

    /// Keep all objects in this file: it is read at the start, and saved one second after a change and at the end. A missing
    /// file is created, readable by its owner only, since it contains Secrets. Resource versions and UIDs are kept.
    #[arg(long, value_name = "FILE")]
    pub(crate) persist: Option<PathBuf>,

    /// Simulate controllers, a scheduler and nodes: workloads get pods, pods become ready, and dependents of deleted objects
    /// are deleted. Nothing runs in the pods.
    #[arg(long)]
    pub(crate) world: bool,

    /// Number of simulated nodes.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "world", value_parser = clap::value_parser!(u16).range(0..=5000))]
    pub(crate) nodes: u16,

    /// Objects to create at the start: YAML or JSON, several documents or a `List`. A file, a folder (its .json, .yaml
    /// and .yml files), or `-` for standard input. Can be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) manifests: Vec<PathBuf>,

    /// Read subfolders of folders given with -f, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Objects to create at the start: the output of `kubectl kustomize`, or else `kustomize build`, for this folder. Can be
    /// repeated. One of the two programs must be on the path.
    #[arg(short = 'k', long = "kustomize", value_name = "FOLDER")]
    pub(crate) kustomizations: Vec<PathBuf>,

    /// A fault that is active from the start, in the syntax of `steadfast fault`. Can be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<String>,
}

/// `steadfast fault`.
#[derive(Args, Debug)]
#[command(after_help = FAULT_HELP)]
pub(crate) struct FaultArgs {
    /// Faults to switch, in this order: `NAME[=VALUE][,replica=N]`. Without faults, the active ones are printed.
    #[arg(value_name = "FAULT")]
    pub(crate) faults: Vec<String>,

    /// Print all faults with their syntax and effect.
    #[arg(long)]
    pub(crate) list: bool,

    /// The kubeconfig that `serve` has written. Defaults to the files that kubectl reads.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the server. Defaults to the current context.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

const FAULT_HELP: &str = "\
A fault without replica=N affects all replicas. Faults remain active until they are switched off; `none` ends all. The \
requests that switch faults use a separate port. No fault affects this port.

Examples:
  steadfast fault lag,replica=1
  steadfast fault respond=503,resource=pods,verb=watch,times=3,retry-after=2s
  steadfast fault black-hole; sleep 20; steadfast fault none
  steadfast fault stop,replica=0; steadfast fault start,replica=0";

const SERVE_HELP: &str = "\
This is an API server and not a cluster. It has no admission, and without --world no controllers, scheduler or nodes. It \
calls no webhooks and evaluates no policies. It returns a warning if one is created, which kubectl prints.

Without --persist, all objects are lost when the server ends. With --persist, objects of -f and -k that exist already are \
left unchanged. A killed server loses at most the changes of the last second. After that, resource versions continue at a \
higher number, and clients list again. Each run has a new certificate, \
and a new port and token unless --port and --token are set.

Other entries of the kubeconfig are preserved: only the entries of --context are added, or replaced if an earlier run left \
them. When the server ends, it removes its entries, restores the previous current context, and \
removes a file that it created. Comments in a merged file are lost, as with `kubectl config`.

A deleted namespace remains `Terminating` for five seconds, as with the controller of a real cluster, and is then removed \
with its content.

Examples:
  steadfast serve -k overlays/dev
  kubectl kustomize overlays/dev | steadfast serve -f -
  steadfast serve --kubeconfig ~/.kube/config --port 6443 -f manifests/
  steadfast serve --world --persist dev.state --port 6443
  kubectl --context steadfast get pods -A -w";
