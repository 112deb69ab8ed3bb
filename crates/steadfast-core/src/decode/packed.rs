//! The bytes of a kept object: as they are, or as what differs from those of a sibling.
//!
//! Objects that one controller makes are alike: the pods of a deployment differ in their names, addresses and times, a
//! tenth of what they say. The first of a family is kept as it is, and others as LZ4 with that for a dictionary.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lz4_flex::block;

use crate::footprint::shared;
use crate::key::ObjectKey;

/// The bytes of an object.
pub(crate) enum Packed {
    /// As they are.
    Plain(Box<[u8]>),
    /// As they are, for others to be kept beside them.
    Base(Arc<Base>),
    /// What differs from a sibling's.
    Beside(Box<[u8]>, Arc<Base>),
}

/// The bytes that siblings are kept beside, as long as one of them is.
pub(crate) struct Base {
    bytes: Box<[u8]>,
    held: Arc<AtomicUsize>,
}

/// The families of one cache.
#[derive(Default)]
pub(crate) struct Families {
    bases: HashMap<u64, Weak<Base>>,
    /// When it has so many, those are forgotten of which nothing is kept.
    most: usize,
    /// How many bytes the bases have.
    held: Arc<AtomicUsize>,
    scratch: Vec<u8>,
}

/// The least that bases are looked through for.
const FEW: usize = 256;

/// LZ4 looks no farther back: in what is longer, a sibling's bytes would be out of its sight.
const WINDOW: usize = 60 * 1024;

/// What an object of so few bytes could save is less than what it costs to be kept in two parts.
const LITTLE: usize = 256;

impl Base {
    fn new(bytes: &[u8], held: &Arc<AtomicUsize>) -> Arc<Self> {
        held.fetch_add(footprint(bytes), Ordering::Relaxed);
        Arc::new(Self { bytes: bytes.into(), held: held.clone() })
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.held.fetch_sub(footprint(&self.bytes), Ordering::Relaxed);
    }
}

/// What a base of these bytes takes up.
fn footprint(bytes: &[u8]) -> usize {
    shared(size_of::<Base>()) + bytes.len()
}

impl Families {
    /// How many bytes those have that others are kept beside, whatever becomes of the objects that they were.
    pub(crate) fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// The bytes of the object at `key`, beside a sibling's if that saves a quarter of them.
    pub(super) fn pack(&mut self, key: &ObjectKey, bytes: &[u8]) -> Packed {
        if !(LITTLE..WINDOW).contains(&bytes.len()) {
            return Packed::plain(bytes);
        }
        let family = family(key);
        if let Some(base) = self.bases.get(&family).and_then(Weak::upgrade) {
            self.scratch.resize(block::get_maximum_output_size(bytes.len()), 0);
            // It fails only where there is too little room.
            let packed = block::compress_into_with_dict(bytes, &mut self.scratch, &base.bytes).unwrap_or(bytes.len());
            if packed <= bytes.len() / 4 * 3 {
                // Its length first, as the reader needs it.
                let length = (bytes.len() as u32).to_le_bytes();
                return Packed::Beside([&length, &self.scratch[..packed]].concat().into(), base);
            }
        }
        self.forget();
        let base = Base::new(bytes, &self.held);
        self.bases.insert(family, Arc::downgrade(&base));
        Packed::Base(base)
    }

    /// Forgets families of which nothing is left, when there are many.
    fn forget(&mut self) {
        if self.bases.len() >= self.most {
            self.bases.retain(|_, base| base.strong_count() > 0);
            self.most = (self.bases.len() * 2).max(FEW);
        }
    }
}

/// Which objects are alike, most likely: those of one generated name in one namespace, and of the deployment above it. A
/// collision costs bytes alone.
fn family(key: &ObjectKey) -> u64 {
    let name = without_suffix(key.name()).unwrap_or(key.name());
    let name = without_suffix(name).filter(|above| is_generated(&name[above.len() + 1..])).unwrap_or(name);
    let bytes = key.namespace().unwrap_or_default().bytes().chain([0]).chain(name.bytes());
    // FNV-1a.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn without_suffix(name: &str) -> Option<&str> {
    name.rsplit_once('-').map(|(name, _)| name)
}

/// Whether a part of a name is a hash as Kubernetes writes them, in the letters that make no words (`SafeEncodeString` of
/// `k8s.io/apimachinery`).
fn is_generated(part: &str) -> bool {
    part.len() >= 5 && part.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
}

impl Packed {
    /// These bytes, as they are.
    pub(super) fn plain(bytes: &[u8]) -> Self {
        Self::Plain(bytes.into())
    }

    /// The bytes as they came.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Base(base) => Cow::Borrowed(&base.bytes),
            // It is what was packed here; were it not, nothing would be read, and that does not fit whatever is wanted.
            Self::Beside(packed, base) => {
                Cow::Owned(block::decompress_size_prepended_with_dict(packed, &base.bytes).unwrap_or_default())
            }
        }
    }

    /// What it takes up beyond itself and bases, in bytes.
    pub(super) fn footprint(&self) -> usize {
        match self {
            Self::Plain(bytes) | Self::Beside(bytes, _) => bytes.len(),
            Self::Base(_) => 0,
        }
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
    fn whatever_comes_and_goes_is_read_as_it_came_and_siblings_take_little() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut families = Families::default();
            let mut kept: Vec<(Vec<u8>, Packed)> = Vec::new();
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
            let all = own + families.held().load(Ordering::Relaxed);
            assert!(all * 2 < plain, "seed {seed}: {all} bytes for {plain}");
            drop(kept);
            assert_eq!(families.held().load(Ordering::Relaxed), 0, "seed {seed}");
        }
    }

    #[test]
    fn pods_of_a_deployment_and_of_a_stateful_set_are_siblings() {
        let family = |name: &str| family(&ObjectKey::namespaced("shop", name));
        assert_eq!(family("web-7d4b9c6f5-x2x9k"), family("web-7d4b9c6f5-b8wzl"));
        assert_eq!(family("web-7d4b9c6f5-x2x9k"), family("web-5c8d7f9b4-b8wzl"), "a roll-out changes little");
        assert_eq!(family("db-0"), family("db-1"));
        assert_ne!(family("web-7d4b9c6f5-x2x9k"), family("db-7d4b9c6f5-x2x9k"));
        assert_ne!(family("web-front-1"), family("web-back-1"), "a word is no hash");
        assert_ne!(family("web"), super::family(&ObjectKey::namespaced("other", "web")));
    }

    #[test]
    fn families_of_which_nothing_is_kept_are_forgotten() {
        let mut families = Families::default();
        for owner in 0..10_000 {
            let (key, bytes) = pod(owner, 1, 1);
            drop(families.pack(&key, &bytes));
        }
        assert!(families.bases.len() <= FEW, "{}", families.bases.len());
    }

    #[test]
    fn what_is_small_or_long_or_unlike_its_siblings_is_kept_as_it_is() {
        let mut families = Families::default();
        let key = ObjectKey::namespaced("shop", "web-1");
        assert!(matches!(families.pack(&key, &[b'x'; LITTLE - 1]), Packed::Plain(_)));
        assert!(matches!(families.pack(&key, &vec![b'x'; WINDOW]), Packed::Plain(_)));
        let noise = |seed: u64| -> Vec<u8> {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.draw() as u8).collect()
        };
        let first = families.pack(&key, &noise(1));
        let unlike = families.pack(&key, &noise(2));
        assert!(matches!((first, unlike), (Packed::Base(_), Packed::Base(_))));
    }
}
