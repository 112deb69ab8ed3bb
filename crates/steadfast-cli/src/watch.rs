//! `steadfast watch`: prints every change of some resources, one per line.
//!
//! | module | responsibility |
//! |---|---|
//! | `watched` | the watched resource, and the decoding of its events |
//! | `line` | formats an event, or a change of freshness, as one line |
//! | `text_line`, `json_line` | the two formats |
//! | `related` | the tree of owners and children of `--related` |
//! | `selection` | the watched resources, namespaces and objects |
//! | `ends` | the values of `--until` |
//! | `event_printer` | prints the events of one informer |
//! | `history`, `gate` | the changes before the start, which precede all other lines |
//! | `logs` | the logs of the watched pods |
//! | `diff_lines` | the full difference below a line |
//! | `object_format` | formats that print objects |
//! | `goal` | condition of `--until` |
//! | `owners` | chains of owners |
//! | `terminal` | width and colours of the terminal |
//! | `recreated` | recognizes objects that replace an object of the same name |
//! | `tally` | numbers of changes |
//! | `status_line` | status line at the bottom of a terminal |
//! | `printer` | thread that writes lines to standard output and counts them |
//! | `doubts` | reports doubts: start, reason and end |
//! | `readiness` | readiness and metrics for monitoring |

mod diff_lines;
mod doubts;
mod ends;
mod event_printer;
mod gate;
mod goal;
mod history;
#[cfg(test)]
mod interruption;
mod json_line;
mod line;
mod logs;
pub(crate) mod object_format;
mod owners;
mod printer;
mod readiness;
mod recreated;
pub(crate) mod related;
mod selection;
pub(crate) mod status_line;
mod tally;
pub(crate) mod terminal;
mod text_line;
pub(crate) mod watched;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use steadfast::unstable::catalog::ServedResource;
use steadfast::{Connection, InformerFactory};
use steadfast_notify::Supervisor;
use tokio::time::sleep;

use crate::changes::describe::Content;
use crate::cli::WatchArgs;
use crate::clock::Clock;
use crate::connect;
use crate::console;
use crate::discovery;
use crate::endpoint;
use crate::failure::Failure;
use crate::fleet;
use crate::kubectl_flags::ConnectionArgs;
use crate::names::ResourceArg;
use crate::output_format::OutputFormat;
use crate::signals::StopSignal;
use doubts::{Followed, ReportSink};
use ends::Ends;
use event_printer::EventPrinter;
use gate::Gate;
use goal::Goal;
use history::{History, HistorySubject};
use line::{Extras, Format, Style};
use logs::{LogSettings, PodLogs};
use object_format::ObjectFormat;
use owners::Owners;
use printer::{OutputEnd, Printer, StatusDisplay};
use readiness::WatchReadiness;
use related::{Related, Root};
use selection::{RequestedResources, scopes};
use status_line::StatusBoard;
use tally::Tallies;
use terminal::{Width, has_color, has_cursor_control};
use watched::{MAX_PENDING_EVENTS, Subject, compressed_informer};

/// Maximum wait of the tree of `--related` for a resource that cannot be listed.
const TREE_TIMEOUT: Duration = Duration::from_secs(10);

