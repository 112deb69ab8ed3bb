//! What no restart may forget, in a file: what was taken out lately, what waits to be approved of, and what was.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::guard::{Ask, NoSuchAsk, Record};

/// What mirrors remember, each under its name. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// Nowhere but here, where there is none.
    path: Option<PathBuf>,
    records: BTreeMap<String, Record>,
}

impl Memory {
    /// The memory in the file at `path`, which is made when there is something to remember, for its owner alone to read.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or is no such file: what it says of approvals must not be guessed at.
    pub fn open(path: &Path) -> io::Result<Self> {
        let records = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                let why = format!(
                    "{} is not what mirrors remember ({error}): remove it, and what was approved of is to be approved of again",
                    path.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        };
        Ok(Self(Arc::new(Mutex::new(Inner { path: Some(path.to_owned()), records }))))
    }

    /// A memory that ends with the program.
    pub fn volatile() -> Self {
        Self(Arc::new(Mutex::new(Inner { path: None, records: BTreeMap::new() })))
    }

    /// What waits to be approved of, by mirror.
    pub fn asks(&self) -> BTreeMap<String, Ask> {
        let asks = |(name, record): (&String, &Record)| Some((name.clone(), record.ask()?.clone()));
        self.lock().records.iter().filter_map(asks).collect()
    }

    /// Lets what `mirror` asks for under `id` be taken out; returns what that is.
    ///
    /// # Errors
    ///
    /// Where it asks for nothing, or for something else by now; or where that cannot be remembered.
    pub fn approve(&self, mirror: &str, id: &str) -> io::Result<Ask> {
        let approve = |record: &mut Record| record.approve(id);
        self.update(mirror, approve)?.map_err(|error: NoSuchAsk| io::Error::new(io::ErrorKind::NotFound, error))
    }

    /// What `mirror` remembers now.
    pub(crate) fn record(&self, mirror: &str) -> Record {
        self.lock().records.get(mirror).cloned().unwrap_or_default()
    }

    /// Changes what `mirror` remembers; what the change comes to is in the file when this returns.
    pub(crate) fn update<T>(&self, mirror: &str, change: impl FnOnce(&mut Record) -> T) -> io::Result<T> {
        let mut inner = self.lock();
        let mut record = inner.records.get(mirror).cloned().unwrap_or_default();
        let result = change(&mut record);
        if inner.records.get(mirror) == Some(&record) {
            return Ok(result);
        }
        let before = inner.records.insert(mirror.to_owned(), record);
        if let Err(error) = inner.write() {
            // What is not in the file has not happened.
            match before {
                Some(before) => inner.records.insert(mirror.to_owned(), before),
                None => inner.records.remove(mirror),
            };
            return Err(error);
        }
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under this lock leaves the record as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The whole file or none: beside it first, then in its place.
    fn write(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside).map_err(told)?;
        file.write_all(&serde_json::to_vec(&self.records)?).and_then(|()| file.sync_all()).map_err(told)?;
        fs::rename(&beside, path).map_err(told)
    }
}
