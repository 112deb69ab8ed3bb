//! What a reflector has to say of itself, for logs, metrics and error callbacks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::ObjectKey;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Something worth a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The first complete list is in the store.
    Synced {
        /// Its version.
        version: Option<ResourceVersion>,
    },
    /// What an earlier life of this program has kept is in the store.
    Restored {
        /// Its version.
        version: ResourceVersion,
        /// How many objects there are.
        objects: usize,
    },
    /// What an earlier life of this program has kept is of no use, or of less: the collection is listed.
    NotRestored {
        /// The cause.
        why: Arc<str>,
    },
    /// What is held could not be written down for another life of this program; it is tried again.
    NotKept {
        /// The cause.
        why: Arc<str>,
    },
    /// Durable handlers are told what is due to them though it cannot be written down that it is: should the program die, its
    /// next life goes on from what was written last.
    ToldUnwritten {
        /// The cause.
        why: Arc<str>,
    },
    /// A watch goes on where the one before ended.
    Resumed {
        /// From which version.
        version: ResourceVersion,
    },
    /// A watch goes on, on another connection: that of before is to end.
    Moved {
        /// The version that is held.
        version: ResourceVersion,
    },
    /// A watch ended as watches do.
    Ended,
    /// A request failed, or a stream broke.
    Failed {
        /// The cause.
        why: Arc<str>,
        /// How many failed since the last sign of health.
        attempts: u32,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// The whole collection is requested once more.
    Relisting {
        /// The cause.
        why: Arc<str>,
    },
    /// A relist is complete.
    Relisted {
        /// What was held before it.
        held: Option<ResourceVersion>,
        /// Its version.
        version: Option<ResourceVersion>,
        /// How many objects came in full, where only metadata were listed of the others; none where all of them did.
        fetched: Option<usize>,
    },
    /// What has changed is not to be had by itself, or is too much: all is listed.
    ListingAll {
        /// The cause.
        why: Arc<str>,
    },
    /// Streamed lists do not work here, and pages do: they are used for a while.
    FellBackToPages {
        /// The cause.
        why: Arc<str>,
    },
    /// What comes as protobuf cannot be read here: JSON is asked for instead for a while.
    FellBackToJson {
        /// The cause.
        why: Arc<str>,
    },
    /// The server does not let us watch, or its watches always fail: it is listed again and again instead.
    Polling {
        /// What watches come to.
        why: Arc<str>,
        /// How often it is listed.
        every: Duration,
    },
    /// The server's history is another one: it was restored from a backup.
    NewEpoch {
        /// The version that was held.
        held: ResourceVersion,
        /// The lower one that proves it.
        proof: ResourceVersion,
    },
    /// The server that answers lags behind what is held.
    Lagging {
        /// What it said.
        why: Arc<str>,
    },
    /// A proof of freshness is overdue and is being sought.
    SeekingProof,
    /// The proof did not come.
    Suspect {
        /// What happened instead.
        why: Arc<str>,
    },
    /// The doubt is over.
    Proven,
    /// What is held was compared with a list of versions, and nothing was lost.
    Audited {
        /// The list's version.
        version: Option<ResourceVersion>,
    },
    /// A change of an object was lost: the server's watch never reported it. A list repairs it.
    Lost {
        /// Which object.
        key: ObjectKey,
        /// Its UID, the listed one where the two differ.
        uid: Uid,
        /// The version that is held; none where the object is not.
        held: Option<ResourceVersion>,
        /// The version that the server lists; none where the object is gone.
        listed: Option<ResourceVersion>,
    },
    /// The newest state of an object cannot be decoded: it answers as unknown until one can.
    Undecodable {
        /// Which object.
        key: ObjectKey,
        /// The version of that state.
        version: ResourceVersion,
        /// Which object it is and what is wrong with it, without its content.
        why: Arc<str>,
    },
    /// A record of a watch says what is not known, though its version is below the one held: a list decides.
    Contradicted {
        /// Which object it is about, and how it contradicts.
        why: Arc<str>,
    },
    /// The server's versions do not come from one counter: they are taken for opaque from here on.
    Disordered,
    /// A record is very much longer than the limit, and has not ended yet: what comes behind it waits for that.
    Endless {
        /// How long it is so far, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: usize,
    },
    /// Objects come without a UID: they are known by their names, so that one that is recreated between two lists looks
    /// changed. It is reported once.
    KnownByName {
        /// The first of them.
        key: ObjectKey,
    },
    /// A record or a list entry could not be attributed to any object.
    Unidentified {
        /// What is wrong with it, without its content.
        why: Arc<str>,
    },
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// Healthy life.
    Routine,
    /// A fault that is being dealt with.
    Fault,
}

