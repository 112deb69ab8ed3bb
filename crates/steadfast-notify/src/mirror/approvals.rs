//! Approvals on their way from whoever gives them to the program that acts: a file for each mirror, which says what is approved of.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::private_file::write_private;

/// Where approvals wait to be taken.
#[derive(Clone, Debug)]
pub struct Approvals {
    folder: PathBuf,
}

impl Approvals {
    /// Those in this folder.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Approves the removals of `mirror` that are pending under these IDs.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn give(&self, mirror: &str, ids: &[String]) -> io::Result<()> {
        let file = self.file(mirror);
        write_private(&file, &ids.join("\n")).map_err(|error| told(&file, &error))
    }

    /// Whether one still waits to be taken.
    pub fn waits(&self, mirror: &str) -> bool {
        self.file(mirror).exists()
    }

    /// Takes the IDs that were approved.
    pub(crate) fn take(&self, mirror: &str) -> io::Result<Vec<String>> {
        let file = self.file(mirror);
        match fs::read_to_string(&file) {
            Ok(ids) => {
                // Once: what is removed by it is remembered elsewhere from then on.
                fs::remove_file(&file).map_err(|error| told(&file, &error))?;
                Ok(ids.split_whitespace().map(str::to_owned).collect())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(told(&file, &error)),
        }
    }

    fn file(&self, mirror: &str) -> PathBuf {
        self.folder.join(format!("approved-{mirror}"))
    }
}

fn told(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}
