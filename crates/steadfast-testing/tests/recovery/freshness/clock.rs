//! Clock jumps (F31): a machine that was suspended while its monotonic clock advanced.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use steadfast::Connection;
use steadfast::environment::local::{LocalEnvironment, Pipe};
use steadfast::environment::{Environment, Socket, Task};

use super::*;

/// Environment with a clock that can be advanced.
struct JumpingClock {
    local: LocalEnvironment,
    clock_jump: Arc<AtomicU64>,
}

impl JumpingClock {
    fn clock_jump(&self) -> Duration {
        Duration::from_millis(self.clock_jump.load(Ordering::Relaxed))
    }
}

impl Environment for JumpingClock {
    fn now(&self) -> steadfast::environment::Instant {
        self.local.now() + self.clock_jump()
    }

    fn sleep_until(&self, at: steadfast::environment::Instant) -> BoxFuture<'static, ()> {
        self.local.sleep_until(at - self.clock_jump())
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

#[tokio::test(start_paused = true)]
async fn late_timer_reads_stream_before_closing() -> Result<(), TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    let dialer = server.dialer();
    let clock_jump = Arc::new(AtomicU64::new(0));
    let local = LocalEnvironment::new(3, move |_, _| {
        let dialer = dialer.clone();
        Box::pin(async move { Ok(Box::new(Pipe::new(dialer.connect(0).await?, "memory")) as Box<_>) })
    });
    let environment = Arc::new(JumpingClock { local, clock_jump: clock_jump.clone() });
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let config = steadfast_testing::kube_config(&server).await?;
    let connection = Connection::builder(config).environment(environment).settings(settings).build()?;
    let factory = InformerFactory::new(&connection);
    let informer = start_fresh(builder_with_form(&factory, Scope::all()), None).await?;
    let notes = record_diagnostics(&informer);
    let fresh_ages: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (recorded_ages, observed) = (fresh_ages.clone(), informer.clone());
    informer.on_event(move |_| {
        if let Freshness::Fresh { age, .. } = observed.freshness() {
            recorded_ages.lock().push(age);
        }
    })?;
    let (dials_before, watches_before) =
        (steadfast::unstable::dial_count(&connection), server.request_counts().watches);
    for sleep in [10, 70, 600, 100_000] {
        // State at the wake-up, before any task runs: events in flight, and overdue timers.
        server.create(&config_map(&format!("after-{sleep}"), "1"))?;
        clock_jump.fetch_add(sleep * 1000, Ordering::Relaxed);
        until(PERIOD + REACTION_TIME, || is_cached(&informer, &format!("after-{sleep}"))).await?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(informer.freshness().is_fresh(), "after {sleep} s: {}", informer.freshness());
        // The event is as old as the suspend, so it proves nothing about the time of the wake-up.
        let fresh_ages = std::mem::take(&mut *fresh_ages.lock());
        let is_honest = fresh_ages.iter().all(|age| *age >= Duration::from_secs(sleep));
        assert!(is_honest, "at the event from before {sleep} s: {fresh_ages:?}");
    }
    let doubt_count = note_count(&notes, |note| {
        matches!(note, Diagnostic::Suspect { .. } | Diagnostic::Failed { .. } | Diagnostic::Relisting { .. })
    });
    assert_eq!(doubt_count, 0, "{:?}", notes.lock());
    assert_eq!(steadfast::unstable::dial_count(&connection), dials_before, "no connection was closed");
    assert_eq!(server.request_counts().watches, watches_before, "no watch was reopened");
    Ok(())
}
