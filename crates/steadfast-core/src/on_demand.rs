//! Encoded objects of caches of decoded types: decoded on demand, and only while the decoded form is in use.
//!
//! A decoded pod needs ten to thirty times the memory of its packed bytes. A cache therefore contains the bytes. The
//! object was decoded once when it arrived, so its bytes are known to fit the type.
//!
//! Readers wait for no other reader. Two threads that read one object for the first time may both decode it; all
//! readers share the first result. The decoded form stays with the entry. To drop it, the writer of the store replaces
//! the entry by a copy without it (`OnDemand::without_decoded`), as it replaces entries by newer states. Handles and
//! snapshots with the previous entry keep their decoded form, so a borrowed object never disappears.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::decode::{DecodeError, DeltaCompressed, Encoding};
use crate::footprint::shared;
use crate::key::ObjectKey;
use crate::path::FieldPath;
use crate::protobuf::{Found, MessageType, decode_field};
use crate::record::Identity;

/// Encoded object with its decoded form, if any.
pub struct OnDemand<K> {
    packed: DeltaCompressed,
    form: Form,
    /// Memory of the decoded form in bytes, at most 4 GB.
    decoded_bytes: u32,
    /// Set if an earlier decoded form of this state was dropped.
    again: bool,
    /// Use of the decoded form, one of the constants below.
    mark: AtomicU8,
    decoded: OnceLock<Arc<K>>,
    shared: Arc<Shared<K>>,
}

/// Encoding of the bytes, and the message type of protobuf.
pub(crate) type Form = (Encoding, Option<MessageType>);

/// Function that decodes the bytes of an object.
pub(crate) type Decode<K> = fn(Form, &[u8], &Identity) -> Result<K, DecodeError>;

/// Callback for an object whose decoded form was created for its cache entry. The second argument is its memory in
/// bytes.
pub type Decoded = Arc<dyn Fn(&ObjectKey, usize) + Send + Sync>;

/// State that the objects of one cache share.
pub(crate) struct Shared<K> {
    decode: Decode<K>,
    decoded: Decoded,
}

impl<K> Shared<K> {
    pub(crate) fn new(decode: Decode<K>, decoded: Decoded) -> Self {
        Self { decode, decoded }
    }
}

/// The decoded form is newer than the last sweep.
const NEW: u8 = 0;

/// The decoded form was not read since the last sweep.
const IDLE: u8 = 1;

/// The decoded form was read since the last sweep.
const READ: u8 = 2;

/// The object belongs to one handle and not to a cache. The end of the handle drops the decoded form.
const PRIVATE: u8 = 3;

/// Use of a decoded form between two sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedUse {
    /// Decoded since the last sweep. `again` is set if the object was decoded before and its decoded form was dropped.
    New {
        /// Set for a repeated decode of one state.
        again: bool,
    },
    /// Decoded before the last sweep and read since.
    Read,
    /// Not read since the last sweep.
    Idle,
}

impl<K> OnDemand<K> {
    /// Creates the object of `packed` bytes. `decoded_bytes` is the memory of the decoded form.
    pub(crate) fn new(packed: DeltaCompressed, form: Form, decoded_bytes: usize, shared: Arc<Shared<K>>) -> Self {
        Self {
            packed,
            form,
            decoded_bytes: u32::try_from(decoded_bytes).unwrap_or(u32::MAX),
            again: false,
            mark: AtomicU8::new(NEW),
            decoded: OnceLock::new(),
            shared,
        }
    }

