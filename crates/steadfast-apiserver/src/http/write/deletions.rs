//! Options of a deletion.

use serde_json::{Value, json};

use super::request::WriteRequest;
use crate::http::payload;
use crate::status::Status;
use crate::storage::{Deletion, Dependents, WriteTarget};
use crate::types;

const OPTIONS_KIND: &str = "DeleteOptions";
const PODS_PRESERVED_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                         remove them or set propagationPolicy=Orphan to suppress this warning";

/// Options of a deletion.
pub(super) struct DeletionOptions {
    pub(super) deletion: Deletion,
    pub(super) is_dry_run: bool,
    /// True if the request sets `orphanDependents` to false.
    pub(super) deletes_dependents: bool,
}

impl DeletionOptions {
    /// Warns of a deletion that keeps dependents, which the client may not expect.
    pub(super) fn warn(&self, target: &WriteTarget) {
        let resource = &target.resource.name;
        let is_job = resource.group() == "batch" && resource.resource() == "jobs";
        if is_job && self.deletion.dependents == Dependents::Unspecified {
            target.request.warnings.add([PODS_PRESERVED_WARNING.to_owned()]);
        }
    }
}

/// Parses the options from the body, or from the query if the body is empty.
pub(super) fn parse_options(write: &WriteRequest<'_>) -> Result<DeletionOptions, Status> {
    let options = if write.body.is_empty() { options_from_query(write)? } else { options_from_body(write)? };
    let text = |key: &str| options.get(key).and_then(Value::as_str).unwrap_or_default();
    let precondition = |field: &str| {
        let value = options.get("preconditions").and_then(|preconditions| preconditions.get(field));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let orphan_dependents = options.get("orphanDependents").and_then(Value::as_bool);
    let policy = text("propagationPolicy");
    // `orphanDependents` is the deprecated form of the policy. A request with both would be ambiguous.
    if !policy.is_empty() && orphan_dependents.is_some() {
        let detail =
            format!("Invalid value: \"{policy}\": orphanDependents and deletionPropagation cannot be both set");
        return Err(invalid("propagationPolicy", detail));
    }
    let dependents = match (policy, orphan_dependents) {
        ("", None) => Dependents::Unspecified,
        ("Orphan", _) | ("", Some(true)) => Dependents::Orphaned,
        ("Background", _) | ("", Some(false)) => Dependents::Background,
        ("Foreground", _) => Dependents::Foreground,
        _ => {
            let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            let detail = format!("Unsupported value: \"{policy}\": supported values: {supported}");
            return Err(invalid("propagationPolicy", detail));
        }
    };
    let dry_run: Vec<&Value> = options.get("dryRun").and_then(Value::as_array).into_iter().flatten().collect();
    if dry_run.iter().any(|value| *value != "All") {
        let requested = Value::from(dry_run.into_iter().cloned().collect::<Vec<_>>());
        return Err(invalid("dryRun", format!("Unsupported value: {requested}: supported values: \"All\"")));
    }
    Ok(DeletionOptions {
        deletion: Deletion { uid: precondition("uid"), resource_version: precondition("resourceVersion"), dependents },
        is_dry_run: !dry_run.is_empty(),
        deletes_dependents: orphan_dependents == Some(false),
    })
}

fn options_from_body(write: &WriteRequest<'_>) -> Result<Value, Status> {
    let options = payload::decode_object(write.content_type, &write.body, OPTIONS_KIND).map_err(|mut status| {
        // This error does not mention the expected type.
        status.message =
            status.message.replace("the object provided is unrecognized (must be of type DeleteOptions): ", "");
        status
    })?;
    let text = |key: &str| options.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if !matches!(kind, "" | OPTIONS_KIND) {
        return Err(Status::bad_request(format_args!("no kind \"{kind}\" is registered for version \"{version}\"")));
    }
    match types::type_mismatch("v1", OPTIONS_KIND, &options) {
        Some(detail) => Err(Status::bad_request(detail)),
        None => Ok(options),
    }
}

fn options_from_query(write: &WriteRequest<'_>) -> Result<Value, Status> {
    let mut options = serde_json::Map::new();
    if let Some(seconds) = write.query.number("gracePeriodSeconds")? {
        options.insert("gracePeriodSeconds".to_owned(), seconds.into());
    }
    let dry_run: Vec<Value> = write.query.texts("dryRun").filter(|value| !value.is_empty()).map(Value::from).collect();
    options.insert("dryRun".to_owned(), dry_run.into());
    if let Some(orphan_dependents) = write.query.flag("orphanDependents") {
        options.insert("orphanDependents".to_owned(), orphan_dependents.into());
    }
    options.insert("propagationPolicy".to_owned(), write.query.text("propagationPolicy").into());
    let (uid, version) = (write.query.text("uid"), write.query.text("resourceVersion"));
    // If the request deletes a collection, this version is the version of its list, and applies to each of its objects.
    options.insert("preconditions".to_owned(), json!({"uid": uid, "resourceVersion": version}));
    Ok(Value::Object(options))
}

fn invalid(field: &str, detail: String) -> Status {
    Status::invalid("meta.k8s.io", "DeleteOptions", "", &[(field, detail)])
}
