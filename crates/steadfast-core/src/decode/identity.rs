//! Who an object is, as far as a scan has found it.

use std::borrow::Cow;

use super::limits::LONGEST_MARK;
use crate::key::ObjectKey;
use crate::record::Identity;
use crate::scan::Metadata;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// What is known of who an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialIdentity {
    /// Where it is found.
    pub key: Option<ObjectKey>,
    /// Its UID, or what represents it where the object has a name and no UID.
    pub uid: Option<Uid>,
    /// Its version, or what represents it where the object has a name and no version.
    pub version: Option<ResourceVersion>,
}

impl std::fmt::Display for PartialIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}")?,
            None => f.write_str("an object without a known name")?,
        }
        match &self.version {
            Some(version) if version.is_given() => write!(f, " at version {version}"),
            _ => Ok(()),
        }
    }
}

impl PartialIdentity {
    /// Who the object of `metadata` is. Where it has no version, `made` represents it.
    pub(super) fn of(metadata: &Metadata<'_>, made: impl FnOnce() -> ResourceVersion) -> Self {
        let key = present(metadata.name.as_ref()).map(|name| match present(metadata.namespace.as_ref()) {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        });
        // Who has neither name nor UID is nobody; whose UID is longer than any has one that cannot be kept.
        let uid = match present(metadata.uid.as_ref()) {
            Some(uid) => Some(uid).filter(|uid| uid.len() <= LONGEST_MARK).map(Uid::from),
            None => key.as_ref().map(Uid::by_name),
        };
        let version = match present(metadata.version.as_ref()) {
            Some(_) => version(metadata),
            None => key.is_some().then(made),
        };
        Self { key, uid, version }
    }

    /// The whole identity, or what there is of it and the path that it lacks.
    pub(super) fn whole(self) -> Result<Identity, (Box<Self>, &'static str)> {
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

/// An empty string says as little as none: Go writes one for the other.
fn present<'a>(text: Option<&'a Cow<'_, str>>) -> Option<&'a str> {
    text.map(AsRef::as_ref).filter(|text: &&str| !text.is_empty())
}

/// The version; none where it is longer than any, which would be requested and reported again and again.
pub(super) fn version(metadata: &Metadata<'_>) -> Option<ResourceVersion> {
    present(metadata.version.as_ref()).filter(|version| version.len() <= LONGEST_MARK).map(ResourceVersion::from)
}
