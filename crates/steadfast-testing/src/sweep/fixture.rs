//! The scenario's access to the cluster.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use steadfast::Connection;
use steadfast_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::injector::SweepInjector;
use crate::TestkitError;

/// Duration of a wait after which a gap ends and the caches list again. A gap is a fault that hides a write from the
/// caches.
const GAP_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum wait in virtual time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Cluster on which a controller runs, for use by the scenario.
#[derive(Clone)]
pub struct Fixture {
    pub(super) server: Arc<ApiServer>,
    pub(super) injector: Arc<SweepInjector>,
    pub(super) connection: Connection,
    pub(super) quiet: Duration,
    pub(super) ignored_resources: Arc<[String]>,
}

impl Fixture {
    /// Returns a client of a replica whose requests receive no faults. Faults can still hide its writes from the
    /// controller: it may see a write late, or only after the next write of the object.
    pub fn client(&self) -> Client {
        self.connection.client()
    }

    /// Returns the server itself, for reads. Writes that bypass its API receive no fault. Only the sweep may control
    /// the faults of the server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Waits until nothing has been written for a while ([`Sweep::quiet`](super::Sweep::quiet)). By then the
    /// controller is finished, or the injected fault hides the change from the controller. To wait for a certain
    /// result of the controller, use [`until`](Self::until).
    ///
    /// # Errors
    ///
    /// Returns an error if writes continue for an hour of virtual time.
    pub async fn settle(&self) -> Result<(), TestkitError> {
        let started = Instant::now();
        let mut previous_writes = self.count_writes();
        loop {
            // The writes are compared over a whole quiet period: a controller that writes once per period never
            // settles.
            sleep(self.quiet).await;
            let writes = self.count_writes();
            // A fault that is still in effect hides changes, so the quiet may only be apparent.
            if writes == previous_writes && !self.injector.is_busy() {
                return Ok(());
            }
            if started.elapsed() > WAIT_TIMEOUT {
                return Err("writes did not stop within an hour of virtual time".into());
            }
            previous_writes = writes;
        }
    }

    /// Waits until `reached` returns `true` for the server. A fault may hide a write from the caches. After one
    /// minute, the caches list again and receive this write.
    ///
    /// # Errors
    ///
    /// Returns an error with `what` if the condition is not met within an hour of virtual time.
    pub async fn until(&self, what: &str, reached: impl Fn(&ApiServer) -> bool) -> Result<(), TestkitError> {
        let started = Instant::now();
        while !reached(&self.server) {
            // The gap otherwise ends with the next write of the hidden object. This write may never occur, and the
            // condition could then never be reached.
            if started.elapsed() > GAP_TIMEOUT {
                self.injector.end_gap();
            }
            if started.elapsed() > WAIT_TIMEOUT {
                return Err(format!("not reached within an hour of virtual time: {what}").into());
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the number of relevant writes.
    fn count_writes(&self) -> usize {
        let is_relevant = |plural: &str| !self.ignored_resources.iter().any(|ignored| ignored == plural);
        self.server.history().changes.iter().filter(|change| is_relevant(change.resource.resource())).count()
    }
}
