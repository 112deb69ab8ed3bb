//! Where a controller's keys come from.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use steadfast::{
    Call, DynamicType, Event, Handler, HandlerError, Informer, InformerError, InformerFactory, Kept, Object, ObjectKey,
    Scope, Writes,
};

use super::all::{Again, All};
use super::changes::Changes;
use super::note::ControllerNote;
use super::notes::Notes;
use super::sights::Sights;
use super::stage::Stage;
use crate::panics::told;
use crate::workqueue::{Priority, Workqueue};

/// Objects whose changes a controller follows: a [`Scope`], or an [`Informer`] that there is already, and which changes count.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use steadfast::Scope;
/// # use steadfast_controller::{Changes, Source};
/// let deployments = Source::<Deployment>::from(Scope::namespace("shop"))
///     .on(Changes::of_generation())
///     .resync(Duration::from_secs(600));
/// ```
#[must_use = "a source is to be handed to a controller"]
pub struct Source<K: Kept> {
    open: Open<K>,
    changes: Changes<K::Resource>,
    resync: Option<Duration>,
}

type Open<K> = Box<dyn FnOnce(&InformerFactory) -> Result<Informer<K>, InformerError> + Send>;

/// Ends what a source gives.
pub(super) type Detach = Box<dyn Fn() + Send + Sync>;

impl<K: Kept> Source<K> {
    /// Only such changes count; all of them unless it is said.
    pub fn on(mut self, changes: Changes<K::Resource>) -> Self {
        self.changes = changes;
        self
    }

    /// Each object counts as changed once in such a period, whether it did or not; never unless it is said.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Has the keys that `keys` names for an object added to `queue` when it has changed, and called for when all caches have
    /// seen that.
    pub(super) fn attach<I>(
        self,
        links: &Links,
        keys: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Result<(Informer<K>, Detach), SourceError>
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        let Self { open, changes, resync } = self;
        let Links { factory, queue, sights, all, stage, notes } = links;
        let informer = open(factory)?;
        let handler = informer.handler().deliver_each(ONE_BY_ONE);
        let handler = match resync {
            Some(period) => handler.resync(period),
            None => handler,
        };
        let leads = Leads {
            informer: informer.clone(),
            factory: factory.clone(),
            changes,
            keys: Box::new(move |object, add| keys(object).into_iter().for_each(add)),
            queue: queue.clone(),
            sights: sights.clone(),
            again: all.follow(&informer, factory),
            stage: stage.clone(),
            notes: notes.clone(),
        };
        let registration = handler.add_handler(leads)?;
        let detach = move || {
            registration.remove();
        };
        Ok((informer, Box::new(detach)))
    }
}

/// What sources have to do with.
pub(super) struct Links {
    pub(super) factory: InformerFactory,
    pub(super) queue: Workqueue<ObjectKey>,
    pub(super) sights: Sights,
    pub(super) all: All,
    pub(super) stage: Stage,
    pub(super) notes: Notes,
}

/// So many changes wait to be taken in one by one, and are not merged: an object that has come and gone meanwhile may have been
/// seen by a call.
const ONE_BY_ONE: usize = 4096;

/// From changes to the keys that they lead to.
struct Leads<K: Kept> {
    informer: Informer<K>,
    factory: InformerFactory,
    changes: Changes<K::Resource>,
    keys: Keys<K>,
    queue: Workqueue<ObjectKey>,
    sights: Sights,
    again: Again,
    stage: Stage,
    notes: Notes,
}

/// Hands on the keys that an object leads to.
type Keys<K> = Box<dyn Fn(&Object<K>, &mut dyn FnMut(ObjectKey)) + Send + Sync>;

impl<K: Kept> Handler<K> for Leads<K> {
    fn handle(&self, event: Event<K>, call: Call) {
        if call.missed > 0 {
            self.again.ask();
        }
        let priority = match &event {
            // One that has changed before it was told for the first time is as urgent as any that has.
            Event::Added { initial: true, .. } if call.changes <= 1 => Priority::LOW,
            Event::Resynced { .. } => Priority::LOW,
            Event::Updated { old, new } if !self.changes.matter::<K>(old, new) => return,
            _ => Priority::NORMAL,
        };
        let unseen = match &event {
            // No first call is made before the others have come as far as this cache was then.
            Event::Added { initial: true, .. } if !self.stage.is_working() => Writes::default(),
            Event::Resynced { .. } => Writes::default(),
            _ => self.factory.unseen_elsewhere(&self.informer, &event),
        };
        let mut add = |key: ObjectKey| {
            if !unseen.is_empty() {
                self.sights.need(&key, unseen.clone());
            }
            self.queue.add_with(key, priority);
        };
        let mut lead = |object: &Object<K>| {
            let led = catch_unwind(AssertUnwindSafe(|| (self.keys)(object, &mut add)));
            if let Err(panic) = led {
                // Nobody knows to which keys it leads.
                let what = "what maps objects to keys";
                self.notes.tell(&ControllerNote::Broken { what, message: told(panic) });
                self.again.ask();
            }
        };
        if let Event::Updated { old, .. } = &event {
            // It may have led to others before.
            lead(old);
        }
        lead(event.object());
    }
}

impl<K: Kept> From<Scope> for Source<K>
where
    DynamicType<K>: Default,
{
    /// All changes of the objects in `scope`, by an informer of the controller's factory.
    fn from(scope: Scope) -> Self {
        let open: Open<K> = Box::new(move |factory| factory.informer(scope));
        Self { open, changes: Changes::all(), resync: None }
    }
}

impl<K: Kept> From<Informer<K>> for Source<K> {
    /// All changes that `informer` sees: one with choices of its own, or of a type that says at run time what it is.
    fn from(informer: Informer<K>) -> Self {
        let open: Open<K> = Box::new(move |_| Ok(informer));
        Self { open, changes: Changes::all(), resync: None }
    }
}

impl<K: Kept> fmt::Debug for Source<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("changes", &self.changes).field("resync", &self.resync).finish_non_exhaustive()
    }
}

/// Why a controller has no such source.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is no such informer.
    #[error(transparent)]
    Informer(#[from] InformerError),
    /// It was stopped.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

debug_as_message!(SourceError);
