//! Checkpoint file as partitions with rows.
//!
//! Rows and partitions carry checksums of their own, independent of the database's checks. A partition that fails a
//! check is not used. A panic of the database on corrupt bytes is caught here.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition, TableError,
};
use steadfast_executor::drop_contained;

use super::disk::Disk;
use super::partition_header::{HeaderError, PartitionHeader, Sum, Terms};

const HEADER_TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("heads");

/// Size of the database's page cache in bytes, in addition to the page cache of the system.
const DATABASE_CACHE_BYTES: usize = 4 * 1024 * 1024;

/// Database of a checkpoint.
pub(super) struct CheckpointDatabase {
    /// Open database; `None` after a fault, until the next access opens it again.
    ///
    /// Fields are dropped in this order: the database writes while it closes, and the disk then unlocks the file.
    database: Mutex<Option<Arc<Database>>>,
    disk: Box<dyn Disk>,
    /// Held during a write.
    writing: Mutex<()>,
    /// Reason that the previous contents could not be read.
    pub(super) unreadable: Option<Arc<str>>,
}

/// Changes of one partition.
pub(super) struct PartitionChange<'a> {
    /// Name of the partition.
    pub(super) name: &'a str,
    /// True if the stored rows must be discarded.
    pub(super) discard_rows: bool,
    /// New header; `None` removes the partition.
    pub(super) head: Option<PartitionHeader>,
    /// Function that writes the changed rows. It receives the mark of the stored state, or `None` if that state is
    /// unusable.
    pub(super) edit: RowWriter<'a>,
}

pub(super) type RowWriter<'a> = Box<dyn FnOnce(Option<u64>, &mut dyn Rows) -> Result<(), CheckpointFileError> + 'a>;

/// Rows of a partition, to be changed.
pub(super) trait Rows {
    /// Writes a row, replacing an existing one.
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), CheckpointFileError>;

    /// Removes a row, if it exists.
    fn remove(&mut self, key: &[u8]) -> Result<(), CheckpointFileError>;
}

/// Reason that a read or write failed, for display.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CheckpointFileError(pub(super) Arc<str>);

impl<E: Into<redb::Error>> From<E> for CheckpointFileError {
    fn from(error: E) -> Self {
        Self(error.into().to_string().into())
    }
}

/// Numbers of rows and bytes in a completed write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl CheckpointDatabase {
    /// Opens the database on `disk`. A file with unreadable contents is renamed to `*.unreadable`.
    pub(super) fn open(disk: Box<dyn Disk>) -> io::Result<Self> {
        let (database, unreadable) = match database(&*disk) {
            Ok(database) => (database, None),
            Err(OpenError::Io(error)) => return Err(error),
            Err(OpenError::Unreadable(CheckpointFileError(reason))) => {
                // Renamed, not deleted, so that the file can be examined.
                disk.set_aside()?;
                let database = database(&*disk).map_err(io::Error::from)?;
                (database, Some(reason))
            }
        };
        Ok(Self { disk, database: Mutex::new(Some(database.into())), writing: Mutex::default(), unreadable })
    }

    fn database(&self) -> Result<Arc<Database>, CheckpointFileError> {
        let mut held = self.database.lock();
        if let Some(database) = &*held {
            return Ok(database.clone());
        }
        let database = database(&*self.disk)
            .map_err(|unopened| CheckpointFileError(io::Error::from(unopened).to_string().into()))?;
        let database = Arc::new(database);
        *held = Some(database.clone());
        Ok(database)
    }

    /// Blocks writes until the returned guard is dropped.
    pub(super) fn pause(&self) -> impl Sized + '_ {
        self.writing.lock()
    }

    /// Reads a partition: passes its rows to `take` and returns its header. `take` returns false for an unusable row.
    ///
    /// # Errors
    ///
    /// Returns the reason that the partition is unusable, or `None` if it does not exist.
    pub(super) fn read(
        &self,
        name: &str,
        terms: &Terms,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<PartitionHeader, Option<Arc<str>>> {
        let read = self.database().and_then(|database| catch_panic(|| read(&database, name, terms, &mut take)));
        match read {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(Some(reason))) => Err(Some(reason)),
            Ok(Err(None)) => {
                Err(self.unreadable.as_ref().map(|reason| format!("the checkpoint could not be read: {reason}").into()))
            }
            Err(CheckpointFileError(reason)) => {
                // The next access opens the database again.
                *self.database.lock() = None;
                Err(Some(format!("the checkpoint could not be read: {reason}").into()))
            }
        }
    }

    /// Writes all of `steps` in one transaction, which is durable when this function returns. `steps` is called under
    /// the write lock.
    ///
    /// After a fault the transaction may still be on the disk. The next transaction detects this by the marks of the
    /// headers.
    pub(super) fn write<'a>(
        &self,
        steps: impl FnOnce() -> Vec<PartitionChange<'a>>,
    ) -> Result<Option<Written>, CheckpointFileError> {
        let _writing = self.writing.lock();
        let steps = steps();
        if steps.is_empty() {
            return Ok(None);
        }
        let written = self.database().and_then(|database| catch_panic(move || write(&database, steps)));
        // After a failed write redb rejects all further writes, so the file must be opened again.
        if written.is_err() {
            *self.database.lock() = None;
        }
        written.map(Some)
    }
}

