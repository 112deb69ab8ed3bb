//! Main scenario of the project: service registry, DNS and load balancer follow two clusters through a random sequence
//! of faults. API servers restart, vanish, become stale and return from a backup. One cluster is unreachable. Pods are
//! replaced and scaled. A tenant sends nonsense. Load balancer, DNS server and etcd restart or lose their contents.
//! The program itself is killed.
//!
//! No entry of a ready pod may be removed, unless a system loses its contents. In the end all three systems must equal
//! the clusters. The guard against removals runs with its default settings.
//!
//! With `STEADFAST_SERVER=reference` the first cluster is a real API server with its etcd.
//!
//! `STEADFAST_SEEDS=20` runs 20 random sequences, and `STEADFAST_SEED=7` runs the sequence of seed 7. Each sequence
//! then has all disturbances.

mod cluster;
mod disturbance;
mod real;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::unstable::random::Random;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::dns_server::{DnsKind, DnsServer, KEY, kind_of_seed};
use crate::external_systems::Etcd;
use crate::haproxy::{Haproxy, eventually};
use crate::nonsense::{ClaimedIdentities, TENANT, object, resource};
use crate::removals::{ContentLossPeriod, ExpectedEntries, Sample, check_removals};
use crate::run::{KillOnDrop, signal, start, stderr_text, steadfast};
use crate::seeds::seeds;
use cluster::{Cluster, Phase};
use disturbance::{DISTURBANCES, Disturbance};

/// Initial number of pods of the first cluster that are created and deleted during the run.
const PODS: u64 = 8;

/// Pods of the first cluster that always exist. The tenant claims their identities.
const LASTING_PODS: u64 = 3;

/// Initial number of pods of the second cluster.
const FAR_PODS: u64 = 4;

/// Name prefixes of the pods that the test checks. Other names belong to the hostile tenant.
const PREFIXES: [&str; 3] = ["web-", "keep-", "far-"];

/// Number of disturbances in a CI run. All disturbances take too long for each change of the program.
const DISTURBANCES_IN_CI: usize = 5;

/// Time limit of each system for regaining lost entries.
const RETURN_LIMITS: [(&str, Duration); 3] =
    [("HAProxy", Duration::from_secs(2)), ("DNS", Duration::from_secs(10)), ("etcd", Duration::from_secs(1))];

/// Limit for all three systems to equal the clusters.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(60);

/// Interval of the program's audits of the first cluster.
const AUDIT: Duration = Duration::from_secs(5);

/// Average duration of a fault, in milliseconds.
const MEAN_FAULT_MILLIS: u64 = 1500;

struct Fixture {
    runtime: Runtime,
    server: Cluster,
    /// The API server of the second cluster.
    far_server: ApiServer,
    haproxy: Arc<Haproxy>,
    dns: Arc<DnsServer>,
    etcd: Arc<Etcd>,
    configuration: String,
    /// Version of the first server with the initial pods. No backup is older.
    initial_version: u64,
    expected: ExpectedEntries,
    losses: Vec<ContentLossPeriod>,
    pods: u64,
    far_pods: u64,
    claimed: ClaimedIdentities,
    log: Vec<String>,
    error_output: Arc<Mutex<String>>,
}

/// Only pods of the tenant set their key by an annotation.
const KEY_OF_ENTRY: &str = "object.metadata.?annotations[?'example.org/key'].orValue(object.metadata.name)";

