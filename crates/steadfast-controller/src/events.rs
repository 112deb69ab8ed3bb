//! Events that a program records about objects: `events.k8s.io/v1`, for people and programs that watch them.

mod allowance;
mod answer;
mod complaint;
mod correlate;
mod draft;
mod figures;
mod key;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod pace;
mod recent;
mod reporter;
mod request;
mod sender;
mod series;
mod settings;
mod shared;
mod similar;
pub mod subject;
debug_as_message!(NotSent);

#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use steadfast::Connection;

use correlate::Correlator;
use reporter::Reporter;
use sender::send_all;
use shared::{Shared, WallClock};
use subject::Subject;

pub use draft::{EventDraft, EventType};
pub use figures::EventStats;
pub use reporter::InvalidReporter;
pub use settings::EventSettings;

/// How long a recorder that was dropped, and not stopped, goes on sending.
const AFTERLIFE: Duration = Duration::from_secs(5);

/// Records events about objects, as client-go's recorders do; cheap to clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use steadfast::{Connection, Object};
/// # use steadfast_controller::{EventDraft, EventRecorder};
/// # use std::time::Duration;
/// # async fn example(connection: &Connection, pod: &Pod, held: &Object<Pod>, node: &Node) -> Result<(), Box<dyn std::error::Error>> {
/// let events = EventRecorder::new(connection, "example.com/web-controller")?;
/// events.publish(pod, EventDraft::normal("Started", "Starting").note("it took 3 s"));
/// events.publish(held, EventDraft::warning("Evicted", "Evicting").note("no memory is left").related(node));
/// events.stop(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
///
/// - To record never waits: it counts, or puts what is new into a queue, from which a task of the connection's environment
///   sends. More new events than the queue has room for are dropped, counted and told.
/// - What is recorded again is counted in the same event (`series`) as long as not more than 6 minutes pass in between.
/// - Of events that are alike but for their notes, the tenth and all further ones are combined in one.
/// - About one object there are 25 new events of a type at once, then one every 5 minutes.
/// - What the server does not take is sent again, with pauses for all, and given up after 12 tries.
///
/// All these are [`EventSettings`]. The program needs the permission to `create` and to `patch` `events` of `events.k8s.io`.
#[derive(Clone)]
pub struct EventRecorder {
    held: Arc<Held>,
}

/// What the program holds: the task that sends ends some time after it.
struct Held {
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let until = self.shared.environment().now() + AFTERLIFE;
        self.shared.with(|correlator| correlator.close_by(until));
        self.shared.work.notify_one();
    }
}

/// What an [`EventRecorder`] is made of.
pub struct EventRecorderBuilder {
    connection: Connection,
    controller: String,
    instance: Option<String>,
    settings: EventSettings,
    wall: WallClock,
}

impl EventRecorderBuilder {
    /// What tells this replica of the controller from others, such as the pod's name: 128 bytes at most, the rest is cut off.
    ///
    /// Without it, it is the controller's name and the host's, which is the pod's in a container.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// How much is recorded, kept and sent.
    #[must_use]
    pub fn settings(mut self, settings: EventSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Where the times in events come from, in place of the machine's clock: for tests in virtual time.
    #[must_use]
    pub fn wall_clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.wall = Box::new(clock);
        self
    }

    /// The recorder.
    ///
    /// # Errors
    ///
    /// Where the controller's name is none that the API takes.
    pub fn build(self) -> Result<EventRecorder, InvalidReporter> {
        let correlator = Correlator::new(Reporter::new(self.controller, self.instance)?, self.settings);
        let shared = Arc::new(Shared::new(self.connection, self.wall, correlator));
        shared.environment().spawn(Box::pin(send_all(shared.clone())));
        Ok(EventRecorder { held: Arc::new(Held { shared }) })
    }
}

