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
use steadfast_testing::TestError;
use tokio::sync::mpsc;

use crate::delivery_check::{Delivery, HandlerRecord};
use crate::durable::delivery;

/// Environment variables of the child process: the kubeconfig of the server, and the checkpoint file.
const SERVER_VARIABLE: &str = "STEADFAST_CHECKPOINT_SERVER";
const FILE_VARIABLE: &str = "STEADFAST_CHECKPOINT_FILE";
/// Name of the test that runs as the child process if the variables are set.
const TEST_NAME: &str = "killed::killed_process_leaves_consistent_checkpoint";

/// Prefixes of the output lines: for the test, for deliveries to the handler, and for its acknowledgements.
const TEST_PREFIX: &str = "checkpoint: ";
const DELIVERED_PREFIX: &str = "delivered: ";
const ACKNOWLEDGED_PREFIX: &str = "acknowledged: ";

/// Timeout for an expected event, on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs as the child process until the parent process has ended. Returns `None` if the variables are not set.
pub(crate) fn run_as_child_if_requested() -> Option<impl Future<Output = Result<(), TestError>>> {
    let (server, file) = (std::env::var_os(SERVER_VARIABLE)?, std::env::var_os(FILE_VARIABLE)?);
    Some(async move { run_child(Path::new(&server), Path::new(&file)).await })
}

/// Runs with the checkpoint until the parent process has ended, or kills this process.
async fn run_child(kubeconfig: &Path, file: &Path) -> Result<(), TestError> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let factory = InformerFactory::new(&Connection::new(config)?);
    // The kernel releases the lock of a killed process only after its end.
    let checkpoint = Checkpoint::open(file)?;
    let informer = factory.builder::<Lazy<ConfigMap>>(Scope::namespace("default")).checkpoint(&checkpoint).start()?;
    let random = Mutex::new(Random::new(u64::from(std::process::id())));
    informer.durable("mirror").on_event(move |event| {
        let (choice, time) = {
            let mut random = random.lock();
            (random.draw() % 16, random.between(Duration::ZERO, Duration::from_millis(30)))
        };
        println!("{DELIVERED_PREFIX}{}", delivery(&event).line());
        async move {
            tokio::time::sleep(time).await;
            if choice == 0 {
                return Err("injected failure");
            }
            println!("{ACKNOWLEDGED_PREFIX}{}", event.id);
            Ok(())
        }
    })?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    // The cache contains the restored state or a newer one, and in either case a consistent state.
    print_state(&informer.snapshot());
    informer.on_diagnostic(|note| {
        if matches!(note, Diagnostic::NotRestored { .. } | Diagnostic::CheckpointNotWritten { .. }) {
            println!("{TEST_PREFIX}wrong {note}");
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    // The test closes the input to request the final state.
    let end = Instant::now() + EVENT_TIMEOUT;
    tokio::time::sleep(Duration::from_secs(1)).await;
    while Instant::now() < end && informer.durable_handlers().iter().any(|(_, counts)| counts.pending > 0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    print_state(&informer.snapshot());
    Ok(())
}

/// Prints the contents and the version of a cache.
fn print_state(snapshot: &Snapshot<Lazy<ConfigMap>>) {
    let objects = snapshot.decodable().map(|object| format!(" {}={}", object.key().name(), object.version()));
    let version = snapshot.version().map(ToString::to_string).unwrap_or_default();
    println!("{TEST_PREFIX}{version}{}", objects.collect::<String>());
}

/// Process that is killed on drop.
pub(crate) struct KilledProcess {
    process: Child,
    output: mpsc::UnboundedReceiver<String>,
    reader: Option<JoinHandle<Vec<HandlerRecord>>>,
}

impl KilledProcess {
    pub(crate) fn start(kubeconfig: &Path, file: &Path) -> Result<Self, TestError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", TEST_NAME, "--nocapture"])
            .env(SERVER_VARIABLE, kubeconfig)
            .env(FILE_VARIABLE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
        let (sender, output) = mpsc::unbounded_channel();
        let reader = std::thread::spawn(move || {
            let mut records = Vec::new();
            for line in lines.map_while(Result::ok) {
                if let Some((_, delivery)) = line.split_once(TEST_PREFIX) {
                    drop(sender.send(delivery.to_owned()));
                } else if let Some((_, delivery)) = line.split_once(DELIVERED_PREFIX) {
                    records.extend(Delivery::parse_line(delivery).map(HandlerRecord::Delivered));
                } else if let Some((_, id)) = line.split_once(ACKNOWLEDGED_PREFIX) {
                    records.push(HandlerRecord::Acknowledged(id.to_owned()));
                }
            }
            records
        });
        Ok(Self { process, output, reader: Some(reader) })
    }

    /// Kills the process, and returns the actions of its handler.
    pub(crate) fn kill(mut self) -> Result<Vec<HandlerRecord>, TestError> {
        self.process.kill()?;
        self.process.wait()?;
        let reader = self.reader.take().ok_or("the output was read already")?;
        Ok(reader.join().map_err(|_| "the reader panicked")?)
    }

    /// Returns an unexpected output line, if any.
    pub(crate) fn unexpected_line(&mut self) -> Option<String> {
        self.output.try_recv().ok()
    }

    /// Requests the final state, after the handler has acknowledged all events.
    pub(crate) async fn final_state(&mut self) -> Result<String, TestError> {
        drop(self.process.stdin.take());
        self.next_line().await
    }

    pub(crate) async fn next_line(&mut self) -> Result<String, TestError> {
        Ok(tokio::time::timeout(EVENT_TIMEOUT, self.output.recv()).await?.ok_or("the process ended without output")?)
    }
}

impl Drop for KilledProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
