//! Process that can be frozen and killed: an environment with tasks that run only while the process runs.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use steadfast::Connection;
use steadfast::environment::local::{LocalEnvironment, Pipe};
use steadfast::environment::{Environment, Instant, SharedEnvironment, Socket, Task};
use steadfast::transport::Settings;
use steadfast_apiserver::ApiServer;
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{TestError, kube_config};
use tokio::task::AbortHandle;

/// Deliberate bug. Each variant omits one protection, and the test must detect this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// No fence: the holder checks its leadership, and then writes through an ordinary client.
    OrdinaryClient,
    /// No deadline for buffered bytes: the kernel sends them at any later time.
    UnlimitedSendBuffer,
    /// Wrong clock: the fence uses the wall clock, which may jump.
    WallClock,
}

/// Process with its tasks, and the network between process and server.
#[derive(Clone)]
pub(crate) struct Process {
    environment: Arc<ProcessEnvironment>,
    pub(crate) network: NetworkFaults,
}

struct ProcessEnvironment {
    local: LocalEnvironment,
    mutant: Option<Mutant>,
    /// Jump of the wall clock, in seconds.
    clock_jump_seconds: AtomicI64,
    state: Arc<Mutex<ProcessState>>,
}

#[derive(Default)]
struct ProcessState {
    is_frozen: bool,
    is_killed: bool,
    /// Wakers of the tasks that a frozen process suspends.
    frozen_tasks: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

impl Process {
    /// Starts a process with its own network to `server`. `seed` determines its random numbers.
    pub(crate) fn start(server: &ApiServer, seed: u64, mutant: Option<Mutant>) -> Self {
        let network = NetworkFaults::seeded(seed);
        let dialer = server.dialer();
        let dial = network.dialer(move |replica| {
            let dialer = dialer.clone();
            Box::pin(async move { dialer.connect(replica).await })
        });
        let is_unlimited = mutant == Some(Mutant::UnlimitedSendBuffer);
        let local = LocalEnvironment::new(seed, move |host, port| {
            let dial_result = dial(host, port);
            Box::pin(async move {
                let socket = dial_result.await?;
                // `Pipe` does not forward `limit_lateness`, so late data is never discarded.
                Ok(if is_unlimited { Box::new(Pipe::new(socket, "the server")) } else { socket })
            })
        });
        let environment =
            ProcessEnvironment { local, mutant, clock_jump_seconds: AtomicI64::new(0), state: Arc::default() };
        Self { environment: Arc::new(environment), network }
    }

    /// Connects the process to `server`.
    pub(crate) async fn connection(&self, server: &ApiServer, http2: bool) -> Result<Connection, TestError> {
        let environment: SharedEnvironment = self.environment.clone();
        let settings = Settings { prior_knowledge: http2, ..Settings::default() };
        let config = kube_config(server).await?;
        Ok(Connection::builder(config).environment(environment).settings(settings).build()?)
    }

    /// Spawns `task` in the process.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.environment.spawn(Box::pin(task)));
    }

    /// Simulates `SIGSTOP` or `SIGCONT`.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        let wakers = {
            let mut state = self.environment.state();
            state.is_frozen = is_frozen;
            if is_frozen { Vec::new() } else { std::mem::take(&mut state.frozen_tasks) }
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Simulates `SIGKILL`: stops all tasks, and closes the sockets like a kernel.
    pub(crate) fn kill(&self) {
        let tasks = {
            let mut state = self.environment.state();
            state.is_killed = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// Sets the jump of the wall clock.
    pub(crate) fn jump(&self, seconds: i64) {
        self.environment.clock_jump_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Returns the wall clock time of the process.
    pub(crate) fn wall_clock(&self) -> impl Fn() -> SystemTime + Send + Sync + use<> {
        let environment = self.environment.clone();
        move || {
            let seconds = 1_700_000_000 + environment.clock_jump_seconds.load(Ordering::Relaxed);
            let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            SystemTime::UNIX_EPOCH + seconds + environment.local.now().since_zero()
        }
    }

    /// Sleeps in the process, so a freeze extends the sleep.
    pub(crate) async fn pause(&self, wait: Duration) {
        self.environment.sleep_until(self.environment.now() + wait).await;
    }
}

impl ProcessEnvironment {
    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock()
    }
}

/// Task that runs only while its process runs.
struct Scheduled {
    state: Arc<Mutex<ProcessState>>,
    task: BoxFuture<'static, ()>,
}

impl Future for Scheduled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut running = self.state.lock();
            if running.is_frozen {
                running.frozen_tasks.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.task.as_mut().poll(context)
    }
}

/// Environment of the tasks in the process.
impl Environment for ProcessEnvironment {
    fn now(&self) -> Instant {
        self.local.now()
    }

    fn boot_time(&self) -> Instant {
        let jumped = self.clock_jump_seconds.load(Ordering::Relaxed).unsigned_abs();
        match self.mutant {
            // Only a wall clock that is behind is harmful, so each jump moves the clock back.
            Some(Mutant::WallClock) => {
                let origin = Instant::from_zero(Duration::from_secs(10_000_000)) + self.now().since_zero();
                origin - Duration::from_secs(jumped.min(9_000_000))
            }
            _ => self.now(),
        }
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.local.sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
        let task = tokio::spawn(Scheduled { state: self.state.clone(), task }).abort_handle();
        let mut running = self.state();
        if running.is_killed {
            task.abort();
        }
        running.tasks.retain(|task| !task.is_finished());
        running.tasks.push(task.clone());
        Task::new(move || task.abort())
    }

    fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
        self.spawn(task)
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
