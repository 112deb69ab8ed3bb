//! Clients of an embedded server.

use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::environment::local::Local;
use steadfast::environment::{Helpers, SharedEnvironment};
use steadfast::transport::Settings;
use steadfast::{Connection, InformerFactory};
use steadfast_apiserver::ApiServer;
use tokio::time::Instant;

use crate::Error;
use crate::proxy::NetworkFaults;

/// What the project's own tests end with: anything that can go wrong in them.
#[doc(hidden)]
pub type WorldError = Box<dyn std::error::Error + Send + Sync>;

/// Waits until `reached`, and tells how long that took.
///
/// # Errors
///
/// Where that takes longer than `limit`.
pub async fn until(limit: Duration, reached: impl Fn() -> bool) -> Result<Duration, Error> {
    let begun = Instant::now();
    while !reached() {
        if begun.elapsed() > limit {
            return Err(format!("not within {limit:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(begun.elapsed())
}

/// A configuration for the first replica of `server`, as a kubeconfig would give it.
///
/// # Errors
///
/// Where the server's kubeconfig cannot be read.
pub async fn kube_config(server: &ApiServer) -> Result<kube::Config, Error> {
    let file = Kubeconfig::from_yaml(&server.kubeconfig())?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// A connection to the first replica of `server`, over TCP, on threads of its own.
///
/// # Errors
///
/// Where the connection cannot be made.
pub async fn connection(server: &ApiServer) -> Result<Connection, Error> {
    Ok(Connection::new(kube_config(server).await?)?)
}

/// Informers on the first replica of `server`, over TCP, on threads of their own.
///
/// # Errors
///
/// Where the connection cannot be made.
pub async fn informers(server: &ApiServer) -> Result<InformerFactory, Error> {
    Ok(InformerFactory::new(&connection(server).await?))
}

/// A client in memory of a server that was started `in_memory`: on the current runtime, in its time.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    /// What decides the client's jitter.
    pub seed: u64,
    /// What is between it and the server, whose replicas are the targets.
    pub network: NetworkFaults,
    /// The times and limits of its connections.
    pub settings: Settings,
    /// Who helps its informers with decoding, in turns that the seed decides; nobody, unless it is said.
    pub helpers: Helpers,
}

impl InMemory {
    /// A connection to `server`.
    ///
    /// # Errors
    ///
    /// Where the connection cannot be made.
    pub async fn connection(&self, server: &ApiServer) -> Result<Connection, Error> {
        let dialer = server.dialer();
        let dial = self.network.dialer(move |replica| {
            let dialer = dialer.clone();
            Box::pin(async move { dialer.connect(replica).await })
        });
        let environment: SharedEnvironment = Arc::new(Local::new(self.seed, dial).with_helpers(self.helpers));
        let config = kube_config(server).await?;
        Ok(Connection::builder(config).environment(environment).settings(self.settings.clone()).build()?)
    }
}
