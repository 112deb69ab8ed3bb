//! Objects of the store's tests, and the text form of their changes.

use std::sync::Arc;

use steadfast_core::event::Change;
use steadfast_core::store::Tainted;
use steadfast_core::{Event, ResourceVersion};

/// Object with an identity, a version, and the value by which an index groups objects.
#[derive(Debug, PartialEq)]
pub(crate) struct TestObject {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) group: u8,
}

#[allow(clippy::unnecessary_wraps, reason = "as the store takes it")]
pub(crate) fn test_object(uid: &str, version: u64, group: u8) -> Result<Arc<TestObject>, Tainted> {
    Ok(Arc::new(TestObject { uid: uid.to_owned(), version, group }))
}

pub(crate) fn resource_version(version: u64) -> ResourceVersion {
    ResourceVersion::from(version.to_string().as_str())
}

pub(crate) fn describe(change: &Change<TestObject>) -> String {
    let state = |object: &TestObject| format!("{}@{}", object.uid, object.version);
    let event = match &change.event {
        Event::Added { object, initial } => {
            format!("Added {}{}", state(object), if *initial { " initial" } else { "" })
        }
        Event::Updated { old, new } => format!("Updated {} to {}", state(old), state(new)),
        Event::Deleted { last, version: Some(version), certainty, reason } => {
            format!("Deleted {} at {version}, {certainty}, {reason}", state(last))
        }
        Event::Deleted { last, version: None, certainty, reason } => {
            format!("Deleted {}, {certainty}, {reason}", state(last))
        }
        Event::Resynced { object } => format!("Resynced {}", state(object)),
    };
    format!("{}: {event}", change.key())
}
