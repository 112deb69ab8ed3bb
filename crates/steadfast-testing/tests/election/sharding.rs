//! Sharding on the embedded server. In random histories, replicas start, stop, are cut off, frozen and killed, and
//! write to the keys that they hold. The checker reads the writes that the server accepted.
//!
//! `STEADFAST_SEED=n cargo test -p steadfast-testing --test election one_sharding_history -- --nocapture` repeats
//! one seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steadfast::{Connection, InformerFactory, ObjectKey, Scope, kube};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{Action, Controller, InjectedShardingFault, Sharding, ShardingBuilder, back_off};
use steadfast_core::random::Random;
use steadfast_testing::proxy::Direction;
use steadfast_testing::{InMemory, TestError, config_map};
use tokio::time::sleep;

use crate::faults::{
    Log, MAX_RECOVERY_TIME, MAX_WRITE_DURATION, block_on_virtual_time, enable_logging, freeze, number, slow_writes,
};
use crate::process::{Mutant, Process};

/// Deliberately omitted protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missing {
    /// Omission in the environment of the replicas.
    mutant: Option<Mutant>,
    /// Omission in the protocol.
    fault: Option<InjectedShardingFault>,
}

/// Sizes of the random histories. The scenario with real processes has larger ones.
const KEYS: usize = 5;
const OBJECTS: usize = 40;
const MEMBERS: usize = 3;
const STEPS: usize = 12;

/// Accepted write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    at: Duration,
    member: String,
    /// Sequence number of the hold, counted per member. A hold is a period in which the member held the key.
    hold: u64,
}

struct HistoryResult {
    problems: Vec<String>,
    /// Number of changes of a key's writer.
    moves: usize,
    writes: usize,
    log: String,
}

/// Replica in its process.
struct Replica {
    process: Process,
    sharding: Sharding,
}

struct HistoryRun {
    server: ApiServer,
    missing: Missing,
    random: Random,
    replicas: Vec<Replica>,
    log: Log,
}

async fn run_history(seed: u64, missing: Missing) -> Result<HistoryResult, TestError> {
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().http2(true).seed(random.draw()).start().await?;
    for key in 0..KEYS {
        server.create(&config_map(&format!("key-{key}"), ""))?;
    }
    let mut history = HistoryRun { server, missing, random, replicas: Vec::new(), log: Log::new() };
    for _ in 0..MEMBERS {
        history.join().await?;
    }
    sleep(Duration::from_secs(20)).await;
    for _ in 0..STEPS {
        let pause = history.random.between(Duration::from_millis(1), Duration::from_secs(12));
        sleep(pause).await;
        history.inject_random_fault().await?;
    }
    history.heal();
    let healed = history.server.elapsed();
    sleep(MAX_RECOVERY_TIME).await;
    let written = written(&history.server);
    let mut problems = Vec::new();
    for (key, written) in &written {
        problems.extend(violations(written).into_iter().map(|problem| format!("{key}: {problem}")));
    }
    for key in (0..KEYS).map(|key| format!("key-{key}")) {
        let last = written.get(&key).and_then(|written| written.last());
        if last.is_none_or(|last| last.at < healed + MAX_RECOVERY_TIME / 2) {
            problems.push(format!("{key} has no holder {MAX_RECOVERY_TIME:?} after the last fault: {last:?}"));
        }
    }
    let moves = |written: &Vec<Written>| written.windows(2).filter(|two| two[0].member != two[1].member).count();
    let (moves, writes) = (written.values().map(moves).sum(), written.values().map(Vec::len).sum());
    Ok(HistoryResult { problems, moves, writes, log: history.log.text })
}

impl HistoryRun {
    async fn join(&mut self) -> Result<(), TestError> {
        let process = Process::start(&self.server, self.random.draw(), self.missing.mutant);
        // The delay separates a write from its observation by another replica.
        process.network.delay(self.random.between(Duration::ZERO, Duration::from_millis(500)));
        let http2 = !self.random.draw().is_multiple_of(3);
        let connection = process.connection(&self.server, http2).await?;
        let sharding = Sharding::builder(&connection, "default", "it").identity("replica");
        let sharding = sharding.wall_clock(process.wall_clock());
        let sharding = self.missing.fault.into_iter().fold(sharding, ShardingBuilder::inject_fault).start()?;
        self.log.note(&format!("{} joins", sharding.identity()));
        let holds = Arc::new(AtomicU64::new(0));
        for key in 0..KEYS {
            let writer = Writer {
                process: process.clone(),
                connection: connection.clone(),
                sharding: sharding.clone(),
                key: format!("key-{key}"),
                holds: holds.clone(),
                mutant: self.missing.mutant,
                random: Random::new(self.random.draw()),
            };
            process.run(writer.write());
        }
        self.replicas.push(Replica { process, sharding });
        Ok(())
    }

