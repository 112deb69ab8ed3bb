//! Time limit for sending, checked at each write.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Instant;
use tokio::sync::Notify;

use super::nanos::nanos;
use crate::environment::SharedEnvironment;

/// Value of [`Shared::until`] for a closed fence.
const CLOSED: u64 = 0;

/// Maximum time between two checks by a task that waits for the close.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for the requests of a [`Connection`](crate::Connection), for example for a leader with a lease. Cheap to
/// clone.
///
/// A connection [with a fence](crate::Connection::with_fence) has its own sockets. The clock is read immediately before
/// each write to a socket, on the writing thread, and not only by a timer. A process that was suspended or starved
/// therefore sends nothing after the limit. The clock is the environment's
/// [`boot_time`](crate::environment::Environment::boot_time), which changes of the wall clock do not affect.
///
/// After the limit the sockets are aborted. Requests in flight end with
/// [`TransportError::Fenced`](super::TransportError::Fenced), and the kernel discards their unsent data. The kernel
/// also stops retransmission within the fence's *lateness*, even if the process is killed. The server may still execute
/// requests that it received before.
///
/// A closed fence stays closed.
#[derive(Clone)]
pub struct Fence {
    shared: Arc<Shared>,
}

struct Shared {
    environment: SharedEnvironment,
    lateness: Duration,
    /// Nanoseconds since the clock's zero, or [`CLOSED`].
    until: AtomicU64,
    /// Notified at the close.
    closing: Notify,
    unanswered: Mutex<UnansweredRequests>,
}

/// Sent requests without a response.
#[derive(Default)]
struct UnansweredRequests {
    in_flight: usize,
    /// Time at which a request was last abandoned without a response.
    last_abandoned: Option<Instant>,
}

/// A request in flight on a connection with a fence. A request that is dropped before its response counts as a request
/// without a response.
pub(super) struct FencedRequest {
    fence: Fence,
    is_settled: bool,
}

