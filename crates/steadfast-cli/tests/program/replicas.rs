//! Three replicas of `steadfast notify` under random kills and freezes. The verdict uses only external records: the
//! requests to a webhook, the keys in etcd, and the lease at the API server.
//!
//! Every change must be delivered, and a repeated delivery must have an equal ID. No request may arrive from a replica
//! without the lease. No key of an existing object may be missing, no removed key may return, and in the end etcd must
//! equal the cluster.
//!
//! `STEADFAST_SEEDS=4` runs four random sequences of 25 faults each, and `STEADFAST_SEED=7` runs the sequence of
//! seed 7. CI runs a few faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::unstable::random::Random;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::external_systems::Etcd;
use crate::run::{KillOnDrop, signal, start, stderr_text, steadfast, temp_path};
use crate::seeds::seeds;

const REPLICAS: usize = 3;

/// Number of faults in a sequence: in CI, and outside of CI.
const FAULTS_PER_RUN: [u64; 2] = [4, 25];

/// Maximum time between the arrival of a request and its record, on a busy machine.
const ARRIVAL_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of requests in flight of one replica, by the default of `concurrency`.
const MAX_IN_FLIGHT: usize = 4;

/// Time between two reads of the lease.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// A request at the receiver.
#[derive(Clone, Debug)]
struct Delivery {
    time: Instant,
    replica: String,
    message: Value,
}

/// A receiver of webhooks that records all requests.
struct Receiver {
    port: u16,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        let deliveries = Arc::<Mutex<Vec<Delivery>>>::default();
        let delivery_sink = deliveries.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let delivery_sink = delivery_sink.clone();
                std::thread::spawn(move || record_requests(stream, &delivery_sink));
            }
        });
        Self { port, deliveries }
    }

    fn recorded_deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().clone()
    }
}

/// Reads the requests of one connection until its end. Only complete requests count.
fn record_requests(stream: TcpStream, delivery_sink: &Mutex<Vec<Delivery>>) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut replica) = (0, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "x-replica" => value.trim().clone_into(&mut replica),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let message = serde_json::from_slice(&body).expect("the body is JSON");
        delivery_sink.lock().push(Delivery { time: Instant::now(), replica, message });
        writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}

/// Holders of the lease, from repeated reads.
#[derive(Default)]
struct LeadershipTerms {
    /// Holders, each with the start of the last read before its election, and the end of the first read with this
    /// holder.
    holders: Vec<(Instant, Instant, String)>,
    /// Ends of freezes, each with its replica.
    resumptions: Vec<(Instant, String)>,
}

impl LeadershipTerms {
    /// Returns whether `replica` may have held the lease at `time`, within the precision of the reads.
    fn covers(&self, replica: &str, time: Instant) -> bool {
        let ends = self.holders.iter().skip(1).map(|(_, end_time, _)| Some(*end_time)).chain([None]);
        let mut periods = self.holders.iter().zip(ends);
        periods.any(|((from, _, holder), end_time)| {
            let is_before_end = end_time.is_none_or(|end_time| time <= end_time + ARRIVAL_DELAY);
            holder.starts_with(&format!("{replica}_")) && *from <= time && is_before_end
        })
    }

    /// Returns the resumption of `replica` immediately before `time`.
    ///
    /// The lease is checked before a request is handed to its connection. If the process is frozen after this check, the
    /// request arrives after the freeze: see the limits of a term in `docs/controllers.md`.
    fn resumption_before(&self, replica: &str, time: Instant) -> Option<Instant> {
        let is_before = |resumption: Instant| resumption <= time && time <= resumption + ARRIVAL_DELAY;
        self.resumptions.iter().find(|(at, resumed)| resumed == replica && is_before(*at)).map(|(at, _)| *at)
    }
}

