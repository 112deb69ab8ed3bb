//! Those who make the calls: each takes a key, makes sure that it may be called, calls, and does what the call wants.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{Connection, ObjectKey, Recording};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;

use super::action::{Action, Next};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Notes;
use super::figures::{ControllerStats, Counted};
use super::gate::{Gate, Turn};
use super::pulse::Pulse;
use super::sights::Sights;
use super::spins::Spins;
use super::stage::Stage;
use crate::election::Sharding;
use crate::panics::told;
use crate::workqueue::{Work, Workqueue};

/// One that keeps its thread for longer is replaced by another, so that other keys do not wait for it.
const STUCK: Duration = Duration::from_secs(10);

/// What has panicked when it was dropped is called again after so long.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// What a call for a key comes to.
pub(super) enum Call {
    /// This is to be done.
    Begun(BoxFuture<'static, Result<Action, Failed>>),
    /// There is no such object, and nothing to do.
    Gone,
    /// The object cannot be decoded.
    Undecodable,
}

/// A call ended with an error.
pub(super) struct Failed {
    /// The error, with its causes.
    pub(super) error: String,
    /// What the policy for errors wants.
    pub(super) action: Action,
}

/// Begins a call.
pub(super) type Caller = Box<dyn Fn(&ObjectKey) -> Call + Send + Sync>;

/// What all who make the calls of a controller share.
pub(super) struct Crew {
    pub(super) connection: Connection,
    pub(super) queue: Workqueue<ObjectKey>,
    pub(super) caller: Caller,
    pub(super) gate: Gate,
    pub(super) sights: Sights,
    /// Where keys are shared with other processes.
    pub(super) shares: Option<Sharding>,
    pub(super) notes: Notes,
    pub(super) counted: Arc<Counted>,
    pub(super) spins: Spins,
    pub(super) stage: Stage,
    pub(super) timeout: Option<Duration>,
    /// How many calls there may be at a time.
    pub(super) concurrency: usize,
    pub(super) runtime: Handle,
    pub(super) pulses: Mutex<Vec<Arc<Pulse>>>,
    /// How many are there who make calls.
    pub(super) members: AtomicUsize,
    /// Tells when one of them has gone.
    pub(super) gone: watch::Sender<()>,
}

/// How a call has ended.
enum End {
    Well(Action),
    Failed(Failed),
    Panicked(String),
    TimedOut(Duration),
    Cancelled,
}

impl Crew {
    fn environment(&self) -> &SharedEnvironment {
        self.connection.environment()
    }

    /// One more who makes calls.
    pub(super) fn recruit(self: &Arc<Self>) {
        let pulse = Arc::new(Pulse::new(self.environment().clone()));
        self.pulses.lock().unwrap_or_else(PoisonError::into_inner).push(pulse.clone());
        self.members.fetch_add(1, Ordering::AcqRel);
        let member = Member { crew: self.clone(), pulse };
        self.runtime.spawn(async move { member.work().await });
    }

    /// Looks after those whose calls keep their threads, after what caches lack, and after the caches.
    pub(super) fn look(self: &Arc<Self>) {
        let now = self.environment().now();
        let pulses = self.pulses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut blocked = 0;
        for pulse in &pulses {
            let Some((key, lasting, is_news)) = pulse.blocked(now) else { continue };
            blocked += 1;
            if is_news {
                self.notes.tell(&ControllerDiagnostic::Blocked { key, lasting });
            }
            let room = || self.members.load(Ordering::Acquire) < 2 * self.concurrency;
            if lasting >= STUCK && !self.stage.is_ending() && room() && pulse.replace() {
                self.recruit();
            }
        }
        self.counted.blocked.store(blocked, Ordering::Relaxed);
        self.sights.look();
        self.look_at_caches();
    }

    /// Looks whether the caches are true enough to call.
    pub(super) fn look_at_caches(&self) {
        match self.gate.look(self.environment().now()) {
            Turn::None => {}
            Turn::Closed(why) => {
                Counted::one(&self.counted.pauses);
                self.notes.tell(&ControllerDiagnostic::Paused { why });
            }
            Turn::Opened(lasted, put_off) => {
                for (key, priority) in put_off {
                    self.queue.add_with(key, priority);
                }
                self.notes.tell(&ControllerDiagnostic::Resumed { lasted });
            }
        }
    }

    pub(super) fn figures(&self) -> ControllerStats {
        self.counted.read(self.sights.waiting(), self.spins.slowed(), self.gate.is_closed())
    }
}

/// One who makes calls.
struct Member {
    crew: Arc<Crew>,
    pulse: Arc<Pulse>,
}

impl Member {
    async fn work(&self) {
        let mut stage = self.crew.stage.clone();
        stage.working().await;
        loop {
            let Some(work) = self.next(&mut stage).await else { return };
            // What the user's code does when it is dropped may panic too, and ends nothing but the call.
            let (key, priority) = (work.key().clone(), work.priority());
            if let Err(panic) = AssertUnwindSafe(self.take(work, &mut stage)).catch_unwind().await {
                Counted::one(&self.crew.counted.panicked);
                self.crew.queue.add_after_with(key.clone(), AFTER_A_PANIC, priority);
                let again = AFTER_A_PANIC;
                self.crew.notes.tell(&ControllerDiagnostic::Panicked { key, message: told(panic), again });
            }
            if self.pulse.is_replaced() {
                return;
            }
        }
    }

