//! Informers with a checkpoint.

#![cfg(feature = "checkpoint")]

use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::Lazy;

use super::InformerBuilder;
use crate::cache_storage::RequestedStorage;
use crate::checkpoint::Checkpoint;
use crate::informer_settings::SecretsOnDisk;

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> InformerBuilder<'_, Lazy<T>> {
    /// Stores the cache in `checkpoint`, so that the next run of this program starts with its contents.
    ///
    /// Readers see the restored cache immediately. Its freshness is a doubt until the server has confirmed the
    /// contents. The watch resumes at the stored version.
    ///
    /// Only objects that are kept encoded (`Lazy`) can be stored. A decoded object contains only the fields of its
    /// type, and the type of the next release may have more. A transform cannot be combined with a checkpoint for the
    /// same reason.
    ///
    /// The cluster is identified by the server's URL and the UID of the namespace `kube-system`. The program needs
    /// `get` permission on this namespace. Without the permission the cache is still correct, but the informer lists
    /// instead of resuming its watch. Handlers are called only after this decision.
    ///
    /// Secrets are rejected unless [`including_secrets`](Self::including_secrets) is set.
    pub fn checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        self.settings.checkpoint = Some(checkpoint.display_path().to_owned());
        let checkpoint = checkpoint.clone();
        self.storage = RequestedStorage::Requested(Box::new(move |connection, collection, scope, managed_fields| {
            checkpoint.claim(connection, collection, scope, managed_fields)
        }));
        self
    }

    /// Allows Secrets in the checkpoint. They are stored unencrypted: every reader of the file can read them.
    pub fn including_secrets(mut self) -> Self {
        self.settings.secrets_on_disk = SecretsOnDisk::Allowed;
        self
    }
}
