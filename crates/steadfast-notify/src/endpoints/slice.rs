//! `EndpointSlice` (`discovery.k8s.io/v1`), limited to the fields for mirrors.
//!
//! Every field may be absent or null. Defaults follow the API documentation.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

/// Label with the name of the slice's Service.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Parsed `EndpointSlice`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointSlice {
    metadata: Option<Metadata>,
    address_type: Option<String>,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// One endpoint, usually a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    addresses: Option<Vec<String>>,
    conditions: Option<Conditions>,
    pub(super) hostname: Option<String>,
    target_ref: Option<TargetRef>,
    pub(super) node_name: Option<String>,
    pub(super) zone: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct TargetRef {
    kind: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Port {
    pub(super) name: Option<String>,
    pub(super) port: Option<i64>,
}

/// Effective conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointCondition {
    /// The endpoint accepts new connections.
    pub(super) is_ready: bool,
    /// The endpoint terminates and still serves. Usable if no endpoint of the Service is ready.
    pub(super) is_serving: bool,
    pub(super) is_terminating: bool,
}

impl EndpointSlice {
    /// Parses a slice from JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if a field has an unexpected type.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        Self::deserialize(object).map_err(|error| format!("cannot parse the EndpointSlice: {error}"))
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata.as_ref().and_then(|metadata| metadata.namespace.as_deref()).unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
    }

    /// Returns the name of the slice's Service.
    pub(super) fn service(&self) -> Option<&str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels.get(SERVICE_LABEL).map(String::as_str)
    }

    /// Returns true if the addresses are host names.
    pub(super) fn has_host_names(&self) -> bool {
        self.address_type.as_deref() == Some("FQDN")
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        self.endpoints.as_deref().unwrap_or_default()
    }

    pub(super) fn ports(&self) -> &[Port] {
        self.ports.as_deref().unwrap_or_default()
    }
}

impl Port {
    /// Returns the number, if valid. A port without number matches all ports.
    pub(super) fn number(&self) -> Option<u16> {
        self.port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
    }

    /// Returns the name. Empty for an unnamed port of a Service with a single port.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

impl Endpoint {
    /// Returns the valid IP addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().flatten().filter_map(|address| address.parse().ok())
    }

    /// Returns the first invalid IP address.
    pub(super) fn malformed_address(&self) -> Option<&str> {
        let mut addresses = self.addresses.iter().flatten();
        addresses.find(|address| address.parse::<IpAddr>().is_err()).map(String::as_str)
    }

    /// Returns name and UID of the pod behind the endpoint. The UID may be empty.
    pub(super) fn pod(&self) -> Option<(&str, &str)> {
        // Manually managed endpoints refer to no Pod.
        let target =
            self.target_ref.as_ref().filter(|target| target.kind.as_deref().is_none_or(|kind| kind == "Pod"))?;
        let name = target.name.as_deref().filter(|name| !name.is_empty())?;
        Some((name, target.uid.as_deref().unwrap_or_default()))
    }

    /// Returns the conditions with defaults: `ready` defaults to true, `serving` to `ready`, `terminating` to false.
    ///
    /// A terminating endpoint never counts as ready: a balancer must not send new connections to a terminating pod.
    /// The API reports such an endpoint as ready for a Service with `publishNotReadyAddresses`.
    pub(super) fn condition(&self) -> EndpointCondition {
        let Conditions { ready, serving, terminating } = self.conditions.clone().unwrap_or_default();
        let (is_ready, is_terminating) = (ready.unwrap_or(true), terminating.unwrap_or(false));
        EndpointCondition {
            is_ready: is_ready && !is_terminating,
            is_serving: is_terminating && serving.unwrap_or(is_ready),
            is_terminating,
        }
    }
}
