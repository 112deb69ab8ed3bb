//! Columns of the built-in kinds, as in `kubectl get`.

mod cells;
mod column;
mod columns;
#[cfg(feature = "crd")]
mod defined;
#[cfg(feature = "crd")]
mod kubectl_columns;
mod network;
#[cfg(not(feature = "crd"))]
mod no_defined;
mod pods;
mod row;
mod volumes;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::resources::ServedResource;

use column::Column;
#[cfg(feature = "crd")]
pub use kubectl_columns::{KubectlColumn, KubectlColumns};
#[cfg(not(feature = "crd"))]
use no_defined as defined;

/// Returns the columns of a resource's table, if no definition declares the columns.
fn columns(resource: &ServedResource) -> &'static [Column] {
    if resource.is_custom { columns::CUSTOM } else { columns::for_kind(resource.name.group(), &resource.kind) }
}

/// Returns the column definitions of the table of a version.
pub(super) fn definitions(resource: &ServedResource, version: &str) -> Vec<Value> {
    if let Some(declared) = defined::definitions(resource, version) {
        return declared;
    }
    let definition = |column: &Column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format(), "description": column.description(),
            "priority": u8::from(column.is_wide),
        })
    };
    columns(resource).iter().map(definition).collect()
}

/// Returns the cells of an object in the table of a version.
pub(super) fn cells(resource: &ServedResource, version: &str, object: &Value, clock: &Clock) -> Vec<Value> {
    if let Some(declared) = defined::cells(resource, version, object, clock) {
        return declared;
    }
    let object = resource.table_form(object, version);
    columns(resource).iter().map(|column| column.cell(&object, clock)).collect()
}

#[cfg(test)]
mod tests;
