//! The story that this project begins with: service registry, DNS and load balancer follow a cluster while its API server restarts,
//! vanishes, is stale and is restored from a backup, and while the program itself is killed. Whatever happens, nothing that is there is taken out,
//! and in the end all three are as the cluster is.
//!
//! `STEADFAST_SEEDS=20` tells so many stories, `STEADFAST_SEED=7` that one.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast_apiserver::{Answer, ApiServer, RequestRule};
use tokio::runtime::Runtime;

use crate::chance::Chance;
use crate::haproxy::{Haproxy, eventually};
use crate::outsides::{Etcd, KEY, Knot};
use crate::removals::{Sample, Truth, judge};
use crate::run::{Killed, signal, start};

/// So many pods there are at first.
const PODS: u64 = 8;

/// How long a fault lasts, a little more or less.
const LASTS: u64 = 1500;

struct World {
    runtime: Runtime,
    server: ApiServer,
    haproxy: Arc<Haproxy>,
    knot: Arc<Knot>,
    etcd: Arc<Etcd>,
    configuration: String,
    /// The server's version before the first pod: no backup is older.
    begun: u64,
    truth: Truth,
    pods: u64,
    log: Vec<String>,
    said: Arc<Mutex<String>>,
}

impl World {
    fn start(name: &str) -> Option<Self> {
        let haproxy = Haproxy::start(name)?;
        let folder = haproxy.folder.clone();
        let (knot, etcd) = (Knot::start(&folder)?, Etcd::start(&folder)?);
        let runtime = Runtime::new().expect("there are threads");
        let server = runtime.block_on(ApiServer::start()).expect("it starts");
        let write = |file: &str, text: &str| {
            std::fs::write(folder.join(file), text).expect("there is room");
        };
        write("kubeconfig", &server.kubeconfig());
        write("key", KEY);
        let rule = |name: &str, send: &str| {
            format!(
                "[[rules]]\nname = \"{name}\"\nresources = [\"pods\"]\nnamespaces = [\"default\"]\nwhen = \"has(object.status.podIP)\"\n\
                 send = \"{{'key': object.metadata.name, {send}}}\"\nto = [\"{name}\"]\n"
            )
        };
        // So that only the doubt is in the way of what is taken out. The audit finds a restore whose versions have passed ours (R12).
        let mirror = "guard = {share = 1.0}\ndrain = \"1s\"\ncompare = \"2s\"\n";
        let text = format!(
            "[clusters.here]\nkubeconfig = \"kubeconfig\"\naudit = \"5s\"\n[sinks.web]\nhaproxy = {{socket = \"admin.sock\", backend = \"web\"}}\n{mirror}\
             [sinks.zone]\ndns = {{server = \"127.0.0.1:{}\", zone = \"example.org\", secret = {{file = \"key\"}}, mark = \"story\"}}\n{mirror}\
             [sinks.registry]\netcd = {{endpoints = [\"{}\"], prefix = \"/services/\", mark = \"story\"}}\n{mirror}{}{}{}",
            knot.port,
            etcd.url,
            rule("web", "'address': object.status.podIP, 'port': 80"),
            rule("zone", "'name': object.metadata.name + '.example.org', 'type': 'A', 'data': object.status.podIP"),
            rule("registry", "'value': object.status.podIP"),
        );
        write("notify.toml", &text);
        let configuration = folder.join("notify.toml").display().to_string();
        let begun = server.revision();
        Some(Self {
            runtime,
            server,
            begun,
            haproxy: Arc::new(haproxy),
            knot: Arc::new(knot),
            etcd: Arc::new(etcd),
            configuration,
            truth: Truth::default(),
            pods: 0,
            log: Vec::new(),
            said: Arc::default(),
        })
    }

