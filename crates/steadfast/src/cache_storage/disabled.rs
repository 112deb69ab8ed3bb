//! Replaces `cache_storage` without the feature `checkpoint`: no cache is stored.

#![expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signatures are those of `cache_storage`")]

use std::marker::PhantomData;

use crate::connection::Connection;
use crate::error::CheckpointUnsupported;
use crate::resource::Collection;
use crate::scope::Scope;

/// Storage that the builder of an informer requested: none.
pub(crate) struct RequestedStorage<K>(PhantomData<fn(K)>);

impl<K> Default for RequestedStorage<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K> RequestedStorage<K> {
    /// Claims nothing.
    pub(crate) fn claim(
        &mut self,
        _connection: &Connection,
        _collection: &Collection,
        _scope: &Scope,
        _managed_fields: bool,
    ) -> Result<(), CheckpointUnsupported> {
        Ok(())
    }
}