impl Fixture {
    fn start(name: &str, kind: DnsKind) -> Option<Self> {
        let haproxy = Haproxy::start(name)?;
        let folder = haproxy.folder.clone();
        let (dns, etcd) = (DnsServer::start(&folder, kind)?, Etcd::start(&folder)?);
        let runtime = Runtime::new().expect("a runtime");
        let server = Cluster::start(&runtime)?;
        let far_server = runtime.block_on(ApiServer::start()).expect("the server starts");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
        server.apply(&namespace, "namespaces").expect("a namespace");
        let write = |file: &str, text: &str| {
            std::fs::write(folder.join(file), text).expect("the folder is writable");
        };
        write("kubeconfig", &server.kubeconfig());
        write("far.kubeconfig", &far_server.kubeconfig());
        write("key", KEY);
        let rule = |name: &str, send: &str| {
            format!(
                "[[rules]]\nname = \"{name}\"\nresources = [\"pods\"]\nwhen = \"has(object.status.podIP)\"\n\
                 send = \"\"\"{{'key': {KEY_OF_ENTRY}, {send}}}\"\"\"\nto = [\"{name}\"]\n"
            )
        };
        // After a restore, the server's versions may already exceed the program's version. Only the audit detects this
        // (bound R12 in docs/contract.md).
        let mirror = "drain = \"1s\"\ncompare = \"2s\"\n";
        let text = format!(
            "[clusters.here]\nkubeconfig = \"kubeconfig\"\naudit = \"{}s\"\n[clusters.far]\nkubeconfig = \"far.kubeconfig\"\n\
             [sinks.web]\nhaproxy = {{socket = \"admin.sock\", backend = \"web\"}}\n{mirror}\
             [sinks.zone]\ndns = {{server = \"127.0.0.1:{}\", zone = \"example.org\", secret = {{file = \"key\"}}, mark = \"story\"}}\n{mirror}\
             [sinks.registry]\netcd = {{endpoints = [\"{}\"], prefix = \"/services/\", mark = \"story\"}}\n{mirror}{}{}{}",
            AUDIT.as_secs(),
            dns.port,
            etcd.url,
            rule(
                "web",
                "'address': object.status.podIP, 'port': int(object.metadata.?annotations[?'example.org/port'].orValue('80'))"
            ),
            rule(
                "zone",
                "'name': object.metadata.?annotations[?'example.org/name'].orValue(object.metadata.name + '.example.org'), \
                 'type': object.metadata.?annotations[?'example.org/type'].orValue('A'), \
                 'data': object.metadata.?annotations[?'example.org/data'].orValue(object.status.podIP), \
                 'ttl': int(object.metadata.?annotations[?'example.org/ttl'].orValue('60'))"
            ),
            rule(
                "registry",
                "'value': object.metadata.?annotations[?'example.org/value'].orValue(object.status.podIP)"
            ),
        );
        write("notify.toml", &text);
        let configuration = folder.join("notify.toml").display().to_string();
        let mut fixture = Self {
            runtime,
            server,
            far_server,
            initial_version: 0,
            haproxy: Arc::new(haproxy),
            dns: Arc::new(dns),
            etcd: Arc::new(etcd),
            configuration,
            expected: ExpectedEntries::default(),
            losses: Vec::new(),
            pods: 0,
            far_pods: 0,
            claimed: ClaimedIdentities::default(),
            log: Vec::new(),
            error_output: Arc::default(),
        };
        for number in 0..LASTING_PODS {
            let (name, address) = (format!("keep-{number}"), format!("10.1.0.{}", number + 1));
            fixture.create_pod(false, &name, &address);
            fixture.claimed.hosts.push(format!("{name}.example.org"));
            fixture.claimed.keys.push(name.clone());
            fixture.claimed.names.push(name);
            fixture.claimed.addresses.push(address);
        }
        (0..PODS).for_each(|_| fixture.create_near_pod());
        (0..FAR_PODS).for_each(|_| fixture.create_far_pod());
        if let Cluster::Embedded(server) = &fixture.server {
            fixture.initial_version = server.revision();
        }
        Some(fixture)
    }

