//! One namespace sends random nonsense. The entries of other namespaces must equal the entries of an undisturbed run.
//!
//! `STEADFAST_SEEDS=20` runs 20 seeds, `STEADFAST_SEED=7` runs seed 7.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::unstable::random::Random;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::dns_server::{DnsKind, DnsServer, KEY, kind_of_seed};
use crate::external_systems::Etcd;
use crate::haproxy::Haproxy;
use crate::nonsense::{ClaimedIdentities, TENANT, object, resource};
use crate::run::{KillOnDrop, start, stderr_text, steadfast};
use crate::seeds::seeds;

/// Namespaces of careful tenants.
const SHOPS: [&str; 2] = ["shop-a", "shop-b"];

/// Pods of each careful tenant at first.
const PODS: u64 = 6;

/// Steps of a run: each changes something of the careful tenants, and sends some nonsense.
const STEPS: u64 = 25;

/// Pause after each step, so that the program also applies intermediate states.
const STEP_INTERVAL: Duration = Duration::from_millis(60);

/// Limit for all three systems to show the final state of the careful tenants.
const CONVERGENCE_LIMIT: Duration = Duration::from_secs(60);

/// Rules that use annotations without validation.
const RULES: &str = r#"
[[rules]]
name = "web"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = """{
    'key': object.metadata.namespace + '.' + object.metadata.name,
    'address': object.status.podIP,
    'port': int(object.metadata.annotations['example.org/port']),
    'weight': int(object.metadata.annotations['example.org/weight']),
}"""
to = ["web"]

[[rules]]
name = "zone"
resources = ["pods", "services"]
send = """{
    'key': event.resource + '/' + object.metadata.namespace + '/' + object.metadata.name,
    'name': object.metadata.annotations['example.org/name'],
    'type': object.metadata.annotations['example.org/type'],
    'data': object.metadata.annotations['example.org/data'],
    'ttl': int(object.metadata.annotations['example.org/ttl']),
}"""
to = ["zone"]

[[rules]]
name = "pods"
resources = ["pods"]
send = "{'key': object.metadata.annotations['example.org/key'], 'value': object.metadata.annotations['example.org/value']}"
to = ["registry"]

[[rules]]
name = "keys"
resources = ["configmaps"]
send = "object.data.map(k, {'key': k, 'value': object.data[k]})"
to = ["registry"]
"#;

