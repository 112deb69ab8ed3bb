//! Diagnostics of a reflector for logs, metrics and error callbacks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failure::Failure;
use crate::key::ObjectKey;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Event of a reflector that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnostic {
    /// The first complete list is in the store.
    Synced {
        /// Version of the list.
        version: Option<ResourceVersion>,
    },
    /// The checkpoint of an earlier run is in the store.
    Restored {
        /// Version of the checkpoint.
        version: ResourceVersion,
        /// Number of restored objects.
        objects: usize,
    },
    /// The checkpoint of an earlier run cannot be used, or only in part. The collection is listed.
    NotRestored {
        /// Cause.
        reason: Arc<str>,
    },
    /// The checkpoint could not be written. The write is retried.
    CheckpointNotWritten {
        /// Cause.
        reason: Arc<str>,
    },
    /// Durable handlers receive events whose deliveries could not be recorded first. If the program exits now, the next
    /// run continues from the last recorded state.
    DeliveredUnrecorded {
        /// Cause.
        reason: Arc<str>,
    },
    /// A watch resumed from the version at which the previous watch ended.
    Resumed {
        /// Version from which the watch resumed.
        version: ResourceVersion,
    },
    /// A watch resumed on another connection, because the previous connection will end.
    Moved {
        /// Version of the cache.
        version: ResourceVersion,
    },
    /// A watch reached its regular end.
    Ended,
    /// A request failed, or a stream broke.
    Failed {
        /// Failure, and the object of the failed operation.
        message: Arc<str>,
        /// Status code of the response, or of a `Status` in the stream; `None` if the server reported none.
        code: Option<u16>,
        /// Reason of the server's `Status`, such as `Forbidden`; `None` if the server reported none.
        reason: Option<Arc<str>>,
        /// Number of consecutive failed attempts, as in [`Doubt`](crate::Doubt).
        attempts: u32,
        /// Delay until the next attempt.
        retry_in: Duration,
    },
    /// The whole collection is requested again.
    Relisting {
        /// Kind of the cause.
        cause: RelistCause,
        /// Cause, as a text.
        reason: Arc<str>,
    },
    /// A relist is complete.
    Relisted {
        /// Version of the cache before the relist.
        held: Option<ResourceVersion>,
        /// Version of the list.
        version: Option<ResourceVersion>,
        /// Number of objects that were transferred in full, if only the metadata of the others were listed; `None` for
        /// a full list.
        fetched: Option<usize>,
    },
    /// Too many objects differ, or the differing objects cannot be requested separately. A full list replaces the
    /// delta relist.
    ListingAll {
        /// Cause.
        reason: Arc<str>,
    },
    /// Streamed lists do not work for this resource, while pages do. Pages are used for a limited time.
    FellBackToPages {
        /// Cause.
        reason: Arc<str>,
    },
    /// Protobuf responses of this resource cannot be decoded. JSON is requested for a limited time.
    FellBackToJson {
        /// Cause.
        reason: Arc<str>,
    },
    /// The server rejects watches, or its watches always fail. Repeated lists replace them.
    Polling {
        /// Reason for the missing watch.
        reason: Arc<str>,
        /// List interval.
        every: Duration,
    },
    /// The server has another history: it was restored from a backup.
    NewEpoch {
        /// Version of the cache.
        held: ResourceVersion,
        /// Lower version that proves the new history.
        proof: ResourceVersion,
    },
    /// The responding server lags behind the cache.
    Lagging {
        /// Message of the server.
        reason: Arc<str>,
    },
    /// A proof of freshness is overdue and was requested.
    SeekingProof,
    /// The requested proof did not arrive.
    Suspect {
        /// Result of the request.
        reason: Arc<str>,
    },
    /// The doubt has ended.
    Proven,
    /// A comparison of the cache with a list of versions found no lost change.
    Audited {
        /// Version of the list.
        version: Option<ResourceVersion>,
    },
    /// A change of an object was lost: the server's watch never reported it. A list repairs the cache.
    Lost {
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object; the listed UID if the two differ.
        uid: Uid,
        /// Cached version; `None` if the object is not cached.
        held: Option<ResourceVersion>,
        /// Listed version; `None` if the object no longer exists.
        listed: Option<ResourceVersion>,
    },
    /// The newest state of an object cannot be decoded. Lookups return `Undecodable` until a state can be decoded.
    Undecodable {
        /// Key of the object.
        key: ObjectKey,
        /// Version of the state.
        version: ResourceVersion,
        /// Object and error, without the object's content.
        reason: Arc<str>,
    },
    /// A record of a watch contains an unknown state, although its version is below the cached one. A list resolves the
    /// contradiction.
    Contradicted {
        /// Object of the record, and the contradiction.
        reason: Arc<str>,
    },
    /// The server's versions do not come from one counter. They are opaque from here on.
    VersionsUnordered,
    /// A record far exceeds the limit and has not ended yet. The following records are delayed until its end.
    Endless {
        /// Length so far, in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: usize,
    },
    /// Objects have no UID and are identified by their names. An object that is recreated between two lists appears as
    /// changed. Reported once.
    IdentifiedByName {
        /// Key of the first such object.
        key: ObjectKey,
    },
    /// A record or a list entry could not be attributed to any object.
    Unidentified {
        /// Error, without the content of the record.
        reason: Arc<str>,
    },
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal operation.
    Routine,
    /// A fault that the reflector handles.
    Fault,
}

