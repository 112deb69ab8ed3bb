//! Cells of volumes, claims and storage classes.

use serde_json::Value;

use super::row::Row;

pub(in crate::http::tables) fn volume_phase(row: &Row) -> Value {
    if row.is_terminating() { "Terminating" } else { row.text("/status/phase") }.into()
}

/// Returns a field of a bound claim; `None` while the claim has no volume.
fn bound_claim_field<'a>(row: &Row<'a>, path: &str) -> Option<&'a Value> {
    let is_bound = !row.text("/spec/volumeName").is_empty();
    is_bound.then(|| row.object.pointer(path)).flatten()
}

pub(in crate::http::tables) fn claim_capacity(row: &Row) -> Value {
    bound_claim_field(row, "/status/capacity/storage").and_then(Value::as_str).unwrap_or_default().into()
}

pub(in crate::http::tables) fn claim_modes(row: &Row) -> Value {
    modes(bound_claim_field(row, "/status/accessModes"))
}

pub(in crate::http::tables) fn volume_modes(row: &Row) -> Value {
    modes(row.object.pointer("/spec/accessModes"))
}

fn modes(modes: Option<&Value>) -> Value {
    let mode_names =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let object_modes = modes.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let shown = mode_names
        .iter()
        .filter(|(mode, _)| object_modes.iter().any(|object_mode| object_mode == mode))
        .map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",").into()
}

pub(in crate::http::tables) fn volume_claim(row: &Row) -> Value {
    match (row.text("/spec/claimRef/namespace"), row.text("/spec/claimRef/name")) {
        (_, "") => "".into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

pub(in crate::http::tables) fn class_name(row: &Row) -> Value {
    let annotation = row
        .object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get("storageclass.kubernetes.io/is-default-class"));
    let is_default = annotation.and_then(Value::as_str) == Some("true");
    format!("{}{}", row.metadata_text("name"), if is_default { " (default)" } else { "" }).into()
}
