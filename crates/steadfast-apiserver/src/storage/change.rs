//! Changes of objects and their history.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::encode;
use crate::metadata;
use crate::protobuf;
use crate::resources::{Definition, GroupResource};

/// A change: a revision and its effect on one object.
pub struct Change {
    /// Revision, common to all resources. Within an epoch, revisions only rise.
    pub revision: u64,
    /// Epoch, from 0. Each restore to an older revision starts the next one.
    pub epoch: u32,
    /// Time of the change, since the server's start.
    pub at: Duration,
    /// Number of the request that caused the change; `None` for writes that bypass the API and for changes by the
    /// server itself.
    pub request: Option<u64>,
    /// Resource of the object.
    pub resource: GroupResource,
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Object after the change; `None` if it was deleted.
    pub object: Option<Arc<Value>>,
    /// Object before the change; `None` if it was created.
    pub previous: Option<Arc<Value>>,
    /// Definition of the custom resource at the time of the change. While the definition is the current one, the stored
    /// object can be sent verbatim in the storage version. `None` for other resources, and if the object needs a
    /// conversion or defaults.
    pub(crate) definition: Option<Arc<Definition>>,
    encoded: OnceLock<Bytes>,
    encoded_deleted: OnceLock<Bytes>,
    /// Protobuf messages of `object` and `previous`, for versions of built-in kinds with the same fields as the stored
    /// form.
    messages: ChangeMessages,
}

/// Protobuf messages of an object and of its previous state, encoded on first use. A kind may have several versions, so
/// the version is stored too.
#[derive(Default)]
struct ChangeMessages {
    current: OnceLock<(String, Bytes)>,
    deleted: OnceLock<(String, Bytes)>,
}

impl Change {
    /// Creates a change outside of any request, in the first epoch at the server's start.
    pub(crate) fn new(
        revision: u64,
        resource: GroupResource,
        (namespace, name): (&str, &str),
        object: Option<Arc<Value>>,
        previous: Option<Arc<Value>>,
    ) -> Self {
        // A tombstone has no object, so the UID comes from its last state.
        let uid = object.as_ref().or(previous.as_ref()).map(|object| metadata::text(object, "uid").to_owned());
        Self {
            revision,
            epoch: 0,
            at: Duration::ZERO,
            request: None,
            resource,
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            uid: uid.unwrap_or_default(),
            object,
            previous,
            definition: None,
            encoded: OnceLock::new(),
            encoded_deleted: OnceLock::new(),
            messages: ChangeMessages::default(),
        }
    }

    /// Returns the object's fields on the wire, without kind and version.
    pub(crate) fn fields(&self) -> Bytes {
        let encode = || self.object.as_deref().map(|object| encode::encode_fields(object, None)).unwrap_or_default();
        self.encoded.get_or_init(encode).clone()
    }

    /// Returns the fields of the previous object with this change's revision, for `DELETED` events.
    pub(crate) fn deleted_fields(&self) -> Bytes {
        let encode = || {
            self.previous
                .as_deref()
                .map(|object| encode::encode_fields(object, Some(self.revision)))
                .unwrap_or_default()
        };
        self.encoded_deleted.get_or_init(encode).clone()
    }

    /// Returns the object's message, without its envelope.
    pub(crate) fn message(&self, api_version: &str, kind: &str) -> Bytes {
        cached_message(&self.messages.current, api_version, || {
            let object = self.object.as_deref()?;
            protobuf::fields(api_version, kind, object)
        })
    }

    /// Returns the previous object's message with this change's revision, for `DELETED` events.
    pub(crate) fn deleted_message(&self, api_version: &str, kind: &str) -> Bytes {
        cached_message(&self.messages.deleted, api_version, || {
            let mut object = self.previous.as_deref()?.clone();
            object["metadata"]["resourceVersion"] = self.revision.to_string().into();
            protobuf::fields(api_version, kind, &object)
        })
    }
}

/// Returns the result of `message` for a version. Only the result of the first requested version is cached.
fn cached_message(cell: &OnceLock<(String, Bytes)>, api_version: &str, message: impl Fn() -> Option<Vec<u8>>) -> Bytes {
    let encode = || Bytes::from(message().unwrap_or_default());
    let (version, bytes) = cell.get_or_init(|| (api_version.to_owned(), encode()));
    if version == api_version { bytes.clone() } else { encode() }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match (&self.previous, &self.object) {
            (None, _) => "created",
            (Some(_), Some(_)) => "updated",
            (Some(_), None) => "deleted",
        };
        write!(f, "{}:{} {operation} {} ", self.epoch, self.revision, self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({}) at {:?}", self.name, self.uid, self.at)
    }
}

/// All changes in order. Neither compaction nor a restore removes changes from this record.
#[derive(Clone, Debug)]
pub struct History {
    /// Changes, oldest first.
    pub changes: Vec<Arc<Change>>,
    /// Start revisions of the epochs: 0 for epoch 0, the restored revision for each later one.
    pub epochs: Vec<u64>,
    /// Current revision.
    pub revision: u64,
}

impl History {
    /// Returns the changes of one resource, oldest first. Events belong to the core group with its field names,
    /// independent of the group of the write.
    pub fn changes_of<'a>(&'a self, group: &'a str, plural: &'a str) -> impl Iterator<Item = &'a Arc<Change>> {
        self.changes
            .iter()
            .filter(move |change| change.resource.group() == group && change.resource.resource() == plural)
    }
}
