//! Layers of the user around each request, for example for tracing.

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};

use super::error::SendError;
use crate::transport::ResponseBody;

/// Service that sends the requests of a connection, inside of all its layers.
///
/// A layer receives each request with its path, query and headers, but without credentials and without the server's
/// address. Both are added later. The layer must pass on the response body, which reports how the response ended.
pub type RequestService = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, SendError>;

/// All layers of a connection as one function. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Layers {
    wrap: Option<Arc<dyn Fn(RequestService) -> RequestService + Send + Sync>>,
}

impl Layers {
    /// Adds a layer outside of the existing layers.
    pub(super) fn add<L>(&mut self, layer: L)
    where
        L: Layer<RequestService> + Send + Sync + 'static,
        L::Service: Service<Request<Body>, Response = Response<ResponseBody>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<SendError>,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        let inner = self.wrap.take();
        self.wrap = Some(Arc::new(move |service| {
            let service = inner.as_ref().map_or_else(|| service.clone(), |wrap| wrap(service.clone()));
            BoxCloneSyncService::new(layer.layer(service).map_err(Into::into))
        }));
    }

    /// Returns `send` as a service with all layers; `None` without layers.
    pub(super) fn service<F, Fut>(&self, send: F) -> Option<RequestService>
    where
        F: Fn(Request<Body>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<ResponseBody>, SendError>> + Send + 'static,
    {
        let wrap = self.wrap.as_ref()?;
        Some(wrap(BoxCloneSyncService::new(tower::service_fn(send))))
    }
}
