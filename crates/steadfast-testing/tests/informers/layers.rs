//! Layers around the requests of informers and clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use steadfast::connection::{RequestService, SendError};
use steadfast::transport::{Fence, ResponseBody};
use steadfast::{Connection, Diagnostic, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, TestError, config_map};
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{EVENT_TIMEOUT, EventLog};

/// Layer that traces each request, like a layer for OpenTelemetry: a record for each span, and a header for its
/// context.
#[derive(Clone)]
struct TracingLayer {
    log: EventLog,
    /// Number of further requests that the layer fails.
    failures: Arc<AtomicU32>,
}

#[derive(Clone)]
struct TracedService {
    inner: RequestService,
    layer: TracingLayer,
}

impl Layer<RequestService> for TracingLayer {
    type Service = TracedService;

    fn layer(&self, inner: RequestService) -> TracedService {
        TracedService { inner, layer: self.clone() }
    }
}

impl Service<Request<Body>> for TracedService {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { inner, layer } = self.clone();
        Box::pin(async move {
            let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let verb = if watch { "WATCH" } else { request.method().as_str() };
            let span = format!("{verb} {}", request.uri().path());
            if request.headers().contains_key(AUTHORIZATION) {
                layer.log.record(format!("{span} with credentials"));
            }
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("traced"));
            if layer.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                return Err("the exporter is full".into());
            }
            let response = inner.oneshot(request).await?;
            layer.log.record(format!("{span} {}", response.status().as_u16()));
            Ok(response)
        })
    }
}

async fn traced_connection(failures: u32) -> Result<(ApiServer, Connection, EventLog), TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let layer = TracingLayer { log: EventLog::default(), failures: Arc::new(failures.into()) };
    let log = layer.log.clone();
    let connection = InMemory::default().builder(&server).await?.layer(layer).build()?;
    Ok((server, connection, log))
}

#[tokio::test(start_paused = true)]
async fn layer_traces_informers_and_clients() -> Result<(), TestError> {
    let (server, connection, log) = traced_connection(0).await?;
    let factory = InformerFactory::new(&connection);
    let informer = factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    super::settle().await;
    let spans = log.all();
    assert!(!spans.is_empty() && spans.iter().all(|span| span.ends_with("/configmaps 200")), "{spans:?}");
    assert!(spans.iter().any(|span| span.starts_with("WATCH /api/v1/namespaces/default")), "{spans:?}");

    Api::<ConfigMap>::namespaced(connection.client(), "default").get("a").await?;
    let environment = connection.environment().clone();
    let fence = Fence::new(environment.clone(), environment.now() + 60 * EVENT_TIMEOUT, EVENT_TIMEOUT);
    let result = Api::<ConfigMap>::namespaced(connection.with_fence(fence).client(), "default").get("b").await;
    assert!(result.is_err());
    let path = "GET /api/v1/namespaces/default/configmaps";
    assert_eq!(log.all()[spans.len()..], [format!("{path}/a 200"), format!("{path}/b 404")]);
    // The layer's headers reach the server.
    let requests = server.requests();
    let mut list_requests = requests.iter().filter(|request| request.path.ends_with("/configmaps"));
    assert!(list_requests.all(|request| request.user_agent == "traced"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_layer_is_reported_and_retried() -> Result<(), TestError> {
    let (_server, connection, _) = traced_connection(2).await?;
    let factory = InformerFactory::new(&connection);
    let log = EventLog::default();
    let captured_log = log.clone();
    let informer = factory.builder::<ConfigMap>(Scope::all()).on_diagnostic(move |diagnostic| {
        if let Diagnostic::Failed { message, code, .. } = diagnostic {
            captured_log.record(format!("{code:?} {message}"));
        }
    });
    informer.start()?.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_eq!(log.all(), ["None a layer of the connection failed: the exporter is full"; 2]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_layer_leaves_writes_unconfirmed() -> Result<(), TestError> {
    let (_server, connection, _) = traced_connection(1).await?;
    let maps = Api::<ConfigMap>::namespaced(connection.client(), "default");
    let error = maps.create(&PostParams::default(), &config_map("b", "1")).await.expect_err("the layer fails");
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut messages = std::iter::from_fn(|| {
        let error = source?;
        source = error.source();
        Some(error)
    });
    let error = messages.find_map(|error| error.downcast_ref::<SendError>());
    assert!(error.is_some_and(SendError::maybe_sent), "a layer can fail after its inner service");
    Ok(())
}
