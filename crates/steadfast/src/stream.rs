//! Event stream of an informer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{FutureExt, Stream};
use steadfast_core::Freshness;
use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;

use crate::handler_options::{HandlerOptions, Mode};
use crate::informer::Informer;
use crate::runner::{PullResult, Runner};
use crate::subscription::Subscription;

/// Stream of an informer's events.
///
/// The stream resumes automatically after errors. It ends only when the informer is stopped. Errors are reported
/// through [`Watch::informer`] and never end the stream. A slow reader loses no state: unread events of an object are
/// merged, as in a handler's queue.
#[must_use = "the watch ends when this stream is dropped"]
pub struct Watch<K: Cacheable> {
    informer: Informer<K>,
    runner: Arc<Runner<K>>,
    woken: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<K: Cacheable> Informer<K> {
    /// Returns a stream of this informer's events, from the watch that all its handlers share.
    ///
    /// The stream starts with the cached objects, like a new handler. It keeps the informer running until it is dropped
    /// or the informer is stopped.
    ///
    /// ```no_run
    /// # use futures::StreamExt;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn example(pods: &steadfast::Informer<Pod>) {
    /// let mut events = pods.stream();
    /// while let Some(event) = events.next().await {
    ///     println!("{event:?}");
    /// }
    /// # }
    /// ```
    pub fn stream(&self) -> Watch<K> {
        Watch::new(self.clone())
    }
}

impl<K: Cacheable> Watch<K> {
    pub(crate) fn new(informer: Informer<K>) -> Self {
        let shared = informer.shared();
        let options = HandlerOptions { name: None, concurrency: 1, filter: None, resync: None, each: None };
        let (name, environment) = (shared.name.clone(), shared.environment.clone());
        let subscriptions = Subscription::create_all(name, 1, Mode::Pulled, options, environment, shared.faults());
        let runner = subscriptions[0].runner().clone();
        // If the informer has ended, the handler is rejected and the stream ends too.
        let _ = shared.add_handler(&subscriptions[0]);
        Self { informer, woken: woken(runner.clone()), runner }
    }

    /// Returns the informer of the stream, with its freshness, diagnostics and cache.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Returns true after the stream has returned each object of the first complete list, or the object's deletion.
    pub fn has_synced(&self) -> bool {
        self.runner.is_synced()
    }

    /// Waits until [`has_synced`](Self::has_synced) and returns true, or returns false if the informer is stopped
    /// first.
    ///
    /// The stream must be polled concurrently; otherwise the wait never ends.
    pub fn until_synced(&self) -> impl Future<Output = bool> + Send + use<K> {
        let runner = self.runner.clone();
        async move { runner.until_synced().await }
    }

    /// Returns the freshness of the delivered events: fresh, stale or in doubt, with the time and the cause.
    pub fn freshness(&self) -> Freshness {
        self.informer.freshness()
    }
}

fn woken<K: Cacheable>(runner: Arc<Runner<K>>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { runner.pulled().await })
}

impl<K: Cacheable> Stream for Watch<K> {
    type Item = Event<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            match self.runner.pull() {
                PullResult::Event(event) => return Poll::Ready(Some(event)),
                PullResult::End => return Poll::Ready(None),
                PullResult::Nothing => {}
            }
            // `Notify` stores a permit, so an event that arrives between the pull and this poll is not lost.
            std::task::ready!(self.woken.poll_unpin(context));
            self.woken = woken(self.runner.clone());
        }
    }
}

impl<K: Cacheable> Drop for Watch<K> {
    fn drop(&mut self) {
        self.runner.remove();
    }
}

impl<K: Cacheable> std::fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.informer.name())
    }
}
