//! Layers of the user around each request, for example for tracing.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};

use super::{Connection, Inner, SendError};
use crate::transport::ResponseBody;

/// Service that sends the requests of a connection, inside of all its layers.
///
/// A layer receives each request with its path, query and headers, but without credentials and without the server's
/// address. Both are added later. The response must keep its body, which states how it ended.
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

    /// Returns the service of the connection `inner` with all layers; `None` without layers.
    pub(super) fn service(&self, inner: Weak<Inner>) -> Option<RequestService> {
        let wrap = self.wrap.as_ref()?;
        Some(wrap(BoxCloneSyncService::new(Innermost { inner })))
    }
}

/// Sends requests without layers. A weak reference, because the connection owns the service.
#[derive(Clone)]
struct Innermost {
    inner: Weak<Inner>,
}

impl Service<Request<Body>> for Innermost {
    type Response = Response<ResponseBody>;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = self.inner.upgrade();
        Box::pin(async move {
            // Only a layer that delays a request beyond the life of its connection finds none.
            let Some(inner) = inner else {
                let detail = "the connection was dropped before the layer sent the request".to_owned();
                return Err(SendError::Layer { detail, maybe_sent: false });
            };
            Connection { inner }.send_unlayered(request).await
        })
    }
}
