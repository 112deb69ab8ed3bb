//! One change of one object, and the record of all changes.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::http::encode;
use crate::protobuf;
use crate::resources::{Definition, GroupResource};

/// One change: a revision, and what it made of one object.
pub struct Change {
    /// The revision, one for all resources; within an epoch it only rises.
    pub revision: u64,
    /// The epoch: it starts with 0, and each restore to an older revision begins the next.
    pub epoch: u32,
    /// When, since the server's start.
    pub at: Duration,
    /// The number of the request that made it; `None` where it was made past the API, or by the server itself.
    pub request: Option<u64>,
    /// The resource.
    pub resource: GroupResource,
    /// The namespace; `None` for what is cluster-scoped.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The object after the change; `None` where it was deleted.
    pub object: Option<Arc<Value>>,
    /// The object before the change; `None` where it was created.
    pub previous: Option<Arc<Value>>,
    /// The definition by which a custom resource reads as it is stored, in the version it is stored in.
    pub(crate) read_by: Option<Arc<Definition>>,
    pub(crate) encoded: OnceLock<Bytes>,
    pub(crate) encoded_deleted: OnceLock<Bytes>,
    /// The messages of both, of a built-in kind in the version that all see it in who see it as it is stored.
    pub(crate) messages: Messages,
}

/// An object and the one before it in protobuf, once somebody has asked; by version, since a kind may have several.
#[derive(Default)]
pub(crate) struct Messages {
    now: OnceLock<(String, Bytes)>,
    deleted: OnceLock<(String, Bytes)>,
}

impl Change {
    /// The object's fields on the wire, without kind and version.
    pub(crate) fn fields(&self) -> Bytes {
        let encode = || self.object.as_deref().map(|object| encode::fields(object, None)).unwrap_or_default();
        self.encoded.get_or_init(encode).clone()
    }

    /// The fields of the previous object under this change's revision, as `DELETED` carries them.
    pub(crate) fn deleted_fields(&self) -> Bytes {
        let encode =
            || self.previous.as_deref().map(|object| encode::fields(object, Some(self.revision))).unwrap_or_default();
        self.encoded_deleted.get_or_init(encode).clone()
    }

    /// The object's message, without its envelope.
    pub(crate) fn message(&self, api_version: &str, kind: &str) -> Bytes {
        remembered(&self.messages.now, api_version, || {
            let object = self.object.as_deref()?;
            protobuf::fields(api_version, kind, object)
        })
    }

    /// The previous object's message under this change's revision, as `DELETED` carries it.
    pub(crate) fn deleted_message(&self, api_version: &str, kind: &str) -> Bytes {
        remembered(&self.messages.deleted, api_version, || {
            let mut object = self.previous.as_deref()?.clone();
            object["metadata"]["resourceVersion"] = self.revision.to_string().into();
            protobuf::fields(api_version, kind, &object)
        })
    }
}

/// What `message` makes, of the first version that was asked for remembered.
fn remembered(known: &OnceLock<(String, Bytes)>, api_version: &str, message: impl Fn() -> Option<Vec<u8>>) -> Bytes {
    let make = || Bytes::from(message().unwrap_or_default());
    let (version, bytes) = known.get_or_init(|| (api_version.to_owned(), make()));
    if version == api_version { bytes.clone() } else { make() }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (&self.previous, &self.object) {
            (None, _) => "created",
            (Some(_), Some(_)) => "updated",
            (Some(_), None) => "deleted",
        };
        write!(f, "{}:{} {what} {} ", self.epoch, self.revision, self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({}) at {:?}", self.name, self.uid, self.at)
    }
}

/// Every change there ever was, in order; neither compaction nor a restore erases this record.
#[derive(Clone, Debug)]
pub struct History {
    /// The changes, oldest first.
    pub changes: Vec<Arc<Change>>,
    /// At which revision each epoch began: epoch 0 at 0, the next at the revision restored.
    pub epochs: Vec<u64>,
    /// The revision of now.
    pub revision: u64,
}

impl History {
    /// The changes of one resource, oldest first. Events are those of the core group, by its names of their fields,
    /// whichever group they were written by.
    pub fn of<'a>(&'a self, group: &'a str, plural: &'a str) -> impl Iterator<Item = &'a Arc<Change>> {
        self.changes
            .iter()
            .filter(move |change| change.resource.group() == group && change.resource.resource() == plural)
    }
}
