//! Sharding on the embedded server. In random histories, replicas start, stop, are disconnected, frozen and killed, and
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
    Log, MAX_RECOVERY_TIME, MAX_WRITE_DURATION, block_on_virtual_time, enable_logging, env_number, freeze, slow_writes,
};
use crate::process::{Mutant, Process};

/// Deliberately omitted protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OmittedProtection {
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
struct AcceptedWrite {
    at: Duration,
    member: String,
    /// Sequence number of the hold, counted per member. A hold is a period in which the member held the key.
    hold: u64,
}

struct ShardingResult {
    problems: Vec<String>,
    /// Number of changes of a key's writer.
    moves: usize,
    writes: usize,
    log: String,
}

/// Replica in its process.
struct ShardingReplica {
    process: Process,
    sharding: Sharding,
}

struct ShardingRun {
    server: ApiServer,
    omission: OmittedProtection,
    random: Random,
    replicas: Vec<ShardingReplica>,
    log: Log,
}

async fn run_history(seed: u64, omission: OmittedProtection) -> Result<ShardingResult, TestError> {
    let mut random = Random::new(seed);
    let server = ApiServer::builder().in_memory().http2(true).seed(random.draw()).start().await?;
    for key in 0..KEYS {
        server.create(&config_map(&format!("key-{key}"), ""))?;
    }
    let mut history = ShardingRun { server, omission, random, replicas: Vec::new(), log: Log::new() };
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
    let healed_at = history.server.elapsed();
    sleep(MAX_RECOVERY_TIME).await;
    let writes_by_key = accepted_writes(&history.server);
    let mut problems = Vec::new();
    for (key, writes) in &writes_by_key {
        problems.extend(violations(writes).into_iter().map(|problem| format!("{key}: {problem}")));
    }
    for key in (0..KEYS).map(|key| format!("key-{key}")) {
        let last = writes_by_key.get(&key).and_then(|writes| writes.last());
        if last.is_none_or(|last| last.at < healed_at + MAX_RECOVERY_TIME / 2) {
            problems.push(format!("{key} has no holder {MAX_RECOVERY_TIME:?} after the last fault: {last:?}"));
        }
    }
    let count_moves =
        |writes: &Vec<AcceptedWrite>| writes.windows(2).filter(|pair| pair[0].member != pair[1].member).count();
    let (moves, writes) = (writes_by_key.values().map(count_moves).sum(), writes_by_key.values().map(Vec::len).sum());
    Ok(ShardingResult { problems, moves, writes, log: history.log.text })
}

impl ShardingRun {
    async fn join(&mut self) -> Result<(), TestError> {
        let process = Process::start(&self.server, self.random.draw(), self.omission.mutant);
        // The delay separates a write from its observation by another replica.
        process.network.delay(self.random.between(Duration::ZERO, Duration::from_millis(500)));
        let http2 = !self.random.draw().is_multiple_of(3);
        let connection = process.connection(&self.server, http2).await?;
        let sharding = Sharding::builder(&connection, "default", "it").identity("replica");
        let sharding = sharding.wall_clock(process.wall_clock());
        let sharding = self.omission.fault.into_iter().fold(sharding, ShardingBuilder::inject_fault).start()?;
        self.log.append(&format!("{} joins", sharding.identity()));
        let hold_count = Arc::new(AtomicU64::new(0));
        for key in 0..KEYS {
            let writer = KeyWriter {
                process: process.clone(),
                connection: connection.clone(),
                sharding: sharding.clone(),
                key: format!("key-{key}"),
                hold_count: hold_count.clone(),
                mutant: self.omission.mutant,
                random: Random::new(self.random.draw()),
            };
            process.run(writer.write());
        }
        self.replicas.push(ShardingReplica { process, sharding });
        Ok(())
    }

