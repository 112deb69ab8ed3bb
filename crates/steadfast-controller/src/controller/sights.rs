//! What the next call of a key has to see: what the call before has written, and what has led to it.
//!
//! Caches may lack either: a watch lags behind the writes that were answered, and two watches of one resource behind each
//! other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{InformerFactory, ObjectKey, WaitError, Writes};

use super::figures::Counted;
use super::note::ControllerNote;
use super::notes::Notes;
use super::stage::Stage;
use crate::workqueue::{Priority, Workqueue};

/// After so long it is told that a cache still lacks something; and again after as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What caches lack of what calls have to see, by key. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sights(Arc<Inner>);

struct Inner {
    factory: InformerFactory,
    environment: SharedEnvironment,
    queue: Workqueue<ObjectKey>,
    notes: Notes,
    counted: Arc<Counted>,
    stage: Stage,
    lacking: Mutex<HashMap<ObjectKey, Lacking>>,
}

/// What a cache lacks, or lacked when it was looked at.
#[derive(Default)]
struct Lacking {
    writes: Writes,
    /// With which priority the key is called once all is there, where it was to be called before.
    wanted: Option<Priority>,
}

impl Sights {
    pub(super) fn new(
        factory: InformerFactory,
        queue: Workqueue<ObjectKey>,
        notes: Notes,
        counted: Arc<Counted>,
        stage: Stage,
    ) -> Self {
        let environment = factory.connection().environment().clone();
        Self(Arc::new(Inner { factory, environment, queue, notes, counted, stage, lacking: Mutex::default() }))
    }

    /// A call for `key` has ended, and has made `writes`.
    pub(super) fn written(&self, key: &ObjectKey, writes: Writes) {
        if !writes.is_empty() && !self.0.factory.has_writes(&writes) {
            self.need(key, writes);
        }
    }

    /// The next call for `key` has to see `writes`.
    pub(super) fn need(&self, key: &ObjectKey, writes: Writes) {
        self.0.lock().entry(key.clone()).or_default().writes.extend(writes);
    }

    /// Whether caches have all that a call for `key` has to see. If not, it is added to the queue again when they have, with
    /// `priority` or what is above it.
    ///
    /// To be asked by whoever works on the key.
    pub(super) fn are_there(&self, key: &ObjectKey, priority: Priority) -> bool {
        loop {
            let writes = match self.0.lock().get_mut(key) {
                None => return true,
                Some(lacking) if lacking.wanted.is_some() => {
                    lacking.wanted = lacking.wanted.max(Some(priority));
                    return false;
                }
                Some(lacking) => lacking.writes.clone(),
            };
            let are_there = self.0.factory.has_writes(&writes);
            let mut all = self.0.lock();
            let Some(lacking) = all.get_mut(key) else { return true };
            match are_there {
                // More has come meanwhile.
                true if !lacking.writes.is_same(&writes) => {}
                true => {
                    all.remove(key);
                    return true;
                }
                false => {
                    lacking.wanted = Some(priority);
                    break;
                }
            }
        }
        Counted::one(&self.0.counted.waits);
        let (inner, key) = (self.0.clone(), key.clone());
        let environment = inner.environment.clone();
        environment.spawn(Box::pin(async move {
            let mut ending = inner.stage.clone();
            tokio::select! {
                biased;
                () = ending.ending() => {}
                () = inner.wait(&key) => {}
            }
        }));
        false
    }

    /// How many keys wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().values().filter(|lacking| lacking.wanted.is_some()).count()
    }

    /// Forgets what caches have by now, of keys that nobody has called since.
    pub(super) fn sweep(&self) {
        let idle: Vec<(ObjectKey, Writes)> = {
            let lacking = self.0.lock();
            let idle = lacking.iter().filter(|(_, lacking)| lacking.wanted.is_none());
            idle.map(|(key, lacking)| (key.clone(), lacking.writes.clone())).collect()
        };
        for (key, writes) in idle {
            if self.0.factory.has_writes(&writes) {
                let mut all = self.0.lock();
                if all.get(&key).is_some_and(|lacking| lacking.wanted.is_none() && lacking.writes.is_same(&writes)) {
                    all.remove(&key);
                }
            }
        }
    }
}

impl Inner {
    /// Waits until caches have all that a call for `key` has to see, then has it called.
    async fn wait(&self, key: &ObjectKey) {
        let begun = self.environment.now();
        loop {
            let Some(writes) = self.lock().get(key).map(|lacking| lacking.writes.clone()) else { return };
            match self.factory.wait_for_writes(&writes, PATIENCE).await {
                Ok(()) => {}
                Err(error @ WaitError::Deadline { .. }) => {
                    let lasting = self.since(begun);
                    self.notes.tell(&ControllerNote::LacksWrites { key: key.clone(), why: error.to_string(), lasting });
                    continue;
                }
                Err(error) => {
                    self.notes.tell(&ControllerNote::CannotCompare { key: key.clone(), why: error.to_string() });
                }
            }
            let mut all = self.lock();
            // More may have come meanwhile.
            if all.get(key).is_none_or(|lacking| lacking.writes.is_same(&writes)) {
                let lacking = all.remove(key);
                drop(all);
                self.counted.waited(self.since(begun));
                if let Some(priority) = lacking.and_then(|lacking| lacking.wanted) {
                    self.queue.add_with(key.clone(), priority);
                }
                return;
            }
        }
    }

    fn since(&self, begun: Instant) -> Duration {
        self.environment.now().since(begun)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Lacking>> {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
