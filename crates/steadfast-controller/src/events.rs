//! Event recorder for the API `events.k8s.io/v1`.

mod allowance;
mod correlate;
mod draft;
mod key;
mod log_throttle;
mod lru;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod outcome;
mod pacer;
mod reporter;
mod request;
mod sender;
mod series;
mod settings;
mod shared;
mod similar;
mod stats;
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
use shared::Shared;
use subject::Subject;

use crate::wall_clock::WallClock;

pub use draft::{EventDraft, EventType};
pub use reporter::InvalidReporter;
pub use settings::EventSettings;
pub use stats::EventStats;

/// Time for which a dropped recorder continues to send.
const DRAIN_AFTER_DROP: Duration = Duration::from_secs(5);

/// Records events about objects, like client-go's recorders. Cheap to clone.
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
/// - Recording never blocks: the recorder counts a known event, or queues a new one. A task of the connection's
///   environment sends the queue. New events beyond the queue limit are dropped, counted and logged.
/// - A repeated event is counted in the same object (`series`) unless more than 6 minutes pass in between.
/// - Of events that differ only in their notes, the tenth and all further ones are combined into one.
/// - Each object has a burst of 25 new events per type, then one every 5 minutes.
/// - A failed request is repeated, up to 12 attempts in total. After a temporary failure, the recorder pauses all
///   requests.
///
/// [`EventSettings`] contains all of these limits. The program needs the permissions `create` and `patch` on `events`
/// in `events.k8s.io`.
#[derive(Clone)]
pub struct EventRecorder {
    handle: Arc<RecorderHandle>,
}

/// Handle that the program holds. The sender task ends at most 5 s after the drop of the handle.
struct RecorderHandle {
    shared: Arc<Shared>,
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        let until = self.shared.environment().now() + DRAIN_AFTER_DROP;
        self.shared.with(|correlator| correlator.close_by(until));
        self.shared.work.notify_one();
    }
}

/// Builder of an [`EventRecorder`].
pub struct EventRecorderBuilder {
    connection: Connection,
    controller: String,
    instance: Option<String>,
    settings: EventSettings,
    wall_clock: WallClock,
}

impl EventRecorderBuilder {
    /// Name that distinguishes this replica from others, such as the pod's name. At most 128 bytes; the rest is cut
    /// off.
    ///
    /// Defaults to the controller's name and the host name, which is the pod's name in a container.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Limits of the recorder. Defaults to client-go's limits.
    #[must_use]
    pub fn settings(mut self, settings: EventSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Clock for the times in events, for tests in virtual time. Defaults to the system clock.
    #[must_use]
    pub fn wall_clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.wall_clock = Arc::new(clock);
        self
    }

