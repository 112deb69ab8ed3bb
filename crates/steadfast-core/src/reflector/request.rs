//! What a reflector asks of the server, as query parameters.

use std::fmt::Write;

use crate::key::ObjectKey;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// One request and its answer, as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request for the collection of the informer's scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The collection as initial events, then the watch that follows from them
    /// ([KEP-3157](https://github.com/kubernetes/enhancements/issues/3157)).
    StreamedList {
        /// How new it has to be.
        from: ListFrom,
        /// The server ends the watch after this time.
        timeout_seconds: u32,
    },
    /// A page of the collection.
    Page {
        /// How new it has to be; only the first page says so.
        from: ListFrom,
        /// The objects requested; none for all at once.
        limit: Option<u32>,
        /// Where the page before ended.
        continue_token: Option<String>,
    },
    /// The changes after a version.
    Watch {
        /// The version that is held.
        from: ResourceVersion,
        /// The server ends the watch after this time.
        timeout_seconds: u32,
        /// Whether the connection in use is in doubt, so that another has to be taken.
        elsewhere: bool,
    },
    /// One object's metadata, for the collection's version: a lower bound of now (R2, R5).
    Probe {
        /// The answer to another informer's probe for the same resource will do, if it was sent since then.
        since: Instant,
    },
    /// A page of the collection's identities, to be compared with what is held (R2, R12).
    Versions {
        /// The identities requested.
        limit: u32,
        /// Where the page before ended.
        continue_token: Option<String>,
    },
    /// A page of the collection's metadata, in place of a page of the collection.
    Metadata {
        /// How new it has to be; only the first page says so.
        from: ListFrom,
        /// The objects requested; none for all at once.
        limit: Option<u32>,
        /// Where the page before ended.
        continue_token: Option<String>,
    },
    /// One object as it was at a version, as a list of it alone: in its own namespace, and with its name beside the field
    /// selector of the scope.
    State {
        /// Which object.
        key: ObjectKey,
        /// The version.
        version: ResourceVersion,
    },
    /// The changes after a version for a few seconds: what it has shown when it ends is all there is (R2).
    ShortWatch {
        /// The version that is held.
        from: ResourceVersion,
        /// The version that the server that answers has to have reached before it is sent.
        target: ResourceVersion,
        /// How that is found out: by [`Request::reach_query`], answered on the connection that carries the watch then.
        reach: Reach,
        /// How long the watch lasts.
        seconds: u32,
    },
}

/// How it is found out that the server that answers has reached a version (R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By initial events of nothing, which end at that version or later: watches begin there.
    Streamed,
    /// By a list of nothing that is not older: for servers that stream no lists.
    Listed,
    /// Not at all: the server takes neither, so that only a bookmark of the watch itself tells.
    Unknown,
}

/// How new a list has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListFrom {
    /// Not older than anything written before the request.
    Consistent,
    /// Not older than a version that is held already, so that the list can only go forward.
    NotOlderThan(ResourceVersion),
}

/// The seconds that a short watch lasts; its bookmark, if one is sent, comes about two seconds before its end.
pub(super) const SHORT_WATCH_SECONDS: u32 = 4;

/// The seconds that a short watch lasts while a caller waits for it. A bookmark is rarely sent in this time: the end of the
/// watch is the proof.
pub(super) const BRIEF_WATCH_SECONDS: u32 = 1;

/// A field selector that matches nothing: no object has two names.
pub const OF_NOTHING: &str = "metadata.name=a,metadata.name=b";

impl Request {
    /// Whether the answer is the whole collection, or a page of it, if only its metadata: at most a few of these at once
    /// (R5).
    pub fn is_full_transfer(&self) -> bool {
        matches!(self, Self::StreamedList { .. } | Self::Page { .. } | Self::Metadata { .. })
    }

    /// Whether the answer is a watch stream, as opposed to a list.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::StreamedList { .. } | Self::Watch { .. } | Self::ShortWatch { .. })
    }

    /// Whether only metadata are wanted, whatever the informer keeps.
    pub fn is_metadata_only(&self) -> bool {
        matches!(self, Self::Probe { .. } | Self::Versions { .. } | Self::Metadata { .. })
    }

    /// The query parameters, the scope's selectors aside.
    pub fn query(&self) -> String {
        let mut query = String::new();
        match self {
            Self::StreamedList { from, timeout_seconds } => {
                query.push_str("watch=true&allowWatchBookmarks=true&sendInitialEvents=true");
                query.push_str("&resourceVersionMatch=NotOlderThan");
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
                    (Some(token), _) => {
                        let _ = write!(query, "{separator}continue={}", encoded(token));
                    }
                    (None, ListFrom::NotOlderThan(version)) => {
                        let version = encoded(version.as_str());
                        let _ = write!(query, "{separator}resourceVersion={version}&resourceVersionMatch=NotOlderThan");
                    }
                    (None, ListFrom::Consistent) => {}
                }
            }
            Self::Watch { from, timeout_seconds, .. } | Self::ShortWatch { from, seconds: timeout_seconds, .. } => {
                let from = encoded(from.as_str());
                let _ = write!(
                    query,
                    "watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={timeout_seconds}"
                );
            }
            Self::State { version, .. } => {
                let version = encoded(version.as_str());
                let _ = write!(query, "resourceVersion={version}&resourceVersionMatch=Exact");
            }
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
    /// The query parameters of what is asked before a short watch, to be sent with [`OF_NOTHING`] in its field selector.
    pub fn reach_query(&self) -> Option<String> {
        let Self::ShortWatch { target, reach, .. } = self else { return None };
        let least = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", encoded(target.as_str()));
        match reach {
            Reach::Streamed => Some(format!(
                "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&{least}&timeoutSeconds={SHORT_WATCH_SECONDS}"
            )),
            // Without a limit: older servers take that to their store, and it is what they have in memory that matters.
            Reach::Listed => Some(least),
            Reach::Unknown => None,
        }
    }
}

/// `text` with all but unreserved characters percent-encoded (RFC 3986, 2.3).
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
