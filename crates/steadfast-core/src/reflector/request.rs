//! Requests of a reflector, and their query parameters.

use std::fmt::Write;

use crate::key::ObjectKey;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Identifier of a request and its response, while the request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Request for the collection of the informer's scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The collection as initial events, followed by the watch
    /// ([KEP-3157](https://github.com/kubernetes/enhancements/issues/3157)).
    StreamedList {
        /// Minimum version of the list.
        from: ListFrom,
        /// Time after which the server ends the watch, in seconds.
        timeout_seconds: u32,
    },
    /// A page of the collection.
    Page {
        /// Minimum version of the list; only the request of the first page contains it.
        from: ListFrom,
        /// Number of objects in the page; `None` for all objects.
        limit: Option<u32>,
        /// Continue token of the previous page.
        continue_token: Option<String>,
    },
    /// The changes after a version.
    Watch {
        /// Version of the cache.
        from: ResourceVersion,
        /// Time after which the server ends the watch, in seconds.
        timeout_seconds: u32,
        /// Set if the current connection is unconfirmed, so that the request must use another connection.
        new_connection: bool,
    },
    /// Metadata of one object, for the version of the collection: a lower bound of the current version (R2, R5).
    Probe {
        /// Earliest acceptable time of the probe. The response to another informer's probe for the same resource is
        /// sufficient if that probe was sent after this time.
        since: Instant,
    },
    /// A page of the collection's identities, for a comparison with the cache (R2, R12).
    Versions {
        /// Number of requested identities.
        limit: u32,
        /// Continue token of the previous page.
        continue_token: Option<String>,
    },
    /// A page of the collection's metadata, instead of a page of the collection.
    Metadata {
        /// Minimum version of the list; only the request of the first page contains it.
        from: ListFrom,
        /// Number of objects in the page; `None` for all objects.
        limit: Option<u32>,
        /// Continue token of the previous page.
        continue_token: Option<String>,
    },
    /// One object at a specific version, as a list of one object: in its namespace, with its name added to the field
    /// selector of the scope.
    State {
        /// Key of the object.
        key: ObjectKey,
        /// Version of the object.
        version: ResourceVersion,
    },
    /// The changes after a version, for a few seconds. If the watch ends regularly, it has shown all changes up to the
    /// target (R2).
    ShortWatch {
        /// Version of the cache.
        from: ResourceVersion,
        /// Version that the responding server must have reached before the watch is sent.
        target: ResourceVersion,
        /// Method to determine whether the server has reached `target`: by [`Request::reach_query`], on the connection
        /// that later carries the watch.
        method: ProbeMethod,
        /// Duration of the watch in seconds.
        seconds: u32,
    },
}

/// Method to determine whether the responding server has reached a version (R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMethod {
    /// A streamed list that matches nothing. The list ends at this version or later, where watches start.
    Streamed,
    /// A list that matches nothing and is not older than the version, for servers without streamed lists.
    Listed,
    /// No method: the server supports neither, so only a bookmark of the watch itself shows the version.
    Unknown,
}

/// Minimum version of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListFrom {
    /// Not older than any write before the request.
    Consistent,
    /// Not older than a cached version, so the list never goes back.
    NotOlderThan(ResourceVersion),
}

/// Duration of a short watch in seconds. Its bookmark, if the server sends one, arrives about two seconds before the
/// end.
pub(super) const SHORT_WATCH_SECONDS: u32 = 4;

/// Duration of a short watch in seconds while a caller waits for it. Servers rarely send a bookmark in this time, so
/// the end of the watch is the proof.
pub(super) const BRIEF_WATCH_SECONDS: u32 = 1;

/// Field selector that matches nothing, since no object has two names.
pub const EMPTY_FIELD_SELECTOR: &str = "metadata.name=a,metadata.name=b";

