//! Registration and removal of handlers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;
use tokio::runtime::Handle;

use crate::driver::Command;
use crate::error::HandlerError;
use crate::handler::{AsyncClosure, AsyncHandler, BoxedAsyncHandler, Closure, Handler};
use crate::handler_filter::Predicate;
use crate::handler_options::{HandlerOptions, Mode};
use crate::handler_stats::HandlerStats;
use crate::owner::{InformerReference, ReleaseFn};
use crate::runner::Runner;
use crate::subscription::Subscription;

/// Builder of a handler and its options.
///
/// ```no_run
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &steadfast::Informer<Pod>) -> Result<(), steadfast::HandlerError> {
/// let registration = pods
///     .handler()
///     .filter(|pod| pod.metadata.deletion_timestamp.is_none())
///     .resync(Duration::from_secs(600))
///     .on_event(|event| println!("{event:?}"))?;
/// // The handler runs until it is removed or the informer stops.
/// registration.remove();
/// # Ok(())
/// # }
/// ```
#[must_use = "a handler exists after it was added"]
pub struct HandlerBuilder<'a, K> {
    owner: &'a InformerReference<K>,
    /// Further informers whose events the handler receives.
    other_owners: Vec<&'a InformerReference<K>>,
    name: Option<Arc<str>>,
    filter: Option<Predicate<K>>,
    resync: Option<Duration>,
    each: Option<usize>,
}

impl<'a, K: Cacheable> HandlerBuilder<'a, K> {
    pub(crate) fn new(owner: &'a InformerReference<K>) -> Self {
        Self { owner, other_owners: Vec::new(), name: None, filter: None, resync: None, each: None }
    }

    /// Delivers the events of `other_owners` to the same handler, in one queue.
    pub(crate) fn with_others(mut self, other_owners: Vec<&'a InformerReference<K>>) -> Self {
        self.other_owners = other_owners;
        self
    }

    /// Sets the name of the handler in log lines and metrics. Defaults to a number that is unique within the informer.
    ///
    /// The name becomes the value of the metric label `handler_name`. Use a fixed name, not the name of an object,
    /// because each value creates a separate time series.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Delivers only objects that `accepts` returns true for, like a selector of the informer.
    ///
    /// An object that starts to match is delivered as `Added`. An object that no longer matches is delivered as
    /// `Deleted`, with its last matching state and the reason [`DeleteReason::Left`](crate::DeleteReason::Left). With
    /// several filters an object must match all.
    ///
    /// The informer calls `accepts` once for each state, before the handler's queue. The call delays only this
    /// informer's changes. An object on which it panics does not match.
    pub fn filter(mut self, accepts: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(match self.filter {
            Some(earlier) => Arc::new(move |object| earlier(object) && accepts(object)),
            None => Arc::new(accepts),
        });
        self
    }

    /// Delivers every object as `Resynced` after each `period`. Disabled by default; zero disables it too.
    ///
    /// A resync is skipped while the handler still processes its initial objects.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Delivers each event in the order of the server, instead of only the latest state of each object.
    ///
    /// The queue holds at most `bound` events, in addition to one state for each object. Further events are merged as
    /// for other handlers, so the last state is never lost. The number of merged events is logged, counted
    /// ([`HandlerStats::missed`]) and passed to the handler's next call ([`Call::missed`](crate::Call::missed)).
    /// States that a relist skipped cannot be delivered.
    pub fn deliver_each(mut self, bound: usize) -> Self {
        self.each = Some(bound);
        self
    }

    /// Calls `handle` for every event, one call at a time, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer was stopped.
    pub fn on_event(self, handle: impl Fn(Event<K>) + Send + Sync + 'static) -> Result<Registration<K>, HandlerError> {
        self.add_handler(Closure(handle))
    }

