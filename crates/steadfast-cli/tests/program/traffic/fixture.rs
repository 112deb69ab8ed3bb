//! Clusters, a load balancer, traffic through the load balancer, and the program between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use super::backends::{Backend, fresh_address};
use super::balancer::Balancer;
use super::records::{PodState, Readers, Timeline, slowness};
use super::requests::{Allowances, Traffic, Verdict, check_requests};
use super::slices::{Endpoint, slices};
use super::systems::Records;
use crate::dns_server::DnsKind;
use crate::removals::ContentLossPeriod;
use crate::run::{KillOnDrop, signal, start, stderr_text, steadfast};

/// Namespace of the pods that receive traffic.
pub(crate) const SHOP: &str = "shop";

/// Namespace of the careless tenant. Sorts before [`SHOP`].
pub(crate) const TENANT: &str = "aaa";

/// Time after a restart of the load balancer during which requests can fail.
const RESTART_ALLOWANCE: Duration = Duration::from_secs(2);

/// Limit for the load balancer to match the pods after a scenario.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(20);

/// Interval between two comparisons of the load balancer with the pods.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Finalizer that keeps a deleted pod until its container stops, like the kubelet.
const FINALIZER: &str = "example.org/kubelet";

/// Parts of a [`Fixture`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) clusters: &'static [&'static str],
    /// Backends of the load balancer. The traffic goes to the first one.
    pub(crate) backends: &'static [&'static str],
    /// Kind of a DNS server to start together with etcd. `None` starts neither.
    pub(crate) records: Option<DnsKind>,
    /// Publishes the pods of [`SHOP`] in the first cluster as `EndpointSlices` of the Service `web`.
    pub(crate) has_slices: bool,
    /// Sinks and rules of the configuration. `PORT`, `DNS_SERVER` and `ETCD_URL` are placeholders for the port of all
    /// pods and the systems.
    pub(crate) rules: &'static str,
}

/// A pod and its server.
#[derive(Debug)]
pub(crate) struct Pod {
    cluster: usize,
    namespace: String,
    name: String,
    backend: Backend,
    is_ready: bool,
    is_terminating: bool,
}

/// Key of a [`Pod`]: the name of its cluster, its namespace and its name.
pub(crate) type PodId = String;

pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) clusters: Vec<ApiServer>,
    /// Number of the cluster that the program cannot reach.
    pub(crate) unreachable: Option<usize>,
    setup: Setup,
    notify: Option<KillOnDrop>,
    stderr: Arc<Mutex<String>>,
    traffic: Option<Traffic>,
    pub(crate) balancer: Balancer,
    readers: Option<Readers>,
    pub(super) records: Option<Records>,
    pub(super) timeline: Timeline,
    pub(super) losses: Vec<ContentLossPeriod>,
    /// Factor for the time limits of records, derived from the time until all systems had the first records.
    pub(super) slowness: f64,
    pods: BTreeMap<PodId, Pod>,
    /// Deleted pods, and the instants at which their containers stop.
    terminating: Vec<(Instant, PodId)>,
    /// All pods that ever existed, and their addresses.
    addresses: BTreeMap<PodId, SocketAddr>,
    allowances: Allowances,
    folder: PathBuf,
    pub(crate) port: u16,
    start: Instant,
    log: String,
}