    /// The next key, when there is one and the gate is open; none where no more calls are begun.
    async fn next(&self, stage: &mut Stage) -> Option<Work<ObjectKey>> {
        let Crew { gate, queue, .. } = &*self.crew;
        // Calls that end at once leave their thread to others too.
        consume_budget().await;
        if stage.is_ending() {
            return None;
        }
        // Nobody enters a list of those who wait, which all share, before there is something to wait for.
        if !gate.is_closed()
            && let Some(work) = queue.next_ready()
        {
            return Some(work);
        }
        let taken = async {
            gate.opened().await;
            queue.next().await
        };
        tokio::select! {
            biased;
            () = stage.ending() => None,
            work = taken => work,
        }
    }

    /// Has `work` done, if it may be done now.
    async fn take(&self, work: Work<ObjectKey>, stage: &mut Stage) {
        let crew = &*self.crew;
        crew.look_at_caches();
        if !crew.gate.admits(&work) {
            // It waits for its turn as it did; or is put off, where others are still taken.
            if !(crew.gate.puts_off() && crew.gate.put_off(work.key(), work.priority())) {
                crew.queue.add_with(work.key().clone(), work.priority());
            }
            return;
        }
        if !crew.sights.are_there(&work, work.priority()) {
            return;
        }
        if stage.is_ending() {
            crew.queue.add_with(work.key().clone(), work.priority());
            return;
        }
        // Before anything is read for it; and until the call has ended, so that nobody else has the key by then.
        let held = crew.shares.as_ref().map(|shares| shares.hold(&work));
        if let Some(None) = held {
            // It is called when it is gained.
            crew.spins.calm(&work);
            work.finish();
            return;
        }
        match (crew.caller)(&work) {
            Call::Begun(call) => {
                let end = self.call(&work, call, stage).await;
                drop(held);
                crew.ended(work, end);
            }
            Call::Gone => {
                crew.spins.calm(&work);
                work.finish();
            }
            Call::Undecodable => crew.notes.tell(&ControllerDiagnostic::Undecodable { key: work.key().clone() }),
        }
    }

    async fn call(&self, key: &ObjectKey, call: BoxFuture<'static, Result<Action, Failed>>, stage: &mut Stage) -> End {
        let crew = &*self.crew;
        let environment = crew.environment();
        // Ends before anybody else can take the key, however the call ends.
        let running = Running::begin(crew, key);
        let call = AssertUnwindSafe(running.recording.of(call)).catch_unwind();
        let call = self.pulse.beat(key, call);
        let late = async {
            match crew.timeout {
                Some(timeout) => {
                    environment.sleep_until(environment.now() + timeout).await;
                    timeout
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // First, so that a call that ends at once has nothing to do with who waits for the end of all.
            ended = call => match ended {
                Ok(Ok(action)) => End::Well(action),
                Ok(Err(failed)) => End::Failed(failed),
                Err(panic) => End::Panicked(told(panic)),
            },
            () = stage.cancelled() => End::Cancelled,
            timeout = late => End::TimedOut(timeout),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crew.members.fetch_sub(1, Ordering::AcqRel);
        let mut pulses = self.crew.pulses.lock().unwrap_or_else(PoisonError::into_inner);
        pulses.retain(|pulse| !Arc::ptr_eq(pulse, &self.pulse));
        self.crew.gone.send_replace(());
    }
}

impl Crew {
    /// Does what a call wants that has ended.
    fn ended(&self, work: Work<ObjectKey>, end: End) {
        let key = work.key().clone();
        match end {
            End::Well(action) => {
                match action.next() {
                    Next::Await => Counted::one(&self.counted.succeeded),
                    Next::After(_) | Next::Retry => Counted::one(&self.counted.requeued),
                }
                self.follow(work, action);
            }
            End::Failed(Failed { error, action }) => {
                Counted::one(&self.counted.failed);
                let failures = self.queue.failures(&key).saturating_add(1);
                let again = self.follow(work, action);
                self.notes.tell(&ControllerDiagnostic::Failed { key, error, failures, again });
            }
            End::Panicked(message) => {
                Counted::one(&self.counted.panicked);
                self.spins.calm(&key);
                let again = work.retry();
                self.notes.tell(&ControllerDiagnostic::Panicked { key, message, again });
            }
            End::TimedOut(timeout) => {
                Counted::one(&self.counted.timed_out);
                self.spins.calm(&key);
                let again = work.retry();
                self.notes.tell(&ControllerDiagnostic::TimedOut { key, timeout, again });
            }
            End::Cancelled => Counted::one(&self.counted.cancelled),
        }
    }

    /// Ends `work` as its call wants; returns when the key is called again at the latest.
    fn follow(&self, work: Work<ObjectKey>, action: Action) -> Option<Duration> {
        match action.next() {
            Next::Await => {
                self.spins.calm(&work);
                work.finish();
                None
            }
            Next::After(wait) => {
                let slowed = self.spins.again(&work, wait);
                if let Some(times) = slowed.told {
                    self.notes.tell(&ControllerDiagnostic::Spins { key: work.key().clone(), times });
                }
                work.requeue_after(slowed.wait);
                Some(slowed.wait)
            }
            Next::Retry => {
                self.spins.calm(&work);
                Some(work.retry())
            }
        }
    }
}

/// That a call is under way, and what it writes.
struct Running<'a> {
    crew: &'a Crew,
    key: &'a ObjectKey,
    recording: Recording,
    begun: Instant,
}

impl<'a> Running<'a> {
    fn begin(crew: &'a Crew, key: &'a ObjectKey) -> Self {
        crew.counted.running.fetch_add(1, Ordering::Relaxed);
        Self { crew, key, recording: crew.connection.record_writes(), begun: crew.environment().now() }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.crew.counted.running.fetch_sub(1, Ordering::Relaxed);
        self.crew.counted.took(self.crew.environment().now().since(self.begun));
        self.crew.sights.written(self.key, self.recording.writes());
    }
}
