//! Production environment: the machine's clock and sockets, and dedicated threads.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use steadfast_core::Instant;
use steadfast_executor::{
    BlockingPool, BlockingThreads, HelperPool, HelperThreads, HelperWork, IoExecutor, TokioReactor,
};

use super::abort_on_drop::AbortOnDrop;
use super::random::Random;
use super::{Environment, Socket, Task, tcp};

/// Environment with real time, TCP, and threads separate from the program's runtimes.
///
/// Connections and informers run only on these threads. A program that blocks its own runtime therefore delays only its
/// own handlers, not the sockets. An informer that is blocked by user code does not delay the others (C8).
pub struct ThreadedEnvironment {
    executor: IoExecutor<TokioReactor>,
    origin: ClockOrigin,
    random: Random,
    pool: BlockingPool,
    helper_pool: HelperPool,
}

impl ThreadedEnvironment {
    /// Creates one thread for sockets and informers and one standby thread. Threads for blocking code start on demand.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot create a thread.
    pub fn new() -> io::Result<Self> {
        let pool = BlockingPool::named("steadfast-handler");
        Ok(Self {
            executor: IoExecutor::new(TokioReactor::new()?, pool.clone())?,
            origin: ClockOrigin::new(),
            random: Random::from_entropy(),
            pool,
            helper_pool: HelperPool::new(0),
        })
    }

    /// Allows up to `threads` helper threads to decode large inputs, such as lists of typed objects. Defaults to 0.
    ///
    /// The first sync is fastest with one helper for each additional processor. Helper threads cost memory, because
    /// allocators keep memory for each thread: memory freed by one thread is not reused by another. In a benchmark with
    /// glibc and one helper, a pod took 41 to 44 KB after many changes instead of 38.6 KB.
    #[must_use]
    pub fn with_helpers(mut self, threads: usize) -> Self {
        self.helper_pool = HelperPool::new(threads);
        self
    }

    /// Returns the number of threads that run handlers and blocked informers, and the number of stuck ones.
    pub fn blocking_threads(&self) -> BlockingThreads {
        let (pool, relieved) = (self.pool.count(), self.executor.relieved());
        BlockingThreads {
            threads: pool.threads + relieved.threads,
            running: pool.running + relieved.running,
            stuck: pool.stuck + relieved.stuck,
        }
    }

    /// Runs `work` on this environment's threads, independent of the thread that polls the returned future.
    fn run_here<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        // Spawned on this environment's runtime, to which the socket must belong. The caller may run on another
        // runtime, or outside any runtime.
        let running = AbortOnDrop(self.executor.handle().runtime().spawn(work));
        Box::pin(async move { running.await.map_err(io::Error::other)? })
    }
}

/// Start of the clock of an environment: zero is the creation of the environment.
struct ClockOrigin {
    monotonic: std::time::Instant,
    since_boot: Option<Duration>,
}

impl ClockOrigin {
    fn new() -> Self {
        Self { monotonic: std::time::Instant::now(), since_boot: since_boot() }
    }

    /// Returns the time since the start, including suspended time if the system measures it.
    fn elapsed(&self) -> Duration {
        match (since_boot(), self.since_boot) {
            (Some(now), Some(start)) => now.saturating_sub(start),
            _ => self.monotonic.elapsed(),
        }
    }
}

/// Returns the time since boot, including suspended time.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Option<Duration> {
    // The clock exists since Linux 2.6.39, and Rust requires 3.2.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).ok()
}

/// Returns `None`: other systems have no known clock of this kind without `unsafe`.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Option<Duration> {
    None
}

impl Environment for ThreadedEnvironment {
    fn now(&self) -> Instant {
        Instant::from_zero(self.origin.elapsed())
    }

    fn boot_time(&self) -> Instant {
        since_boot().map_or_else(|| self.now(), Instant::from_zero)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        // The clock of the timer stops during a suspend. The clock of `at` is therefore read first: the timer may fire
        // late, but never early.
        let wait = at.since(self.now());
        match std::time::Instant::now().checked_add(wait) {
            Some(at) => {
                let _current = self.executor.handle().runtime().enter();
                Box::pin(tokio::time::sleep_until(at.into()))
            }
            // The deadline exceeds the range of the clock, so it never passes.
            None => Box::pin(std::future::pending()),
        }
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
        let running = self.executor.handle().runtime().spawn(task).abort_handle();
        Task::new(move || running.abort())
    }

    fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
        let task = self.executor.spawn(task);
        Task::new(move || task.abort())
    }

    fn enter(&self, action: &mut dyn FnMut()) {
        let _current = self.executor.handle().runtime().enter();
        action();
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.pool.run(job);
    }

    fn helper_threads(&self) -> HelperThreads {
        self.helper_pool.threads()
    }

    fn offer_work(&self, work: HelperWork) {
        self.helper_pool.run(work);
    }

    fn random(&self) -> u64 {
        self.random.next()
    }

    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let host = host.to_owned();
        self.run_here(async move { tcp::resolve(&host, port).await })
    }

    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        self.run_here(tcp::dial(address))
    }

    fn dial_here(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        Box::pin(tcp::dial(address))
    }
}

impl Drop for ThreadedEnvironment {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl fmt::Debug for ThreadedEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadedEnvironment").field("blocking", &self.blocking_threads()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn drop_is_safe_in_async_code() {
        for foreign in [false, true] {
            let threads = Arc::new(ThreadedEnvironment::new().expect("threads"));
            let (done, finished) = tokio::sync::oneshot::channel::<()>();
            let inner = threads.clone();
            let task = Box::pin(async move {
                inner.sleep_until(inner.now() + Duration::from_millis(5)).await;
                drop(done);
                drop(inner);
            });
            let task = if foreign { threads.spawn_user_task(task) } else { threads.spawn(task) };
            drop(threads);
            finished.await.expect_err("the task ends");
            task.abort();
        }
        drop(ThreadedEnvironment::new().expect("threads"));
    }

    /// The time of a suspend must count as time without a proof of freshness, and as time of a lease.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn clock_includes_time_of_suspends() {
        let threads = ThreadedEnvironment::new().expect("threads");
        let start = threads.origin.since_boot.expect("the clock of Linux");
        for (clock, zero) in [
            (ThreadedEnvironment::now as fn(&ThreadedEnvironment) -> Instant, start),
            (ThreadedEnvironment::boot_time, Duration::ZERO),
        ] {
            let (before, now, after) = (since_boot(), zero + clock(&threads).since_zero(), since_boot());
            assert!(before <= Some(now) && Some(now) <= after, "{now:?} is not between {before:?} and {after:?}");
        }
    }

    #[tokio::test]
    async fn timer_never_fires_early() {
        let threads = ThreadedEnvironment::new().expect("threads");
        let at = threads.now() + Duration::from_millis(5);
        threads.sleep_until(at).await;
        assert!(threads.now() >= at, "{} is before {at}", threads.now());
        threads.sleep_until(Instant::ZERO).await;
    }

    #[tokio::test]
    async fn resolver_and_dial_errors_are_returned() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = closed.local_addr().expect("an address");
        drop(closed);
        let threads = ThreadedEnvironment::new().expect("threads");
        assert_eq!(threads.resolve("127.0.0.1", address.port()).await.expect("an address"), [address]);
        let Err(error) = threads.dial(address).await else { panic!("no process listens") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