impl Note {
    /// How much it matters: a healthy resume is routine, a fault is one line.
    pub fn gravity(&self) -> Gravity {
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
            | Self::KnownByName { .. }
            | Self::Audited { .. } => Gravity::Routine,
            Self::Failed { .. }
            | Self::NotRestored { .. }
            | Self::NotKept { .. }
            | Self::ToldUnwritten { .. }
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
            | Self::Disordered
            | Self::Endless { .. }
            | Self::Unidentified { .. } => Gravity::Fault,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, version: &Option<ResourceVersion>| match version {
            Some(version) => write!(f, " at {version}"),
            None => Ok(()),
        };
        match self {
            Self::Synced { version } => f.write_str("synced").and_then(|()| at(f, version)),
            Self::Restored { version, objects } => write!(f, "restored {objects} objects at {version}"),
            Self::NotRestored { why } => write!(f, "{why}; listing it all"),
            Self::NotKept { why } => {
                write!(f, "what is held cannot be written to the checkpoint ({why}); its last state stays, and it is tried again")
            }
            Self::ToldUnwritten { why } => {
                write!(f, "durable handlers are told what cannot be written to the checkpoint ({why})")
            }
            Self::Resumed { version } => write!(f, "watch resumed from {version}"),
            Self::Moved { version } => write!(f, "watch moved to another connection at {version}"),
            Self::Ended => f.write_str("watch ended by the server; resuming"),
            Self::Failed { why, attempts, retry_in } => {
                write!(f, "{why}; attempt {attempts} failed, next in {:.1} s", retry_in.as_secs_f64())
            }
            Self::Relisting { why } => write!(f, "listing again: {why}"),
            Self::Relisted { version, fetched, .. } => {
                f.write_str("listed again")?;
                at(f, version)?;
                fetched.map_or(Ok(()), |fetched| write!(f, " by metadata, objects in full: {fetched}"))
            }
            Self::ListingAll { why } => write!(f, "{why}; listing all of it in full"),
            Self::FellBackToPages { why } => write!(f, "no streamed list ({why}); listing in pages for a while"),
            Self::FellBackToJson { why } => write!(f, "no protobuf ({why}); asking for JSON for a while"),
            Self::Polling { why, every } => {
                write!(f, "no watch ({why}); listing every {} s in its place", every.as_secs())
            }
            Self::NewEpoch { held, proof } => {
                write!(f, "the server's history was replaced: it is at {proof}, {held} is held; listing it all anew")
            }
            Self::Lagging { why } => write!(f, "the server lags behind what is held ({why}); waiting for it"),
            Self::SeekingProof => f.write_str("no proof of freshness for a period; seeking one"),
            Self::Suspect { why } => write!(f, "freshness in doubt: {why}; opening another watch"),
            Self::Proven => f.write_str("freshness proven"),
            Self::Audited { version } => f.write_str("compared with a list").and_then(|()| at(f, version)),
            Self::Lost { key, uid, held, listed } => {
                let version = |version: &Option<ResourceVersion>, none: &'static str| {
                    version.as_ref().map_or_else(|| none.to_owned(), |version| format!("at version {version}"))
                };
                let (held, listed) = (version(held, "not at all"), version(listed, "not at all"));
                write!(f, "a change of {key} ({uid}) was lost by the server's watch: held {held}, listed {listed}")
            }
            Self::Undecodable { why, .. } => write!(f, "{why}; it answers as unknown until a later version can be"),
            Self::Contradicted { why } => write!(f, "{why}; listing to see"),
            Self::Disordered => f.write_str(
                "the server's versions do not come from one counter: they are taken for opaque, so changes follow the order \
                 of the stream and only lists prove that nothing is missing",
            ),
            Self::Endless { bytes, limit } => {
                write!(f, "a record has {bytes} bytes and no end yet; it is longer than the limit of {limit} bytes")
            }
            Self::KnownByName { key } => write!(
                f,
                "objects come without a UID, as {key}: they are known by their names, and one that is recreated between two \
                 lists looks changed"
            ),
            Self::Unidentified { why } => write!(f, "a record belongs to no object that can be named: {why}"),
        }
    }
}
