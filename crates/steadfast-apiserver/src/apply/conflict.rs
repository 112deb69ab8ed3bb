//! Conflicts, with the messages of a real server.

use serde_json::{Value, json};

use super::path::path_text;
use super::update::Conflicts;
use crate::status::Status;

/// Creates the `409` status for fields of other managers that the apply would change.
pub(super) fn status(conflicts: &Conflicts) -> Status {
    let paths_by_manager: Vec<(String, Vec<String>)> = conflicts
        .iter()
        .map(|(manager, fields)| (manager.description(), fields.paths().iter().map(|path| path_text(path)).collect()))
        .collect();
    let count: usize = paths_by_manager.iter().map(|(_, paths)| paths.len()).sum();
    let message = match paths_by_manager.as_slice() {
        // The message for a single conflict has another form than the message for several conflicts.
        [(manager, paths)] if count == 1 => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths[0])
        }
        several => {
            let lines: Vec<String> = several
                .iter()
                .flat_map(|(manager, paths)| {
                    let paths = paths.iter().map(|path| format!("- {path}"));
                    std::iter::once(format!("conflicts with {manager}:")).chain(paths)
                })
                .collect();
            format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
        }
    };
    let causes: Vec<Value> = paths_by_manager
        .iter()
        .flat_map(|(manager, paths)| {
            paths.iter().map(move |path| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
            })
        })
        .collect();
    Status::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}
