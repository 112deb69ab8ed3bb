//! The lifecycle of a namespace.

use serde_json::json;

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::Step;
use crate::differential::writes::options;

const NAMESPACES: &str = "/api/v1/namespaces";

/// Adds a namespace with an object that a finalizer keeps, its deletion, and later requests in it.
///
/// A real server without controllers does not delete the contents, so the remaining objects are not compared.
pub fn add_lifecycle(builder: &mut ScriptBuilder) {
    let name = format!("{}-other-{}", builder.namespace, builder.steps.len());
    let at = format!("{NAMESPACES}/{name}");
    let step = |method, path: String| Step::new("namespace", method, path);
    let metadata = json!({"name": name, "labels": {"team": "a"}, "annotations": {"note": "n"}});
    let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    builder.push(step("POST", NAMESPACES.to_owned()).json(&namespace_object).label("create"));
    let object_with_finalizer = json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "held", "finalizers": ["steadfast.dev/held"]}});
    builder.push(step("POST", format!("{at}/configmaps")).json(&object_with_finalizer).label("contents"));
    let mut patch = step("PATCH", at.clone()).label("patch");
    patch.content_type = "application/merge-patch+json";
    patch.body = json!({"metadata": {"labels": {"team": "b", "kubernetes.io/metadata.name": null}}}).to_string();
    builder.push(patch);
    builder.push(step("DELETE", at.clone()).query("dryRun=All").label("dry run"));
    let wrong_uid = options(&json!({"preconditions": {"uid": "another"}}));
    builder.push(step("DELETE", at.clone()).json(&wrong_uid).label("wrong uid"));
    builder.push(step("DELETE", at.clone()).label("delete"));
    builder.push(step("GET", at.clone()).label("get"));
    // The deletion is rejected, so that later scripts still find the namespace.
    builder.push(step("DELETE", format!("{NAMESPACES}/kube-public")).label("of one that never ends"));
    let late_object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    builder.push(step("POST", format!("{at}/configmaps")).json(&late_object).label("creation while terminating"));
    let widget = json!({"apiVersion": "differential.steadfast.dev/v1", "kind": "Widget",
                        "metadata": {"generateName": "late-"}});
    let widgets = format!("/apis/differential.steadfast.dev/v1/namespaces/{name}/widgets");
    builder.push(step("POST", widgets).json(&widget).label("creation while terminating"));
    builder.push(step("POST", NAMESPACES.to_owned()).json(&namespace_object).label("creation again"));
    builder.push(step("DELETE", at.clone()).label("deletion again"));
    let mut patch = step("PATCH", at).label("patch while terminating");
    patch.content_type = "application/merge-patch+json";
    patch.body = json!({"metadata": {"annotations": {"note": "m"}}}).to_string();
    builder.push(patch);
}
