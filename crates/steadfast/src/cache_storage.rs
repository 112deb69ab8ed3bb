//! Interface to the stored state of an informer: restored at its start, and written for the next run.

use std::sync::Arc;

use futures::future::BoxFuture;
use steadfast_core::ResourceVersion;
use steadfast_core::checkpoint::{DeliveryKey, RestoredEntry, SavedDelivery};

use crate::connection::Connection;
use crate::error::CheckpointUnsupported;
use crate::resource::Collection;
use crate::scope::Scope;
use crate::shared::Shared;

/// Storage of one informer's cache across restarts of the process.
pub(crate) trait CacheStorage<K: Send + Sync + 'static>: Send {
    /// Records the owner of the storage. After the owner is stopped, another informer can claim the storage.
    fn set_owner(&mut self, shared: &Arc<Shared<K>>);

    /// Passes all stored rows to `on_row`, in key order. After an error the passed rows must be discarded.
    ///
    /// # Errors
    ///
    /// Returns the reason that the stored state is unusable, or `None` if nothing was ever stored.
    fn restore(&mut self, on_row: &mut dyn FnMut(RestoredEntry)) -> Result<Restored, Option<Arc<str>>>;

    /// Requests the identity of the server's cluster. Retries until the server responds if a restored state depends on
    /// it.
    fn request_cluster_identity(&self, restored: bool) -> BoxFuture<'static, ClusterIdentity>;

    /// Stores all later snapshots for `cluster`. If `is_restored` is true, the restored state is already stored.
    fn start_storing(self: Box<Self>, shared: &Arc<Shared<K>>, is_restored: bool, cluster: Option<String>);
}

/// Storage that the builder of an informer requested.
#[derive(Default)]
pub(crate) enum RequestedStorage<K> {
    #[default]
    None,
    /// Requested; the partition of the file is claimed at the start of the informer.
    Requested(ClaimStorage<K>),
    Claimed(Box<dyn CacheStorage<K>>),
}

/// Claims an informer's partition of the checkpoint file.
pub(crate) type ClaimStorage<K> = Box<
    dyn FnOnce(&Connection, &Collection, &Scope, bool) -> Result<Box<dyn CacheStorage<K>>, CheckpointUnsupported>
        + Send,
>;

impl<K> RequestedStorage<K> {
    /// Claims the storage, if one was requested.
    ///
    /// # Errors
    ///
    /// Returns an error if the storage cannot hold the cache.
    pub(crate) fn claim(
        &mut self,
        connection: &Connection,
        collection: &Collection,
        scope: &Scope,
        managed_fields: bool,
    ) -> Result<(), CheckpointUnsupported> {
        if let Self::Requested(claim) = std::mem::take(self) {
            *self = Self::Claimed(claim(connection, collection, scope, managed_fields)?);
        }
        Ok(())
    }

    /// Returns the claimed storage.
    pub(crate) fn claimed(self) -> Option<Box<dyn CacheStorage<K>>> {
        match self {
            Self::Claimed(storage) => Some(storage),
            Self::None | Self::Requested(_) => None,
        }
    }
}

/// Restored state, apart from the objects.
pub(crate) struct Restored {
    /// Version that the cache had reached.
    pub(crate) version: ResourceVersion,
    /// Cluster of the state, if known.
    pub(crate) cluster: Option<String>,
    /// Durable handlers and their pending deliveries.
    pub(crate) pending_deliveries: Vec<(DeliveryKey, SavedDelivery)>,
}

/// Identity of a server's cluster.
pub(crate) enum ClusterIdentity {
    /// The identity.
    Cluster(String),
    /// The identity is unavailable, for this reason.
    Unknown(Arc<str>),
}
