//! A replica that takes over keys, by sharding or as the new leader, waits for caches with the last writes of the
//! previous owner.
//!
//! In random histories, each replica creates the missing children of parents. The replicas read only caches, and the
//! server generates the names. Watches lag while replicas start, stop and are killed.
//!
//! `STEADFAST_SEEDS=200` runs 200 seeds, starting at `STEADFAST_FIRST_SEED`. `STEADFAST_SEED=n … one_takeover`
//! repeats one seed with its faults. The seed does not determine the order in which a controller reconciles its keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Connection, Informer, InformerFactory, ObjectKey, Scope, kube};
use steadfast_apiserver::{ApiServer, RequestRecord, Verb};
use steadfast_controller::{Action, Controller, Leader, LeaderElection, RunningController, Sharding, back_off};
use steadfast_core::random::Random;
use steadfast_testing::{Children, TestError, config_map};
use tokio::time::sleep;

use crate::faults::{Log, block_on_virtual_time, enable_logging, env_number};
use crate::process::Process;

/// Required number of children of a parent.
const CHILDREN: usize = 3;
const REPLICAS: usize = 2;
const STEPS: usize = 10;
/// Maximum time until all children exist after the last lag.
const MAX_RECOVERY_TIME: Duration = Duration::from_secs(90);
/// Label of each child with the name of its creator.
const CREATOR_LABEL: &str = "maker";

/// Mechanism that decides which replica may act. Two variants do not wait for the writes of the previous owner, and the
/// test must detect this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakeoverScheme {
    Sharding,
    /// Sharding without this wait: the controller only uses the stream of gained keys, and does not wait for the
    /// writes of previous owners.
    ShardingWithoutSync,
    Leader,
    /// Election without this wait: the controller runs before its process leads, and only checks the leadership in
    /// each reconcile.
    LeaderWithoutSync,
}

#[derive(Debug)]
struct TakeoverResult {
    problems: Vec<String>,
    /// Number of times that another replica took over the creation of a parent's children.
    takeovers: usize,
    log: String,
}

/// Handle that decides whether a reconcile may act.
enum ReconcilePermission {
    Sharding(Sharding),
    Leader(Leader),
    LeaderIfElected(Arc<Mutex<Option<Leader>>>),
}

struct TakeoverContext {
    name: String,
    permission: ReconcilePermission,
    children: Informer<Pod>,
}

/// Creates the children that the cache lacks.
async fn ensure_children(parent: Arc<ConfigMap>, context: Arc<TakeoverContext>) -> Result<Action, kube::Error> {
    let key = ObjectKey::namespaced("default", parent.name_any());
    let permission = match &context.permission {
        ReconcilePermission::Sharding(sharding) => {
            sharding.hold(&key).map(|permission| (permission.client(), Some(permission)))
        }
        ReconcilePermission::Leader(leader) => Some((leader.client(), None)),
        ReconcilePermission::LeaderIfElected(leader) => {
            let leader = leader.lock();
            leader.as_ref().filter(|leader| leader.is_leader()).map(|leader| (leader.client(), None))
        }
    };
    let Some((client, _held)) = permission else {
        let is_uncertain = matches!(context.permission, ReconcilePermission::LeaderIfElected(_));
        return Ok(if is_uncertain { Action::requeue(Duration::from_millis(500)) } else { Action::await_change() });
    };
    let lister = context.children.lister().map_err(|error| kube::Error::Service(Box::new(error)))?;
    let uid = parent.uid().unwrap_or_default();
    let is_own = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == uid);
    let own_children = lister.namespace("default").into_iter().filter(|pod| is_own(pod)).count();
    let pods = Api::<Pod>::namespaced(client, "default");
    for _ in own_children..CHILDREN {
        let child = json!({
            "metadata": {
                "generateName": format!("{}-", parent.name_any()),
                "labels": { CREATOR_LABEL: context.name },
                "ownerReferences": [parent.controller_owner_ref(&())],
            },
            "spec": { "containers": [{ "name": "main", "image": "none" }] },
        });
        let child: Pod = serde_json::from_value(child).map_err(kube::Error::SerdeError)?;
        pods.create(&PostParams::default(), &child).await?;
    }
    Ok(Action::await_change())
}