    async fn inject_random_fault(&mut self) -> Result<(), TestError> {
        let index = self.random.draw() as usize % self.replicas.len();
        let ShardingReplica { process, sharding } = &self.replicas[index];
        let (process, sharding, identity) = (process.clone(), sharding.clone(), sharding.identity().to_owned());
        let duration = self.random.between(Duration::from_millis(200), Duration::from_secs(40));
        match self.random.draw() % 13 {
            fault @ 0..=3 => {
                let direction = match fault {
                    0 | 1 => Direction::Both,
                    2 => Direction::ToServer,
                    _ => Direction::ToClient,
                };
                self.log.append(&format!("{identity} is disconnected {direction:?} for {duration:?}"));
                process.network.black_hole(direction, true);
                // The worst case: the kernel still sends buffered bytes while no task of the process runs.
                if self.random.draw().is_multiple_of(3) {
                    process.freeze(true);
                }
                tokio::spawn(async move {
                    sleep(duration).await;
                    process.network.black_hole(direction, false);
                    sleep(duration / 2).await;
                    process.freeze(false);
                });
            }
            4 | 5 => {
                self.log.append(&format!("{identity} is frozen for {duration:?}"));
                freeze(&process, duration);
            }
            6 => {
                let byte_count = self.random.draw() % 4000;
                self.log.append(&format!("{identity} loses responses after {byte_count} bytes"));
                process.network.reset_after(byte_count, Direction::ToClient);
            }
            7 => {
                let write_delay = self.random.between(Duration::ZERO, MAX_WRITE_DURATION);
                self.log.append(&format!("the server takes {write_delay:?} for a write, for {duration:?}"));
                slow_writes(&self.server, write_delay, duration);
            }
            8 | 9 => {
                self.log.append(&format!("{identity} is killed"));
                process.kill();
                self.replicas.swap_remove(index);
                self.join().await?;
            }
            10 if self.replicas.len() > 1 => {
                self.log.append(&format!("{identity} stops in the middle of its work"));
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
                let jump_seconds = (self.random.draw() % 2_000_000).cast_signed() - 1_000_000;
                self.log.append(&format!("the wall clock of {identity} jumps to {jump_seconds} s"));
                process.jump(jump_seconds);
            }
            _ => self.join().await?,
        }
        Ok(())
    }

    /// Ends all injected faults.
    fn heal(&mut self) {
        self.log.append("all faults have ended");
        self.server.faults().clear_rules();
        for replica in &self.replicas {
            replica.process.network.heal();
            replica.process.freeze(false);
        }
    }
}

/// Task that writes to one key while the replica holds it, and notices the end of the hold late.
struct KeyWriter {
    process: Process,
    connection: Connection,
    sharding: Sharding,
    key: String,
    hold_count: Arc<AtomicU64>,
    mutant: Option<Mutant>,
    random: Random,
}