/// Reason that a database cannot be opened.
enum OpenError {
    /// The operating system returned an error, which may be transient.
    Io(io::Error),
    /// The contents are corrupt.
    Unreadable(CheckpointFileError),
}

impl From<OpenError> for io::Error {
    fn from(unopened: OpenError) -> Self {
        match unopened {
            OpenError::Io(error) => error,
            OpenError::Unreadable(CheckpointFileError(reason)) => Self::new(io::ErrorKind::InvalidData, &*reason),
        }
    }
}

fn database(disk: &dyn Disk) -> Result<Database, OpenError> {
    let medium = disk.open().map_err(OpenError::Io)?;
    let open = move || {
        let mut builder = Database::builder();
        // Checks the whole database once at the start, so that a torn write of an earlier run causes no failure later.
        builder.set_cache_size(DATABASE_CACHE_BYTES).set_check_integrity_on_open(true);
        Ok(builder.create_with_backend(medium))
    };
    match catch_panic(open) {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(DatabaseError::Storage(StorageError::Io(error))))
            if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            Err(OpenError::Io(error))
        }
        Ok(Err(error)) => Err(OpenError::Unreadable(error.into())),
        Err(fault) => Err(OpenError::Unreadable(fault)),
    }
}

type ReadPart = Result<PartitionHeader, Option<Arc<str>>>;

fn read(
    database: &Database,
    name: &str,
    terms: &Terms,
    take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<ReadPart, CheckpointFileError> {
    let damaged = || Err(Some(Arc::from("the checkpoint is damaged")));
    let transaction = database.begin_read()?;
    let headers = match transaction.open_table(HEADER_TABLE) {
        Ok(headers) => headers,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Err(None)),
        Err(error) => return Err(error.into()),
    };
    // Without a header the partition was never written, or was erased.
    let Some(bytes) = headers.get(name)? else { return Ok(Err(None)) };
    let (head, sum) = match PartitionHeader::read(bytes.value()) {
        Ok(read) => read,
        Err(HeaderError::Damaged) => return Ok(damaged()),
        Err(HeaderError::Format(format)) => {
            return Ok(Err(Some(format!("the checkpoint has format {format} of another release").into())));
        }
    };
    if head.terms.server != terms.server {
        return Ok(Err(Some(format!("the checkpoint belongs to another server, {}", head.terms.server).into())));
    }
    if head.terms != *terms {
        return Ok(Err(Some(
            "the checkpoint contains other parts of the objects than the program now requests".into(),
        )));
    }
    let mut found = Sum::default();
    let rows = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(&rows_of(name)))?;
    for row in rows.iter()? {
        let (key, value) = row?;
        let Some((row, checksum)) = checked(key.value(), value.value()) else { return Ok(damaged()) };
        // The sum over all rows detects a lost row. Checksums of single rows cannot detect it.
        found.add(checksum);
        if !take(key.value(), row) {
            return Ok(damaged());
        }
    }
    Ok(if found == sum { Ok(head) } else { damaged() })
}

