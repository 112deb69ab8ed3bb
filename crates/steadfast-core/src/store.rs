//! Store of an informer: the state of every object in scope, for one writer and any number of readers.
//!
//! The writer edits a working copy and [publishes](Store::publish) it. Readers take the latest [`Snapshot`] and may
//! keep it for any time. Neither side waits for the other. Objects, version, epoch, tainted keys and indexes are
//! published together, so readers never see a mix of two states.
//!
//! [`difference`] derives the handlers' events from each edit, independent of its source. Within an epoch the store
//! rejects states that are older than the cached ones (C4).
//!
//! ```
//! # use std::sync::Arc;
//! # use steadfast_core::event::{Rules, StateSource};
//! # use steadfast_core::record::Identity;
//! # use steadfast_core::store::{Lookup, Store};
//! # use steadfast_core::{ObjectKey, ResourceVersion};
//! let mut store = Store::new(Rules::default());
//! let by_length = store.add_index(|text: &String| Some(text.len()));
//! let reader = store.reader();
//!
//! let identity = Identity { key: ObjectKey::namespaced("shop", "web"), uid: "u1".into(), version: "7".into() };
//! store.apply(identity, Ok(Arc::new("hello".to_owned())), &StateSource::Watched { deletion: None }, |change| {
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
mod objects;
mod pending_index;
mod snapshot;
mod staging;
mod vacant;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::event::{Change, Rules, StateSource, difference};
use crate::fault_injection::inject;
use crate::key::ObjectKey;
use crate::object::{Entry, WithSize};
use crate::on_demand::DecodedUse;
use crate::record::Identity;
use crate::slots::Slot;
use crate::uid::Uid;
use crate::version::ResourceVersion;

pub use entries::Tainted;
pub use index::{IndexSnapshot, StoreIndex};
pub use pending_index::PendingIndex;
pub use snapshot::{Footprint, Lookup, Snapshot, StoreReader};
pub use staging::{OfferResult, OlderList, Staging};

use entries::{Extractor, Replacement, entry, successor};
use indexed::Maintained;
use vacant::Vacant;

/// Writer's side of a store.
pub struct Store<K> {
    rules: Rules,
    /// Content of the next publication.
    working: Snapshot<K>,
    vacant: Vacant,
    edited: bool,
    indexes: Vec<Box<dyn Maintained<K>>>,
    published: Arc<ArcSwap<Snapshot<K>>>,
}