/// Watches until requested to stop.
pub(crate) async fn run(args: WatchArgs) -> Result<ExitCode, Failure> {
    selection::reject_selectors_of_named_object(&args)?;
    selection::reject_unnamed_relatives(&args)?;
    reject_unused_flags(&args)?;
    let mut stop = StopSignal::listen()?;
    // The guard is kept until after the last line, because dropping it erases the status line.
    let status = has_status(&args).then(console::enable_status);
    // The summary goes to standard error, except for JSON, which programs read.
    let is_text = args.output != OutputFormat::Json;
    let (start, tallies, ends) = (Instant::now(), Tallies::default(), Ends::of(&args.until));
    let time_limit = async {
        match ends.elapsed {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = watch(args, tallies.clone(), &ends) => ended,
        () = time_limit => Ok(ends.at_time_limit()),
        () = stop.received() => {
            drop(status);
            if is_text {
                console::report(tallies.summary(start.elapsed()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn watch(mut args: WatchArgs, tallies: Tallies, ends: &Ends) -> Result<ExitCode, Failure> {
    if args.embedded && args.resources.is_empty() {
        let all = |resource: &str| ResourceArg { resource: resource.to_owned(), object: None };
        args.resources = ["deployments", "pods"].map(all).to_vec();
    }
    let clock = Clock::choose(args.utc);
    let outage_clock = args.outages.then(|| clock.clone());
    // The value is kept until the end, because dropping it stops the embedded server.
    let fleet = if args.embedded { Some(fleet::Fleet::start(outage_clock).await?) } else { None };
    let clusters = connect(&args, fleet.as_ref()).await?;
    let followed = WatchReadiness::new(clusters.iter().map(|cluster| cluster.connection.clone()).collect());
    // The endpoint starts before the discovery, which may wait for the server. Until then, `/readyz` responds 503 with
    // the reason.
    if let Some(address) = args.metrics {
        let supervisor = Supervisor::new(Arc::new(console::report));
        endpoint::serve(address, followed.clone(), &supervisor)?;
    }
    let board = StatusBoard::new(clock.clone());
    let (printer, ended) = Printer::start(ends.events, has_status(&args).then(|| display(board.clone())));
    let style = style(&args, &clock);
    if let Some(heading) = style.heading() {
        printer.print_uncounted(heading);
    }
    let goals = ends.conditions.iter().cloned().map(Goal::new).collect();
    let output = WatchOutput { style, clock, printer, report: Arc::new(console::report), tallies, board, goals };
    let started = clusters.into_iter().enumerate().map(|(number, cluster)| {
        output.board.add_cluster();
        let session = WatchSession::new(cluster, output.clone());
        session.begin_all(&args, number, &followed, ends)
    });
    tokio::pin!(ended);
    // The sessions are kept until the end, because dropping a session stops its informers.
    let _sessions = tokio::select! {
        // The output may end while kinds are still missing: `--until` was reached, or the reader has closed the pipe.
        ended = &mut ended => return exit_code(ended),
        started = try_join_all(started) => started?,
    };
    // From here on, all resources are known.
    output.complete_goals();
    exit_code(ended.await)
}

/// A watched cluster.
struct WatchedCluster {
    /// Name of the context, if several are watched.
    context: Option<String>,
    connection: Connection,
}

/// Connects to the embedded server, or to all requested contexts.
async fn connect(args: &WatchArgs, fleet: Option<&fleet::Fleet>) -> Result<Vec<WatchedCluster>, Failure> {
    if let Some(fleet) = fleet {
        return Ok(vec![WatchedCluster { context: None, connection: fleet.connect().await? }]);
    }
    let mut contexts: Vec<Option<String>> = Vec::new();
    for context in &args.contexts {
        if !contexts.contains(&Some(context.clone())) {
            contexts.push(Some(context.clone()));
        }
    }
    if contexts.is_empty() {
        contexts.push(None);
    }
    let has_several = contexts.len() > 1;
    let mut clusters = Vec::new();
    for context in contexts {
        let (kubeconfig, flags) = (args.kubeconfig.clone(), args.kubectl.clone());
        let connection = connect::connect(ConnectionArgs { kubeconfig, context: context.clone(), flags }).await?;
        clusters.push(WatchedCluster { context: context.filter(|_| has_several), connection });
    }
    Ok(clusters)
}

/// Returns whether a status line is shown below the output. JSON has none, because programs read it.
fn has_status(args: &WatchArgs) -> bool {
    has_cursor_control() && args.output != OutputFormat::Json
}

/// Returns the status line of `board` on the terminal.
fn display(board: StatusBoard) -> StatusDisplay {
    let show = move || {
        // A terminal of unknown width could wrap the line, which the next update would not erase.
        if let Some(columns) = Width::Terminal.columns() {
            console::show_status(board.render(has_color(), columns));
        }
    };
    StatusDisplay { show: Box::new(show), hide: Box::new(console::hide_status) }
}

/// Rejects flags without effect on the output format.
fn reject_unused_flags(args: &WatchArgs) -> Result<(), Failure> {
    let is_of_lines = matches!(args.output, OutputFormat::Text | OutputFormat::Wide | OutputFormat::Json);
    for (flag, is_given) in [("--since", args.since.is_some()), ("--logs", args.logs)] {
        if is_given && !is_of_lines {
            return Err(Failure::usage(format!("{flag} needs -o text, wide or json; leave out {flag} or -o")));
        }
    }
    if matches!(args.output, OutputFormat::Text | OutputFormat::Wide) {
        return Ok(());
    }
    let flags = [
        ("--diff", args.diff),
        ("--related", args.related),
        ("--show-labels", args.show_labels),
        ("--label-columns", !args.label_columns.is_empty()),
    ];
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag} needs -o text or -o wide; leave out {flag} or -o"))),
        None => Ok(()),
    }
}

/// Returns the time at this duration before now.
fn start_of(since: Duration) -> Timestamp {
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    Timestamp::now().checked_sub(since).unwrap_or(Timestamp::MIN)
}

fn style(args: &WatchArgs, clock: &Clock) -> Style {
    let clock = clock.clone();
    let text = |state| Format::Text {
        color: has_color(),
        width: Width::of_stdout(),
        clock: clock.clone(),
        extras: Extras {
            state,
            diff: args.diff,
            label_columns: args.label_columns.clone(),
            all_labels: args.show_labels,
        },
    };
    let objects = |format| Format::Objects { format, clock: clock.clone() };
    let format = match &args.output {
        OutputFormat::Json => Format::Json { full: args.full },
        OutputFormat::Text => text(false),
        OutputFormat::Wide => text(true),
        OutputFormat::Yaml => objects(ObjectFormat::Yaml),
        OutputFormat::Name => objects(ObjectFormat::Name),
        OutputFormat::JsonPath(template) => objects(ObjectFormat::JsonPath(template.clone())),
        OutputFormat::CustomColumns(columns) => objects(ObjectFormat::CustomColumns(columns.clone())),
    };
    Style { format, content: Content { noise: args.verbose, secrets: args.show_secrets } }
}

fn exit_code<E>(ended: Result<OutputEnd, E>) -> Result<ExitCode, Failure> {
    match ended {
        Ok(OutputEnd::LimitReached | OutputEnd::PipeClosed) => Ok(ExitCode::SUCCESS),
        Ok(OutputEnd::Failed(error)) => Err(Failure::run(format!("events cannot be written: {error}"))),
        Err(_) => Err(Failure::run("the thread that writes events has ended")),
    }
}

/// Output of all watched resources. Cheap to clone.
#[derive(Clone)]
struct WatchOutput {
    style: Style,
    clock: Clock,
    printer: Printer,
    /// Receiver of reports about doubts.
    report: ReportSink,
    tallies: Tallies,
    board: StatusBoard,
    /// Conditions of `--until`.
    goals: Vec<Goal>,
}

impl WatchOutput {
    /// Completes the goals after the last resource was added, and ends the output if one is reached.
    fn complete_goals(&self) {
        if self.goals.iter().any(Goal::synced) {
            let printer = self.printer.clone();
            // Blocks while the reader is slow.
            tokio::task::spawn_blocking(move || printer.end());
        }
    }
}

/// Prints the tree after the last resource is synced, and waits for the history, which follows the tree. Without
/// `--related`, the handlers wait for the history.
async fn print_tree(related: Related, gate: Option<Gate>, printer: Printer) {
    // Blocks while the reader is slow.
    let printing = tokio::task::spawn_blocking(move || related.synced(|line| printer.print_uncounted(line)));
    if printing.await.is_err() {
        console::report("error: the tree cannot be printed; please report this as a bug");
    }
    // A blocking wait for each resource could occupy all blocking threads. The history could then not be printed.
    if let Some(gate) = gate {
        gate.until_open().await;
    }
}

/// The watched resources of a cluster.
struct WatchSession {
    factory: InformerFactory,
    cluster: WatchedCluster,
    /// Owners of the objects, if the format shows them.
    owners: Option<Owners>,
    output: WatchOutput,
    /// With `--related`, the relatives of the named objects.
    related: Option<Related>,
    /// With `--logs`, the logs of the watched pods.
    logs: Option<PodLogs>,
    /// With `--since`, the resources whose lines wait for the history. `None` after the history.
    awaiting_history: Option<Vec<HistorySubject>>,
    /// Resources that are watched already, so that repeated arguments have no effect.
    known: Vec<(ServedResource, Option<String>)>,
}

impl WatchSession {
    fn new(cluster: WatchedCluster, output: WatchOutput) -> Self {
        let factory = InformerFactory::new(&cluster.connection);
        // Unknown owners are requested from the server.
        let owners = output.style.has_owners().then(|| Owners::start(&cluster.connection));
        Self { factory, cluster, owners, output, related: None, logs: None, awaiting_history: None, known: Vec::new() }
    }

    /// Starts to watch all requested resources of the cluster with this `number`, also those that the server serves
    /// later.
    async fn begin_all(
        mut self,
        args: &WatchArgs,
        number: usize,
        followed: &WatchReadiness,
        ends: &Ends,
    ) -> Result<Self, Failure> {
        let (connection, patience) = (self.cluster.connection.clone(), args.wait.map(Duration::from_secs));
        let catalog = discovery::catalog(&connection, patience).await?;
        ends.connected();
        let RequestedResources { mut found, missing } = selection::requested_resources(args, &catalog)?;
        if args.related {
            let roots = found.iter().filter_map(|(wanted, resource)| {
                Some(Root { resource: resource.to_string(), name: wanted.object.clone()? })
            });
            let roots = roots.collect();
            found = selection::with_relatives(found, &catalog);
            let scopes = found.iter().map(|(_, resource)| scopes(args, resource, None, &connection).len());
            self.related = Some(self.start_tree(Related::new(roots, scopes.sum())));
        }
        if args.logs {
            selection::reject_logs_without_pods(&found)?;
            self.logs = Some(self.start_logs(args));
        }
        self.awaiting_history = args.since.is_some().then(Vec::new);
        if let (Some(related), true) = (&self.related, args.since.is_some()) {
            related.expect_history();
        }
        for (wanted, resource) in found {
            self.begin(args, &wanted, resource).await?;
        }
        self.start_history(args.since);
        self.output.board.cluster_started();
        let awaited = missing.iter().map(|wanted| wanted.resource.clone()).collect();
        followed.begin(number, self.factory.clone(), awaited);
        let arrived = async |wanted: ResourceArg, resource: ServedResource| {
            self.begin(args, &wanted, resource).await?;
            followed.arrived(number, &wanted.resource);
            Ok(())
        };
        discovery::await_kinds(&connection, missing, patience, arrived).await?;
        Ok(self)
    }

    /// Prints the tree of `related` after a time even if a resource cannot be listed.
    fn start_tree(&self, related: Related) -> Related {
        let (delayed, printer) = (related.clone(), self.output.printer.clone());
        tokio::spawn(async move {
            sleep(TREE_TIMEOUT).await;
            // Blocks while the reader is slow.
            tokio::task::spawn_blocking(move || delayed.print_incomplete(|line| printer.print_uncounted(line)));
        });
        related
    }

    /// Starts to watch the `wanted` objects of `resource`, unless they are watched already.
    async fn begin(&mut self, args: &WatchArgs, wanted: &ResourceArg, resource: ServedResource) -> Result<(), Failure> {
        let place = (resource, wanted.object.clone());
        if self.known.contains(&place) {
            return Ok(());
        }
        let (resource, object) = &place;
        let (context, connection) = (self.cluster.context.clone(), self.cluster.connection.clone());
        let connection = &connection;
        let columns = discovery::printer_columns(connection, resource).await;
        for scope in scopes(args, resource, object.as_deref(), connection) {
            discovery::check_selectors(connection, resource, &scope).await?;
            let (name, api_resource) = (resource.to_string(), resource.api_resource.clone());
            let subject = Subject::new(name, api_resource, scope);
            self.follow(Subject { columns: columns.clone(), context: context.clone(), ..subject })?;
        }
        self.known.push(place);
        Ok(())
    }

    /// Starts to write the logs of pods, which the handler of pods reports.
    fn start_logs(&self, args: &WatchArgs) -> PodLogs {
        let WatchedCluster { context, connection } = &self.cluster;
        let settings = LogSettings {
            containers: args.containers.clone(),
            since: start_of(args.since.unwrap_or_default()),
            max_streams: args.max_log_requests.into(),
        };
        let output = (self.output.style.clone(), self.output.printer.clone());
        PodLogs::start(connection.clone(), context.clone(), settings, self.related.clone(), output)
    }

    /// Starts to print the history of the resources that wait for it.
    fn start_history(&mut self, since: Option<Duration>) {
        let (Some(since), Some(subjects)) = (since, self.awaiting_history.take()) else { return };
        let history = History {
            connection: self.cluster.connection.clone(),
            since: start_of(since),
            style: self.output.style.clone(),
            printer: self.output.printer.clone(),
            related: self.related.clone(),
        };
        tokio::spawn(history.print(subjects));
    }

    /// Prints every change of `subject`, and every doubt about it.
    fn follow(&mut self, subject: Subject) -> Result<(), Failure> {
        let output = &self.output;
        let informer = compressed_informer(&self.factory, &subject.api_resource, subject.scope.clone());
        // Only `managedFields` show the managers of a change. In the packed form, these fields need little memory.
        let informer = informer.keep_managed_fields().start().map_err(Failure::usage)?;
        let (tally, subject, style) =
            (output.tallies.add(subject.scoped_title()), Arc::new(subject), output.style.clone());
        let initial_output = output.board.add(subject.title(), &informer, tally.clone());
        let gate = self.awaiting_history.as_ref().map(|_| Gate::default());
        if let (Some(waiting), Some(gate)) = (&mut self.awaiting_history, gate.clone()) {
            waiting.push(HistorySubject { subject: subject.clone(), informer: informer.clone(), gate });
        }
        let lines = EventPrinter {
            subject: subject.clone(),
            style: style.clone(),
            printer: output.printer.clone(),
            tally: tally.clone(),
            owners: self.owners.clone(),
            goals: output.goals.iter().map(|goal| (goal.clone(), goal.add_resource())).collect(),
            deletions: Mutex::default(),
            related: self.related.clone(),
            logs: self.logs.clone(),
            gate: gate.clone(),
        };
        let (related, logs) = (self.related.clone(), self.logs.clone());
        let goals = output.goals.clone();
        let registration = informer.handler().deliver_each(MAX_PENDING_EVENTS).add_handler(lines);
        let events = Arc::new(registration.map_err(Failure::run)?);
        let followed = Followed { subject: subject.clone(), informer: informer.clone(), events: events.clone(), tally };
        let (clock, printer, report) = (output.clock.clone(), output.printer.clone(), output.report.clone());
        doubts::follow(followed, style.clone(), clock, printer, report);
        let (lines, shown) = (output.printer.clone(), informer.clone());
        tokio::spawn(async move {
            events.until_synced().await;
            let snapshot = shown.snapshot();
            let synced = style.synced(&subject, snapshot.version(), snapshot.len());
            let synced = synced.filter(|_| related.is_none());
            let has_tree = related.is_some();
            if let Some(related) = related {
                print_tree(related, gate, lines.clone()).await;
            }
            // The line follows the initial objects, because the handler calls for all of them have returned.
            tokio::task::spawn_blocking(move || {
                if has_tree {
                    // The tree determines the related pods. Not in the task: the tree may be locked while a slow reader
                    // receives its lines.
                    logs.iter().for_each(PodLogs::check_related);
                }
                if let Some(synced) = synced {
                    lines.print(synced);
                }
                lines.flush();
                initial_output.mark_printed();
                // `count` instead of `any`: each goal must record the sync, even if an earlier goal is reached.
                if goals.iter().filter(|goal| goal.synced()).count() > 0 {
                    lines.end();
                }
            });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::gate::PrintedHistory;
    use super::*;

    /// Tokio has 512 blocking threads. More resources than threads once waited forever for the history.
    #[test]
    fn waiting_resources_occupy_no_blocking_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            let (related, gate, (printer, _lines)) =
                (Related::new(Vec::new(), 2), Gate::default(), Printer::captured());
            let waiting =
                [0, 1].map(|_| tokio::spawn(print_tree(related.clone(), Some(gate.clone()), printer.clone())));
            related.until_printed().await;
            let opening = gate.clone();
            tokio::task::spawn_blocking(move || opening.open(PrintedHistory::default())).await.expect("a history");
            for task in waiting {
                task.await.expect("a tree");
            }
        });
    }
}
