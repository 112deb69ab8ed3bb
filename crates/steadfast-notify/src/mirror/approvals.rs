//! Approvals of removals, passed from the command line to the running program by one file for each mirror.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::private_file::write_private;

/// Folder of pending approvals.
#[derive(Clone, Debug)]
pub struct Approvals {
    folder: PathBuf,
}

impl Approvals {
    /// Opens the approvals in this folder.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Approves the pending removals of `mirror` with these IDs.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn give(&self, mirror: &str, ids: &[String]) -> io::Result<()> {
        let file = self.file(mirror);
        write_private(&file, &ids.join("\n")).map_err(|error| reported(&file, &error))
    }

    /// Returns true if an approval for the mirror is pending.
    pub fn waits(&self, mirror: &str) -> bool {
        self.file(mirror).exists()
    }

    /// Removes and returns the approved IDs.
    pub(crate) fn take(&self, mirror: &str) -> io::Result<Vec<String>> {
        let file = self.file(mirror);
        match fs::read_to_string(&file) {
            Ok(ids) => {
                // An approval is used once. Approved removals are recorded in the state of the mirror.
                fs::remove_file(&file).map_err(|error| reported(&file, &error))?;
                Ok(ids.split_whitespace().map(str::to_owned).collect())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(reported(&file, &error)),
        }
    }

    fn file(&self, mirror: &str) -> PathBuf {
        self.folder.join(format!("approved-{mirror}"))
    }
}

fn reported(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}