/// Replica in its process.
struct TakeoverReplica {
    name: String,
    process: Process,
    handle: ReplicaHandle,
}

/// Handle by which the replica participates.
#[derive(Clone)]
enum ReplicaHandle {
    Sharding(Sharding),
    Leader(LeaderElection),
}

impl ReplicaHandle {
    async fn stop(&self) {
        match self {
            Self::Sharding(sharding) => sharding.stop().await,
            Self::Leader(election) => election.stop().await,
        };
    }
}

impl TakeoverReplica {
    async fn start(server: &ApiServer, scheme: TakeoverScheme, name: String, seed: u64) -> Result<Self, TestError> {
        let process = Process::start(server, seed, None);
        let connection = process.connection(server, true).await?;
        let handle = match scheme {
            TakeoverScheme::Sharding | TakeoverScheme::ShardingWithoutSync => {
                let sharding = Sharding::builder(&connection, "default", "it").identity(&name);
                ReplicaHandle::Sharding(sharding.wall_clock(process.wall_clock()).start()?)
            }
            TakeoverScheme::Leader | TakeoverScheme::LeaderWithoutSync => {
                let election = LeaderElection::builder(&connection, "default", "it").identity(&name);
                ReplicaHandle::Leader(election.wall_clock(process.wall_clock()).start()?)
            }
        };
        let run = run_replica(connection, scheme, name.clone(), handle.clone());
        process.run(async move {
            run.await.expect("the controller must start");
        });
        Ok(Self { name, process, handle })
    }
}

/// Runs the program of each process.
async fn run_replica(
    connection: Connection,
    scheme: TakeoverScheme,
    name: String,
    handle: ReplicaHandle,
) -> Result<(), TestError> {
    // The caches sync while other replicas act.
    let informers = InformerFactory::new(&connection);
    let parents = informers.informer::<ConfigMap>(Scope::all())?;
    let children = informers.informer::<Pod>(Scope::all())?;
    let run = |permission: ReconcilePermission, configure: &dyn Fn(Controller<ConfigMap>) -> Controller<ConfigMap>| {
        let context = Arc::new(TakeoverContext { name: name.clone(), permission, children: children.clone() });
        let controller = Controller::new(&informers, parents.clone()).owns::<Pod>(Scope::all()).reads(&children);
        configure(controller).run(ensure_children, back_off, context)
    };
    let _controller: RunningController = match (&handle, scheme) {
        (ReplicaHandle::Sharding(sharding), TakeoverScheme::Sharding) => {
            run(ReconcilePermission::Sharding(sharding.clone()), &|controller| controller.sharded_by(sharding))?
        }
        (ReplicaHandle::Sharding(sharding), _) => {
            run(ReconcilePermission::Sharding(sharding.clone()), &|controller| {
                controller.triggered_by(sharding.gained(&parents))
            })?
        }
        (ReplicaHandle::Leader(election), TakeoverScheme::Leader) => {
            while let Some(leader) = election.until_leader().await {
                let _controller = run(ReconcilePermission::Leader(leader.clone()), &|controller| controller)?;
                leader.until_lost().await;
            }
            return Ok(());
        }
        (ReplicaHandle::Leader(election), _) => {
            let current_leader = Arc::<Mutex<Option<Leader>>>::default();
            let controller =
                run(ReconcilePermission::LeaderIfElected(current_leader.clone()), &|controller| controller)?;
            while let Some(leader) = election.until_leader().await {
                *current_leader.lock() = Some(leader.clone());
                leader.until_lost().await;
            }
            controller
        }
    };
    std::future::pending().await
}

struct TakeoverRun {
    server: ApiServer,
    scheme: TakeoverScheme,
    random: Random,
    replicas: Vec<TakeoverReplica>,
    /// Number of replicas that were started so far.
    started_count: usize,
    parent_count: usize,
    log: Log,
}

