//! What an informer begins with that an earlier life of its program has kept, and what is kept of it for the next one.

use std::sync::Arc;

use futures::future::BoxFuture;
use steadfast_core::ResourceVersion;
use steadfast_core::checkpoint::{OwedKey, Saved, SavedDebt};

use crate::shared::Shared;

/// Where the cache of one informer is kept beyond its program's life.
pub(crate) trait Keepsake<K: Send + Sync + 'static>: Send {
    /// Takes note of whose cache it is: when that is stopped, another informer may have the place.
    fn belongs_to(&mut self, shared: &Arc<Shared<K>>);

    /// Hands all that was kept to `take`, in the order of the keys. What was handed out before an error is worth nothing.
    ///
    /// # Errors
    ///
    /// Where there is nothing that can be used: why, or nothing where nothing was ever kept.
    fn restore(&mut self, take: &mut dyn FnMut(Saved)) -> Result<Restored, Option<Arc<str>>>;

    /// Asks the server of which cluster it is: until it says so, where what was restored depends on that.
    fn ask(&self, restored: bool) -> BoxFuture<'static, Asked>;

    /// Keeps what is published from here on, of `cluster`. What was restored is there already, if it `is_restored`.
    fn keep(self: Box<Self>, shared: &Arc<Shared<K>>, is_restored: bool, cluster: Option<String>);
}

/// What was kept, beside the objects.
pub(crate) struct Restored {
    /// The version that the cache had reached.
    pub(crate) version: ResourceVersion,
    /// The cluster that it was of, if that was known.
    pub(crate) cluster: Option<String>,
    /// The durable handlers, and what they are owed.
    pub(crate) owed: Vec<(OwedKey, SavedDebt)>,
}

/// Of which cluster a server is.
pub(crate) enum Asked {
    /// This one.
    Cluster(String),
    /// It cannot be told, and why.
    Unknown(Arc<str>),
}
