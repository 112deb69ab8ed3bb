//! The reference for tests: a real etcd, real API servers on it, and what really happened there.
//!
//! Each is a process of its own, so that an API server can be killed while the etcd and the history of it go on. All
//! of them end when the [`Reference`] is dropped, and also when the test that holds it is killed.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steadfast::{InformerFactory, Scope};
//! use steadfast_testing::reference::Reference;
//!
//! # async fn test() -> Result<(), steadfast_testing::Error> {
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
mod lines;
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

use crate::{Error, Recorder};
use lines::Wanted;
use process::Process;
pub use programs::{kubectl, program, skip};

/// How long anything may take to start, to stop or to become quiet.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long before it is asked again whether something has come about.
const AGAIN: Duration = Duration::from_millis(50);

/// A real etcd, the history of it, and the API servers on it. All end when this is dropped.
#[derive(Debug)]
pub struct Reference {
    program: PathBuf,
    // In the order in which they end: the folder goes last.
    servers: Vec<Server>,
    historian: Option<Process>,
    etcd: Process,
    etcd_url: String,
    folder: Folder,
    /// What was undone by restores, the oldest first.
    undone: Vec<Undone>,
    /// The beginning of all times, by both clocks.
    begun: (SystemTime, Instant),
}

#[derive(Debug)]
struct Server {
    process: Option<Process>,
    folder: PathBuf,
    port: u16,
    etcd_url: String,
    flags: Vec<String>,
}

/// A part of the history that a restore has undone.
#[derive(Debug)]
struct Undone {
    /// The file that tells it.
    history: PathBuf,
    /// The revision whose state was restored.
    to: u64,
    at: Duration,
}

impl Reference {
    /// Starts an etcd, the history of it, and one API server.
    ///
    /// `None`, with the reason printed, where the reference is not built: see `docs/development/testing.md`.
    ///
    /// # Errors
    ///
    /// Where something does not start, or where the reference is missing and must not be.
    pub async fn start() -> Result<Option<Self>, Error> {
        Self::start_with(&[]).await
    }

