//! Records of requests and responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::resources::GroupResource;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read of one object.
    Get,
    /// List from its start: a full transfer.
    List,
    /// Further page of a list.
    Page,
    /// List that only reads the version of the collection: with `limit=1`, or with a selector that matches no object.
    Probe,
    /// List of one object by its name, at an exact version.
    ListByName,
    /// Watch that starts with all objects: a full transfer.
    StreamedList,
    /// Watch from a version.
    Watch,
    /// Creation of an object.
    Create,
    /// Replacement of an object.
    Update,
    /// A patch.
    Patch,
    /// A deletion.
    Delete,
    /// Deletion of a collection.
    DeleteCollection,
    /// Request without an object: discovery, health, version.
    Other,
}

impl Verb {
    /// Returns the verb for authorization.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get | Self::Other => "get",
            Self::List | Self::Page | Self::Probe | Self::ListByName => "list",
            Self::StreamedList | Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Returns whether the response contains all objects of a collection.
    pub fn is_full_transfer(self) -> bool {
        matches!(self, Self::List | Self::StreamedList)
    }

    /// Returns whether the request writes objects.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection)
    }
}

/// Record of one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Number of the request, ascending in the order of arrival.
    pub id: u64,
    /// Time of arrival, since the server's start.
    pub at: Duration,
    /// Replica that received the request.
    pub replica: usize,
    /// Connection of the request.
    pub connection: u64,
    /// Kind of the request.
    pub verb: Verb,
    /// Resource, if the request names one.
    pub resource: Option<GroupResource>,
    /// Path.
    pub path: String,
    /// Query, without the question mark.
    pub query: String,
    /// User agent of the client.
    pub user_agent: String,
    /// User of the certificate or the password.
    pub user: Option<String>,
    /// `Impersonate-` headers with lower-case names, in order.
    pub impersonation: Vec<(String, String)>,
    /// HTTP status of the response; `None` before the response.
    pub code: Option<u16>,
    /// Number of bytes of the body that were passed to the connection.
    pub bytes_sent: u64,
    /// True if the body has ended or was abandoned.
    pub finished: bool,
}

/// Numbers of requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Number of lists from their start.
    pub lists: usize,
    /// Number of further pages of lists.
    pub pages: usize,
    /// Number of lists that only read the version of the collection, such as lists with `limit=1`.
    pub probes: usize,
    /// Number of watches that started with all objects.
    pub streamed_lists: usize,
    /// Number of watches from a version.
    pub watches: usize,
    /// Number of reads of one object, including reads at a version.
    pub gets: usize,
    /// Number of creations, updates, patches and deletions.
    pub writes: usize,
    /// Number of sent bytes of all response bodies.
    pub bytes: u64,
    /// Maximum number of concurrent full transfers.
    pub most_concurrent_transfers: usize,
}

impl RequestCounts {
    /// Returns the number of full transfers of a collection, listed or streamed.
    pub fn full_transfers(&self) -> usize {
        self.lists + self.streamed_lists
    }
}

/// A running or finished request.
#[derive(Debug)]
pub(crate) struct RequestEntry {
    record: RequestRecord,
    code: AtomicU16,
    bytes: AtomicU64,
    finished: AtomicBool,
}

impl RequestEntry {
    pub(crate) fn id(&self) -> u64 {
        self.record.id
    }

    pub(crate) fn set_code(&self, code: u16) {
        self.code.store(code, Ordering::Relaxed);
    }

    pub(crate) fn record_sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
    }

    fn snapshot(&self) -> RequestRecord {
        let code = self.code.load(Ordering::Relaxed);
        RequestRecord {
            code: (code > 0).then_some(code),
            bytes_sent: self.bytes.load(Ordering::Relaxed),
            finished: self.finished.load(Ordering::Relaxed),
            ..self.record.clone()
        }
    }
}

/// Log of all requests.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    entries: Mutex<Vec<Arc<RequestEntry>>>,
    transfers: Arc<Transfers>,
}

#[derive(Debug, Default)]
struct Transfers {
    running: AtomicUsize,
    peak: AtomicUsize,
}

/// A running full transfer, which ends on drop.
#[derive(Debug)]
pub(crate) struct Transfer(Arc<Transfers>);

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestLog {
    /// Records a request and assigns its number.
    pub(crate) fn add(&self, mut record: RequestRecord) -> Arc<RequestEntry> {
        let mut entries = self.entries.lock();
        // The id is the index, so ids follow the order of arrival.
        record.id = entries.len() as u64;
        let entry = Arc::new(RequestEntry {
            record,
            code: AtomicU16::new(0),
            bytes: AtomicU64::new(0),
            finished: AtomicBool::new(false),
        });
        entries.push(Arc::clone(&entry));
        entry
    }

    pub(crate) fn start_transfer(&self) -> Transfer {
        let now = self.transfers.running.fetch_add(1, Ordering::Relaxed) + 1;
        // `fetch_max` keeps the peak even if other transfers end concurrently.
        self.transfers.peak.fetch_max(now, Ordering::Relaxed);
        Transfer(Arc::clone(&self.transfers))
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        let entries = self.entries.lock();
        entries.iter().map(|entry| entry.snapshot()).collect()
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        let entries = self.entries.lock();
        let mut counts = RequestCounts {
            most_concurrent_transfers: self.transfers.peak.load(Ordering::Relaxed),
            ..RequestCounts::default()
        };
        for entry in entries.iter() {
            counts.bytes += entry.bytes.load(Ordering::Relaxed);
            match entry.record.verb {
                Verb::List => counts.lists += 1,
                Verb::Page => counts.pages += 1,
                Verb::Probe => counts.probes += 1,
                Verb::StreamedList => counts.streamed_lists += 1,
                Verb::Watch => counts.watches += 1,
                Verb::Get | Verb::ListByName => counts.gets += 1,
                verb => counts.writes += usize::from(verb.is_write()),
            }
        }
        counts
    }
}