impl KeyWriter {
    async fn write(mut self) {
        let key = ObjectKey::namespaced("default", &self.key);
        loop {
            if let Some(hold) = self.sharding.hold(&key) {
                let hold_number = self.hold_count.fetch_add(1, Ordering::Relaxed);
                let client = match self.mutant {
                    Some(Mutant::OrdinaryClient) => self.connection.client(),
                    _ => hold.client(),
                };
                // One in four writers drops the guard, and continues with the client of the expired hold.
                let hold = (!self.random.draw().is_multiple_of(4)).then_some(hold);
                let objects: Api<ConfigMap> = Api::namespaced(client, "default");
                for number in 0..=self.random.draw() % 20 {
                    let length = if self.random.draw().is_multiple_of(8) { 40_000 } else { 20 };
                    let holder = format!("{}#{hold_number}", self.sharding.identity());
                    let data = json!({ "holder": holder, "number": number.to_string(), "filling": "x".repeat(length) });
                    let patch = Patch::Merge(json!({ "data": data }));
                    let timeout = self.random.between(Duration::from_millis(100), Duration::from_secs(20));
                    let parameters = PatchParams::default();
                    tokio::select! {
                        biased;
                        _ = objects.patch(&self.key, &parameters, &patch) => {}
                        // The writer cancels the request, and its result remains unknown.
                        () = self.process.pause(timeout) => {}
                    }
                    self.pause().await;
                }
                drop(hold);
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
fn accepted_writes(server: &ApiServer) -> BTreeMap<String, Vec<AcceptedWrite>> {
    let mut writes_by_key: BTreeMap<String, Vec<AcceptedWrite>> = BTreeMap::new();
    for change in server.history().changes_of("", "configmaps") {
        let holder = change.object.as_deref().and_then(|object| object["data"]["holder"].as_str());
        if let Some((member, hold)) = holder.and_then(|holder| holder.split_once('#')) {
            let hold = hold.parse().expect("a number");
            writes_by_key.entry(change.name.clone()).or_default().push(AcceptedWrite {
                at: change.at,
                member: member.to_owned(),
                hold,
            });
        }
    }
    writes_by_key
}

/// Returns the accepted writes of expired holds. A hold has expired once another member, or a later hold of the same
/// member, has written.
fn violations(writes: &[AcceptedWrite]) -> Vec<String> {
    // Per member: the latest hold that had written before another member wrote.
    let (mut expired_holds, mut current_holds): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    let mut violations = Vec::new();
    for AcceptedWrite { at, member, hold } in writes {
        for (other, latest) in std::mem::take(&mut current_holds) {
            if other == member {
                current_holds.insert(other, latest);
            } else {
                let expired = expired_holds.entry(other).or_insert(latest);
                *expired = latest.max(*expired);
            }
        }
        if expired_holds.get(member.as_str()).is_some_and(|expired| hold <= expired) {
            violations.push(format!("{member}#{hold} wrote at {at:?}, after another had begun"));
        }
        let latest = current_holds.entry(member).or_insert(*hold);
        *latest = (*latest).max(*hold);
    }
    violations
}

fn run(seed: u64, omission: OmittedProtection) -> Result<ShardingResult, TestError> {
    block_on_virtual_time(run_history(seed, omission))
}

#[test]
fn sharded_keys_have_one_writer() -> Result<(), TestError> {
    let (mut failed_seeds, mut moves, mut writes) = (Vec::new(), 0, 0);
    let (first, seeds) = (env_number("STEADFAST_FIRST_SEED", 0), env_number("STEADFAST_SEEDS", 12));
    for seed in first..first + seeds {
        let result = run(seed, OmittedProtection::default())?;
        moves += result.moves;
        writes += result.writes;
        if !result.problems.is_empty() {
            println!("seed {seed}: {:#?}", result.problems);
            failed_seeds.push(seed);
        }
    }
    assert_eq!(failed_seeds, [0; 0], "a key had two holders or none in these histories");
    println!("{seeds} histories: {writes} writes, {moves} times by another than before");
    assert!(moves as u64 > 5 * seeds, "too few moves of keys to prove anything: {moves}");
    Ok(())
}

/// Checks that, without this protection, the checker finds two holders of a key in one of the histories. Prints the
/// seed of the first such history.
fn assert_detected(omission: OmittedProtection) -> Result<(), TestError> {
    let is_detected = |seed| {
        run(seed, omission).is_ok_and(|result| result.problems.iter().any(|problem| problem.contains(" wrote at ")))
    };
    let seed = (0..40).find(|seed| is_detected(*seed)).ok_or("40 histories find nothing")?;
    println!("{omission:?} is found by seed {seed}");
    Ok(())
}

fn assert_fault_detected(fault: InjectedShardingFault) -> Result<(), TestError> {
    assert_detected(OmittedProtection { fault: Some(fault), ..OmittedProtection::default() })
}

fn assert_mutant_detected(mutant: Mutant) -> Result<(), TestError> {
    assert_detected(OmittedProtection { mutant: Some(mutant), ..OmittedProtection::default() })
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
    let gained_keys = sharding.gained(&informers);
    drop((first, server));
    runtime()?.block_on(async {
        let stops = async {
            assert!(!sharding.stop().await, "no member released its lease");
            assert!(!sharding.changed(&mut 0).await);
            assert_eq!(gained_keys.count().await, 0);
        };
        Ok(tokio::time::timeout(Duration::from_secs(60), stops).await?)
    })
}

#[test]
fn one_sharding_history() -> Result<(), TestError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        let (first, second) = (run(1, OmittedProtection::default())?, run(1, OmittedProtection::default())?);
        assert_eq!(
            (first.log, first.writes, first.moves),
            (second.log, second.writes, second.moves),
            "a seed must determine its history"
        );
        return Ok(());
    };
    enable_logging("steadfast=info,steadfast_controller=debug");
    let result = run(seed, OmittedProtection::default())?;
    println!("{}", result.log);
    assert!(result.problems.is_empty(), "{:#?}", result.problems);
    Ok(())
}

#[test]
fn check_detects_write_after_handover() {
    let violation_count = |writes: &[(&str, u64)]| {
        let accepted_write = |(member, hold): &(&str, u64)| AcceptedWrite {
            at: Duration::ZERO,
            member: (*member).to_owned(),
            hold: *hold,
        };
        violations(&writes.iter().map(accepted_write).collect::<Vec<_>>()).len()
    };
    assert_eq!(violation_count(&[("a", 1), ("a", 2), ("a", 1), ("b", 1), ("b", 2), ("a", 3)]), 0);
    assert_eq!(violation_count(&[("a", 1), ("b", 1), ("a", 1), ("b", 1)]), 2);
    assert_eq!(violation_count(&[("a", 2), ("b", 1), ("a", 1)]), 1, "a hold before an expired one has expired too");
}

/// Reconciles a config map: writes the identity of the key's owner into the config map.
async fn sign_object(object: Arc<ConfigMap>, sharding: Arc<Sharding>) -> Result<Action, kube::Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let Some(hold) = sharding.hold(&ObjectKey::namespaced("default", &name)) else {
        return Ok(Action::await_change());
    };
    let value = |key: &str| object.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default();
    if (value("by").as_str(), value("signed")) != (sharding.identity(), value("value")) {
        let data = json!({ "by": sharding.identity(), "signed": value("value") });
        let maps = Api::<ConfigMap>::namespaced(hold.client(), "default");
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await?;
    }
    Ok(Action::await_change())
}

/// Returns the number of current maps that each replica has signed.
fn signed_counts(server: &ApiServer) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for key in (0..OBJECTS).map(|key| format!("key-{key}")) {
        let map = server.get("configmaps", "default", &key).unwrap_or_default();
        if map["data"]["signed"] == map["data"]["value"] {
            *counts.entry(map["data"]["by"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts
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
            sign_object,
            back_off,
            Arc::new(sharding.clone()),
        )?;
        members.push((sharding, controller, informers));
    }
    sleep(Duration::from_secs(60)).await;
    let counts = signed_counts(&server);
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (3, OBJECTS), "{counts:?}");
    assert!(counts.values().all(|count| *count > OBJECTS / 10), "{counts:?}");

    // A regular stop releases the keys immediately, and not only when the lease has expired.
    let (stopped_member, controller, _informers) = members.remove(0);
    controller.stop(Duration::from_secs(1)).await;
    assert!(stopped_member.stop().await, "the stop must release the lease");
    assert!(stopped_member.hold(&ObjectKey::namespaced("default", "key-0")).is_none());
    sleep(Duration::from_secs(8)).await;
    let counts = signed_counts(&server);
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (2, OBJECTS), "{counts:?}");
    assert!(!counts.contains_key(stopped_member.identity()));

    // The owner of each key signs its changed object.
    for key in 0..OBJECTS {
        server.merge_patch("configmaps", "default", &format!("key-{key}"), json!({ "data": { "value": "2" } }))?;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(signed_counts(&server), counts);
    Ok(())
}
