//! How a handler is called, and what it wants beside that.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::handler::{BoxedAsyncHandler, Handler};
use crate::screen::Accepts;

/// How a handler is called.
pub(crate) enum Mode<K> {
    /// On threads taken on demand.
    Sync(Arc<dyn Handler<K>>),
    /// On the runtime that was current at registration.
    Async(Arc<dyn BoxedAsyncHandler<K>>, Handle),
    /// Not at all: someone takes the events when they like.
    Pulled,
}

// By hand: a derive would ask `K: Clone`, and only pointers are cloned.
impl<K> Clone for Mode<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Sync(handler) => Self::Sync(handler.clone()),
            Self::Async(handler, runtime) => Self::Async(handler.clone(), runtime.clone()),
            Self::Pulled => Self::Pulled,
        }
    }
}

/// What a handler wants beside being called.
pub(crate) struct Wishes<K> {
    /// How many of its calls may run at a time.
    pub(crate) concurrency: usize,
    /// Which objects it wants to see.
    pub(crate) filter: Option<Accepts<K>>,
    /// How often it wants to look at each object again.
    pub(crate) resync: Option<Duration>,
    /// How many events may wait where each is to be delivered.
    pub(crate) each: Option<usize>,
}