/// Cause of a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelistCause {
    /// The server no longer has the requested version or page (`410`, `Expired`, `Gone`).
    Expired,
    /// The server rejects watches that start at the version of the cache.
    VersionRejected,
    /// All watches fail. The list shows whether the resource still exists.
    WatchesFail,
    /// A comparison with a list found changes that the watch did not deliver.
    LostChanges,
    /// A record or a list entry belongs to no identifiable object.
    Unidentified,
    /// The server's versions have no order, so only a list proves that the cache is complete.
    OpaqueVersions,
}

impl Diagnostic {
    /// Creates the diagnostic of `failure`, for the attempt number `attempts` and the delay until the next attempt.
    pub(super) fn failed(failure: &Failure, attempts: u32, retry_in: Duration) -> Self {
        let code = (failure.code != 0).then_some(failure.code);
        Self::Failed { message: failure.message.clone(), code, reason: failure.reason.clone(), attempts, retry_in }
    }

    /// Returns `Fault` for a fault, such as a failed request, and `Routine` for all other diagnostics.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Synced { .. }
            | Self::Restored { .. }
            | Self::Resumed { .. }
            | Self::Moved { .. }
            | Self::Ended
            | Self::Relisted { .. }
            | Self::ListingAll { .. }
            | Self::SeekingProof
            | Self::Proven
            | Self::IdentifiedByName { .. }
            | Self::Audited { .. } => Severity::Routine,
            Self::Failed { .. }
            | Self::NotRestored { .. }
            | Self::CheckpointNotWritten { .. }
            | Self::DeliveredUnrecorded { .. }
            | Self::Relisting { .. }
            | Self::FellBackToPages { .. }
            | Self::FellBackToJson { .. }
            | Self::Polling { .. }
            | Self::NewEpoch { .. }
            | Self::Lagging { .. }
            | Self::Suspect { .. }
            | Self::Lost { .. }
            | Self::Undecodable { .. }
            | Self::Contradicted { .. }
            | Self::VersionsUnordered
            | Self::Endless { .. }
            | Self::Unidentified { .. } => Severity::Fault,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, version: &Option<ResourceVersion>| match version {
            Some(version) => write!(f, " at {version}"),
            None => Ok(()),
        };
        match self {
            Self::Synced { version } => f.write_str("synced").and_then(|()| at(f, version)),
            Self::Restored { version, objects } => write!(f, "restored {objects} objects at {version}"),
            Self::NotRestored { reason } => write!(f, "{reason}; listing all objects"),
            Self::CheckpointNotWritten { reason } => {
                write!(
                    f,
                    "the cache cannot be written to the checkpoint ({reason}); the last saved state stays, and the write is \
                     retried"
                )
            }
            Self::DeliveredUnrecorded { reason } => {
                write!(f, "durable handlers receive events that cannot be written to the checkpoint ({reason})")
            }
            Self::Resumed { version } => write!(f, "watch resumed from {version}"),
            Self::Moved { version } => write!(f, "watch moved to another connection at {version}"),
            Self::Ended => f.write_str("watch ended by the server; resuming"),
            Self::Failed { message, attempts, retry_in, .. } => {
                write!(f, "{message}; attempt {attempts} failed, next in {:.1} s", retry_in.as_secs_f64())
            }
            Self::Relisting { reason, .. } => write!(f, "listing again: {reason}"),
            Self::Relisted { version, fetched, .. } => {
                f.write_str("listed again")?;
                at(f, version)?;
                fetched.map_or(Ok(()), |fetched| write!(f, " by metadata, objects read in full: {fetched}"))
            }
            Self::ListingAll { reason } => write!(f, "{reason}; reading the full list"),
            Self::FellBackToPages { reason } => write!(f, "no streamed list ({reason}); using paged lists temporarily"),
            Self::FellBackToJson { reason } => write!(f, "no protobuf ({reason}); requesting JSON temporarily"),
            Self::Polling { reason, every } => {
                write!(f, "no watch ({reason}); listing every {} s instead", every.as_secs())
            }
            Self::NewEpoch { held, proof } => {
                write!(
                    f,
                    "the server's history was replaced: the server is at version {proof}, the cache at version {held}; \
                     starting a full list"
                )
            }
            Self::Lagging { reason } => write!(f, "the server lags behind the cache ({reason}); waiting for it"),
            Self::SeekingProof => f.write_str("no proof of freshness for a period; requesting one"),
            Self::Suspect { reason } => write!(f, "freshness in doubt: {reason}; opening another watch"),
            Self::Proven => f.write_str("freshness proven"),
            Self::Audited { version } => f.write_str("compared with a list").and_then(|()| at(f, version)),
            Self::Lost { key, uid, held, listed } => {
                let state = |participle: &str, version: &Option<ResourceVersion>| match version {
                    Some(version) => format!("{participle} at version {version}"),
                    None => format!("not {participle}"),
                };
                let (cached, listed) = (state("cached", held), state("listed", listed));
                write!(f, "the server's watch did not deliver a change of {key} ({uid}): {cached}, {listed}")
            }
            Self::Undecodable { reason, .. } => write!(f, "{reason}; reads return unknown until a later version can be decoded"),
            Self::Contradicted { reason } => write!(f, "{reason}; checking with a list"),
            Self::VersionsUnordered => f.write_str(
                "the server's versions do not come from one counter; the cache treats the versions as opaque: changes follow \
                 the order of the stream, and only lists prove that nothing is missing",
            ),
            Self::Endless { bytes, limit } => {
                write!(f, "an unfinished record already has {bytes} bytes; the limit is {limit} bytes")
            }
            Self::IdentifiedByName { key } => write!(
                f,
                "the server sends objects without a UID, such as {key}; the cache identifies them by name, and reports an object \
                 that was recreated between two lists as changed"
            ),
            Self::Unidentified { reason } => write!(f, "the object of a record cannot be identified: {reason}"),
        }
    }
}
