//! The running program: acts on changes until requested to stop, and reloads its configuration when requested.
//!
//! Nothing here waits for a cluster, a sink or a mirror: each one starts, runs and fails independently.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use steadfast_notify::{Engine, MirrorFeed, OpenedMirrors, Plan, Replication, Supervised, Supervisor};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

use super::cluster::{Assignment, Cluster, ClusterTask, SharedParts};
use super::connections::is_watched;
use super::follow::forget_rules;
use super::freshness::{FRESHNESS_CHECK_INTERVAL, FreshnessReporter};
use super::mirrors::Mirrors;
use super::replicas::{self, ProgressSource, Replicas, term_gate};
use super::reporter::{Components, StatusReporter};
use crate::cli::NotifyArgs;
use crate::console;
use crate::endpoint;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::signals::{GuardedStopSignal, ReloadSignal};

/// Default duration of a run with `--embedded`.
const DEFAULT_EMBEDDED_DURATION: Duration = Duration::from_secs(10);

/// Upper bound of the shutdown deadline, which prevents overflows of times.
const MAX_DRAIN: Duration = Duration::from_secs(30 * 24 * 3600);

/// Additional time for writing the summary, after the deadline of a shutdown.
const SUMMARY_GRACE: Duration = Duration::from_millis(100);

/// Reason for the shutdown.
enum ShutdownReason {
    /// A signal, or the end of `--for`.
    Finished,
    /// Standard output cannot be written to.
    OutputFailed(io::Error),
}

/// Options of the command line.
struct StartOptions {
    embedded: bool,
    metrics: Option<SocketAddr>,
    identity: Option<String>,
}

/// The running program.
struct NotifyProgram {
    file: PathBuf,
    plan: Arc<Plan>,
    stdout: Arc<dyn MessageSink>,
    shared_parts: SharedParts,
    clusters: BTreeMap<String, ClusterTask>,
    mirrors: Mirrors,
    reporter: StatusReporter,
    /// Task that reports doubts; absent during the shutdown.
    freshness_task: Option<Supervised>,
    /// Present if the configuration has replicas.
    replicas: Option<Replicas>,
}

/// Acts on changes, as the configuration specifies, until requested to stop.
pub(super) async fn run(args: NotifyArgs) -> Result<ExitCode, Failure> {
    let drain = Duration::from_secs(args.drain).min(MAX_DRAIN);
    // Installed before the start, which may take long: until then SIGHUP would end the process.
    let mut stop_signal = GuardedStopSignal::listen(drain)?;
    let mut reload_signal = ReloadSignal::listen()?;
    let file = args.config.unwrap_or_default();
    let options = StartOptions { embedded: args.embedded, metrics: args.metrics, identity: args.identity };
    let (error_sender, mut output_errors) = unbounded_channel();
    let stdout = JsonLines::new(io::stdout(), move |error| drop(error_sender.send(error)));
    let started = tokio::select! {
        biased;
        () = stop_signal.received() => return Ok(ExitCode::SUCCESS),
        program = NotifyProgram::start(file, &options, Arc::new(stdout)) => program,
    };
    let mut program = started?;
    let duration = args.lasts.map(Duration::from_secs).or(args.embedded.then_some(DEFAULT_EMBEDDED_DURATION));
    let ended = program.run_until_shutdown(&mut stop_signal, &mut reload_signal, &mut output_errors, duration).await;
    if let ShutdownReason::OutputFailed(error) = ended {
        // A closed pipe is not an error: the reader needs no further output.
        return match error.kind() {
            ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            _ => Err(Failure::run(format!("standard output cannot be written to: {error}"))),
        };
    }
    // The shutdown deadline also applies if the program ends without a signal.
    stop_signal.start_deadline();
    program.shut_down(drain, &mut stop_signal).await
}