/// Contents of the three systems: values by system and location, such as a DNS name or a key.
type Contents = BTreeMap<(&'static str, String), BTreeSet<String>>;

struct Fixture {
    /// First field, so that the program is killed before the systems stop.
    notify: KillOnDrop,
    server: ApiServer,
    haproxy: Haproxy,
    dns: DnsServer,
    etcd: Etcd,
    configuration: String,
    stderr: Arc<Mutex<String>>,
    _runtime: Runtime,
}

impl Fixture {
    fn start(name: &str, kind: DnsKind) -> Option<Self> {
        let haproxy = Haproxy::start(name)?;
        let folder = &haproxy.folder;
        let (dns, etcd) = (DnsServer::start(folder, kind)?, Etcd::start(folder)?);
        let runtime = Runtime::new().expect("threads can be started");
        let server = runtime.block_on(ApiServer::start()).expect("the server starts");
        for name in SHOPS.into_iter().chain([TENANT]) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create(&namespace).expect("a namespace");
        }
        let text = format!(
            "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.web]\nhaproxy = {{socket = \"admin.sock\", backend = \"web\"}}\n\
             [sinks.zone]\ndns = {{server = \"127.0.0.1:{}\", zone = \"example.org\", secret = {{file = \"key\"}}, mark = \"hostile\"}}\n\
             [sinks.registry]\netcd = {{endpoints = [\"{}\"], prefix = \"/services/\", mark = \"hostile\"}}\n{RULES}",
            dns.port, etcd.url
        );
        for (file, text) in [("kubeconfig", &*server.kubeconfig()), ("key", KEY), ("notify.toml", &*text)] {
            std::fs::write(folder.join(file), text).expect("a file");
        }
        let configuration = folder.join("notify.toml").display().to_string();
        let mut child = start(&["notify", "-c", &configuration]);
        let (lines, stderr) = (BufReader::new(child.stderr.take().expect("a pipe")), Arc::<Mutex<String>>::default());
        let log = stderr.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *log.lock() += &(line + "\n");
            }
        });
        let notify = KillOnDrop(child);
        Some(Self { notify, server, haproxy, dns, etcd, configuration, stderr, _runtime: runtime })
    }

    /// Returns the contents of the systems; `None` while any system does not respond.
    fn contents(&self) -> Option<Contents> {
        let mut contents = Contents::new();
        for (name, state) in self.haproxy.server_states() {
            contents.entry(("HAProxy", name)).or_default().insert(state);
        }
        for (name, record) in self.dns.records()? {
            contents.entry(("DNS", name)).or_default().insert(record);
        }
        for (key, value) in self.etcd.pairs("/services/")? {
            contents.entry(("etcd", key)).or_default().insert(value);
        }
        Some(contents)
    }

    /// Returns `claimed` without the addresses and keys that the targets do not contain now. The hostile tenant may
    /// legitimately claim an address or key that no target contains.
    fn entries_of(&self, claimed: &ClaimedIdentities) -> ClaimedIdentities {
        let contents = self.contents().unwrap_or_default();
        let values = |system| {
            contents.iter().filter(move |((entry_system, _), _)| *entry_system == system).flat_map(|(_, values)| values)
        };
        let is_server = |address: &&String| values("HAProxy").any(|server| server.starts_with(&format!("{address}:")));
        let is_key = |key: &&String| contents.contains_key(&("etcd", format!("/services/{key}")));
        ClaimedIdentities {
            addresses: claimed.addresses.iter().filter(is_server).cloned().collect(),
            keys: claimed.keys.iter().filter(is_key).cloned().collect(),
            ..claimed.clone()
        }
    }

    fn report(&self) -> String {
        let status = steadfast(&["notify", "status", "-c", &self.configuration]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned() + &stderr_text(&status);
        let stderr = self.stderr.lock();
        // Long lines are cut, because log lines can contain large values of the tenant.
        let lines: Vec<_> = stderr.lines().map(|line| line.chars().take(400).collect::<String>()).collect();
        let first_line = lines.len().saturating_sub(60);
        format!("status:\n{status}\nstderr, the last of {} lines:\n{}", lines.len(), lines[first_line..].join("\n"))
    }
}

/// Objects of the careful tenants and their changes.
struct CarefulTenants<'a> {
    server: &'a ApiServer,
    rng: Random,
    pod_count: u64,
    pods: Vec<(&'static str, String)>,
    claimed: ClaimedIdentities,
}

