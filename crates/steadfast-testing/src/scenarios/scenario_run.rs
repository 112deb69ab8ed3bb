//! The setup of a scenario: a server, a connection, informers, a recorder, and a writer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use steadfast::environment::HelperThreads;
use steadfast::transport::Settings;
use steadfast::{Connection, Informer, InformerBuilder, InformerFactory, ResourceVersion, Scope};
use steadfast_apiserver::{ApiServer, Faults, RequestCounts, Status};
use steadfast_contract::Bounds;
use tokio::time::Instant;

use super::checks::Checks;
use super::findings::{Cost, ScenarioFindings};
use super::freshness_observer::FreshnessObserver;
use super::settings::ScenarioSettings;
use super::target::ScenarioTarget;
use super::timeline::Timeline;
use crate::TestkitError;
use crate::proxy::{FaultProxy, NetworkFaults};
use crate::{CachedConfigMap, EventRecording, InMemory, Recorder, config_map_in, history, kube_config};

/// Maximum time for an immediate reaction, on a busy machine.
pub(super) const REACTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until the setup is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which the recorder waits for all events.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Default namespace of a scenario's objects.
pub(super) const NAMESPACE: &str = "default";

/// A server, a connection to it, informers on that connection, and a recorder.
pub(super) struct ScenarioRun {
    pub(super) server: ApiServer,
    pub(super) connection: Connection,
    pub(super) factory: InformerFactory,
    pub(super) recorder: Recorder,
    pub(super) checks: Checks,
    target: ScenarioTarget,
    path: NetworkPath,
    /// Time of the network's creation, on the clock of the server.
    network_start: Duration,
    bounds: Bounds,
    started: Instant,
    /// Request counts of the server when the first fault was injected.
    counts_before: Option<RequestCounts>,
}

/// Path of clients to a replica.
pub(super) enum NetworkPath {
    /// Pipes through the faulty network.
    InMemory(NetworkFaults, HelperThreads),
    /// TCP to the first replica.
    Direct,
    /// TCP through the faulty network.
    Proxied(FaultProxy),
}

/// Informer with a recorder and an observer.
pub(super) struct WatchedInformer<K: CachedConfigMap> {
    pub(super) informer: Informer<K>,
    pub(super) recording: Arc<EventRecording<K>>,
    pub(super) observer: FreshnessObserver,
}

impl ScenarioRun {
    /// Creates the setup without an informer.
    pub(super) async fn start(
        target: &ScenarioTarget,
        scenario_settings: ScenarioSettings,
    ) -> Result<Self, TestkitError> {
        let started = Instant::now();
        let scenario_settings = target.adjust_settings(scenario_settings);
        let builder = scenario_settings.server.seed(target.seed).protobuf(target.form.protobuf);
        let builder = if target.in_memory { builder.in_memory() } else { builder.tls(true) };
        let server = builder.start().await?;
        // The injected fault is active before all clients, so that no client reaches the server without the fault.
        (target.server_fault)(&server);
        let network_start = server.elapsed();
        let path = NetworkPath::to_server(&server, target, scenario_settings.proxied)?;
        // Without TLS there is no ALPN, so that clients in memory must assume HTTP/2.
        let settings = Settings { prior_knowledge: target.in_memory, ..scenario_settings.transport };
        let connection = path.connect(&server, target.seed, settings).await?;
        let audit = scenario_settings.reflector.audit_every;
        // The checker must know the settings: its bounds derive from the period and the audit interval.
        let bounds = Bounds {
            period: scenario_settings.reflector.period,
            lag: scenario_settings.lag,
            audit,
            ..Bounds::default()
        };
        let factory = InformerFactory::with_settings(&connection, scenario_settings.reflector);
        let recorder = Recorder::of(&server);
        let (target, checks) = (target.clone(), Checks::default());
        Ok(Self {
            server,
            connection,
            factory,
            recorder,
            checks,
            target,
            path,
            network_start,
            bounds,
            started,
            counts_before: None,
        })
    }