impl Fixture {
    /// Starts clusters and load balancer; returns `None` on a machine without `HAProxy`.
    pub(crate) fn start(setup: Setup) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("steadfast-traffic-{}-{}", std::process::id(), setup.name));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let balancer = Balancer::start(&folder, setup.backends)?;
        let runtime = Runtime::new().expect("threads can be started");
        let mut configuration = String::new();
        let clusters = setup.clusters.iter().map(|name| {
            let server = runtime.block_on(ApiServer::start()).expect("the server starts");
            for name in [SHOP, TENANT] {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                server.create(&namespace).expect("a namespace");
            }
            std::fs::write(folder.join(format!("{name}.kubeconfig")), server.kubeconfig()).expect("a file");
            let _ = writeln!(configuration, "[clusters.{name}]\nkubeconfig = \"{name}.kubeconfig\"");
            server
        });
        let clusters = clusters.collect();
        // All pods share this port, since their addresses differ.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let records = match setup.records {
            Some(kind) => Some(Records::start(&folder, kind)?),
            None => None,
        };
        let (server, url) = records.as_ref().map(Records::addresses).unwrap_or_default();
        let rules = setup.rules.replace("DNS_SERVER", &server).replace("ETCD_URL", &url);
        configuration += &rules.replace("PORT", &free.port().to_string());
        std::fs::write(folder.join("notify.toml"), configuration).expect("a file");
        Some(Self {
            runtime,
            clusters,
            unreachable: None,
            setup,
            notify: None,
            stderr: Arc::default(),
            traffic: None,
            balancer,
            readers: None,
            records,
            timeline: Timeline::default(),
            losses: Vec::new(),
            slowness: 1.0,
            pods: BTreeMap::new(),
            terminating: Vec::new(),
            addresses: BTreeMap::new(),
            allowances: Allowances::default(),
            folder,
            port: free.port(),
            start: Instant::now(),
            log: String::new(),
        })
    }

    /// Records an event for the report of a failure.
    pub(crate) fn log_event(&mut self, event: &str) {
        let _ = writeln!(self.log, "  {:.3?}: {event}", self.start.elapsed());
    }

    pub(crate) fn sleep(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        loop {
            self.stop_due_containers();
            let next_wake = self.terminating.iter().map(|(due, _)| *due).min().unwrap_or(until).min(until);
            std::thread::sleep(next_wake.saturating_duration_since(Instant::now()));
            if Instant::now() >= until {
                return;
            }
        }
    }

    // The program.

    fn configuration(&self) -> String {
        self.folder.join("notify.toml").display().to_string()
    }

    /// Starts `steadfast notify` with the configuration of this fixture.
    pub(crate) fn start_notify(&mut self) {
        self.log_event("notify starts");
        let mut child = start(&["notify", "-c", &self.configuration()]);
        let (stderr, lines) = (BufReader::new(child.stderr.take().expect("a pipe")), self.stderr.clone());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *lines.lock() += &(line + "\n");
            }
        });
        self.notify = Some(KillOnDrop(child));
    }

    /// Waits until standard error of the program contains `text`.
    pub(crate) fn wait_for_report(&mut self, text: &str) {
        let start = Instant::now();
        while !self.stderr.lock().contains(text) {
            assert!(start.elapsed() < CONVERGENCE_LIMIT, "no report of {text:?}\n{}", self.report());
            self.sleep(POLL_INTERVAL);
        }
        self.log_event(&format!("the program reports {text:?}"));
    }

    /// Ends the program by a signal, and waits for its end.
    pub(crate) fn end_notify(&mut self, name: &str) {
        self.log_event(&format!("notify receives SIG{name}"));
        let mut notify = self.notify.take().expect("notify runs");
        signal(&notify.0, name);
        let status = notify.0.wait().expect("a status");
        assert!(name == "KILL" || status.success(), "{status}: {}", self.report());
    }

    /// Runs a subcommand of `steadfast notify` and returns its output.
    pub(crate) fn notify(&self, arguments: &[&str]) -> String {
        let output = steadfast(&[&["notify"], arguments, &["-c", &self.configuration()]].concat());
        String::from_utf8_lossy(&output.stdout).into_owned() + &stderr_text(&output)
    }

    // The pods.

    /// Creates a pod of `cluster` that listens and is not ready yet.
    pub(crate) fn create(&mut self, cluster: usize, namespace: &str, name: &str) -> PodId {
        self.create_with_address(cluster, namespace, name, fresh_address())
    }

    pub(crate) fn create_with_address(
        &mut self,
        cluster: usize,
        namespace: &str,
        name: &str,
        address: Ipv4Addr,
    ) -> PodId {
        let id = format!("{}/{namespace}/{name}", self.setup.clusters[cluster]);
        let backend = Backend::start(self.runtime.handle(), &id, SocketAddr::from((address, self.port)));
        let object = self.object(namespace, name, &address.to_string());
        self.clusters[cluster].create(&object).expect("a pod");
        self.addresses.insert(id.clone(), backend.address);
        self.timeline.enter(backend.address.ip(), PodState::Leaving);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let pod = Pod { cluster, namespace, name, backend, is_ready: false, is_terminating: false };
        assert!(self.pods.insert(id.clone(), pod).is_none(), "{id} exists");
        self.publish_slices();
        id
    }

    /// Updates the `EndpointSlices` after a change of a pod, like the controller of Kubernetes.
    fn publish_slices(&self) {
        if !self.setup.has_slices {
            return;
        }
        let of_shop = self.pods.values().filter(|pod| pod.cluster == 0 && pod.namespace == SHOP);
        let endpoints: Vec<_> = of_shop
            .map(|pod| Endpoint {
                pod: pod.name.clone(),
                address: pod.backend.address.ip().to_string(),
                is_ready: pod.is_ready,
                is_terminating: pod.is_terminating,
            })
            .collect();
        let server = &self.clusters[0];
        for slice in slices(&endpoints, self.port) {
            server.create(&slice).or_else(|_| server.replace(&slice)).expect("a slice");
        }
    }

    /// Returns an unready pod with the annotations for a rule of [`super::tenants`].
    pub(crate) fn object(&self, namespace: &str, name: &str, address: &str) -> Value {
        let annotations = json!({"example.org/port": self.port.to_string(), "example.org/weight": "1"});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": namespace, "name": name, "labels": {"app": "web"}, "annotations": annotations,
                "finalizers": [FINALIZER],
            },
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
            "status": status(address, false),
        })
    }

    /// Sets the condition `Ready` of a pod.
    pub(crate) fn set_ready(&mut self, id: &PodId, is_ready: bool) {
        let pod = self.pods.get_mut(id).expect("the pod exists");
        let address = pod.backend.address.ip();
        if !is_ready {
            self.timeline.enter(address, PodState::Leaving);
        }
        let status = status(&pod.backend.address.ip().to_string(), is_ready);
        let server = &self.clusters[pod.cluster];
        server.merge_patch("pods", &pod.namespace, &pod.name, json!({ "status": status })).expect("the pod exists");
        pod.is_ready = is_ready;
        if is_ready {
            self.timeline.enter(address, PodState::Ready);
        }
        self.publish_slices();
    }

    /// Creates a pod in the ready state.
    pub(crate) fn create_ready(&mut self, cluster: usize, namespace: &str, name: &str) -> PodId {
        let id = self.create(cluster, namespace, name);
        self.set_ready(&id, true);
        id
    }

    /// Address and port of a pod that exists or existed.
    pub(crate) fn address(&self, id: &PodId) -> SocketAddr {
        self.addresses[id]
    }

    /// Deletes a pod. Its container stops after `grace`, and then the object is removed.
    pub(crate) fn delete(&mut self, id: &PodId, grace: Duration) {
        let pod = self.pods.get_mut(id).expect("the pod exists");
        pod.is_terminating = true;
        self.timeline.enter(pod.backend.address.ip(), PodState::Leaving);
        self.clusters[pod.cluster].delete_named("pods", &pod.namespace, &pod.name).expect("the pod exists");
        self.terminating.push((Instant::now() + grace, id.clone()));
        self.publish_slices();
    }

    /// Kills the container of a pod. Requests in flight can fail.
    pub(crate) fn crash(&mut self, id: &PodId) {
        self.log_event(&format!("{id} crashes"));
        let pod = self.pods.get_mut(id).expect("the pod exists");
        let from = Instant::now();
        pod.backend.crash();
        self.allowances.windows.push((from, Instant::now()));
    }

    /// Restarts the container of a crashed pod, like the kubelet.
    pub(crate) fn recover(&mut self, id: &PodId) {
        self.log_event(&format!("{id} listens again"));
        self.pods.get_mut(id).expect("the pod exists").backend.restart();
    }

    /// Removes the object of a pod without a grace period.
    pub(crate) fn remove(&mut self, id: &PodId) {
        self.delete(id, Duration::ZERO);
        self.stop_due_containers();
    }

    fn stop_due_containers(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.terminating).into_iter().partition(|(due, _)| *due <= now);
        self.terminating = later;
        for (_, id) in due {
            let mut pod = self.pods.remove(&id).expect("the pod exists");
            let from = Instant::now();
            pod.backend.stop();
            if self.unreachable == Some(pod.cluster) {
                // The program could not take the pod out of service before this stop, so the traffic sees a crash.
                self.allowances.windows.push((from, Instant::now()));
            }
            self.timeline.enter(pod.backend.address.ip(), PodState::Dead);
            let patch = json!({"metadata": {"finalizers": null}});
            let server = &self.clusters[pod.cluster];
            server.merge_patch("pods", &pod.namespace, &pod.name, patch).expect("the pod exists");
            self.publish_slices();
        }
    }

    // The load balancer.

    /// Restarts or reloads the load balancer by `action`.
    pub(crate) fn disturb(&mut self, description: &str, action: impl FnOnce(&mut Balancer)) {
        self.log_event(description);
        let from = Instant::now();
        action(&mut self.balancer);
        self.log_event("HAProxy listens again");
        self.allowances.windows.push((from, Instant::now() + RESTART_ALLOWANCE));
    }

    /// Addresses of the servers in `backend` that receive requests.
    pub(crate) fn in_service(&self, backend: &str) -> Option<BTreeSet<SocketAddr>> {
        let servers = self.balancer.servers(backend)?;
        let in_service = servers.values().filter(|(_, state)| state.weight > 0 && state.is_enabled);
        Some(in_service.map(|(address, _)| *address).collect())
    }

    /// Waits until the first backend has exactly the ready pods of [`SHOP`].
    pub(crate) fn wait_until_converged(&mut self) {
        let shop = format!("/{SHOP}/");
        self.wait_until_converged_for(|id| id.contains(&shop), |_| false);
    }

    /// Waits until the first backend has exactly the ready pods among the `is_judged` ones. Servers of pods that are
    /// `is_ignored` can be present or missing; all other servers must not be in service.
    pub(crate) fn wait_until_converged_for(
        &mut self,
        is_judged: impl Fn(&str) -> bool,
        is_ignored: impl Fn(&str) -> bool,
    ) {
        let start = Instant::now();
        loop {
            self.stop_due_containers();
            let is_ready = |(id, pod): &(&PodId, &Pod)| pod.is_ready && !pod.is_terminating && is_judged(id);
            let ready_addresses: BTreeSet<_> =
                self.pods.iter().filter(is_ready).map(|(_, pod)| pod.backend.address).collect();
            let mut current = self.in_service(self.setup.backends[0]);
            if let Some(current) = &mut current {
                for (_, address) in self.addresses.iter().filter(|(id, _)| is_ignored(id) && !is_judged(id)) {
                    current.remove(address);
                }
            }
            if current.as_ref() == Some(&ready_addresses) {
                let elapsed = start.elapsed();
                self.log_event(&format!("{} servers are in service after {elapsed:.3?}", ready_addresses.len()));
                return;
            }
            let report =
                || format!("ready pods {ready_addresses:?}\nservers in service {current:?}\n{}", self.report());
            assert!(start.elapsed() < CONVERGENCE_LIMIT, "no convergence within {CONVERGENCE_LIMIT:?}\n{}", report());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    // The traffic.

    /// Waits until the load balancer has all pods, and starts the traffic.
    pub(crate) fn start_traffic(&mut self) {
        self.wait_until_converged();
        self.log_event("traffic starts");
        self.traffic = Some(Traffic::start(self.runtime.handle(), self.balancer.front));
    }

    /// Waits for convergence, stops the traffic and checks its responses: only pods of [`SHOP`] may have responded.
    pub(crate) fn finish(mut self) -> Verdict {
        self.sleep(Duration::from_millis(200));
        self.wait_until_converged();
        self.sleep(Duration::from_millis(500));
        let shop = format!("/{SHOP}/");
        self.verdict(|id| id.contains(&shop)).unwrap_or_else(|fault| panic!("{fault}\n{}", self.report()))
    }

    /// Stops the traffic and checks the responses: only pods accepted by `may_respond` may appear.
    pub(crate) fn verdict(&mut self, may_respond: impl Fn(&str) -> bool) -> Result<Verdict, String> {
        let traffic = self.traffic.take().expect("traffic was started");
        let requests = traffic.finish();
        let pods = self.addresses.keys().filter(|id| may_respond(id)).cloned().collect();
        let verdict = check_requests(self.start, &requests, &self.allowances, &pods)?;
        println!("{}: {verdict:?}\n{}", self.setup.name, self.log);
        Ok(verdict)
    }

    // Names and keys.

    /// Waits until DNS server and etcd have all pods, and starts to read both.
    pub(crate) fn start_readers(&mut self) {
        let start = Instant::now();
        self.wait_for_records();
        self.slowness = slowness(start.elapsed());
        self.log_event(&format!("reads start, all limits are {:.1} times as long", self.slowness));
        self.readers = Some(Readers::start(self.records.as_ref().expect("records").readers()));
    }

    /// Waits until DNS server and etcd have exactly the ready pods.
    pub(crate) fn wait_for_records(&mut self) {
        let start = Instant::now();
        let readers = self.records.as_ref().expect("records").readers();
        loop {
            self.stop_due_containers();
            let is_ready = |pod: &&Pod| pod.is_ready && !pod.is_terminating;
            let ready_addresses: BTreeSet<_> =
                self.pods.values().filter(is_ready).map(|pod| pod.backend.address.ip()).collect();
            let current: Vec<_> = readers.iter().map(|(system, read)| (system, read())).collect();
            if current.iter().all(|(_, current)| current.as_ref() == Some(&ready_addresses)) {
                let elapsed = start.elapsed();
                self.log_event(&format!("{} addresses are found after {elapsed:.3?}", ready_addresses.len()));
                return;
            }
            let report = || format!("ready pods {ready_addresses:?}\nfound {current:?}\n{}", self.report());
            assert!(start.elapsed() < CONVERGENCE_LIMIT, "no convergence within {CONVERGENCE_LIMIT:?}\n{}", report());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until DNS server and etcd have exactly the ready pods, and checks all reads.
    pub(crate) fn finish_records(mut self) {
        self.sleep(Duration::from_millis(200));
        self.wait_for_records();
        self.sleep(Duration::from_millis(300));
        let samples = self.readers.take().expect("reads were started").finish();
        let verdict = super::records::check_samples(self.start, &self.timeline, &self.losses, &samples, self.slowness);
        println!("{}: {} reads\n{}", self.setup.name, samples.len(), self.log);
        verdict.unwrap_or_else(|fault| panic!("{fault}\n{}", self.report()));
        assert!(samples.len() > 20, "{} reads", samples.len());
    }

    /// Events, status and log of the program, for the report of a failure.
    pub(crate) fn report(&self) -> String {
        let (status, stderr) = (self.notify(&["status"]), self.stderr.lock().clone());
        let mut servers = String::new();
        for (name, (address, state)) in self.balancer.servers(self.setup.backends[0]).unwrap_or_default() {
            let _ = writeln!(servers, "  {name} {address} {state:?}");
        }
        let (name, log) = (self.setup.name, &self.log);
        format!("scenario {name}:\n{log}servers:\n{servers}notify status:\n{status}\nstderr:\n{stderr}")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.notify = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn status(address: &str, is_ready: bool) -> Value {
    let ready_status = if is_ready { "True" } else { "False" };
    json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": ready_status}]})
}
