//! Deletion of dependents, as by Kubernetes' garbage collector.

use serde_json::{Value, json};

use super::context::Context;
use super::plan::Plan;
use super::view::{Key, owner_uid, owners};
use crate::metadata;
use crate::storage::Dependents;

/// Plans the deletion of an object whose owners no longer exist, and the end of a terminating object. Returns true if
/// the object is ending. The controller of its kind then does not reconcile the object.
pub(super) fn collect(context: &Context<'_>, key: &Key, object: &Value, plan: &mut Plan) -> bool {
    if metadata::is_terminating(object) {
        end_dependents(context, key, object, plan);
        return true;
    }
    let (absent, waiting, solid) = sort_owners(context, object);
    if absent.is_empty() && waiting.is_empty() {
        return false;
    }
    if solid > 0 {
        // Another owner keeps the object. Only the references to the other owners end.
        let ending: Vec<&str> = absent.into_iter().chain(waiting).collect();
        plan.patch(key, object, without_owners(object, &ending));
        return false;
    }
    // If an owner waits for the deletion of this object, this object also waits for its own dependents.
    let has_dependents = context.view.dependents(metadata::text(object, "uid")).next().is_some();
    let dependents =
        if !waiting.is_empty() && has_dependents { Dependents::Foreground } else { Dependents::Background };
    plan.delete_with(key, object, dependents);
    true
}

/// Returns the UIDs of absent owners, of owners that wait for the deletion of their dependents, and the number of other
/// owners.
fn sort_owners<'a>(context: &Context<'_>, object: &'a Value) -> (Vec<&'a str>, Vec<&'a str>, usize) {
    let (mut absent, mut waiting, mut solid) = (Vec::new(), Vec::new(), 0);
    for owner in owners(object) {
        let uid = owner_uid(owner);
        match context.view.by_uid(uid) {
            // An owner in another namespace counts as absent (kubernetes#65200).
            Some((key, _)) if !key.namespace.is_empty() && key.namespace != metadata::text(object, "namespace") => {
                absent.push(uid);
            }
            Some((_, found))
                if metadata::is_terminating(found) && has_finalizer(found, Dependents::FOREGROUND_FINALIZER) =>
            {
                waiting.push(uid);
            }
            Some(_) => solid += 1,
            None => absent.push(uid),
        }
    }
    (absent, waiting, solid)
}

/// Orphans or awaits the dependents of a terminating object, and then removes the garbage collector's finalizer.
fn end_dependents(context: &Context<'_>, key: &Key, object: &Value, plan: &mut Plan) {
    let uid = metadata::text(object, "uid");
    if has_finalizer(object, Dependents::ORPHAN_FINALIZER) {
        let mut orphans = context.view.dependents(uid).peekable();
        if orphans.peek().is_none() {
            plan.patch(key, object, without_finalizer(object, Dependents::ORPHAN_FINALIZER));
        }
        for (dependent_key, dependent) in orphans {
            plan.patch(dependent_key, dependent, without_owners(dependent, &[uid]));
        }
    } else if has_finalizer(object, Dependents::FOREGROUND_FINALIZER) {
        // Each change of a dependent reconciles its owner again. The dependents delete themselves in `collect`.
        let is_blocked = context.view.dependents(uid).any(|(_, dependent)| {
            owners(dependent).any(|owner| owner_uid(owner) == uid && owner["blockOwnerDeletion"] == true)
        });
        if !is_blocked {
            plan.patch(key, object, without_finalizer(object, Dependents::FOREGROUND_FINALIZER));
        }
    }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).any(|found| found == finalizer)
}

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns a patch that removes a finalizer.
fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let rest: Vec<&str> = finalizers(object).filter(|found| *found != finalizer).collect();
    json!({"metadata": {"finalizers": rest}})
}

/// Returns a patch that removes owner references.
fn without_owners(object: &Value, uids: &[&str]) -> Value {
    let rest: Vec<&Value> = owners(object).filter(|owner| !uids.contains(&owner_uid(owner))).collect();
    json!({"metadata": {"ownerReferences": if rest.is_empty() { Value::Null } else { json!(rest) }}})
}