fn write(database: &Database, steps: Vec<PartitionChange<'_>>) -> Result<Written, CheckpointFileError> {
    let mut written = Written::default();
    let transaction = database.begin_write()?;
    {
        let mut headers = transaction.open_table(HEADER_TABLE)?;
        for PartitionChange { name, discard_rows, head, edit } in steps {
            let rows_of = rows_of(name);
            let definition = TableDefinition::<&[u8], &[u8]>::new(&rows_of);
            // Removes the table as a whole: its rows are obsolete or unusable, and may not match the stored sum.
            if discard_rows || head.is_none() {
                transaction.delete_table(definition)?;
            }
            let Some(head) = head else {
                headers.remove(name)?;
                continue;
            };
            let before = if discard_rows { None } else { headers.get(name)? };
            let before = before.and_then(|bytes| PartitionHeader::read(bytes.value()).ok());
            let (mark, sum) = before.map_or_else(Default::default, |(head, sum)| (Some(head.mark), sum));
            let mut rows = Part { table: transaction.open_table(definition)?, sum, written };
            edit(mark, &mut rows)?;
            let Part { sum, written: so_far, .. } = rows;
            // The header comes last, because it contains the sum of the changed rows.
            let bytes = head.write(sum);
            written = Written { bytes: so_far.bytes + bytes.len() as u64, ..so_far };
            headers.insert(name, bytes.as_slice())?;
        }
    }
    transaction.commit()?;
    Ok(written)
}

fn rows_of(name: &str) -> String {
    format!("rows of {name}")
}

/// Rows of a partition that is being written.
struct Part<'a> {
    table: Table<'a, &'static [u8], &'static [u8]>,
    sum: Sum,
    written: Written,
}

impl Rows for Part<'_> {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), CheckpointFileError> {
        let checksum = checksum(key, row);
        let mut value = Vec::with_capacity(row.len() + 4);
        value.extend(checksum.to_le_bytes());
        value.extend(row);
        // The sum is updated from the replaced rows, so that the cost of a write depends only on its changes.
        let before = self.table.insert(key, value.as_slice())?;
        if let Some(before) = before.map(|before| stored_checksum(before.value())) {
            self.sum.subtract(before);
        }
        self.sum.add(checksum);
        self.written.rows += 1;
        self.written.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), CheckpointFileError> {
        let before = self.table.remove(key)?;
        if let Some(before) = before.map(|before| stored_checksum(before.value())) {
            self.sum.subtract(before);
        }
        self.written.rows += 1;
        self.written.bytes += key.len() as u64;
        Ok(())
    }
}

fn checksum(key: &[u8], row: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(row);
    hasher.finalize()
}

/// Returns the checksum stored in a row.
fn stored_checksum(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum))
}

/// Returns the row and its checksum, if the checksum is correct.
fn checked<'a>(key: &[u8], value: &'a [u8]) -> Option<(&'a [u8], u32)> {
    let (_, row) = value.split_first_chunk::<4>()?;
    let checksum = checksum(key, row);
    (checksum == stored_checksum(value)).then_some((row, checksum))
}

/// Runs `action` and converts a panic to an error.
fn catch_panic<T>(action: impl FnOnce() -> Result<T, CheckpointFileError>) -> Result<T, CheckpointFileError> {
    std::panic::catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        drop_contained(panic);
        Err(CheckpointFileError("the database panicked while it accessed the file".into()))
    })
}
