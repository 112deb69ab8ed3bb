//! The reference server for tests: a real etcd, real API servers, and a record of all changes.
//!
//! Each part runs as a separate process, so that an API server can be killed while the etcd and its history continue.
//! All processes end when the [`Reference`] is dropped, and also when the test process is killed.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steadfast::{InformerFactory, Scope};
//! use steadfast_testing::reference::Reference;
//!
//! # async fn test() -> Result<(), steadfast_testing::TestkitError> {
//! let Some(mut reference) = Reference::start().await? else { return Ok(()) };
//! let factory = InformerFactory::new(&reference.connection().await?);
//! let recorder = reference.recorder();
//! recorder.record(&factory.informer::<ConfigMap>(Scope::all())?);
//!
//! reference.kill(0);
//! reference.start_again(0).await?;
//!
//! reference.settle(&recorder).await?;
//! steadfast_contract::check(&reference.history("", "configmaps").await?, &recorder.trace())?;
//! # Ok(())
//! # }
//! ```

mod aggregate;
mod history_file;
mod process;
mod programs;
mod restore;
mod users;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, io};

use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::Connection;
use steadfast_contract::History;

use crate::{Recorder, TestkitError};
use history_file::ChangeSelection;
use process::Process;
pub use programs::{kubectl, program, skip};

/// Timeout for the stop of a process, and for the wait until a server is quiet.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for a start on a heavily loaded machine. A process that ends during its start is reported immediately.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A real etcd, its history, and its API servers. All of them end when this value is dropped.
#[derive(Debug)]
pub struct Reference {
    program: PathBuf,
    // Fields are dropped in this order: the folder must be removed last.
    servers: Vec<ServerProcess>,
    history_process: Option<Process>,
    etcd: Process,
    etcd_url: String,
    folder: Folder,
    /// Histories that restores have undone, the oldest first.
    undone: Vec<UndoneHistory>,
    /// Origin of the recorded times: one instant, on the wall clock and on the monotonic clock.
    started: (SystemTime, Instant),
}

#[derive(Debug)]
struct ServerProcess {
    process: Option<Process>,
    folder: PathBuf,
    port: u16,
    etcd_url: String,
    flags: Vec<String>,
}

/// Part of the history that a restore has undone.
#[derive(Debug)]
struct UndoneHistory {
    /// File with the undone history.
    history_file: PathBuf,
    /// Revision to which the store was restored.
    restored_revision: u64,
    restored_at: Duration,
}

impl Reference {
    /// Starts an etcd, its history, and one API server.
    ///
    /// Returns `None` and prints the reason if the reference is not built: see `docs/development/testing.md`.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start, or if the reference is missing although
    /// `STEADFAST_REQUIRE_REFERENCE` is set.
    pub async fn start() -> Result<Option<Self>, TestkitError> {
        Self::start_with_flags(&[]).await
    }

    /// Starts the reference, and passes `flags` of kube-apiserver to the API server.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start).
    pub async fn start_with_flags(flags: &[&str]) -> Result<Option<Self>, TestkitError> {
        let Some(program) = program("STEADFAST_REFERENCE", "reference")? else {
            skip("the reference is not built; run conformance/reference/build, which needs Go")?;
            return Ok(None);
        };
        let folder = Folder::new()?;
        let (etcd, etcd_url) = start_etcd(&program, &folder, 0).await?;
        // The history starts before the API server, so that it contains the first change.
        let history_process = Some(start_history_process(&program, &folder, &etcd_url).await?);
        // Both clocks are read, because the history has wall-clock times of other processes, and the recorder needs a
        // monotonic clock.
        let started = (SystemTime::now(), Instant::now());
        let (servers, undone) = (Vec::new(), Vec::new());
        let mut reference = Self { program, servers, history_process, etcd, etcd_url, folder, undone, started };
        reference.start_another_with_flags(flags, None).await?;
        Ok(Some(reference))
    }

    /// Starts one more API server on the same etcd, with the identity of the first one. Returns its number.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start.
    pub async fn start_another(&mut self) -> Result<usize, TestkitError> {
        self.start_another_with_flags(&[], None).await
    }

    /// Starts one more API server with `flags` of kube-apiserver. If `etcd_proxy` is given, the server connects to the
    /// etcd at this address, for example through a proxy.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start.
    pub async fn start_another_with_flags(
        &mut self,
        flags: &[&str],
        etcd_proxy: Option<SocketAddr>,
    ) -> Result<usize, TestkitError> {
        let number = self.servers.len();
        let folder = self.folder.path.join(format!("server-{number}"));
        let etcd_url = etcd_proxy.map_or_else(|| self.etcd_url.clone(), |address| format!("http://{address}"));
        let flags = flags.iter().map(ToString::to_string).collect();
        self.servers.push(ServerProcess { process: None, folder, port: 0, etcd_url, flags });
        self.start_again(number).await?;
        Ok(number)
    }

