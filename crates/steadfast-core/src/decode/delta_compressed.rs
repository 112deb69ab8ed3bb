//! Bytes of a kept object: verbatim, or as the difference to a similar object.
//!
//! Objects of one controller are similar. The pods of a deployment differ only in a tenth of their content: names,
//! addresses and times. Objects with similar names in one namespace form a *family*. The first object of a family is
//! the LZ4 dictionary for the others. All objects of a kind share some words, so the dictionary may itself be
//! compressed with a root dictionary, the first object of another family. The root is kept verbatim, so each read needs
//! at most two dictionaries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lz4_flex::block;

use crate::footprint::shared;
use crate::hash::Fnv1a;
use crate::key::ObjectKey;

/// Bytes of an object.
// The two fields represent three cases. An enum of these cases could need additional space for its tag.
#[derive(Clone)]
pub(crate) struct DeltaCompressed {
    /// Verbatim bytes, or the uncompressed length followed by the compressed bytes; empty for the base object itself.
    /// Shared between the copies of an entry: separate copies would lie between decoded objects in memory, and fragment
    /// the memory that the dropped objects return.
    own: Arc<[u8]>,
    base: Option<Arc<Base>>,
}

/// Dictionary of a family. Dropped with the last object of the family.
struct Base {
    /// Dictionary: verbatim, or compressed with the root dictionary, which is verbatim.
    packed: DeltaCompressed,
    /// Uncompressed length in bytes.
    length: usize,
    dictionary_bytes: Arc<AtomicUsize>,
}

/// Dictionaries of one cache, one for each family.
#[derive(Default)]
pub(crate) struct DictionaryGroups {
    bases: HashMap<u64, Weak<Base>>,
    /// Number of families at which unused families are removed.
    cleanup_threshold: usize,
    /// Root dictionary, with which bases are compressed.
    root: Weak<Base>,
    /// Number of bytes of the bases.
    dictionary_bytes: Arc<AtomicUsize>,
    scratch: Vec<u8>,
}

/// Minimum number of families before unused families are removed.
const MIN_CLEANUP_FAMILIES: usize = 256;

/// Window of LZ4. In longer texts, the bytes of a similar object would be outside of the window.
const LZ4_WINDOW: usize = 60 * 1024;

/// Minimum length for compression, in bytes. Shorter objects save less than the additional allocation costs.
const MIN_COMPRESSED_BYTES: usize = 256;

/// Maximum length of a dictionary, as a multiple of the object's length. An object that is the last user of a
/// dictionary keeps the whole dictionary in memory.
const MAX_DICTIONARY_FACTOR: usize = 2;

impl Base {
    fn new(packed: DeltaCompressed, length: usize, dictionary_bytes: &Arc<AtomicUsize>) -> Arc<Self> {
        let base = Self { packed, length, dictionary_bytes: dictionary_bytes.clone() };
        dictionary_bytes.fetch_add(base.footprint(), Ordering::Relaxed);
        Arc::new(base)
    }

    /// Returns the memory in bytes.
    fn footprint(&self) -> usize {
        shared(size_of::<Self>()) + self.packed.footprint()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.dictionary_bytes.fetch_sub(self.footprint(), Ordering::Relaxed);
    }
}

impl DictionaryGroups {
    /// Returns the counter of the dictionaries' bytes. A dictionary may outlive the object from which it was made.
    pub(crate) fn dictionary_bytes(&self) -> &Arc<AtomicUsize> {
        &self.dictionary_bytes
    }

    /// Packs the bytes of the object at `key`, with a dictionary if that saves a quarter of them.
    pub(super) fn pack(&mut self, key: &ObjectKey, bytes: &[u8]) -> DeltaCompressed {
        if !(MIN_COMPRESSED_BYTES..LZ4_WINDOW).contains(&bytes.len()) {
            return DeltaCompressed::plain(bytes);
        }
        let family = family(key);
        let base = self.bases.get(&family).and_then(Weak::upgrade);
        if let Some(packed) = base.and_then(|base| self.compress_with(base, bytes)) {
            return packed;
        }
        // The removal precedes the insertion, so the map stays below twice the number of families in use.
        self.remove_unused();
        // The object starts a family and becomes its dictionary, compressed with the root if both
        // are similar.
        let compressed = self.root.upgrade().and_then(|root| self.compress_with(root, bytes));
        let is_root = compressed.is_none();
        let packed = compressed.unwrap_or_else(|| DeltaCompressed::plain(bytes));
        let base = Base::new(packed, bytes.len(), &self.dictionary_bytes);
        self.bases.insert(family, Arc::downgrade(&base));
        // Only a verbatim dictionary can be the root, since a read follows at most two levels.
        if is_root {
            self.root = Arc::downgrade(&base);
        }
        DeltaCompressed { own: Arc::default(), base: Some(base) }
    }

