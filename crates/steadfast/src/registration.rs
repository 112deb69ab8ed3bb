//! How handlers come to an informer, and go.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decode::Kept;
use steadfast_core::event::Event;
use tokio::runtime::Handle;

use crate::driver::Command;
use crate::error::HandlerError;
use crate::handler::{AsyncClosure, AsyncHandler, BoxedAsyncHandler, Closure, Handler};
use crate::handler_counts::HandlerCounts;
use crate::owner::{Held, Release};
use crate::runner::Runner;
use crate::screen::Accepts;
use crate::wishes::{Mode, Wishes};

/// A handler about to be added, with choices.
#[must_use = "a handler is there once it is added"]
pub struct HandlerBuilder<'a, K> {
    owner: &'a Held<K>,
    filter: Option<Accepts<K>>,
    resync: Option<Duration>,
    each: Option<usize>,
}

impl<'a, K: Kept> HandlerBuilder<'a, K> {
    pub(crate) fn new(owner: &'a Held<K>) -> Self {
        Self { owner, filter: None, resync: None, each: None }
    }

    /// Shows the handler only objects that `accepts` likes, as if it were an informer's selector.
    ///
    /// One that changes so that it passes is `Added`, one that no longer does is `Deleted`, with the last state that
    /// passed, and with [`DeleteReason::Left`](crate::DeleteReason::Left) for a reason. Of several filters an object has
    /// to pass all.
    ///
    /// The informer asks `accepts` about each state once, before the handler's queue. What time that takes delays this
    /// informer's changes and nothing else; an object on which it panics does not pass.
    pub fn filter(mut self, accepts: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(match self.filter {
            Some(earlier) => Arc::new(move |object| earlier(object) && accepts(object)),
            None => Arc::new(accepts),
        });
        self
    }

    /// Has this handler look at every object again after each `period`, as `Resynced`; zero is never, as is no call.
    ///
    /// A period in which it has not returned from all objects of its first view yet is skipped.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Delivers each event, in the order of the server, and not only the latest state of each object.
    ///
    /// No more than `bound` events wait, beside one state of each object. What comes while so many do is merged as it is
    /// for other handlers, so that the last state is never lost; how many events were merged is logged, counted
    /// ([`HandlerCounts::missed`]), and said to the handler with the next call ([`Call::missed`](crate::Call::missed)).
    /// What a relist has skipped nobody can deliver.
    pub fn deliver_each(mut self, bound: usize) -> Self {
        self.each = Some(bound);
        self
    }

    /// Calls `handle` for every event, one call at a time, on a thread of its own.
    ///
    /// # Errors
    ///
    /// After the informer's stop.
    pub fn on_event(self, handle: impl Fn(Event<K>) + Send + Sync + 'static) -> Result<Registration<K>, HandlerError> {
        self.add_handler(Closure(handle))
    }

    /// Calls `handle` for every event, one call at a time, on the async runtime that is current now.
    ///
    /// # Errors
    ///
    /// Where no runtime is current, and after the informer's stop.
    pub fn on_event_async<F, Fut>(self, handle: F) -> Result<Registration<K>, HandlerError>
    where
        F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.add_async_handler(AsyncClosure(handle))
    }

    /// Adds a handler that keeps state or wants to know of retries.
    ///
    /// # Errors
    ///
    /// After the informer's stop.
    pub fn add_handler(self, handler: impl Handler<K>) -> Result<Registration<K>, HandlerError> {
        let concurrency = handler.concurrency();
        self.register(Mode::Sync(Arc::new(handler)), concurrency)
    }

    /// Adds an async handler that keeps state or wants to know of retries.
    ///
    /// # Errors
    ///
    /// Where no runtime is current, and after the informer's stop.
    pub fn add_async_handler(self, handler: impl AsyncHandler<K>) -> Result<Registration<K>, HandlerError> {
        let runtime = Handle::try_current().map_err(|_| HandlerError::NoRuntime)?;
        let concurrency = handler.concurrency();
        let handler: Arc<dyn BoxedAsyncHandler<K>> = Arc::new(handler);
        self.register(Mode::Async(handler, runtime), concurrency)
    }

    fn register(self, mode: Mode<K>, concurrency: usize) -> Result<Registration<K>, HandlerError> {
        let Self { owner, filter, resync, each } = self;
        let shared = &owner.shared;
        let wishes = Wishes { concurrency, filter, resync, each };
        let runner = Runner::new(&shared.name, mode, wishes, shared.environment.clone(), shared.breaches);
        match shared.add_handler(&runner) {
            Ok(true) => drop(owner.commands.send(Command::Handlers)),
            Ok(false) => {}
            Err(_) => return Err(HandlerError::Stopped { resource: shared.name.clone() }),
        }
        Ok(Registration { runner, release: owner.release.get().cloned() })
    }
}

impl<K> std::fmt::Debug for HandlerBuilder<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerBuilder")
            .field("informer", &self.owner.shared.name)
            .field("filter", &self.filter.is_some())
            .field("resync", &self.resync)
            .field("each", &self.each)
            .finish()
    }
}

/// A handler's place at an informer. Dropping it removes nothing; [`remove`](Self::remove) does.
pub struct Registration<K> {
    runner: Arc<Runner<K>>,
    /// An informer without handles ends with its last handler.
    release: Option<Release>,
}

impl<K> std::fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registration")
    }
}

impl<K: Send + Sync + 'static> Registration<K> {
    /// Whether the handler has returned from every object that was there when its view began.
    pub fn has_synced(&self) -> bool {
        self.runner.is_synced()
    }

    /// Waits until [`has_synced`](Self::has_synced), or until the handler is ended before that; returns which.
    pub async fn until_synced(&self) -> bool {
        self.runner.until_synced().await
    }

    /// What the handler has done and has before it.
    pub fn counts(&self) -> HandlerCounts {
        self.runner.counts()
    }

    /// Ends the handler: no call begins any more. Returns how many events were not delivered to it.
    ///
    /// What the handler holds is let go, when the calls that are running have returned.
    pub fn remove(&self) -> usize {
        let undelivered = self.runner.remove();
        self.released();
        undelivered
    }

    /// Ends the handler as [`remove`](Self::remove) does, and returns when no call of it runs any more; none will begin.
    ///
    /// There is no deadline: a call that never returns is waited for, unless this future is dropped, which takes nothing
    /// back. Called from within a call of this same handler, which cannot wait for itself, it returns when the other
    /// calls are over that do not wait in here likewise: at once for a handler without concurrency. A call that hands
    /// this to another task and waits for that task waits for itself, and for ever.
    pub async fn remove_and_wait(&self) -> usize {
        let undelivered = self.runner.remove_and_wait().await;
        self.released();
        undelivered
    }

    fn released(&self) {
        if let Some(release) = &self.release {
            release();
        }
    }
}
