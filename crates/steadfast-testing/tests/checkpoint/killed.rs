//! A real process with a checkpoint that is killed (`SIGKILL`) at random moments under a hundred changes a second: what the next one
//! begins with is what the server had at the version that it says, by the server's own history, and nothing is listed again. And
//! what its durable handler is told, over all of them, is what the server's history has to be told.
//!
//! `STEADFAST_KILLS=1000` does it so often. Each process is this program once more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::{Checkpoint, Connection, InformerFactory, Lazy, Note, Scope, Snapshot};
use steadfast_apiserver::ApiServer;
use steadfast_core::random::Random;
use steadfast_testing::{WorldError, config_map};
use tokio::sync::mpsc;

use crate::durable::word;
use crate::files::Folder;
use crate::judge::{Seen, Word, judge, lines as log_of};
use crate::life::lists;

/// Says to a copy of this program where the server is, and where its checkpoint.
const SERVER: &str = "STEADFAST_CHECKPOINT_SERVER";
const FILE: &str = "STEADFAST_CHECKPOINT_FILE";
/// The name of the test, for that copy.
const NAME: &str = "killed::what_a_killed_process_has_left_is_a_state_that_was";

/// What each line of a copy begins with that is for us; that says what its handler was told; and what that has done.
const WORD: &str = "checkpoint: ";
const TOLD: &str = "told: ";
const DONE: &str = "done: ";

/// How long anything may take that has to come, on a busy machine.
const COMES: Duration = Duration::from_secs(60);

const OBJECTS: u64 = 40;

#[test]
fn what_a_killed_process_has_left_is_a_state_that_was() -> Result<(), WorldError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match (std::env::var_os(SERVER), std::env::var_os(FILE)) {
        (Some(server), Some(file)) => runtime.block_on(live(Path::new(&server), Path::new(&file))),
        _ => runtime.block_on(kill()),
    }
}

