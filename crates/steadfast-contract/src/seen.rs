//! What a handler was given, and what a store held.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where an object lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The namespace, if the resource has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of `name` in `namespace`.
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

/// One state of one object: its identity and version, and optionally a digest of its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ref {
    /// Where the object lives.
    #[serde(flatten)]
    pub key: Key,
    /// The object's UID.
    pub uid: String,
    /// The version of this state, as the server wrote it.
    pub version: String,
    /// What [`digest`] says of this state's content, where the recorder has the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u64>,
}

impl Ref {
    /// The state of an object at `version`, its content not recorded.
    pub fn new(namespace: Option<&str>, name: &str, uid: &str, version: &str) -> Self {
        Self { key: Key::new(namespace, name), uid: uid.to_owned(), version: version.to_owned(), digest: None }
    }

    /// The same, with the digest of its content.
    #[must_use]
    pub fn with_content(self, object: &Value) -> Self {
        Self { digest: Some(digest(object)), ..self }
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (uid {}) at version {}", self.key, self.uid, self.version)
    }
}

/// A number that two equal contents share.
///
/// What clients drop or servers add on the wire stays out of it: `apiVersion`, `kind`, `metadata.managedFields` and
/// `metadata.resourceVersion`, and the order of keys.
pub fn digest(object: &Value) -> u64 {
    let mut hash = Fnv::new();
    hash.value(object, Place::Root);
    hash.0
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Metadata,
    Elsewhere,
}

impl Place {
    fn leaves_out(self, key: &str) -> bool {
        match self {
            Self::Root => matches!(key, "apiVersion" | "kind"),
            Self::Metadata => matches!(key, "managedFields" | "resourceVersion"),
            Self::Elsewhere => false,
        }
    }
}

/// FNV-1a: short, and the same on every machine and in every version, so that traces can be kept.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn value(&mut self, value: &Value, place: Place) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().filter(|(key, _)| !place.leaves_out(key)).collect();
                entries.sort_by_key(|(key, _)| *key);
                self.bytes(b"{");
                for (key, value) in entries {
                    self.bytes(key.as_bytes());
                    self.bytes(b":");
                    let inside = place == Place::Root && key == "metadata";
                    self.value(value, if inside { Place::Metadata } else { Place::Elsewhere });
                }
                self.bytes(b"}");
            }
            Value::Array(values) => {
                self.bytes(b"[");
                for value in values {
                    self.value(value, Place::Elsewhere);
                    self.bytes(b",");
                }
                self.bytes(b"]");
            }
            // Quoted and escaped, so that "1" and 1 differ and no text can look like structure.
            plain => self.bytes(plain.to_string().as_bytes()),
        }
    }
}

/// How a deletion was known, in the words of the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Certainty {
    /// The server said so.
    Observed,
    /// A complete, successful list no longer had the object.
    Inferred,
}

/// What ended a stay, in the words of the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The object is gone.
    Deleted,
    /// Another UID holds the name.
    Replaced,
    /// Gone, or changed so that it no longer matches.
    DeletedOrLeft,
}

/// What a handler was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Seen {
    /// A stay began.
    Added {
        /// The object as delivered.
        object: Ref,
        /// Whether it was said to belong to an initial list.
        initial: bool,
    },
    /// The object changed.
    Updated {
        /// The state before, as delivered.
        old: Ref,
        /// The state now, as delivered.
        new: Ref,
    },
    /// The stay ended.
    Deleted {
        /// The last state, as delivered.
        last: Ref,
        /// The version of the deletion, if one was reported.
        version: Option<String>,
        /// How it was said to be known.
        certainty: Certainty,
        /// What was said to have ended the stay.
        reason: Reason,
    },
    /// Nothing changed; the object was shown again.
    Resynced {
        /// The object as delivered.
        object: Ref,
    },
}

impl Seen {
    /// The state that this event is about: the new one, or the last one of a deletion.
    pub fn object(&self) -> &Ref {
        match self {
            Self::Added { object, .. } | Self::Resynced { object } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Where the object lives.
    pub fn key(&self) -> &Key {
        &self.object().key
    }
}

impl fmt::Display for Seen {
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

/// What a store answered for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreHeld {
    /// Nothing.
    Absent,
    /// This object, in this state.
    Held {
        /// Its UID.
        uid: String,
        /// The state's version.
        version: String,
    },
    /// That its newest state could not be decoded.
    Unknown {
        /// That state's version.
        version: String,
    },
    /// The recorder did not ask.
    NotAsked,
}

impl fmt::Display for StoreHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Held { uid, version } => write!(f, "uid {uid} v{version}"),
            Self::Unknown { version } => write!(f, "something undecodable at v{version}"),
            Self::NotAsked => f.write_str("what was not requested"),
        }
    }
}
