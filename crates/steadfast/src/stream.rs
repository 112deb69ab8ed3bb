//! An informer's events as a stream, for those who want only that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{FutureExt, Stream};
use steadfast_core::Freshness;
use steadfast_core::decode::Kept;
use steadfast_core::event::Event;

use crate::informer::Informer;
use crate::runner::{Pull, Runner};
use crate::wishes::{Mode, Wishes};

/// The events of an informer, one after the other.
///
/// It resumes by itself, and ends only when the informer is stopped or the stream is dropped: errors are reported aside
/// ([`Watch::informer`]) and never end it. Whoever reads slowly is given less often, never too little: what is not read
/// yet is merged as in a handler's queue.
#[must_use = "the watch ends with its stream"]
pub struct Watch<K: Kept> {
    informer: Informer<K>,
    runner: Arc<Runner<K>>,
    woken: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<K: Kept> Watch<K> {
    pub(crate) fn new(informer: Informer<K>) -> Self {
        let shared = informer.shared();
        let wishes = Wishes { concurrency: 1, filter: None, resync: None, each: None };
        let runner = Runner::new(&shared.name, Mode::Pulled, wishes, shared.environment.clone(), shared.breaches);
        // Where the informer has ended, so has the stream.
        let _ = shared.add_handler(&runner);
        Self { informer, woken: woken(runner.clone()), runner }
    }

    /// The informer behind the stream: its freshness, its notes, its cache.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Whether every object of the first complete list was given, or its end.
    pub fn has_synced(&self) -> bool {
        self.runner.is_synced()
    }

    /// Waits until [`has_synced`](Self::has_synced), or until the informer is stopped before that; returns which. The
    /// stream can be read meanwhile, and has to be.
    pub fn until_synced(&self) -> impl Future<Output = bool> + Send + use<K> {
        let runner = self.runner.clone();
        async move { runner.until_synced().await }
    }

    /// Whether what was delivered is true up to now, and if not, since when and why.
    pub fn freshness(&self) -> Freshness {
        self.informer.freshness()
    }
}

fn woken<K: Kept>(runner: Arc<Runner<K>>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { runner.pulled().await })
}

impl<K: Kept> Stream for Watch<K> {
    type Item = Event<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        loop {
            match self.runner.pull() {
                Pull::Event(event) => return Poll::Ready(Some(event)),
                Pull::End => return Poll::Ready(None),
                Pull::Nothing => {}
            }
            std::task::ready!(self.woken.poll_unpin(context));
            self.woken = woken(self.runner.clone());
        }
    }
}

impl<K: Kept> Drop for Watch<K> {
    fn drop(&mut self) {
        self.runner.remove();
    }
}

impl<K: Kept> std::fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.informer.name())
    }
}
