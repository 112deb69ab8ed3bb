//! Decoration of requests: the server's address, the configured headers, the user agent and credentials.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Request;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use kube::client::Body;

use super::addressing::Addressing;
use super::auth::Authorizer;
use super::error::{ConnectError, SendError};

/// Adds address, headers and credentials of the current configuration to requests.
pub(super) struct RequestDecorator {
    addressing: ArcSwap<Addressing>,
    agent: HeaderValue,
    /// Source of credentials.
    pub(super) authorizer: Arc<Authorizer>,
}

impl RequestDecorator {
    /// Creates a decorator for `config`.
    pub(super) fn new(
        config: &kube::Config,
        agent: HeaderValue,
        authorizer: Arc<Authorizer>,
    ) -> Result<Self, ConnectError> {
        Ok(Self { addressing: ArcSwap::from_pointee(Addressing::new(config)?), agent, authorizer })
    }

    /// Adopts `config`, or returns the error and keeps the current configuration.
    pub(super) async fn adopt(&self, config: Arc<kube::Config>) -> Result<(), String> {
        let addressing = Addressing::new(&config).map_err(|error| error.to_string())?;
        // The load of the credentials can fail, so it precedes the store of the headers. Headers and credentials then
        // always belong to one configuration.
        self.authorizer.adopt(config).await.map_err(|error| error.to_string())?;
        self.addressing.store(Arc::new(addressing));
        Ok(())
    }

    /// Adds the server's address and the headers to `request`, but no credentials.
    pub(super) fn address(&self, request: Request<Body>) -> Request<Body> {
        let mut request = self.addressing.load().address(request);
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        request
    }

    /// Adds credentials to `headers`. Returns their generation.
    pub(super) async fn authorize(&self, headers: &mut HeaderMap) -> Result<u64, SendError> {
        self.authorizer.authorize(headers).await
    }
}