impl NotifyProgram {
    async fn start(file: PathBuf, options: &StartOptions, stdout: Arc<dyn MessageSink>) -> Result<Self, Failure> {
        let (embedded, plan) = (options.embedded, load(&file).await?);
        let supervisor = Supervisor::new(Arc::new(console::report));
        let mut mirrors = Mirrors::new(embedded, &supervisor);
        // The lock of the state folder comes first: a second process must fail before it sends anything.
        mirrors.prepare(&plan)?;
        let reporter = StatusReporter::new(&supervisor);
        if let Some(address) = options.metrics {
            // The endpoint starts before sinks and clusters, so that `/livez` responds during a slow start.
            let address = endpoint::serve(address, reporter.clone(), &supervisor)?;
            if let Some(state) = mirrors.state() {
                state.record_address(address).map_err(Failure::run)?;
            }
        }
        let streams = plan.open_or_retry(&stdout, &(Arc::new(console::report) as Arc<_>)).await;
        let fleet = if embedded { Some(Arc::new(Fleet::start(None).await?)) } else { None };
        let progress_source = reporter.clone();
        let progress_source: ProgressSource = Arc::new(move || progress_source.progress());
        let replicas = Replicas::start(
            &plan,
            fleet.clone(),
            options.identity.clone(),
            progress_source,
            mirrors.state().cloned(),
            &supervisor,
        );
        // This precedes the start of the first mirror, because a standby must not write to any target.
        mirrors.set_gate(term_gate(replicas.as_ref()));
        let replication = replicas.as_ref().map_or_else(Replication::none, |replicas| replicas.replication().clone());
        let report_line = Arc::new(console::report);
        let engine = Engine::start_replicated(&plan, streams, seed(), supervisor.clone(), report_line, replication);
        let shared_parts = SharedParts { engine, fleet, supervisor: supervisor.clone() };
        let report_source = reporter.clone();
        let freshness_task = supervisor.spawn("freshness reports", move || check_freshness(report_source.clone()));
        let clusters = BTreeMap::new();
        let mut program = Self {
            file,
            plan,
            stdout,
            shared_parts,
            clusters,
            mirrors,
            reporter,
            freshness_task: Some(freshness_task),
            replicas,
        };
        let feeds = program.mirrors.apply_plan(&program.plan);
        program.update_clusters(&feeds);
        let (rules, sinks) = (program.plan.rules.len(), program.plan.sinks.len());
        console::report(format_args!("running {}: {rules} rules, {sinks} sinks", program.file.display()));
        Ok(program)
    }

    /// Applies the plan to all clusters. Unchanged clusters continue without interruption.
    fn update_clusters(&mut self, feeds: &BTreeMap<String, MirrorFeed>) {
        let mut previous = std::mem::take(&mut self.clusters);
        let state = self.mirrors.state().filter(|_| self.plan.has_checkpoint);
        for (name, config) in self.plan.clusters.iter().filter(|(name, _)| is_watched(&self.plan, name)) {
            let assignment = Assignment { plan: self.plan.clone(), feeds: feeds.clone() };
            // Dropping a task with other settings ends its watches. Tasks left in `previous` end with this function.
            let existing = previous.remove(name).filter(|existing| existing.has_config(config));
            let task = if let Some(existing) = existing {
                existing.assign(assignment);
                existing
            } else {
                // The feed may still have sources of a different cluster with this name.
                for feed in feeds.values() {
                    feed.set(name, Vec::new(), Some("it has not been reached yet".to_owned()));
                }
                ClusterTask::start(name, assignment, &self.shared_parts, state)
            };
            self.clusters.insert(name.clone(), task);
        }
        self.reporter.set_components(Components {
            engine: self.shared_parts.engine.clone(),
            clusters: self.clusters.values().map(|task| task.cluster().clone()).collect(),
            mirrors: self.mirrors.status_fns(),
            role: self.replicas.as_ref().map(Replicas::role),
        });
    }

