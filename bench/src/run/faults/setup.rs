//! The setup of a fault: a server, a proxy in front of the server, one client behind the proxy, and a writer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadfast_apiserver::{ApiServer, ApiServerBuilder, Faults, RequestCounts};
use steadfast_testing::proxy::{Direction, FaultProxy, NetworkFaults};
use tokio::process::Command;
use tokio::time::{sleep, sleep_until};

use super::observer::Observer;
use super::recording_writer::RecordingWriter;
use crate::BenchError;
use crate::run::client_variant::Library;
use crate::run::results::FaultResult;

/// Number of objects.
const OBJECT_COUNT: usize = 75;
/// Writes per second during writing phases.
const WRITES_PER_SECOND: u32 = 20;
/// Timeout of a client's first list.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the comparisons of the cache with the server.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for events to reach a handler after they reached its cache.
const HANDLER_SETTLE_TIME: Duration = Duration::from_millis(700);

/// Setup of the server.
#[derive(Clone, Copy)]
pub(super) enum ServerSetup {
    /// One replica without authentication.
    OneReplica,
    /// Two replicas; clients reach the first one.
    TwoReplicas,
    /// One replica that requires the token [`TOKEN`].
    WithToken,
}

/// Token of the client.
pub(super) const TOKEN: &str = "the-token-of-this-run";

/// Server, network, client and writer.
pub(super) struct Setup {
    pub(super) server: ApiServer,
    pub(super) writer: RecordingWriter,
    proxy: FaultProxy,
    client: Option<Observer>,
    library: Library,
    program: PathBuf,
    kubeconfig: PathBuf,
    fault_start: Option<(Instant, RequestCounts, u64)>,
    fault_end: Option<Instant>,
}

impl Setup {
    /// Creates the setup without a client.
    pub(super) async fn start(
        server_setup: ServerSetup,
        library: Library,
        program: &Path,
        kubeconfig: &Path,
    ) -> Result<Self, BenchError> {
        let builder: ApiServerBuilder = match server_setup {
            ServerSetup::OneReplica => ApiServer::builder(),
            ServerSetup::TwoReplicas => ApiServer::builder().replicas(2),
            ServerSetup::WithToken => ApiServer::builder().token(TOKEN),
        };
        let server = builder.tls(true).start().await?;
        let proxy = FaultProxy::start((0..server.replicas()).map(|replica| server.address(replica)))?;
        let address = server.address(0).ok_or("the server has no address")?;
        // Clients connect to the proxy. The certificate is valid for the loopback address, whatever the port.
        let proxied_kubeconfig = server.kubeconfig().replace(&address.to_string(), &proxy.address().to_string());
        std::fs::write(kubeconfig, proxied_kubeconfig)?;
        let writer = RecordingWriter::create_initial(&server, OBJECT_COUNT)?;
        let (program, kubeconfig) = (program.to_owned(), kubeconfig.to_owned());
        Ok(Self {
            server,
            writer,
            proxy,
            client: None,
            library,
            program,
            kubeconfig,
            fault_start: None,
            fault_end: None,
        })
    }

    /// Starts the client.
    pub(super) fn start_client(&mut self) -> Result<(), BenchError> {
        let mut command = if self.library == Library::ClientGo {
            let mut command = Command::new(&self.program);
            command.arg("fault-client").arg(format!("-kubeconfig={}", self.kubeconfig.display()));
            command
        } else {
            self.library.command(&self.program, &self.kubeconfig)
        };
        if self.library != Library::ClientGo {
            command.arg("--fault-client");
        }
        self.client = Some(Observer::start(command)?);
        Ok(())
    }

    /// Starts the client, waits until it has synced, and lets it watch for a while.
    pub(super) async fn start_synced_client(&mut self) -> Result<(), BenchError> {
        self.start_client()?;
        if self.wait_until_equal(Instant::now(), FIRST_LIST_TIMEOUT).await?.is_none() {
            // A client that does not work even without a fault must not count as failed because of the fault.
            return Err("the client did not sync before the fault".into());
        }
        self.write_for(Duration::from_secs(2)).await?;
        if self.wait_until_equal(Instant::now(), FIRST_LIST_TIMEOUT).await?.is_none() {
            return Err("the client did not follow before the fault".into());
        }
        Ok(())
    }