    /// A pod that never was there before.
    fn create(&mut self) {
        let (number, name) = (self.pods, format!("web-{}", self.pods));
        self.pods += 1;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
            "status": status(number, true),
        });
        self.server.create(&pod).expect("it is a pod");
        self.truth.note(&name, true);
    }

    /// One of them is deleted, or is not ready any more and never will be.
    fn lose(&mut self, chance: &mut Chance) {
        let there: Vec<String> = self.truth.now().into_iter().collect();
        if there.len() < 4 {
            return;
        }
        let name = &there[chance.below(there.len() as u64) as usize];
        self.truth.note(name, false);
        if chance.below(3) == 0 {
            let status = json!({"status": status(0, false)});
            self.server.merge_patch("pods", "default", name, status).expect("it is there");
        } else {
            self.server.delete_named("pods", "default", name).expect("it is there");
        }
    }

    fn change(&mut self, chance: &mut Chance) {
        if chance.below(2) == 0 { self.create() } else { self.lose(chance) }
    }

    /// The server is as it was some changes ago.
    fn restore(&mut self, back: u64) {
        // What goes is told before, and what comes after: who will be there is known by what the history says.
        let before = self.truth.now();
        let revision = self.server.revision().saturating_sub(back).max(self.begun);
        for name in &before {
            self.truth.note(name, false);
        }
        self.server.faults().restore(revision);
        for number in 0..self.pods {
            let name = format!("web-{number}");
            let pod = self.server.get("pods", "default", &name).ok();
            // A backup may be of the moment in which one is being deleted.
            let is_ready = pod.is_some_and(|pod| {
                pod["status"]["conditions"][0]["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null()
            });
            self.truth.note(&name, is_ready);
        }
    }

    fn how_it_is(&self) -> String {
        let (now, said) = (self.truth.now(), self.said.lock().expect("no panic").clone());
        let (web, names, keys) = (self.haproxy.serving(), self.knot.names(), self.etcd.keys());
        format!("{now:?} are there, {web:?} in HAProxy, {names:?} in DNS, {keys:?} in etcd; it said\n{said}")
    }

    fn outside_is_equal(&self) -> bool {
        let now = self.truth.now();
        self.haproxy.serving() == now
            && self.knot.names().as_ref() == Some(&now)
            && self.etcd.keys().as_ref() == Some(&now)
    }
}

fn status(number: u64, is_ready: bool) -> Value {
    let (address, told) =
        (format!("10.0.{}.{}", number / 250, number % 250 + 1), if is_ready { "True" } else { "False" });
    json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": told}]})
}

/// What one of them shows, if it answers.
type Look = Box<dyn Fn() -> Option<BTreeSet<String>> + Send>;

/// Asks all three again and again, until it is ended.
struct Witness {
    ended: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Witness {
    fn begin(world: &World) -> Self {
        let (ended, samples) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Sample>>>::default());
        let (haproxy, knot, etcd) = (world.haproxy.clone(), world.knot.clone(), world.etcd.clone());
        let looks: [(&'static str, Look); 3] = [
            ("HAProxy", Box::new(move || Some(haproxy.serving()))),
            ("DNS", Box::new(move || knot.names())),
            ("etcd", Box::new(move || etcd.keys())),
        ];
        let threads = looks.map(|(outside, look)| {
            let (ended, samples) = (ended.clone(), samples.clone());
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    if let Some(names) = look() {
                        let answered = Instant::now();
                        samples.lock().expect("no panic").push(Sample { outside, asked, answered, names });
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        });
        Self { ended, samples, threads: threads.into() }
    }

    fn end(mut self) -> Vec<Sample> {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
        let samples = self.samples.lock().expect("no panic");
        samples.clone()
    }
}

impl Drop for Witness {
    /// Also where a story fails: they hold the three, which end with them.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What happens once in a story.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Restart,
    Away,
    BlackHole,
    Frozen,
    Stale,
    StaleAfterRestart,
    Expired,
    Resets,
    Errors,
    Forbidden,
    Restored,
    Killed,
}

const TROUBLES: [Trouble; 12] = [
    Trouble::Restart,
    Trouble::Away,
    Trouble::BlackHole,
    Trouble::Frozen,
    Trouble::Stale,
    Trouble::StaleAfterRestart,
    Trouble::Expired,
    Trouble::Resets,
    Trouble::Errors,
    Trouble::Forbidden,
    Trouble::Restored,
    Trouble::Killed,
];

/// Changes go on, for about as long as a fault lasts.
fn meanwhile(world: &mut World, chance: &mut Chance) {
    let until = Instant::now() + Duration::from_millis(LASTS / 2 + chance.below(LASTS));
    while Instant::now() < until {
        world.change(chance);
        std::thread::sleep(Duration::from_millis(50 + chance.below(200)));
    }
}

fn begin(world: &World) -> Killed {
    let mut child = start(&["notify", "-c", &world.configuration]);
    let (stderr, said) = (BufReader::new(child.stderr.take().expect("it is piped")), world.said.clone());
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            *said.lock().expect("no panic") += &(line + "\n");
        }
    });
    Killed(child)
}

