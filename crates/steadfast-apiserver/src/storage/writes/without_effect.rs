//! Warnings for objects that have no effect on this server, unlike on a real one.

use serde_json::Value;

use super::definitions;
use super::request::WriteTarget;

/// Warns of a new object whose webhook or policy a real server would call or evaluate at each request.
pub(super) fn warn(target: &WriteTarget, object: &Value) {
    let (group, kind) = (target.resource.name.group(), target.resource.kind.as_str());
    let warning = match (group, kind) {
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            format!("this {kind} is stored without effect: this server calls no webhooks")
        }
        ("admissionregistration.k8s.io", _) => {
            format!("this {kind} is stored without effect: this server evaluates no admission policies")
        }
        _ => return definitions::warn(target, object),
    };
    target.request.warnings.add([warning]);
}
