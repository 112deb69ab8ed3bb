//! Ports of built-in kinds.

use serde_json::Value;

use super::table::{Field, FieldShape, ValueType, fields, type_for_kind};

/// Zero value of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ZeroMeaning {
    /// The port is required, and zero is out of range.
    Invalid,
    /// Zero counts as absent, which is an error.
    Absent,
    /// Zero counts as absent.
    Unset,
}

/// Types with ports: the type, the field, and the meaning of zero.
const PORT_FIELDS: [(&str, &str, ZeroMeaning); 12] = [
    ("core.v1.ServicePort", "port", ZeroMeaning::Invalid),
    ("core.v1.ServicePort", "targetPort", ZeroMeaning::Unset),
    ("core.v1.ContainerPort", "containerPort", ZeroMeaning::Absent),
    ("core.v1.ContainerPort", "hostPort", ZeroMeaning::Unset),
    ("core.v1.EndpointPort", "port", ZeroMeaning::Invalid),
    ("core.v1.HTTPGetAction", "port", ZeroMeaning::Invalid),
    ("core.v1.TCPSocketAction", "port", ZeroMeaning::Invalid),
    ("core.v1.GRPCAction", "port", ZeroMeaning::Invalid),
    ("networking.v1.ServiceBackendPort", "number", ZeroMeaning::Unset),
    ("networking.v1.NetworkPolicyPort", "port", ZeroMeaning::Invalid),
    ("networking.v1.NetworkPolicyPort", "endPort", ZeroMeaning::Invalid),
    ("admissionregistration.v1.ServiceReference", "port", ZeroMeaning::Invalid),
];

const RANGE_MESSAGE: &str = "must be between 1 and 65535, inclusive";

/// Invalid port of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortViolation {
    /// Path of the port.
    pub(crate) path: String,
    /// Number; `None` if a required port is absent.
    pub(crate) number: Option<i64>,
    /// Reason in the words of a real server.
    pub(crate) detail: &'static str,
}

/// Returns the ports of an object of a built-in kind that are not between 1 and 65535.
pub(crate) fn port_violations(api_version: &str, kind: &str, object: &Value) -> Vec<PortViolation> {
    let mut violations = Vec::new();
    if let Some(name) = type_for_kind(api_version, kind) {
        collect_violations(name, object, &mut violations);
    }
    violations
}

/// Adds the invalid ports of `object`, with paths that start at `object`. A path is built backwards from an invalid
/// port, because valid objects need no paths.
fn collect_violations(name: &'static str, object: &Value, violations: &mut Vec<PortViolation>) {
    for field in fields(name).unwrap_or_default() {
        let Some(value) = object.get(field.name) else { continue };
        if let Some((.., zero_meaning)) =
            PORT_FIELDS.into_iter().find(|(type_name, port, _)| (*type_name, *port) == (name, field.name))
        {
            violations.extend(check_port(name, field, value, zero_meaning));
            continue;
        }
        match (field.shape, value) {
            (FieldShape::One(ValueType::Named(type_name)), _) => {
                let first = violations.len();
                collect_violations(type_name, value, violations);
                for port in &mut violations[first..] {
                    port.path = format!("{}.{}", field.name, port.path);
                }
            }
            (FieldShape::List(ValueType::Named(type_name)), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let first = violations.len();
                    collect_violations(type_name, item, violations);
                    for port in &mut violations[first..] {
                        port.path = format!("{}[{index}].{}", field.name, port.path);
                    }
                }
            }
            // No type with ports is the value of a map.
            _ => {}
        }
    }
    // An absent target port defaults to the port, so an invalid port is also reported for the target port.
    let is_unset = object.get("targetPort").is_none_or(|target| target.is_null() || *target == 0);
    if name == "core.v1.ServicePort"
        && is_unset
        && let Some(number) = object.get("port").and_then(Value::as_i64).filter(|port| !(1..=65_535).contains(port))
    {
        violations.push(PortViolation { path: "targetPort".to_owned(), number: Some(number), detail: RANGE_MESSAGE });
    }
}

fn check_port(name: &str, field: &Field, value: &Value, zero_meaning: ZeroMeaning) -> Option<PortViolation> {
    // Ports by name have other rules.
    let number = value.as_i64()?;
    let (number, detail) = match (number, zero_meaning) {
        (1..=65_535, _) | (0, ZeroMeaning::Unset) => return None,
        (0, ZeroMeaning::Absent) => (None, ""),
        // The only port of this group.
        _ if name.starts_with("admissionregistration") => {
            (Some(number), "port is not valid: must be between 1 and 65535, inclusive")
        }
        _ => (Some(number), RANGE_MESSAGE),
    };
    Some(PortViolation { path: field.name.to_owned(), number, detail })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::port_violations;

    #[test]
    fn ports_out_of_range_are_found() {
        let service = json!({"spec": {"ports": [
            {"port": 99_999_999}, {"port": 80, "targetPort": 65_536}, {"port": 0, "targetPort": "web"},
            {"port": 65_535, "targetPort": 1, "nodePort": 30_000}, {"port": 81, "targetPort": 0},
        ]}});
        let found = port_violations("v1", "Service", &service);
        let paths: Vec<_> = found.iter().map(|violation| (violation.path.as_str(), violation.number)).collect();
        assert_eq!(
            paths,
            [
                ("spec.ports[0].port", Some(99_999_999)),
                ("spec.ports[0].targetPort", Some(99_999_999)),
                ("spec.ports[1].targetPort", Some(65_536)),
                ("spec.ports[2].port", Some(0)),
            ]
        );
    }

    #[test]
    fn ports_within_pod_templates_are_found() {
        let containers = json!([{
            "name": "c", "ports": [{"containerPort": 0}, {"containerPort": 1, "hostPort": 70_000}, {"hostPort": 0}],
            "livenessProbe": {"httpGet": {"port": -1}}, "readinessProbe": {"tcpSocket": {"port": "web"}},
        }]);
        let found = port_violations(
            "apps/v1",
            "Deployment",
            &json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        );
        let paths: Vec<_> = found.iter().map(|violation| (violation.path.as_str(), violation.number)).collect();
        let place = "spec.template.spec.containers[0]";
        let expected = [
            (format!("{place}.livenessProbe.httpGet.port"), Some(-1)),
            (format!("{place}.ports[0].containerPort"), None),
            (format!("{place}.ports[1].hostPort"), Some(70_000)),
        ];
        assert_eq!(paths, expected.each_ref().map(|(path, number)| (path.as_str(), *number)));
    }
}