async fn run_history(seed: u64, scheme: TakeoverScheme) -> Result<TakeoverResult, TestError> {
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().http2(true).seed(random.draw()).start().await?;
    let (replicas, log) = (Vec::new(), Log::new());
    let mut history = TakeoverRun { server, scheme, random, replicas, started_count: 0, parent_count: 0, log };
    for _ in 0..REPLICAS {
        history.join().await?;
    }
    history.create_demand()?;
    sleep(Duration::from_secs(30)).await;
    for _ in 0..STEPS {
        history.inject_random_fault().await?;
    }
    history.log.append("all faults have ended");
    sleep(MAX_RECOVERY_TIME).await;
    let children = Children::of(&history.server, "", "pods");
    let exceeding = children.max_at_once.iter().filter(|(_, count)| **count > CHILDREN);
    let mut problems: Vec<_> = exceeding.map(|(parent, count)| format!("{parent} had {count} children")).collect();
    let complete_parents = children.live.values().filter(|live| live.len() == CHILDREN).count();
    if problems.is_empty() && complete_parents != history.parent_count {
        problems.push(format!(
            "{complete_parents} of {} parents have their children: {:?}",
            history.parent_count, children.live
        ));
    }
    Ok(TakeoverResult { problems, takeovers: count_takeovers(&history.server), log: history.log.text })
}

impl TakeoverRun {
    async fn join(&mut self) -> Result<(), TestError> {
        let (name, seed) = (format!("replica-{}", self.started_count), self.random.draw());
        self.log.append(&format!("{name} joins"));
        self.replicas.push(TakeoverReplica::start(&self.server, self.scheme, name, seed).await?);
        self.started_count += 1;
        Ok(())
    }

    /// Creates a demand: a new parent without children, or the removal of a child.
    fn create_demand(&mut self) -> Result<(), TestError> {
        let children: Vec<_> = Children::of(&self.server, "", "pods").live.into_values().flatten().collect();
        let index = self.random.draw() as usize % (2 * children.len() + 1);
        if let Some(child) = children.get(index) {
            self.log.append(&format!("{child} is deleted"));
            self.server.delete_named("pods", "default", child)?;
        } else {
            self.log.append(&format!("parent-{} is created", self.parent_count));
            self.server.create(&config_map(&format!("parent-{}", self.parent_count), ""))?;
            self.parent_count += 1;
        }
        Ok(())
    }

    /// Stalls the open watches of children.
    fn stall_child_watches(&self) {
        let is_watch = |request: &&RequestRecord| {
            let pods = request.resource.as_ref().is_some_and(|resource| resource.resource() == "pods");
            pods && matches!(request.verb, Verb::Watch | Verb::StreamedList) && !request.finished
        };
        for watch in self.server.requests().iter().filter(is_watch) {
            self.server.faults().stall_stream(watch.id, true);
        }
    }

    /// Creates a demand, delays the watches, and starts or ends a replica.
    async fn inject_random_fault(&mut self) -> Result<(), TestError> {
        // Caches see the demand, but not the children that meet it. Either only the watches of children lag, or the
        // whole watch cache lags, which also serves lists of leases.
        let only_children_lag = !self.random.draw().is_multiple_of(3);
        if only_children_lag {
            self.stall_child_watches();
        }
        for _ in 0..=self.random.draw() % 4 {
            self.create_demand()?;
        }
        if !only_children_lag {
            self.server.faults().lag_at(self.server.revision());
        }
        // Most lags last five seconds. Some last until a lease has expired.
        let max_lag_seconds = if self.random.draw().is_multiple_of(5) { 25 } else { 5 };
        let lag = self.random.between(Duration::ZERO, Duration::from_secs(max_lag_seconds));
        self.log.append(&format!("watches lag for {lag:?}"));
        let faults = self.server.faults().clone();
        let lagging = tokio::spawn(async move {
            sleep(lag).await;
            faults.lag(false);
            faults.stall_streams(false);
        });
        let delay = self.random.between(Duration::ZERO, Duration::from_millis(1500));
        sleep(delay).await;
        let index = self.random.draw() as usize % self.replicas.len();
        match self.random.draw() % 6 {
            0..=2 if self.replicas.len() > 1 => {
                let TakeoverReplica { name, process, handle } = self.replicas.swap_remove(index);
                self.log.append(&format!("{name} stops"));
                let stopping_handle = handle.clone();
                process.run(async move { stopping_handle.stop().await });
                tokio::spawn(async move {
                    sleep(Duration::from_secs(20)).await;
                    process.kill();
                    drop(handle);
                });
            }
            3 if self.replicas.len() > 1 => {
                let TakeoverReplica { name, process, .. } = self.replicas.swap_remove(index);
                self.log.append(&format!("{name} is killed"));
                process.kill();
            }
            _ if self.replicas.len() < 2 * REPLICAS => self.join().await?,
            _ => {}
        }
        lagging.await?;
        let pause = self.random.between(Duration::ZERO, Duration::from_secs(12));
        sleep(pause).await;
        while self.replicas.len() < REPLICAS {
            self.join().await?;
        }
        Ok(())
    }
}

