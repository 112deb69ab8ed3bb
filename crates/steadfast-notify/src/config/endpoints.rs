//! Endpoints of Services as a source of a rule.

use schemars::JsonSchema;
use serde::Deserialize;

/// Services with mirrored endpoints, `NAMESPACE/SERVICE` each.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(untagged, expecting = "expected a Service, as \"NAMESPACE/SERVICE\", or a list of Services")]
pub enum EndpointsConfig {
    /// One Service, `NAMESPACE/SERVICE`.
    One(String),
    /// Several Services, `NAMESPACE/SERVICE` each.
    Several(Vec<String>),
}

impl EndpointsConfig {
    /// Returns the Services verbatim, each with the path relative to `endpoints`.
    pub(crate) fn with_paths(&self) -> Vec<(String, &str)> {
        match self {
            Self::One(service) => vec![(String::new(), service)],
            Self::Several(services) => {
                let services = services.iter().enumerate();
                services.map(|(number, service)| (format!("[{number}]"), service.as_str())).collect()
            }
        }
    }

    /// Returns namespace and name of each Service. Skips malformed values.
    pub(crate) fn services(&self) -> Vec<(&str, &str)> {
        self.with_paths().into_iter().filter_map(|(_, service)| service_name(service)).collect()
    }
}

/// Splits `NAMESPACE/SERVICE`. Returns `None` unless both are DNS labels.
pub(crate) fn service_name(text: &str) -> Option<(&str, &str)> {
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_label(name))
}

/// Port of endpoints, by name in the Service or by number at the endpoints.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(untagged, expecting = "expected a number from 1 to 65535 or the name of a port")]
pub enum EndpointPort {
    /// Number of the port at the endpoints (the Service's `targetPort`).
    Number(#[schemars(range(min = 1))] u16),
    /// Name of the port in the Service.
    Name(String),
}

/// Address family of endpoints.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_name_needs_namespace_and_name() {
        assert_eq!(service_name("shop/web"), Some(("shop", "web")));
        for text in ["web", "/web", "shop/", "shop/web/x", "shop/Web", "shop/we b", "shop/-web", "shop/web-"] {
            assert_eq!(service_name(text), None, "{text}");
        }
    }
}
