//! The store: what is known of every object in scope, for one writer and any number of readers.
//!
//! The writer edits a working copy and [publishes](Store::publish) it; readers take the latest [`Snapshot`] and keep it
//! as long as they like. Neither waits for the other. Objects, version, epoch, tainted keys and indexes are published
//! together, so that a reader never sees a mix.
//!
//! What an edit means to the handlers is decided by [`difference`], whichever way it came. The store goes forward only:
//! within an epoch it refuses states older than those it holds (C4).
//!
//! ```
//! # use std::sync::Arc;
//! # use steadfast_core::event::{Path, Rules};
//! # use steadfast_core::record::Identity;
//! # use steadfast_core::store::{Lookup, Store};
//! # use steadfast_core::{ObjectKey, ResourceVersion};
//! let mut store = Store::new(Rules::default());
//! let by_length = store.add_index(|text: &String| Some(text.len()));
//! let reader = store.reader();
//!
//! let identity = Identity { key: ObjectKey::namespaced("shop", "web"), uid: "u1".into(), version: "7".into() };
//! store.apply(identity, Ok(Arc::new("hello".to_owned())), &Path::Watched { deletion: None }, |change| {
//!     assert_eq!(change.event.name(), "Added");
//! });
//! store.advance(ResourceVersion::from("7"));
//! assert!(reader.snapshot().is_empty(), "nothing is seen before it is published");
//!
//! store.publish();
//! assert!(matches!(reader.get(Some("shop"), "web"), Lookup::Found(text) if *text == "hello"));
//! assert_eq!(reader.snapshot().by_index(&by_length, &5).count(), 1);
//! ```

mod entries;
mod index;
mod indexed;
mod joining;
mod objects;
mod snapshot;
mod staging;
mod vacant;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::breach::Breach;
use crate::event::{Change, Path, Rules, difference};
use crate::key::ObjectKey;
use crate::object::{Entry, Weighed};
use crate::record::Identity;
use crate::slots::Slot;
use crate::uid::Uid;
use crate::version::ResourceVersion;

pub use entries::Tainted;
pub use index::{Index, IndexSnapshot};
pub use joining::Joining;
pub use snapshot::{Footprint, Lookup, Snapshot, StoreReader};
pub use staging::{Offer, OlderList, Staging};

use entries::{Replacement, entry, successor};
use indexed::Maintained;
use vacant::Vacant;

/// The writer's side of a store.
pub struct Store<K> {
    rules: Rules,
    /// What the next publication will show.
    working: Snapshot<K>,
    vacant: Vacant,
    edited: bool,
    indexes: Vec<Box<dyn Maintained<K>>>,
    published: Arc<ArcSwap<Snapshot<K>>>,
}