    /// Returns the switches of the server's faults.
    pub(super) fn faults(&self) -> &Faults {
        self.server.faults()
    }

    /// Returns the switches of the network's faults.
    pub(super) fn network(&self) -> &NetworkFaults {
        self.proxy.faults()
    }

    /// Marks the start of the fault. Times, requests and bytes count from here.
    pub(super) fn mark_fault_start(&mut self) {
        self.fault_start = Some((Instant::now(), self.server.request_counts(), self.bytes()));
        if let Some(client) = &self.client {
            // Events before the fault do not count as repeated or lost.
            client.log().reset_counters();
        }
    }

    /// Marks the end of the fault.
    pub(super) fn mark_fault_end(&mut self) {
        self.fault_end = Some(Instant::now());
    }

    /// Writes at a constant rate for this time.
    pub(super) async fn write_for(&mut self, time: Duration) -> Result<(), BenchError> {
        let started = tokio::time::Instant::now();
        let mut write_count = 0;
        while started.elapsed() < time {
            self.writer.write(&self.server)?;
            write_count += 1;
            // The schedule is absolute, so that slow writes do not lower the rate.
            sleep_until(started + Duration::from_secs(1) * write_count / WRITES_PER_SECOND).await;
        }
        Ok(())
    }

    /// Makes this number of writes without pauses.
    pub(super) fn write(&mut self, times: usize) -> Result<(), BenchError> {
        (0..times).try_for_each(|_| self.writer.write(&self.server))
    }

    /// Drops all packets on the open connections silently. New connections are not affected.
    pub(super) fn black_hole_open_connections(&self) {
        for connection in self.network().connections().iter().filter(|connection| connection.ended.is_none()) {
            self.network().connection(connection.connection).black_hole(Direction::Both, true);
        }
    }

    fn bytes(&self) -> u64 {
        self.network().connections().iter().map(|connection| connection.to_server + connection.to_client).sum()
    }

    /// Waits until the client's cache equals the server, and returns the time since `from`.
    async fn wait_until_equal(&mut self, from: Instant, limit: Duration) -> Result<Option<Duration>, BenchError> {
        let client = self.client.as_mut().ok_or("the client was not started")?;
        loop {
            // The comparison by UID and version is cheap and shows any missed write.
            if client.cache().await? == *self.writer.expected_objects() {
                return Ok(Some(from.elapsed()));
            }
            if from.elapsed() > limit {
                return Ok(None);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the client has recovered or the timeout has passed, and records the results.
    pub(super) async fn evaluate(
        mut self,
        fault_result: &mut FaultResult,
        recovery_timeout: Duration,
    ) -> Result<(), BenchError> {
        let (fault, counts_before, bytes) = self.fault_start.ok_or("no fault was injected")?;
        fault_result.recovery_timeout = recovery_timeout.as_secs();
        let recovery_time = self.wait_until_equal(self.fault_end.unwrap_or(fault), recovery_timeout).await?;
        fault_result.recovered = recovery_time.map(|time| time.as_secs_f64());
        // The handler may lag behind the cache. The last events must arrive before any count as lost.
        sleep(HANDLER_SETTLE_TIME).await;
        let counts_after = self.server.request_counts();
        fault_result.lists = counts_after.full_transfers() - counts_before.full_transfers();
        fault_result.watches = counts_after.watches - counts_before.watches;
        fault_result.bytes = self.bytes() - bytes;
        let client = self.client.as_ref().ok_or("the client was not started")?;
        let log = client.log();
        if let Some((delay, reason)) = log.first_doubt_since(fault) {
            (fault_result.reported_after, fault_result.reported_error) = (Some(delay.as_secs_f64()), Some(reason));
        }
        let expected = self.writer.expected_objects();
        // `ghosts` are deleted objects in the view of a handler. `outdated` are objects without their last state.
        let ghosts = log.objects.keys().filter(|name| !expected.contains_key(*name)).count();
        let outdated = expected.iter().filter(|(name, state)| log.objects.get(*name) != Some(state)).count();
        fault_result.lost = ghosts + outdated;
        (fault_result.merged, fault_result.repeated, fault_result.older) =
            (log.merged_recreations, log.repeated_events, log.older_events);
        Ok(())
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // The kubeconfig is useless without the server.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}
