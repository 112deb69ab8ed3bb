//! The HTTP endpoints of the operator: its health and its metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use steadfast::InformerFactory;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics registry. Some metrics are added only when the process leads.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    pub(crate) fn add(&self, collector: impl Collector) {
        self.0.lock().register_collector(Box::new(collector));
    }

    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.lock())?;
        Ok(text)
    }
}

/// Serves `/metrics`, `/readyz` and `/healthz`. `/readyz` also succeeds on a standby after its caches are filled.
/// `/healthz` fails only if the process does not respond.
pub(crate) fn routes(informers: &InformerFactory, metrics: &Metrics) -> Router {
    let ready = Router::new().route("/readyz", get(readyz)).with_state(informers.clone());
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics.clone())
        .merge(ready)
        .route("/healthz", get(async || "ok\n"))
}

async fn scrape(State(metrics): State<Metrics>) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let text = metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, OPENMETRICS)], text))
}

async fn readyz(State(informers): State<InformerFactory>) -> (StatusCode, String) {
    let freshness = informers.freshness();
    (freshness.status(), freshness.to_string())
}
