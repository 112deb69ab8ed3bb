//! Inputs and outputs of the auditor.

use std::time::Duration;

use crate::finding::AuditFinding;

/// Object in a list, or in an event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Resource version.
    pub version: u64,
}

/// Record of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditRecord {
    /// The object was added or changed.
    Changed(ObservedObject),
    /// The object was deleted.
    Deleted(ObservedObject),
    /// All events up to this version have been sent.
    Bookmark(u64),
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditFailure {
    /// No response, or an interrupted one.
    NoResponse(String),
    /// No response before the deadline.
    Deadline,
    /// HTTP status, or the status in an `ERROR` record, with its message.
    Status(u16, String),
    /// The response cannot be used.
    Unusable(String),
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditReply {
    /// Response of a list.
    Page {
        /// Version of the list.
        version: u64,
        /// Objects of the page.
        objects: Vec<ObservedObject>,
        /// Token of the next page; empty after the last page.
        continue_token: String,
        /// Number of objects after this page, if known.
        remaining: Option<u64>,
    },
    /// The server accepted the watch.
    Opened,
    /// Record of the watch.
    Record(AuditRecord),
    /// The watch ended without an error.
    Ended,
    /// The request failed, and has no further reply.
    Failed(AuditFailure),
}

/// Request for metadata of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditQuery {
    /// Page of a consistent list.
    Page {
        /// Maximum number of objects.
        limit: u64,
        /// Token of the page; empty for the first page.
        continue_token: String,
    },
    /// Consistent list of one object, for the newest version.
    Newest,
    /// Request that needs no storage, as a sign of life.
    Alive,
    /// List of no object, which succeeds if the watch cache has reached `version`.
    Reached {
        /// The version.
        version: u64,
    },
    /// Watch with bookmarks.
    Watch {
        /// Version from which the watch starts.
        from: u64,
    },
    /// Watch that ends after the given time.
    ShortWatch {
        /// Version from which the watch starts.
        from: u64,
        /// Duration of the watch.
        duration: Duration,
    },
}

impl AuditQuery {
    /// Returns whether the query is a watch.
    pub fn is_watch(&self) -> bool {
        matches!(self, Self::Watch { .. } | Self::ShortWatch { .. })
    }
}

/// Input of the auditor.
#[derive(Clone, Debug)]
pub enum AuditInput {
    /// Time has passed. Due once a second.
    Tick,
    /// Reply to a request, by the number of the request.
    Reply(u64, AuditReply),
}

/// Output of the auditor.
#[derive(Clone, Debug)]
pub enum AuditOutput {
    /// Sends a request.
    Send {
        /// Number of the request.
        request: u64,
        /// Number of the endpoint.
        endpoint: usize,
        /// Number of the resource.
        resource: usize,
        /// Content of the request.
        query: AuditQuery,
        /// Time until the response, or until the head of the response of a watch.
        deadline: Duration,
    },
    /// Cancels a request, which has no further reply.
    Cancel {
        /// Number of the request.
        request: u64,
    },
    /// Reports a finding.
    Finding(AuditFinding),
}