    async fn run_until_shutdown(
        &mut self,
        stop_signal: &mut GuardedStopSignal,
        reload_signal: &mut ReloadSignal,
        output_errors: &mut UnboundedReceiver<io::Error>,
        duration: Option<Duration>,
    ) -> ShutdownReason {
        let elapsed = async {
            match duration {
                Some(duration) => sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(elapsed);
        loop {
            tokio::select! {
                biased;
                () = stop_signal.received() => return ShutdownReason::Finished,
                Some(error) = output_errors.recv() => return ShutdownReason::OutputFailed(error),
                () = &mut elapsed => return ShutdownReason::Finished,
                () = reload_signal.received() => {
                    tokio::select! {
                        biased;
                        () = stop_signal.received() => return ShutdownReason::Finished,
                        // A request to stop cancels the reload, which applies the plan only after its last `await`.
                        reloaded = self.reload() => {
                            if let Err(reason) = reloaded {
                                console::report(format_args!("the configuration is unchanged: {reason}"));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Reloads the configuration. Validates the whole file before any change, and does not wait for clusters, sinks or
    /// mirrors.
    async fn reload(&mut self) -> Result<(), Failure> {
        let plan = load(&self.file).await?;
        let dead_letters = |plan: &Plan| (plan.dead_letters.clone(), plan.max_dead_letters);
        // Engine and state folder take these settings at their start, and cannot change them at run time.
        if dead_letters(&plan) != dead_letters(&self.plan) {
            return Err(Failure::config("`dead_letters` can be changed by a restart only; restore its value"));
        }
        if (&plan.state_folder, plan.has_checkpoint) != (&self.plan.state_folder, self.plan.has_checkpoint) {
            return Err(Failure::config("`state` can be changed by a restart only; restore its value"));
        }
        if plan.replicas != self.plan.replicas {
            return Err(Failure::config("`replicas` can be changed by a restart only; restore its value"));
        }
        let previous = &self.plan.clusters;
        for (name, current) in &plan.clusters {
            let Some(previous) = previous.get(name).filter(|previous| previous.is_same_cluster(current)) else {
                continue;
            };
            // Informers cannot change these settings while they run.
            let settings = [
                ("audit", previous.audit != current.audit),
                ("memory_limit", previous.memory_limit != current.memory_limit),
            ];
            if let Some((setting, _)) = settings.into_iter().find(|(_, differs)| *differs) {
                let reason = "can be changed by a restart only; restore its value";
                return Err(Failure::config(format!("`clusters.{name}.{setting}` {reason}")));
            }
        }
        self.mirrors.prepare(&plan)?;
        let streams = plan.open_or_retry(&self.stdout, &(Arc::new(console::report) as Arc<_>)).await;
        // From here on, nothing is awaited: a request to stop must find either all changes applied or none.
        self.plan = plan;
        self.shared_parts.engine.apply_plan(&self.plan, streams);
        let feeds = self.mirrors.apply_plan(&self.plan);
        self.update_clusters(&feeds);
        let (rules, sinks) = (self.plan.rules.len(), self.plan.sinks.len());
        console::report(format_args!("running {}, reloaded: {rules} rules, {sinks} sinks", self.file.display()));
        Ok(())
    }

    /// Shuts down: stops the watches, delivers pending messages and stops the mirrors, concurrently and within `drain`.
    async fn shut_down(mut self, drain: Duration, stop_signal: &mut GuardedStopSignal) -> Result<ExitCode, Failure> {
        let (deadline, engine) = (Instant::now() + drain, self.shared_parts.engine.clone());
        // The reports of doubts stop first, because the end of the informers is not a doubt.
        self.freshness_task = None;
        // Attached handlers continue to deliver until the end.
        let clusters: Vec<_> = std::mem::take(&mut self.clusters).into_values().map(ClusterTask::close).collect();
        let is_stored = self.is_stored(&clusters);
        let undeliverable = async {
            // Pending messages that are not in the state folder would be lost, so all of `drain` is used.
            if !is_stored {
                std::future::pending::<()>().await;
            }
            engine.wait_until_undeliverable().await
        };
        let delivered = async {
            // Handlers deliver their pending events, and settled progress is written to the checkpoint.
            let running = clusters.iter().filter_map(|cluster| cluster.cluster_informers());
            // The leader delivers the pending messages of a standby.
            let is_standby = engine.replication().gate().permit().is_none();
            let drain = if is_standby { Duration::ZERO } else { drain };
            join_all(running.map(async |informers| informers.factory.shutdown_drained(drain).await)).await;
            engine.drain(deadline.saturating_duration_since(Instant::now())).await
        };
        let drained = async {
            tokio::select! {
                biased;
                undelivered = delivered => (undelivered, Vec::new()),
                sinks = undeliverable => (engine.drain(Duration::ZERO).await, sinks),
            }
        };
        let finished = timeout_at(deadline + SUMMARY_GRACE, join(self.mirrors.stop(deadline), drained));
        let (hanging_mirrors, (undelivered, failing_sinks)) = tokio::select! {
            biased;
            // A second request ends the program at once.
            () = stop_signal.received() => (Vec::new(), (engine.drain(Duration::ZERO).await, Vec::new())),
            finished = finished => match finished {
                Ok(finished) => finished,
                Err(_) => (Vec::new(), (engine.drain(Duration::ZERO).await, Vec::new())),
            },
        };
        // The lease is released only after the last delivery. The next leader would otherwise send concurrently.
        if let Some(replicas) = self.replicas.take() {
            replicas.stop().await;
        }
        for mirror in hanging_mirrors {
            let seconds = drain.as_secs();
            console::report(format_args!(
                "mirror {mirror}: its current action did not finish within {seconds} s; the next start compares the target"
            ));
        }
        let stats = engine.stats();
        let sum = |count: fn(&steadfast_notify::SinkStats) -> u64| stats.sinks.values().map(count).sum::<u64>();
        let (delivered, dead_letters) = (sum(|sink| sink.delivered), sum(|sink| sink.dead_letters));
        let (changes, failed) = (stats.changes, stats.failed.values().sum::<u64>());
        let unchanged = stats.unchanged;
        console::report(format_args!(
            "{changes} changes evaluated, {delivered} messages delivered, {unchanged} not resent because they were \
             unchanged, {dead_letters} dead letters, {failed} failed expressions"
        ));
        if !failing_sinks.is_empty() {
            let sinks: Vec<_> = failing_sinks.iter().map(|sink| format!("`{sink}`")).collect();
            let sinks = sinks.join(", ");
            return Err(Failure::run(format!(
                "{undelivered} messages were not delivered, because these sinks cannot be reached: {sinks}; the next start sends them"
            )));
        }
        if undelivered > 0 {
            let rest = if self.plan.has_checkpoint && self.mirrors.state().is_some() {
                "the next start sends them; --drain gives them longer"
            } else {
                "--drain gives them longer"
            };
            let reason = format!("{undelivered} messages were not delivered within {} s; {rest}", drain.as_secs());
            return Err(Failure::run(reason));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl NotifyProgram {
    /// Returns whether all pending deliveries are in the state folder.
    fn is_stored(&self, clusters: &[Arc<Cluster>]) -> bool {
        let mut is_stored = self.plan.has_checkpoint && self.mirrors.state().is_some();
        for cluster in clusters {
            cluster.visit(|watched, _| {
                is_stored = is_stored && watched.iter().all(|watched| watched.source.may_be_stored());
            });
        }
        is_stored
    }
}

/// Reports stale and fresh caches, and deletes the state of removed rules and streams, without end.
async fn check_freshness(reporter: StatusReporter) -> String {
    let mut freshness_reporter = FreshnessReporter::default();
    let mut timer = interval(FRESHNESS_CHECK_INTERVAL);
    // After a blocked runtime, the missed ticks must not follow in a burst.
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let clusters = reporter.clusters();
        freshness_reporter.check(&clusters);
        for cluster in clusters {
            cluster.visit(forget_rules);
        }
    }
}

/// Reads and validates the configuration, without queries.
async fn load(file: &Path) -> Result<Arc<Plan>, Failure> {
    let file = file.to_owned();
    // The work runs on another thread, so that neither a slow disk nor a panic affects the running parts.
    let loaded = tokio::task::spawn_blocking(move || Plan::load(&file)).await;
    let plan = loaded.map_err(|error| Failure::run(format!("reading the configuration failed: {error}")))?;
    let plan = plan.map_err(Failure::config)?;
    OpenedMirrors::check(&plan).await.map_err(Failure::config)?;
    if let Some(problem) = replicas::timing_problem(&plan) {
        return Err(Failure::config(problem));
    }
    Ok(Arc::new(plan))
}

/// Returns a random seed, so that programs that started together do not retry together.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