    async fn inject_random_fault(&mut self) -> Result<(), TestError> {
        let index = self.random.draw() as usize % self.replicas.len();
        let Replica { process, sharding } = &self.replicas[index];
        let (process, sharding, who) = (process.clone(), sharding.clone(), sharding.identity().to_owned());
        let lasts = self.random.between(Duration::from_millis(200), Duration::from_secs(40));
        match self.random.draw() % 13 {
            what @ 0..=3 => {
                let direction = match what {
                    0 | 1 => Direction::Both,
                    2 => Direction::ToServer,
                    _ => Direction::ToClient,
                };
                self.log.note(&format!("{who} is cut off {direction:?} for {lasts:?}"));
                process.network.black_hole(direction, true);
                // The worst case: the kernel still sends buffered bytes while no task of the process runs.
                if self.random.draw().is_multiple_of(3) {
                    process.freeze(true);
                }
                tokio::spawn(async move {
                    sleep(lasts).await;
                    process.network.black_hole(direction, false);
                    sleep(lasts / 2).await;
                    process.freeze(false);
                });
            }
            4 | 5 => {
                self.log.note(&format!("{who} is frozen for {lasts:?}"));
                freeze(&process, lasts);
            }
            6 => {
                let few = self.random.draw() % 4000;
                self.log.note(&format!("{who} loses answers after {few} bytes"));
                process.network.reset_after(few, Direction::ToClient);
            }
            7 => {
                let takes = self.random.between(Duration::ZERO, MAX_WRITE_DURATION);
                self.log.note(&format!("the server takes {takes:?} for a write, for {lasts:?}"));
                slow_writes(&self.server, takes, lasts);
            }
            8 | 9 => {
                self.log.note(&format!("{who} is killed"));
                process.kill();
                self.replicas.swap_remove(index);
                self.join().await?;
            }
            10 if self.replicas.len() > 1 => {
                self.log.note(&format!("{who} stops in the middle of its work"));
                self.replicas.swap_remove(index);
                process.clone().run(async move {
                    sharding.stop().await;
                });
                tokio::spawn(async move {
                    sleep(Duration::from_secs(30)).await;
                    process.kill();
                });
            }
            11 => {
                let jump = (self.random.draw() % 2_000_000).cast_signed() - 1_000_000;
                self.log.note(&format!("the wall clock of {who} jumps to {jump} s"));
                process.jump(jump);
            }
            _ => self.join().await?,
        }
        Ok(())
    }

    /// Ends all injected faults.
    fn heal(&mut self) {
        self.log.note("all is well");
        self.server.faults().clear_rules();
        for replica in &self.replicas {
            replica.process.network.heal();
            replica.process.freeze(false);
        }
    }
}

/// Task that writes to one key while the replica holds it, and notices the end of the hold late.
struct Writer {
    process: Process,
    connection: Connection,
    sharding: Sharding,
    key: String,
    holds: Arc<AtomicU64>,
    mutant: Option<Mutant>,
    random: Random,
}

impl Writer {
    async fn write(mut self) {
        let key = ObjectKey::namespaced("default", &self.key);
        loop {
            if let Some(held) = self.sharding.hold(&key) {
                let count = self.holds.fetch_add(1, Ordering::Relaxed);
                let client = match self.mutant {
                    Some(Mutant::OrdinaryClient) => self.connection.client(),
                    _ => held.client(),
                };
                // One in four writers drops the guard, and continues with the client of the expired hold.
                let held = (!self.random.draw().is_multiple_of(4)).then_some(held);
                let objects: Api<ConfigMap> = Api::namespaced(client, "default");
                for number in 0..=self.random.draw() % 20 {
                    let length = if self.random.draw().is_multiple_of(8) { 40_000 } else { 20 };
                    let holder = format!("{}#{count}", self.sharding.identity());
                    let data = json!({ "holder": holder, "number": number.to_string(), "filling": "x".repeat(length) });
                    let patch = Patch::Merge(json!({ "data": data }));
                    let patience = self.random.between(Duration::from_millis(100), Duration::from_secs(20));
                    let parameters = PatchParams::default();
                    tokio::select! {
                        biased;
                        _ = objects.patch(&self.key, &parameters, &patch) => {}
                        // The writer cancels the request, and its result remains unknown.
                        () = self.process.pause(patience) => {}
                    }
                    self.pause().await;
                }
                drop(held);
            }
            self.pause().await;
        }
    }

    async fn pause(&mut self) {
        let pause = self.random.between(Duration::from_millis(1), Duration::from_millis(2500));
        self.process.pause(pause).await;
    }
}

