//! Tests of the queue under a scheduler that tries thread interleavings: random interleavings, and interleavings with
//! few thread switches (PCT, Burckhardt 2010). A lost wake-up becomes a deadlock, which the scheduler reports with the
//! schedule.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use shuttle::future::block_on;
use shuttle::{check_pct, check_random, thread};
use steadfast::environment::{Environment, Instant, Socket, Task};
use steadfast_controller::Workqueue;

const RANDOM_SCHEDULES: usize = 1500;
const BOUNDED_SWITCH_SCHEDULES: usize = 1500;

fn check(scenario: fn()) {
    check_random(scenario, RANDOM_SCHEDULES);
    check_pct(scenario, BOUNDED_SWITCH_SCHEDULES, 3);
}

/// Clock that only tests advance.
#[derive(Default)]
struct Clock {
    milliseconds: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

impl Clock {
    fn advance(&self, milliseconds: u64) {
        self.milliseconds.fetch_add(milliseconds, Ordering::SeqCst);
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        sleepers.into_iter().for_each(Waker::wake);
    }

    fn instant(&self) -> Instant {
        Instant::from_zero(Duration::from_millis(self.milliseconds.load(Ordering::SeqCst)))
    }
}

/// Environment of the queue, with a handle of the clock.
struct ClockEnvironment(Arc<Clock>);

struct Sleep(Arc<Clock>, Instant);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.instant() >= self.1 {
            return Poll::Ready(());
        }
        self.0.sleepers.lock().push(context.waker().clone());
        Poll::Pending
    }
}

const ONLY_TIME_AND_RANDOMNESS: &str = "a queue uses only time and randomness";

impl Environment for ClockEnvironment {
    fn now(&self) -> Instant {
        self.0.instant()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep(self.0.clone(), at))
    }

    fn random(&self) -> u64 {
        0
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) -> Task {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }

    fn spawn_user_task(&self, _: BoxFuture<'static, ()>) -> Task {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }

    fn enter(&self, _: &mut dyn FnMut()) {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }

    fn run_blocking(&self, _: Box<dyn FnOnce() + Send>) {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }

    fn resolve(&self, _: &str, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }

    fn dial(&self, _: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        unreachable!("{ONLY_TIME_AND_RANDOMNESS}")
    }
}

/// Number of finished runs, and of runs in progress, for each of a few keys.
#[derive(Clone, Default)]
struct Calls(Arc<[(AtomicUsize, AtomicUsize); 3]>);

impl Calls {
    fn of(&self, key: usize) -> usize {
        self.0[key].0.load(Ordering::SeqCst)
    }
}

fn queue() -> (Workqueue<usize>, Arc<Clock>) {
    let clock = Arc::new(Clock::default());
    (Workqueue::new(Arc::new(ClockEnvironment(clock.clone()))), clock)
}

/// Starts a thread that processes keys until the queue shuts down.
fn worker(queue: &Workqueue<usize>, calls: &Calls) -> thread::JoinHandle<()> {
    let (queue, calls) = (queue.clone(), calls.clone());
    thread::spawn(move || {
        block_on(async {
            while let Some(work) = queue.next().await {
                let (count, running) = &calls.0[*work];
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "{} is processed twice concurrently", *work);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                work.finish();
            }
        });
    })
}

/// Yields until `done` returns true. A deadlock fails the test.
fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

fn end(queue: &Workqueue<usize>, workers: Vec<thread::JoinHandle<()>>) {
    queue.shut_down();
    for worker in workers {
        worker.join().expect("no worker panics");
    }
    assert_eq!(queue.tracked(), 0);
}

#[test]
fn additions_are_processed_later_and_exclusively() {
    check(|| {
        let (queue, _clock) = queue();
        let calls = Calls::default();
        let workers = vec![worker(&queue, &calls), worker(&queue, &calls)];
        let adders: Vec<_> = (0..2)
            .map(|adder| {
                let (queue, calls) = (queue.clone(), calls.clone());
                thread::spawn(move || {
                    queue.add(0);
                    queue.add(adder + 1);
                    let before = calls.of(0);
                    queue.add(0);
                    // The current run may have started before this addition. Then another run follows.
                    wait_until(|| calls.of(0) > before);
                })
            })
            .collect();
        for adder in adders {
            adder.join().expect("no panic");
        }
        wait_until(|| calls.of(1) > 0 && calls.of(2) > 0);
        end(&queue, workers);
    });
}

/// Runs two workers that each hold a key until both hold a key.
fn run_concurrently(add: fn(&Workqueue<usize>, &Clock)) {
    let (queue, clock) = queue();
    let run_concurrently = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, run_concurrently) = (queue.clone(), run_concurrently.clone());
            thread::spawn(move || {
                let work = block_on(queue.next()).expect("two keys are queued");
                run_concurrently.fetch_add(1, Ordering::SeqCst);
                wait_until(|| run_concurrently.load(Ordering::SeqCst) == 2);
                work.finish();
            })
        })
        .collect();
    add(&queue, &clock);
    wait_until(|| run_concurrently.load(Ordering::SeqCst) == 2);
    end(&queue, workers);
}

#[test]
fn two_workers_process_two_keys() {
    check(|| {
        run_concurrently(|queue, _| {
            queue.add(0);
            queue.add(1);
        });
    });
}

#[test]
fn simultaneous_delays_wake_two_workers() {
    check(|| {
        run_concurrently(|queue, clock| {
            queue.add_after(0, Duration::from_millis(5));
            queue.add_after(1, Duration::from_millis(5));
            clock.advance(5);
        });
    });
}

#[test]
fn shutdown_wakes_all_waiters() {
    check(|| {
        let (queue, _clock) = queue();
        let calls = Calls::default();
        let workers = vec![worker(&queue, &calls), worker(&queue, &calls)];
        queue.add(0);
        queue.add_after(1, Duration::from_secs(1));
        end(&queue, workers);
        assert_eq!((calls.of(0), calls.of(1)), (1, 0));
    });
}

#[test]
fn delay_always_has_a_waiter() {
    check(|| {
        let (queue, clock) = queue();
        let calls = Calls::default();
        let cancelled = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut next = pin!(queue.next());
                for _ in 0..2 {
                    // This task may be waiting for the delay, or may have just been woken. Another task must then take
                    // over.
                    if let Some(Some(work)) = next.as_mut().now_or_never() {
                        queue.add(*work);
                        return;
                    }
                    thread::yield_now();
                }
            })
        };
        let workers = vec![worker(&queue, &calls), worker(&queue, &calls)];
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.add_after(1, Duration::from_millis(10));
                queue.add_after(2, Duration::from_millis(5));
            })
        };
        adder.join().expect("no panic");
        clock.advance(5);
        wait_until(|| calls.of(2) > 0);
        clock.advance(5);
        wait_until(|| calls.of(1) > 0);
        cancelled.join().expect("no panic");
        end(&queue, workers);
    });
}

#[test]
fn drain_ends_with_empty_queue() {
    check(|| {
        let (queue, _clock) = queue();
        let calls = Calls::default();
        queue.add(0);
        queue.add(1);
        let workers = vec![worker(&queue, &calls)];
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add(0))
        };
        block_on(queue.drain(Duration::from_secs(1))).expect("the drain ends");
        assert!(queue.is_empty() && calls.of(0) > 0 && calls.of(1) > 0);
        adder.join().expect("no panic");
        end(&queue, workers);
    });
}
