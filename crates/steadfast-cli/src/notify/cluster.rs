//! Task of one cluster: connects, resolves the sources of the rules, and attaches them to the engine and the mirrors.
//!
//! Each cluster is independent of the others. A cluster that cannot be reached, or does not serve a resource yet, is
//! reported once and retried with backoff. A reload first applies with the catalog that is already known, and then the
//! cluster is queried again.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::unstable::catalog::{Catalog, ServedResource, fetch_catalog};
use steadfast::{Checkpoint, Connection};
use steadfast_notify::{
    ClusterInformers, Engine, MirrorFeed, Plan, StateFolder, Supervised, Supervisor, config, forget_watermarks,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connections::{
    MissingResource, ResolvedSource, cluster_informers, connection, reject_invalid_selectors, resolve,
};
use super::follow::{WatchedSource, input_sources, watch_sources};
use crate::connect::{RequestFailure, classify};
use crate::console;
use crate::fleet::Fleet;

/// Delay before the second attempt to reach a cluster or find a resource. The delay doubles with each further attempt.
const RETRY_INITIAL_DELAY: Duration = Duration::from_millis(250);

/// Longest delay between two attempts.
const RETRY_MAX_DELAY: Duration = Duration::from_secs(10);

/// Timeout of one discovery of a cluster's resources.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which a credential plugin that is still running is reported.
const SLOW_CONNECT: Duration = Duration::from_secs(10);

/// Assignment of a cluster: the plan and the feeds of its mirrors. A reload replaces it.
#[derive(Clone)]
pub(super) struct Assignment {
    pub(super) plan: Arc<Plan>,
    /// Feeds of the mirrors, by mirror name.
    pub(super) feeds: BTreeMap<String, MirrorFeed>,
}

/// Parts of the program that all clusters share.
#[derive(Clone)]
pub(super) struct SharedParts {
    pub(super) engine: Engine,
    /// The embedded server. If present, it replaces all clusters.
    pub(super) fleet: Option<Arc<Fleet>>,
    pub(super) supervisor: Supervisor,
}

/// Running task of a cluster. Dropping it ends all its watches.
pub(super) struct ClusterTask {
    cluster: Arc<Cluster>,
    assignment: watch::Sender<Assignment>,
    _task: Supervised,
}

impl ClusterTask {
    /// Starts the task for the cluster `name` of the plan. `state` is the folder for the checkpoints of its caches.
    pub(super) fn start(
        name: &str,
        assignment: Assignment,
        shared_parts: &SharedParts,
        state: Option<&Arc<StateFolder>>,
    ) -> Self {
        let config = assignment.plan.clusters.get(name).cloned().unwrap_or_default();
        let cluster = Arc::new(Cluster {
            name: name.to_owned(),
            config,
            shared_parts: shared_parts.clone(),
            state: state.cloned(),
            data: Mutex::default(),
            #[cfg(test)]
            remaining_panics: AtomicU32::new(0),
        });
        let (assignment, receiver) = watch::channel(assignment);
        let running = cluster.clone();
        let task =
            shared_parts.supervisor.spawn(format!("cluster {name}"), move || running.clone().run(receiver.clone()));
        Self { cluster, assignment, _task: task }
    }

    /// Returns the cluster, for status reports.
    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Returns whether the task runs with the settings in `config`.
    pub(super) fn has_config(&self, config: &config::ClusterConfig) -> bool {
        self.cluster.config == *config
    }

    /// Replaces the assignment after a reload.
    pub(super) fn assign(&self, assignment: Assignment) {
        self.assignment.send_replace(assignment);
    }

    /// Stops attaching sources. Attached sources stay until the cluster is dropped, since their handlers still have to
    /// be drained.
    pub(super) fn close(self) -> Arc<Cluster> {
        self.cluster.data().is_closing = true;
        self.cluster.clone()
    }
}

impl Drop for ClusterTask {
    fn drop(&mut self) {
        let mut data = self.cluster.data();
        if !data.is_closing {
            data.is_closing = true;
            let dropped_sources = std::mem::take(&mut data.watched_sources);
            drop(data);
            // The handlers are dropped without the lock: their destructors may call back into this cluster.
            drop(dropped_sources);
        }
    }
}

/// A cluster with its connection, catalog and watched sources.
pub(super) struct Cluster {
    name: String,
    config: config::ClusterConfig,
    shared_parts: SharedParts,
    state: Option<Arc<StateFolder>>,
    data: Mutex<ClusterData>,
    /// Remaining number of panics to inject.
    #[cfg(test)]
    remaining_panics: AtomicU32,
}

/// State that survives a restart of the cluster's task.
#[derive(Default)]
struct ClusterData {
    link: Option<ClusterLink>,
    catalog: Option<Arc<Catalog>>,
    /// Resources found in earlier catalogs, by name. An API group that is unavailable now must not end a watch.
    known_resources: BTreeMap<String, ServedResource>,
    watched_sources: Vec<WatchedSource>,
    /// Reason why the cluster cannot be reached, and start of the outage.
    outage: Option<(String, Instant)>,
    missing: Vec<MissingResource>,
    /// Set after the first attachment of the rules.
    is_attached: bool,
    /// Set on shutdown: no further source is attached.
    is_closing: bool,
}

#[derive(Clone)]
struct ClusterLink {
    connection: Connection,
    cluster_informers: ClusterInformers,
}

/// State of a cluster, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterStatus {
    pub(super) name: String,
    pub(super) state: ClusterState,
    pub(super) missing: Vec<MissingResource>,
}

