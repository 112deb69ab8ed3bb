//! Identity of an object. A scan may have found only parts of it.

use std::borrow::Cow;

use super::limits::MAX_IDENTIFIER_BYTES;
use crate::key::ObjectKey;
use crate::record::Identity;
use crate::scan::Metadata;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Known parts of an object's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialIdentity {
    /// Key of the object.
    pub key: Option<ObjectKey>,
    /// UID of the object, or its substitute if the object has a name and no UID.
    pub uid: Option<Uid>,
    /// Version of the object, or its substitute if the object has a name and no version.
    pub version: Option<ResourceVersion>,
}

impl std::fmt::Display for PartialIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}")?,
            None => f.write_str("an object without a known name")?,
        }
        match &self.version {
            Some(version) if version.is_from_server() => write!(f, " at version {version}"),
            _ => Ok(()),
        }
    }
}

impl PartialIdentity {
    /// Returns the identity in `metadata`. `substitute_version` provides the version if the metadata have none.
    pub(super) fn of(metadata: &Metadata<'_>, substitute_version: impl FnOnce() -> ResourceVersion) -> Self {
        let key = present(metadata.name.as_ref()).map(|name| match present(metadata.namespace.as_ref()) {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        });
        // An object with neither name nor UID has no identity. An overlong UID cannot be kept.
        let uid = match present(metadata.uid.as_ref()) {
            Some(uid) => Some(uid).filter(|uid| uid.len() <= MAX_IDENTIFIER_BYTES).map(Uid::from),
            None => key.as_ref().map(Uid::by_name),
        };
        let version = match present(metadata.version.as_ref()) {
            Some(_) => version(metadata),
            None => key.is_some().then(substitute_version),
        };
        Self { key, uid, version }
    }

    /// Returns the complete identity, or the known parts with the missing path.
    pub(super) fn complete(self) -> Result<Identity, (Box<Self>, &'static str)> {
        let missing = match self {
            Self { key: Some(key), uid: Some(uid), version: Some(version) } => {
                return Ok(Identity { key, uid, version });
            }
            Self { key: None, .. } => "metadata.name",
            Self { uid: None, .. } => "metadata.uid",
            Self { version: None, .. } => "metadata.resourceVersion",
        };
        Err((Box::new(self), missing))
    }
}

/// Treats an empty string like a missing one, since Go writes an empty string for a missing value.
fn present<'a>(text: Option<&'a Cow<'_, str>>) -> Option<&'a str> {
    text.map(AsRef::as_ref).filter(|text: &&str| !text.is_empty())
}

/// Returns the version; `None` if it is absent or overlong. Later requests and diagnostics contain the version, so its
/// length must be limited.
pub(super) fn version(metadata: &Metadata<'_>) -> Option<ResourceVersion> {
    present(metadata.version.as_ref())
        .filter(|version| version.len() <= MAX_IDENTIFIER_BYTES)
        .map(ResourceVersion::from)
}
