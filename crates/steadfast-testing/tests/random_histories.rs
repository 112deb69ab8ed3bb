//! The contract as a property: random histories under random faults, in virtual time, judged by the checker.
//!
//! A failing seed is printed; `STEADFAST_SEED=n cargo test -p steadfast-testing --test random_histories one_seed` repeats
//! it alone, and `STEADFAST_SEEDS=n` tries so many.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steadfast::core::random::Random;
use steadfast::transport::Settings;
use steadfast::{InformerFactory, Scope};
use steadfast_apiserver::{Answer, ApiServer, RequestRule, Verb};
use steadfast_contract::{Report, Terms};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{InMemory, Recorder, WorldError, history, labelled_config_map};

const REPLICAS: usize = 2;
const NAMES: u64 = 6;

/// One history under faults, decided by a seed alone.
struct World {
    random: Random,
    server: ApiServer,
    recorder: Recorder,
    /// Between the clients and the replicas.
    network: NetworkFaults,
    /// What was done, to be read when a seed fails.
    log: String,
}

impl World {
    fn chance(&mut self, one_in: u64) -> bool {
        self.random.draw().is_multiple_of(one_in)
    }

    fn pick(&mut self, below: u64) -> u64 {
        self.random.draw() % below
    }

    /// One write, most of them on few names, so that there are recreations.
    fn write(&mut self) {
        let name = format!("c-{}", self.pick(NAMES));
        let value = self.pick(1_000_000).to_string();
        let label = if self.chance(2) { "web" } else { "db" };
        let exists = self.server.get("configmaps", "default", &name).is_ok();
        let done = match (exists, self.pick(5)) {
            (false, _) => self.server.create(&labelled_config_map(&name, &value, ("app", label))),
            (true, 0) => self.server.delete_named("configmaps", "default", &name),
            (true, 1) => {
                let deleted = self.server.delete_named("configmaps", "default", &name);
                deleted.and_then(|_| self.server.create(&labelled_config_map(&name, &value, ("app", label))))
            }
            (true, _) => {
                let patch = json!({ "metadata": { "labels": { "app": label } }, "data": { "value": value } });
                self.server.merge_patch("configmaps", "default", &name, patch)
            }
        };
        // A frozen etcd takes no writes; that is part of the history.
        let _ = writeln!(self.log, "{:?} write {name}: {}", self.server.elapsed(), done.is_ok());
    }

    /// One fault begins, ends, or passes.
    fn fault(&mut self) {
        let replica = self.pick(REPLICAS as u64) as usize;
        let on = self.chance(2);
        let faults = self.server.faults().replica(replica);
        let fault = self.pick(19);
        let name = match fault {
            0 => {
                faults.reset();
                "reset"
            }
            1 => {
                faults.end_watches();
                "end of watches"
            }
            2 => {
                faults.goaway();
                "goaway"
            }
            3 => {
                faults.restart();
                "restart"
            }
            4 if on => {
                faults.cut();
                "cut"
            }
            4 => {
                faults.heal();
                "heal"
            }
            5 => {
                faults.lag(on);
                "lag"
            }
            6 => {
                faults.black_hole(on);
                "black hole"
            }
            7 => {
                faults.stall_streams(on);
                "stalled streams"
            }
            8 => {
                faults.expire_events();
                "expired events"
            }
            9 => {
                self.server.compact();
                "compaction"
            }
            10 => {
                faults.accept_and_close(on);
                "accept and close"
            }
            11 => {
                faults.freeze(on);
                "freeze"
            }
            12 => {
                faults.repeat_events(3);
                "repeated events"
            }
            13 => {
                faults.refuse_streamed_lists(on);
                "refused streamed lists"
            }
            14 => {
                let code = [410, 429, 500, 503, 504, 403][self.random.draw() as usize % 6];
                let verb = [Verb::Watch, Verb::List, Verb::StreamedList, Verb::Probe][self.random.draw() as usize % 4];
                faults.answer_with(RequestRule::any().verb(verb).times(2), Answer::code(code));
                "answers on demand"
            }
            15 => {
                faults.reset_after_bytes(self.random.draw() % 3000);
                "reset after some bytes"
            }
            16 => {
                faults.freeze_etcd(on);
                "frozen etcd"
            }
            17 => {
                let name = format!("c-{}", self.pick(NAMES));
                faults.undecodable("default", &name, on);
                "undecodable object"
            }
            _ => {
                self.network.send_to(replica);
                "new connections elsewhere"
            }
        };
        let _ = writeln!(self.log, "{:?} fault {name} on={on} replica={replica}", self.server.elapsed());
        self.recorder.fault(name, on);
    }

