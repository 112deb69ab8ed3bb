//! A process with a checkpoint and a durable handler that the test kills, and its output.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use steadfast::{Checkpoint, Connection, Diagnostic, InformerFactory, Lazy, Scope, Snapshot};
use steadfast_core::random::Random;
use steadfast_testing::WorldError;
use tokio::sync::mpsc;

use crate::durable::word;
use crate::judge::{Seen, Word};

/// Environment variables with the server and the checkpoint file of such a process.
const SERVER: &str = "STEADFAST_CHECKPOINT_SERVER";
const FILE: &str = "STEADFAST_CHECKPOINT_FILE";
/// Name of the test that runs as such a process if the variables are set.
const NAME: &str = "killed::killed_process_leaves_consistent_checkpoint";

/// Prefixes of the output lines: for the test, for deliveries to the handler, and for its acknowledgements.
const WORD: &str = "checkpoint: ";
const TOLD: &str = "told: ";
const DONE: &str = "done: ";

/// Timeout for an expected event, on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs as such a process, if the variables are set, until the parent process has ended.
pub(crate) fn live_if_asked() -> Option<impl Future<Output = Result<(), WorldError>>> {
    let (server, file) = (std::env::var_os(SERVER)?, std::env::var_os(FILE)?);
    Some(async move { live(Path::new(&server), Path::new(&file)).await })
}

/// Runs with the checkpoint until the parent process has ended, or kills this process.
async fn live(kubeconfig: &Path, file: &Path) -> Result<(), WorldError> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let factory = InformerFactory::new(&Connection::new(config)?);
    // The kernel releases the lock of a killed process only after its end.
    let checkpoint = Checkpoint::open(file)?;
    let informer = factory.builder::<Lazy<ConfigMap>>(Scope::namespace("default")).checkpoint(&checkpoint).start()?;
    let moods = Mutex::new(Random::new(u64::from(std::process::id())));
    informer.durable("mirror").on_event(move |told| {
        let (mood, time) = {
            let mut moods = moods.lock();
            (moods.draw() % 16, moods.between(Duration::ZERO, Duration::from_millis(30)))
        };
        println!("{TOLD}{}", word(&told).line());
        async move {
            tokio::time::sleep(time).await;
            if mood == 0 {
                return Err("injected failure");
            }
            println!("{DONE}{}", told.id);
            Ok(())
        }
    })?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    // The cache contains the restored state or a newer one, and in either case a consistent state.
    say(&informer.snapshot());
    informer.on_diagnostic(|note| {
        if matches!(note, Diagnostic::NotRestored { .. } | Diagnostic::CheckpointNotWritten { .. }) {
            println!("{WORD}wrong {note}");
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    // The test closes the input to request the final state.
    let end = Instant::now() + EVENT_TIMEOUT;
    tokio::time::sleep(Duration::from_secs(1)).await;
    while Instant::now() < end && informer.durables().iter().any(|(_, counts)| counts.pending > 0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    say(&informer.snapshot());
    Ok(())
}

/// Prints the contents and the version of a cache.
fn say(snapshot: &Snapshot<Lazy<ConfigMap>>) {
    let objects = snapshot.decodable().map(|object| format!(" {}={}", object.key().name(), object.version()));
    let version = snapshot.version().map(ToString::to_string).unwrap_or_default();
    println!("{WORD}{version}{}", objects.collect::<String>());
}

/// Process that is killed on drop.
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

    /// Kills the process, and returns the actions of its handler.
    pub(crate) fn kill(mut self) -> Result<Vec<Seen>, WorldError> {
        self.process.kill()?;
        self.process.wait()?;
        let reader = self.reader.take().ok_or("the output was read already")?;
        Ok(reader.join().map_err(|_| "the reader panicked")?)
    }

    /// Returns an unexpected output line, if any.
    pub(crate) fn has_said(&mut self) -> Option<String> {
        self.said.try_recv().ok()
    }

    /// Requests the final state, after the handler has acknowledged all events.
    pub(crate) async fn ends_with(&mut self) -> Result<String, WorldError> {
        drop(self.process.stdin.take());
        self.says().await
    }

    pub(crate) async fn says(&mut self) -> Result<String, WorldError> {
        Ok(tokio::time::timeout(EVENT_TIMEOUT, self.said.recv()).await?.ok_or("the process ended without output")?)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
