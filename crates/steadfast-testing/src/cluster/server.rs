//! The three kinds of server, and the injection of faults into each.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use kube::api::GetParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast_apiserver::ApiServer;
use steadfast_contract::History;

use super::reference_guard::ReferenceGuard;
use super::server_fault::{ServerFault, ServerKind};
use crate::proxy::{Direction, FaultProxy};
use crate::{CachedForm, Recorder, TestkitError, history, kube_config};

/// Token that the embedded server requires, as the reference does. It protects nothing.
const TOKEN: &str = "of-the-suite";

/// Server for scenarios.
pub(super) enum Server {
    Embedded(ApiServer),
    Reference(ReferenceServer),
    Other { config: Box<kube::Config>, address: SocketAddr, started: Instant },
}

/// Shared or exclusive use of the reference, and the processes that this scenario has added.
pub(super) struct ReferenceServer {
    guard: ReferenceGuard,
    /// Number of the second API server.
    second_server: Option<usize>,
    /// Proxy between the second API server and the etcd, if that server must lag.
    etcd_proxy: Option<FaultProxy>,
}

impl Server {
    /// Starts a server of this kind that supports `needs`.
    pub(super) async fn start(kind: &ServerKind, needs: &[ServerFault]) -> Result<Self, TestkitError> {
        let needs_second_server = [
            ServerFault::Second,
            ServerFault::Lag,
            ServerFault::Shutdown,
            ServerFault::NoStreamedLists,
            ServerFault::UncachedPages,
        ];
        let has_second = needs_second_server.iter().any(|need| needs.contains(need));
        Ok(match kind {
            ServerKind::Embedded => {
                let replicas = if has_second { 2 } else { 1 };
                let protobuf = CachedForm::from_env()?.unwrap_or_default().protobuf;
                let builder = ApiServer::builder().tls(true).token(TOKEN).replicas(replicas).protobuf(protobuf);
                let server = builder.start().await?;
                if needs.contains(&ServerFault::NoStreamedLists) {
                    server.faults().replica(1).refuse_streamed_lists(true);
                }
                Self::Embedded(server)
            }
            ServerKind::Reference => {
                // A restore starts another history, so the scenario needs a reference of its own. A shared reference
                // may also be compacted by another scenario, so its history cannot be read again from its start.
                let mut guard = if needs.contains(&ServerFault::Restore) {
                    ReferenceGuard::unshared().await?
                } else {
                    ReferenceGuard::acquire(!needs.is_empty()).await?
                };
                let (mut second_server, mut etcd_proxy) = (None, None);
                if needs.contains(&ServerFault::Lag) {
                    // The proxy must exist before the second server starts: its address is the etcd flag of that
                    // server.
                    etcd_proxy = Some(FaultProxy::start([guard.etcd_address()?])?);
                }
                if has_second {
                    let flags: Vec<&str> = needs.iter().filter_map(|need| server_flag(*need)).collect();
                    let etcd_address = etcd_proxy.as_ref().map(FaultProxy::address);
                    second_server = Some(guard.exclusive()?.start_another_with_flags(&flags, etcd_address).await?);
                }
                Self::Reference(ReferenceServer { guard, second_server, etcd_proxy })
            }
            ServerKind::Other(kubeconfig) => {
                let config = Box::new(read_config(kubeconfig).await?);
                let address = resolve_address(&config).await?;
                // The clock of another cluster is unknown. Times count from the first contact instead.
                Self::Other { config, address, started: Instant::now() }
            }
        })
    }

    /// Returns the configuration of a client that connects directly to the first API server.
    pub(super) async fn config(&self) -> Result<kube::Config, TestkitError> {
        match self {
            Self::Embedded(server) => kube_config(server).await,
            Self::Reference(reference_server) => reference_server.guard.kube_config().await,
            Self::Other { config, .. } => Ok((**config).clone()),
        }
    }

