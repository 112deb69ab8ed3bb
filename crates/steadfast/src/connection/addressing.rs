//! Addressing of requests: adds the server's URL and the configured headers to a request for a path.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Uri};
use kube::client::middleware::{BaseUri, ExtraHeaders};
use kube::client::{Body, ConfigExt};
use tower::{Layer, Service};

use super::error::{ConnectError, describe};

const IMPERSONATE: &str = "impersonate-";
const IMPERSONATE_USER: &str = "impersonate-user";

/// Adds the server's URL and the configuration's headers to requests.
pub(super) struct Addressing {
    service: BaseUri<ExtraHeaders<ReturnRequest>>,
}

impl Addressing {
    pub(super) fn new(config: &kube::Config) -> Result<Self, ConnectError> {
        let headers =
            config.extra_headers_layer().map_err(|error| ConnectError::Headers { detail: describe(&error) })?;
        Ok(Self { service: config.base_uri_layer().layer(headers.layer(ReturnRequest)) })
    }

    pub(super) fn address(&self, mut request: Request<Body>) -> Request<Body> {
        if request.uri().path_and_query().is_none() {
            *request.uri_mut() = Uri::from_static("/");
        }
        // The request's own impersonation replaces the configured one, as in client-go: the server rejects two users.
        let own = request.headers().contains_key(IMPERSONATE_USER).then(|| impersonation(request.headers()));
        let Ok(mut request) = self.service.clone().call(request).into_inner();
        if let Some(own) = own {
            let headers = request.headers_mut();
            for (name, _) in impersonation(headers) {
                headers.remove(name);
            }
            headers.extend(own);
        }
        request
    }
}

/// Copies the headers that impersonate a user.
fn impersonation(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let all = headers.iter().filter(|(name, _)| name.as_str().starts_with(IMPERSONATE));
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Innermost service: returns the request after the changes of the outer layers.
#[derive(Clone)]
struct ReturnRequest;

impl Service<Request<Body>> for ReturnRequest {
    type Response = Request<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Request<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(request))
    }
}