    /// Calls `handle` for every event, one call at a time, on the current async runtime.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if the informer was stopped.
    pub fn on_event_async<F, Fut>(self, handle: F) -> Result<Registration<K>, HandlerError>
    where
        F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_async_handler(AsyncClosure(handle))
    }

    /// Adds a handler with state, or with access to call data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer was stopped.
    pub fn add_handler(self, handler: impl Handler<K>) -> Result<Registration<K>, HandlerError> {
        let concurrency = handler.concurrency();
        self.register(Mode::Sync(Arc::new(handler)), concurrency)
    }

    /// Adds an async handler with state, or with access to call data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if the informer was stopped.
    pub fn add_async_handler(self, handler: impl AsyncHandler<K>) -> Result<Registration<K>, HandlerError> {
        // Captured now: the calls start from threads of the informer, outside the caller's runtime.
        let runtime = Handle::try_current().map_err(|_| HandlerError::NoRuntime)?;
        let concurrency = handler.concurrency();
        let handler: Arc<dyn BoxedAsyncHandler<K>> = Arc::new(handler);
        self.register(Mode::Async(handler, runtime), concurrency)
    }

    fn register(self, mode: Mode<K>, concurrency: usize) -> Result<Registration<K>, HandlerError> {
        let Self { owner, other_owners, name, filter, resync, each } = self;
        let options = HandlerOptions { name, concurrency, filter, resync, each };
        let owners: Vec<_> = std::iter::once(owner).chain(other_owners).collect();
        let names = owners.iter().map(|owner| owner.shared.name.as_str()).collect::<Vec<_>>().join(", ");
        let (environment, faults) = (owner.shared.environment.clone(), owner.shared.faults());
        let subscriptions = Subscription::create_all(names, owners.len(), mode, options, environment, faults);
        let runner = subscriptions[0].runner().clone();
        for (owner, subscription) in owners.iter().zip(subscriptions) {
            match owner.shared.add_handler(&subscription) {
                // A failed send means that the driver has ended, and the handler is closed with it.
                Ok(true) => drop(owner.commands.send(Command::Handlers)),
                Ok(false) => {}
                Err(_) => {
                    runner.remove();
                    return Err(HandlerError::Stopped { resource: owner.shared.name.clone() });
                }
            }
        }
        let releases = owners.iter().filter_map(|owner| owner.release.get().cloned()).collect();
        Ok(Registration { runner, releases })
    }
}

impl<K> std::fmt::Debug for HandlerBuilder<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerBuilder")
            .field("informer", &self.owner.shared.name)
            .field("name", &self.name)
            .field("filter", &self.filter.is_some())
            .field("resync", &self.resync)
            .field("each", &self.each)
            .finish()
    }
}

/// A handler's registration at an informer. Dropping it does not remove the handler; [`remove`](Self::remove) does.
pub struct Registration<K> {
    runner: Arc<Runner<K>>,
    /// Callbacks that end an informer without handles after its last handler was removed.
    releases: Vec<ReleaseFn>,
}

impl<K> std::fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registration")
    }
}

impl<K: Send + Sync + 'static> Registration<K> {
    /// Returns true after the handler's calls for all initial objects have returned.
    pub fn has_synced(&self) -> bool {
        self.runner.is_synced()
    }

    /// Waits until [`has_synced`](Self::has_synced) and returns true, or returns false if the handler ends first.
    pub async fn until_synced(&self) -> bool {
        self.runner.until_synced().await
    }

    /// Returns the statistics of the handler.
    pub fn stats(&self) -> HandlerStats {
        self.runner.stats()
    }

    /// Removes the handler: no further call starts. Returns the number of undelivered events.
    ///
    /// The handler is dropped after its running calls have returned.
    pub fn remove(&self) -> usize {
        let undelivered = self.runner.remove();
        self.call_releases();
        undelivered
    }

    /// Removes the handler like [`remove`](Self::remove), and waits until its running calls have returned.
    ///
    /// Returns the number of undelivered events. There is no timeout: a call that never returns blocks this future
    /// forever. Dropping the future does not undo the removal.
    ///
    /// A call of the same handler may use this method. The method then does not wait for that call, nor for other calls
    /// of the handler that are in this method. Without concurrency, it returns immediately. A call must not wait for
    /// another task that is in this method: the two would deadlock.
    pub async fn remove_and_wait(&self) -> usize {
        let undelivered = self.runner.remove_and_wait().await;
        self.call_releases();
        undelivered
    }

    fn call_releases(&self) {
        for release in &self.releases {
            release();
        }
    }
}
