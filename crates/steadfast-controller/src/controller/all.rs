//! Calls for all there is, where it is not known what has changed.
//!
//! A call may have seen in one cache what another one, from which the changes are taken, has skipped: an object that came and
//! went while that was cut off and listed anew. Nothing tells of it any more; so all keys are called once, after what is
//! known to have changed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast::environment::SharedEnvironment;
use steadfast::{Diagnostic, Informer, InformerFactory, Kept, ObjectKey, ResourceVersion};
use tokio::sync::watch;

use super::stage::Stage;
use crate::workqueue::{Priority, Workqueue};

/// So long at most the other caches are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Adds all keys of a controller's objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct All(Arc<Inner>);

struct Inner {
    environment: SharedEnvironment,
    queue: Workqueue<ObjectKey>,
    stage: Stage,
    /// All keys there are, once the objects are watched.
    keys: OnceLock<Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>>,
}

impl All {
    pub(super) fn new(environment: SharedEnvironment, queue: Workqueue<ObjectKey>, stage: Stage) -> Self {
        Self(Arc::new(Inner { environment, queue, stage, keys: OnceLock::new() }))
    }

    /// They are those of the objects of `informers`.
    pub(super) fn are_of<K: Kept>(&self, informers: &[Informer<K>]) {
        let informers = informers.to_vec();
        let keys_of =
            |informer: &Informer<K>| informer.snapshot().iter().map(|entry| entry.key().clone()).collect::<Vec<_>>();
        let keys = move || informers.iter().flat_map(keys_of).collect();
        drop(self.0.keys.set(Box::new(keys)));
    }

    /// Adds all.
    fn add(&self) {
        if let Some(keys) = self.0.keys.get().filter(|_| !self.0.stage.is_ending()) {
            for key in keys() {
                self.0.queue.add_with(key, Priority::LOW);
            }
        }
    }

    /// Adds all when `informer` has listed its objects anew, and whenever what is returned is told to; when other caches of
    /// `factory` have come as far.
    pub(super) fn follow<K: Kept>(&self, informer: &Informer<K>, factory: &InformerFactory) -> Again {
        let (asked, mut asks) = watch::channel(None);
        let again = Again(Arc::new(asked));
        // Notes cannot be given back: this keeps nothing of the controller.
        let relisted = Arc::downgrade(&again.0);
        informer.on_diagnostic(move |note| {
            // Of the first list everything is told.
            if let (Diagnostic::Relisted { held: Some(_), version, .. }, Some(asked)) = (note, relisted.upgrade()) {
                asked.send_replace(version.clone());
            }
        });
        let (all, own, factory) = (self.clone(), informer.clone(), factory.clone());
        let follow = async move {
            while asks.changed().await.is_ok() {
                let version = asks.borrow_and_update().clone();
                // A relist is told before readers see it.
                if let Some(version) = version {
                    drop(own.wait_for_version(&version, PATIENCE).await);
                }
                drop(factory.wait_for_writes(&own.seen(), PATIENCE).await);
                all.add();
            }
        };
        self.0.environment.spawn(Box::pin(self.0.stage.clone().until_ending(follow)));
        again
    }
}

/// Has all called once more, for one source. However often it is asked, that is done once at a time.
#[derive(Clone)]
pub(super) struct Again(Arc<watch::Sender<Option<ResourceVersion>>>);

impl Again {
    pub(super) fn ask(&self) {
        self.0.send_replace(None);
    }
}
