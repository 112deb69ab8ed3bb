//! The forms in which Steadfast caches objects in the measurements: decoded, and in the server's encoding.

use std::sync::LazyLock;

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast::{Cacheable, Checkpoint, FieldPath, InformerBuilder, Lazy};

use super::cache::HasNodeName;
use super::progress::SENT;
use crate::BenchError;
use crate::checksum::Checksum;

/// Properties of a cached object for the measurements.
pub(super) trait CachedForm: Cacheable {
    /// Returns the time at which the server sent the object, from its annotation.
    fn sent(&self) -> Option<u64>;
    /// Returns the node of the object.
    fn node_name(&self) -> Option<String>;
    /// Adds the checkpoint to the builder.
    fn keep<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self>;
    /// Adds the object to the checksum.
    fn sum(&self, checksum: &mut Checksum) -> Result<(), BenchError>;
}

impl<K: Cacheable + Resource + Serialize + HasNodeName> CachedForm for K {
    fn sent(&self) -> Option<u64> {
        self.annotations().get(SENT)?.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.node().map(str::to_owned)
    }

    /// Decoded objects have no checkpoint: the command line allows the option only for the other form.
    fn keep<'a>(builder: InformerBuilder<'a, Self>, _checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder
    }

    fn sum(&self, checksum: &mut Checksum) -> Result<(), BenchError> {
        Ok(checksum.add(self)?)
    }
}

static SENT_AT: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.annotations").then(SENT));
static NODE: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("spec.nodeName"));

impl<K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static> CachedForm for Lazy<K> {
    fn sent(&self) -> Option<u64> {
        self.read::<String>(&SENT_AT).ok()??.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.read(&NODE).ok()?
    }

    fn keep<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder.checkpoint(checkpoint)
    }

    fn sum(&self, checksum: &mut Checksum) -> Result<(), BenchError> {
        Ok(checksum.add(&*self.get()?)?)
    }
}