impl<'a> CarefulTenants<'a> {
    fn create(server: &'a ApiServer, seed: u64) -> Self {
        let mut careful_tenants = Self {
            server,
            rng: Random::new(seed),
            pod_count: 0,
            pods: Vec::new(),
            claimed: ClaimedIdentities::default(),
        };
        for shop in SHOPS {
            for _ in 0..PODS {
                careful_tenants.add_pod(shop);
            }
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": shop, "name": "settings"},
                "data": {format!("{shop}.setting"): "1", format!("{shop}.other"): "2"},
            });
            server.create(&map).expect("a config map");
            careful_tenants.claimed.keys.extend([format!("{shop}.setting"), format!("{shop}.other")]);
        }
        careful_tenants
    }

    fn add_pod(&mut self, shop: &'static str) {
        let number = self.pod_count;
        self.pod_count += 1;
        let (name, address) = (format!("web-{number}"), format!("10.1.{}.{}", number / 250, number % 250 + 1));
        // Pods of one shop share a DNS name, as behind a headless service, and use separate keys.
        let (host, key) = (format!("web.{shop}.example.org"), format!("{shop}/{name}"));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": shop, "name": name, "labels": {"app": "web"},
                "annotations": {
                    "example.org/port": "80", "example.org/weight": (number % 9 + 1).to_string(), "example.org/name": host,
                    "example.org/type": "A", "example.org/data": address, "example.org/ttl": "30", "example.org/key": key,
                    "example.org/value": format!("http://{address}/"),
                },
            },
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
            "status": {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.server.create(&pod).expect("a pod");
        self.pods.push((shop, name.clone()));
        let ClaimedIdentities { names, addresses, hosts, keys } = &mut self.claimed;
        names.push(name);
        addresses.push(address);
        hosts.push(host);
        keys.push(key);
    }

    /// Makes an ordinary change: replaces a pod, adds a pod, or changes a setting.
    fn change_randomly(&mut self) {
        let shop = SHOPS[self.rng.below(2) as usize];
        match self.rng.below(4) {
            0 => self.add_pod(shop),
            1 => {
                let value = self.rng.below(1000).to_string();
                let patch = json!({"data": {format!("{shop}.setting"): value}});
                self.server.merge_patch("configmaps", shop, "settings", patch).expect("the config map exists");
            }
            _ => {
                self.add_pod(shop);
                let of_shop = self.pods.iter().position(|(pod_shop, _)| *pod_shop == shop).expect("the shop has pods");
                let (_, name) = self.pods.remove(of_shop);
                self.server.delete_named("pods", shop, &name).expect("the pod exists");
                let number: usize = name.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
                // The tenant may claim a released address or key.
                let (address, key) = (format!("10.1.{}.{}", number / 250, number % 250 + 1), format!("{shop}/{name}"));
                self.claimed.addresses.retain(|other| *other != address);
                self.claimed.keys.retain(|other| *other != key);
            }
        }
    }
}

/// Sends some objects of the tenant: creates, replaces and deletes.
fn send_nonsense(server: &ApiServer, rng: &mut Random, claimed: &ClaimedIdentities) {
    for _ in 0..3 {
        let object = object(rng, claimed);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if rng.below(4) == 0 {
            let _ = server.delete_named(resource(&object), TENANT, name);
        } else {
            // The API server rejects invalid objects.
            let _ = server.create(&object).or_else(|_| server.replace(&object));
        }
    }
}