impl<K: Send + Sync + 'static> Store<K> {
    /// An empty store.
    pub fn new(rules: Rules) -> Self {
        Self::with_hash_bits(rules, u32::MAX)
    }

    /// An empty store that looks at no other bits of a key's hash than those in `mask`, for tests of what happens when the
    /// hashes of many keys are the same.
    #[doc(hidden)]
    pub fn with_hash_bits(rules: Rules, mask: u32) -> Self {
        let working = Snapshot::empty(mask);
        let published = Arc::new(ArcSwap::from_pointee(working.clone()));
        Self { rules, working, vacant: Vacant::default(), edited: false, indexes: Vec::new(), published }
    }

    /// A reader's side of this store.
    pub fn reader(&self) -> StoreReader<K> {
        StoreReader::new(self.published.clone())
    }

    /// What the store holds, published or not.
    pub fn working(&self) -> &Snapshot<K> {
        &self.working
    }

    /// Takes a state of an object that exists, tells what that changed and returns whether it did.
    ///
    /// A state that is not newer than the one held is refused. One that could not be decoded taints the entry, which
    /// keeps the object's last state that could.
    pub fn apply(
        &mut self,
        identity: Identity,
        object: Result<impl Into<Weighed<K>>, Tainted>,
        path: &Path,
        tell: impl FnMut(Change<K>),
    ) -> bool {
        let came = entry(identity, object);
        let replacement = match self.working.objects.get(came.key()) {
            Some((slot, held)) => match successor(held, came, self.rules.breaches.commit(Breach::RepeatedRecords)) {
                Some(new) => Replacement { slot, old: Some(held.clone()), new: Some(new) },
                None => return false,
            },
            None => Replacement { slot: self.vacant.first(), old: None, new: Some(came) },
        };
        self.edit(replacement, path, tell);
        true
    }

    /// Takes the end of the object `uid` at `key`, tells it and returns whether anything changed.
    ///
    /// Another object of that name stays, and so does a state newer than the deletion: it has entered the scope again.
    pub fn remove(&mut self, key: &ObjectKey, uid: &Uid, path: &Path, tell: impl FnMut(Change<K>)) -> bool {
        let Some((slot, held)) = self.working.objects.get(key).filter(|(_, held)| held.uid().is_same(uid)) else {
            return false;
        };
        if let Path::Watched { deletion: Some(deletion) } = path
            && held.version().is_newer_than(deletion)
            && !self.rules.breaches.commit(Breach::RepeatedRecords)
        {
            return false;
        }
        self.edit(Replacement { slot, old: Some(held.clone()), new: None }, path, tell);
        true
    }

    /// Takes note that the state of `key` at `version` cannot be decoded after all; returns whether it is held.
    ///
    /// Nothing is told: what was given to the handlers is what there was to give, and ends as it.
    pub fn taint(&mut self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let Some((slot, held)) = self.working.objects.get(key) else { return false };
        let Some(object) = held.object().filter(|held| held.version() == version).cloned() else { return false };
        let entry = Entry::tainted(object.identity().clone(), Some(object));
        self.working.set_tainted(key, Some(&entry));
        self.working.objects.replace(slot, entry);
        self.edited = true;
        true
    }

    /// Takes note that nothing up to `version` is missing. An older version than the one held changes nothing.
    pub fn advance(&mut self, version: ResourceVersion) {
        if self.working.version.as_ref().is_none_or(|held| *held != version && !version.is_older_than(held)) {
            self.working.version = Some(version);
            self.edited = true;
        }
    }

    /// Makes all edits since the last publication visible at once.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.edited) {
            return;
        }
        self.working.indexes = self.indexes.iter_mut().map(|index| index.publish()).collect();
        // What only the old snapshot held is dropped here, by the writer.
        drop(self.published.swap(Arc::new(self.working.clone())));
    }

    /// Adds an index by the values that `extract` finds in an object: an `Option`, a `Vec` or any other iterable.
    ///
    /// It is filled when it is handed out, and published with all else. `extract` must answer the same for the same
    /// object. It is called before an edit takes place, so that if it panics, and the caller contains that, the store
    /// is as it was; an edit that must not be lost asks the caller to contain the panic within `extract`.
    pub fn add_index<I, V>(&mut self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Index<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let (index, joining) = self.working.index(extract);
        self.admit(joining);
        self.publish();
        index
    }

    /// Takes in an index that was filled from a [snapshot](Snapshot::index) of this store, and keeps it up from here on.
    ///
    /// Its function is asked here of what changed since the snapshot that it last followed, of nothing if that was this
    /// state. Readers find the index once that is published.
    pub fn admit(&mut self, mut joining: Joining<K>) {
        joining.follow(&self.working);
        self.indexes.push(joining.into_maintained());
        self.edited = true;
    }

    /// Begins a relist: what comes is compared with what is held now, and nothing of it is seen before the commit.
    pub fn begin_relist(&self) -> Staging<K> {
        Staging::new(self.working.objects.clone())
    }

    /// Begins a relist of another history: nothing that is held can represent what comes, for a version may have been
    /// given twice.
    pub fn begin_anew(&self) -> Staging<K> {
        Staging::new(self.working.objects.anew())
    }

    /// Replaces what is held by a complete list of the collection at `version`, and tells what changed.
    ///
    /// Deletions are told before additions and updates: a resource that moved from one object to another while nothing
    /// was watched (a port, a host name) is released before it is taken. Within both groups the order is that of the keys.
    ///
    /// Within an epoch no object goes back. A new epoch takes the list as it is.
    ///
    /// # Errors
    ///
    /// Nor does the collection go back within an epoch: a list older than the store is refused.
    pub fn commit(
        &mut self,
        staging: Staging<K>,
        version: Option<ResourceVersion>,
        path: &Path,
        epoch_changed: bool,
        mut tell: impl FnMut(Change<K>),
    ) -> Result<(), OlderList> {
        let any_age = epoch_changed || self.rules.breaches.commit(Breach::OlderList);
        if let (Some(held), Some(listed)) = (&self.working.version, &version)
            && listed.is_older_than(held)
            && !any_age
        {
            return Err(OlderList { listed: listed.clone(), held: held.clone() });
        }
        let mut vacant = self.vacant.clone();
        let (slots, replacements) = staging.settle(&self.working.objects, &mut vacant, any_age);
        self.prepare(&replacements);
        self.vacant = vacant;
        self.carry_out(&replacements, Some(&slots));
        self.working.version = version;
        self.working.epoch += u64::from(epoch_changed);
        self.edited = true;
        // Of a replaced object the first pass tells the end, the second the beginning.
        for Replacement { old, new, .. } in replacements.iter().filter(|replacement| replacement.old.is_some()) {
            difference(old.as_ref(), new.as_ref(), path, self.rules, |change| {
                if change.event.is_deletion() {
                    tell(change);
                }
            });
        }
        for Replacement { old, new, .. } in replacements {
            difference(old.as_ref(), new.as_ref(), path, self.rules, |change| {
                if !change.event.is_deletion() {
                    tell(change);
                }
            });
        }
        Ok(())
    }

    fn edit(&mut self, replacement: Replacement<K>, path: &Path, tell: impl FnMut(Change<K>)) {
        let replacement = [replacement];
        self.prepare(&replacement);
        if replacement[0].old.is_none() {
            self.vacant.take();
        }
        self.carry_out(&replacement, None);
        self.edited = true;
        let [Replacement { old, new, .. }] = replacement;
        difference(old.as_ref(), new.as_ref(), path, self.rules, tell);
    }

    /// Asks the functions of the indexes for the values of what is new. They are the user's and may panic, so that nothing
    /// is touched before all of them have answered.
    fn prepare(&mut self, replacements: &[Replacement<K>]) {
        for index in &mut self.indexes {
            index.prepare(replacements);
        }
    }

    /// Carries out what was prepared. Where `order` is given, it has all slots in the order of their keys.
    fn carry_out(&mut self, replacements: &[Replacement<K>], order: Option<&[Slot]>) {
        for Replacement { old, new, .. } in replacements {
            if let Some(entry) = new.as_ref().or(old.as_ref()) {
                self.working.set_tainted(entry.key(), new.as_ref());
            }
        }
        for index in &mut self.indexes {
            index.leave(&self.working.objects);
        }
        let objects = &mut self.working.objects;
        match order.filter(|order| is_rearrangement(replacements, order.len())) {
            Some(order) => objects.rearrange(replacements, order),
            None => replacements.iter().for_each(|replacement| objects.edit(replacement)),
        }
        for index in &mut self.indexes {
            index.enter(&self.working.objects);
        }
        // A slot that is vacant is not used again before all that stood in it is gone from the indexes.
        for gone in replacements.iter().filter(|replacement| replacement.new.is_none()) {
            self.vacant.give_back(gone.slot);
        }
        if self.working.is_empty() {
            self.vacant = Vacant::default();
        }
    }
}

/// Whether so much comes and goes that hashes and order are made anew sooner than edited.
fn is_rearrangement<K>(replacements: &[Replacement<K>], len: usize) -> bool {
    let comes_or_goes = |replacement: &&Replacement<K>| replacement.old.is_none() || replacement.new.is_none();
    replacements.iter().filter(comes_or_goes).count() > len / 8
}
