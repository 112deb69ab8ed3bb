//! A checkpoint as parts with rows.
//!
//! What is read is checked by sums of our own, whatever the store below them checks: of each row, and of all rows of a part.
//! What fails is no part. A store that panics over bytes that nobody wrote has its panic contained here.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, Table, TableDefinition, TableError,
};

use super::disk::Disk;
use super::head::{Head, Sum, Terms, Unreadable};
use crate::runner::drop_contained;

const HEADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("heads");

/// So much of the file is kept in memory, beside what the system keeps.
const CACHE: usize = 4 * 1024 * 1024;

/// The file of a checkpoint.
pub(super) struct Book {
    disk: Box<dyn Disk>,
    /// Nothing after a fault, until it is opened again.
    database: Mutex<Option<Arc<Database>>>,
    /// Held while something is written.
    writing: Mutex<()>,
    /// Why what was there could not be read.
    pub(super) unreadable: Option<Arc<str>>,
}

/// What is to be written of one part.
pub(super) struct Step<'a> {
    /// The part's name.
    pub(super) name: &'a str,
    /// Whether what is there of it is worth nothing.
    pub(super) anew: bool,
    /// What is to be said of it; nothing where nothing is to be left of it.
    pub(super) head: Option<Head>,
    /// Which rows change, given the mark of what is there; nothing where that is worth nothing.
    pub(super) edit: Edit<'a>,
}

pub(super) type Edit<'a> = Box<dyn FnOnce(Option<u64>, &mut dyn Rows) -> Result<(), Fault> + 'a>;

/// The rows of a part, to be changed.
pub(super) trait Rows {
    /// Writes a row, in the place of the one that is there.
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), Fault>;

    /// Removes a row; nothing happens where there is none.
    fn remove(&mut self, key: &[u8]) -> Result<(), Fault>;
}

/// Why something could not be read or written, for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) Arc<str>);

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.into().to_string().into())
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Book {
    /// Opens what is on `disk`. What cannot be read is set aside.
    pub(super) fn open(disk: Box<dyn Disk>) -> io::Result<Self> {
        let (database, unreadable) = match database(&*disk) {
            Ok(database) => (database, None),
            Err(Unopened::Io(error)) => return Err(error),
            Err(Unopened::Unreadable(Fault(why))) => {
                disk.set_aside()?;
                let database = database(&*disk).map_err(io::Error::from)?;
                tracing::warn!(%why, "a checkpoint cannot be read; it is set aside, and a new one is begun");
                (database, Some(why))
            }
        };
        Ok(Self { disk, database: Mutex::new(Some(database.into())), writing: Mutex::default(), unreadable })
    }

    fn database(&self) -> Result<Arc<Database>, Fault> {
        let mut held = lock(&self.database);
        if let Some(database) = &*held {
            return Ok(database.clone());
        }
        let database = database(&*self.disk).map_err(|unopened| Fault(io::Error::from(unopened).to_string().into()))?;
        let database = Arc::new(database);
        *held = Some(database.clone());
        Ok(database)
    }

    /// Nothing is written as long as this is held.
    pub(super) fn pause(&self) -> impl Sized + '_ {
        lock(&self.writing)
    }

    /// Reads a part: hands its rows to `take`, which says whether it can use them, and returns its head.
    ///
    /// # Errors
    ///
    /// Where it is not to be used, and why; nothing where there is none.
    pub(super) fn read(
        &self,
        name: &str,
        terms: &Terms,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Head, Option<Arc<str>>> {
        let read = self.database().and_then(|database| contained(|| read(&database, name, terms, &mut take)));
        match read {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(Some(why))) => Err(Some(why)),
            Ok(Err(None)) => {
                Err(self.unreadable.as_ref().map(|why| format!("the checkpoint could not be read: {why}").into()))
            }
            Err(Fault(why)) => {
                // The next one opens it anew.
                *lock(&self.database) = None;
                Err(Some(format!("the checkpoint could not be read: {why}").into()))
            }
        }
    }

    /// Carries out all that `steps` has, in one transaction, which is on the disk when this returns. They are asked for when
    /// nothing else is written.
    ///
    /// After a fault nobody knows whether it is on the disk all the same: the next one finds out, by the marks of the heads.
    pub(super) fn write<'a>(&self, steps: impl FnOnce() -> Vec<Step<'a>>) -> Result<Option<Written>, Fault> {
        let _writing = lock(&self.writing);
        let steps = steps();
        if steps.is_empty() {
            return Ok(None);
        }
        let written = self.database().and_then(|database| contained(move || write(&database, steps)));
        if written.is_err() {
            *lock(&self.database) = None;
        }
        written.map(Some)
    }
}

/// Why a store cannot be opened.
enum Unopened {
    /// The system says so, and may say otherwise another time.
    Io(io::Error),
    /// For what is in it.
    Unreadable(Fault),
}

