//! Validation of metadata: names, labels, annotations, owners and finalizers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::request::WriteTarget;
use crate::field_violation::FieldViolation;
use crate::metadata;
use crate::naming;

/// Maximum total size of an object's annotations in bytes.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

type Violations = Vec<FieldViolation>;

/// Returns the violations in the metadata of a new object.
pub(super) fn violations_of_new(target: &WriteTarget, object: &Value) -> Vec<FieldViolation> {
    let mut violations = Violations::new();
    let prefix = metadata::text(object, "generateName");
    if !prefix.is_empty() {
        // The generated part follows the prefix, so a prefix may end with `-`.
        let generated = format!("{}a", prefix.strip_suffix('-').unwrap_or(prefix));
        // Only the checked form is extended. The error still names the prefix as sent.
        let checked_prefix = if prefix.ends_with('-') { generated } else { prefix.to_owned() };
        report(&mut violations, "metadata.generateName", prefix, name_violations(target, &checked_prefix));
    }
    let text = metadata::text(object, "name");
    report(&mut violations, "metadata.name", text, name_violations(target, text));
    check_common(&mut violations, target, object);
    violations
}

/// Returns the violations in the metadata of a changed object.
pub(super) fn violations_of_changed(target: &WriteTarget, object: &Value) -> Vec<FieldViolation> {
    let mut violations = Violations::new();
    check_common(&mut violations, target, object);
    violations
}

/// Returns the violations of a generated name's prefix, which must be valid in a path. An update can change the prefix.
pub(super) fn violations_of_prefix(object: &Value) -> Vec<FieldViolation> {
    let mut violations = Violations::new();
    let prefix = metadata::text(object, "generateName");
    report(&mut violations, "metadata.generateName", prefix, path_violations(prefix));
    violations
}

fn check_common(violations: &mut Violations, target: &WriteTarget, object: &Value) {
    let field = |name: &str| object.get("metadata").and_then(|metadata| metadata.get(name));
    for (label, value) in field("labels").and_then(Value::as_object).into_iter().flatten() {
        report(violations, "metadata.labels", label, naming::key_violations(label));
        let value = value.as_str().unwrap_or_default();
        report(violations, "metadata.labels", value, naming::label_value_violations(value));
    }
    let annotations = field("annotations").and_then(Value::as_object);
    for (annotation, _) in annotations.into_iter().flatten() {
        // The real server accepts upper case in the keys of annotations, unlike in the prefixes of label keys.
        report(violations, "metadata.annotations", annotation, naming::key_violations(&annotation.to_lowercase()));
    }
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.into_iter().flatten().map(bytes).sum::<usize>() > MAX_ANNOTATIONS_BYTES {
        let message = format!("Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes");
        let field = "metadata.annotations".to_owned();
        violations.push(FieldViolation { reason: "FieldValueTooLong", field, message });
    }
    check_owners(violations, field("ownerReferences").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default());
    let finalizers = field("finalizers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        report(violations, "metadata.finalizers", finalizer, naming::key_violations(finalizer));
    }
    // Leases are validated by the general rules of objects, not by those of the core group.
    let is_core = !target.resource.is_custom && target.resource.name.group() != "coordination.k8s.io";
    for (index, finalizer) in finalizers.iter().filter_map(Value::as_str).enumerate() {
        if is_core && !is_standard(finalizer) && !finalizer.contains('/') {
            let detail = "name is neither a standard finalizer name nor is it fully qualified".to_owned();
            report(violations, &format!("metadata.finalizers[{index}]"), finalizer, vec![detail]);
        }
    }
    let has_finalizer = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has_finalizer("orphan") && has_finalizer("foregroundDeletion") {
        let listed = Value::from(finalizers.to_vec());
        let detail = format!("Invalid value: {listed}: finalizer orphan and foregroundDeletion cannot be both set");
        violations.push(plain("metadata.finalizers".to_owned(), detail));
    }
}

