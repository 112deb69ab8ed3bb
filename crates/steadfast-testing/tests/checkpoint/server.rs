//! A server with a hundred changes of config maps per second, and its own history: the embedded server or a real one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_contract::History;
use steadfast_core::random::Random;
use steadfast_testing::reference::Reference;
use steadfast_testing::{TestError, config_map};
use tokio::task::JoinHandle;

use crate::files::Folder;
use crate::program_run::{config_maps, lists};

/// Number of names that the changed config maps can have.
const NAMES: u64 = 40;

/// Audit policy that logs each request for config maps once, on arrival. The stage `ResponseComplete` would be too late:
/// a streaming request reaches it only at its end.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
  - level: Metadata
    namespaces: [default]
    resources: [{group: "", resources: [configmaps]}]
  - level: None
"#;

/// Embedded or real server.
pub(crate) enum Server {
    Embedded { server: Arc<ApiServer>, kubeconfig: PathBuf },
    Real { reference: Box<Reference>, audit: PathBuf },
}

impl Server {
    pub(crate) async fn embedded(folder: &Folder) -> Result<Self, TestError> {
        let (server, kubeconfig) = (Arc::new(ApiServer::start().await?), folder.file());
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        Ok(Self::Embedded { server, kubeconfig })
    }

    /// Starts a real server. `None` if the reference is not built, which is printed.
    pub(crate) async fn real(folder: &Folder) -> Result<Option<Self>, TestError> {
        let (policy, audit) = (folder.file(), folder.file());
        std::fs::write(&policy, POLICY)?;
        let flags =
            [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", audit.display())];
        let reference = Reference::start_with_flags(&[&flags[0], &flags[1]]).await?;
        Ok(reference.map(|reference| Self::Real { reference: Box::new(reference), audit }))
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded { kubeconfig, .. } => kubeconfig.clone(),
            Self::Real { reference, .. } => reference.kubeconfig(),
        }
    }

    /// Changes the config maps until `ended`.
    pub(crate) async fn change(
        &self,
        seed: u64,
        ended: Arc<AtomicBool>,
    ) -> Result<JoinHandle<Result<(), TestError>>, TestError> {
        let writer = match self {
            Self::Embedded { server, .. } => Writer::Embedded(server.clone()),
            Self::Real { reference, .. } => {
                Writer::Real(Box::new(Api::namespaced(reference.connection().await?.client(), "default")))
            }
        };
        Ok(tokio::spawn(change(writer, seed, ended)))
    }

    /// Returns the history of config maps up to `version`, and possibly a few later changes.
    pub(crate) async fn history_until(&self, version: u64) -> Result<History, TestError> {
        Ok(match self {
            Self::Embedded { server, .. } => config_maps(server)?,
            Self::Real { reference, .. } => reference.history_until(version, "", "configmaps").await?,
        })
    }

    /// Returns the complete history, after the last change.
    pub(crate) async fn history(&mut self) -> Result<History, TestError> {
        Ok(match self {
            Self::Embedded { server, .. } => config_maps(server)?,
            Self::Real { reference, .. } => reference.history("", "configmaps").await?,
        })
    }

    /// Returns the number of full transfers.
    pub(crate) fn lists(&self) -> Result<usize, TestError> {
        let Self::Real { audit, .. } = self else {
            let Self::Embedded { server, .. } = self else { unreachable!("the server is embedded or real") };
            return Ok(lists(server));
        };
        let mut lists = 0;
        // The last line may be incomplete.
        let text = std::fs::read_to_string(audit)?;
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let request: Value = serde_json::from_str(line)?;
            let path = request["requestURI"].as_str().ok_or("the audit entry has no path")?;
            let is_streamed = request["verb"] == "watch" && path.contains("sendInitialEvents=true");
            // A probe of the current version is a list of one object.
            let is_probe = path.split(['?', '&']).any(|parameter| parameter == "limit=1");
            lists += usize::from((request["verb"] == "list" && !is_probe) || is_streamed);
        }
        Ok(lists)
    }
}

/// Writer of the changes.
enum Writer {
    Embedded(Arc<ApiServer>),
    Real(Box<Api<ConfigMap>>),
}

impl Writer {
    async fn write(&self, name: &str, value: &str, exists: bool) -> Result<(), TestError> {
        let object = config_map(name, value);
        match self {
            Self::Embedded(server) if exists => drop(server.replace(&object)?),
            Self::Embedded(server) => drop(server.create(&object)?),
            Self::Real(api) => {
                let object = serde_json::from_value(serde_json::to_value(object)?)?;
                let parameters = PostParams::default();
                if exists {
                    api.replace(name, &parameters, &object).await
                } else {
                    api.create(&parameters, &object).await
                }?;
            }
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), TestError> {
        match self {
            Self::Embedded(server) => drop(server.delete_named("configmaps", "default", name)?),
            Self::Real(api) => drop(api.delete(name, &DeleteParams::default()).await?),
        }
        Ok(())
    }
}

/// Writes a hundred changes per second. One in four changes of an existing object is a deletion, and half of the
/// deletions are followed by a recreation.
async fn change(writer: Writer, seed: u64, ended: Arc<AtomicBool>) -> Result<(), TestError> {
    let mut random = Random::new(seed);
    let mut existing = BTreeSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for round in 0_u64.. {
        ticks.tick().await;
        if ended.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("a-{}", random.draw() % NAMES);
        let (value, existed) = (round.to_string(), existing.contains(&name));
        if existed && random.draw().is_multiple_of(4) {
            writer.delete(&name).await?;
            if random.draw().is_multiple_of(2) {
                writer.write(&name, &value, false).await?;
            } else {
                existing.remove(&name);
            }
        } else {
            writer.write(&name, &value, existed).await?;
            existing.insert(name);
        }
    }
    Ok(())
}