impl fmt::Debug for EventRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorderBuilder")
            .field("controller", &self.controller)
            .field("instance", &self.instance)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// A recorder for the controller of this name (`reportingController`), with client-go's figures.
    ///
    /// # Errors
    ///
    /// Where the API does not take that name: it is a word, maybe with a domain and a slash before it.
    pub fn new(connection: &Connection, controller: impl Into<String>) -> Result<Self, InvalidReporter> {
        Self::builder(connection, controller).build()
    }

    /// A recorder, with more to say about it.
    pub fn builder(connection: &Connection, controller: impl Into<String>) -> EventRecorderBuilder {
        EventRecorderBuilder {
            connection: connection.clone(),
            controller: controller.into(),
            instance: None,
            settings: EventSettings::default(),
            wall: Box::new(Timestamp::now),
        }
    }

    /// Records an event about an object, and returns at once: it neither waits nor fails. What becomes of it is counted in
    /// the [`figures`](Self::figures).
    ///
    /// The event is in the namespace of its object, and in `default` if that is in none.
    pub fn publish<Form>(&self, object: &impl Subject<Form>, event: EventDraft) {
        self.held.shared.record(object.reference(), event);
    }

    /// What it has done, and how it is.
    pub fn figures(&self) -> EventStats {
        self.held.shared.figures()
    }

    /// Has all be sent that was recorded until now, counts of series too, and waits for that, for `patience` at most.
    ///
    /// # Errors
    ///
    /// What was not sent by then. The recorder goes on.
    pub async fn flush(&self, patience: Duration) -> Result<(), NotSent> {
        let shared = &self.held.shared;
        let last = shared.with(Correlator::flush);
        shared.work.notify_one();
        if self.within(patience, || shared.is_flushed(last)).await {
            return Ok(());
        }
        Err(NotSent { left: shared.figures().waiting, patience })
    }

    /// Records nothing any more, for all clones, and sends what was recorded until now, for `patience` at most.
    ///
    /// That goes on also where this is given up before it has returned.
    ///
    /// # Errors
    ///
    /// What was not sent by then, and is let go of.
    pub async fn stop(&self, patience: Duration) -> Result<(), NotSent> {
        let shared = &self.held.shared;
        let until = shared.environment().now() + patience;
        shared.with(|correlator| correlator.close_by(until));
        shared.work.notify_one();
        // The task ends by itself when that time is over, unless its thread is kept from it.
        self.within(patience.saturating_add(AFTERLIFE), || shared.is_over()).await;
        match shared.with(|correlator| correlator.left() + correlator.abandoned()) {
            0 => Ok(()),
            left => Err(NotSent { left, patience }),
        }
    }

    /// Waits until it is so, for `patience` at most: whether it is.
    async fn within(&self, patience: Duration, is_so: impl Fn() -> bool) -> bool {
        let shared = &self.held.shared;
        let environment = shared.environment();
        let mut over = pin!(environment.sleep_until(environment.now() + patience));
        let mut is_over = false;
        loop {
            let mut progress = pin!(shared.progress.notified());
            // From here on nothing that happens is missed.
            progress.as_mut().enable();
            if is_so() {
                return true;
            }
            if is_over {
                return false;
            }
            tokio::select! {
                biased;
                () = progress => {}
                () = &mut over => is_over = true,
            }
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reporter = self.held.shared.with(|correlator| correlator.reporter().clone());
        f.debug_struct("EventRecorder")
            .field("controller", &reporter.controller)
            .field("instance", &reporter.instance)
            .finish_non_exhaustive()
    }
}

/// The metrics of some recorders; to be registered once for all recorders of a program.
///
/// ```
/// # use steadfast_controller::{EventMetrics, EventRecorder};
/// # fn example(events: &EventRecorder) {
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(EventMetrics::default().with("web", events)));
/// # }
/// ```
///
/// It keeps no recorder alive: one that is gone is gone from the next scrape. Each needs a name of its own.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct EventMetrics(metrics::Recorders);

#[cfg(feature = "metrics")]
impl EventMetrics {
    /// These and those of `recorder`, with `name` as their label.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, recorder: &EventRecorder) -> Self {
        let held = Arc::downgrade(&recorder.held);
        self.0.add(name.into(), Box::new(move || Some(held.upgrade()?.shared.figures())));
        self
    }
}

#[cfg(feature = "metrics")]
impl prometheus_client::collector::Collector for EventMetrics {
    fn encode(&self, encoder: prometheus_client::encoding::DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

#[cfg(feature = "metrics")]
impl fmt::Debug for EventMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventMetrics").field("recorders", &self.0.len()).finish()
    }
}

/// Events were not sent in time.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "after {patience:?} the server did not count {left} of the recorded events yet: give it more time, and look at what the \
     log says of the server"
)]
pub struct NotSent {
    /// Recorded events that the server does not count.
    pub left: u64,
    /// How long it was waited.
    pub patience: Duration,
}