    /// The same; the API server is given `flags` of kube-apiserver.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(flags: &[&str]) -> Result<Option<Self>, Error> {
        let Some(program) = program("STEADFAST_REFERENCE", "reference")? else {
            skip("the reference is not built; conformance/reference/build does that, where there is Go")?;
            return Ok(None);
        };
        let folder = Folder::new()?;
        let (etcd, etcd_url) = start_etcd(&program, &folder, 0).await?;
        // Before the API server: it is told from the first change on.
        let historian = Some(start_historian(&program, &folder, &etcd_url).await?);
        let begun = (SystemTime::now(), Instant::now());
        let (servers, undone) = (Vec::new(), Vec::new());
        let mut reference = Self { program, servers, historian, etcd, etcd_url, folder, undone, begun };
        reference.start_another_with(flags, None).await?;
        Ok(Some(reference))
    }

    /// Starts one more API server on the same etcd, which passes for the first one; returns its number.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub async fn start_another(&mut self) -> Result<usize, Error> {
        self.start_another_with(&[], None).await
    }

    /// The same with `flags` of kube-apiserver, and with the etcd reached by `way`, where a proxy in front of it is.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub async fn start_another_with(&mut self, flags: &[&str], way: Option<SocketAddr>) -> Result<usize, Error> {
        let number = self.servers.len();
        let folder = self.folder.path.join(format!("server-{number}"));
        let etcd_url = way.map_or_else(|| self.etcd_url.clone(), |address| format!("http://{address}"));
        let flags = flags.iter().map(ToString::to_string).collect();
        self.servers.push(Server { process: None, folder, port: 0, etcd_url, flags });
        self.start_again(number).await?;
        Ok(number)
    }

    /// Ends an API server by `SIGKILL`.
    ///
    /// # Panics
    ///
    /// Where there is no such server.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].process = None;
    }

    /// Ends an API server in good order, and waits for its end.
    ///
    /// # Errors
    ///
    /// Where it does not end, or does not run.
    ///
    /// # Panics
    ///
    /// Where there is no such server.
    pub async fn shut_down(&mut self, server: usize) -> Result<(), Error> {
        let mut process = self.servers[server].process.take().ok_or("the server does not run")?;
        process.close_input();
        process.until_ended(PATIENCE).await
    }

    /// Whether an API server runs: it was not killed, nor shut down.
    pub fn runs(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.process.is_some())
    }

    /// Starts an API server again that was killed, at the same address, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    ///
    /// # Panics
    ///
    /// Where there is no such server.
    pub async fn start_again(&mut self, server: usize) -> Result<(), Error> {
        let certificates = self.folder.path.join("certificates").display().to_string();
        let log = self.folder.path.join(format!("server-{server}.log"));
        let Server { process, folder, port, etcd_url, flags } = &mut self.servers[server];
        let (place, at) = (folder.display().to_string(), port.to_string());
        let mut arguments = vec!["-etcd", etcd_url, "-dir", &place, "-certificates", &certificates, "-port", &at, "--"];
        arguments.extend(flags.iter().map(String::as_str));
        let mut started = Process::start(&self.program, &arguments, log)?;
        started.ready(PATIENCE).await?;
        *process = Some(started);
        if *port == 0 {
            let uri = configuration(&folder.join("kubeconfig")).await?.cluster_url;
            *port = uri.port_u16().ok_or("the kubeconfig names no port")?;
        }
        Ok(())
    }

    /// Stops an API server where it is, or lets it go on: its sockets stay open, and the kernel answers for them.
    ///
    /// # Errors
    ///
    /// Where it does not run.
    ///
    /// # Panics
    ///
    /// Where there is no such server.
    pub fn freeze(&self, server: usize, on: bool) -> Result<(), Error> {
        let process = self.servers[server].process.as_ref().ok_or("the server does not run")?;
        Ok(process.freeze(on)?)
    }

    /// The same for the etcd.
    ///
    /// # Errors
    ///
    /// Where it does not run.
    pub fn freeze_etcd(&self, on: bool) -> Result<(), Error> {
        Ok(self.etcd.freeze(on)?)
    }

    /// Where the etcd listens.
    ///
    /// # Errors
    ///
    /// Where its URL names no address.
    pub fn etcd_address(&self) -> Result<SocketAddr, Error> {
        let address = self.etcd_url.strip_prefix("http://").ok_or("the URL of the etcd is no plain one")?;
        Ok(address.trim_end_matches('/').parse()?)
    }

    /// Has the etcd forget every state but the present one.
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub async fn compact(&self) -> Result<(), Error> {
        let log = self.folder.path.join("compact.log");
        let mut compaction = Process::start(&self.program, &["-compact", "-etcd", &self.etcd_url], log)?;
        compaction.until_ended(PATIENCE).await
    }

    /// Where an API server listens.
    ///
    /// # Panics
    ///
    /// Where there is no such server.
    pub fn address(&self, server: usize) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.servers[server].port)
    }

    /// The kubeconfig of the first API server; its administrator has a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.servers[0].folder.join("kubeconfig")
    }

    /// The same as a configuration.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub async fn kube_config(&self) -> Result<kube::Config, Error> {
        configuration(&self.kubeconfig()).await
    }

    /// A connection to the first API server.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub async fn connection(&self) -> Result<Connection, Error> {
        Ok(Connection::new(self.kube_config().await?)?)
    }

    /// A connection to the API servers by way of `address`, where a proxy is.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub async fn connection_by(&self, address: SocketAddr) -> Result<Connection, Error> {
        let mut config = self.kube_config().await?;
        config.cluster_url = format!("https://{address}").parse().map_err(|error| format!("{address}: {error}"))?;
        Ok(Connection::new(config)?)
    }

    /// A recorder by the same clock as the history.
    pub fn recorder(&self) -> Recorder {
        let (_, begun) = self.begun;
        Recorder::new(move || begun.elapsed())
    }

    /// The newest version there is, by a consistent read through the first API server.
    ///
    /// # Errors
    ///
    /// Where it does not answer.
    pub async fn newest_version(&self) -> Result<String, Error> {
        let client = self.connection().await?.client();
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(client);
        let list = namespaces.list_metadata(&kube::api::ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.ok_or("the list has no version")?)
    }

    /// Waits until all that `recorder` observes has everything, and writes down how it is: as
    /// [`Recorder::settle_at`] the newest version.
    ///
    /// # Errors
    ///
    /// Where the server does not say what its newest version is.
    pub async fn settle(&self, recorder: &Recorder) -> Result<(), Error> {
        recorder.settle_at(&self.newest_version().await?, PATIENCE).await;
        Ok(())
    }

    /// What happened to the resource `plural` of `group`, for the checker. The history ends with the first call.
    ///
    /// # Errors
    ///
    /// Where it is not complete, or not what it should be.
    pub async fn history(&mut self, group: &str, plural: &str) -> Result<History, Error> {
        self.end_history().await?;
        self.told(&fs::read_to_string(self.folder.history())?, group, plural)
    }

    async fn end_history(&mut self) -> Result<(), Error> {
        if let Some(mut historian) = self.historian.take() {
            // It writes down all that has happened by now, and ends.
            historian.close_input();
            historian.until_ended(PATIENCE).await?;
        }
        Ok(())
    }

    /// What was undone, and then what `text` says.
    fn told(&self, text: &str, group: &str, plural: &str) -> Result<History, Error> {
        let wanted = Wanted { begun: self.begun.0, group, plural };
        let (mut history, mut after) = (History::new(), 0);
        for undone in &self.undone {
            wanted.read(&fs::read_to_string(&undone.history)?, after, &mut history)?;
            history.restore(undone.at, undone.to);
            after = undone.to;
        }
        wanted.read(text, after, &mut history)?;
        Ok(history)
    }

    /// What has happened until `revision`, which must be that of an object's write, and perhaps a little more. The
    /// history goes on.
    ///
    /// # Errors
    ///
    /// Where it does not come to `revision`, or is not what it should be.
    pub async fn history_until(&self, revision: u64, group: &str, plural: &str) -> Result<History, Error> {
        let begun = Instant::now();
        loop {
            let text = fs::read_to_string(self.folder.history())?;
            // The last line may be half written.
            let text = text.rfind('\n').map_or("", |end| &text[..end]);
            if lines::last_revision(text) >= Some(revision) {
                return self.told(text, group, plural);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the history does not come to revision {revision} within {PATIENCE:?}").into());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// An etcd on `port`, or on a free one where that is 0, and its URL.
async fn start_etcd(program: &Path, folder: &Folder, port: u16) -> Result<(Process, String), Error> {
    let (place, port) = (folder.etcd().display().to_string(), port.to_string());
    let arguments = ["-only-etcd", "-dir", &place, "-etcd-port", &port];
    let mut etcd = Process::start(program, &arguments, folder.path.join("etcd.log"))?;
    let url = etcd.ready(PATIENCE).await?;
    Ok((etcd, url))
}

async fn start_historian(program: &Path, folder: &Folder, etcd_url: &str) -> Result<Process, Error> {
    let file = folder.history().display().to_string();
    let arguments = ["-history", &file, "-etcd", etcd_url];
    let mut historian = Process::start(program, &arguments, folder.path.join("history.log"))?;
    historian.ready(PATIENCE).await?;
    Ok(historian)
}

async fn configuration(kubeconfig: &Path) -> Result<kube::Config, Error> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// A folder of its own, until dropped.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> io::Result<Self> {
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
