//! Metrics: each changes when the counted event happens, in virtual time, on a server in memory.

// Counts are integers, which an `f64` represents exactly.
#![allow(clippy::float_cmp)]

mod documented;
mod moving;
mod scraped;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use steadfast::metrics::Metrics;
use steadfast::transport::Settings;
use steadfast::{Connection, Informer, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_testing::{Exposition, InMemory, TestError};

const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

struct MetricsFixture {
    server: ApiServer,
    factory: InformerFactory,
    registry: Registry,
}

impl MetricsFixture {
    async fn with_builder(builder: ApiServerBuilder) -> Result<Self, TestError> {
        let server = builder.in_memory().start().await?;
        // HTTP/2 without TLS, so that the connection sends pings.
        let settings = Settings { prior_knowledge: true, ..Settings::default() };
        let connection = InMemory { settings, ..InMemory::default() }.connection(&server).await?;
        Ok(Self { server, registry: registry(&connection), factory: InformerFactory::new(&connection) })
    }

    async fn new() -> Result<Self, TestError> {
        Self::with_builder(ApiServer::builder()).await
    }

    async fn synced_informer(&self) -> Result<Informer<ConfigMap>, TestError> {
        let informer = self.factory.informer::<ConfigMap>(Scope::all())?;
        informer.wait_for_sync(EVENT_TIMEOUT).await?;
        Ok(informer)
    }

    fn text(&self) -> Result<String, TestError> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn scrape(&self) -> Result<Exposition, TestError> {
        Ok(Exposition::parse(&self.text()?)?)
    }

    /// Returns the sum of the samples with these labels. Fails if no such sample exists.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64, TestError> {
        match self.scrape()?.sum(name, labels) {
            (_, 0) => Err(format!("no sample of {name} with {labels:?}").into()),
            (sum, _) => Ok(sum),
        }
    }
}

fn registry(connection: &Connection) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics::new([connection])));
    registry
}

/// Waits until all tasks have run that need no passage of time.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}