/// Runs the careful tenants alone; returns the final contents of the systems.
fn run_alone(seed: u64) -> Option<Contents> {
    let fixture = Fixture::start(&format!("careful-{seed}"), kind_of_seed(seed))?;
    let mut careful_tenants = CarefulTenants::create(&fixture.server, seed);
    for _ in 0..STEPS {
        careful_tenants.change_randomly();
        std::thread::sleep(STEP_INTERVAL);
    }
    let servers = careful_tenants.pods.len();
    let (start, mut contents) = (Instant::now(), None);
    let count =
        |contents: &Contents, system| contents.keys().filter(|(entry_system, _)| *entry_system == system).count();
    // Compares the addresses instead of only their number, since an update of the zone may be late on a busy machine.
    let has_addresses = |contents: &Contents, shop: &str| {
        let of_shop = careful_tenants
            .pods
            .iter()
            .filter(|(pod_shop, _)| *pod_shop == shop)
            .filter_map(|(_, name)| name.rsplit('-').next()?.parse().ok());
        let addresses: BTreeSet<String> =
            of_shop.map(|number: usize| format!("30 A 10.1.{}.{}", number / 250, number % 250 + 1)).collect();
        contents.get(&("DNS", format!("web.{shop}.example.org."))) == Some(&addresses)
    };
    loop {
        let current = fixture.contents();
        let is_complete = |contents: &Contents| {
            count(contents, "HAProxy") == servers
                && count(contents, "DNS") == SHOPS.len()
                && SHOPS.iter().all(|shop| has_addresses(contents, shop))
                && count(contents, "etcd") == servers + 4
        };
        // Two equal reads in a row: no change is in progress.
        if current.as_ref().is_some_and(is_complete) && current == contents {
            return current;
        }
        assert!(start.elapsed() < CONVERGENCE_LIMIT, "seed {seed}: {servers} pods, {current:#?}\n{}", fixture.report());
        contents = current;
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Runs the careful tenants next to the hostile tenant until their entries equal those of `expected`. Returns the
/// number of entries that only this run has.
fn run_with_nonsense(seed: u64, expected: &Contents) -> Option<usize> {
    let mut fixture = Fixture::start(&format!("hostile-{seed}"), kind_of_seed(seed))?;
    let mut rng = Random::new(seed ^ 0xbad);
    let mut careful_tenants = CarefulTenants::create(&fixture.server, seed);
    let (start, count_expected_entries) = (Instant::now(), |contents: &Contents| {
        expected.iter().filter(|(entry, _)| contents.contains_key(*entry)).count()
    });
    // The hostile tenant starts after the other tenants have claimed their names and keys.
    while fixture.contents().is_none_or(|contents| contents.len() < careful_tenants.pods.len()) {
        assert!(start.elapsed() < CONVERGENCE_LIMIT, "seed {seed}\n{}", fixture.report());
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..STEPS {
        let existing_identities = fixture.entries_of(&careful_tenants.claimed);
        send_nonsense(&fixture.server, &mut rng, &existing_identities);
        careful_tenants.change_randomly();
        std::thread::sleep(STEP_INTERVAL);
    }
    let start = Instant::now();
    loop {
        let contents = fixture.contents().unwrap_or_default();
        let differs =
            |(entry, values): &(&(&'static str, String), &BTreeSet<String>)| contents.get(*entry) != Some(*values);
        let differences: Vec<_> =
            expected.iter().filter(differs).map(|(entry, values)| (entry, values, contents.get(entry))).collect();
        // No entry of a deleted shop pod may remain. The tenant may use a released address.
        let is_shop_entry =
            |entry: &str| SHOPS.iter().any(|shop| entry.trim_start_matches("/services/").starts_with(shop));
        let is_remaining = |((_, entry), values): &(&(&'static str, String), &BTreeSet<String>)| {
            is_shop_entry(entry) && values.iter().any(|text| text.contains("10.1."))
        };
        let remaining: Vec<_> =
            contents.iter().filter(|(entry, _)| !expected.contains_key(*entry)).filter(is_remaining).collect();
        if differences.is_empty() && remaining.is_empty() {
            assert!(
                fixture.notify.0.try_wait().expect("a status").is_none(),
                "seed {seed}: notify ended\n{}",
                fixture.report()
            );
            return Some(contents.len() - count_expected_entries(&contents));
        }
        let describe = || {
            format!(
                "seed {seed}: (location, expected, found)\n{differences:#?}\nleft {remaining:#?}\n{}",
                fixture.report()
            )
        };
        assert!(start.elapsed() < CONVERGENCE_LIMIT, "{}", describe());
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn hostile_namespace_changes_no_foreign_entry() {
    for seed in seeds(1) {
        let Some(expected) = run_alone(seed) else { return };
        let Some(foreign) = run_with_nonsense(seed, &expected) else { return };
        println!("seed {seed}: {} entries are equal; this run has {foreign} more", expected.len());
    }
}

/// A rejected object does not test the program, so the API server must accept most objects.
#[test]
fn nonsense_is_mostly_accepted_by_api_server() {
    let runtime = Runtime::new().expect("threads can be started");
    let server = runtime.block_on(ApiServer::start()).expect("the server starts");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
    server.create(&namespace).expect("a namespace");
    let mut rng = Random::new(1);
    let claimed = ClaimedIdentities { names: vec!["web-1".to_owned()], ..ClaimedIdentities::default() };
    let is_accepted = |object: &Value| server.create(object).or_else(|_| server.replace(object)).is_ok();
    let count = (0..200).filter(|_| is_accepted(&object(&mut rng, &claimed))).count();
    assert!(count > 150, "{count} of 200 objects");
    drop(server);
}
