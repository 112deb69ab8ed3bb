//! Approvals of removals, passed from the command line to the running program by one file for each mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::private_file::{private_options, write_private};

/// Prefix of the files, followed by the name of the mirror.
const FILE_PREFIX: &str = "approved-";

/// File with the lock that makes a read and the following write of an approval file atomic.
const LOCK_FILE: &str = "approvals.lock";

/// Folder of pending approvals.
#[derive(Clone, Debug)]
pub struct Approvals {
    folder: PathBuf,
}

impl Approvals {
    /// Opens the approvals in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Approves the pending removals of `mirror` with these IDs, in addition to those that are approved already.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn add(&self, mirror: &str, ids: &[String]) -> io::Result<()> {
        self.with_lock(|| {
            let mut all = self.ids(mirror)?;
            all.extend(ids.iter().cloned());
            self.write(mirror, &all)
        })
    }

    /// Returns true if an approval for the mirror is pending.
    pub fn is_pending(&self, mirror: &str) -> bool {
        self.file(mirror).exists()
    }

    /// Returns the pending approvals: the IDs for each mirror.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or a file cannot be read.
    pub fn pending(&self) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
        let mut pending = BTreeMap::new();
        for entry in fs::read_dir(&self.folder).map_err(|error| with_path(&self.folder, &error))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Names of mirrors have no dot. A name with a dot is a temporary file of `write_private`.
            if let Some(mirror) = name.strip_prefix(FILE_PREFIX).filter(|mirror| !mirror.contains('.')) {
                let ids = self.ids(mirror)?;
                if !ids.is_empty() {
                    pending.insert(mirror.to_owned(), ids);
                }
            }
        }
        Ok(pending)
    }

    /// Withdraws the approvals of `mirror` with these IDs. Later approvals stay.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written.
    pub fn withdraw(&self, mirror: &str, ids: &BTreeSet<String>) -> io::Result<()> {
        self.with_lock(|| {
            let mut remaining = self.ids(mirror)?;
            remaining.retain(|id| !ids.contains(id));
            self.write(mirror, &remaining)
        })
    }

    /// Removes and returns the approved IDs.
    pub(crate) fn take(&self, mirror: &str) -> io::Result<BTreeSet<String>> {
        // Without a file, the frequent check takes no lock.
        if !self.is_pending(mirror) {
            return Ok(BTreeSet::new());
        }
        self.with_lock(|| {
            let ids = self.ids(mirror)?;
            // An approval is used once. Approved removals are recorded in the state of the mirror.
            self.write(mirror, &BTreeSet::new())?;
            Ok(ids)
        })
    }

    fn ids(&self, mirror: &str) -> io::Result<BTreeSet<String>> {
        let file = self.file(mirror);
        match fs::read_to_string(&file) {
            Ok(ids) => Ok(ids.split_whitespace().map(str::to_owned).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(with_path(&file, &error)),
        }
    }

    /// Writes the file, or removes the file if no IDs are left.
    fn write(&self, mirror: &str, ids: &BTreeSet<String>) -> io::Result<()> {
        let file = self.file(mirror);
        let written = if ids.is_empty() {
            match fs::remove_file(&file) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        } else {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            write_private(&file, &ids.join("\n"))
        };
        written.map_err(|error| with_path(&file, &error))
    }

    /// Runs `step` while no other process changes the files.
    fn with_lock<T>(&self, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let path = self.folder.join(LOCK_FILE);
        let opened = private_options().create(true).write(true).truncate(false).open(&path);
        let file = opened.map_err(|error| with_path(&path, &error))?;
        // Each holder only reads and writes one small file. The lock ends with the file handle.
        file.lock().map_err(|error| with_path(&path, &error))?;
        step()
    }

    fn file(&self, mirror: &str) -> PathBuf {
        self.folder.join(format!("{FILE_PREFIX}{mirror}"))
    }
}

fn with_path(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvals_add_up_until_taken() {
        let folder = std::env::temp_dir().join(format!("steadfast-approvals-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a writable folder");
        let approvals = Approvals::new(&folder);
        let ids = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<BTreeSet<String>>();
        let approve = |mirror: &str, id: &str| approvals.add(mirror, &[id.to_owned()]).expect("a writable folder");
        approve("web", "one");
        approve("web", "two");
        approve("zone", "three");
        fs::write(folder.join("approved-web.new"), "of an interrupted write").expect("a writable folder");
        let pending = approvals.pending().expect("a readable folder");
        assert_eq!(pending, BTreeMap::from([("web".into(), ids(&["one", "two"])), ("zone".into(), ids(&["three"]))]));
        // An approval that was given after the read stays.
        approve("web", "late");
        approvals.withdraw("web", &pending["web"]).expect("a writable folder");
        assert_eq!(approvals.take("web").expect("a readable file"), ids(&["late"]));
        assert!(!approvals.is_pending("web") && approvals.is_pending("zone"));
        assert!(approvals.take("web").expect("no file").is_empty());
        fs::remove_dir_all(&folder).expect("the folder exists");
    }
}