/// Returns the writers of each key, in the order of accepted writes.
fn written(server: &ApiServer) -> BTreeMap<String, Vec<Written>> {
    let mut all: BTreeMap<String, Vec<Written>> = BTreeMap::new();
    for change in server.history().of("", "configmaps") {
        let holder = change.object.as_deref().and_then(|object| object["data"]["holder"].as_str());
        if let Some((member, hold)) = holder.and_then(|holder| holder.split_once('#')) {
            let hold = hold.parse().expect("a number");
            all.entry(change.name.clone()).or_default().push(Written {
                at: change.at,
                member: member.to_owned(),
                hold,
            });
        }
    }
    all
}

/// Returns the accepted writes of expired holds. A hold has expired once another member, or a later hold of the same
/// member, has written.
fn violations(written: &[Written]) -> Vec<String> {
    // Per member: the latest hold that had written before another member wrote.
    let (mut over, mut current): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    let mut found = Vec::new();
    for Written { at, member, hold } in written {
        for (other, latest) in std::mem::take(&mut current) {
            if other == member {
                current.insert(other, latest);
            } else {
                let over = over.entry(other).or_insert(latest);
                *over = latest.max(*over);
            }
        }
        if over.get(member.as_str()).is_some_and(|over| hold <= over) {
            found.push(format!("{member}#{hold} wrote at {at:?}, after another had begun"));
        }
        let latest = current.entry(member).or_insert(*hold);
        *latest = (*latest).max(*hold);
    }
    found
}

fn run(seed: u64, missing: Missing) -> Result<HistoryResult, TestError> {
    block_on_virtual_time(run_history(seed, missing))
}

#[test]
fn sharded_keys_have_one_writer() -> Result<(), TestError> {
    let (mut broken, mut moves, mut writes) = (Vec::new(), 0, 0);
    let (first, seeds) = (number("STEADFAST_FIRST_SEED", 0), number("STEADFAST_SEEDS", 12));
    for seed in first..first + seeds {
        let result = run(seed, Missing::default())?;
        moves += result.moves;
        writes += result.writes;
        if !result.problems.is_empty() {
            println!("seed {seed}: {:#?}", result.problems);
            broken.push(seed);
        }
    }
    assert_eq!(broken, [0; 0], "a key had two holders or none in these histories");
    println!("{seeds} histories: {writes} writes, {moves} times by another than before");
    assert!(moves as u64 > 5 * seeds, "too few moves of keys to prove anything: {moves}");
    Ok(())
}

/// Checks that, without this protection, the checker finds two holders of a key in one of the histories. Prints the
/// seed of the first such history.
fn assert_detected(missing: Missing) -> Result<(), TestError> {
    let finds =
        |seed| run(seed, missing).is_ok_and(|result| result.problems.iter().any(|it| it.contains(" wrote at ")));
    let seed = (0..40).find(|seed| finds(*seed)).ok_or("40 histories find nothing")?;
    println!("{missing:?} is found by seed {seed}");
    Ok(())
}

fn assert_fault_detected(fault: InjectedShardingFault) -> Result<(), TestError> {
    assert_detected(Missing { fault: Some(fault), ..Missing::default() })
}

fn assert_mutant_detected(mutant: Mutant) -> Result<(), TestError> {
    assert_detected(Missing { mutant: Some(mutant), ..Missing::default() })
}

#[test]
fn write_by_ordinary_client_is_detected() -> Result<(), TestError> {
    assert_mutant_detected(Mutant::OrdinaryClient)
}

#[test]
fn lease_expiry_by_wall_clock_is_detected() -> Result<(), TestError> {
    assert_mutant_detected(Mutant::WallClock)
}

#[test]
fn read_before_publishing_claim_is_detected() -> Result<(), TestError> {
    assert_fault_detected(InjectedShardingFault::ReadFirst)
}

#[test]
fn acting_on_contested_claim_is_detected() -> Result<(), TestError> {
    assert_fault_detected(InjectedShardingFault::IgnoredClaims)
}

#[test]
fn early_key_release_is_detected() -> Result<(), TestError> {
    assert_fault_detected(InjectedShardingFault::EarlyRelease)
}

/// All waits on a member return after its runtime has shut down.
#[test]
fn replica_stops_with_its_runtime() -> Result<(), TestError> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let first = runtime()?;
    let key = ObjectKey::namespaced("default", "key-0");
    let (server, informers, sharding) = first.block_on(async {
        let server = ApiServer::builder().in_memory().start().await?;
        server.create(&config_map("key-0", ""))?;
        let connection = InMemory::default().connection(&server).await?;
        let informers = InformerFactory::new(&connection);
        let sharding = Sharding::builder(&connection, "default", "it").start()?;
        sleep(Duration::from_secs(20)).await;
        Ok::<_, TestError>((server, informers.informer::<ConfigMap>(Scope::all())?, sharding))
    })?;
    assert!(sharding.owns(&key), "the only member owns every key");
    let gained = sharding.gained(&informers);
    drop((first, server));
    runtime()?.block_on(async {
        let ended = async {
            assert!(!sharding.stop().await, "no member released its lease");
            assert!(!sharding.changed(&mut 0).await);
            assert_eq!(gained.count().await, 0);
        };
        Ok(tokio::time::timeout(Duration::from_secs(60), ended).await?)
    })
}

