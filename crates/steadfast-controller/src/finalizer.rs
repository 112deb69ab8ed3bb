//! What is to be done before an object is gone: a finalizer keeps it until that is done.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::controller::Action;

/// So often at most the finalizers are written anew when somebody else has changed the object meanwhile.
const ATTEMPTS: u32 = 5;

/// What is to be done with an object that has a finalizer.
#[derive(Clone, Debug)]
pub enum Finalizing<K> {
    /// It is to be as it says.
    Apply(Arc<K>),
    /// It is being deleted, and what belongs to it is to be taken away. May be called again where it was done already.
    Cleanup(Arc<K>),
}

/// Why a call with a finalizer has failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError<E: Error + 'static> {
    /// What was to be done with the object failed.
    #[error("{0}")]
    Apply(#[source] E),
    /// What belongs to the object could not be taken away: it stays until that is done.
    #[error("it stays, since what belongs to it could not be taken away: {0}")]
    Cleanup(#[source] E),
    /// The finalizer was not added, and nothing done.
    #[error("nothing was done, since the finalizer {finalizer} could not be added: {source}")]
    Add {
        /// The finalizer.
        finalizer: String,
        /// What the server answered.
        source: kube::Error,
    },
    /// The finalizer was not taken away, though all is done: it is done again.
    #[error("all is done, but the finalizer {finalizer} could not be taken away: {source}")]
    Remove {
        /// The finalizer.
        finalizer: String,
        /// What the server answered.
        source: kube::Error,
    },
    /// The name is none that the server takes.
    #[error(
        "{finalizer:?} is no name for a finalizer: it has to be a domain, a slash and a name, such as example.com/cleanup"
    )]
    Invalid {
        /// The finalizer.
        finalizer: String,
    },
}

/// Calls `reconcile` for an object with `finalizer`, as `kube_runtime::finalizer` does: it is added before anything else is done,
/// and taken away when [`Finalizing::Cleanup`] has been done, so that a crash between any two steps leaves nothing behind.
///
/// A call that finds none adds it, does nothing else, and wants to be made again. It is written for this very object, by
/// UID and version: neither another one of the same name nor the finalizers of others are touched.
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
/// What `reconcile` failed with, or the server when the finalizer was to be written.
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
            let done = reconcile(Finalizing::Cleanup(object.clone())).await.map_err(FinalizerError::Cleanup)?;
            let without =
                |finalizers: &[String]| finalizers.iter().filter(|known| *known != finalizer).cloned().collect();
            let written = write(api, &object, without).await;
            written.map_err(|source| FinalizerError::Remove { finalizer: finalizer.to_owned(), source })?;
            Ok(done)
        }
        (false, true) => Ok(Action::await_change()),
        (false, false) => {
            let with = |finalizers: &[String]| finalizers.iter().cloned().chain([finalizer.to_owned()]).collect();
            let written = write(api, &object, with).await;
            written.map_err(|source| FinalizerError::Add { finalizer: finalizer.to_owned(), source })?;
            // The change need not lead to a call: finalizers are no part of a generation.
            Ok(Action::requeue(Duration::ZERO))
        }
    }
}

/// Writes the finalizers of `object` as `change` makes them of those there are; one that is gone, or being deleted before it had
/// any of ours, is left alone.
async fn write<K>(api: &Api<K>, object: &K, change: impl Fn(&[String]) -> Vec<String>) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = object.name_any();
    let mut newest = object.clone();
    for attempt in 1.. {
        let before = newest.finalizers();
        let finalizers = change(before);
        let adds = finalizers.len() > before.len();
        // Whoever is being deleted takes no more of them.
        if finalizers.as_slice() == before || (adds && newest.meta().deletion_timestamp.is_some()) {
            return Ok(());
        }
        let meta = newest.meta();
        let patch = json!({
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers },
        });
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 && !adds => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                let Some(now) = api.get_opt(&name).await? else { return Ok(()) };
                if now.uid() != object.uid() {
                    return Ok(());
                }
                newest = now;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the server takes it for what is not one of its own: a domain, a slash, a name.
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
        // As of the crate's other errors, whose macro takes no parameters of types.
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn a_finalizer_is_a_domain_a_slash_and_a_name() {
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
