//! The program's face: every command and flag, in one table.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use steadfast_testing::Form;

use crate::failure::EXIT_CODES;
use crate::names::{Wanted, not_empty, token};

/// Keeps a view of a Kubernetes cluster true: watches that never hang up, and a server to prove it on.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch resources and print every change; never hangs up.
    Watch(WatchArgs),
    /// Act on changes: rules of a configuration say when to send what, and where to.
    Notify(NotifyArgs),
    /// Play what went wrong elsewhere against this library, over real sockets, and judge it by the contract.
    Lab(LabArgs),
    /// Run the embedded API server in the foreground, for kubectl and any other client.
    Serve(ServeArgs),
    /// Switch faults of a running `steadfast serve`: lost connections, a replica that lags, statuses instead of responses.
    Fault(FaultArgs),
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs: `watch` writes one object a line, `lab` one object.
    Json,
}

/// `steadfast watch`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_HELP)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct WatchArgs {
    /// What to watch: plural, singular, kind or short name, with version and group where needed, or one object of it;
    /// several, also with commas: `pods`, `deploy,svc`, `deployments.v1.apps`, `deploy/web`.
    #[arg(value_name = "RESOURCE[/NAME]", required_unless_present = "embedded", value_delimiter = ',')]
    pub(crate) resources: Vec<Wanted>,

    /// Wait for a kind that the server does not have yet, instead of ending with an error; what it has is watched
    /// meanwhile. `--wait` limits it.
    #[arg(long)]
    pub(crate) wait_for_kind: bool,

    /// The namespace to watch; the one of the context unless given.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty, conflicts_with = "all_namespaces")]
    pub(crate) namespace: Option<String>,

    /// Watch all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,

    /// Only objects whose labels match: `app=web,tier in (a,b),!legacy`.
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR")]
    pub(crate) labels: Option<String>,

    /// Only objects whose fields match: `status.phase=Running`.
    #[arg(long = "field-selector", value_name = "SELECTOR")]
    pub(crate) fields: Option<String>,

    /// The kubeconfig; $KUBECONFIG, ~/.kube/config or the pod's service account unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context within the kubeconfig; its current one unless given.
    #[arg(long, value_name = "NAME", value_parser = not_empty)]
    pub(crate) context: Option<String>,

    /// How to write events.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    /// With `-o json`, write the whole object too, without its `managedFields`.
    #[arg(long)]
    pub(crate) full: bool,

    /// Write times in UTC instead of this machine's time zone ($TZ, else the system's). JSON has UTC always.
    #[arg(long)]
    pub(crate) utc: bool,

    /// End after so many lines of events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) until: Option<u64>,

    /// Give up when the server cannot be reached for so long at the start; it is waited for without end unless given.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u64>,

    /// Serve `/metrics` for Prometheus, `/healthz` and `/readyz` here; port 0 takes a free one, which is reported.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Watch an embedded server with a small living fleet, to see how it looks: deployments and pods unless others are
    /// named, in all namespaces unless one is.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) embedded: bool,

    /// Cut the embedded server off for two seconds again and again, to see doubts, and what was missed.
    #[arg(long, requires = "embedded")]
    pub(crate) disturb: bool,
}

const WATCH_HELP: &str = "\
Events: + added, ~ updated, - deleted, = synced. A deletion is `observed` where the server said so, and `inferred` \
where a complete list no longer had the object. Each change is a line while no more than 1024 wait to be written; \
beyond that one line stands for several of an object and says so, `(3 changes)`, and of one that came and went there is \
none. Doubts about \
freshness go to standard error: what was printed before may not be all until the line that says `fresh again`.

