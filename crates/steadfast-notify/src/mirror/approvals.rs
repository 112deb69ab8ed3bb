//! Approvals on their way from whoever gives them to the program that acts: a file for each mirror, which says what is approved of.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

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

    /// Approves of what the mirror asks for under `id`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn give(&self, mirror: &str, id: &str) -> io::Result<()> {
        let (file, beside) = (self.file(mirror), self.folder.join(format!("approved-{mirror}.new")));
        // The whole of it or nothing is there for who looks.
        fs::write(&beside, id).and_then(|()| fs::rename(&beside, &file)).map_err(|error| told(&file, &error))
    }

    /// Whether one still waits to be taken.
    pub fn waits(&self, mirror: &str) -> bool {
        self.file(mirror).exists()
    }

    /// Takes what was approved of, if anything was.
    pub(super) fn take(&self, mirror: &str) -> io::Result<Option<String>> {
        let file = self.file(mirror);
        match fs::read_to_string(&file) {
            Ok(id) => {
                // Once: what is taken out by it is counted from then on.
                fs::remove_file(&file).map_err(|error| told(&file, &error))?;
                Ok(Some(id.trim().to_owned()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
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