    /// Builds the recorder and starts its sender task.
    ///
    /// # Errors
    ///
    /// Returns an error if the API rejects the controller's name.
    pub fn start(self) -> Result<EventRecorder, InvalidReporter> {
        // Invalid names fail here. Later, the server would reject every event.
        let correlator = Correlator::new(Reporter::new(self.controller, self.instance)?, self.settings);
        let shared = Arc::new(Shared::new(self.connection, self.wall_clock, correlator));
        shared.environment().spawn(Box::pin(send_all(shared.clone())));
        Ok(EventRecorder { handle: Arc::new(RecorderHandle { shared }) })
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
    /// Starts a recorder with client-go's limits for the controller with this name (`reportingController`).
    ///
    /// # Errors
    ///
    /// Returns an error if the API rejects the name. A valid name is one word, such as `web-controller`, optionally
    /// after a domain and a slash.
    pub fn new(connection: &Connection, controller: impl Into<String>) -> Result<Self, InvalidReporter> {
        Self::builder(connection, controller).start()
    }

    /// Returns a builder of a recorder.
    pub fn builder(connection: &Connection, controller: impl Into<String>) -> EventRecorderBuilder {
        EventRecorderBuilder {
            connection: connection.clone(),
            controller: controller.into(),
            instance: None,
            settings: EventSettings::default(),
            wall_clock: Arc::new(Timestamp::now),
        }
    }

    /// Records an event about an object. Returns immediately, and never fails: [`stats`](Self::stats) counts the
    /// outcomes.
    ///
    /// The event belongs to the namespace of its object, or to `default` for a cluster-scoped object.
    pub fn publish<Form>(&self, object: &impl Subject<Form>, event: EventDraft) {
        self.handle.shared.record(object.reference(), event);
    }

    /// Returns counters and current state.
    pub fn stats(&self) -> EventStats {
        self.handle.shared.stats()
    }

    /// Sends all events recorded so far, including counts of series, and waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Returns the number of unsent events on a timeout. The recorder continues.
    pub async fn flush(&self, timeout: Duration) -> Result<(), NotSent> {
        let shared = &self.handle.shared;
        let last = shared.with(Correlator::flush);
        shared.work.notify_one();
        if self.wait_until(timeout, || shared.is_flushed(last)).await {
            return Ok(());
        }
        Err(NotSent { undelivered: shared.stats().waiting, timeout })
    }

    /// Stops recording in all clones, and sends all events recorded so far, for at most `timeout`.
    ///
    /// Dropping the future does not cancel the stop.
    ///
    /// # Errors
    ///
    /// Returns the number of unsent events on a timeout. They are dropped.
    pub async fn stop(&self, timeout: Duration) -> Result<(), NotSent> {
        let shared = &self.handle.shared;
        let until = shared.environment().now() + timeout;
        shared.with(|correlator| correlator.close_by(until));
        shared.work.notify_one();
        // The extra time covers requests in flight at the deadline. The task ends at its deadline, unless its thread is
        // blocked.
        self.wait_until(timeout.saturating_add(DRAIN_AFTER_DROP), || shared.is_finished()).await;
        match shared.with(|correlator| correlator.undelivered() + correlator.abandoned()) {
            0 => Ok(()),
            undelivered => Err(NotSent { undelivered, timeout }),
        }
    }

    /// Waits until `condition` returns true, for at most `timeout`. Returns false on a timeout.
    async fn wait_until(&self, timeout: Duration, condition: impl Fn() -> bool) -> bool {
        let shared = &self.handle.shared;
        let environment = shared.environment();
        let mut deadline = pin!(environment.sleep_until(environment.now() + timeout));
        let mut is_expired = false;
        loop {
            let mut progress = pin!(shared.progress.notified());
            // Progress after this point wakes the task.
            progress.as_mut().enable();
            if condition() {
                return true;
            }
            if is_expired {
                return false;
            }
            tokio::select! {
                biased;
                () = progress => {}
                () = &mut deadline => is_expired = true,
            }
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reporter = self.handle.shared.with(|correlator| correlator.reporter().clone());
        f.debug_struct("EventRecorder")
            .field("controller", &reporter.controller)
            .field("instance", &reporter.instance)
            .finish_non_exhaustive()
    }
}

/// Prometheus collector for recorders. Register one collector for all recorders of a program.
///
/// ```
/// # use steadfast_controller::{EventMetrics, EventRecorder};
/// # fn example(events: &EventRecorder) {
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(EventMetrics::default().with("web", events)));
/// # }
/// ```
///
/// The collector does not keep a recorder alive. The next scrape omits a dropped recorder. Give each recorder a unique
/// name.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct EventMetrics(metrics::Recorders);

#[cfg(feature = "metrics")]
impl EventMetrics {
    /// Adds `recorder` with the label `name`.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, recorder: &EventRecorder) -> Self {
        let handle = Arc::downgrade(&recorder.handle);
        self.0.add(name.into(), Box::new(move || Some(handle.upgrade()?.shared.stats())));
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

/// Error if events were not sent before a timeout.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "{undelivered} recorded events were not sent within {timeout:?}; check the log for errors of the server, or raise the timeout"
)]
pub struct NotSent {
    /// Recorded events that the server has not counted.
    pub undelivered: u64,
    /// The timeout.
    pub timeout: Duration,
}