/// Returns the number of times that another replica took over the creation of a parent's children.
fn count_takeovers(server: &ApiServer) -> usize {
    let (history, mut last_creators, mut takeovers) = (server.history(), BTreeMap::<String, String>::new(), 0);
    for change in history.changes_of("", "pods").filter(|change| change.previous.is_none()) {
        let Some(child) = change.object.as_deref() else { continue };
        let text = |path: &str| child.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let (owner, creator) = (text("/metadata/ownerReferences/0/uid"), text("/metadata/labels/maker"));
        takeovers +=
            usize::from(last_creators.insert(owner, creator.clone()).is_some_and(|previous| previous != creator));
    }
    takeovers
}

fn assert_no_duplicate_children(scheme: TakeoverScheme) -> Result<(), TestError> {
    let (mut failed_seeds, mut takeovers) = (Vec::new(), 0);
    let (first, seeds) = (env_number("STEADFAST_FIRST_SEED", 0), env_number("STEADFAST_SEEDS", 4));
    for seed in first..first + seeds {
        let result = block_on_virtual_time(run_history(seed, scheme))?;
        takeovers += result.takeovers;
        if !result.problems.is_empty() {
            println!("seed {seed}: {:#?}", result.problems);
            failed_seeds.push(seed);
        }
    }
    println!("{scheme:?}: {seeds} histories, {takeovers} takeovers");
    assert_eq!(failed_seeds, [0; 0], "a parent had too many or too few children in these histories");
    assert!(takeovers as u64 > seeds, "too few takeovers to prove anything: {takeovers}");
    Ok(())
}

/// Checks that one of the first 20 histories has a duplicate child. Prints its seed.
fn assert_duplicate_detected(scheme: TakeoverScheme) -> Result<(), TestError> {
    let is_found = |seed| {
        let result = block_on_virtual_time(run_history(seed, scheme));
        result.is_ok_and(|result| result.problems.iter().any(|problem| problem.contains(" had ")))
    };
    let seed = (0..20).find(|seed| is_found(*seed)).ok_or("20 histories find nothing")?;
    println!("{scheme:?} is found by seed {seed}");
    Ok(())
}

#[test]
fn key_takeover_causes_no_duplicate_child() -> Result<(), TestError> {
    assert_no_duplicate_children(TakeoverScheme::Sharding)
}

#[test]
fn leader_takeover_causes_no_duplicate_child() -> Result<(), TestError> {
    assert_no_duplicate_children(TakeoverScheme::Leader)
}

#[test]
fn key_takeover_without_sync_is_detected() -> Result<(), TestError> {
    assert_duplicate_detected(TakeoverScheme::ShardingWithoutSync)
}

#[test]
fn leadership_without_sync_is_detected() -> Result<(), TestError> {
    assert_duplicate_detected(TakeoverScheme::LeaderWithoutSync)
}

#[test]
fn one_takeover() -> Result<(), TestError> {
    enable_logging("steadfast=info,steadfast_controller=debug");
    for scheme in [TakeoverScheme::Sharding, TakeoverScheme::Leader] {
        let result = block_on_virtual_time(run_history(env_number("STEADFAST_SEED", 1), scheme))?;
        println!("{scheme:?}\n{}", result.log);
        assert!(result.problems.is_empty(), "{scheme:?}: {:#?}", result.problems);
    }
    Ok(())
}