    /// Returns the memory without the decoded form and without dictionaries, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        size_of::<Self>() + self.packed.footprint()
    }

    /// Returns the memory of the decoded form in bytes.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.decoded_bytes as usize
    }

    /// Returns whether the decoded form exists.
    pub(crate) fn is_decoded(&self) -> bool {
        self.decoded.get().is_some()
    }

    /// Returns the decoded form, and keeps it for later reads.
    #[inline]
    pub(crate) fn get(&self, identity: &Identity) -> &Arc<K> {
        match self.decoded.get() {
            Some(decoded) => {
                // Written only once for each sweep, so that readers on several processors share the cache line.
                if self.mark.load(Ordering::Relaxed) == IDLE {
                    self.mark.store(READ, Ordering::Relaxed);
                }
                decoded
            }
            None => self.fill(identity),
        }
    }

    /// Calls `read` with the decoded form, which is kept only if it exists already.
    pub(crate) fn read<T>(&self, identity: &Identity, read: impl FnOnce(&K) -> T) -> T {
        match self.decoded.get() {
            Some(decoded) => read(decoded),
            None => read(&self.decode(identity)),
        }
    }

    #[cold]
    fn fill(&self, identity: &Identity) -> &Arc<K> {
        // Decoded before the cell is accessed, so that no thread waits for another one's decoder, which is user code.
        let decoded = Arc::new(self.decode(identity));
        let is_first = self.decoded.set(decoded).is_ok();
        if is_first && self.mark.load(Ordering::Relaxed) != PRIVATE {
            self.report(identity);
        }
        self.decoded.get().expect("the decoded form was set above")
    }

    /// Sets the decoded form of an object that is not in the cache yet, and that counts as unread.
    pub(crate) fn set_unread(&self, decoded: Arc<K>) {
        self.mark.store(IDLE, Ordering::Relaxed);
        self.set(decoded);
    }

    /// Sets the decoded form of an object that is not in the cache yet. Its [report](Self::report) must follow.
    pub(crate) fn set(&self, decoded: Arc<K>) {
        // A form that was set earlier is equal.
        drop(self.decoded.set(decoded));
    }

    /// Reports the decoded form, if it exists.
    pub(crate) fn report(&self, identity: &Identity) {
        if self.is_decoded() {
            (self.shared.decoded)(&identity.key, self.decoded_bytes());
        }
    }

    /// Returns a copy that belongs to one handle. The end of the handle drops its decoded form.
    pub(crate) fn private(&self) -> Self {
        self.copy(self.again, PRIVATE)
    }

    /// Returns a copy for the cache without the decoded form.
    pub(crate) fn without_decoded(&self) -> Self {
        self.copy(true, NEW)
    }

    /// Returns the use of the decoded form since the last call; `None` without a decoded form.
    pub(crate) fn sweep(&self) -> Option<DecodedUse> {
        self.decoded.get()?;
        Some(match self.mark.swap(IDLE, Ordering::Relaxed) {
            NEW => DecodedUse::New { again: self.again },
            READ => DecodedUse::Read,
            _ => DecodedUse::Idle,
        })
    }

    /// Calls `read` with the encoded bytes.
    pub(crate) fn encoded<T>(&self, read: impl FnOnce(Form, &[u8]) -> T) -> T {
        read(self.form, &self.packed.bytes())
    }

    /// Reads the labels from the bytes; `None` if the object has none.
    ///
    /// # Errors
    ///
    /// Returns an error if `metadata.labels` does not contain labels.
    pub(crate) fn labels(&self) -> Result<Option<BTreeMap<String, String>>, NoLabels> {
        self.encoded(|form, bytes| match form {
            (Encoding::Json, _) => match LABELS.find_in_json(bytes) {
                Ok(Some(span)) => serde_json::from_slice(&bytes[span]).map_err(|_| NoLabels),
                Ok(None) => Ok(None),
                Err(_) => Err(NoLabels),
            },
            (Encoding::Protobuf, Some(message)) => match decode_field(message, bytes, LABELS.names()) {
                Some(Found(labels)) => Ok(labels),
                None => Err(NoLabels),
            },
            (Encoding::Protobuf, None) => Err(NoLabels),
        })
    }

    fn copy(&self, again: bool, mark: u8) -> Self {
        Self {
            packed: self.packed.clone(),
            form: self.form,
            decoded_bytes: self.decoded_bytes,
            again,
            mark: AtomicU8::new(mark),
            decoded: OnceLock::new(),
            shared: self.shared.clone(),
        }
    }

    /// Decodes the object.
    ///
    /// # Panics
    ///
    /// Panics if the object does not fit its type. It did when it arrived, so the type's decoder is not deterministic.
    fn decode(&self, identity: &Identity) -> K {
        let decoded = self.encoded(|form, bytes| (self.shared.decode)(form, bytes, identity));
        decoded.unwrap_or_else(|error| {
            panic!(
                "{error}; it was decoded when it arrived, so the `Deserialize` of {} is not deterministic; make it so",
                std::any::type_name::<K>()
            )
        })
    }
}

/// Error for bytes without readable labels.
#[derive(Debug)]
pub(crate) struct NoLabels;

// Created once, since the path is read from many objects.
static LABELS: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.labels"));

/// Memory of a decoded object in bytes: the object with the counters of its `Arc`, and its heap memory.
pub(crate) const fn decoded_footprint<K>(beyond: usize) -> usize {
    shared(size_of::<K>()) + beyond
}

#[cfg(test)]
mod tests;