With -o json, a doubt is a line of its own as well, and so is its end; behind the end is only what is newer:
  {\"time\":…,\"type\":\"Freshness\",\"resource\":\"pods\",\"namespace\":\"shop\",\"state\":\"Stale\",\"why\":…,\"doubtSeconds\":58.1}
  {\"time\":…,\"type\":\"Freshness\",\"resource\":\"pods\",\"namespace\":\"shop\",\"state\":\"Fresh\",\"why\":null,\"doubtSeconds\":60.4}
They do not count for --until.

Examples:
  steadfast watch pods
  steadfast watch deploy/web pods -n shop
  steadfast watch deploy,rs,po -n shop -l app=web -o json
  steadfast watch widgets.example.com --wait-for-kind
  steadfast watch pods -A --metrics 127.0.0.1:9090
  steadfast watch --embedded --until 20";

/// `steadfast notify`.
#[derive(Args, Debug)]
#[command(after_help = NOTIFY_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NotifyArgs {
    /// What to do instead of acting on changes.
    #[command(subcommand)]
    pub(crate) command: Option<NotifyCommand>,

    /// The configuration, TOML or YAML.
    #[arg(short = 'c', long = "config", value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,

    /// Act on an embedded server with a small living fleet, to see how it looks; for ten seconds, unless --for says
    /// otherwise.
    #[arg(long)]
    pub(crate) embedded: bool,

    /// Print what each mirror would do to be as it is wanted, in the words of its own tool, and do nothing.
    #[arg(long, conflicts_with_all = ["embedded", "lasts"])]
    pub(crate) dry_run: bool,

    /// End after so many seconds.
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) lasts: Option<u64>,

    /// Serve `/metrics` for Prometheus, `/livez`, `/readyz` and `/status` here; port 0 takes a free one, which is reported.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// How long to go on delivering what waits when requested to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) drain: u64,

    /// Name of this process in the lease of its replicas. Defaults to the host name, which is the name of the pod in a cluster.
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
}

/// What `steadfast notify` can do beside acting on changes.
#[derive(Debug, Subcommand)]
pub(crate) enum NotifyCommand {
    /// Say how things stand: rules and what they look at, sinks and what waits for them, mirrors, dead letters.
    Status {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// How it is written.
        #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },

    /// Say what is wrong with a configuration, each mistake with its place and what to do.
    Check {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Ask its clusters, too, whether they have what the rules look at.
        #[arg(long)]
        online: bool,
    },
    /// Say which rules fire for an object as it is now, what they send, and why the others do not.
    Explain {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// The object: `deploy/web`.
        #[arg(value_name = "RESOURCE/NAME")]
        object: Wanted,

        /// Its namespace; the one of the context unless given.
        #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty)]
        namespace: Option<String>,

        /// Its cluster, as the configuration calls it; the only one unless given.
        #[arg(long, value_name = "NAME", value_parser = not_empty)]
        cluster: Option<String>,

        /// Ask an embedded server with a small fleet.
        #[arg(long)]
        embedded: bool,
    },
    /// Approve removals that a mirror's guard holds back. It is an error if none is pending.
    Approve {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Only removals of this mirror.
        #[arg(value_name = "SINK")]
        sink: Option<String>,

        /// Only the removals with this ID, or the only ones whose ID begins like this. What has changed since is not approved.
        #[arg(value_name = "ID", requires = "sink")]
        id: Option<String>,
    },
    /// Print manifests of the least that the program has to be allowed: a service account, its roles and bindings.
    Rbac {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// The namespace of the service account.
        #[arg(short = 'n', long, value_name = "NAME", value_parser = not_empty, default_value = "default")]
        namespace: String,

        /// Ask an embedded server what its names mean.
        #[arg(long)]
        embedded: bool,
    },
    /// Print the JSON schema of configurations.
    Schema,
    /// Try dead letters again, each once; what is not delivered stays a dead letter.
    Redrive {
        /// The configuration, TOML or YAML.
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: PathBuf,

        /// Only those for this sink.
        #[arg(long, value_name = "NAME", value_parser = not_empty)]
        sink: Option<String>,
    },
}

const NOTIFY_HELP: &str = "\
What is sent is told by docs/notify.md, which is the guide. SIGHUP reads the configuration anew: a bad one changes nothing, \
and is told. SIGTERM and Ctrl-C end it, when what waits is delivered.

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
    /// What to play: scenarios by name, faults of the menu by number (`F4`), or `all`; unless something is named, the
    /// scenarios of the documents, which take seconds.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Explain the scenarios instead of playing them.
    #[arg(long)]
    pub(crate) list: bool,

    /// Play the faults that are named all together, as the seed says when each begins and ends; all that can be
    /// combined, unless some are named. It takes about seven minutes.
    #[arg(long, conflicts_with = "list")]
    pub(crate) together: bool,