    /// Returns the listen addresses of the API servers.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Embedded(server) => (0..server.replicas()).filter_map(|replica| server.address(replica)).collect(),
            Self::Reference(reference_server) => [Some(0), reference_server.second_server]
                .into_iter()
                .flatten()
                .map(|number| reference_server.guard.address(number))
                .collect(),
            Self::Other { address, .. } => vec![*address],
        }
    }

    /// Returns a recorder that uses the clock of the history.
    pub(super) fn recorder(&self) -> Recorder {
        match self {
            Self::Embedded(server) => Recorder::of(server),
            Self::Reference(reference_server) => reference_server.guard.recorder(),
            Self::Other { started, .. } => {
                let started = *started;
                Recorder::new(move || started.elapsed())
            }
        }
    }

    /// Returns the server's own history of the resource `plural` of `group` up to `revision`. `None` for a server that
    /// offers only its API.
    pub(super) async fn history(
        &self,
        revision: u64,
        group: &str,
        plural: &str,
    ) -> Result<Option<History>, TestkitError> {
        Ok(match self {
            Self::Embedded(server) => Some(history(server, group, plural)?),
            Self::Reference(reference_server) => {
                Some(reference_server.guard.history_until(revision, group, plural).await?)
            }
            // The caller reads its own watch instead.
            Self::Other { .. } => None,
        })
    }

    /// Kills an API server: all its connections are reset immediately.
    pub(super) fn kill(&mut self, server: usize) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().replica(server).stop(),
            Self::Reference(reference_server) => {
                let server = reference_server.reference_number(server)?;
                reference_server.guard.exclusive()?.kill(server);
            }
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Shuts an API server down gracefully.
    pub(super) async fn shut_down(&mut self, server: usize) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => {
                let faults = embedded.faults().replica(server);
                // A graceful shutdown ends the watches, sends GOAWAY, and then closes the port.
                faults.end_watches();
                faults.goaway();
                faults.stop();
            }
            Self::Reference(reference_server) => {
                let server = reference_server.reference_number(server)?;
                reference_server.guard.exclusive()?.shut_down(server).await?;
            }
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Starts an API server again.
    pub(super) async fn start_again(&mut self, server: usize) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().replica(server).start(),
            Self::Reference(reference_server) => {
                let server = reference_server.reference_number(server)?;
                reference_server.guard.exclusive()?.start_again(server).await?;
            }
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Freezes the first API server, or resumes it.
    pub(super) fn freeze(&mut self, on: bool) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().replica(0).freeze(on),
            Self::Reference(reference) => reference.guard.exclusive()?.freeze(0, on)?,
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Freezes the store, or resumes it.
    pub(super) fn freeze_store(&mut self, on: bool) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().freeze_etcd(on),
            Self::Reference(reference) => reference.guard.exclusive()?.freeze_etcd(on)?,
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Compacts the store to its current state.
    pub(super) async fn compact(&mut self) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.compact(),
            Self::Reference(reference_server) => reference_server.guard.exclusive()?.compact().await?,
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Creates a backup of the store, and returns its revision.
    pub(super) async fn back_up(&mut self) -> Result<u64, TestkitError> {
        match self {
            Self::Embedded(embedded) => Ok(embedded.revision()),
            Self::Reference(reference_server) => reference_server.guard.exclusive()?.back_up().await,
            Self::Other { .. } => Err(foreign_server_error()),
        }
    }

    /// Restores the store from its backup at `revision`, and starts the first API server again.
    pub(super) async fn restore(&mut self, revision: u64) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().restore(revision),
            Self::Reference(reference_server) => {
                let reference = reference_server.guard.exclusive()?;
                reference.restore(revision).await?;
                reference.start_again(0).await?;
            }
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Makes the second API server stop following the store, or catch up.
    pub(super) fn lag(&mut self, on: bool) -> Result<(), TestkitError> {
        match self {
            Self::Embedded(embedded) => embedded.faults().replica(1).lag(on),
            Self::Reference(reference) => {
                let etcd_proxy = reference.etcd_proxy.as_ref().ok_or("the scenario did not declare the fault Lag")?;
                // The server's requests still reach the etcd, but no event or response returns.
                etcd_proxy.faults().black_hole(Direction::ToClient, on);
            }
            Self::Other { .. } => return Err(foreign_server_error()),
        }
        Ok(())
    }

    /// Returns the number of streamed lists, from the server's own metrics. `None` for a server whose metrics are not
    /// available.
    pub(super) async fn streamed_lists(&self, client: &kube::Client) -> Result<Option<u64>, TestkitError> {
        match self {
            Self::Embedded(server) => Ok(Some(server.request_counts().streamed_lists as u64)),
            Self::Reference(_) => {
                let request = kube::core::Request::new("").get("metrics", &GetParams::default())?;
                let metrics = client.request_text(request).await?;
                // The metric has a series per group, version and resource. Streamed lists of other resources must not
                // count.
                let counts = metrics
                    .lines()
                    .filter(|line| line.starts_with("apiserver_watch_list_duration_seconds_count{"))
                    .filter(|line| line.contains("resource=\"configmaps\""))
                    .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
                Ok(Some(counts.sum()))
            }
            Self::Other { .. } => Ok(None),
        }
    }

    /// Repairs the shared reference, and returns it to other scenarios.
    pub(super) async fn repair_and_release(self) -> Result<(), TestkitError> {
        // A second server stays registered in the shared reference, but must not run for later scenarios.
        if let Self::Reference(ReferenceServer { mut guard, second_server, .. }) = self {
            if let Ok(reference) = guard.exclusive() {
                if let Some(second_server) = second_server {
                    reference.kill(second_server);
                }
                if !reference.runs(0) {
                    reference.start_again(0).await?;
                }
            }
            // The guard is marked only after all repairs. An error above drops the guard, which marks the reference
            // as damaged.
            guard.mark_intact();
        }
        Ok(())
    }
}

impl ReferenceServer {
    /// Converts the scenario's number of an API server to the reference's number. The numbers differ, since earlier
    /// scenarios may have started a second server too.
    fn reference_number(&self, server: usize) -> Result<usize, TestkitError> {
        let second_server = || self.second_server.ok_or("the scenario has no second server");
        Ok(if server == 0 { 0 } else { second_server()? })
    }
}

/// Returns the flag that configures the second API server of the reference for this need.
fn server_flag(need: ServerFault) -> Option<&'static str> {
    match need {
        // Without this flag, a server waits for its watches during shutdown until it is killed.
        ServerFault::Shutdown => Some("--shutdown-watch-termination-grace-period=5s"),
        ServerFault::NoStreamedLists => Some("--feature-gates=WatchList=false"),
        ServerFault::UncachedPages => Some("--feature-gates=ListFromCacheSnapshot=false"),
        _ => None,
    }
}

fn foreign_server_error() -> TestkitError {
    "faults are injected only into servers of our own".into()
}

async fn read_config(kubeconfig: &Path) -> Result<kube::Config, TestkitError> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Resolves the address of the server in `config`.
async fn resolve_address(config: &kube::Config) -> Result<SocketAddr, TestkitError> {
    if config.proxy_url.is_some() {
        return Err("the kubeconfig specifies a proxy; network faults need a direct connection".into());
    }
    let url = &config.cluster_url;
    let host = url.host().ok_or("the URL in the kubeconfig has no host")?.trim_matches(['[', ']']);
    // The default port depends on the scheme, as in any URL.
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let mut addresses = tokio::net::lookup_host((host, port)).await?;
    Ok(addresses.next().ok_or_else(|| format!("{host} has no address"))?)
}
