//! File of `--persist`: its lock, its content, and its replacement.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use steadfast_apiserver::{Snapshot, SnapshotError};

use super::atomic_file;
use super::process_lock::{LockError, ProcessLock};
use crate::failure::Failure;

/// File with a snapshot. While this value exists, no other `steadfast serve` can use the file.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    _lock: ProcessLock,
}

impl StateFile {
    /// Locks and reads the file. Returns no snapshot if the file is missing.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<Snapshot>), Failure> {
        let path = real_path(path)?;
        let lock =
            ProcessLock::take(&atomic_file::sibling(&path, ".lock")).map_err(|error| lock_failure(&path, error))?;
        atomic_file::remove_leftovers(&path).map_err(|error| read_failure(&path, &error))?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Self { path, _lock: lock }, None)),
            Err(error) => return Err(read_failure(&path, &error)),
        };
        let snapshot = Snapshot::decode(&bytes).map_err(|error| content_failure(&path, &error))?;
        Ok((Self { path, _lock: lock }, Some(snapshot)))
    }

    /// Returns the path without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content of the file as a whole.
    pub(crate) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        atomic_file::replace(&self.path, &snapshot.encode())
    }
}

/// Returns the path without symbolic links, and creates its folder. Two paths of one file thus have one lock.
fn real_path(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    match fs::metadata(path) {
        // A rename would replace a device, such as `/dev/null`.
        Ok(metadata) if !metadata.is_file() => {
            return Err(Failure::usage(format!("--persist {shown} is not a file; name a file for the state")));
        }
        Ok(_) => return fs::canonicalize(path).map_err(|error| read_failure(path, &error)),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(read_failure(path, &error)),
        Err(_) => {}
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!("--persist {shown} is not a file; name a file for the state")));
    };
    let folder = atomic_file::folder_of(path);
    let folder = fs::create_dir_all(folder).and_then(|()| fs::canonicalize(folder));
    let folder = folder.map_err(|error| {
        Failure::run(format!("the folder of {shown} cannot be created: {error}; choose another file with --persist"))
    })?;
    Ok(folder.join(name))
}

fn lock_failure(path: &Path, error: LockError) -> Failure {
    let file = path.display();
    match error {
        LockError::Held(process) => {
            let process = process.map(|id| format!(" (process {id})")).unwrap_or_default();
            Failure::run(format!(
                "{file} is in use by another `steadfast serve`{process}; stop that server, or choose another file with --persist"
            ))
        }
        LockError::Failed(error) => {
            Failure::run(format!("{file} cannot be locked: {error}; choose another file with --persist"))
        }
    }
}

fn read_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::run(format!("{} cannot be read: {error}; choose another file with --persist", path.display()))
}

fn content_failure(path: &Path, error: &SnapshotError) -> Failure {
    let file = path.display();
    let advice = match error {
        SnapshotError::Newer(_) => "start it with the newer release, or choose another file with --persist",
        SnapshotError::Foreign => "choose another file with --persist",
        _ => "move the file away to start without its objects, or put a copy of an intact file in its place",
    };
    Failure::config(format!("{file} is left unchanged: {error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn unusable_files_are_left_unchanged() -> io::Result<()> {
        let folder = env::temp_dir().join(format!("steadfast-state-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = folder.join("state");
        let intact = String::from_utf8(Snapshot::default().encode()).expect("a snapshot is text");
        let newer = intact.replacen(" 1\n", " 9\n", 1);
        let cases = [
            ("", "it is empty"),
            ("kind: Config\n", "not a snapshot"),
            (&newer, "format 9 of a newer release"),
            (&intact[..40], "ends too early, at line 2"),
            (&intact.replace("revision", "rewision"), "corrupt at line 2 (byte 31): the checksum"),
        ];
        for (content, reason) in cases {
            fs::write(&path, content)?;
            let message = StateFile::open(&path).expect_err("an unusable file").to_string();
            assert!(message.contains(reason) && message.contains("left unchanged"), "{message}");
            assert_eq!(fs::read_to_string(&path)?, content);
        }
        assert!(StateFile::open(&folder).expect_err("a folder").to_string().contains("not a file"));
        fs::write(&path, intact)?;
        let (state_file, snapshot) = StateFile::open(&path).expect("an intact file");
        assert!(snapshot.is_some());
        let message = StateFile::open(&path).expect_err("the file is in use").to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        drop(state_file);
        assert_eq!(fs::read_dir(&folder)?.count(), 1, "the lock file is removed");
        fs::remove_dir_all(&folder)
    }
}