impl Request {
    /// Returns whether the response is the whole collection or a page of it, including metadata only. At most a few of
    /// these run concurrently (R5).
    pub fn is_full_transfer(&self) -> bool {
        matches!(self, Self::StreamedList { .. } | Self::Page { .. } | Self::Metadata { .. })
    }

    /// Returns whether the response is a watch stream, not a list.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::StreamedList { .. } | Self::Watch { .. } | Self::ShortWatch { .. })
    }

    /// Returns whether the request is for metadata only, independent of the informer's type.
    pub fn is_metadata_only(&self) -> bool {
        matches!(self, Self::Probe { .. } | Self::Versions { .. } | Self::Metadata { .. })
    }

    /// Returns the query parameters without the selectors of the scope.
    pub fn query(&self) -> String {
        let mut query = String::new();
        match self {
            Self::StreamedList { from, timeout_seconds } => {
                query.push_str("watch=true&allowWatchBookmarks=true&sendInitialEvents=true");
                query.push_str("&resourceVersionMatch=NotOlderThan");
                // Without a minimum version, the initial events come from a consistent read
                // (KEP-3157).
                if let ListFrom::NotOlderThan(version) = from {
                    let _ = write!(query, "&resourceVersion={}", encoded(version.as_str()));
                }
                let _ = write!(query, "&timeoutSeconds={timeout_seconds}");
            }
            Self::Page { from, limit, continue_token } | Self::Metadata { from, limit, continue_token } => {
                let mut separator = "";
                if let Some(limit) = limit {
                    let _ = write!(query, "limit={limit}");
                    separator = "&";
                }
                match (continue_token, from) {
                    // kube-apiserver rejects a `resourceVersion` next to a continue token. The
                    // token contains the version of the list.
                    (Some(token), _) => {
                        let _ = write!(query, "{separator}continue={}", encoded(token));
                    }
                    (None, ListFrom::NotOlderThan(version)) => {
                        let version = encoded(version.as_str());
                        let _ = write!(query, "{separator}resourceVersion={version}&resourceVersionMatch=NotOlderThan");
                    }
                    // An unset `resourceVersion` requests the newest state from the quorum.
                    (None, ListFrom::Consistent) => {}
                }
            }
            Self::Watch { from, timeout_seconds, .. } | Self::ShortWatch { from, seconds: timeout_seconds, .. } => {
                // `allowWatchBookmarks` is only a hint: servers may send no bookmarks at all.
                let from = encoded(from.as_str());
                let _ = write!(
                    query,
                    "watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={timeout_seconds}"
                );
            }
            Self::State { version, .. } => {
                // `Exact` reads this revision and fails with `410` after its compaction.
                let version = encoded(version.as_str());
                let _ = write!(query, "resourceVersion={version}&resourceVersionMatch=Exact");
            }
            // A limited list without a version is a consistent read, so its version is at least that of every earlier
            // write.
            Self::Probe { .. } => query.push_str("limit=1"),
            Self::Versions { limit, continue_token } => {
                let _ = write!(query, "limit={limit}");
                if let Some(token) = continue_token {
                    let _ = write!(query, "&continue={}", encoded(token));
                }
            }
        }
        query
    }
}

impl Request {
    /// Returns the query parameters of the request before a short watch. The request must have [`EMPTY_FIELD_SELECTOR`]
    /// in its field selector.
    pub fn reach_query(&self) -> Option<String> {
        let Self::ShortWatch { target, method, .. } = self else { return None };
        let least = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", encoded(target.as_str()));
        match method {
            ProbeMethod::Streamed => Some(format!(
                "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&{least}&timeoutSeconds={SHORT_WATCH_SECONDS}"
            )),
            // No limit is set: older servers read a limited list from etcd, while only the version of their watch cache
            // matters.
            ProbeMethod::Listed => Some(least),
            ProbeMethod::Unknown => None,
        }
    }
}

/// Returns `text` with all characters percent-encoded except the unreserved ones (RFC 3986, 2.3).
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
