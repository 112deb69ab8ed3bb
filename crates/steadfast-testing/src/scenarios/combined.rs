//! Several concurrent faults. A seed selects the writes, the start and end of each fault, the affected replica, and the
//! replica that responds.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steadfast::transport::Settings;
use steadfast::{Diagnostic, InformerFactory, Lazy, ReflectorSettings, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_contract::Bounds;
use steadfast_core::random::Random;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::catalog_fault::CatalogFault;
use super::fault_injector::{NAME_COUNT, OBJECT_LIMIT_BYTES, inject, is_switch, object_name};
use super::findings::{Cost, ScenarioFindings};
use super::scenario_run::{NAMESPACE, NetworkPath, REACTION_TIMEOUT, until};
use super::target::ScenarioTarget;
use super::timeline::Timeline;
use super::unread::{self, UnreadWatches};
use crate::TestkitError;
use crate::{CachedConfigMap, EventRecording, Recorder, history, labelled_config_map};

const REPLICAS: usize = 2;
/// Number of steps: writes, faults, pauses.
const STEPS: usize = 60;
/// Duration of more than two periods, in which a lag or a freeze is detected and repaired.
const REPAIR_WAIT: Duration = Duration::from_secs(200);

/// Maximum time until data that a client does not read is sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Name of the object that is written last.
const LAST_OBJECT: &str = "last";

/// Faults that are not switches. They occur in each run, or the seed selects them.
const SEEDED_FAULTS: [CatalogFault; 3] =
    [CatalogFault::HistoryRestored, CatalogFault::SelectorChurn, CatalogFault::SlowReader];

/// Result of several concurrent faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CombinedFindings {
    /// Findings of the run. The time until a fault is noticed depends on the other faults, so it has no bound. At the
    /// end of the run, unread responses must not delay other streams.
    pub findings: ScenarioFindings,
    /// Log of the injected faults and writes with their times, one per line.
    pub log: String,
    /// Recorded trace, one record per line, for the analysis of a failed seed.
    pub trace: String,
    /// Number of delta relists that found differing objects.
    pub differences: usize,
}

/// Run under faults that depends only on a seed.
struct CombinedRun {
    random: Random,
    server: ApiServer,
    recorder: Recorder,
    /// Revision of the server before the first write. Its namespaces exist since then.
    first_revision: u64,
    path: NetworkPath,
    /// Time of the network's creation, on the clock of the server.
    network_start: Duration,
    /// Faults that are switched. If `restores`, the history may also be restored.
    faults: Vec<CatalogFault>,
    restores: bool,
    /// True if a client may leave responses unread.
    leaves_unread: bool,
    /// Clients that may leave responses unread, and the unread responses of each.
    clients: Vec<kube::Client>,
    unread: Vec<Option<JoinHandle<()>>>,
    /// Maximum pause between two steps, in milliseconds.
    max_pause_millis: u64,
    log: String,
}

/// Runs `faults` together, as the seed of the target selects. An empty list means all switches of the catalog. Four
/// informers of two clients observe the run. For every other seed, two of the informers have additional handlers:
/// with a filter, and with delivery of each event. The checker checks the records of each observer.
///
/// In real time, a run takes about seven minutes.
///
/// # Errors
///
/// Returns an error if one of `faults` cannot be combined with others, or if the run could not continue.
pub async fn run_combined(target: &ScenarioTarget, faults: &[CatalogFault]) -> Result<CombinedFindings, TestkitError> {
    if target.form.lazy {
        run_with_form::<Lazy<ConfigMap>>(target, faults).await
    } else {
        run_with_form::<ConfigMap>(target, faults).await
    }
}

/// Selects the same objects as the label selector `app=web`.
fn is_web<K: CachedConfigMap>(object: &K) -> bool {
    object.labels().unwrap_or_default().get("app").is_some_and(|app| app == "web")
}

