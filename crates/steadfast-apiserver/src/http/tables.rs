//! Columns of the built-in kinds, as in `kubectl get`.

mod cells;
mod column;
mod columns;
pub(super) mod defined;
mod network;
mod pods;
mod row;
mod volumes;

use crate::resources::ServedResource;

pub(super) use column::Column;

/// Returns the columns of a resource's table.
pub(super) fn columns(resource: &ServedResource) -> &'static [Column] {
    if resource.custom { columns::CUSTOM } else { columns::of(resource.name.group(), &resource.kind) }
}

#[cfg(test)]
mod tests;
