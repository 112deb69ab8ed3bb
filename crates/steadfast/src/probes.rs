//! Probes shared by the informers of one resource on a server (R2, R5).
//!
//! Each informer probes its own scope, because RBAC may allow no other. The version in the response belongs to the
//! whole resource. A response therefore serves all informers whose request is older than the probe. A failure affects
//! only the informer that sent the probe; the others then probe one at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_core::reflector::Failure;
use steadfast_core::{Instant, ResourceVersion};

use crate::environment::SharedEnvironment;

/// Maximum wait for another informer's probe before an informer probes itself: half of the probe timeout.
const SHARED_PROBE_TIMEOUT: Duration = Duration::from_millis(2500);

/// Response to a probe.
#[derive(Clone, Debug)]
pub(crate) struct Probed {
    /// Version of the collection, if the server sends one.
    pub(crate) version: Option<ResourceVersion>,
    /// Time at which the probe was sent.
    pub(crate) sent: Instant,
}

/// Probes of all resources of a server.
#[derive(Default)]
pub(crate) struct ProbeBoard {
    resources: Mutex<BTreeMap<String, Arc<ResourceProbes>>>,
}

/// Probes of one resource.
#[derive(Default)]
struct ResourceProbes {
    latest: Mutex<Option<Probed>>,
    /// Held during a probe.
    first_queue: tokio::sync::Mutex<()>,
    /// Held by one informer that no longer waits for the first probe.
    second_queue: tokio::sync::Mutex<()>,
}

impl ResourceProbes {
    fn latest_since(&self, since: Instant) -> Option<Probed> {
        let latest = self.latest.lock();
        latest.clone().filter(|probed| probed.sent >= since)
    }
}

impl ProbeBoard {
    /// Returns the response to a probe for `resource` that was sent at `since` or later: another informer's response,
    /// or that of `probe`. `probe` is polled only if needed.
    pub(crate) async fn request(
        &self,
        resource: &str,
        since: Instant,
        environment: &SharedEnvironment,
        probe: impl Future<Output = Result<Option<ResourceVersion>, Failure>>,
    ) -> Result<Probed, Failure> {
        let entry = {
            let mut resources = self.resources.lock();
            resources.entry(resource.to_owned()).or_default().clone()
        };
        if let Some(probed) = entry.latest_since(since) {
            return Ok(probed);
        }
        // A hanging probe of one informer must not block the others, so they move to a second queue after the timeout.
        let timeout = environment.sleep_until(environment.now() + SHARED_PROBE_TIMEOUT);
        let _guard = tokio::select! {
            biased;
            guard = entry.first_queue.lock() => guard,
            () = timeout => entry.second_queue.lock().await,
        };
        if let Some(probed) = entry.latest_since(since) {
            return Ok(probed);
        }
        // Taken before the request: the response proves the state at this time or later.
        let sent = environment.now();
        let probed = Probed { version: probe.await?, sent };
        let mut latest = entry.latest.lock();
        // The two queues can finish in either order.
        if latest.as_ref().is_none_or(|latest| latest.sent <= sent) {
            *latest = Some(probed.clone());
        }
        Ok(probed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::environment::local::LocalEnvironment;

    const SECOND: Duration = Duration::from_secs(1);

    /// Probes as caller `number` and counts the sent probes. A probe takes `time`, or never ends.
    async fn request(
        board: &ProbeBoard,
        environment: &SharedEnvironment,
        probe_count: &AtomicUsize,
        time: Option<Result<Duration, Failure>>,
    ) -> Result<Probed, Failure> {
        let probe = async {
            probe_count.fetch_add(1, Ordering::Relaxed);
            match time {
                None => std::future::pending().await,
                Some(Err(failure)) => Err(failure),
                Some(Ok(time)) => {
                    tokio::time::sleep(time).await;
                    Ok(Some(ResourceVersion::from("7")))
                }
            }
        };
        board.request("pods", environment.now() - SECOND, environment, probe).await
    }

    fn probe_board() -> (ProbeBoard, SharedEnvironment, AtomicUsize) {
        (ProbeBoard::default(), Arc::new(LocalEnvironment::over_tcp(1)), AtomicUsize::new(0))
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_serves_concurrent_callers() {
        let (board, environment, probe_count) = probe_board();
        tokio::time::sleep(SECOND * 10).await;
        let requests = (0..50).map(|_| request(&board, &environment, &probe_count, Some(Ok(SECOND / 2))));
        let started_at = environment.now();
        for probed in futures::future::join_all(requests).await {
            assert_eq!(probed.unwrap().sent, started_at, "the proof is for the time of sending");
        }
        request(&board, &environment, &probe_count, Some(Ok(SECOND))).await.unwrap();
        assert_eq!(probe_count.load(Ordering::Relaxed), 1);
        tokio::time::sleep(SECOND).await;
        request(&board, &environment, &probe_count, Some(Ok(SECOND))).await.unwrap();
        assert_eq!(probe_count.load(Ordering::Relaxed), 2, "an outdated response serves no caller");
    }

    #[tokio::test(start_paused = true)]
    async fn failure_is_returned_only_to_its_caller() {
        let (board, environment, probe_count) = probe_board();
        let refused = || Some(Err(Failure::unreachable("forbidden")));
        let (first, second, third) = tokio::join!(
            request(&board, &environment, &probe_count, refused()),
            request(&board, &environment, &probe_count, Some(Ok(SECOND))),
            request(&board, &environment, &probe_count, refused()),
        );
        assert!(first.is_err() && second.is_ok() && third.is_ok());
        assert_eq!(probe_count.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn stuck_probe_blocks_no_other_probe() {
        let (board, environment, probe_count) = probe_board();
        let stuck = tokio::time::timeout(SECOND * 5, request(&board, &environment, &probe_count, None));
        let others = (0..50).map(|_| request(&board, &environment, &probe_count, Some(Ok(SECOND))));
        let started_at = environment.now();
        let (stuck, others) = tokio::join!(stuck, async {
            let others = futures::future::join_all(others).await;
            assert!(environment.now().since(started_at) < SECOND * 5);
            others
        });
        assert!(stuck.is_err() && others.iter().all(Result::is_ok));
        assert_eq!(probe_count.load(Ordering::Relaxed), 2, "the stuck probe, and one for all other callers");
    }
}
