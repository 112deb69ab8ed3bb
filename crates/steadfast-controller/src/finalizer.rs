//! Finalizers: cleanup before an object is deleted.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::controller::Action;

/// Maximum number of attempts to write the finalizers after conflicts.
const MAX_ATTEMPTS: u32 = 5;

/// Step to perform for an object with a finalizer.
#[derive(Clone, Debug)]
pub enum Finalizing<K> {
    /// The object exists: apply its spec.
    Apply(Arc<K>),
    /// The object is being deleted: clean up its external resources. May repeat after an earlier success.
    Cleanup(Arc<K>),
}

/// Error of a reconcile with a finalizer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError<E: Error + 'static> {
    /// Applying the object failed.
    #[error("{0}")]
    Apply(#[source] E),
    /// Cleanup failed. The object stays until cleanup succeeds.
    #[error("cleanup failed, and the object stays: {0}")]
    Cleanup(#[source] E),
    /// The finalizer was not added, and nothing was done.
    #[error("cannot add the finalizer {finalizer}, so nothing was done: {source}")]
    Add {
        /// The finalizer.
        finalizer: String,
        /// Error of the server.
        source: kube::Error,
    },
    /// The finalizer was not removed after a successful cleanup. Cleanup runs again.
    #[error("cleanup succeeded, but cannot remove the finalizer {finalizer}: {source}")]
    Remove {
        /// The finalizer.
        finalizer: String,
        /// Error of the server.
        source: kube::Error,
    },
    /// The server rejects this name.
    #[error("{finalizer:?} is not a valid finalizer; use a domain, a slash and a name, such as example.com/cleanup")]
    Invalid {
        /// The finalizer.
        finalizer: String,
    },
}

/// Runs `reconcile` for an object with `finalizer`, like `kube_runtime::finalizer`. The finalizer is added first, and
/// removed after [`Finalizing::Cleanup`] succeeds. A crash between two steps therefore leaves nothing behind.
///
/// If the finalizer is missing from an object that is not being deleted, this function adds it and returns
/// [`Action::requeue`] without running `reconcile`. If the object was deleted in the meantime, the function returns
/// [`Action::await_change`]. Patches name the UID and the version of the object. Other objects of the same name and other
/// finalizers stay untouched.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::Api;
/// # use steadfast_controller::{Action, FinalizerError, Finalizing, finalizer};
/// # type Failure = std::io::Error;
/// # async fn create_account(_: &ConfigMap) -> Result<(), Failure> { Ok(()) }
/// # async fn delete_account(_: &ConfigMap) -> Result<(), Failure> { Ok(()) }
/// async fn reconcile(map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>) -> Result<Action, FinalizerError<Failure>> {
///     finalizer(&maps, "example.com/account", map, |event| async {
///         match event {
///             Finalizing::Apply(map) => create_account(&map).await?,
///             Finalizing::Cleanup(map) => delete_account(&map).await?,
///         }
///         Ok(Action::await_change())
///     })
///     .await
/// }
/// ```
///
/// # Errors
///
/// Returns the error of `reconcile`, an error of the server while the finalizers were written, or an error if
/// `finalizer` is not a valid name.
pub async fn finalizer<K, F, Fut, E>(
    api: &Api<K>,
    finalizer: &str,
    object: Arc<K>,
    reconcile: F,
) -> Result<Action, FinalizerError<E>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    F: FnOnce(Finalizing<K>) -> Fut,
    Fut: Future<Output = Result<Action, E>>,
    E: Error + 'static,
{
    if !is_valid(finalizer) {
        return Err(FinalizerError::Invalid { finalizer: finalizer.to_owned() });
    }
    let has_it = object.finalizers().iter().any(|known| known == finalizer);
    match (has_it, object.meta().deletion_timestamp.is_some()) {
        (true, false) => reconcile(Finalizing::Apply(object)).await.map_err(FinalizerError::Apply),
        (true, true) => {
            // Cleanup precedes the removal of the finalizer. A failure keeps the object, and the next reconcile
            // retries.
            let done = reconcile(Finalizing::Cleanup(object.clone())).await.map_err(FinalizerError::Cleanup)?;
            let without =
                |finalizers: &[String]| finalizers.iter().filter(|known| *known != finalizer).cloned().collect();
            let written = write(api, &object, without).await;
            written.map_err(|source| FinalizerError::Remove { finalizer: finalizer.to_owned(), source })?;
            Ok(done)
        }
        // Another finalizer still holds the object. Its cleanup is not the task of this controller.
        (false, true) => Ok(Action::await_change()),
        (false, false) => {
            let with = |finalizers: &[String]| finalizers.iter().cloned().chain([finalizer.to_owned()]).collect();
            let written = write(api, &object, with).await;
            match written.map_err(|source| FinalizerError::Add { finalizer: finalizer.to_owned(), source })? {
                // Finalizers do not change the generation, so this update may trigger no reconcile.
                WriteResult::Current => Ok(Action::requeue(Duration::ZERO)),
                // The cache does not contain the deletion yet. A requeue would find the same state again.
                WriteResult::Skipped => Ok(Action::await_change()),
            }
        }
    }
}

/// Result of writing the finalizers of an object.
enum WriteResult {
    /// The object has the finalizers.
    Current,
    /// The object is being deleted, does not exist any more, or another object has its name.
    Skipped,
}

/// Writes the finalizers that `change` returns for the current ones. Skips a deleted object, and an object that was
/// already being deleted before the finalizer was added.
async fn write<K>(
    api: &Api<K>,
    object: &K,
    change: impl Fn(&[String]) -> Vec<String>,
) -> Result<WriteResult, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = object.name_any();
    let mut newest = object.clone();
    for attempt in 1.. {
        let before = newest.finalizers();
        let finalizers = change(before);
        let adds = finalizers.len() > before.len();
        if finalizers.as_slice() == before {
            return Ok(WriteResult::Current);
        }
        // The server rejects new finalizers during a deletion.
        if adds && newest.meta().deletion_timestamp.is_some() {
            return Ok(WriteResult::Skipped);
        }
        let meta = newest.meta();
        let patch = json!({
            // UID and version guard against recreated objects and concurrent changes of the list, which a merge patch
            // replaces.
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers },
        });
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(WriteResult::Current),
            // The object was deleted in the meantime, so no finalizer must be added or removed.
            Err(kube::Error::Api(status)) if is_missing(api, object, &status) => return Ok(WriteResult::Skipped),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < MAX_ATTEMPTS => {
                let Some(now) = api.get_opt(&name).await? else { return Ok(WriteResult::Skipped) };
                if now.uid() != object.uid() {
                    return Ok(WriteResult::Skipped);
                }
                newest = now;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(WriteResult::Current)
}

/// Returns true if `status` shows that the object does not exist. An `api` of another namespace, or of all namespaces, gets
/// the same code for an object that exists.
fn is_missing<K: Resource>(api: &Api<K>, object: &K, status: &kube::core::Status) -> bool {
    let name = status.details.as_ref().map(|details| details.name.as_str());
    status.code == 404 && name == object.meta().name.as_deref() && api.namespace() == object.meta().namespace.as_deref()
}

/// Returns true for a domain, a slash and a name, as the server requires for custom finalizers.
fn is_valid(finalizer: &str) -> bool {
    let Some((domain, name)) = finalizer.split_once('/') else { return false };
    let is_label = |label: &str, others: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte);
        let bytes = label.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
            && bytes.iter().all(|byte| inner(*byte))
    };
    let is_domain = domain.len() <= 253
        && !domain.bytes().any(|byte| byte.is_ascii_uppercase())
        && domain.split('.').all(|label| label.len() <= 63 && is_label(label, "-"));
    is_domain && name.len() <= 63 && is_label(name, "-_.")
}

impl<E: Error + 'static> std::fmt::Debug for FinalizerError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Same as `debug_as_message`, which supports no type parameters.
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn finalizer_needs_domain_and_name() {
        for valid in ["example.com/cleanup", "a/b", "x-1.example.com/Clean_up.2"] {
            assert!(is_valid(valid), "{valid}");
        }
        for invalid in
            ["", "cleanup", "example.com/", "/cleanup", "Example.com/a", "a..b/c", "a/b/c", "a/-b", "a_b/c", "a/ü"]
        {
            assert!(!is_valid(invalid), "{invalid}");
        }
        assert!(!is_valid(&format!("a/{}", "x".repeat(64))));
    }
}
