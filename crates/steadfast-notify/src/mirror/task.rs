//! The supervised task of one mirror: opens it, works, and opens it again if anything of it ends unexpectedly.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::driver::MirrorStanding;
use super::feed::Feed;
use super::keeper::{How, Keeper};
use super::open::{Opening, open};
use crate::notice::Notice;
use crate::plan::Plan;
use crate::supervise::{Supervised, Supervisor};

/// Delay before the second attempt to open a mirror; it doubles with each further one.
const OPEN_INITIAL_DELAY: Duration = Duration::from_secs(1);

/// Longest delay between two attempts to open a mirror.
const OPEN_MAX_DELAY: Duration = Duration::from_secs(30);

/// How long an earlier run may take to finish its current action before the next one begins.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// One mirror of a plan at work. Dropping it stops the mirror without waiting for its current action.
pub struct MirrorTask {
    name: String,
    feed: Feed,
    slot: Arc<Slot>,
    task: Supervised,
}

/// The mirror of the current run.
#[derive(Default)]
struct Slot {
    keeper: Mutex<Option<Arc<Keeper>>>,
    /// Why the mirror is not open.
    unopened: Mutex<Option<Arc<str>>>,
}

impl Slot {
    fn keeper(&self) -> Option<Arc<Keeper>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, keeper: Option<Arc<Keeper>>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
    }

    fn standing(&self) -> MirrorStanding {
        if let Some(keeper) = self.keeper() {
            return keeper.standing();
        }
        let why = self.unopened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = why.unwrap_or_else(|| "it has not been opened yet".into());
        MirrorStanding::blocked(why)
    }
}

impl MirrorTask {
    /// Starts the mirror `name` of `plan` on the current runtime, when all senders of `after` have been dropped. It works with
    /// what `feed` has now, and with what arrives later.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(
        plan: &Arc<Plan>,
        name: &str,
        feed: Feed,
        after: watch::Receiver<()>,
        how: How,
        supervisor: &Supervisor,
    ) -> Self {
        let slot = Arc::<Slot>::default();
        let run = {
            let (plan, name, feed, slot) = (plan.clone(), name.to_owned(), feed.clone(), slot.clone());
            move || {
                let mut after = after.clone();
                let run = run(plan.clone(), name.clone(), feed.clone(), slot.clone(), how.clone());
                async move {
                    // Never two writers to one target. What hangs is not awaited for ever.
                    let ended = async { while after.changed().await.is_ok() {} };
                    let _ = timeout(STOP_TIMEOUT, ended).await;
                    run.await
                }
            }
        };
        let task = supervisor.spawn(format!("mirror {name}"), run);
        Self { name: name.to_owned(), feed, slot, task }
    }

    /// Returns the name of the mirror's sink.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what feeds the mirror.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Returns a function that reports the mirror's state at the time of the call.
    pub fn standing(&self) -> Box<dyn Fn() -> MirrorStanding + Send + Sync> {
        let slot = self.slot.clone();
        Box::new(move || slot.standing())
    }

    /// Stops the mirror after its current action. Its entries stay in the target.
    pub async fn stop(self) {
        let Self { slot, task, .. } = self;
        task.stop().await;
        if let Some(keeper) = slot.keeper() {
            keeper.stop().await;
        }
    }
}

async fn run(plan: Arc<Plan>, name: String, feed: Feed, slot: Arc<Slot>, how: How) -> String {
    if let Some(earlier) = slot.keeper() {
        // Never two writers to one target. A task that hangs is dropped with its last handle, which ends it.
        let _ = timeout(STOP_TIMEOUT, earlier.stop()).await;
        slot.set(None);
    }
    let opening = opened(&plan, &name, &slot, &how).await;
    let (keeper, ended) = Keeper::start(name, opening, feed, how);
    slot.set(Some(Arc::new(keeper)));
    match ended.await {
        Ok(why) => why,
        // The supervisor reports the panic under the name of the mirror.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => error.to_string(),
    }
}

/// Opens the mirror, and retries for as long as that fails.
async fn opened(plan: &Plan, name: &str, slot: &Slot, how: &How) -> Opening {
    let (mut reported, mut delay) = (None, OPEN_INITIAL_DELAY);
    loop {
        let why = match open(plan, name).await {
            Ok(opening) => {
                if reported.is_some() {
                    (how.tell)(Notice::Opened { sink: name.to_owned() });
                }
                *slot.unopened.lock().unwrap_or_else(PoisonError::into_inner) = None;
                return opening;
            }
            Err(unopened) => unopened.problem.to_string(),
        };
        *slot.unopened.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.as_str().into());
        if reported.as_ref() != Some(&why) {
            (how.tell)(Notice::Unopened { sink: name.to_owned(), why: why.clone() });
            reported = Some(why);
        }
        sleep(delay).await;
        delay = (delay * 2).min(OPEN_MAX_DELAY);
    }
}