impl From<Unopened> for io::Error {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Io(error) => error,
            Unopened::Unreadable(Fault(why)) => Self::new(io::ErrorKind::InvalidData, &*why),
        }
    }
}

fn database(disk: &dyn Disk) -> Result<Database, Unopened> {
    let medium = disk.open().map_err(Unopened::Io)?;
    let open = move || {
        let mut builder = Database::builder();
        // All of it is looked at, once: the store is not to stumble later over what a torn write has left.
        builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
        Ok(builder.create_with_backend(medium))
    };
    match contained(open) {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(DatabaseError::Storage(StorageError::Io(error))))
            if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            Err(Unopened::Io(error))
        }
        Ok(Err(error)) => Err(Unopened::Unreadable(error.into())),
        Err(fault) => Err(Unopened::Unreadable(fault)),
    }
}

type ReadPart = Result<Head, Option<Arc<str>>>;

fn read(
    database: &Database,
    name: &str,
    terms: &Terms,
    take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<ReadPart, Fault> {
    let damaged = || Err(Some(Arc::from("the checkpoint is damaged")));
    let transaction = database.begin_read()?;
    let heads = match transaction.open_table(HEADS) {
        Ok(heads) => heads,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Err(None)),
        Err(error) => return Err(error.into()),
    };
    let Some(bytes) = heads.get(name)? else { return Ok(Err(None)) };
    let (head, sum) = match Head::read(bytes.value()) {
        Ok(read) => read,
        Err(Unreadable::Damaged) => return Ok(damaged()),
        Err(Unreadable::Format(format)) => {
            return Ok(Err(Some(format!("the checkpoint has format {format}, of another release").into())));
        }
    };
    if head.terms.server != terms.server {
        return Ok(Err(Some(format!("the checkpoint is of another server, {}", head.terms.server).into())));
    }
    if head.terms != *terms {
        return Ok(Err(Some("the checkpoint has other parts of the objects than are asked for now".into())));
    }
    let mut found = Sum::default();
    let rows = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(&rows_of(name)))?;
    for row in rows.iter()? {
        let (key, value) = row?;
        let Some((row, checksum)) = checked(key.value(), value.value()) else { return Ok(damaged()) };
        found.add(checksum);
        if !take(key.value(), row) {
            return Ok(damaged());
        }
    }
    Ok(if found == sum { Ok(head) } else { damaged() })
}

fn write(database: &Database, steps: Vec<Step<'_>>) -> Result<Written, Fault> {
    let mut written = Written::default();
    let transaction = database.begin_write()?;
    {
        let mut heads = transaction.open_table(HEADS)?;
        for Step { name, anew, head, edit } in steps {
            let rows_of = rows_of(name);
            let definition = TableDefinition::<&[u8], &[u8]>::new(&rows_of);
            if anew || head.is_none() {
                transaction.delete_table(definition)?;
            }
            let Some(head) = head else {
                heads.remove(name)?;
                continue;
            };
            let before = if anew { None } else { heads.get(name)? };
            let before = before.and_then(|bytes| Head::read(bytes.value()).ok());
            let (mark, sum) = before.map_or_else(Default::default, |(head, sum)| (Some(head.mark), sum));
            let mut rows = Part { table: transaction.open_table(definition)?, sum, written };
            edit(mark, &mut rows)?;
            let Part { sum, written: so_far, .. } = rows;
            let bytes = head.write(sum);
            written = Written { bytes: so_far.bytes + bytes.len() as u64, ..so_far };
            heads.insert(name, bytes.as_slice())?;
        }
    }
    transaction.commit()?;
    Ok(written)
}

fn rows_of(name: &str) -> String {
    format!("rows of {name}")
}

/// The rows of a part that is being written.
struct Part<'a> {
    table: Table<'a, &'static [u8], &'static [u8]>,
    sum: Sum,
    written: Written,
}

impl Rows for Part<'_> {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), Fault> {
        let checksum = checksum(key, row);
        let mut value = Vec::with_capacity(row.len() + 4);
        value.extend(checksum.to_le_bytes());
        value.extend(row);
        let before = self.table.insert(key, value.as_slice())?;
        if let Some(before) = before.map(|before| said(before.value())) {
            self.sum.subtract(before);
        }
        self.sum.add(checksum);
        self.written.rows += 1;
        self.written.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Fault> {
        let before = self.table.remove(key)?;
        if let Some(before) = before.map(|before| said(before.value())) {
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

/// The checksum that a row says of itself.
fn said(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum))
}

/// The row, and its checksum, if that is right.
fn checked<'a>(key: &[u8], value: &'a [u8]) -> Option<(&'a [u8], u32)> {
    let (_, row) = value.split_first_chunk::<4>()?;
    let checksum = checksum(key, row);
    (checksum == said(value)).then_some((row, checksum))
}

/// What `action` comes to, or that it panicked.
fn contained<T>(action: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    std::panic::catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        drop_contained(panic);
        Err(Fault("the store panicked over what is in it".into()))
    })
}

/// What panics is contained before it comes to a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
