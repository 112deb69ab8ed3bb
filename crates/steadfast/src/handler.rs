//! Handlers, which receive the changes of a cache.

use std::future::Future;

use futures::future::BoxFuture;
use steadfast_core::Event;

/// Handler that receives each change of an informer's objects, one call at a time.
///
/// Implement this trait for handlers with state, or with access to retries. For other handlers a closure is enough
/// ([`Informer::on_event`](crate::Informer::on_event)).
pub trait Handler<K>: Send + Sync + 'static {
    /// Processes `event`. The call can block, because it runs on a thread of its own and delays no other handler.
    fn handle(&self, event: Event<K>, call: Call);

    /// Returns the maximum number of concurrent calls. Defaults to 1. Calls for one object never overlap.
    fn concurrency(&self) -> usize {
        1
    }
}

/// Async variant of [`Handler`], which runs on the async runtime that was current at its registration.
pub trait AsyncHandler<K>: Send + Sync + 'static {
    /// Processes `event`.
    fn handle(&self, event: Event<K>, call: Call) -> impl Future<Output = ()> + Send;

    /// Returns the maximum number of concurrent calls. Defaults to 1. Calls for one object never overlap.
    fn concurrency(&self) -> usize {
        1
    }
}

/// Data of a call in addition to its event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Number of earlier calls with this event that panicked.
    pub retry: u32,
    /// Number of cache changes that this event covers.
    ///
    /// More than one if the handler was behind and skipped intermediate states; zero for [`Event::Resynced`]. Changes
    /// that the server did not send are not counted.
    pub changes: u64,
    /// Number of events merged since the previous call because the queue had reached the bound of
    /// [`deliver_each`](crate::HandlerBuilder::deliver_each). Always zero without that option.
    pub missed: u64,
}

/// Handler that calls a closure.
pub(crate) struct Closure<F>(pub(crate) F);

impl<K, F: Fn(Event<K>) + Send + Sync + 'static> Handler<K> for Closure<F> {
    fn handle(&self, event: Event<K>, _call: Call) {
        (self.0)(event);
    }
}

/// Async handler that calls a closure.
pub(crate) struct AsyncClosure<F>(pub(crate) F);

impl<K, F, Fut> AsyncHandler<K> for AsyncClosure<F>
where
    K: Send + Sync + 'static,
    F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    fn handle(&self, event: Event<K>, _call: Call) -> impl Future<Output = ()> + Send {
        (self.0)(event)
    }
}

/// Object-safe form of [`AsyncHandler`].
pub(crate) trait BoxedAsyncHandler<K>: Send + Sync {
    fn handle(&self, event: Event<K>, call: Call) -> BoxFuture<'_, ()>;
}

impl<K: Send + Sync + 'static, H: AsyncHandler<K>> BoxedAsyncHandler<K> for H {
    fn handle(&self, event: Event<K>, call: Call) -> BoxFuture<'_, ()> {
        Box::pin(AsyncHandler::handle(self, event, call))
    }
}