    /// Creates the setup with the default settings.
    pub(super) async fn start_with_defaults(target: &ScenarioTarget) -> Result<Self, TestkitError> {
        Self::start(target, ScenarioSettings::default()).await
    }

    /// Marks the start of a fault. Requests from the first fault on are its cost.
    pub(super) fn mark_fault(&mut self) -> Instant {
        // The time of the first fault is kept, because later faults belong to the same cost.
        self.counts_before.get_or_insert_with(|| self.server.request_counts());
        Instant::now()
    }

    /// Returns the address of the server as it appears in errors.
    pub(super) fn address(&self) -> String {
        self.server.address(0).map_or_else(|| "localhost:6443".to_owned(), |address| address.to_string())
    }

    /// Returns the switches of the server's faults.
    pub(super) fn faults(&self) -> &Faults {
        self.server.faults()
    }

    /// Returns the switches of the network. Over TCP, returns `None` unless the settings have a proxy.
    pub(super) fn network(&self) -> Option<&NetworkFaults> {
        self.path.network()
    }

    /// Directs new connections to this replica. Over TCP, this requires settings with a proxy.
    pub(super) fn route_to(&self, replica: usize) {
        self.path.route_to(replica);
    }

    /// Starts an informer that is recorded under its own name.
    pub(super) fn watch<K: CachedConfigMap>(&self, scope: Scope) -> Result<WatchedInformer<K>, TestkitError> {
        Ok(self.record(self.builder(&self.factory, scope).start()?))
    }

