//! Where a controller's keys come from.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast::{
    Call, DynamicType, Event, Handler, Informer, InformerError, InformerFactory, Kept, Object, ObjectKey, Registration,
    Scope, Writes,
};

use super::all::{Again, All};
use super::changes::Changes;
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Notes;
use super::figures::Counted;
use super::primary::Primary;
use super::sights::Sights;
use super::source_error::SourceError;
use super::stage::Stage;
use crate::panics::told;
use crate::workqueue::{Priority, Workqueue};

/// Objects whose changes a controller follows: a [`Scope`], or an [`Informer`] that there is already, and which changes count.
///
/// Of several namespaces, [`namespaces`](Self::namespaces) follows one informer each, for programs that have permissions in
/// those alone. The same is made of several scopes or informers: `Source::from(vec![…])`.
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

type Open<K> = Box<dyn FnOnce(&InformerFactory) -> Result<Vec<Informer<K>>, InformerError> + Send>;

/// Ends what a source gives.
pub(super) type Detach = Box<dyn Fn() + Send + Sync>;

impl<K: Kept> Source<K> {
    /// All changes of the objects in `namespaces`, by one informer for each. A program needs permissions in these namespaces
    /// only.
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use steadfast_controller::Source;
    /// let deployments = Source::<Deployment>::namespaces(["team-a", "team-b"]);
    /// ```
    pub fn namespaces<N: Into<String>>(namespaces: impl IntoIterator<Item = N>) -> Self
    where
        DynamicType<K>: Default,
    {
        namespaces.into_iter().map(Scope::namespace).collect::<Vec<_>>().into()
    }

    /// Counts only the changes that `changes` selects. Defaults to all changes.
    ///
    /// A change that maps the object to other keys always counts, for example when a child gets another owner.
    pub fn on(mut self, changes: Changes<K::Resource>) -> Self {
        self.changes = changes;
        self
    }

    /// Each object counts as changed once in such a period, whether it did or not; never unless it is said.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Opens the source's informers; at least one.
    pub(super) fn open(self, factory: &InformerFactory) -> Result<(Self, Vec<Informer<K>>), SourceError> {
        let informers = (self.open)(factory)?;
        if informers.is_empty() {
            return Err(SourceError::Empty);
        }
        let opened = informers.clone();
        Ok((Self { open: Box::new(|_| Ok(opened)), ..self }, informers))
    }

