//! The forms in which Steadfast caches objects in the measurements: decoded, and in the server's encoding.

use std::sync::LazyLock;

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast::{Cacheable, Checkpoint, FieldPath, InformerBuilder, Lazy};

use super::cache::HasNodeName;
use super::progress::SENT_ANNOTATION;
use crate::BenchError;
use crate::checksum::Checksum;

/// Properties of a cached object for the measurements.
pub(super) trait CachedForm: Cacheable {
    /// Returns the time at which the server sent the object, in nanoseconds since 1970, from its annotation.
    fn sent_nanos(&self) -> Option<u64>;
    /// Returns the node of the object.
    fn node_name(&self) -> Option<String>;
    /// Returns the builder with the checkpoint.
    fn with_checkpoint<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self>;
    /// Adds the object to the checksum.
    fn add_to(&self, checksum: &mut Checksum) -> Result<(), BenchError>;
}

impl<K: Cacheable + Resource + Serialize + HasNodeName> CachedForm for K {
    fn sent_nanos(&self) -> Option<u64> {
        self.annotations().get(SENT_ANNOTATION)?.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.node().map(str::to_owned)
    }

    /// Decoded objects have no checkpoint: the command line allows the option only for the other form.
    fn with_checkpoint<'a>(builder: InformerBuilder<'a, Self>, _checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder
    }

    fn add_to(&self, checksum: &mut Checksum) -> Result<(), BenchError> {
        Ok(checksum.add(self)?)
    }
}

static SENT_AT: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.annotations").then(SENT_ANNOTATION));
static NODE: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("spec.nodeName"));

impl<K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static> CachedForm for Lazy<K> {
    fn sent_nanos(&self) -> Option<u64> {
        self.read::<String>(&SENT_AT).ok()??.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.read(&NODE).ok()?
    }

    fn with_checkpoint<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder.checkpoint(checkpoint)
    }

    fn add_to(&self, checksum: &mut Checksum) -> Result<(), BenchError> {
        Ok(checksum.add(&*self.get()?)?)
    }
}
