//! Call mode and options of a handler.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::handler::{BoxedAsyncHandler, Handler};
use crate::handler_filter::Predicate;

/// Call mode of a handler.
pub(crate) enum Mode<K> {
    /// Calls on threads from the blocking pool.
    Sync(Arc<dyn Handler<K>>),
    /// Calls on the runtime that was current at registration.
    Async(Arc<dyn BoxedAsyncHandler<K>>, Handle),
    /// No calls: a stream takes the events.
    Pulled,
}

// Implemented manually: a derive would require `K: Clone`, although only pointers are cloned.
impl<K> Clone for Mode<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Sync(handler) => Self::Sync(handler.clone()),
            Self::Async(handler, runtime) => Self::Async(handler.clone(), runtime.clone()),
            Self::Pulled => Self::Pulled,
        }
    }
}

/// Options of a handler.
pub(crate) struct HandlerOptions<K> {
    /// Name in logs and metrics.
    pub(crate) name: Option<Arc<str>>,
    /// Maximum number of concurrent calls.
    pub(crate) concurrency: usize,
    /// Filter of the delivered objects.
    pub(crate) filter: Option<Predicate<K>>,
    /// Resync period.
    pub(crate) resync: Option<Duration>,
    /// Maximum queue length for delivery of each event.
    pub(crate) each: Option<usize>,
}