/// Connection state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterState {
    /// No response and no failure yet.
    Connecting,
    /// The cluster cannot be reached, or its kubeconfig is invalid.
    Unreachable { reason: String, since: Duration },
    /// Some resources that rules watch are missing.
    Incomplete,
    /// All watched resources are attached. Each cache reports its freshness separately.
    Watching,
}

impl ClusterState {
    /// Returns the name of the state in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Unreachable { .. } => "unreachable",
            Self::Incomplete => "incomplete",
            Self::Watching => "watching",
        }
    }
}

impl Cluster {
    fn data(&self) -> MutexGuard<'_, ClusterData> {
        // A panic under this lock cannot leave lasting damage: the next pass replaces the state.
        self.data.lock()
    }

    /// Returns the state of the cluster.
    pub(super) fn status(&self) -> ClusterStatus {
        let data = self.data();
        let state = match &data.outage {
            Some((reason, since)) => ClusterState::Unreachable { reason: reason.clone(), since: since.elapsed() },
            None if !data.missing.is_empty() => ClusterState::Incomplete,
            None if data.is_attached => ClusterState::Watching,
            None => ClusterState::Connecting,
        };
        ClusterStatus { name: self.name.clone(), state, missing: data.missing.clone() }
    }

    /// Returns the connection, or `None` before the first successful attempt.
    pub(super) fn connection(&self) -> Option<Connection> {
        self.data().link.as_ref().map(|link| link.connection.clone())
    }

    /// Returns the informers with their watch settings, or `None` before the first connection.
    pub(super) fn cluster_informers(&self) -> Option<ClusterInformers> {
        self.data().link.as_ref().map(|link| link.cluster_informers.clone())
    }

    /// Calls `visit` with all watched sources, and with the names of the rules that are incomplete.
    pub(super) fn visit(&self, visit: impl FnOnce(&[WatchedSource], &[&str])) {
        let data = self.data();
        let incomplete: Vec<&str> = data.missing.iter().map(|missing| missing.rule.as_str()).collect();
        visit(&data.watched_sources, &incomplete);
    }

    async fn run(self: Arc<Self>, mut assignment: watch::Receiver<Assignment>) -> String {
        let link = self.wait_for_link(&assignment).await;
        let (mut delay, mut is_new_assignment) = (RETRY_INITIAL_DELAY, true);
        loop {
            // Marks the assignment as seen before the work starts, so that a reload during the work wakes the `select`
            // below.
            let current = assignment.borrow_and_update().clone();
            let cached_catalog = self.data().catalog.clone();
            if let Some(catalog) = cached_catalog.filter(|_| is_new_assignment) {
                // A reload does not wait for the cluster.
                self.attach(&current, &link, &catalog).await;
            }
            let is_complete = match self.discover(&link).await {
                Ok(catalog) => {
                    self.data().catalog = Some(catalog.clone());
                    self.attach(&current, &link, &catalog).await
                }
                Err(reason) => {
                    let is_attached = self.data().is_attached && self.data().missing.is_empty();
                    // All sources are attached, so they do not need the catalog. Their caches report the unreachable
                    // server.
                    if is_attached {
                        self.report_recovery();
                    } else {
                        self.report_outage(&reason);
                    }
                    is_attached
                }
            };
            let retry = async {
                if is_complete {
                    std::future::pending::<()>().await;
                } else {
                    sleep(jittered(delay)).await;
                }
            };
            tokio::select! {
                changed = assignment.changed() => {
                    if changed.is_err() {
                        // The program drops this task next.
                        return std::future::pending().await;
                    }
                    (delay, is_new_assignment) = (RETRY_INITIAL_DELAY, true);
                }
                () = retry => (delay, is_new_assignment) = ((delay * 2).min(RETRY_MAX_DELAY), false),
            }
        }
    }

    /// Connects, with retries: a missing or invalid kubeconfig may be corrected later.
    async fn wait_for_link(&self, assignment: &watch::Receiver<Assignment>) -> ClusterLink {
        let mut delay = RETRY_INITIAL_DELAY;
        loop {
            // A restarted task reuses the connection of its predecessor, whose informers are still running.
            if let Some(link) = self.data().link.clone() {
                return link;
            }
            let plan = assignment.borrow().plan.clone();
            match self.connect(&plan).await {
                Ok(link) => {
                    self.data().link = Some(link);
                    continue;
                }
                Err(reason) => self.report_outage(&reason),
            }
            sleep(jittered(delay)).await;
            delay = (delay * 2).min(RETRY_MAX_DELAY);
        }
    }

    async fn connect(&self, plan: &Plan) -> Result<ClusterLink, String> {
        let connecting = connection(plan, &self.config, self.shared_parts.fleet.as_deref());
        tokio::pin!(connecting);
        let connection = loop {
            if let Ok(connected) = timeout(SLOW_CONNECT, &mut connecting).await {
                break connected;
            }
            // The call is not repeated: a running plugin cannot be cancelled, so each attempt would block another
            // thread.
            let seconds = SLOW_CONNECT.as_secs();
            self.report_outage(&format!("its credentials were not ready within {seconds} s; see its kubeconfig"));
        };
        let problem = |reason: String| plan.problem_with_cluster(&self.name, reason).to_string();
        let connection = connection.map_err(|reason| problem(reason.to_string()))?;
        let mut cluster_informers = cluster_informers(&connection, &self.config);
        if let Some(state) = &self.state {
            let file = state.checkpoint_of(&self.name, &self.config);
            // Opening reads and validates the whole file.
            let opened = tokio::task::spawn_blocking(move || Checkpoint::open(file)).await;
            let opened = opened.map_err(|error| error.to_string())?;
            cluster_informers.checkpoint = Some(opened.map_err(|error| error.to_string())?);
            cluster_informers.watermark_folder = Some(state.watermark_folder().to_owned());
        }
        Ok(ClusterLink { connection, cluster_informers })
    }

    async fn discover(&self, link: &ClusterLink) -> Result<Arc<Catalog>, String> {
        #[cfg(test)]
        self.inject_panic();
        let server = link.connection.server();
        let response = timeout(DISCOVERY_TIMEOUT, fetch_catalog(&link.connection.client())).await;
        match response {
            Ok(Ok(catalog)) => Ok(Arc::new(catalog)),
            Ok(Err(error)) => Err(match classify(server, &error) {
                RequestFailure::Transient(reason) => reason,
                RequestFailure::Permanent(failure) => failure.to_string(),
            }),
            Err(_) => Err(format!("{server} did not list its resources within {} s", DISCOVERY_TIMEOUT.as_secs())),
        }
    }

    /// Resolves the sources of the rules with `catalog`. Attaches the resolved sources to the engine and the mirrors.
    /// Returns whether no source is missing.
    async fn attach(&self, assignment: &Assignment, link: &ClusterLink, catalog: &Catalog) -> bool {
        let Assignment { plan, feeds } = assignment;
        let known_resources = self.data().known_resources.clone();
        let find = |name: &str| catalog.find(name).or_else(|reason| known_resources.get(name).cloned().ok_or(reason));
        let (resolved, mut missing) = resolve(plan, &self.name, find);
        // Only new sources must be validated.
        let (already_watched, new_sources): (Vec<ResolvedSource>, Vec<ResolvedSource>) = {
            let data = self.data();
            resolved.into_iter().partition(|resolved_source| {
                data.watched_sources.iter().any(|watched| watched.source == resolved_source.source)
            })
        };
        let new_sources = reject_invalid_selectors(plan, &link.connection, new_sources, &mut missing).await;
        // The lock is taken only after the last request: a slow server must not block status reports.
        let mut data = self.data();
        // The shutdown may have started during the request above. A source attached now would never be drained.
        if data.is_closing {
            return true;
        }
        let lookup_resources = already_watched
            .iter()
            .chain(&new_sources)
            .flat_map(|resolved_source| resolved_source.lookup_resources.clone());
        let watched_now = already_watched
            .iter()
            .chain(&new_sources)
            .map(|resolved_source| (resolved_source.name.clone(), resolved_source.served_resource.clone()));
        // The list is rebuilt in each pass, so that resources of removed rules do not accumulate.
        data.known_resources = lookup_resources.chain(watched_now).collect();
        let sources = already_watched.into_iter().chain(new_sources).map(|resolved_source| resolved_source.source);
        // `watch_sources` consumes the old list. The lock hides the empty list from reports.
        let previous_sources = std::mem::take(&mut data.watched_sources);
        let (watched_sources, failed) =
            watch_sources(plan, &link.cluster_informers, &self.shared_parts.engine, previous_sources, sources);
        if let Some(folder) = &link.cluster_informers.watermark_folder {
            forget_watermarks(folder, plan);
        }
        for (source, reason) in failed {
            let problem = plan.problem_with_cluster(&self.name, format!("{}: {reason}", source.resource_name()));
            missing.push(MissingResource { rule: source.rule.clone(), resource: source.resource_name(), problem });
        }
        let sources: Vec<_> = watched_sources.iter().map(|watched| watched.source.clone()).collect();
        for (mirror, feed) in feeds {
            let feeds_mirror = |missing: &&MissingResource| {
                plan.rule(&missing.rule).is_some_and(|rule| plan.mirrors_of(&rule.config).any(|name| name == mirror))
            };
            let reason = missing.iter().find(feeds_mirror).map(|missing| missing.problem.description.clone());
            feed.set(&self.name, input_sources(plan, mirror, &link.cluster_informers, &sources), reason);
        }
        data.watched_sources = watched_sources;
        data.is_attached = true;
        let previous_missing = std::mem::replace(&mut data.missing, missing.clone());
        drop(data);
        // The lock is released: reports write to standard error, which may block.
        self.report_recovery();
        self.report(&previous_missing, &missing);
        missing.is_empty()
    }

    /// Reports resources that have become missing, and those that have been found.
    fn report(&self, previous: &[MissingResource], current: &[MissingResource]) {
        for MissingResource { problem, .. } in current.iter().filter(|missing| !previous.contains(missing)) {
            let retry = RETRY_MAX_DELAY.as_secs();
            console::report(format_args!("{problem}; checked again at least every {retry} s, everything else runs"));
        }
        for MissingResource { rule, resource, .. } in previous {
            // The text of the problem is not compared: a changed reason does not mean that the resource was found.
            let is_still_missing = current.iter().any(|missing| (&missing.rule, &missing.resource) == (rule, resource));
            if !is_still_missing {
                console::report(format_args!("cluster {}: rule {rule} watches {resource} now", self.name));
            }
        }
    }

    fn report_outage(&self, reason: &str) {
        let mut data = self.data();
        // A new cause does not start a new outage: the reported time without a connection counts from the first
        // failure.
        let since = data.outage.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        let is_new = data.outage.as_ref().is_none_or(|(reported, _)| reported != reason);
        data.outage = Some((reason.to_owned(), since));
        drop(data);
        if is_new {
            let name = &self.name;
            console::report(format_args!(
                "cluster {name}: unreachable: {reason}; retried, other clusters are not affected"
            ));
        }
    }

    fn report_recovery(&self) {
        let before = self.data().outage.take();
        if let Some((_, since)) = before {
            let seconds = since.elapsed().as_secs_f64();
            console::report(format_args!("cluster {}: reached after {seconds:.1} s", self.name));
        }
    }
}