    /// What decides all that is left to chance.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// What informers keep, and what they request: typed-json, lazy-json, typed-protobuf or lazy-protobuf.
    #[arg(long, value_name = "FORM", default_value_t = Form::default())]
    pub(crate) form: Form,

    /// How to write the outcome.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

const LAB_HELP: &str = "\
Columns: changes that the server made and a handler was to see, summed over the handlers; seen, each as itself (others \
were covered by a later one); final states lost; events told twice; events out of order; time from the fault to the \
first doubt that the informer tells, and what it may be at most, where it has to be noticed; time from the end of the fault until everything is \
there and fresh; full transfers, streamed or in pages; watches; bytes of all answers.";

/// `steadfast serve`.
#[derive(Args, Debug)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// The kubeconfig to merge a context into, which becomes its current one; made where it is not there. Without it, one
    /// of its own under the temporary folder, which is printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// What the context is called, its cluster and its user; those of further replicas have their number behind it.
    #[arg(long, value_name = "NAME", default_value = "steadfast", value_parser = not_empty)]
    pub(crate) context: String,

    /// The port of the first replica on 127.0.0.1, the others follow; 0 takes free ones.
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,

    /// How many replicas serve the one history, each with a watch cache of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) replicas: u16,

    /// The bearer token that is accepted, and written to the kubeconfig; a random one unless given. Other users of this machine
    /// can see the arguments of its programs.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(crate) token: Option<String>,

    /// Whether to serve HTTPS, with a certificate authority made at the start, or plain HTTP. Plain HTTP needs no token:
    /// kubectl and Helm send none.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) tls: bool,

    /// Objects to create at the start: YAML or JSON, several documents or a `List`; a file, a folder (its .json, .yaml
    /// and .yml), or `-` for standard input; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) manifests: Vec<PathBuf>,

    /// Look into the folders of folders that are given with -f, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Objects to create at the start: what `kubectl kustomize`, or else `kustomize build`, makes of this folder; may be
    /// repeated. One of the two has to be on the path.
    #[arg(short = 'k', long = "kustomize", value_name = "FOLDER")]
    pub(crate) kustomizations: Vec<PathBuf>,

    /// A fault that is on from the start, as `steadfast fault` takes it; may be repeated.
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<String>,
}

/// `steadfast fault`.
#[derive(Args, Debug)]
#[command(after_help = FAULT_HELP)]
pub(crate) struct FaultArgs {
    /// The faults to switch, in this order: `NAME[=VALUE][,replica=N]`. Without any, those that are on are printed.
    #[arg(value_name = "FAULT")]
    pub(crate) faults: Vec<String>,

    /// Print all faults with their syntax and effect.
    #[arg(long)]
    pub(crate) list: bool,

    /// The kubeconfig that `serve` has written; else those that kubectl reads.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the server; else the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

const FAULT_HELP: &str = "\
A fault without replica=N concerns all replicas. Faults stay on until they are switched off, or all of them by `none`. The \
requests that switch them have a port of their own, which no fault reaches.

Examples:
  steadfast fault lag,replica=1
  steadfast fault respond=503,resource=pods,verb=watch,times=3,retry-after=2s
  steadfast fault black-hole; sleep 20; steadfast fault none
  steadfast fault stop,replica=0; steadfast fault start,replica=0";

const SERVE_HELP: &str = "\
It is an API server and no cluster: no controllers, scheduler or kubelet, no admission, nothing kept. Whoever creates a \
webhook or a policy that it will not call is warned, by kubectl too.

What is in the kubeconfig stays: only the entries of --context are put in, or replaced where an earlier run left them; \
those of others are never replaced. When it ends it takes them out, sets the current context back to what it was, and \
removes a file that it made. Comments in a file that is merged into are lost, as with `kubectl config`.

A namespace that is deleted stays `Terminating` for five seconds, as with the controller of a real cluster, and goes \
with what is in it.

Examples:
  steadfast serve -k overlays/dev
  kubectl kustomize overlays/dev | steadfast serve -f -
  steadfast serve --kubeconfig ~/.kube/config --port 6443 -f manifests/
  kubectl --context steadfast get pods -A -w";