    fn create_pod(&mut self, is_far: bool, name: &str, address: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
            "status": status(address, true),
        });
        if is_far {
            self.far_server.create(&pod).expect("a pod");
        } else {
            self.server.apply(&pod, "pods").expect("a pod");
        }
        self.expected.record(name, true);
    }

    /// Creates a pod that never existed before.
    fn create_near_pod(&mut self) {
        let number = self.pods;
        self.pods += 1;
        self.create_pod(false, &format!("web-{number}"), &address(0, number));
    }

    /// Creates a pod of the second cluster.
    fn create_far_pod(&mut self) {
        let number = self.far_pods;
        self.far_pods += 1;
        self.create_pod(true, &format!("far-{number}"), &address(2, number));
    }

    /// Pods that are ready and have this prefix, the oldest first.
    fn ready_names(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<_> =
            self.expected.expected_names().into_iter().filter(|name| name.starts_with(prefix)).collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    }

    fn delete(&mut self, name: &str) {
        self.expected.record(name, false);
        if name.starts_with("far-") {
            self.far_server.delete_named("pods", "default", name).expect("the pod exists");
        } else {
            self.server.delete("pods", "default", name).expect("the pod exists");
        }
    }

    /// Deletes one pod or makes it unready. At most one pod is unready at a time, within the defaults of the guard.
    fn lose_pod(&mut self, rng: &mut Random) {
        let ready = self.ready_names("web-");
        let exists = |number: &u64| self.server.pod(&format!("web-{number}")).is_some();
        let unready =
            (0..self.pods).filter(exists).map(|number| format!("web-{number}")).find(|name| !ready.contains(name));
        let name = &ready[rng.below(ready.len() as u64) as usize];
        match unready {
            Some(unready) => self.server.delete("pods", "default", &unready).expect("the pod exists"),
            None if rng.below(3) == 0 => {
                self.expected.record(name, false);
                self.server.set_status(name, &status("10.0.0.1", false));
            }
            None => self.delete(name),
        }
    }

    fn change_randomly(&mut self, rng: &mut Random) {
        if rng.below(5) == 0 {
            let far_pods = self.ready_names("far-");
            if far_pods.len() < 3 || far_pods.len() < 6 && rng.below(2) == 0 {
                self.create_far_pod();
            } else {
                self.delete(&far_pods[0]);
            }
            return;
        }
        let count = self.ready_names("web-").len();
        if count < 4 || count < 14 && rng.below(2) == 0 { self.create_near_pod() } else { self.lose_pod(rng) }
    }

    /// Replaces the pods of a Deployment. Each new pod is ready before an old pod is deleted.
    fn replace_pods(&mut self) {
        for old_name in self.ready_names("web-") {
            self.create_near_pod();
            std::thread::sleep(Duration::from_millis(100));
            self.delete(&old_name);
        }
    }

    fn scale(&mut self, count: usize) {
        let ready = self.ready_names("web-");
        (ready.len()..count).for_each(|_| self.create_near_pod());
        ready.iter().skip(count).for_each(|name| self.delete(name));
    }

    /// The tenant creates, replaces and deletes nonsense.
    fn send_nonsense(&self, rng: &mut Random) {
        for _ in 0..30 {
            let object = object(rng, &self.claimed);
            // The API server rejects some of these objects.
            let _ = self.server.apply(&object, resource(&object));
            if rng.below(3) == 0 {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let _ = self.server.delete(resource(&object), TENANT, name);
            }
        }
    }

    /// Runs `action`, by which `system` loses its contents. Records the period during which the system may lack
    /// entries.
    fn lose_contents(&mut self, system: &'static str, action: impl FnOnce(&Self)) {
        let start = Instant::now();
        action(self);
        let limit = RETURN_LIMITS.iter().find(|(name, _)| *name == system).map_or(Duration::ZERO, |(_, limit)| *limit);
        self.losses.push(ContentLossPeriod { system, start, end: Instant::now() + limit });
    }

    /// Restores the server to an earlier state: that of its backup, or for the embedded server that of 3 to 22
    /// revisions ago.
    fn restore(&mut self, rng: &mut Random) {
        let revision_count = 3 + rng.below(20);
        if let Cluster::Real(real) = &mut self.server {
            real.back_up();
            change_during(self, rng, Disturbance::Restored);
        }
        // Removals are recorded before the restore, and additions after it, when the server shows the restored state.
        let ready_before = self.ready_names("web-");
        for name in &ready_before {
            self.expected.record(name, false);
        }
        match &mut self.server {
            Cluster::Embedded(server) => {
                let revision = server.revision().saturating_sub(revision_count).max(self.initial_version);
                server.faults().restore(revision);
            }
            Cluster::Real(real) => real.restore(),
        }
        for number in 0..self.pods {
            let name = format!("web-{number}");
            let pod = self.server.pod(&name);
            // A backup may contain a pod that is being deleted.
            let is_ready = pod.is_some_and(|pod| {
                pod["status"]["conditions"][0]["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null()
            });
            if is_ready && !ready_before.contains(&name) {
                // The program has seen the removal, and can detect the restore only by its audit.
                self.expected.record_revived(&name, AUDIT);
            } else {
                self.expected.record(&name, is_ready);
            }
        }
    }

    /// Starts a disturbance.
    fn start_disturbance(&mut self, disturbance: Disturbance, program: &mut KillOnDrop, rng: &mut Random) {
        match disturbance {
            Disturbance::Restored => self.restore(rng),
            Disturbance::Killed => {
                signal(&program.0, "KILL");
                let _ = program.0.wait();
                change_during(self, rng, disturbance);
                *program = start_notify(self);
            }
            Disturbance::SecondClusterUnreachable => self.far_server.faults().cut(),
            Disturbance::RollingUpdate => self.replace_pods(),
            Disturbance::ScaledDown => self.scale(3),
            Disturbance::ScaledUp => self.scale(14),
            Disturbance::InvalidObjects => self.send_nonsense(rng),
            Disturbance::BalancerRestart => self.lose_contents("HAProxy", |fixture| fixture.haproxy.restart()),
            Disturbance::ZoneRestored => self.lose_contents("DNS", |fixture| fixture.dns.restore()),
            Disturbance::LeaseRevoked => self.lose_contents("etcd", |fixture| fixture.etcd.revoke_leases()),
            Disturbance::EtcdRestart => self.lose_contents("etcd", |fixture| fixture.etcd.restart()),
            _ => self.server.disturb(disturbance, Phase::Start),
        }
    }

    fn report(&self) -> String {
        let (expected_names, error_output) = (self.expected.expected_names(), self.error_output.lock().clone());
        let status = steadfast(&["notify", "status", "-c", &self.configuration]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned() + &stderr_text(&status);
        let difference = |names: Option<BTreeSet<String>>| {
            let names = names.map(judged_names)?;
            let missing: Vec<_> = expected_names.difference(&names).cloned().collect();
            Some((missing, names.difference(&expected_names).cloned().collect::<Vec<_>>()))
        };
        let web = difference(self.haproxy.try_servers_in_service());
        let (names, keys) = (difference(self.dns.names()), difference(self.etcd.keys()));
        format!(
            "(missing, left): HAProxy {web:?}, DNS {names:?}, etcd {keys:?}\nstatus:\n{status}\nstderr:\n{error_output}"
        )
    }

    fn systems_match(&self) -> bool {
        let expected_names = Some(self.expected.expected_names());
        let is_equal = |names: Option<BTreeSet<String>>| names.map(judged_names) == expected_names;
        is_equal(self.haproxy.try_servers_in_service()) && is_equal(self.dns.names()) && is_equal(self.etcd.keys())
    }
}

/// Returns the names among `names` that the test checks.
fn judged_names(names: BTreeSet<String>) -> BTreeSet<String> {
    let is_judged = |name: &String| {
        let number = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    names.into_iter().filter(is_judged).collect()
}

fn address(network: u8, number: u64) -> String {
    format!("10.{network}.{}.{}", number / 250, number % 250 + 1)
}

fn status(address: &str, is_ready: bool) -> Value {
    let ready_status = if is_ready { "True" } else { "False" };
    json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": ready_status}]})
}

/// Reads one system; `None` if it does not respond.
type ReadNames = Box<dyn Fn() -> Option<BTreeSet<String>> + Send>;

/// Threads that read all three systems repeatedly until they are stopped.
struct Sampler {
    is_ended: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Sampler {
    fn start(fixture: &Fixture) -> Self {
        let (is_ended, samples) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Sample>>>::default());
        let (haproxy, dns, etcd) = (fixture.haproxy.clone(), fixture.dns.clone(), fixture.etcd.clone());
        let reads: [(&'static str, ReadNames); 3] = [
            ("HAProxy", Box::new(move || haproxy.try_servers_in_service())),
            ("DNS", Box::new(move || dns.names())),
            ("etcd", Box::new(move || etcd.keys())),
        ];
        let threads = reads.map(|(target, read)| {
            let (is_ended, samples) = (is_ended.clone(), samples.clone());
            std::thread::spawn(move || {
                while !is_ended.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    if let Some(names) = read().map(judged_names) {
                        let end = Instant::now();
                        samples.lock().push(Sample { target, start, end, names });
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        });
        Self { is_ended, samples, threads: threads.into() }
    }

    fn end(mut self) -> Vec<Sample> {
        self.is_ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
        let samples = self.samples.lock();
        samples.clone()
    }
}

impl Drop for Sampler {
    /// Stops the threads, even if the test fails, because they keep the three systems alive.
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Continues with changes for the duration of a fault.
fn change_during(fixture: &mut Fixture, rng: &mut Random, disturbance: Disturbance) {
    let end_time = Instant::now() + Duration::from_millis(MEAN_FAULT_MILLIS / 2 + rng.below(MEAN_FAULT_MILLIS));
    let is_writable = fixture.server.is_writable_during(disturbance);
    while Instant::now() < end_time {
        if is_writable {
            fixture.change_randomly(rng);
        }
        std::thread::sleep(Duration::from_millis(50 + rng.below(200)));
    }
}

fn start_notify(fixture: &Fixture) -> KillOnDrop {
    let mut child = start(&["notify", "-c", &fixture.configuration]);
    let (stderr, error_output) =
        (BufReader::new(child.stderr.take().expect("a piped stderr")), fixture.error_output.clone());
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            *error_output.lock() += &(line + "\n");
        }
    });
    KillOnDrop(child)
}

/// Waits until all three systems equal the clusters.
fn wait_until_equal(fixture: &Fixture, description: &str) {
    let start_time = Instant::now();
    while !fixture.systems_match() {
        assert!(
            start_time.elapsed() < CONVERGENCE_LIMIT + fixture.server.extra_recovery_time(),
            "{description}: {}",
            fixture.report()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn run_seed(seed: u64, disturbances: &[Disturbance]) -> Option<(usize, usize)> {
    let mut fixture = Fixture::start(&format!("story-{seed}"), kind_of_seed(seed))?;
    let mut rng = Random::new(seed);
    let mut program = start_notify(&fixture);
    wait_until_equal(&fixture, &format!("seed {seed}, at first"));
    let sampler = Sampler::start(&fixture);
    for &disturbance in disturbances {
        fixture.log.push(format!("{disturbance:?}"));
        fixture.start_disturbance(disturbance, &mut program, &mut rng);
        change_during(&mut fixture, &mut rng, disturbance);
        if matches!(disturbance, Disturbance::CacheLaggingThenReset | Disturbance::VersionExpired) {
            fixture.server.disturb(disturbance, Phase::Worsen);
            change_during(&mut fixture, &mut rng, disturbance);
        }
        fixture.server.disturb(disturbance, Phase::End);
        if matches!(disturbance, Disturbance::SecondClusterUnreachable) {
            fixture.far_server.faults().heal();
        }
        change_during(&mut fixture, &mut rng, Disturbance::ConnectionsReset);
    }
    wait_until_equal(&fixture, &format!("seed {seed}, {:?}", fixture.log));
    let reads = sampler.end();
    let removals = check_removals(&fixture.expected, &fixture.losses, &reads)
        .unwrap_or_else(|reason| panic!("seed {seed}, {:?}: {reason}", fixture.log));
    signal(&program.0, "TERM");
    assert!(program.0.wait().expect("an exit status").success());
    drop(fixture.runtime);
    Some((removals, reads.len()))
}

#[test]
fn random_disturbances_remove_no_ready_entry() {
    let runs_all = ["STEADFAST_SEED", "STEADFAST_SEEDS"].iter().any(|name| std::env::var_os(name).is_some());
    for seed in seeds(1) {
        let mut rng = Random::new(seed ^ 0x5eed);
        let mut disturbances = DISTURBANCES.to_vec();
        for index in (1..disturbances.len()).rev() {
            disturbances.swap(index, rng.below(index as u64 + 1) as usize);
        }
        if !runs_all {
            disturbances.truncate(DISTURBANCES_IN_CI);
        }
        let Some((removals, samples)) = run_seed(seed, &disturbances) else { return };
        println!(
            "seed {seed}, {disturbances:?}: {removals} entries were removed in {samples} reads, none of a ready pod"
        );
        assert!(removals > 0 && samples > 50, "{removals} removals, {samples} reads");
    }
}

#[test]
fn checker_detects_removed_ready_entry() {
    let Some(fixture) = Fixture::start("seen", DnsKind::Bind) else { return };
    let mut program = start_notify(&fixture);
    eventually("the initial state", || fixture.systems_match());
    // The program is not running, so it cannot restore the entry.
    signal(&program.0, "TERM");
    assert!(program.0.wait().expect("an exit status").success());
    std::thread::sleep(Duration::from_secs(2));
    let remove = |fixture: &Fixture, target: &str| match target {
        "etcd" => fixture.etcd.remove("web-3"),
        _ => fixture.dns.remove("web-4"),
    };
    for target in ["etcd", "DNS"] {
        let sampler = Sampler::start(&fixture);
        std::thread::sleep(Duration::from_millis(500));
        remove(&fixture, target);
        std::thread::sleep(Duration::from_millis(500));
        let fault = check_removals(&fixture.expected, &[], &sampler.end()).expect_err("the entry existed");
        assert!(fault.starts_with(target) && fault.contains("was removed although it exists"), "{fault}");
    }
}
