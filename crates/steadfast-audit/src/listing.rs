//! A list of a resource in progress, page by page.

use steadfast::environment::Instant;

use crate::version_table::NameHash;

/// List in progress.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) endpoint: usize,
    /// Request of the current page; `None` between two pages.
    pub(crate) request: Option<u64>,
    pub(crate) started: Instant,
    /// Version of the first page, which all pages must have.
    pub(crate) version: Option<u64>,
    pub(crate) continue_token: String,
    pub(crate) listed: Vec<(NameHash, u64)>,
}

impl Listing {
    pub(crate) fn new(endpoint: usize, now: Instant) -> Self {
        Self { endpoint, request: None, started: now, version: None, continue_token: String::new(), listed: Vec::new() }
    }
}

/// Object that a stream still has, and a list lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingDeletion {
    pub(crate) endpoint: usize,
    pub(crate) key: NameHash,
    /// Version in the table of the stream.
    pub(crate) version: u64,
    pub(crate) list_version: u64,
    pub(crate) since: Instant,
}
