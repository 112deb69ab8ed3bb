//! Subscription of a handler to one informer. A handler of several informers has one subscription to each, and one queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast_core::event::Change;
use steadfast_core::fault_injection::FaultInjection;
use steadfast_executor::drop_contained;

use crate::environment::SharedEnvironment;
use crate::handler_filter::HandlerFilter;
use crate::handler_options::{HandlerOptions, Mode};
use crate::handler_registry::Slot;
#[cfg(feature = "metrics")]
use crate::handler_stats::HandlerReading;
use crate::runner::{Detach, Runner};

/// Subscription of a handler to one informer: its filter, its resync period, and the delivery to its queue.
pub(crate) struct Subscription<K> {
    runner: Arc<Runner<K>>,
    /// Filter of this informer's changes. Only the driver of the informer passes changes through it.
    pub(crate) filter: Option<HandlerFilter<K>>,
    pub(crate) resync: Option<Duration>,
    /// True for the first subscription of the handler. Metrics count only this one, so that each handler counts once.
    pub(crate) represents_handler: bool,
    /// True after all initial objects of the informer were queued.
    initial_objects_queued: AtomicBool,
    closed: AtomicBool,
    /// Slot among the handlers of the informer, released at the close.
    slot: OnceLock<Slot>,
}

impl<K: Send + Sync + 'static> Subscription<K> {
    /// Creates a handler with `number` subscriptions, at least one. `informers` names their informers, for display.
    pub(crate) fn create_all(
        informers: String,
        number: usize,
        mode: Mode<K>,
        options: HandlerOptions<K>,
        environment: SharedEnvironment,
        faults: FaultInjection,
    ) -> Vec<Arc<Self>> {
        let (filter, resync) = (options.filter.clone(), options.resync);
        let runner = Runner::new(informers, mode, options, environment, faults, number);
        let subscribe = |index| {
            Arc::new(Self {
                runner: runner.clone(),
                filter: filter.clone().map(HandlerFilter::new),
                resync,
                represents_handler: index == 0,
                initial_objects_queued: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                slot: OnceLock::new(),
            })
        };
        let subscriptions: Vec<_> = (0..number).map(subscribe).collect();
        let detachable = |subscription: &Arc<Self>| {
            let subscription: Arc<dyn Detach> = subscription.clone();
            Arc::downgrade(&subscription)
        };
        runner.set_subscriptions(subscriptions.iter().map(detachable).collect());
        subscriptions
    }

    /// Returns the handler.
    pub(crate) fn runner(&self) -> &Arc<Runner<K>> {
        &self.runner
    }

    /// Sets the handler's slot among the handlers of the informer.
    pub(crate) fn set_slot(&self, slot: Slot) {
        let slot = self.slot.get_or_init(|| slot);
        if self.represents_handler {
            self.runner.set_number(slot.id());
        }
        // A close before this call found no slot to release.
        if self.is_closed() {
            slot.release();
        }
    }

    /// Queues changes. If `initial_objects_queued` is true, the initial objects of the informer are complete. The
    /// caller must then [start](Self::start) the handler without a lock held.
    pub(crate) fn push(&self, changes: impl IntoIterator<Item = Change<K>>, initial_objects_queued: bool) {
        if self.is_closed() {
            return;
        }
        // A relist is complete as well, but only the first view counts.
        let completes_initial_objects =
            initial_objects_queued && !self.initial_objects_queued.swap(true, Ordering::AcqRel);
        self.runner.push(changes, completes_initial_objects);
    }

    /// Starts calls for queued events, up to the handler's concurrency.
    pub(crate) fn start(self: &Arc<Self>) {
        self.runner.start();
    }

    /// Ends the subscription. The handler ends with its last subscription.
    pub(crate) fn close(&self) {
        if self.detach() {
            self.runner.leave(self.initial_objects_queued.load(Ordering::Acquire));
        }
    }

    /// Returns true if the subscription or its handler has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.runner.is_closed()
    }

    /// Returns the handler's current state.
    #[cfg(feature = "metrics")]
    pub(crate) fn read(&self) -> HandlerReading {
        self.runner.read(self.slot.get().map_or(0, Slot::id))
    }
}

impl<K: Send + Sync + 'static> Detach for Subscription<K> {
    fn detach(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        if let Some(slot) = self.slot.get() {
            slot.release();
        }
        drop_contained(self.filter.as_ref().and_then(HandlerFilter::end));
        true
    }
}