    /// Returns a builder for an informer of `factory`, in the form and with the injected fault of the target.
    pub(super) fn builder<'a, K: CachedConfigMap>(
        &self,
        factory: &'a InformerFactory,
        scope: Scope,
    ) -> InformerBuilder<'a, K> {
        let builder = factory.builder(scope).protobuf(self.target.form.protobuf);
        let builder = builder.decode_on_demand_above(self.target.decode_on_demand_above());
        #[cfg(feature = "fault-injection")]
        let builder = builder.inject_fault(self.target.fault);
        builder
    }

    /// Records and observes a running informer.
    pub(super) fn record<K: CachedConfigMap>(&self, informer: Informer<K>) -> WatchedInformer<K> {
        let recording = Arc::new(self.recorder.record(&informer));
        let observer = FreshnessObserver::start(&informer);
        WatchedInformer { informer, recording, observer }
    }

    /// Waits until `watched` are synced and fresh, and their handlers have received the existing objects.
    pub(super) async fn wait_until_ready<K: CachedConfigMap>(
        &self,
        watched: &[&WatchedInformer<K>],
    ) -> Result<(), TestkitError> {
        for watched in watched {
            watched.informer.wait_for_sync(READY_TIMEOUT).await?;
            tokio::time::timeout(READY_TIMEOUT, watched.recording.until_synced()).await?;
            until(READY_TIMEOUT, || watched.informer.freshness().is_fresh()).await;
        }
        // In virtual time, the wait above may take no time. The pause separates it from the events that follow.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    }

    /// Waits until this number of watches is open on the first server. A cache is ready and fresh after its list,
    /// possibly before its watch. So a scenario that disturbs or counts watches must call this method.
    pub(super) async fn wait_for_watches(&mut self, watches: usize) {
        let open = until(READY_TIMEOUT, || self.server.open_watches(0) >= watches).await;
        self.checks.expect(open.is_some(), format_args!("{watches} watches were not opened"));
    }

    /// Expects that `watched` had no doubt since `started`.
    pub(super) fn expect_no_doubt<K: CachedConfigMap>(&mut self, watched: &WatchedInformer<K>, started: Instant) {
        // In real time, the observer may run late and see the end of a doubt late.
        let observer_delay = if self.target.is_real() { Duration::from_millis(100) } else { Duration::ZERO };
        self.checks.expect_within("the longest doubt", Some(watched.observer.longest_doubt(started)), observer_delay);
    }

    // Writes bypass the API, so that network faults do not affect them.

    /// Creates the object `name`.
    pub(super) fn create(&self, name: &str, value: &str) -> Result<(), Status> {
        self.create_in(NAMESPACE, name, value)
    }

    /// Creates the object `name` in `namespace`.
    pub(super) fn create_in(&self, namespace: &str, name: &str, value: &str) -> Result<(), Status> {
        self.server.create(&config_map_in(namespace, name, value)).map(drop)
    }

    /// Changes the object `name`.
    pub(super) fn change(&self, name: &str, value: &str) -> Result<(), Status> {
        self.change_in(NAMESPACE, name, value)
    }

    /// Changes the object `name` in `namespace`.
    pub(super) fn change_in(&self, namespace: &str, name: &str, value: &str) -> Result<(), Status> {
        self.server.replace(&config_map_in(namespace, name, value)).map(drop)
    }

    /// Deletes the object `name`.
    pub(super) fn delete(&self, name: &str) -> Result<(), Status> {
        self.server.delete_named("configmaps", NAMESPACE, name).map(drop)
    }

    /// Deletes the object `name` and creates another with this name.
    pub(super) fn recreate(&self, name: &str, value: &str) -> Result<(), Status> {
        self.delete(name)?;
        self.create(name, value)
    }

    /// Returns the newest version in `scope`, limited to its namespace.
    fn newest_version(&self, scope: &Scope) -> ResourceVersion {
        let history = self.server.history();
        let is_in_scope = |namespace: Option<&str>| {
            scope.in_namespace().is_none_or(|scope_namespace| namespace == Some(scope_namespace))
        };
        let changes = history.changes_of("", "configmaps").filter(|change| is_in_scope(change.namespace.as_deref()));
        // Without a change in the scope, an informer can prove at most the version of the whole store.
        let newest = changes.map(|change| change.revision).max().unwrap_or(history.revision);
        ResourceVersion::from(newest.to_string().as_str())
    }

    /// Returns the number of full transfers, streamed or paged.
    pub(super) fn full_transfers(&self) -> usize {
        self.server.request_counts().full_transfers()
    }

    // End of the scenario.

    /// Returns the time from `fault_end` until the last of `watched` was fresh with every object. `None` after
    /// `limit`.
    pub(super) async fn wait_for_recovery<K: CachedConfigMap>(
        &self,
        watched: &[&WatchedInformer<K>],
        fault_end: Instant,
        limit: Duration,
    ) -> Option<Duration> {
        let recoveries = watched.iter().map(|watched| {
            let newest = self.newest_version(watched.informer.scope());
            async move { watched.observer.wait_for_recovery(fault_end, &newest, limit).await }
        });
        // `collect` returns `None` if one informer did not recover. The maximum is the time until all have recovered.
        join_all(recoveries).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Waits until `watched`, which must be all recorded informers, have reported everything, and records their final
    /// state. From here on, the server must be reachable, and its history must not change.
    pub(super) async fn settle<K: CachedConfigMap>(&self, watched: &[&WatchedInformer<K>]) {
        // The checker reports an informer that does not recover, so the result is ignored here.
        let _ = self.wait_for_recovery(watched, Instant::now(), SETTLE_TIMEOUT).await;
        // The newest version differs by scope. The recorder accepts only one version for all informers, so the oldest
        // of these versions is used. By now, each informer has reached the newest version of its scope or never will.
        let newest = watched.iter().map(|watched| self.newest_version(watched.informer.scope()));
        let oldest = newest.reduce(|one, other| if other.is_older_than(&one) { other } else { one });
        self.recorder.settle_at(oldest.as_ref().map_or("0", ResourceVersion::as_str), SETTLE_TIMEOUT).await;
    }

    /// Checks the records of informers that settled and were then stopped. A stopped informer does not run the checks
    /// that would show a loss, so checks without a result are not a problem here.
    pub(super) fn findings_of_stopped(self) -> ScenarioFindings {
        let mut findings = self.findings(None, None);
        findings.report.inconclusive.clear();
        findings
    }

    /// Checks the records.
    pub(super) fn findings(self, detection: Option<Duration>, recovery: Option<Duration>) -> ScenarioFindings {
        let requests = self.server.request_counts();
        let Ok(history) = history(&self.server, "", "configmaps") else { unreachable!("config maps are built in") };
        let trace = self.recorder.trace();
        let report = self.bounds.report(&history, &trace);
        let timelines = vec![Timeline::new(&self.server, &trace, self.path.network(), self.network_start)];
        let cost = Cost::between(&self.counts_before.unwrap_or_default(), &requests);
        let unmet = self.checks.into_unmet();
        ScenarioFindings { report, unmet, detection, recovery, requests, cost, took: self.started.elapsed(), timelines }
    }
}

/// Returns the latest of the first doubts of `watched` after `fault`, within `limit`. Returns `None` if one of the
/// informers had no doubt.
pub(super) async fn wait_for_doubt<K: CachedConfigMap>(
    watched: &[&WatchedInformer<K>],
    fault: Instant,
    limit: Duration,
) -> Option<Duration> {
    let doubts = watched.iter().map(|watched| watched.observer.wait_for_doubt(fault, limit));
    join_all(doubts).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl<K: CachedConfigMap> WatchedInformer<K> {
    /// Returns `true` if a read of this object in the default namespace finds nothing.
    pub(super) fn has_no_object(&self, name: &str) -> bool {
        let Ok(lister) = self.informer.lister() else { return false };
        // An object that does not decode counts as unknown here: a reader cannot see its content.
        lister.get(NAMESPACE, name).map_or(true, |found| found.is_some_and(|object| object.config_map().is_none()))
    }
}

/// Waits until `is_met` is true, and returns the elapsed time, or `None` after `limit`.
pub(super) async fn until(limit: Duration, mut is_met: impl FnMut() -> bool) -> Option<Duration> {
    let started = Instant::now();
    while !is_met() {
        if started.elapsed() > limit {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Some(started.elapsed())
}

impl NetworkPath {
    /// Returns the path to `server`.
    pub(super) fn to_server(server: &ApiServer, target: &ScenarioTarget, proxied: bool) -> Result<Self, TestkitError> {
        Ok(if target.in_memory {
            Self::InMemory(NetworkFaults::default(), target.helpers)
        } else if proxied {
            Self::Proxied(FaultProxy::start((0..server.replicas()).map(|replica| server.address(replica)))?)
        } else {
            Self::Direct
        })
    }

    /// Connects a client on this path.
    pub(super) async fn connect(
        &self,
        server: &ApiServer,
        seed: u64,
        settings: Settings,
    ) -> Result<Connection, TestkitError> {
        if let Self::InMemory(network, helpers) = self {
            let memory = InMemory { seed, settings, network: network.clone(), helpers: *helpers };
            return memory.connection(server).await;
        }
        let mut config = kube_config(server).await?;
        if let Self::Proxied(proxy) = self {
            let scheme = config.cluster_url.scheme_str().unwrap_or("http").to_owned();
            let url = format!("{scheme}://{}", proxy.address());
            config.cluster_url = url.parse().map_err(|error| format!("{url}: {error}"))?;
        }
        Ok(Connection::builder(config).settings(settings).build()?)
    }

    /// Returns the switches of the network, if this path has a faulty network.
    pub(super) fn network(&self) -> Option<&NetworkFaults> {
        match self {
            Self::InMemory(network, _) => Some(network),
            Self::Proxied(proxy) => Some(proxy.faults()),
            Self::Direct => None,
        }
    }

    /// Directs new connections to this replica.
    pub(super) fn route_to(&self, replica: usize) {
        if let Some(network) = self.network() {
            network.send_to(replica);
        }
    }
}