    /// Compresses the bytes with `base`, if that saves a quarter of them.
    fn compress_with(&mut self, base: Arc<Base>, bytes: &[u8]) -> Option<DeltaCompressed> {
        if base.length > MAX_DICTIONARY_FACTOR * bytes.len() {
            return None;
        }
        // The uncompressed length comes first, since the reader needs this length first.
        let length = (bytes.len() as u32).to_le_bytes();
        self.scratch.resize(length.len() + block::get_maximum_output_size(bytes.len()), 0);
        let (first, rest) = self.scratch.split_at_mut(length.len());
        first.copy_from_slice(&length);
        // The compression fails only if the output does not fit.
        let packed = block::compress_into_with_dict(bytes, rest, &base.packed.bytes()).ok()?;
        let own = &self.scratch[..length.len() + packed];
        (packed <= bytes.len() / 4 * 3).then(|| DeltaCompressed { own: own.into(), base: Some(base) })
    }

    /// Removes families without objects, if there are many.
    fn remove_unused(&mut self) {
        if self.bases.len() >= self.cleanup_threshold {
            self.bases.retain(|_, base| base.strong_count() > 0);
            self.cleanup_threshold = (self.bases.len() * 2).max(MIN_CLEANUP_FAMILIES);
        }
    }
}

/// Returns a hash of the namespace and of the name without its generated suffixes. Objects with an equal hash, such as
/// the pods of one deployment, are most likely similar. A collision only costs memory.
fn family(key: &ObjectKey) -> u64 {
    let name = without_suffix(key.name()).unwrap_or(key.name());
    // The name of a pod contains two generated parts: the hash of the `ReplicaSet` and a suffix of
    // its own.
    let name = without_suffix(name).filter(|above| is_generated(&name[above.len() + 1..])).unwrap_or(name);
    let mut hash = Fnv1a::new();
    for part in [key.namespace().unwrap_or_default().as_bytes(), &[0], name.as_bytes()] {
        hash.write(part);
    }
    hash.finish()
}

fn without_suffix(name: &str) -> Option<&str> {
    name.rsplit_once('-').map(|(name, _)| name)
}

/// Returns whether a part of a name is a hash of Kubernetes, in an alphabet that forms no words (`SafeEncodeString` of
/// `k8s.io/apimachinery`).
fn is_generated(part: &str) -> bool {
    part.len() >= 5 && part.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
}

impl DeltaCompressed {
    /// Keeps the bytes verbatim.
    pub(super) fn plain(bytes: &[u8]) -> Self {
        Self { own: bytes.into(), base: None }
    }

