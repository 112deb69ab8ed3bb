//! What is stored and, unlike on a real server, has no effect: whoever relies on it is warned.

use serde_json::Value;

use super::kinds::is_definition;
use super::request::WriteTarget;

/// Warns of a new object that a real server would ask, or judge by, at each request.
pub(super) fn warn(target: &WriteTarget, object: &Value) {
    let (group, kind) = (target.resource.name.group(), target.resource.kind.as_str());
    let warning = match (group, kind) {
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            format!("this {kind} is stored without effect: this server calls no webhooks")
        }
        ("admissionregistration.k8s.io", _) => {
            format!("this {kind} is stored without effect: this server evaluates no admission policies")
        }
        _ if is_definition(&target.resource.name) && converts_by_webhook(object) => {
            "this server calls no webhooks: versions of these objects differ in their apiVersion alone".to_owned()
        }
        _ => return,
    };
    target.asked.warnings.add([warning]);
}

fn converts_by_webhook(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").is_some_and(|strategy| strategy == "Webhook")
}