struct Fixture {
    _runtime: Runtime,
    server: Arc<ApiServer>,
    receiver: Receiver,
    etcd: Option<Etcd>,
    folder: PathBuf,
    replicas: Vec<Option<KillOnDrop>>,
    error_output: Arc<Mutex<String>>,
    /// Values of the objects that exist, by name.
    objects: BTreeMap<String, String>,
    /// UIDs of the objects that were deleted, with their names.
    deleted_objects: BTreeMap<String, String>,
    /// Number of changes.
    changes: u64,
    /// Keys in etcd at the last read.
    known_keys: BTreeSet<String>,
    /// Keys that were removed from etcd after the deletion of their objects. Names are used once.
    removed_keys: BTreeSet<String>,
    terms: Arc<Mutex<LeadershipTerms>>,
    is_ended: Arc<AtomicBool>,
    lease_reader: Option<JoinHandle<()>>,
}

impl Fixture {
    fn start(name: &str) -> Self {
        let folder = PathBuf::from(temp_path(name));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let runtime = Runtime::new().expect("a runtime");
        let server = Arc::new(runtime.block_on(ApiServer::start()).expect("the server starts"));
        let (receiver, etcd) = (Receiver::start(), Etcd::start(&folder));
        std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
        let (terms, is_ended) = (Arc::<Mutex<LeadershipTerms>>::default(), Arc::<AtomicBool>::default());
        let lease_reader = {
            let (server, terms, is_ended) = (server.clone(), terms.clone(), is_ended.clone());
            std::thread::spawn(move || {
                let mut last = Instant::now();
                while !is_ended.load(Ordering::Relaxed) {
                    let read_start = Instant::now();
                    let lease = server.get("leases", "default", "notify").ok();
                    let holder = lease.and_then(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned()));
                    let mut terms = terms.lock();
                    if let Some(holder) = holder
                        && terms.holders.last().is_none_or(|(_, _, before)| *before != holder)
                    {
                        terms.holders.push((last, Instant::now(), holder));
                    }
                    drop(terms);
                    last = read_start;
                    sleep(READ_INTERVAL);
                }
            })
        };
        let mut fixture = Self {
            _runtime: runtime,
            server,
            receiver,
            etcd,
            folder,
            replicas: (0..REPLICAS).map(|_| None).collect(),
            error_output: Arc::default(),
            objects: BTreeMap::new(),
            deleted_objects: BTreeMap::new(),
            changes: 0,
            known_keys: BTreeSet::new(),
            removed_keys: BTreeSet::new(),
            terms,
            is_ended,
            lease_reader: Some(lease_reader),
        };
        for number in 0..REPLICAS {
            fixture.configure(number);
            fixture.start_replica(number);
        }
        fixture
    }

    fn configuration(&self, number: usize) -> String {
        self.folder.join(format!("r{number}.toml")).display().to_string()
    }

    fn configure(&self, number: usize) {
        let (port, etcd) = (self.receiver.port, self.etcd.as_ref());
        let registry = etcd.map_or_else(String::new, |etcd| {
            let url = &etcd.url;
            format!(
                "[sinks.registry]\ncompare = \"2s\"\ndrain = \"0s\"\n\
                 etcd = {{endpoints = [\"{url}\"], prefix = \"/services/\", mark = \"replicas\"}}\n\
                 [[rules]]\nname = \"keys\"\nresources = [\"configmaps\"]\nnamespaces = [\"default\"]\n\
                 send = \"{{'key': object.metadata.name, 'value': object.data.value}}\"\nto = [\"registry\"]\n"
            )
        });
        let text = format!(
            "[replicas]\nlease = \"default/notify\"\nlease_duration = \"3s\"\nrenew_deadline = \"2s\"\nretry_period = \"300ms\"\n\
             [state]\nfolder = \"state-{number}\"\n[clusters.here]\nkubeconfig = \"kubeconfig\"\n\
             [sinks.hook.webhook]\nurl = \"http://127.0.0.1:{port}/\"\nheaders = {{x-replica = \"r{number}\"}}\n\
             body = \"{{'id': message.id, 'type': message.type, 'name': message.name, 'uid': message.uid, 'value': message.data}}\"\n\
             {registry}\
             [[rules]]\nname = \"values\"\nresources = [\"configmaps\"]\nnamespaces = [\"default\"]\n\
             send = \"object.data.value\"\nto = [\"hook\"]\n"
        );
        std::fs::write(self.configuration(number), text).expect("the folder is writable");
    }

    /// Starts a replica.
    fn start_replica(&mut self, number: usize) {
        let identity = format!("r{number}");
        let configuration = self.configuration(number);
        let mut child = start(&["notify", "-c", &configuration, "--identity", &identity, "--drain", "2"]);
        let stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
        let (error_output, from) = (self.error_output.clone(), Instant::now());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let line = format!("{identity} +{:.1} {line}\n", from.elapsed().as_secs_f64());
                error_output.lock().push_str(&line);
            }
        });
        self.replicas[number] = Some(KillOnDrop(child));
    }

    /// Returns the number of the replica that holds the lease.
    fn leader(&self) -> Option<usize> {
        let lease = self.server.get("leases", "default", "notify").ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        holder.strip_prefix('r')?.split('_').next()?.parse().ok()
    }

    fn signal(&self, number: usize, name: &str) {
        if let Some(KillOnDrop(child)) = &self.replicas[number] {
            if name == "CONT" {
                self.terms.lock().resumptions.push((Instant::now(), format!("r{number}")));
            }
            signal(child, name);
        }
    }

    /// Creates, changes or deletes an object.
    fn change_randomly(&mut self, rng: &mut Random) {
        self.changes += 1;
        let value = format!("v{}", self.changes);
        let names: Vec<String> = self.objects.keys().cloned().collect();
        let random_name = |rng: &mut Random| names[rng.below(names.len() as u64) as usize].clone();
        match rng.below(4) {
            0 if names.len() > 4 => {
                let name = random_name(rng);
                let uid =
                    self.server.get("configmaps", "default", &name).expect("the object exists")["metadata"]["uid"]
                        .clone();
                self.deleted_objects.insert(uid.as_str().expect("a UID").to_owned(), name.clone());
                self.objects.remove(&name);
                self.server.delete_named("configmaps", "default", &name).expect("the object exists");
            }
            1 | 2 if names.len() > 2 => {
                let name = random_name(rng);
                let patch = json!({"data": {"value": value}});
                self.server.merge_patch("configmaps", "default", &name, patch).expect("the object exists");
                self.objects.insert(name, value);
            }
            _ => {
                let name = format!("object-{}", self.changes);
                let metadata = json!({"namespace": "default", "name": name});
                let object = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value},
                });
                self.server.create(&object).expect("the object is created");
                self.objects.insert(name, value);
            }
        }
    }

    /// Changes an object until a change is delivered. The objects of the first list cause no messages, so changes before
    /// this list may stay undelivered.
    fn change_until_first_message(&mut self) {
        let name = "first".to_owned();
        let metadata = json!({"namespace": "default", "name": name});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": "v0"}});
        self.server.create(&object).expect("the object is created");
        let end_time = Instant::now() + Duration::from_secs(40);
        while self.receiver.recorded_deliveries().is_empty() {
            assert!(Instant::now() < end_time, "no message:\n{}", self.report());
            self.changes += 1;
            let value = format!("v{}", self.changes);
            let patch = json!({"data": {"value": value}});
            self.server.merge_patch("configmaps", "default", &name, patch).expect("the object exists");
            self.objects.insert(name.clone(), value);
            sleep(Duration::from_millis(100));
        }
    }

    /// Changes objects for a while, and watches the keys.
    fn run_changes(&mut self, rng: &mut Random, duration: Duration) {
        let end_time = Instant::now() + duration;
        while Instant::now() < end_time {
            self.change_randomly(rng);
            self.check_keys();
            sleep(Duration::from_millis(50 + rng.below(250)));
        }
    }

    /// Checks that each known key remains in etcd while its object exists, and that no removed key has returned.
    fn check_keys(&mut self) {
        let Some(keys) = self.keys() else { return };
        let exists = |name: &&String| self.objects.contains_key(*name);
        let lost_keys: Vec<_> = self.known_keys.iter().filter(exists).filter(|name| !keys.contains(*name)).collect();
        assert!(lost_keys.is_empty(), "{lost_keys:?} are missing in etcd\n{}", self.report());
        let returned_keys: Vec<_> = keys.intersection(&self.removed_keys).collect();
        assert!(returned_keys.is_empty(), "{returned_keys:?} have returned to etcd\n{}", self.report());
        let removed = |name: &&String| !self.objects.contains_key(*name) && !keys.contains(*name);
        self.removed_keys.extend(self.known_keys.iter().filter(removed).cloned());
        // The keys of deleted objects stay known until they are removed.
        self.known_keys = keys;
    }

    /// Causes one fault, after which all replicas run again.
    fn inject_random_fault(&mut self, rng: &mut Random) -> String {
        let leader = self.leader().unwrap_or_default();
        let standby = (leader + 1 + rng.below(2) as usize) % REPLICAS;
        let duration = Duration::from_millis(200 + rng.below(5000));
        let kind = rng.below(7);
        match kind {
            0 | 1 => {
                self.replicas[leader] = None;
                self.run_changes(rng, duration);
                self.start_replica(leader);
            }
            2 | 3 => {
                self.signal(leader, "STOP");
                self.run_changes(rng, duration);
                self.signal(leader, "CONT");
            }
            4 => {
                self.signal(leader, "STOP");
                self.run_changes(rng, duration);
                // The successor is killed at the instant at which the frozen leader resumes.
                if let Some(next) = self.leader().filter(|next| *next != leader) {
                    self.replicas[next] = None;
                    self.signal(leader, "CONT");
                    self.run_changes(rng, Duration::from_millis(500));
                    self.start_replica(next);
                } else {
                    self.signal(leader, "CONT");
                }
            }
            5 => {
                self.replicas[standby] = None;
                self.run_changes(rng, duration);
                self.start_replica(standby);
            }
            _ => {
                // A graceful shutdown, as in a rolling update.
                self.signal(leader, "TERM");
                self.run_changes(rng, duration);
                self.replicas[leader] = None;
                self.start_replica(leader);
            }
        }
        let pause = Duration::from_millis(rng.below(3000));
        self.run_changes(rng, pause);
        let kinds = ["kill", "kill", "freeze", "freeze", "freeze, kill the successor", "kill a standby", "stop"];
        format!("{} r{leader} for {duration:?}", kinds[kind as usize])
    }

    fn keys(&self) -> Option<BTreeSet<String>> {
        self.etcd.as_ref().and_then(Etcd::keys)
    }

    /// Returns undelivered changes: the last value of each existing object, and the deletion of each deleted object.
    fn undelivered_changes(&self) -> Vec<String> {
        let deliveries = self.receiver.recorded_deliveries();
        let has = |kind: &str, field: &str, text: &str, value: Option<&str>| {
            deliveries.iter().any(|delivery| {
                let message = &delivery.message;
                (message["type"] == "Deleted") == (kind == "Deleted")
                    && message[field] == text
                    && value.is_none_or(|value| message["value"] == value)
            })
        };
        let states = self.objects.iter().filter(|(name, value)| !has("", "name", name, Some(value)));
        let states = states.map(|(name, value)| format!("{name} {value}"));
        // A deletion is due only for objects with an earlier message.
        let known_keys = self.deleted_objects.iter().filter(|(uid, _)| has("", "uid", uid, None));
        let ends = known_keys.filter(|(uid, _)| !has("Deleted", "uid", uid, None));
        states.chain(ends.map(|(uid, name)| format!("the end of {name} ({uid})"))).collect()
    }

    fn report(&self) -> String {
        let statuses = (0..REPLICAS).map(|number| {
            let status = steadfast(&["notify", "status", "-c", &self.configuration(number)]);
            String::from_utf8_lossy(&status.stdout).into_owned() + &stderr_text(&status)
        });
        let statuses: Vec<String> = statuses.collect();
        format!("{}\n{}", statuses.join("\n"), self.error_output.lock())
    }

    /// Checks all received requests. Returns the number of deliveries and the number of repeated deliveries.
    fn check_deliveries(&self) -> (usize, usize) {
        let deliveries = self.receiver.recorded_deliveries();
        let terms = self.terms.lock();
        let mut ids = BTreeMap::<String, String>::new();
        let (mut seen, mut repeated) = (BTreeSet::new(), 0);
        let mut late_requests = BTreeMap::<Instant, usize>::new();
        let first = deliveries.first().map_or_else(Instant::now, |delivery| delivery.time);
        for Delivery { time, replica, message } in &deliveries {
            let holders: Vec<_> = terms
                .holders
                .iter()
                .map(|(from, _, holder)| (from.saturating_duration_since(first).as_secs_f64(), holder.clone()))
                .collect();
            let is_permitted = terms.covers(replica, *time)
                || terms.resumption_before(replica, *time).is_some_and(|resumption| {
                    let count = late_requests.entry(resumption).or_default();
                    *count += 1;
                    *count <= MAX_IN_FLIGHT
                });
            assert!(
                is_permitted,
                "{replica} sent {message} at {:.3} without the lease; holders: {holders:?}\n{}",
                time.saturating_duration_since(first).as_secs_f64(),
                self.error_output.lock()
            );
            let id = message["id"].as_str().expect("an ID").to_owned();
            let is_end = message["type"] == "Deleted";
            let message_text = format!("{} {is_end} {}", message["uid"], message["value"]);
            let before = ids.entry(message_text.clone()).or_insert_with(|| id.clone());
            assert_eq!(*before, id, "{message_text} has two IDs");
            if !seen.insert(id) {
                repeated += 1;
            }
        }
        (deliveries.len(), repeated)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        for number in 0..REPLICAS {
            self.signal(number, "CONT");
        }
        if let Some(lease_reader) = self.lease_reader.take() {
            let _ = lease_reader.join();
        }
    }
}

