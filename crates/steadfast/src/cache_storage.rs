//! Interface to the stored state of an informer: restored at its start, and written for the next run.

use std::sync::Arc;

use futures::future::BoxFuture;
use steadfast_core::ResourceVersion;
use steadfast_core::checkpoint::{DeliveryKey, Saved, SavedDelivery};

use crate::shared::Shared;

/// Storage of one informer's cache across restarts of the process.
pub(crate) trait CacheStorage<K: Send + Sync + 'static>: Send {
    /// Records the owner of the storage. After the owner is stopped, another informer can claim the storage.
    fn belongs_to(&mut self, shared: &Arc<Shared<K>>);

    /// Passes all stored rows to `take`, in key order. After an error the passed rows must be discarded.
    ///
    /// # Errors
    ///
    /// Returns the reason that the stored state is unusable, or `None` if nothing was ever stored.
    fn restore(&mut self, take: &mut dyn FnMut(Saved)) -> Result<Restored, Option<Arc<str>>>;

    /// Requests the identity of the server's cluster. Retries until the server responds if a restored state depends on
    /// it.
    fn ask(&self, restored: bool) -> BoxFuture<'static, ClusterIdentity>;

    /// Stores all later snapshots for `cluster`. The restored state is already stored if `is_restored`.
    fn keep(self: Box<Self>, shared: &Arc<Shared<K>>, is_restored: bool, cluster: Option<String>);
}

/// Restored state, apart from the objects.
pub(crate) struct Restored {
    /// Version that the cache had reached.
    pub(crate) version: ResourceVersion,
    /// Cluster of the state, if known.
    pub(crate) cluster: Option<String>,
    /// Durable handlers and their pending deliveries.
    pub(crate) owed: Vec<(DeliveryKey, SavedDelivery)>,
}

/// Identity of a server's cluster.
pub(crate) enum ClusterIdentity {
    /// The identity.
    Cluster(String),
    /// The identity is unavailable, for this reason.
    Unknown(Arc<str>),
}
