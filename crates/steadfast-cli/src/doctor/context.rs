//! Subject of the checks: the connection, its configuration, and the checked resources.

use std::sync::Arc;
use std::time::Duration;

use kube::core::ApiResource;
use serde_json::Value;
use steadfast::Connection;
use steadfast::kube::Config;
use steadfast::unstable::catalog::ServedResource;
use tokio::sync::OnceCell;

use super::requests::{Reply, RequestError};
use crate::server_address::host_and_port;

/// Everything that a check needs.
#[derive(Clone)]
pub(super) struct CheckContext {
    pub(super) config: Config,
    pub(super) connection: Connection,
    /// Source of the configuration: files and context.
    pub(super) source: String,
    pub(super) resources: Vec<ServedResource>,
    /// The checked namespace; `None` for all.
    pub(super) namespace: Option<String>,
    /// Duration of the watches that observe changes.
    pub(super) sample: Duration,
    /// Response to `GET /version`, and the times before and after. `None` before the first response.
    pub(super) version: Option<VersionReply>,
    /// Response to the review of the user, which several checks need.
    pub(super) user_review: Arc<OnceCell<Result<Value, RequestError>>>,
}

/// Response to the first request, with the local times around it.
#[derive(Clone, Debug)]
pub(super) struct VersionReply {
    pub(super) reply: Reply,
    pub(super) sent: jiff::Timestamp,
    pub(super) received: jiff::Timestamp,
}

impl CheckContext {
    /// Returns the first resource, for checks of one resource.
    pub(super) fn first_resource(&self) -> &ServedResource {
        // Checks of resources run only if each named resource was found, and most default resources have namespaces.
        &self.resources[0]
    }

    /// Returns the path of the collection of `resource` in the checked scope.
    pub(super) fn path(&self, resource: &ServedResource) -> String {
        let ApiResource { group, api_version, plural, .. } = &resource.api_resource;
        let root = if group.is_empty() { "/api" } else { "/apis" };
        match self.namespace.as_deref().filter(|_| resource.namespaced) {
            Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{api_version}/{plural}"),
        }
    }

    /// Returns host and port of the server.
    pub(super) fn host_and_port(&self) -> (String, u16) {
        host_and_port(&self.config.cluster_url)
    }

    /// Returns whether the server is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.config.cluster_url.scheme_str() == Some("https")
    }
}