async fn run_with_form<K: CachedConfigMap>(
    target: &ScenarioTarget,
    faults: &[CatalogFault],
) -> Result<CombinedFindings, TestkitError> {
    let start = Instant::now();
    let mut run = CombinedRun::prepare(target, faults).await?;
    for _ in 0..run.pick(10) {
        run.write();
    }
    // The recordings keep the informers alive until the end of the run.
    let mut recordings = Vec::new();
    let differences = Arc::new(AtomicUsize::new(0));
    // The choice does not use the random generator, so that a seed has the same history with and without the filter.
    let has_filter = target.seed.is_multiple_of(2);
    // This choice does not use the generator either. It must not depend on the remainders of the seed, which select
    // forms and faults.
    let uses_delta_relists = Random::new(!target.seed).fraction() < 0.75;
    // Unread responses are large and cost time, so they are rare.
    let leaves_unread = run.leaves_unread && run.chance(4);
    if leaves_unread {
        unread::create_large_secrets(&run.server)?;
    }
    for client in 0..2 {
        let http1 = !run.chance(2);
        let settings = Settings { prior_knowledge: target.in_memory && !http1, ..Settings::default() };
        // Clients need different jitter, while each seed must reproduce the run.
        let seed = target.seed.wrapping_mul(31).wrapping_add(client);
        let connection = run.path.connect(&run.server, seed, settings).await?;
        // These values suit the small number of objects, and let the effect of a fault expire soon.
        let reflector = ReflectorSettings {
            delta_relists: Some(uses_delta_relists),
            delta_min_objects: 1,
            delta_objects_per_difference: 1,
            paged_list_period: Duration::from_secs(60),
            ..ReflectorSettings::default()
        };
        let factory = InformerFactory::with_settings(&connection, reflector);
        if leaves_unread {
            run.clients.push(connection.client());
            run.unread.push(None);
        }
        for scope in [Scope::all(), Scope::namespace(NAMESPACE).labels("app=web")] {
            let name = format!("client {client}, {scope}");
            let (is_paged, page) = (run.chance(3), 2 + run.pick(4) as u32);
            let builder = factory.builder::<K>(scope).streamed_lists(!is_paged).page_size(Some(page));
            let builder = builder.object_limit(OBJECT_LIMIT_BYTES).protobuf(target.form.protobuf);
            let informer = builder.decode_on_demand_above(target.decode_on_demand_above()).start()?;
            let counter = differences.clone();
            informer.on_diagnostic(move |diagnostic| {
                let differed = matches!(diagnostic, Diagnostic::Relisted { fetched: Some(1..), .. });
                // A relist that fetched at least one object has found a difference.
                counter.fetch_add(usize::from(differed), Ordering::Relaxed);
            });
            recordings.push(run.recorder.record_as(&informer, &name));
            if has_filter && informer.scope() == &Scope::all() {
                // The filter must select the same objects for its handler as a selector for its informer, regardless of
                // faults of the stream.
                let (scope, name) = (Scope::all().labels("app=web"), format!("client {client}, filtered"));
                recordings.push(run.recorder.record_filtered(&informer, &name, &scope, is_web::<K>));
                let name = format!("client {client}, one by one");
                recordings.push(run.recorder.record_with_options(&informer, &name, |handler| handler.deliver_each(3)));
            }
        }
    }
    for step in 0..STEPS {
        // The versions expire halfway, when objects exist and enough steps follow.
        if uses_delta_relists && step == STEPS / 2 {
            run.expire().await;
        }
        // The probabilities favour writes and pauses. Faults are rarer, as each one lasts for several steps.
        match run.pick(6) {
            0 => run.inject(),
            1 => run.wait(run.max_pause_millis).await,
            2 => run.wait(200).await,
            // A restore takes twice the repair time, so it is rare.
            3 if run.chance(20) && run.restores => run.restore().await,
            4 if leaves_unread && run.chance(4) => {
                let client = run.pick(2) as usize;
                run.leave_unread(client);
            }
            _ => run.write(),
        }
    }
    // All faults end before the final check, which requires convergence.
    run.heal();
    if has_filter {
        run.rewrite();
    }
    sleep(REPAIR_WAIT).await;
    let mut unmet = Vec::new();
    if leaves_unread {
        for client in 0..run.clients.len() {
            run.leave_unread(client);
        }
        sleep(SEND_TIMEOUT).await;
        run.server.create(&labelled_config_map(LAST_OBJECT, "1", ("app", "web")))?;
        let has_last_object = |recording: &EventRecording<K>| {
            recording.informer().snapshot().entry(Some(NAMESPACE), LAST_OBJECT).is_some()
        };
        // Unread responses must not take flow-control credit from other streams of the connection.
        if until(REACTION_TIMEOUT, || recordings.iter().all(has_last_object)).await.is_none() {
            unmet.push(format!("next to unread responses, a change did not arrive within {REACTION_TIMEOUT:?} (C8)"));
        }
    }
    run.recorder.settle_at(&run.server.revision().to_string(), Duration::from_secs(120)).await;

    let trace = run.recorder.trace();
    // A lagging replica is one of the injected faults, so the freshness bound does not apply.
    let bounds = Bounds { lag: Duration::from_secs(600), ..Bounds::default() };
    let report = bounds.report(&history(&run.server, "", "configmaps")?, &trace);
    let requests = run.server.request_counts();
    let cost = Cost::between(&steadfast_apiserver::RequestCounts::default(), &requests);
    let (detection, recovery, took) = (None, None, start.elapsed());
    let timelines = vec![Timeline::new(&run.server, &trace, run.path.network(), run.network_start)];
    let findings = ScenarioFindings { report, unmet, detection, recovery, requests, cost, took, timelines };
    let lines = trace.entries().iter().map(|entry| format!("{:?} {:?}\n", entry.at, entry.record));
    let differences = differences.load(Ordering::Relaxed);
    Ok(CombinedFindings { findings, log: run.log, trace: lines.collect(), differences })
}

