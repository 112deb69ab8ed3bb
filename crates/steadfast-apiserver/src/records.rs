//! What the server was asked, and what it answered.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::resources::GroupResource;

/// What a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// A list from its beginning: a full transfer.
    List,
    /// A further page of a list.
    Page,
    /// A list with `limit=1`: it asks how new the server is and transfers next to nothing.
    Probe,
    /// A list of one object by its name, as it was at a version.
    State,
    /// A watch that begins with all objects: a full transfer.
    StreamedList,
    /// A watch from a version.
    Watch,
    /// A new object.
    Create,
    /// An object in place of another.
    Update,
    /// A patch.
    Patch,
    /// A deletion.
    Delete,
    /// A deletion of many.
    DeleteCollection,
    /// Anything that is not about objects: discovery, health, version.
    Other,
}

impl Verb {
    /// The verb as authorization knows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get | Self::Other => "get",
            Self::List | Self::Page | Self::Probe | Self::State => "list",
            Self::StreamedList | Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether all objects of a collection are sent.
    pub fn is_full_transfer(self) -> bool {
        matches!(self, Self::List | Self::StreamedList)
    }

    /// Whether objects are written.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Its number; they rise in the order in which requests came.
    pub id: u64,
    /// When it came, since the server's start.
    pub at: Duration,
    /// The replica that was asked.
    pub replica: usize,
    /// The connection it came on.
    pub connection: u64,
    /// What it requested.
    pub verb: Verb,
    /// The resource, where it is about one.
    pub resource: Option<GroupResource>,
    /// The path.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The client's name for itself.
    pub user_agent: String,
    /// The user whom a certificate or a password names.
    pub user: Option<String>,
    /// The `Impersonate-` headers, by their names in small letters, in their order.
    pub impersonation: Vec<(String, String)>,
    /// The HTTP status answered; `None` while there is no answer.
    pub code: Option<u16>,
    /// Bytes of the body that were handed to the connection so far.
    pub bytes_sent: u64,
    /// Whether the body has ended, or was given up.
    pub finished: bool,
}

/// How often each was requested of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Lists from their beginning.
    pub lists: usize,
    /// Further pages of lists.
    pub pages: usize,
    /// Lists with `limit=1`.
    pub probes: usize,
    /// Watches that began with all objects.
    pub streamed_lists: usize,
    /// Watches from a version.
    pub watches: usize,
    /// Reads of one object, those as it was at a version among them.
    pub gets: usize,
    /// Creations, updates, patches and deletions.
    pub writes: usize,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// The most full transfers that were under way at once.
    pub most_concurrent_transfers: usize,
}

impl RequestCounts {
    /// Full transfers of a collection, listed or streamed.
    pub fn full_transfers(&self) -> usize {
        self.lists + self.streamed_lists
    }
}

/// A request under way or finished.
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

    pub(crate) fn answered(&self, code: u16) {
        self.code.store(code, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
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

/// All requests there were.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    entries: Mutex<Vec<Arc<RequestEntry>>>,
    transfers: Arc<Transfers>,
}

#[derive(Debug, Default)]
struct Transfers {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A full transfer under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Transfer(Arc<Transfers>);

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestLog {
    /// Records a request; its number is set here.
    pub(crate) fn begin(&self, mut record: RequestRecord) -> Arc<RequestEntry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
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

    pub(crate) fn begin_transfer(&self) -> Transfer {
        let now = self.transfers.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.transfers.most.fetch_max(now, Ordering::Relaxed);
        Transfer(Arc::clone(&self.transfers))
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|entry| entry.snapshot()).collect()
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = RequestCounts {
            most_concurrent_transfers: self.transfers.most.load(Ordering::Relaxed),
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
                Verb::Get | Verb::State => counts.gets += 1,
                verb => counts.writes += usize::from(verb.is_write()),
            }
        }
        counts
    }
}
