//! Handlers: what is called for each change.

use std::future::Future;

use futures::future::BoxFuture;
use steadfast_core::Event;

/// What is called, one call at a time, for each change of an informer's objects.
///
/// For those who keep state or want to know of retries; a closure does for the others
/// ([`Informer::on_event`](crate::Informer::on_event)).
pub trait Handler<K>: Send + Sync + 'static {
    /// Takes in `event`. It may block: it has a thread of its own, and delays nobody else.
    fn handle(&self, event: Event<K>, call: Call);

    /// How many calls may run at a time, each for another name; calls for one name never overlap.
    fn concurrency(&self) -> usize {
        1
    }
}

/// The same as [`Handler`], on the async runtime that was current when it was registered.
pub trait AsyncHandler<K>: Send + Sync + 'static {
    /// Takes in `event`.
    fn handle(&self, event: Event<K>, call: Call) -> impl Future<Output = ()> + Send;

    /// How many calls may run at a time, each for another name; calls for one name never overlap.
    fn concurrency(&self) -> usize {
        1
    }
}

/// What there is to know of a call beside its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// How many calls with this very event panicked before this one.
    pub retry: u32,
    /// How many changes of the cache this event covers: more than one where the handler was behind and the states
    /// between are skipped, none for [`Event::Resynced`]. What a server never sent us is not counted.
    pub changes: u64,
    /// How many events were merged into others since the call before, since more waited than the bound of
    /// [`deliver_each`](crate::HandlerBuilder::deliver_each); always zero without that.
    pub missed: u64,
}

/// A closure as a handler.
pub(crate) struct Closure<F>(pub(crate) F);

impl<K, F: Fn(Event<K>) + Send + Sync + 'static> Handler<K> for Closure<F> {
    fn handle(&self, event: Event<K>, _call: Call) {
        (self.0)(event);
    }
}

/// An async closure as a handler.
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

/// An [`AsyncHandler`] that can be kept beside others of its kind.
pub(crate) trait BoxedAsyncHandler<K>: Send + Sync {
    fn handle(&self, event: Event<K>, call: Call) -> BoxFuture<'_, ()>;
}

impl<K: Send + Sync + 'static, H: AsyncHandler<K>> BoxedAsyncHandler<K> for H {
    fn handle(&self, event: Event<K>, call: Call) -> BoxFuture<'_, ()> {
        Box::pin(AsyncHandler::handle(self, event, call))
    }
}
