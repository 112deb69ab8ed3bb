//! Clients of an embedded server.

use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::connection::ConnectionBuilder;
use steadfast::environment::local::LocalEnvironment;
use steadfast::environment::{HelperThreads, SharedEnvironment};
use steadfast::transport::Settings;
use steadfast::{Connection, InformerFactory};
use steadfast_apiserver::ApiServer;
use tokio::time::Instant;

use crate::TestkitError;
use crate::proxy::NetworkFaults;

/// Error type of the project's own tests.
#[doc(hidden)]
pub type TestError = Box<dyn std::error::Error + Send + Sync>;

/// Waits until `reached` returns `true`, and returns the elapsed time.
///
/// # Errors
///
/// Returns an error if `reached` is not true within `limit`.
pub async fn until(limit: Duration, reached: impl Fn() -> bool) -> Result<Duration, TestkitError> {
    let start = Instant::now();
    // Polls, because `reached` may inspect any state and nothing announces its changes. In virtual time, the interval
    // costs nothing.
    while !reached() {
        if start.elapsed() > limit {
            return Err(format!("the condition was not met within {limit:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(start.elapsed())
}

/// Returns the client configuration from the kubeconfig of `server`, which names its first replica.
///
/// # Errors
///
/// Returns an error if the server's kubeconfig cannot be read.
pub async fn kube_config(server: &ApiServer) -> Result<kube::Config, TestkitError> {
    let file = Kubeconfig::from_yaml(&server.kubeconfig())?;
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Opens a connection to the first replica of `server`, over TCP, on its own threads.
///
/// # Errors
///
/// Returns an error if the connection cannot be created.
pub async fn connection(server: &ApiServer) -> Result<Connection, TestkitError> {
    Ok(Connection::new(kube_config(server).await?)?)
}

/// Creates informers for the first replica of `server`, over TCP, on their own threads.
///
/// # Errors
///
/// Returns an error if the connection cannot be created.
pub async fn informers(server: &ApiServer) -> Result<InformerFactory, TestkitError> {
    Ok(InformerFactory::new(&connection(server).await?))
}

/// Connects to a server that was started `in_memory`, on the current runtime and in its time.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    /// Seed of the client's jitter.
    pub seed: u64,
    /// Network between the client and the server. The replicas of the server are its targets.
    pub network: NetworkFaults,
    /// Timeouts and limits of the connections.
    pub settings: Settings,
    /// Helper tasks that decode for the informers, in an order that the seed selects. Defaults to none.
    pub helpers: HelperThreads,
}

impl InMemory {
    /// Opens a connection to `server`.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    pub async fn connection(&self, server: &ApiServer) -> Result<Connection, TestkitError> {
        Ok(self.builder(server).await?.build()?)
    }

    /// Returns the builder of a connection to `server`, for further settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has no usable configuration.
    pub async fn builder(&self, server: &ApiServer) -> Result<ConnectionBuilder, TestkitError> {
        let dialer = server.dialer();
        let dial = self.network.dialer(move |replica| {
            // Cloned for each connection, since the returned future must be `'static`.
            let dialer = dialer.clone();
            Box::pin(async move { dialer.connect(replica).await })
        });
        let environment: SharedEnvironment =
            Arc::new(LocalEnvironment::new(self.seed, dial).with_helpers(self.helpers));
        let config = kube_config(server).await?;
        Ok(Connection::builder(config).environment(environment).settings(self.settings.clone()))
    }
}