impl CombinedRun {
    async fn prepare(target: &ScenarioTarget, faults: &[CatalogFault]) -> Result<Self, TestkitError> {
        let mut random = Random::new(target.seed);
        let builder = ApiServer::builder()
            .replicas(REPLICAS)
            .seed(target.seed)
            .protobuf(target.form.protobuf)
            .bookmark_period(Duration::from_secs(10 + random.draw() % 60))
            .watch_timeout(Duration::from_secs(120)..Duration::from_secs(240));
        let server = if target.in_memory { builder.in_memory() } else { builder.tls(true) }.start().await?;
        let cannot_combine = |fault: &&CatalogFault| !is_switch(**fault) && !SEEDED_FAULTS.contains(fault);
        if let Some(fault) = faults.iter().find(cannot_combine) {
            return Err(format!("{fault} ({}) runs alone and cannot be combined with others", fault.title()).into());
        }
        let selected = if faults.is_empty() { &CatalogFault::ALL[..] } else { faults };
        let switches = selected.iter().copied().filter(|fault| is_switch(*fault)).collect();
        let restores = selected.contains(&CatalogFault::HistoryRestored);
        let leaves_unread = selected.contains(&CatalogFault::SlowReader);
        let recorder = Recorder::of(&server);
        let network_start = server.elapsed();
        let path = NetworkPath::to_server(&server, target, true)?;
        // The pause is shorter in real time, where pauses of 40 s would dominate the duration of the run.
        let max_pause_millis = if target.in_memory { 40_000 } else { 10_000 };
        let (clients, log, first_revision) = (Vec::new(), String::new(), server.revision());
        Ok(Self {
            random,
            server,
            recorder,
            first_revision,
            path,
            network_start,
            faults: switches,
            restores,
            leaves_unread,
            clients,
            unread: Vec::new(),
            max_pause_millis,
            log,
        })
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.draw().is_multiple_of(one_in)
    }

    fn pick(&mut self, bound: u64) -> u64 {
        self.random.draw() % bound
    }

    async fn wait(&mut self, bound: u64) {
        let wait = Duration::from_millis(self.pick(bound));
        sleep(wait).await;
    }

    /// Writes once. Most writes use few names, so that objects are recreated, enter a selector and leave it.
    fn write(&mut self) {
        let object = object_name(self.pick(NAME_COUNT));
        let value = self.pick(1_000_000).to_string();
        let label = if self.chance(2) { "web" } else { "db" };
        let exists = self.server.get("configmaps", NAMESPACE, &object).is_ok();
        // The random number is drawn in any case, so that the sequence of random numbers does not depend on the
        // state.
        let result = match (exists, self.pick(5)) {
            (false, _) => self.server.create(&labelled_config_map(&object, &value, ("app", label))),
            (true, 0) => self.server.delete_named("configmaps", NAMESPACE, &object),
            (true, 1) => {
                let deleted = self.server.delete_named("configmaps", NAMESPACE, &object);
                deleted.and_then(|_| self.server.create(&labelled_config_map(&object, &value, ("app", label))))
            }
            (true, _) => {
                let patch = json!({ "metadata": { "labels": { "app": label } }, "data": { "value": value } });
                self.server.merge_patch("configmaps", NAMESPACE, &object, patch)
            }
        };
        // A frozen etcd rejects writes, which is part of the history.
        let _ = writeln!(self.log, "{:?} write {object}: {}", self.server.elapsed(), result.is_ok());
    }

