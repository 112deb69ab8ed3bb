//! What is at the head of each request: the server's address, the configuration's headers, who we are.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Request;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use kube::client::Body;

use super::addressing::Addressing;
use super::auth::Authorizer;
use super::error::{ConnectError, SendError};

/// Makes a request one for the server, by what the configuration says now.
pub(super) struct RequestDecorator {
    addressing: ArcSwap<Addressing>,
    agent: HeaderValue,
    /// Credentials.
    pub(super) authorizer: Arc<Authorizer>,
}

impl RequestDecorator {
    /// As `config` says.
    pub(super) fn new(
        config: &kube::Config,
        agent: HeaderValue,
        authorizer: Arc<Authorizer>,
    ) -> Result<Self, ConnectError> {
        Ok(Self { addressing: ArcSwap::from_pointee(Addressing::new(config)?), agent, authorizer })
    }

    /// Says what `config` says from now on; or what is wrong with that, and goes on as before.
    pub(super) async fn adopt(&self, config: Arc<kube::Config>) -> Result<(), String> {
        let addressing = Addressing::new(&config).map_err(|error| error.to_string())?;
        self.authorizer.adopt(config).await.map_err(|error| error.to_string())?;
        self.addressing.store(Arc::new(addressing));
        Ok(())
    }

    /// `request`, which is for a path, for the server; without credentials.
    pub(super) fn address(&self, request: Request<Body>) -> Request<Body> {
        let mut request = self.addressing.load().address(request);
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        request
    }

    /// Puts credentials into `headers`; says which generation of them.
    pub(super) async fn authorize(&self, headers: &mut HeaderMap) -> Result<u64, SendError> {
        self.authorizer.authorize(headers).await
    }
}
