//! Cached form of objects: decoded, then transformed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use steadfast_core::WithSize;
use steadfast_core::decode::{Cacheable, DecodeError, Decoder, RawObject};
use steadfast_executor::drop_contained;

/// The user's transform.
pub(crate) type Transform<K> = Arc<dyn Fn(K) -> K + Send + Sync>;

/// Decodes objects into their cached form.
pub(crate) struct ObjectDecoder<K> {
    decoder: Decoder,
    transform: Option<Transform<K>>,
}

impl<K> ObjectDecoder<K> {
    /// Creates a pipeline of `decoder` and `transform`.
    pub(crate) fn new(decoder: Decoder, transform: Option<Transform<K>>) -> Self {
        Self { decoder, transform }
    }

    /// Creates an equivalent pipeline for another thread.
    pub(super) fn for_helper(&self) -> Self {
        Self { decoder: self.decoder.another(), transform: self.transform.clone() }
    }
}

impl<K: Cacheable> ObjectDecoder<K> {
    /// Decodes an object into its cached form, or returns the error.
    pub(super) fn decode(&mut self, object: &RawObject) -> Result<WithSize<K>, String> {
        let Self { decoder, transform } = self;
        // User code: a panic affects only this object.
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let Some(transform) = transform else { return WithSize::decode(object, decoder) };
            // The result of a transform cannot be made again from the object's bytes, since a transform may be any
            // function. It is therefore cached decoded.
            let (kept, beyond) = decoder.decode_with_size(object)?;
            Ok(WithSize::new(transform(kept), beyond))
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