#[test]
fn one_sharding_history() -> Result<(), TestError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, Missing::default())?, run(1, Missing::default())?);
        assert_eq!(
            (first.log, first.writes, first.moves),
            (second.log, second.writes, second.moves),
            "a seed must determine its history"
        );
        return Ok(());
    };
    enable_logging("steadfast=info,steadfast_controller=debug");
    let result = run(seed, Missing::default())?;
    println!("{}", result.log);
    assert!(result.problems.is_empty(), "{:#?}", result.problems);
    Ok(())
}

#[test]
fn check_detects_write_after_handover() {
    let judged = |writes: &[(&str, u64)]| {
        let written =
            |(member, hold): &(&str, u64)| Written { at: Duration::ZERO, member: (*member).to_owned(), hold: *hold };
        violations(&writes.iter().map(written).collect::<Vec<_>>()).len()
    };
    assert_eq!(judged(&[("a", 1), ("a", 2), ("a", 1), ("b", 1), ("b", 2), ("a", 3)]), 0);
    assert_eq!(judged(&[("a", 1), ("b", 1), ("a", 1), ("b", 1)]), 2);
    assert_eq!(judged(&[("a", 2), ("b", 1), ("a", 1)]), 1, "a hold before an expired one has expired too");
}

/// Reconciles a config map: writes the identity of the key's owner into the config map.
async fn count_reconcile(object: Arc<ConfigMap>, sharding: Arc<Sharding>) -> Result<Action, kube::Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let Some(held) = sharding.hold(&ObjectKey::namespaced("default", &name)) else {
        return Ok(Action::await_change());
    };
    let value = |key: &str| object.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default();
    if (value("by").as_str(), value("signed")) != (sharding.identity(), value("value")) {
        let data = json!({ "by": sharding.identity(), "signed": value("value") });
        let maps = Api::<ConfigMap>::namespaced(held.client(), "default");
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await?;
    }
    Ok(Action::await_change())
}

/// Returns the number of current maps that each replica has signed.
fn signed(server: &ApiServer) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for key in (0..OBJECTS).map(|key| format!("key-{key}")) {
        let map = server.get("configmaps", "default", &key).unwrap_or_default();
        if map["data"]["signed"] == map["data"]["value"] {
            *all.entry(map["data"]["by"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn sharded_controllers_reconcile_gained_keys() -> Result<(), TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    for key in 0..OBJECTS {
        server.create(&config_map(&format!("key-{key}"), "1"))?;
    }
    let mut members = Vec::new();
    for seed in 0..3 {
        let connection = InMemory { seed, ..InMemory::default() }.connection(&server).await?;
        let informers = InformerFactory::new(&connection);
        let maps = informers.informer::<ConfigMap>(Scope::all())?;
        // The controllers receive all objects before any member owns a key.
        maps.wait_for_sync(Duration::from_secs(1)).await?;
        let sharding = Sharding::builder(&connection, "default", "it").start()?;
        let controller = Controller::<ConfigMap>::new(&informers, maps.clone()).sharded_by(&sharding).run(
            count_reconcile,
            back_off,
            Arc::new(sharding.clone()),
        )?;
        members.push((sharding, controller, informers));
    }
    sleep(Duration::from_secs(60)).await;
    let parts = signed(&server);
    assert_eq!((parts.len(), parts.values().sum::<usize>()), (3, OBJECTS), "{parts:?}");
    assert!(parts.values().all(|part| *part > OBJECTS / 10), "{parts:?}");

    // A regular stop releases the keys immediately, and not only when the lease has expired.
    let (leaving, controller, _informers) = members.remove(0);
    controller.stop(Duration::from_secs(1)).await;
    assert!(leaving.stop().await, "the stop must release the lease");
    assert!(leaving.hold(&ObjectKey::namespaced("default", "key-0")).is_none());
    sleep(Duration::from_secs(8)).await;
    let parts = signed(&server);
    assert_eq!((parts.len(), parts.values().sum::<usize>()), (2, OBJECTS), "{parts:?}");
    assert!(!parts.contains_key(leaving.identity()));

    // The owner of each key signs its changed object.
    for key in 0..OBJECTS {
        server.merge_patch("configmaps", "default", &format!("key-{key}"), json!({ "data": { "value": "2" } }))?;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(signed(&server), parts);
    Ok(())
}
