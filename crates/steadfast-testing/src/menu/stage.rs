//! Where a scenario plays: a server, a connection, informers, a recorder, and someone who writes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use steadfast::environment::Helpers;
use steadfast::transport::Settings;
use steadfast::{Connection, Informer, InformerBuilder, InformerFactory, ResourceVersion, Scope};
use steadfast_apiserver::{ApiServer, Faults, RequestCounts, Status};
use steadfast_contract::Terms;
use tokio::time::Instant;

use super::checks::Checks;
use super::findings::{Cost, Findings};
use super::ground::Ground;
use super::onlooker::Onlooker;
use super::plan::Plan;
use super::scenario::Trouble;
use crate::proxy::{FaultProxy, NetworkFaults};
use crate::{Held, InMemory, Recorder, Recording, config_map_in, history, kube_config};

/// How long anything may take that is to happen at once, on a busy machine.
pub(super) const PROMPT: Duration = Duration::from_secs(2);
/// How long getting ready may take.
const READY: Duration = Duration::from_secs(10);
/// How long the recorder waits for everything.
const SETTLE: Duration = Duration::from_secs(20);
/// Where objects live unless a scenario says otherwise.
pub(super) const NAMESPACE: &str = "default";

/// A server, a connection to it, informers on that, and a recorder of what they do.
pub(super) struct Stage {
    pub(super) server: ApiServer,
    pub(super) connection: Connection,
    pub(super) factory: InformerFactory,
    pub(super) recorder: Recorder,
    pub(super) checks: Checks,
    ground: Ground,
    way: Way,
    terms: Terms,
    begun: Instant,
    /// What had been requested of the server when the first fault came.
    before: Option<RequestCounts>,
}

/// How clients come to a replica.
pub(super) enum Way {
    /// By pipes through the faulty network.
    InMemory(NetworkFaults, Helpers),
    /// To the first one, over TCP.
    Direct,
    /// Through the faulty network over TCP.
    Proxied(FaultProxy),
}

/// An informer that is recorded and looked at.
pub(super) struct Watched<K: Held> {
    pub(super) informer: Informer<K>,
    pub(super) recording: Arc<Recording<K>>,
    pub(super) onlooker: Onlooker,
}

impl Stage {
    /// Sets it up; no informer runs yet.
    pub(super) async fn set(ground: &Ground, plan: Plan) -> Result<Self, Trouble> {
        let begun = Instant::now();
        let plan = ground.adjusted(plan);
        let builder = plan.server.seed(ground.seed).protobuf(ground.form.protobuf);
        let builder = if ground.in_memory { builder.in_memory() } else { builder.tls(true) };
        let server = builder.start().await?;
        (ground.sabotage)(&server);
        let way = Way::to(&server, ground, plan.proxied)?;
        let settings = Settings { prior_knowledge: ground.in_memory, ..plan.transport };
        let connection = way.connect(&server, ground.seed, settings).await?;
        let audit = plan.reflector.audit_every;
        let terms = Terms { period: plan.reflector.period, lag: plan.lag, audit, ..Terms::default() };
        let factory = InformerFactory::with_settings(&connection, plan.reflector);
        let recorder = Recorder::of(&server);
        let (ground, checks) = (ground.clone(), Checks::default());
        Ok(Self { server, connection, factory, recorder, checks, ground, way, terms, begun, before: None })
    }

    /// With everything as it is by default.
    pub(super) async fn plain(ground: &Ground) -> Result<Self, Trouble> {
        Self::set(ground, Plan::default()).await
    }

    /// A fault comes now; what is requested from the first on is its cost.
    pub(super) fn fault(&mut self) -> Instant {
        self.before.get_or_insert_with(|| self.server.request_counts());
        Instant::now()
    }

    /// Where the server is, as errors name it.
    pub(super) fn address(&self) -> String {
        self.server.address(0).map_or_else(|| "localhost:6443".to_owned(), |address| address.to_string())
    }

