//! Replaces `durable` without the feature `checkpoint`: an informer has no durable handlers.

#![expect(clippy::unused_self, reason = "the signatures are those of `durable`")]

use std::marker::PhantomData;

use steadfast_core::ResourceVersion;
use steadfast_core::event::Change;

/// All durable handlers of one informer: none.
pub(crate) struct DurableHandlers<K>(PhantomData<fn(K)>);

impl<K> Default for DurableHandlers<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K> DurableHandlers<K> {
    /// Starts no deliveries.
    pub(crate) fn open<I: Iterator<Item = Change<K>>>(&self, _view: impl Fn() -> I) {}

    /// Records nothing.
    pub(crate) fn record(&self, _changes: &[Change<K>], _reached: Option<&ResourceVersion>) {}

    /// Discards nothing.
    pub(crate) fn forget(&self) {}

    /// Starts no calls.
    pub(crate) fn start(&self) {}

    /// Closes nothing.
    pub(crate) fn close(&self) {}

    /// Returns true: nothing is pending.
    pub(crate) fn is_idle(&self) -> bool {
        true
    }

    /// Returns the number of running calls: 0.
    pub(crate) fn running(&self) -> usize {
        0
    }

    /// Returns true if a handler is registered: never.
    pub(crate) fn has_registered(&self) -> bool {
        false
    }
}
