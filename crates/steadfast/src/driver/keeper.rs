//! The form in which objects are kept: decoded, and changed as their user wants it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use steadfast_core::Weighed;
use steadfast_core::decode::{DecodeError, Decoder, Kept, RawObject};

use crate::runner::drop_contained;

/// What is changed in an object before it is kept.
pub(crate) type Transform<K> = Arc<dyn Fn(K) -> K + Send + Sync>;

/// Makes objects what is kept of them, one after the other.
pub(crate) struct Keeper<K> {
    decoder: Decoder,
    transform: Option<Transform<K>>,
}

impl<K> Keeper<K> {
    /// Decodes by `decoder`, then has `transform` change what that made.
    pub(crate) fn new(decoder: Decoder, transform: Option<Transform<K>>) -> Self {
        Self { decoder, transform }
    }

    /// Another one, for another thread, that makes the same.
    pub(super) fn beside(&self) -> Self {
        Self { decoder: self.decoder.another(), transform: self.transform.clone() }
    }
}

impl<K: Kept> Keeper<K> {
    /// Decodes an object into the form in which it is kept, or says why it cannot.
    pub(super) fn keep(&mut self, object: &RawObject) -> Result<Weighed<K>, String> {
        let Self { decoder, transform } = self;
        // The user's own code: what it breaks stays with this object.
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let (kept, beyond) = decoder.weighed(object)?;
            let kept = match transform {
                Some(transform) => transform(kept),
                None => kept,
            };
            Ok(Weighed::new(kept, beyond))
        }));
        match kept {
            Ok(Ok(kept)) => Ok(kept),
            Ok(Err::<_, DecodeError>(error)) => Err(error.to_string()),
            Err(panic) => {
                drop_contained(panic);
                Err(format!("{}: decoding or transforming it panicked", object.identity.key))
            }
        }
    }
}