    /// Returns the original bytes.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.base {
            None => Cow::Borrowed(&self.own),
            Some(base) if self.own.is_empty() => base.packed.bytes(),
            // The bytes were compressed here, so decompression succeeds. If it failed, the result would be empty and
            // would fit no type.
            Some(base) => {
                let dictionary = base.packed.bytes();
                Cow::Owned(block::decompress_size_prepended_with_dict(&self.own, &dictionary).unwrap_or_default())
            }
        }
    }

    /// Returns the memory beyond the value itself and beyond the bases, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        // All empty slices share one allocation.
        if self.own.is_empty() { 0 } else { shared(self.own.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn pod(owner: usize, number: u64, revision: u64) -> (ObjectKey, Vec<u8>) {
        let key = ObjectKey::namespaced("shop", format!("web-{owner}-{number}"));
        let noise = |seed: u64| (0..30).map(move |step| (seed + step * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let same: Vec<String> = noise(owner as u64).map(|word| format!("{word:x}")).collect();
        let own: Vec<String> = noise(1000 + number * 31 + revision).take(5).map(|word| format!("{word:x}")).collect();
        (key, format!(r#"{{"spec":{same:?},"status":{own:?}}}"#).into_bytes())
    }

    #[test]
    fn packed_objects_are_small_and_read_unchanged() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut families = DictionaryGroups::default();
            let mut kept: Vec<(Vec<u8>, DeltaCompressed)> = Vec::new();
            for _ in 0..2_000 {
                if kept.len() > 200 || random.draw().is_multiple_of(3) && !kept.is_empty() {
                    kept.swap_remove(random.draw() as usize % kept.len());
                } else {
                    let (key, bytes) = pod(random.draw() as usize % 20, random.draw() % 20, random.draw() % 50);
                    kept.push((bytes.clone(), families.pack(&key, &bytes)));
                }
            }
            assert!(kept.iter().all(|(bytes, packed)| *packed.bytes() == **bytes), "seed {seed}");
            let plain: usize = kept.iter().map(|(bytes, _)| bytes.len()).sum();
            let own: usize = kept.iter().map(|(_, packed)| packed.footprint()).sum();
            let all = own + families.dictionary_bytes().load(Ordering::Relaxed);
            assert!(all * 2 < plain, "seed {seed}: {all} bytes for {plain}");
            drop(kept);
            assert_eq!(families.dictionary_bytes().load(Ordering::Relaxed), 0, "seed {seed}");
        }
    }

    #[test]
    fn pods_of_one_controller_form_a_family() {
        let family = |name: &str| family(&ObjectKey::namespaced("shop", name));
        assert_eq!(family("web-7d4b9c6f5-x2x9k"), family("web-7d4b9c6f5-b8wzl"));
        assert_eq!(family("web-7d4b9c6f5-x2x9k"), family("web-5c8d7f9b4-b8wzl"), "a roll-out changes little");
        assert_eq!(family("db-0"), family("db-1"));
        assert_ne!(family("web-7d4b9c6f5-x2x9k"), family("db-7d4b9c6f5-x2x9k"));
        assert_ne!(family("web-front-1"), family("web-back-1"), "a word is not a hash");
        assert_ne!(family("web"), super::family(&ObjectKey::namespaced("other", "web")));
    }

    #[test]
    fn unused_families_are_removed() {
        let mut families = DictionaryGroups::default();
        for owner in 0..10_000 {
            let (key, bytes) = pod(owner, 1, 1);
            drop(families.pack(&key, &bytes));
        }
        assert!(families.bases.len() <= MIN_CLEANUP_FAMILIES, "{}", families.bases.len());
    }

    #[test]
    fn unsuitable_objects_are_kept_verbatim() {
        let mut families = DictionaryGroups::default();
        let key = ObjectKey::namespaced("shop", "web-1");
        assert!(families.pack(&key, &[b'x'; MIN_COMPRESSED_BYTES - 1]).base.is_none());
        assert!(families.pack(&key, &vec![b'x'; LZ4_WINDOW]).base.is_none());
        let noise = |seed: u64| -> Vec<u8> {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.draw() as u8).collect()
        };
        for seed in 0..3 {
            let packed = families.pack(&key, &noise(seed));
            let base = packed.base.as_ref().expect("the object is the base for others");
            assert!(packed.own.is_empty() && base.packed.base.is_none() && *packed.bytes() == *noise(seed));
        }
    }

    #[test]
    fn dictionaries_chain_at_most_twice() {
        let mut families = DictionaryGroups::default();
        let kept: Vec<(Vec<u8>, DeltaCompressed)> = (0..300)
            .map(|number| {
                // Words of all objects, of a family, and of each object.
                let words = |seed: u64, count: usize| {
                    let mut random = Random::new(seed);
                    (0..count).map(|_| format!("{:x}", random.draw())).collect::<Vec<_>>().concat()
                };
                let bytes = [words(0, 50), words(1 + number / 3, 10), words(1_000 + number, 3)].concat().into_bytes();
                let key = ObjectKey::namespaced("shop", format!("web{}-{number}", number / 3));
                (bytes.clone(), families.pack(&key, &bytes))
            })
            .collect();
        let depth = |mut packed: &DeltaCompressed| {
            let mut depth = 0;
            while let Some(base) = &packed.base {
                depth += usize::from(!packed.own.is_empty());
                packed = &base.packed;
            }
            depth
        };
        let depths: Vec<usize> = kept.iter().map(|(_, packed)| depth(packed)).collect();
        assert_eq!(depths[..6], [0, 1, 1, 1, 2, 2]);
        assert_eq!(depths.iter().max(), Some(&2));
        assert!(kept.iter().all(|(bytes, packed)| *packed.bytes() == **bytes));
        let plain: usize = kept.iter().map(|(bytes, _)| bytes.len()).sum();
        let all = kept.iter().map(|(_, packed)| packed.footprint()).sum::<usize>()
            + families.dictionary_bytes().load(Ordering::Relaxed);
        assert!(all * 4 < plain, "{all} bytes for {plain}");
    }

    #[test]
    fn remaining_object_keeps_no_large_dictionary() {
        for seed in 0..5 {
            let mut random = Random::new(seed);
            let mut families = DictionaryGroups::default();
            let mut kept: Vec<(Vec<u8>, DeltaCompressed)> = Vec::new();
            for number in 0..1_000 {
                // The names form three families, and each family has objects of all lengths.
                let length = 1 << (random.draw() % 16);
                let word = format!("{:x}", random.draw() % 8).repeat(1 + random.draw() as usize % 50);
                let bytes: Vec<u8> = word.bytes().cycle().take(length + random.draw() as usize % length).collect();
                let key = ObjectKey::namespaced("shop", format!("web{}-{number}", random.draw() % 3));
                kept.push((bytes.clone(), families.pack(&key, &bytes)));
            }
            for left in [300, 30, 3, 1] {
                while kept.len() > left {
                    kept.swap_remove(random.draw() as usize % kept.len());
                }
                assert!(kept.iter().all(|(bytes, packed)| *packed.bytes() == **bytes), "seed {seed}");
                let plain: usize = kept.iter().map(|(bytes, _)| bytes.len()).sum();
                let dictionary_bytes = families.dictionary_bytes().load(Ordering::Relaxed);
                let limit = plain * (MAX_DICTIONARY_FACTOR + MAX_DICTIONARY_FACTOR * MAX_DICTIONARY_FACTOR)
                    + kept.len() * 2 * shared(size_of::<Base>());
                assert!(dictionary_bytes <= limit, "seed {seed}, {left} left: {dictionary_bytes} bytes for {plain}");
            }
        }
    }
}