    /// The switches of the server's faults.
    pub(super) fn faults(&self) -> &Faults {
        self.server.faults()
    }

    /// The switches of the network between; over TCP only where the plan was to have a proxy.
    pub(super) fn network(&self) -> Option<&NetworkFaults> {
        self.way.network()
    }

    /// New connections go to this replica; over TCP only where the plan was to have a proxy.
    pub(super) fn balance_to(&self, replica: usize) {
        self.way.lead_to(replica);
    }

    /// Starts an informer, recorded under its own name.
    pub(super) fn watch<K: Held>(&self, scope: Scope) -> Result<Watched<K>, Trouble> {
        Ok(self.record(self.build(&self.factory, scope).start()?))
    }

    /// An informer of `factory` to be started, in the form and with the breach that the ground says.
    pub(super) fn build<'a, K: Held>(&self, factory: &'a InformerFactory, scope: Scope) -> InformerBuilder<'a, K> {
        let builder = factory.build(scope).protobuf(self.ground.form.protobuf);
        #[cfg(feature = "breach")]
        let builder = builder.breach(self.ground.breach);
        builder
    }

    /// Records and looks at an informer that runs.
    pub(super) fn record<K: Held>(&self, informer: Informer<K>) -> Watched<K> {
        let recording = Arc::new(self.recorder.record(&informer));
        let onlooker = Onlooker::of(&informer);
        Watched { informer, recording, onlooker }
    }

    /// Waits until `watched` are synced and fresh, and their handlers have seen what there was.
    pub(super) async fn ready<K: Held>(&self, watched: &[&Watched<K>]) -> Result<(), Trouble> {
        for watched in watched {
            watched.informer.wait_for_sync(READY).await?;
            tokio::time::timeout(READY, watched.recording.until_synced()).await?;
            until(READY, || watched.informer.freshness().is_fresh()).await;
        }
        // In virtual time all this may take none, and what follows is not to seem to be part of it.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    }

    /// Waits until as many watches are open on the first server. A cache is ready, and fresh, by its list alone; what is done
    /// to a watch, or counted of watches, is to begin when there is one.
    pub(super) async fn watching(&mut self, watches: usize) {
        let open = until(READY, || self.server.open_watches(0) >= watches).await;
        self.checks.expect(open.is_some(), format_args!("{watches} watches were not opened"));
    }

    /// Expects that `watched` was not seen to doubt since `begun`.
    pub(super) fn expect_no_doubt<K: Held>(&mut self, watched: &Watched<K>, begun: Instant) {
        // In real time the onlooker itself may be late to see what has ended.
        let late = if self.ground.is_real() { Duration::from_millis(100) } else { Duration::ZERO };
        self.checks.within("the longest doubt", Some(watched.onlooker.longest_doubt(begun)), late);
    }

    // Writing, past the API: the writer is never cut off.

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

    /// Deletes the object `name` and creates another of that name.
    pub(super) fn recreate(&self, name: &str, value: &str) -> Result<(), Status> {
        self.delete(name)?;
        self.create(name, value)
    }

    /// The version of the newest change in `scope`, as far as its namespace says.
    fn newest(&self, scope: &Scope) -> ResourceVersion {
        let history = self.server.history();
        let within = |namespace: Option<&str>| scope.in_namespace().is_none_or(|wanted| namespace == Some(wanted));
        let changes = history.of("", "configmaps").filter(|change| within(change.namespace.as_deref()));
        let newest = changes.map(|change| change.revision).max().unwrap_or(history.revision);
        ResourceVersion::from(newest.to_string().as_str())
    }

    /// Full transfers so far, streamed or in pages.
    pub(super) fn lists(&self) -> usize {
        self.server.request_counts().full_transfers()
    }

    // The end.

    /// How long after `healed` the last of `watched` was fresh with everything there is; none after `limit`.
    pub(super) async fn recovery<K: Held>(
        &self,
        watched: &[&Watched<K>],
        healed: Instant,
        limit: Duration,
    ) -> Option<Duration> {
        let recoveries = watched.iter().map(|watched| {
            let newest = self.newest(watched.informer.scope());
            async move { watched.onlooker.recovery(healed, &newest, limit).await }
        });
        join_all(recoveries).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The server is reachable and quiet from here on: waits until `watched`, which are all that are recorded, have reported
    /// everything, and writes down how they are.
    pub(super) async fn settle<K: Held>(&self, watched: &[&Watched<K>]) {
        // What does not recover is what the checker is to see.
        let _ = self.recovery(watched, Instant::now(), SETTLE).await;
        // The oldest of their newest versions: each has reached its own by now, or never will.
        let newest = watched.iter().map(|watched| self.newest(watched.informer.scope()));
        let oldest = newest.reduce(|one, other| if other.is_older_than(&one) { other } else { one });
        self.recorder.settle_at(oldest.as_ref().map_or("0", ResourceVersion::as_str), SETTLE).await;
    }

    /// Judges what was recorded of informers that had settled and were then stopped, long ago: that nothing runs any more by
    /// which a loss would show is as it should be.
    pub(super) fn judge_stopped(self) -> Findings {
        let mut findings = self.judge(None, None);
        findings.report.inconclusive.clear();
        findings
    }

    /// Judges what was recorded.
    pub(super) fn judge(self, notice: Option<Duration>, recover: Option<Duration>) -> Findings {
        let requests = self.server.request_counts();
        let Ok(history) = history(&self.server, "", "configmaps") else { unreachable!("config maps are built in") };
        let report = self.terms.judge(&history, &self.recorder.trace());
        let cost = Cost::between(&self.before.unwrap_or_default(), &requests);
        let unmet = self.checks.into_unmet();
        Findings { report, unmet, notice, recover, requests, cost, took: self.begun.elapsed() }
    }
}

/// The latest of the first doubts of `watched` after `fault`, each waited for until `limit` after it; none where one of
/// them was not seen to doubt.
pub(super) async fn doubt<K: Held>(watched: &[&Watched<K>], fault: Instant, limit: Duration) -> Option<Duration> {
    let doubts = watched.iter().map(|watched| watched.onlooker.doubt(fault, limit));
    join_all(doubts).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl<K: Held> Watched<K> {
    /// Whether an object of the default namespace is unknown to whoever reads it.
    pub(super) fn knows_nothing_of(&self, name: &str) -> bool {
        let Ok(lister) = self.informer.lister() else { return false };
        lister.get(NAMESPACE, name).map_or(true, |found| found.is_some_and(|object| object.config_map().is_none()))
    }
}

/// Waits for `held`; tells how long it took, or none after `limit`.
pub(super) async fn until(limit: Duration, mut held: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !held() {
        if begun.elapsed() > limit {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Some(begun.elapsed())
}

impl Way {
    /// The way to `server`.
    pub(super) fn to(server: &ApiServer, ground: &Ground, proxied: bool) -> Result<Self, Trouble> {
        Ok(if ground.in_memory {
            Self::InMemory(NetworkFaults::default(), ground.helpers)
        } else if proxied {
            Self::Proxied(FaultProxy::start((0..server.replicas()).map(|replica| server.address(replica)))?)
        } else {
            Self::Direct
        })
    }

    /// A client that comes this way.
    pub(super) async fn connect(
        &self,
        server: &ApiServer,
        seed: u64,
        settings: Settings,
    ) -> Result<Connection, Trouble> {
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

    /// The switches of the network between, where there is one that can fail.
    fn network(&self) -> Option<&NetworkFaults> {
        match self {
            Self::InMemory(network, _) => Some(network),
            Self::Proxied(proxy) => Some(proxy.faults()),
            Self::Direct => None,
        }
    }

    /// New connections lead to this replica.
    pub(super) fn lead_to(&self, replica: usize) {
        if let Some(network) = self.network() {
            network.send_to(replica);
        }
    }
}
