//! Until when requests may be sent, judged when they are.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_core::Instant;
use tokio::sync::Notify;

use super::nanos::nanos;
use crate::environment::SharedEnvironment;

/// Of [`Shared::until`]: it was closed.
const CLOSED: u64 = 0;

/// The time within which the requests of a [`Connection`](crate::Connection) may be sent, as for a leader whose lease runs
/// out; cheap to clone.
///
/// A connection [behind](crate::Connection::behind) a fence has sockets of its own. The clock is looked at immediately before
/// each write to one of them, on the thread that writes, and never a timer alone; so what was stopped for a while, or starved,
/// sends nothing afterwards. The clock is the environment's [`boot_time`](crate::environment::Environment::boot_time), which
/// no wall clock's jump moves.
///
/// When the time is over, the sockets are aborted: what is under way ends with
/// [`TransportError::Fenced`](super::TransportError::Fenced), and the kernel discards what it holds of it. Nor does the
/// kernel send anything again that was not acknowledged within the fence's *lateness*, whatever became of this program. What the server has
/// read by then it may still act on.
///
/// Once closed it stays closed.
#[derive(Clone)]
pub struct Fence {
    shared: Arc<Shared>,
}

struct Shared {
    environment: SharedEnvironment,
    lateness: Duration,
    /// Nanoseconds since the clock's zero, or [`CLOSED`].
    until: AtomicU64,
    /// Notified when it is closed.
    closing: Notify,
    sent: Mutex<Sent>,
}

/// What was sent and has no answer.
#[derive(Default)]
struct Sent {
    under_way: usize,
    /// When the last one was given up without an answer.
    given_up: Option<Instant>,
}

/// A request under way behind a fence; dropped before its answer it counts as unanswered.
pub(super) struct UnderWay {
    fence: Fence,
    answered: bool,
}

impl Fence {
    /// Open until `until` on `environment`'s [`boot_time`](crate::environment::Environment::boot_time).
    ///
    /// What was sent within that time reaches the server's kernel at most `lateness` later; Linux alone keeps that.
    pub fn new(environment: SharedEnvironment, until: Instant, lateness: Duration) -> Self {
        let until = AtomicU64::new(nanos(until).max(CLOSED + 1));
        let shared = Shared { environment, lateness, until, closing: Notify::new(), sent: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Leaves it open until `until` if that is later than before; nothing happens once it is closed.
    pub fn extend(&self, until: Instant) {
        let later = |before| (before != CLOSED && before < nanos(until)).then(|| nanos(until));
        // Where it is not later there is nothing to do.
        let _ = self.shared.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Closes it now.
    pub fn close(&self) {
        self.shared.until.store(CLOSED, Ordering::SeqCst);
        self.shared.closing.notify_waiters();
    }

    /// Whether something may be sent at this moment.
    pub fn is_open(&self) -> bool {
        loop {
            let until = self.shared.until.load(Ordering::SeqCst);
            if until == CLOSED {
                return false;
            }
            if nanos(self.shared.environment.boot_time()) < until {
                return true;
            }
            // Whoever has seen it closed will not see it open again: it is closed, unless it was extended just now.
            if self.shared.until.compare_exchange(until, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.shared.closing.notify_waiters();
                return false;
            }
        }
    }

    /// How much time is left; none once it is closed.
    pub fn remaining(&self) -> Duration {
        let until = self.shared.until.load(Ordering::SeqCst);
        Duration::from_nanos(until.saturating_sub(nanos(self.shared.environment.boot_time())))
    }

    /// Waits until it is closed.
    pub async fn closed(&self) {
        loop {
            let mut closing = pin!(self.shared.closing.notified());
            // From here on no closing is missed.
            closing.as_mut().enable();
            if !self.is_open() {
                return;
            }
            let environment = &self.shared.environment;
            let over = environment.sleep_until(environment.now() + self.remaining());
            tokio::select! {
                biased;
                () = closing => {}
                () = over => {}
            }
        }
    }

    /// When a request was last given up of which the server may have read something, and to which it has not said whether it
    /// acted; now, while one is under way. None if all were answered.
    ///
    /// Who hands over to another, before the fence's time and the lateness are over, has to wait for that.
    pub fn last_unanswered(&self) -> Option<Instant> {
        let sent = self.lock();
        if sent.under_way > 0 { Some(self.shared.environment.boot_time()) } else { sent.given_up }
    }

    /// How much later than it was written something may reach the server's kernel.
    pub(super) fn lateness(&self) -> Duration {
        self.shared.lateness
    }

    /// Counts a request as under way, if one may be sent now.
    pub(super) fn depart(&self) -> Option<UnderWay> {
        let mut sent = self.lock();
        // Under the lock, so that whoever has closed it and then looks what is under way misses nothing.
        self.is_open().then(|| {
            sent.under_way += 1;
            UnderWay { fence: self.clone(), answered: false }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.shared.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    /// It is known what became of the request: answered, or never sent.
    pub(super) fn settle(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let now = self.fence.shared.environment.boot_time();
        let mut sent = self.fence.lock();
        sent.under_way -= 1;
        if !self.answered {
            sent.given_up = Some(now);
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
    use crate::environment::local::Local;

    use super::*;

    fn environment() -> SharedEnvironment {
        Arc::new(Local::over_tcp(1))
    }

    fn fence(environment: &SharedEnvironment, open: Duration) -> Fence {
        Fence::new(environment.clone(), environment.boot_time() + open, Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_open_until_its_time_is_over_and_never_again() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(fence.is_open());
        fence.extend(environment.boot_time() + Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fence.is_open(), "it was extended by a second");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!fence.is_open());
        fence.extend(environment.boot_time() + Duration::from_secs(10));
        assert!(!fence.is_open(), "who has seen it closed relies on that");
        assert_eq!(fence.remaining(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_its_end_is_called_at_its_time_and_when_it_is_closed() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        let begun = environment.now();
        fence.extend(environment.boot_time() + Duration::from_secs(20));
        fence.closed().await;
        assert_eq!(environment.now().since(begun), Duration::from_secs(20));
        let other = self::fence(&environment, Duration::from_secs(3600));
        let ((), ()) = tokio::join!(other.closed(), async { other.close() });
        assert_eq!(environment.now().since(begun), Duration::from_secs(20), "it did not wait for the hour");
    }

    #[tokio::test(start_paused = true)]
    async fn it_knows_what_may_still_be_acted_on() {
        let environment = environment();
        let fence = fence(&environment, Duration::from_secs(10));
        let (answered, given_up) = (fence.depart().expect("open"), fence.depart().expect("open"));
        answered.settle();
        assert_eq!(fence.last_unanswered(), Some(environment.boot_time()), "one is under way");
        drop(given_up);
        let at = environment.boot_time();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fence.last_unanswered(), Some(at));
        fence.close();
        assert!(fence.depart().is_none());
        let other = self::fence(&environment, Duration::from_secs(10));
        other.depart().expect("open").settle();
        assert_eq!(other.last_unanswered(), None);
    }
}