    /// Has the keys that `keys` names for an object added to the queue when it has changed, and called for when all caches have
    /// seen that. Returns what ends that.
    pub(super) fn attach<I>(
        self,
        links: &Links,
        strays: Option<Strays>,
        keys: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Result<Detach, SourceError>
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        let Self { open, changes, resync } = self;
        let Links { factory, queue, sights, all, stage, notes, .. } = links;
        let keys: Keys<K> = Arc::new(move |object, add| keys(object).into_iter().for_each(add));
        let strays = strays.map(Arc::new);
        let mut registrations: Vec<Registration<K>> = Vec::new();
        for informer in open(factory)? {
            let handler = informer.handler().deliver_each(ONE_BY_ONE);
            let handler = match resync {
                Some(period) => handler.resync(period),
                None => handler,
            };
            let leads = Leads {
                informer: informer.clone(),
                factory: factory.clone(),
                changes: changes.clone(),
                keys: keys.clone(),
                strays: strays.clone(),
                queue: queue.clone(),
                sights: sights.clone(),
                again: all.follow(&informer, factory),
                stage: stage.clone(),
                notes: notes.clone(),
            };
            match handler.add_handler(leads) {
                Ok(registration) => registrations.push(registration),
                Err(error) => {
                    // The others are of no use alone.
                    for registration in &registrations {
                        registration.remove();
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(Box::new(move || {
            for registration in &registrations {
                registration.remove();
            }
        }))
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
    /// The controller's own objects.
    pub(super) primary: Primary,
    pub(super) counted: Arc<Counted>,
    /// Whether keys are reconciled whatever is in the cache of the controller's own objects.
    pub(super) by_key: bool,
}

impl Links {
    /// Checks the keys of the source `name`, unless every key is reconciled.
    pub(super) fn strays(&self, name: &str) -> Option<Strays> {
        (!self.by_key).then(|| Strays {
            source: name.to_owned(),
            primary: self.primary.clone(),
            counted: self.counted.clone(),
            notes: self.notes.clone(),
            is_reported: AtomicBool::new(false),
        })
    }
}

/// Keys of one source that no object of the controller can have: they are never reconciled.
pub(super) struct Strays {
    source: String,
    primary: Primary,
    counted: Arc<Counted>,
    notes: Notes,
    is_reported: AtomicBool,
}

impl Strays {
    /// Returns false if `key` cannot be reconciled; the first such key is reported.
    pub(super) fn admit(&self, key: &ObjectKey) -> bool {
        let is_admitted = self.primary.can_have(key);
        if !is_admitted {
            Counted::one(&self.counted.outside_scope);
            if !self.is_reported.swap(true, Ordering::Relaxed) {
                let (source, key, scope) = (self.source.clone(), key.clone(), self.primary.name().to_owned());
                self.notes.tell(&ControllerDiagnostic::OutsideScope { source, key, scope });
            }
        }
        is_admitted
    }
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
    strays: Option<Arc<Strays>>,
    queue: Workqueue<ObjectKey>,
    sights: Sights,
    again: Again,
    stage: Stage,
    notes: Notes,
}

/// Hands on the keys that an object leads to.
type Keys<K> = Arc<dyn Fn(&Object<K>, &mut dyn FnMut(ObjectKey)) + Send + Sync>;

/// The keys that a state of an object maps to.
struct Mapped {
    /// In order, each key once.
    keys: Vec<ObjectKey>,
    /// False if the mapping panicked: then other keys may be missing.
    is_complete: bool,
}

impl Mapped {
    /// Returns false if another state may map to other keys.
    fn is_same(&self, other: &Self) -> bool {
        self.is_complete && other.is_complete && self.keys == other.keys
    }
}

impl<K: Kept> Leads<K> {
    /// Maps `object` to its keys. If the mapping panics, all keys are requested.
    fn map(&self, object: &Object<K>) -> Mapped {
        let mut keys = Vec::new();
        let mapped = catch_unwind(AssertUnwindSafe(|| (self.keys)(object, &mut |key| keys.push(key))));
        keys.sort_unstable();
        keys.dedup();
        let is_complete = mapped.is_ok();
        if let Err(panic) = mapped {
            let what = "what maps objects to keys";
            self.notes.tell(&ControllerDiagnostic::Broken { what, message: told(panic) });
            self.again.ask();
        }
        Mapped { keys, is_complete }
    }
}

impl<K: Kept> Handler<K> for Leads<K> {
    fn handle(&self, event: Event<K>, call: Call) {
        if call.missed > 0 {
            self.again.ask();
        }
        let priority = match &event {
            // One that has changed before it was told for the first time is as urgent as any that has.
            Event::Added { initial: true, .. } if call.changes <= 1 => Priority::LOW,
            Event::Resynced { .. } => Priority::LOW,
            _ => Priority::NORMAL,
        };
        let mut mapped = self.map(event.object());
        if let Event::Updated { old, new } = &event {
            let before = self.map(old);
            // The filter of changes must not hide that the object maps to other keys now: an owner that has lost a child,
            // and one that has gained it, learn of that from this event alone.
            if before.is_same(&mapped) && !self.changes.matter::<K>(old, new) {
                return;
            }
            mapped.keys.extend(before.keys);
            mapped.keys.sort_unstable();
            mapped.keys.dedup();
        }
        let unseen = match &event {
            // No first call is made before the others have come as far as this cache was then.
            Event::Added { initial: true, .. } if !self.stage.is_working() => Writes::default(),
            Event::Resynced { .. } => Writes::default(),
            _ => self.factory.unseen_elsewhere(&self.informer, &event),
        };
        if let Some(strays) = &self.strays {
            mapped.keys.retain(|key| strays.admit(key));
        }
        for key in mapped.keys {
            if !unseen.is_empty() {
                self.sights.need(&key, unseen.clone());
            }
            self.queue.add_with(key, priority);
        }
    }
}

impl<K: Kept> From<Scope> for Source<K>
where
    DynamicType<K>: Default,
{
    /// All changes of the objects in `scope`, by an informer of the controller's factory.
    fn from(scope: Scope) -> Self {
        vec![scope].into()
    }
}

impl<K: Kept> From<Vec<Scope>> for Source<K>
where
    DynamicType<K>: Default,
{
    /// All changes of the objects in `scopes`, by one informer of the controller's factory for each.
    fn from(scopes: Vec<Scope>) -> Self {
        let open: Open<K> = Box::new(|factory| scopes.into_iter().map(|scope| factory.informer(scope)).collect());
        Self { open, changes: Changes::all(), resync: None }
    }
}

impl<K: Kept> From<Informer<K>> for Source<K> {
    /// All changes that `informer` sees: one with choices of its own, or of a type that says at run time what it is.
    fn from(informer: Informer<K>) -> Self {
        vec![informer].into()
    }
}

impl<K: Kept> From<Vec<Informer<K>>> for Source<K> {
    /// All changes that any of `informers` sees.
    fn from(informers: Vec<Informer<K>>) -> Self {
        let open: Open<K> = Box::new(move |_| Ok(informers));
        Self { open, changes: Changes::all(), resync: None }
    }
}

impl<K: Kept> fmt::Debug for Source<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("changes", &self.changes).field("resync", &self.resync).finish_non_exhaustive()
    }
}
