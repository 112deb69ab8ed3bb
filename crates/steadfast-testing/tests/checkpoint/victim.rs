//! A process with a checkpoint and a durable handler that is there to be killed, and what it says of itself.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::{Checkpoint, Connection, InformerFactory, Lazy, Note, Scope, Snapshot};
use steadfast_core::random::Random;
use steadfast_testing::WorldError;
use tokio::sync::mpsc;

use crate::durable::word;
use crate::judge::{Seen, Word};

/// Says to a copy of this program where the server is, and where its checkpoint.
const SERVER: &str = "STEADFAST_CHECKPOINT_SERVER";
const FILE: &str = "STEADFAST_CHECKPOINT_FILE";
/// The name of the test that is such a process where these are there.
const NAME: &str = "killed::what_a_killed_process_has_left_is_a_state_that_was";

/// What each line of a copy begins with that is for us; that says what its handler was told; and what that has done.
const WORD: &str = "checkpoint: ";
const TOLD: &str = "told: ";
const DONE: &str = "done: ";

/// How long anything may take that has to come, on a busy machine.
const COMES: Duration = Duration::from_secs(60);

/// What this process is, where it was started to be such a one: until whoever has started it is gone.
pub(crate) fn live_if_asked() -> Option<impl Future<Output = Result<(), WorldError>>> {
    let (server, file) = (std::env::var_os(SERVER)?, std::env::var_os(FILE)?);
    Some(async move { live(Path::new(&server), Path::new(&file)).await })
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
pub(crate) struct Victim {
    process: Child,
    said: mpsc::UnboundedReceiver<String>,
    reader: Option<JoinHandle<Vec<Seen>>>,
}

impl Victim {
    pub(crate) fn start(kubeconfig: &Path, file: &Path) -> Result<Self, WorldError> {
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
    pub(crate) fn kill(mut self) -> Result<Vec<Seen>, WorldError> {
        self.process.kill()?;
        self.process.wait()?;
        let reader = self.reader.take().ok_or("it was read already")?;
        Ok(reader.join().map_err(|_| "its reader panicked")?)
    }

    /// What it has said already that it should not have.
    pub(crate) fn has_said(&mut self) -> Option<String> {
        self.said.try_recv().ok()
    }

    /// Has it say once more what it holds, when its handler has done all that it owes.
    pub(crate) async fn ends_with(&mut self) -> Result<String, WorldError> {
        drop(self.process.stdin.take());
        self.says().await
    }

    pub(crate) async fn says(&mut self) -> Result<String, WorldError> {
        Ok(tokio::time::timeout(COMES, self.said.recv()).await?.ok_or("it ended without a word")?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