fn tell(seed: u64, troubles: &[Trouble]) -> Option<(usize, usize)> {
    let mut world = World::start(&format!("story-{seed}"))?;
    let mut chance = Chance(seed);
    (0..PODS).for_each(|_| world.create());
    let mut acting = begin(&world);
    eventually("all of it at first", || world.outside_is_equal());
    let witness = Witness::begin(&world);
    for &trouble in troubles {
        world.log.push(format!("{trouble:?}"));
        let faults = world.server.faults().clone();
        let pods = RequestRule::any().resource("pods");
        match trouble {
            Trouble::Restart => faults.restart(),
            Trouble::Away => faults.stop(),
            Trouble::BlackHole => faults.black_hole(true),
            Trouble::Frozen => faults.freeze(true),
            Trouble::Stale => faults.lag(true),
            Trouble::StaleAfterRestart => {
                faults.lag(true);
                meanwhile(&mut world, &mut chance);
                faults.reset();
                faults.expire_events();
            }
            Trouble::Expired => {
                faults.cut();
                meanwhile(&mut world, &mut chance);
                world.server.compact();
                faults.heal();
            }
            Trouble::Resets => faults.reset(),
            Trouble::Errors => faults.answer_with(pods, Answer::code(503)),
            Trouble::Forbidden => {
                faults.answer_with(pods, Answer::code(403));
                faults.end_watches();
            }
            Trouble::Restored => {
                let back = 3 + chance.below(20);
                world.restore(back);
            }
            Trouble::Killed => {
                signal(&acting.0, "KILL");
                let _ = acting.0.wait();
                meanwhile(&mut world, &mut chance);
                acting = begin(&world);
            }
        }
        meanwhile(&mut world, &mut chance);
        match trouble {
            Trouble::Away => faults.start(),
            Trouble::BlackHole => faults.black_hole(false),
            Trouble::Frozen => faults.freeze(false),
            Trouble::Stale | Trouble::StaleAfterRestart => faults.lag(false),
            Trouble::Errors | Trouble::Forbidden => faults.answer_truly(),
            _ => {}
        }
        meanwhile(&mut world, &mut chance);
    }
    let begun = Instant::now();
    while !world.outside_is_equal() {
        let told = || format!("seed {seed}, {:?}: {}", world.log, world.how_it_is());
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
    let samples = witness.end();
    let removals = judge(&world.truth, &samples).unwrap_or_else(|why| panic!("seed {seed}, {:?}: {why}", world.log));
    signal(&acting.0, "TERM");
    assert!(acting.0.wait().expect("it can be waited for").success());
    drop(world.runtime);
    Some((removals, samples.len()))
}

#[test]
fn registry_zone_and_load_balancer_are_as_the_cluster_is_whatever_happens_to_its_server() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (seeds, only) = (number("STEADFAST_SEEDS"), number("STEADFAST_SEED"));
    let told = match (only, seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 1..1 + seeds.unwrap_or(1),
    };
    for seed in told {
        let mut chance = Chance(seed ^ 0x5eed);
        let mut troubles = TROUBLES.to_vec();
        for at in (1..troubles.len()).rev() {
            troubles.swap(at, chance.below(at as u64 + 1) as usize);
        }
        // All of them take too long for every change of the program.
        if seeds.is_none() && only.is_none() {
            troubles.truncate(3);
        }
        let Some((removals, samples)) = tell(seed, &troubles) else { return };
        println!("seed {seed}, {troubles:?}: {removals} were taken out, in {samples} looks, and none that was there");
        assert!(removals > 0 && samples > 50, "{removals} taken out, {samples} looks");
    }
}

#[test]
fn what_somebody_takes_out_that_is_there_is_seen_by_the_judge() {
    let Some(mut world) = World::start("seen") else { return };
    (0..PODS).for_each(|_| world.create());
    let mut acting = begin(&world);
    eventually("all of it at first", || world.outside_is_equal());
    // Nobody puts it there again.
    signal(&acting.0, "TERM");
    assert!(acting.0.wait().expect("it can be waited for").success());
    std::thread::sleep(Duration::from_secs(2));
    let take_out = |world: &World, outside: &str| match outside {
        "etcd" => world.etcd.take_out("web-3"),
        _ => world.knot.take_out("web-4"),
    };
    for outside in ["etcd", "DNS"] {
        let witness = Witness::begin(&world);
        std::thread::sleep(Duration::from_millis(500));
        take_out(&world, outside);
        std::thread::sleep(Duration::from_millis(500));
        let wrong = judge(&world.truth, &witness.end()).expect_err("it was there");
        assert!(wrong.starts_with(outside) && wrong.contains("was taken out, and was there"), "{wrong}");
    }
}
