//! Events of handlers and contents of caches.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Namespace, if the resource has namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl Key {
    /// Creates the key of `name` in `namespace`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A state of an object: its identity, its version and optionally a digest of its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectVersionRef {
    /// Namespace and name of the object.
    #[serde(flatten)]
    pub key: Key,
    /// UID of the object.
    pub uid: String,
    /// Version of this state, as the server wrote it.
    pub version: String,
    /// [`digest`] of the content, if the recorder has the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u64>,
}

impl ObjectVersionRef {
    /// Creates a reference to the object's state at `version`, without content.
    pub fn new(namespace: Option<&str>, name: &str, uid: &str, version: &str) -> Self {
        Self { key: Key::new(namespace, name), uid: uid.to_owned(), version: version.to_owned(), digest: None }
    }

    /// Adds the digest of the content of `object`.
    #[must_use]
    pub fn with_content(self, object: &Value) -> Self {
        Self { digest: Some(digest(object)), ..self }
    }
}

impl fmt::Display for ObjectVersionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (uid {}) at version {}", self.key, self.uid, self.version)
    }
}

/// Returns a number that is equal for equal contents.
///
/// The digest ignores fields that clients drop or servers add on the wire: `apiVersion`, `kind`,
/// `metadata.managedFields` and `metadata.resourceVersion`. It also ignores the order of keys.
pub fn digest(object: &Value) -> u64 {
    let mut hash = Fnv::new();
    hash.add_value(object, DigestPosition::Root);
    hash.0
}

#[derive(Clone, Copy, PartialEq)]
enum DigestPosition {
    Root,
    Metadata,
    Elsewhere,
}

impl DigestPosition {
    fn ignores(self, key: &str) -> bool {
        match self {
            Self::Root => matches!(key, "apiVersion" | "kind"),
            Self::Metadata => matches!(key, "managedFields" | "resourceVersion"),
            Self::Elsewhere => false,
        }
    }
}

/// FNV-1a hash: short, and equal on every machine and in every version, so that stored traces stay valid.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn add_value(&mut self, value: &Value, position: DigestPosition) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().filter(|(key, _)| !position.ignores(key)).collect();
                entries.sort_by_key(|(key, _)| *key);
                // Delimiters separate nested values: without them, `{"a":{}}` and `{"a":[]}` could have equal digests.
                self.add_bytes(b"{");
                for (key, value) in entries {
                    self.add_bytes(key.as_bytes());
                    self.add_bytes(b":");
                    let is_metadata = position == DigestPosition::Root && key == "metadata";
                    self.add_value(
                        value,
                        if is_metadata { DigestPosition::Metadata } else { DigestPosition::Elsewhere },
                    );
                }
                self.add_bytes(b"}");
            }
            Value::Array(values) => {
                self.add_bytes(b"[");
                for value in values {
                    self.add_value(value, DigestPosition::Elsewhere);
                    self.add_bytes(b",");
                }
                self.add_bytes(b"]");
            }
            // Quotes and escapes distinguish "1" from 1, and text from structure.
            scalar => self.add_bytes(scalar.to_string().as_bytes()),
        }
    }
}

/// Certainty of a deletion, as reported by the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Certainty {
    /// The server reported the deletion.
    Observed,
    /// A complete, successful list did not contain the object.
    Inferred,
}

/// Reason for the end of a stay, as reported by the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The object was deleted.
    Deleted,
    /// Another UID has the name.
    Replaced,
    /// The object was deleted, or changed so that it no longer matches.
    DeletedOrLeft,
}

/// Event of a handler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HandlerEvent {
    /// Start of a stay.
    Added {
        /// Delivered object.
        object: ObjectVersionRef,
        /// True if the event is marked as part of an initial list.
        initial: bool,
    },
    /// Change of the object.
    Updated {
        /// Previous state, as delivered.
        old: ObjectVersionRef,
        /// New state, as delivered.
        new: ObjectVersionRef,
    },
    /// End of the stay.
    Deleted {
        /// Last state, as delivered.
        last: ObjectVersionRef,
        /// Version of the deletion, if one was reported.
        version: Option<String>,
        /// Reported certainty of the deletion.
        certainty: Certainty,
        /// Reported reason for the end of the stay.
        reason: Reason,
    },
    /// Repeated delivery of an unchanged object.
    Resynced {
        /// Delivered object.
        object: ObjectVersionRef,
    },
}

impl HandlerEvent {
    /// Returns the object of this event: the new state, or the last state of a deletion.
    pub fn object(&self) -> &ObjectVersionRef {
        match self {
            Self::Added { object, .. } | Self::Resynced { object } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns the namespace and name of the object.
    pub fn key(&self) -> &Key {
        &self.object().key
    }
}

impl fmt::Display for HandlerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => {
                write!(f, "Added(uid {} v{}{})", object.uid, object.version, if *initial { ", initial" } else { "" })
            }
            Self::Updated { old, new } if old.uid == new.uid => {
                write!(f, "Updated(uid {} v{} to v{})", old.uid, old.version, new.version)
            }
            Self::Updated { old, new } => {
                write!(f, "Updated(uid {} v{} to uid {} v{})", old.uid, old.version, new.uid, new.version)
            }
            Self::Deleted { last, version: Some(version), certainty, reason } => {
                write!(f, "Deleted(uid {} last v{}, at v{version}, {certainty:?}, {reason:?})", last.uid, last.version)
            }
            Self::Deleted { last, version: None, certainty, reason } => {
                write!(f, "Deleted(uid {} last v{}, {certainty:?}, {reason:?})", last.uid, last.version)
            }
            Self::Resynced { object } => write!(f, "Resynced(uid {} v{})", object.uid, object.version),
        }
    }
}

/// Content of a cache for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreContent {
    /// No object.
    Absent,
    /// An object in this state.
    #[serde(rename = "Held")]
    Present {
        /// UID of the object.
        uid: String,
        /// Version of the state.
        version: String,
    },
    /// An object whose newest state did not decode.
    #[serde(rename = "Unknown")]
    Undecodable {
        /// Version of the undecodable state.
        version: String,
    },
    /// The recorder did not read the cache.
    #[serde(rename = "NotAsked")]
    NotRead,
}

impl fmt::Display for StoreContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Present { uid, version } => write!(f, "uid {uid} v{version}"),
            Self::Undecodable { version } => write!(f, "an undecodable object at v{version}"),
            Self::NotRead => f.write_str("an unread object"),
        }
    }
}