/// Warns of new finalizers of a custom resource that could conflict with those of other components.
pub(super) fn warn_of_finalizers(target: &WriteTarget, before: Option<&Value>, object: &Value) {
    if !target.resource.is_custom {
        return;
    }
    // Only new finalizers cause a warning, so that an unrelated update stays silent.
    let finalizers = |object: &Value| -> BTreeSet<String> {
        let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = before.map(finalizers).unwrap_or_default();
    let is_unqualified = |finalizer: &&String| !finalizer.contains('/') && !is_standard(finalizer);
    target.request.warnings.add(finalizers(object).difference(&before).filter(is_unqualified).map(|finalizer| {
        let path = if finalizer.contains('.') { "including a path (/) " } else { "" };
        format!(
            "metadata.finalizers: \"{finalizer}\": prefer a domain-qualified finalizer name {path}to avoid accidental \
             conflicts with other finalizer writers"
        )
    }));
}

fn is_standard(finalizer: &str) -> bool {
    matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes")
}

fn check_owners(violations: &mut Violations, owners: &[Value]) {
    let text = |owner: &Value, key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                let field = format!("metadata.ownerReferences[{index}].{key}");
                violations.push(FieldViolation::required(field, "must not be empty"));
            }
        }
        let (version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        if kind == "Event" && version == "v1" {
            let detail =
                format!("Invalid value: {}: /v1, Kind=Event is disallowed from being an owner", go_owner(owner));
            violations.push(plain(format!("metadata.ownerReferences[{index}]"), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let controller_name = format!("{kind}/{}", text(owner, "name"));
        // Each further controller is reported together with the first.
        if let Some(first) = &controller {
            let all: Vec<String> = owners.iter().map(go_owner).collect();
            let detail = format!(
                "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references \
                 for {first} and {controller_name}",
                all.join(",")
            );
            violations.push(plain("metadata.ownerReferences".to_owned(), detail));
        } else {
            controller = Some(controller_name);
        }
    }
}

/// Formats an owner as JSON, with the field order of a real server.
fn go_owner(owner: &Value) -> String {
    let keys = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let required = |key: &str| !matches!(key, "controller" | "blockOwnerDeletion");
    let empty = Value::from("");
    let fields = keys.iter().filter_map(|key| {
        // Go encodes required strings even if they are empty.
        let value = owner.get(key).or_else(|| required(key).then_some(&empty))?;
        Some(format!("\"{key}\":{value}"))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Creates a cause whose message contains the value.
fn plain(field: String, message: String) -> FieldViolation {
    FieldViolation { reason: "FieldValueInvalid", field, message }
}

fn report(violations: &mut Violations, field: &str, value: &str, reasons: Vec<String>) {
    violations.extend(reasons.into_iter().map(|detail| FieldViolation::invalid(field, &value.into(), &detail)));
}

/// Returns the violations of a text that becomes part of a path.
fn path_violations(text: &str) -> Vec<String> {
    let characters = ['/', '%'].into_iter().filter(|character| text.contains(*character));
    characters.map(|character| format!("may not contain '{character}'")).collect()
}

/// Returns the violations of a name. Most names are DNS subdomains, those of namespaces and services are DNS labels.
/// Names in RBAC only need to be valid in a path.
fn name_violations(target: &WriteTarget, name: &str) -> Vec<String> {
    let resource = &target.resource.name;
    if resource.group() == "rbac.authorization.k8s.io" {
        // RBAC names only need to be path segments, for example `system:node`.
        let mut violations = path_violations(name);
        if matches!(name, "." | "..") {
            violations.push(format!("may not be '{name}'"));
        }
        return violations;
    }
    // These names become DNS labels.
    if resource.group().is_empty() && matches!(resource.resource(), "namespaces" | "services") {
        return naming::label_violations(name);
    }
    naming::subdomain_violations(name)
}