/// Lives with the checkpoint until whoever has started it is gone, or kills it.
async fn live(kubeconfig: &Path, file: &Path) -> Result<(), WorldError> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let factory = InformerFactory::new(&Connection::new(config)?);
    // The kernel gives up the lock of one that was killed when it is gone.
    let checkpoint = Checkpoint::open(file)?;
    let informer = factory.build::<Lazy<ConfigMap>>(Scope::namespace("default")).checkpoint(&checkpoint).start()?;
    let moods = Mutex::new(Random::new(u64::from(std::process::id())));
    informer.durable("mirror").on_event(move |told| {
        let (mood, time) = {
            let mut moods = moods.lock().expect("no panic");
            (moods.draw() % 16, moods.between(Duration::ZERO, Duration::from_millis(30)))
        };
        println!("{TOLD}{}", word(&told).line());
        async move {
            tokio::time::sleep(time).await;
            if mood == 0 {
                return Err("another time");
            }
            println!("{DONE}{}", told.id);
            Ok(())
        }
    })?;
    informer.wait_for_sync(COMES).await?;
    // What was kept, or what has come since: one state of the cache in either case.
    say(&informer.snapshot());
    informer.on_note(|note| {
        if matches!(note, Note::NotRestored { .. } | Note::NotKept { .. }) {
            println!("{WORD}wrong {note}");
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    // Asked to say how things stand in the end.
    let end = Instant::now() + COMES;
    tokio::time::sleep(Duration::from_secs(1)).await;
    while Instant::now() < end && informer.durables().iter().any(|(_, counts)| counts.owed > 0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    say(&informer.snapshot());
    Ok(())
}

/// Says what a cache holds, at which version.
fn say(snapshot: &Snapshot<Lazy<ConfigMap>>) {
    let objects = snapshot.decodable().map(|object| format!(" {}={}", object.key().name(), object.version()));
    let version = snapshot.version().map(ToString::to_string).unwrap_or_default();
    println!("{WORD}{version}{}", objects.collect::<String>());
}

/// One process; killed when this is dropped.
struct Victim {
    process: Child,
    said: mpsc::UnboundedReceiver<String>,
    reader: Option<JoinHandle<Vec<Seen>>>,
}

impl Victim {
    fn start(kubeconfig: &Path, file: &Path) -> Result<Self, WorldError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", NAME, "--nocapture"])
            .env(SERVER, kubeconfig)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
        let (sends, said) = mpsc::unbounded_channel();
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for line in lines.map_while(Result::ok) {
                if let Some((_, word)) = line.split_once(WORD) {
                    drop(sends.send(word.to_owned()));
                } else if let Some((_, word)) = line.split_once(TOLD) {
                    seen.extend(Word::of_line(word).map(Seen::Told));
                } else if let Some((_, id)) = line.split_once(DONE) {
                    seen.push(Seen::Done(id.to_owned()));
                }
            }
            seen
        });
        Ok(Self { process, said, reader: Some(reader) })
    }

    /// Kills it; returns what its handler has seen and done.
    fn kill(mut self) -> Result<Vec<Seen>, WorldError> {
        self.process.kill()?;
        self.process.wait()?;
        let reader = self.reader.take().ok_or("it was read already")?;
        Ok(reader.join().map_err(|_| "its reader panicked")?)
    }

    async fn says(&mut self) -> Result<String, WorldError> {
        Ok(tokio::time::timeout(COMES, self.said.recv()).await?.ok_or("it ended without a word")?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What the server had at `version`, in the words of a process.
fn had(server: &ApiServer, version: u64) -> String {
    let mut objects = BTreeMap::new();
    for change in server.history().of("", "configmaps").filter(|change| change.revision <= version) {
        match change.object {
            Some(_) => drop(objects.insert(change.name.clone(), change.revision)),
            None => drop(objects.remove(&change.name)),
        }
    }
    let objects = objects.iter().map(|(name, version)| format!(" {name}={version}"));
    format!("{version}{}", objects.collect::<String>())
}

/// A hundred changes a second, until `ended`.
async fn change(server: Arc<ApiServer>, seed: u64, ended: Arc<AtomicBool>) {
    let mut random = Random::new(seed);
    for round in 0_u64.. {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("a-{}", random.draw() % OBJECTS);
        let there = server.get("configmaps", "default", &name).is_ok();
        let object = config_map(&name, &round.to_string());
        if there && random.draw().is_multiple_of(4) {
            drop(server.delete_named("configmaps", "default", &name));
            if random.draw().is_multiple_of(2) {
                drop(server.create(&object));
            }
        } else if there {
            drop(server.replace(&object));
        } else {
            drop(server.create(&object));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn kill() -> Result<(), WorldError> {
    let kills = std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(10_usize);
    let seed = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let folder = Folder::new("killed")?;
    let server = Arc::new(ApiServer::start().await?);
    let (kubeconfig, file) = (folder.file(), folder.file());
    std::fs::write(&kubeconfig, server.kubeconfig())?;
    let ended = Arc::new(AtomicBool::new(false));
    let changes = tokio::spawn(change(server.clone(), seed, ended.clone()));

    let (mut resumed, mut listed, begun, mut log) = (0, 0, Instant::now(), Vec::new());
    for kill in 0..kills {
        let mut process = Victim::start(&kubeconfig, &file)?;
        let held = process.says().await?;
        let version = held.split(' ').next().unwrap_or_default().parse()?;
        assert_eq!(held, had(&server, version), "kill {kill}: what it begins with is what there was");
        tokio::time::sleep(random.between(Duration::ZERO, Duration::from_millis(400))).await;
        if let Ok(wrong) = process.said.try_recv() {
            panic!("kill {kill}: {wrong}");
        }
        log.push(Seen::Died);
        log.extend(process.kill()?);
        let now = lists(&server);
        resumed += usize::from(now == listed);
        listed = now;
    }
    ended.store(true, Ordering::Relaxed);
    changes.await?;
    let mut process = Victim::start(&kubeconfig, &file)?;
    process.says().await?;
    drop(process.process.stdin.take());
    let last = process.says().await?;
    let held = last.split_once(' ').map_or("", |(_, objects)| objects);
    let there = had(&server, server.revision());
    assert_eq!(Some(held), there.split_once(' ').map(|(_, objects)| objects), "all is there in the end");
    log.push(Seen::Died);
    log.extend(process.kill()?);
    let sum = judge(&server, &log).map_err(|wrong| format!("seed {seed}: {wrong}\n{}", log_of(&log)))?;
    println!("{kills} kills: {sum:?}");
    assert!(sum.ends * 20 > kills, "deletions are among them: {sum:?}");
    println!("{kills} kills in {:?}: {resumed} went on without a list, {listed} lists", begun.elapsed());
    // One that is killed before its first state is on the disk leaves nothing to the next.
    assert!(resumed * 2 >= kills, "{resumed} of {kills} went on without a list");
    Ok(())
}