    /// Writes each object once more. An undecodable object may have left a filter, and only its next state shows
    /// this.
    fn rewrite(&mut self) {
        for name in (0..NAME_COUNT).map(object_name) {
            let patch = json!({ "data": { "value": "rewritten" } });
            let result = self.server.merge_patch("configmaps", NAMESPACE, &name, patch);
            let _ = writeln!(self.log, "{:?} rewrite {name}: {}", self.server.elapsed(), result.is_ok());
        }
    }

    /// Starts, ends or triggers one fault, or directs new connections to another replica.
    fn inject(&mut self) {
        let replica = self.pick(REPLICAS as u64) as usize;
        let on = self.chance(2);
        // The number of choices exceeds the number of faults by one. The last choice redirects new connections.
        let choice = self.pick(self.faults.len() as u64 + 1) as usize;
        let action = if let Some(fault) = self.faults.get(choice).copied() {
            inject(fault, &self.server, replica, on, &mut self.random)
        } else {
            self.path.route_to(replica);
            "new connections elsewhere"
        };
        let _ = writeln!(self.log, "{:?} fault {action} on={on} replica={replica}", self.server.elapsed());
        self.recorder.fault(action, on);
    }

    /// Expires the versions that clients could resume from, and changes a few objects. Active faults stay active.
    async fn expire(&mut self) {
        // The disconnect ends the watches, so that clients must resume from an expired version.
        self.server.faults().cut();
        self.recorder.fault("cut", true);
        for _ in 0..2 {
            self.write();
        }
        self.server.compact();
        self.server.faults().expire_events();
        self.wait(1000).await;
        self.server.faults().heal();
        self.recorder.fault("cut", false);
        let _ = writeln!(self.log, "{:?} expired while disconnected", self.server.elapsed());
    }

    /// Opens watches for a client, if possible, and does not read them. Earlier unread watches of the client are
    /// dropped.
    fn leave_unread(&mut self, number: usize) {
        let client = self.clients[number].clone();
        let unread_task = tokio::spawn(async move {
            let _held = UnreadWatches::open(&client, "0").await;
            std::future::pending::<()>().await;
        });
        if let Some(previous_task) = self.unread[number].replace(unread_task) {
            previous_task.abort();
        }
        let _ = writeln!(self.log, "{:?} client {number} does not read", self.server.elapsed());
    }

    /// Restores the server from a backup of an earlier version, after all clients have seen the undone changes. No
    /// writes follow until the restore can be detected. Otherwise only an audit could detect it (R12).
    async fn restore(&mut self) {
        self.heal();
        sleep(REPAIR_WAIT).await;
        let undone_writes = 1 + self.pick(10);
        let _ = writeln!(self.log, "{:?} restore, {undone_writes} back", self.server.elapsed());
        // Without its namespace, no later write would succeed.
        let revision = self.server.revision().saturating_sub(undone_writes).max(self.first_revision);
        self.server.faults().restore(revision);
        self.recorder.fault("restore", false);
        sleep(REPAIR_WAIT).await;
    }

    /// Ends all lasting faults.
    fn heal(&mut self) {
        let faults = self.server.faults();
        faults.heal();
        faults.lag(false);
        faults.stall_streams(false);
        faults.freeze(false);
        faults.freeze_etcd(false);
        faults.clear_rules();
        faults.refuse_streamed_lists(false);
        faults.expire_continue_tokens(0);
        for number in 0..NAME_COUNT {
            faults.undecodable(NAMESPACE, &object_name(number), false);
        }
        let _ = writeln!(self.log, "{:?} healed", self.server.elapsed());
    }
}