    /// Kills an API server with `SIGKILL`.
    ///
    /// # Panics
    ///
    /// Panics if the server does not exist.
    pub fn kill(&mut self, server: usize) {
        // Dropping the process kills it. The entry stays, because the numbers of servers are indexes.
        self.servers[server].process = None;
    }

    /// Shuts an API server down gracefully, and waits until it has stopped.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not stop, or is not running.
    ///
    /// # Panics
    ///
    /// Panics if the server does not exist.
    pub async fn shut_down(&mut self, server: usize) -> Result<(), TestkitError> {
        let mut process = self.servers[server].process.take().ok_or("the server does not run")?;
        // The programs shut down gracefully and end when their standard input closes.
        process.close_input();
        process.until_ended(WAIT_TIMEOUT).await
    }

    /// Returns `true` if an API server was started, and was neither killed nor shut down since.
    pub fn runs(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.process.is_some())
    }

    /// Starts a stopped API server again, at the same address, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not start.
    ///
    /// # Panics
    ///
    /// Panics if the server does not exist.
    pub async fn start_again(&mut self, server: usize) -> Result<(), TestkitError> {
        let certificates = self.folder.path.join("certificates").display().to_string();
        let log = self.folder.path.join(format!("server-{server}.log"));
        let ServerProcess { process, folder, port, etcd_url, flags } = &mut self.servers[server];
        let (server_folder, port_argument) = (folder.display().to_string(), port.to_string());
        let mut arguments = vec![
            "-etcd",
            etcd_url,
            "-dir",
            &server_folder,
            "-certificates",
            &certificates,
            "-port",
            &port_argument,
            "--",
        ];
        arguments.extend(flags.iter().map(String::as_str));
        let mut api_server = Process::start(&self.program, &arguments, log)?;
        api_server.wait_until_ready(START_TIMEOUT).await?;
        *process = Some(api_server);
        // The first start chooses a free port. Later starts reuse the port, so that clients find the server again.
        if *port == 0 {
            let uri = read_config(&folder.join("kubeconfig")).await?.cluster_url;
            *port = uri.port_u16().ok_or("the kubeconfig names no port")?;
        }
        Ok(())
    }

    /// Freezes an API server, or resumes it. Its sockets stay open, and the kernel acknowledges received bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is not running.
    ///
    /// # Panics
    ///
    /// Panics if the server does not exist.
    pub fn freeze(&self, server: usize, on: bool) -> Result<(), TestkitError> {
        let process = self.servers[server].process.as_ref().ok_or("the server does not run")?;
        Ok(process.set_frozen(on)?)
    }

    /// Freezes the etcd, or resumes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the etcd is not running.
    pub fn freeze_etcd(&self, on: bool) -> Result<(), TestkitError> {
        Ok(self.etcd.set_frozen(on)?)
    }

    /// Returns the listen address of the etcd.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL of the etcd has no address.
    pub fn etcd_address(&self) -> Result<SocketAddr, TestkitError> {
        let address = self.etcd_url.strip_prefix("http://").ok_or("the URL of the etcd does not start with http://")?;
        Ok(address.trim_end_matches('/').parse()?)
    }

    /// Compacts the etcd to its current state.
    ///
    /// # Errors
    ///
    /// Returns an error if the compaction fails.
    pub async fn compact(&self) -> Result<(), TestkitError> {
        let log = self.folder.path.join("compact.log");
        let mut compaction = Process::start(&self.program, &["-compact", "-etcd", &self.etcd_url], log)?;
        compaction.until_ended(WAIT_TIMEOUT).await
    }

    /// Returns the listen address of an API server.
    ///
    /// # Panics
    ///
    /// Panics if the server does not exist.
    pub fn address(&self, server: usize) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.servers[server].port)
    }

    /// Returns the path of the first API server's kubeconfig. Its administrator authenticates with a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.servers[0].folder.join("kubeconfig")
    }

    /// Returns the client configuration of the first API server's kubeconfig.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub async fn kube_config(&self) -> Result<kube::Config, TestkitError> {
        read_config(&self.kubeconfig()).await
    }

    /// Opens a connection to the first API server.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    pub async fn connection(&self) -> Result<Connection, TestkitError> {
        Ok(Connection::new(self.kube_config().await?)?)
    }

    /// Opens a connection to the API servers through the proxy at `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    pub async fn connection_by(&self, address: SocketAddr) -> Result<Connection, TestkitError> {
        let mut config = self.kube_config().await?;
        // The proxy listens on the loopback interface too, for which the certificate is valid.
        config.cluster_url = format!("https://{address}").parse().map_err(|error| format!("{address}: {error}"))?;
        Ok(Connection::new(config)?)
    }

    /// Returns a recorder that uses the clock of this server's history.
    pub fn recorder(&self) -> Recorder {
        let (_, started) = self.started;
        Recorder::new(move || started.elapsed())
    }

    /// Returns the newest version, by a consistent read through the first API server.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not respond.
    pub async fn newest_version(&self) -> Result<String, TestkitError> {
        let client = self.connection().await?.client();
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(client);
        let list = namespaces.list_metadata(&kube::api::ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.ok_or("the list has no version")?)
    }

    /// Waits until everything that `recorder` observes has reached the newest version, and records the final state. See
    /// [`Recorder::settle_at`].
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not return its newest version.
    pub async fn settle(&self, recorder: &Recorder) -> Result<(), TestkitError> {
        recorder.settle_at(&self.newest_version().await?, WAIT_TIMEOUT).await;
        Ok(())
    }

    /// Returns the history of the resource `plural` of `group`, for the checker. The first call ends the recording of
    /// the history.
    ///
    /// # Errors
    ///
    /// Returns an error if the history is incomplete or malformed.
    pub async fn history(&mut self, group: &str, plural: &str) -> Result<History, TestkitError> {
        self.end_history().await?;
        self.combine(&fs::read_to_string(self.folder.history())?, group, plural)
    }

    async fn end_history(&mut self) -> Result<(), TestkitError> {
        if let Some(mut history_process) = self.history_process.take() {
            // The history process writes all changes up to now, and then exits.
            history_process.close_input();
            history_process.until_ended(WAIT_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Combines the undone histories with the history in `text`.
    fn combine(&self, text: &str, group: &str, plural: &str) -> Result<History, TestkitError> {
        let selection = ChangeSelection { started: self.started.0, group, plural };
        let (mut history, mut last_revision) = (History::new(), 0);
        for undone in &self.undone {
            selection.read(&fs::read_to_string(&undone.history_file)?, last_revision, &mut history)?;
            history.restore(undone.restored_at, undone.restored_revision);
            // The next file repeats the changes up to the restored revision, so they are skipped in that file.
            last_revision = undone.restored_revision;
        }
        selection.read(text, last_revision, &mut history)?;
        Ok(history)
    }

    /// Returns the history up to `revision`, and possibly a few later changes. `revision` must be the revision of a
    /// write to an object. The recording of the history continues.
    ///
    /// # Errors
    ///
    /// Returns an error if the history does not reach `revision`, or is malformed.
    pub async fn history_until(&self, revision: u64, group: &str, plural: &str) -> Result<History, TestkitError> {
        let started = Instant::now();
        loop {
            let text = fs::read_to_string(self.folder.history())?;
            // The last line may be incomplete.
            let text = text.rfind('\n').map_or("", |end| &text[..end]);
            if history_file::last_revision(text) >= Some(revision) {
                return self.combine(text, group, plural);
            }
            if started.elapsed() > WAIT_TIMEOUT {
                return Err(format!("the history does not reach revision {revision} within {WAIT_TIMEOUT:?}").into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Starts an etcd on `port` and returns it with its URL. Port 0 selects a free port.
async fn start_etcd(program: &Path, folder: &Folder, port: u16) -> Result<(Process, String), TestkitError> {
    let (etcd_folder, port) = (folder.etcd().display().to_string(), port.to_string());
    let arguments = ["-only-etcd", "-dir", &etcd_folder, "-etcd-port", &port];
    let mut etcd = Process::start(program, &arguments, folder.path.join("etcd.log"))?;
    let url = etcd.wait_until_ready(START_TIMEOUT).await?;
    Ok((etcd, url))
}

async fn start_history_process(program: &Path, folder: &Folder, etcd_url: &str) -> Result<Process, TestkitError> {
    let file = folder.history().display().to_string();
    let arguments = ["-history", &file, "-etcd", etcd_url];
    let mut history_process = Process::start(program, &arguments, folder.path.join("history.log"))?;
    history_process.wait_until_ready(START_TIMEOUT).await?;
    Ok(history_process)
}

async fn read_config(kubeconfig: &Path) -> Result<kube::Config, TestkitError> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Temporary folder that is removed on drop.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> io::Result<Self> {
        // The number distinguishes several references of one process. The process ID distinguishes concurrent test
        // programs.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("steadfast-reference-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    fn etcd(&self) -> PathBuf {
        self.path.join("etcd")
    }

    fn history(&self) -> PathBuf {
        self.path.join("history.jsonl")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