    /// The server is restored from a backup, a few versions back, after everybody has seen what that undoes; and
    /// nothing is written until it can be noticed. Otherwise only an audit could (R12).
    async fn restore(&mut self) {
        self.heal();
        tokio::time::sleep(Duration::from_secs(200)).await;
        let back = 1 + self.pick(10);
        let _ = writeln!(self.log, "{:?} restore, {back} back", self.server.elapsed());
        self.server.faults().restore(self.server.revision().saturating_sub(back).max(1));
        self.recorder.fault("restore", false);
        tokio::time::sleep(Duration::from_secs(200)).await;
    }

    /// Ends all faults that last.
    fn heal(&mut self) {
        let faults = self.server.faults();
        faults.heal();
        faults.lag(false);
        faults.stall_streams(false);
        faults.freeze(false);
        faults.freeze_etcd(false);
        faults.answer_truly();
        faults.refuse_streamed_lists(false);
        for name in 0..NAMES {
            faults.undecodable("default", &format!("c-{name}"), false);
        }
        let _ = writeln!(self.log, "{:?} healed", self.server.elapsed());
    }
}

/// Runs the history of `seed` to its end and judges what two clients with two informers each saw of it.
async fn run(seed: u64) -> Result<(Report, String), WorldError> {
    let mut random = Random::new(seed);
    let server = ApiServer::builder()
        .in_memory()
        .replicas(REPLICAS)
        .seed(seed)
        .bookmark_period(Duration::from_secs(10 + random.draw() % 60))
        .watch_timeout(Duration::from_secs(120)..Duration::from_secs(240))
        .start()
        .await?;
    let recorder = Recorder::of(&server);
    let network = NetworkFaults::seeded(seed);
    let mut world = World { random, server, recorder, network, log: String::new() };
    for _ in 0..world.pick(10) {
        world.write();
    }

    let mut held = Vec::new();
    for client in 0..2 {
        let prior_knowledge = world.chance(2);
        let memory = InMemory {
            seed: seed.wrapping_mul(31).wrapping_add(client),
            network: world.network.clone(),
            settings: Settings { prior_knowledge, ..Settings::default() },
        };
        let factory = InformerFactory::new(&memory.connection(&world.server).await?);
        for scope in [Scope::all(), Scope::namespace("default").labels("app=web")] {
            let name = format!("client {client}, {scope}");
            let (streamed, page) = (world.chance(3), 2 + world.pick(4) as u32);
            let informer = factory.build::<ConfigMap>(scope).streamed_lists(!streamed).page_size(Some(page)).start()?;
            held.push(world.recorder.record_as(&informer, &name));
        }
    }

    for _ in 0..60 {
        match world.pick(6) {
            0 => world.fault(),
            1 => {
                let wait = Duration::from_millis(world.pick(40_000));
                tokio::time::sleep(wait).await;
            }
            2 => tokio::time::sleep(Duration::from_millis(world.pick(200))).await,
            3 if world.chance(20) => world.restore().await,
            _ => world.write(),
        }
    }
    world.heal();
    // Two periods and more: what lagged or stood still is noticed and repaired.
    tokio::time::sleep(Duration::from_secs(200)).await;
    world.recorder.settle_at(&world.server.revision().to_string(), Duration::from_secs(120)).await;

    if std::env::var("STEADFAST_LOG").is_ok() {
        for entry in world.recorder.trace().entries() {
            println!("{:?} {:?}", entry.at, entry.record);
        }
    }
    let terms = Terms { lag: Duration::from_secs(600), ..Terms::default() };
    let report = terms.judge(&history(&world.server, "", "configmaps"), &world.recorder.trace());
    Ok((report, world.log))
}

/// Runs `seed` on a thread of its own, in a time of its own.
fn judge(seed: u64) -> Result<(Report, String), WorldError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(run(seed))
}

fn seeds() -> u64 {
    std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150)
}

#[test]
fn random_histories_under_random_faults_keep_the_contract() -> Result<(), WorldError> {
    let mut broken = Vec::new();
    for seed in 0..seeds() {
        let (report, _) = judge(seed)?;
        if !report.passed() || !report.verdict.settled {
            let clauses: Vec<String> = report.breaches.iter().map(|breach| format!("{breach}")).collect();
            println!("seed {seed}: {clauses:#?} {:?}", report.malformed);
            broken.push(seed);
        }
    }
    assert_eq!(broken, [0; 0], "these seeds break the contract");
    Ok(())
}

#[test]
fn one_seed() -> Result<(), WorldError> {
    let Some(seed) = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        // The seed that was tried first, twice: the same run both times.
        let (first, second) = (judge(1)?, judge(1)?);
        assert_eq!(first.1, second.1, "one seed, one history");
        assert_eq!(first.0, second.0, "one seed, one verdict");
        return Ok(());
    };
    if std::env::var("STEADFAST_LOG").is_ok() {
        let _ = tracing_subscriber::fmt().with_env_filter("steadfast=debug").with_ansi(false).try_init();
    }
    let (report, log) = judge(seed)?;
    println!("{log}");
    assert!(report.passed(), "{report:#?}");
    Ok(())
}