/// Spreads delays by a quarter, so that programs that started together do not retry together.
fn jittered(delay: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8) % 1000;
    delay.mul_f64(0.75 + random as f64 / 4000.0)
}

#[cfg(test)]
impl Cluster {
    fn inject_panic(&self) {
        use std::sync::atomic::Ordering;
        let remaining =
            self.remaining_panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        assert!(remaining.is_err(), "injected");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use steadfast_notify::engine_event::EngineEvent;
    use steadfast_notify::sink::MessageSink;
    use steadfast_notify::sink::stdout::JsonLines;

    use super::*;

    const CONFIGURATION: &str = "state = {checkpoint = false}\n[sinks.log.stdout]\n[[rules]]\nname = \"pods\"\n\
        resources = [\"pods\"]\ninitial = true\nto = [\"log\"]\n[[rules]]\nname = \"widgets\"\n\
        resources = [\"widgets\"]\nto = [\"log\"]\n";

    struct Fixture {
        task: ClusterTask,
        engine: Engine,
        engine_events: Arc<Mutex<Vec<EngineEvent>>>,
    }

    impl Fixture {
        async fn start() -> Self {
            let plan = Arc::new(Plan::read("x.toml", CONFIGURATION).unwrap_or_else(|problems| panic!("{problems}")));
            let stdout: Arc<dyn MessageSink> = Arc::new(JsonLines::new(std::io::sink(), |_| {}));
            let streams = plan.open(&stdout).await.unwrap_or_else(|problems| panic!("{problems}"));
            let engine = Engine::start(&plan, streams, 0, |_| {});
            let engine_events = Arc::<Mutex<Vec<EngineEvent>>>::default();
            let event_log = engine_events.clone();
            let supervisor = Supervisor::new(Arc::new(move |event| event_log.lock().push(event)));
            let fleet = Fleet::start(None).await.unwrap_or_else(|failure| panic!("{failure}"));
            let shared_parts = SharedParts { engine: engine.clone(), fleet: Some(Arc::new(fleet)), supervisor };
            let assignment = Assignment { plan, feeds: BTreeMap::new() };
            Self { task: ClusterTask::start("default", assignment, &shared_parts, None), engine, engine_events }
        }

        async fn wait_until(&self, description: &str, condition: impl Fn(&Self) -> bool) {
            let started = Instant::now();
            while !condition(self) {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "{description}: {:?}",
                    self.task.cluster().status()
                );
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn missing_resource_leaves_other_rules_running() {
        let fixture = Fixture::start().await;
        fixture.wait_until("pods are delivered", |fixture| fixture.engine.stats().messages > 0).await;
        let ClusterStatus { state, missing, .. } = fixture.task.cluster().status();
        assert_eq!(state, ClusterState::Incomplete);
        assert_eq!((missing.len(), &*missing[0].rule, &*missing[0].resource), (1, "widgets", "widgets"));
        assert!(missing[0].problem.to_string().starts_with("x.toml:10:14: "), "{}", missing[0].problem);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panicking_cluster_task_is_restarted() {
        let fixture = Fixture::start().await;
        fixture.task.cluster().remaining_panics.store(2, Ordering::Relaxed);
        let panic_count = |fixture: &Fixture| {
            let engine_events = fixture.engine_events.lock();
            let is_ours = |event: &&EngineEvent| {
                matches!(event, EngineEvent::TaskEnded { task, reason, .. }
                    if task == "cluster default" && reason == "panicked: injected")
            };
            engine_events.iter().filter(is_ours).count()
        };
        fixture.wait_until("two panics", |fixture| panic_count(fixture) == 2).await;
        let before = fixture.engine.stats().messages;
        fixture.wait_until("deliveries continue", |fixture| fixture.engine.stats().messages > before).await;
        fixture
            .wait_until("it is queried again", |fixture| {
                fixture.task.cluster().status().state == ClusterState::Incomplete
            })
            .await;
    }
}
