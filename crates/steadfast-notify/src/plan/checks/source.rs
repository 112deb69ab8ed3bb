//! Checks of a rule's source: resources and expressions, or endpoints of Services.

use super::Checks;
use crate::config::endpoints::{EndpointPort, service_name};
use crate::config::sinks::SinkConfig;
use crate::config::{Config, RuleConfig};

/// Keys that do not apply to a rule with `endpoints`.
const RESOURCE_RULE_KEYS: [&str; 8] =
    ["resources", "namespaces", "labels", "fields", "events", "when", "send", "initial"];

/// Keys that only apply to a rule with `endpoints`.
const ENDPOINT_RULE_KEYS: [&str; 3] = ["port", "family", "host"];

/// Maximum length of a port name in Kubernetes.
const MAX_PORT_NAME_LENGTH: usize = 63;

impl Checks<'_> {
    /// Checks the source of a rule: either `resources` or `endpoints`, without keys that only apply to the other
    /// source.
    pub(super) fn check_source(&mut self, path: &str, rule: &RuleConfig, config: &Config) {
        let Some(endpoints) = &rule.endpoints else {
            if rule.resources.is_empty() && !self.document.has_path(&format!("{path}.resources")) {
                let remedy =
                    "add the field, such as [\"pods\"]; a rule for a load balancer can have `endpoints` instead";
                self.report(path, "missing field `resources`", remedy);
            }
            for field in ENDPOINT_RULE_KEYS.iter().filter(|field| self.document.has_path(&format!("{path}.{field}"))) {
                let description = format!("`{field}` needs `endpoints`, and the rule has no `endpoints`");
                self.report(
                    &format!("{path}.{field}"),
                    description,
                    "remove the field, or add a Service to `endpoints`",
                );
            }
            return;
        };
        for field in RESOURCE_RULE_KEYS.iter().filter(|field| self.document.has_path(&format!("{path}.{field}"))) {
            let description = format!("`{field}` does not apply to a rule that mirrors the endpoints of a Service");
            self.report(
                &format!("{path}.{field}"),
                description,
                "remove the field, or add a separate rule with `resources`",
            );
        }
        let services = endpoints.with_paths();
        if services.is_empty() {
            self.report(&format!("{path}.endpoints"), "the list of `endpoints` is empty", "add a Service");
        }
        for (index_path, service) in services.into_iter().filter(|(_, service)| service_name(service).is_none()) {
            let description = format!("{service:?} is not a valid NAMESPACE/SERVICE");
            self.report(&format!("{path}.endpoints{index_path}"), description, "use a value such as \"shop/web\"");
        }
        match &rule.port {
            Some(EndpointPort::Number(0)) => {
                self.report(&format!("{path}.port"), "the port is 0", "use a number from 1 to 65535");
            }
            Some(EndpointPort::Name(name)) => {
                let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                if name.is_empty() || name.len() > MAX_PORT_NAME_LENGTH || !name.bytes().all(is_plain) {
                    let description = format!("{name:?} is not a valid name of a port");
                    self.report(
                        &format!("{path}.port"),
                        description,
                        "use the port's name in the Service, or the number without quotes",
                    );
                }
            }
            Some(EndpointPort::Number(_)) | None => {}
        }
        for (number, name) in rule.to.iter().enumerate() {
            if config.sinks.get(name).is_some_and(|sink| !sink.is_mirror() && sink.kind().is_some()) {
                let description = format!("{name:?} is a stream, and the endpoints of a Service are for mirrors");
                let remedy = "use a mirror, or send changes of Services with a rule that has `resources`";
                self.report(&format!("{path}.to[{number}]"), description, remedy);
            }
        }
        let has_dns = rule.to.iter().any(|name| config.sinks.get(name).and_then(SinkConfig::kind) == Some("dns"));
        match &rule.host {
            None if has_dns => {
                let description = "the rule feeds a DNS zone and does not specify the name of the addresses";
                self.report(path, description, "add `host = \"web.example.org\"`");
            }
            Some(_) if !has_dns => {
                let description = "`host` is a name in a DNS zone, and the rule feeds no DNS zone";
                self.report(&format!("{path}.host"), description, "remove `host`, or add a sink of `dns` to `to`");
            }
            _ => {}
        }
    }
}
