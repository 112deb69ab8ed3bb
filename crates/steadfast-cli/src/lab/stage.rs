//! Where a scenario plays: a server, a connection, informers, a recorder, and someone who writes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use steadfast::transport::Settings;
use steadfast::{Connection, Informer, InformerFactory, ReflectorSettings, ResourceVersion, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder, Faults, Status};
use steadfast_contract::Terms;
use steadfast_testing::{Balancer, Recorder, Recording, config_map_in, history, kube_config};
use tokio::time::Instant;

use super::checks::Checks;
use super::onlooker::Onlooker;
use super::outcome::Findings;
use super::scenario::Trouble;

/// How long anything may take that is to happen at once, on a busy machine.
pub(crate) const PROMPT: Duration = Duration::from_secs(2);
/// How long getting ready may take.
const READY: Duration = Duration::from_secs(10);
/// How long the recorder waits for everything.
const SETTLE: Duration = Duration::from_secs(20);
/// Where objects live unless a scenario says otherwise.
const NAMESPACE: &str = "default";

/// What a stage is made of; the defaults are those of a program that chooses nothing.
pub(crate) struct Plan {
    pub(crate) server: ApiServerBuilder,
    pub(crate) transport: Settings,
    pub(crate) reflector: ReflectorSettings,
    /// Whether clients reach the replicas through a balancer.
    pub(crate) balanced: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            server: ApiServer::builder().tls(true),
            transport: Settings::default(),
            reflector: ReflectorSettings::default(),
            balanced: false,
        }
    }
}

/// A server, a connection to it, informers on that, and a recorder of what they do.
pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    pub(crate) connection: Connection,
    pub(crate) factory: InformerFactory,
    pub(crate) recorder: Recorder,
    pub(crate) checks: Checks,
    balancer: Option<Balancer>,
    terms: Terms,
    begun: Instant,
}

/// An informer that is recorded and looked at.
pub(crate) struct Watched {
    pub(crate) informer: Informer<ConfigMap>,
    pub(crate) recording: Arc<Recording<ConfigMap>>,
    pub(crate) onlooker: Onlooker,
}

impl Stage {
    /// Sets it up; no informer runs yet.
    pub(crate) async fn set(plan: Plan) -> Result<Self, Trouble> {
        let begun = Instant::now();
        let server = plan.server.start().await?;
        let balancer =
            plan.balanced.then(|| Balancer::start((0..server.replicas()).map(|replica| server.address(replica))));
        let mut config = kube_config(&server).await?;
        if let Some(balancer) = &balancer {
            config = through(config, balancer).await?;
        }
        let connection = Connection::builder(config).settings(plan.transport).build()?;
        let terms = Terms { period: plan.reflector.period, ..Terms::default() };
        let factory = InformerFactory::with_settings(&connection, plan.reflector);
        let recorder = Recorder::of(&server);
        Ok(Self { server, connection, factory, recorder, checks: Checks::default(), balancer, terms, begun })
    }

    /// With everything as it is by default.
    pub(crate) async fn plain() -> Result<Self, Trouble> {
        Self::set(Plan::default()).await
    }

    /// The switches of the server's faults.
    pub(crate) fn faults(&self) -> &Faults {
        self.server.faults()
    }

    /// New connections go to this replica; only where the plan was balanced.
    pub(crate) fn balance_to(&self, replica: usize) {
        if let Some(balancer) = &self.balancer {
            balancer.send_to(replica);
        }
    }

    /// Starts an informer, recorded under its own name.
    pub(crate) fn watch(&self, scope: Scope) -> Result<Watched, Trouble> {
        Ok(self.record(self.factory.informer::<ConfigMap>(scope)?))
    }

    /// Records and looks at an informer that runs.
    pub(crate) fn record(&self, informer: Informer<ConfigMap>) -> Watched {
        let recording = Arc::new(self.recorder.record(&informer));
        let onlooker = Onlooker::of(&informer);
        Watched { informer, recording, onlooker }
    }

    /// Waits until `watched` are synced and fresh, and their handlers have seen what there was.
    pub(crate) async fn ready(&self, watched: &[&Watched]) -> Result<(), Trouble> {
        for watched in watched {
            watched.informer.wait_for_sync(READY).await?;
            tokio::time::timeout(READY, watched.recording.until_synced()).await?;
        }
        Ok(())
    }

    // Writing, past the API: the writer is never cut off.

    /// Creates the object `name`.
    pub(crate) fn create(&self, name: &str, value: &str) -> Result<(), Status> {
        self.create_in(NAMESPACE, name, value)
    }

    /// Creates the object `name` in `namespace`.
    pub(crate) fn create_in(&self, namespace: &str, name: &str, value: &str) -> Result<(), Status> {
        self.server.create(&config_map_in(namespace, name, value)).map(drop)
    }