impl Fence {
    /// Creates a fence that is open until `until` on `environment`'s
    /// [`boot_time`](crate::environment::Environment::boot_time).
    ///
    /// Data sent before `until` reaches the server's kernel at most `lateness` later. Only Linux guarantees this.
    pub fn new(environment: SharedEnvironment, until: Instant, lateness: Duration) -> Self {
        let until = AtomicU64::new(nanos(until).max(CLOSED + 1));
        let shared = Shared { environment, lateness, until, closing: Notify::new(), unanswered: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Extends the fence to `until`, if that is later. Does nothing on a closed fence.
    pub fn extend(&self, until: Instant) {
        let later = |before| (before != CLOSED && before < nanos(until)).then(|| nanos(until));
        // A limit that is not later changes nothing.
        let _ = self.shared.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Closes the fence immediately.
    pub fn close(&self) {
        // The value first: a woken waiter must see the fence closed.
        self.shared.until.store(CLOSED, Ordering::SeqCst);
        self.shared.closing.notify_waiters();
    }

    /// Returns true if data can be sent now.
    pub fn is_open(&self) -> bool {
        loop {
            let until = self.shared.until.load(Ordering::SeqCst);
            if until == CLOSED {
                return false;
            }
            if nanos(self.shared.environment.boot_time()) < until {
                return true;
            }
            // After a caller has seen a closed fence, the fence must never open again. The fence is therefore marked as
            // closed, except if another task has extended it concurrently.
            if self.shared.until.compare_exchange(until, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.shared.closing.notify_waiters();
                return false;
            }
        }
    }

    /// Returns the remaining time; zero after the close.
    pub fn remaining(&self) -> Duration {
        let until = self.shared.until.load(Ordering::SeqCst);
        Duration::from_nanos(until.saturating_sub(nanos(self.shared.environment.boot_time())))
    }

    /// Waits for the close.
    pub async fn closed(&self) {
        loop {
            let mut closing = pin!(self.shared.closing.notified());
            // Registers for the notification before the check.
            closing.as_mut().enable();
            if !self.is_open() {
                return;
            }
            let environment = &self.shared.environment;
            // The clock of a timer may stop while the machine is suspended. Frequent checks end the wait soon after a
            // suspend that lasted beyond the limit.
            let wait = self.remaining().min(MAX_CHECK_INTERVAL);
            let expired = environment.sleep_until(environment.now() + wait);
            tokio::select! {
                biased;
                () = closing => {}
                () = expired => {}
            }
        }
    }

    /// Returns the last time at which a request was abandoned although the server may have received it. Returns the
    /// current time while a request is in flight, and `None` if all requests received a response.
    ///
    /// A leader that hands over before the fence's limit plus lateness must take this time into account.
    pub fn last_unconfirmed_request(&self) -> Option<Instant> {
        let unanswered = self.lock();
        if unanswered.in_flight > 0 { Some(self.shared.environment.boot_time()) } else { unanswered.last_abandoned }
    }

    /// Returns the maximum delay between a write and its arrival at the server's kernel.
    pub(super) fn lateness(&self) -> Duration {
        self.shared.lateness
    }

    /// Registers a request in flight, if the fence is open.
    pub(super) fn begin_request(&self) -> Option<FencedRequest> {
        let mut unanswered = self.lock();
        // Checked under the lock: a caller may close the fence and then check the requests in flight. The caller must
        // then find this request, or the request must find the fence closed.
        self.is_open().then(|| {
            unanswered.in_flight += 1;
            FencedRequest { fence: self.clone(), is_settled: false }
        })
    }

    fn lock(&self) -> MutexGuard<'_, UnansweredRequests> {
        self.shared.unanswered.lock()
    }
}

impl FencedRequest {
    /// Records that the request received a response, or was never sent.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for FencedRequest {
    fn drop(&mut self) {
        let now = self.fence.shared.environment.boot_time();
        let mut unanswered = self.fence.lock();
        unanswered.in_flight -= 1;
        if !self.is_settled {
            unanswered.last_abandoned = Some(now);
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use futures::future::BoxFuture;

    use crate::environment::local::LocalEnvironment;
    use crate::environment::{Environment, Socket, Task};

    use super::*;

    /// Environment of a machine that can be suspended: its clock for leases continues, and its timers stop.
    struct SuspendableEnvironment {
        local: LocalEnvironment,
        suspended_seconds: AtomicU64,
    }

    impl Environment for SuspendableEnvironment {
        fn now(&self) -> Instant {
            self.local.now()
        }

        fn boot_time(&self) -> Instant {
            self.now() + Duration::from_secs(self.suspended_seconds.load(Ordering::SeqCst))
        }

        fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
            self.local.sleep_until(at)
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
            self.local.spawn(task)
        }

        fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
            self.local.spawn_user_task(task)
        }

        fn enter(&self, action: &mut dyn FnMut()) {
            self.local.enter(action);
        }

        fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) {
            self.local.run_blocking(job);
        }

        fn random(&self) -> u64 {
            self.local.random()
        }

        fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            self.local.resolve(host, port)
        }

        fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
            self.local.dial(address)
        }
    }

    fn environment() -> SharedEnvironment {
        Arc::new(LocalEnvironment::over_tcp(1))
    }

    fn fence(environment: &SharedEnvironment, open: Duration) -> Fence {
        Fence::new(environment.clone(), environment.boot_time() + open, Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn expired_fence_never_reopens() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(fence.is_open());
        fence.extend(environment.boot_time() + Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fence.is_open(), "the fence was extended by a second");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!fence.is_open());
        fence.extend(environment.boot_time() + Duration::from_secs(10));
        assert!(!fence.is_open(), "a fence stays closed");
        assert_eq!(fence.remaining(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn fence_waiters_wake_at_expiry_and_close() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        let started_at = environment.now();
        fence.extend(environment.boot_time() + Duration::from_secs(20));
        fence.closed().await;
        assert_eq!(environment.now().since(started_at), Duration::from_secs(20));
        let other = self::fence(&environment, Duration::from_secs(3600));
        let ((), ()) = tokio::join!(other.closed(), async { other.close() });
        assert_eq!(
            environment.now().since(started_at),
            Duration::from_secs(20),
            "the fence does not wait for the hour"
        );
    }

    /// A leader must stop soon after a suspend beyond its lease, although the timers missed the suspend.
    #[tokio::test(start_paused = true)]
    async fn fence_waiters_wake_soon_after_suspend() {
        let local = LocalEnvironment::over_tcp(1);
        let suspendable = Arc::new(SuspendableEnvironment { local, suspended_seconds: AtomicU64::new(0) });
        let environment: SharedEnvironment = suspendable.clone();
        let (fence, started_at) = (fence(&environment, Duration::from_secs(60)), environment.now());
        let ((), ()) = tokio::join!(fence.closed(), async {
            environment.sleep_until(started_at + Duration::from_millis(9500)).await;
            suspendable.suspended_seconds.store(3600, Ordering::SeqCst);
            assert!(!fence.is_open(), "the lease expired during the suspend");
        });
        let waited = environment.now().since(started_at);
        assert!(waited <= Duration::from_millis(10_500), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn fence_reports_unanswered_requests() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        let (completed, abandoned) = (fence.begin_request().expect("open"), fence.begin_request().expect("open"));
        completed.settle();
        assert_eq!(fence.last_unconfirmed_request(), Some(environment.boot_time()), "one request is in flight");
        drop(abandoned);
        let at = environment.boot_time();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fence.last_unconfirmed_request(), Some(at));
        fence.close();
        assert!(fence.begin_request().is_none());
        let other = self::fence(&environment, Duration::from_secs(10));
        other.begin_request().expect("open").settle();
        assert_eq!(other.last_unconfirmed_request(), None);
    }
}
