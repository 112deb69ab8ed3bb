//! The columns of the built-in kinds, as `kubectl get` shows them.

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

/// The columns of a resource's table.
pub(super) fn columns(resource: &ServedResource) -> &'static [Column] {
    if resource.custom { columns::CUSTOM } else { columns::of(resource.name.group(), &resource.kind) }
}

#[cfg(test)]
mod tests;