    /// Changes the object `name`.
    pub(crate) fn change(&self, name: &str, value: &str) -> Result<(), Status> {
        self.change_in(NAMESPACE, name, value)
    }

    /// Changes the object `name` in `namespace`.
    pub(crate) fn change_in(&self, namespace: &str, name: &str, value: &str) -> Result<(), Status> {
        self.server.replace(&config_map_in(namespace, name, value)).map(drop)
    }

    /// Deletes the object `name`.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Status> {
        self.server.delete_named("configmaps", NAMESPACE, name).map(drop)
    }

    /// Deletes the object `name` and creates another of that name.
    pub(crate) fn recreate(&self, name: &str, value: &str) -> Result<(), Status> {
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
    pub(crate) fn lists(&self) -> usize {
        self.server.request_counts().full_transfers()
    }

    // The end.

    /// How long after `healed` the last of `watched` was fresh with everything there is; none after `limit`.
    pub(crate) async fn recovery(&self, watched: &[&Watched], healed: Instant, limit: Duration) -> Option<Duration> {
        let recoveries = watched.iter().map(|watched| {
            let newest = self.newest(watched.informer.scope());
            async move { watched.onlooker.recovery(healed, &newest, limit).await }
        });
        join_all(recoveries).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The server is reachable and quiet from here on: waits until `watched`, which are all that are recorded, have told
    /// everything, and writes down how they stand.
    pub(crate) async fn settle(&self, watched: &[&Watched]) {
        let settled = self.recovery(watched, Instant::now(), SETTLE).await;
        tracing::debug!(?settled, "settled");
        // The oldest of their newest versions: each has reached its own by now, or never will.
        let newest = watched.iter().map(|watched| self.newest(watched.informer.scope()));
        let oldest = newest.reduce(|one, other| if other.is_older_than(&one) { other } else { one });
        self.recorder.settle_at(oldest.as_ref().map_or("0", ResourceVersion::as_str), SETTLE).await;
    }

    /// Judges what was recorded.
    pub(crate) fn judge(self, notice: Option<Duration>, recover: Option<Duration>) -> Findings {
        let requests = self.server.request_counts();
        let report = self.terms.judge(&history(&self.server, "", "configmaps"), &self.recorder.trace());
        Findings { report, unmet: self.checks.into_unmet(), notice, recover, requests, took: self.begun.elapsed() }
    }
}

/// The latest of the first doubts of `watched` after `fault`, each waited for until `limit` after it; none where one of
/// them was not seen to doubt.
pub(crate) async fn doubt(watched: &[&Watched], fault: Instant, limit: Duration) -> Option<Duration> {
    let doubts = watched.iter().map(|watched| watched.onlooker.doubt(fault, limit));
    join_all(doubts).await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Waits for `held`; tells how long it took, or none after `limit`.
pub(crate) async fn until(limit: Duration, mut held: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !held() {
        if begun.elapsed() > limit {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Some(begun.elapsed())
}

/// The same configuration, with the balancer in place of the server.
async fn through(mut config: Config, balancer: &Balancer) -> Result<Config, Trouble> {
    let scheme = config.cluster_url.scheme_str().unwrap_or("http").to_owned();
    config.cluster_url = format!("{scheme}://{}", balancer.address().await?).parse()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use steadfast::Breach;

    use super::*;
    use crate::lab::outcome::Outcome;
    use crate::lab::scenario;

    /// A delete and create during a cut with a compacted history, seen by a library that commits `breach`.
    async fn recreated(breach: Option<Breach>) -> Result<Outcome, Trouble> {
        let stage = Stage::plain().await?;
        ["a", "b"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
        let builder = stage.factory.build::<ConfigMap>(Scope::all());
        let informer = match breach {
            Some(breach) => builder.breach(breach).start()?,
            None => builder.start()?,
        };
        let watched = stage.record(informer);
        stage.ready(&[&watched]).await?;
        stage.faults().cut();
        stage.recreate("a", "2")?;
        stage.delete("b")?;
        stage.faults().expire_events();
        stage.faults().heal();
        stage.recovery(&[&watched], Instant::now(), READY).await;
        stage.settle(&[&watched]).await;
        let scenario = scenario::choose(&["recreate-while-cut".to_owned()])?[0];
        Ok(Outcome::of(scenario, stage.judge(None, None)))
    }

    #[tokio::test]
    async fn a_library_that_breaks_its_contract_does_not_pass() -> Result<(), Trouble> {
        let sound = recreated(None).await?;
        assert!(sound.passed(), "{:?}", sound.problems);
        for (breach, clause) in [(Breach::MergedIdentities, "C1"), (Breach::LostDeletes, "C2")] {
            let outcome = recreated(Some(breach)).await?;
            assert!(!outcome.passed(), "{breach:?} passed");
            assert!(outcome.problems.iter().any(|problem| problem.contains(clause)), "{:?}", outcome.problems);
        }
        Ok(())
    }
}
