//! Subject of the checks: the connection, its configuration, and the checked resources.

use std::time::Duration;

use steadfast::Connection;
use steadfast::kube::Config;
use steadfast::unstable::catalog::ServedResource;

use super::requests::Reply;

/// A resource that the checks use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckedResource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

/// Resources that are checked unless others are named: those that most controllers watch.
const DEFAULT_RESOURCES: [(&str, &str, &str, &str, bool); 8] = [
    ("", "v1", "Pod", "pods", true),
    ("", "v1", "Service", "services", true),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Event", "events", true),
    ("", "v1", "Node", "nodes", false),
    ("", "v1", "Namespace", "namespaces", false),
];

impl CheckedResource {
    /// Returns the resources that are checked unless others are named. With a namespace, those of the cluster are left
    /// out.
    pub(super) fn defaults(namespace: Option<&str>) -> Vec<Self> {
        let all = DEFAULT_RESOURCES.into_iter().map(|(group, version, kind, plural, namespaced)| Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        });
        all.filter(|resource| resource.namespaced || namespace.is_none()).collect()
    }

    /// Returns the resource that discovery found.
    pub(super) fn of(served: &ServedResource) -> Self {
        let resource = &served.api_resource;
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            namespaced: served.namespaced,
        }
    }

    /// Returns the path of the collection in `namespace`, or of all namespaces.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let version = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{version}/{}", self.plural),
        }
    }
}

impl std::fmt::Display for CheckedResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Everything that a check needs.
#[derive(Clone)]
pub(super) struct CheckContext {
    pub(super) config: Config,
    pub(super) connection: Connection,
    /// Source of the configuration: files and context.
    pub(super) source: String,
    pub(super) resources: Vec<CheckedResource>,
    /// The checked namespace; `None` for all.
    pub(super) namespace: Option<String>,
    /// Duration of the watches that observe changes.
    pub(super) sample: Duration,
    /// Response to `GET /version`, and the times before and after. `None` before the first response.
    pub(super) version: Option<VersionReply>,
}

/// Response to the first request, with the local times around it.
#[derive(Clone, Debug)]
pub(super) struct VersionReply {
    pub(super) reply: Reply,
    pub(super) sent: jiff::Timestamp,
    pub(super) received: jiff::Timestamp,
}

impl CheckContext {
    /// Returns the path of `resource` in the checked scope.
    pub(super) fn path(&self, resource: &CheckedResource) -> String {
        resource.path(self.namespace.as_deref())
    }

    /// Returns host and port of the server.
    pub(super) fn host_and_port(&self) -> (String, u16) {
        let url = &self.config.cluster_url;
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let default = if self.is_tls() { 443 } else { 80 };
        (host, url.port_u16().unwrap_or(default))
    }

    /// Returns whether the server is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.config.cluster_url.scheme_str() == Some("https")
    }
}
