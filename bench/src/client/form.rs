//! The forms in which Steadfast is measured: decoded, and kept as the server wrote it.

use std::sync::LazyLock;

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast::{Checkpoint, FieldPath, InformerBuilder, Kept, Lazy};

use super::cache::Node;
use super::progress::SENT;
use crate::Trouble;
use crate::checksum::Checksum;

/// What the measurements need to know of what is kept.
pub(super) trait Form: Kept {
    /// When the server sent it, as it says itself.
    fn sent(&self) -> Option<u64>;
    /// The node that it names.
    fn node_name(&self) -> Option<String>;
    /// Has the cache kept in a file.
    fn keep<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self>;
    /// Adds the object to what all come to.
    fn sum(&self, checksum: &mut Checksum) -> Result<(), Trouble>;
}

impl<K: Kept + Resource + Serialize + Node> Form for K {
    fn sent(&self) -> Option<u64> {
        self.annotations().get(SENT)?.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.node().map(str::to_owned)
    }

    /// What is decoded cannot be kept so: the command line asks for it of the other form alone.
    fn keep<'a>(builder: InformerBuilder<'a, Self>, _checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder
    }

    fn sum(&self, checksum: &mut Checksum) -> Result<(), Trouble> {
        Ok(checksum.add(self)?)
    }
}

static SENT_AT: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.annotations").then(SENT));
static NODE: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("spec.nodeName"));

impl<K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static> Form for Lazy<K> {
    fn sent(&self) -> Option<u64> {
        self.read::<String>(&SENT_AT).ok()??.parse().ok()
    }

    fn node_name(&self) -> Option<String> {
        self.read(&NODE).ok()?
    }

    fn keep<'a>(builder: InformerBuilder<'a, Self>, checkpoint: &Checkpoint) -> InformerBuilder<'a, Self> {
        builder.checkpoint(checkpoint)
    }

    fn sum(&self, checksum: &mut Checksum) -> Result<(), Trouble> {
        Ok(checksum.add(&*self.get()?)?)
    }
}
