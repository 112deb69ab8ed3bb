//! Warnings for objects that have no effect on this server, unlike on a real one.

use serde_json::Value;

use super::kinds::is_definition;
use super::request::WriteTarget;
use crate::jsonpath::JsonPath;
use crate::schema;

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
        _ if is_definition(&target.resource.name) && converts_by_webhook(object) => {
            "this server calls no webhooks: versions of these objects differ in their apiVersion alone".to_owned()
        }
        _ => return warn_of_schemas(target, object),
    };
    target.request.warnings.add([warning]);
    warn_of_schemas(target, object);
}

/// Warns of a column with an invalid path: a real server accepts the definition too, and its tables end before the
/// column. Also warns of rules that are not evaluated.
fn warn_of_schemas(target: &WriteTarget, definition: &Value) {
    if !is_definition(&target.resource.name) {
        return;
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for (version_index, version) in versions.enumerate() {
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
        let paths = columns.map(|column| column.get("jsonPath").and_then(Value::as_str).unwrap_or_default());
        let wrong = paths.enumerate().find_map(|(index, path)| Some((index, JsonPath::parse(path).err()?)));
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            let place = format!("spec.versions[{version_index}].schema.openAPIV3Schema");
            let unsupported = schema::unsupported(schema, &place);
            target.request.warnings.add(unsupported.into_iter().map(|(path, names)| {
                format!(
                    "{path}: this server does not evaluate the rule, which calls functions without support: {names}"
                )
            }));
        }
        target.request.warnings.add(wrong.map(|(index, error)| {
            format!(
                "spec.versions[{version_index}].additionalPrinterColumns[{index}].jsonPath: {error}; tables end before \
                 this column"
            )
        }));
    }
}

fn converts_by_webhook(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").is_some_and(|strategy| strategy == "Webhook")
}