#[test]
fn replicas_survive_kills_and_freezes_of_leaders() {
    let is_long = ["STEADFAST_SEED", "STEADFAST_SEEDS"].iter().any(|name| std::env::var_os(name).is_some());
    for seed in seeds(1) {
        let mut rng = Random::new(seed);
        let mut fixture = Fixture::start(&format!("replicas-{seed}"));
        let faults = FAULTS_PER_RUN[usize::from(is_long)];
        fixture.change_until_first_message();
        (0..8).for_each(|_| fixture.change_randomly(&mut rng));
        for number in 0..faults {
            let fault = fixture.inject_random_fault(&mut rng);
            if is_long {
                eprintln!("seed {seed}, fault {number}: {fault}");
            }
        }
        let end_time = Instant::now() + Duration::from_secs(40);
        let is_equal =
            |fixture: &Fixture| fixture.keys().is_none_or(|keys| keys == fixture.objects.keys().cloned().collect());
        while (!fixture.undelivered_changes().is_empty() || !is_equal(&fixture)) && Instant::now() < end_time {
            sleep(Duration::from_millis(100));
        }
        let (undelivered_changes, keys) = (fixture.undelivered_changes(), fixture.keys());
        assert!(
            undelivered_changes.is_empty(),
            "seed {seed}: not delivered: {undelivered_changes:?}\n{}",
            fixture.report()
        );
        assert!(is_equal(&fixture), "seed {seed}: {keys:?}\n{:?}\n{}", fixture.objects.keys(), fixture.report());
        let (deliveries, repeated) = fixture.check_deliveries();
        let terms = fixture.terms.lock().holders.len();
        if is_long {
            let changes = fixture.changes;
            eprintln!(
                "seed {seed}: {faults} faults, {terms} terms, {changes} changes, {deliveries} deliveries, {repeated} repeated"
            );
        }
        assert!(terms > 1, "no leader has changed");
    }
}