impl<K: Send + Sync + 'static> Store<K> {
    /// Creates an empty store.
    pub fn new(rules: Rules) -> Self {
        Self::with_hash_bits(rules, u32::MAX)
    }

    /// Creates an empty store that uses only the bits in `mask` of each key's hash. Tests create hash collisions with
    /// it.
    #[doc(hidden)]
    pub fn with_hash_bits(rules: Rules, mask: u32) -> Self {
        let working = Snapshot::empty(mask);
        let published = Arc::new(ArcSwap::from_pointee(working.clone()));
        Self { rules, working, vacant: Vacant::default(), edited: false, indexes: Vec::new(), published }
    }

    /// Returns a reader of this store.
    pub fn reader(&self) -> StoreReader<K> {
        StoreReader::new(self.published.clone())
    }

    /// Returns the working copy, including unpublished edits.
    pub fn working(&self) -> &Snapshot<K> {
        &self.working
    }

    /// Applies a state of an existing object. Passes each resulting change to the callback and returns whether the
    /// store changed.
    ///
    /// A state not above the cached version is rejected. An undecodable state taints the entry; the entry keeps the
    /// last decodable state of the object.
    pub fn apply(
        &mut self,
        identity: Identity,
        object: Result<impl Into<WithSize<K>>, Tainted>,
        source: &StateSource,
        on_change: impl FnMut(Change<K>),
    ) -> bool {
        let (incoming, decoded) = entry(identity, object);
        // `successor` rejects states that are not newer, so repeated records change nothing (C3,
        // C4).
        let replacement = match self.working.objects.get(incoming.key()) {
            Some((slot, held)) => match successor(held, incoming, inject!(self.rules.faults, RepeatedRecords)) {
                Some(new) => Replacement { slot, old: Some(held.clone()), new: Some(new), decoded, values: None },
                None => return false,
            },
            // `edit` takes this slot later: an index function may panic first.
            None => Replacement { slot: self.vacant.first(), old: None, new: Some(incoming), decoded, values: None },
        };
        self.edit(replacement, source, on_change);
        true
    }

    /// Removes the object `uid` at `key`. Passes the resulting change to the callback and returns whether the store
    /// changed.
    ///
    /// Another object with this name stays. A state newer than the deletion also stays, since the object has entered
    /// the scope again.
    pub fn remove(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        source: &StateSource,
        on_change: impl FnMut(Change<K>),
    ) -> bool {
        // The name may belong to a newer object, which a late deletion must not remove.
        let Some((slot, held)) = self.working.objects.get(key).filter(|(_, held)| held.uid().is_same(uid)) else {
            return false;
        };
        if let StateSource::Watched { deletion: Some(deletion) } = source
            && held.version().is_newer_than(deletion)
            && !inject!(self.rules.faults, RepeatedRecords)
        {
            return false;
        }
        let replacement = Replacement { slot, old: Some(held.clone()), new: None, decoded: None, values: None };
        self.edit(replacement, source, on_change);
        true
    }

    /// Taints the entry of `key`, after a reader found its state at `version` to be undecodable. Returns false if the
    /// store no longer has this state.
    ///
    /// No change is reported. The handlers already received the undecodable state, and the stay will end with this
    /// state.
    pub fn taint(&mut self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let Some((slot, held)) = self.working.objects.get(key) else { return false };
        // A newer state may have replaced this version while the decoder was running.
        let Some(object) = held.object().filter(|held| held.version() == version).cloned() else { return false };
        let entry = Entry::tainted(object.identity().clone(), Some(object));
        self.working.set_tainted(key, Some(&entry));
        self.working.objects.replace(slot, entry);
        self.edited = true;
        true
    }

    /// Returns the use of the object's decoded form since the last call. Returns `None` if the cache contains no
    /// decoded form next to an encoded one.
    pub fn sweep_decoded(&self, key: &ObjectKey) -> Option<DecodedUse> {
        self.working.objects.get(key)?.1.sweep_decoded()
    }

    /// Drops the decoded form of an object that the cache contains in encoded form too. Readers that have the decoded
    /// form keep it.
    pub fn drop_decoded(&mut self, key: &ObjectKey) {
        if let Some((slot, held)) = self.working.objects.get(key)
            && let Some(encoded) = held.without_decoded()
        {
            self.working.objects.replace(slot, encoded);
            self.edited = true;
        }
    }

    /// Advances the store to `version`; no change up to `version` may be missing. An older version has no effect.
    pub fn advance(&mut self, version: ResourceVersion) {
        if self.working.version.as_ref().is_none_or(|held| *held != version && !version.is_older_than(held)) {
            self.working.version = Some(version);
            self.edited = true;
        }
    }

    /// Makes all edits since the last publication visible in one step.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.edited) {
            return;
        }
        self.working.indexes = self.indexes.iter_mut().map(|index| index.publish()).collect();
        // The writer, not a reader, drops the content that only the old snapshot referenced.
        drop(self.published.swap(Arc::new(self.working.clone())));
    }

    /// Adds an index by the values that `extract` returns for an object: an `Option`, a `Vec` or another iterable.
    ///
    /// The returned index is already filled. It is published together with all other edits. `extract` must be
    /// deterministic.
    ///
    /// # Panics
    ///
    /// A panic of `extract` propagates. `extract` runs before an edit is applied, so the store stays unchanged if the
    /// caller catches the panic. If no edit may be lost, `extract` itself must catch the panic.
    pub fn add_index<I, V>(&mut self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> StoreIndex<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let (index, pending_index) = self.working.index(extract);
        self.add_filled_index(pending_index);
        self.publish();
        index
    }

    /// Adds an index that was filled from a [snapshot](Snapshot::index) of this store. From here on, edits maintain it.
    ///
    /// The index function is called only for the objects that changed since the snapshot. Readers find the index after
    /// the next publication.
    pub fn add_filled_index(&mut self, mut pending_index: PendingIndex<K>) {
        pending_index.catch_up_to(&self.working);
        self.indexes.push(pending_index.into_maintained());
        self.edited = true;
    }

    /// Starts a relist. Its entries are compared with the current state and stay invisible until the commit.
    pub fn begin_relist(&self) -> Staging<K> {
        Staging::new(self.working.objects.clone(), self.extractors())
    }

    /// Starts a relist of another history. No cached state can replace a listed one, since both histories may have
    /// assigned the same version.
    pub fn begin_new_epoch(&self) -> Staging<K> {
        Staging::new(self.working.objects.new_empty(), self.extractors())
    }

    fn extractors(&self) -> Box<[Extractor<K>]> {
        self.indexes.iter().map(|index| index.extractor()).collect()
    }

    /// Replaces the content by a complete list of the collection at `version`, and passes each change to the callback.
    ///
    /// Deletions are reported before additions and updates. If a port or a host name moved from one object to another
    /// between two watches, handlers therefore release it before they assign it again. Both groups are in the order of
    /// their keys.
    ///
    /// Within an epoch no object goes back to an older state. A new epoch accepts the list unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if the list is older than the store within the epoch.
    pub fn commit(
        &mut self,
        staging: Staging<K>,
        version: Option<ResourceVersion>,
        source: &StateSource,
        epoch_changed: bool,
        mut on_change: impl FnMut(Change<K>),
    ) -> Result<(), OlderList> {
        let any_age = epoch_changed || inject!(self.rules.faults, OlderList);
        if let (Some(held), Some(listed)) = (&self.working.version, &version)
            && listed.is_older_than(held)
            && !any_age
        {
            return Err(OlderList { listed: listed.clone(), held: held.clone() });
        }
        // An index function may panic in `prepare`, so slots are taken from a copy until then.
        let mut vacant = self.vacant.clone();
        let keeps_decoded = staging.keeps_decoded();
        let (slots, replacements) = staging.settle(&self.working.objects, &mut vacant, any_age);
        self.prepare(&replacements);
        self.vacant = vacant;
        self.apply_replacements(&replacements, Some(&slots));
        if keeps_decoded {
            replacements.iter().filter_map(|replacement| replacement.new.as_ref()).for_each(Entry::report_decoded);
        }
        self.working.version = version;
        self.working.epoch += u64::from(epoch_changed);
        self.edited = true;
        // For a replaced object, the first pass reports the end of the old stay and the second pass the start of the
        // new one. Only objects that were in the store can end.
        for deletions in [true, false] {
            for Replacement { old, new, .. } in replacements.iter().filter(|one| !deletions || one.old.is_some()) {
                difference(old.as_ref(), new.as_ref(), source, self.rules, |change| {
                    if change.event.is_deletion() == deletions {
                        on_change(change);
                    }
                });
            }
        }
        Ok(())
    }

    fn edit(&mut self, replacement: Replacement<K>, source: &StateSource, on_change: impl FnMut(Change<K>)) {
        let replacement = [replacement];
        self.prepare(&replacement);
        // The slot is taken after `prepare`, since a panic must leave it vacant.
        if replacement[0].old.is_none() {
            self.vacant.take();
        }
        self.apply_replacements(&replacement, None);
        self.edited = true;
        let [Replacement { old, new, decoded, .. }] = replacement;
        // Handlers receive the decoded object, which the cache does not contain. They drop it after their calls.
        let decoded = new.as_ref().zip(decoded).map(|(new, decoded)| Entry::known(new.with_decoded(decoded)));
        difference(old.as_ref(), decoded.as_ref().or(new.as_ref()), source, self.rules, on_change);
    }

    /// Computes the index values of the new objects. The index functions are user code and may panic, so no state is
    /// modified before all of them have returned.
    fn prepare(&mut self, replacements: &[Replacement<K>]) {
        for (number, index) in self.indexes.iter_mut().enumerate() {
            index.prepare(replacements, number);
        }
    }

    /// Applies the prepared replacements. If `order` is given, it must contain all slots in the order of their keys.
    fn apply_replacements(&mut self, replacements: &[Replacement<K>], order: Option<&[Slot]>) {
        // Tainted keys change together with the entries, so no snapshot mixes both states.
        for Replacement { old, new, .. } in replacements {
            if let Some(entry) = new.as_ref().or(old.as_ref()) {
                self.working.set_tainted(entry.key(), new.as_ref());
            }
        }
        for index in &mut self.indexes {
            index.remove_prepared(&self.working.objects);
        }
        let objects = &mut self.working.objects;
        match order.filter(|order| is_rearrangement(replacements, order.len())) {
            Some(order) => objects.rearrange(replacements, order),
            None => replacements.iter().for_each(|replacement| objects.edit(replacement)),
        }
        for index in &mut self.indexes {
            index.insert_prepared(&self.working.objects);
        }
        // A vacant slot must not be reused before the indexes have removed all references to its previous object.
        for removed in replacements.iter().filter(|replacement| replacement.new.is_none()) {
            self.vacant.give_back(removed.slot);
        }
        // `rearrange` of an empty store requires slots that start at 0.
        if self.working.is_empty() {
            self.vacant = Vacant::default();
        }
    }
}

/// Returns whether the number of changes makes it cheaper to rebuild hashes and order than to edit them.
fn is_rearrangement<K>(replacements: &[Replacement<K>], len: usize) -> bool {
    let adds_or_removes = |replacement: &&Replacement<K>| replacement.old.is_none() || replacement.new.is_none();
    replacements.iter().filter(adds_or_removes).count() > len / 8
}
