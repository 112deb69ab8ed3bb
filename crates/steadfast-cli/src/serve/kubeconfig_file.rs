//! Location of the server's kubeconfig entries: a given file with other entries, or a separate temporary file.

use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use super::atomic_file::{self, UpdateError};
use super::kubeconfig::{Entries, MergeError};
use crate::failure::Failure;

/// Entries of a run in a kubeconfig; removed when dropped.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    file: PathBuf,
    entries: Entries,
    /// Set if the file did not exist before.
    made: bool,
    /// Temporary folder, if no file was given.
    folder: Option<PathBuf>,
    /// Set while the entries are in the file.
    merged: bool,
}

impl KubeconfigFile {
    /// Merges `entries` into `file`, or into a temporary file by default.
    pub(crate) fn merge(file: Option<PathBuf>, entries: Entries) -> Result<Self, Failure> {
        let folder = if file.is_none() { Some(own_folder()?) } else { None };
        let own = folder.as_ref().map(|folder| folder.join("kubeconfig"));
        let file = file.or(own).unwrap_or_default();
        let made = !file.exists();
        // From here on, dropping `kubeconfig_file` removes created files, even if the merge fails.
        let mut place = Self { file, entries, made, folder, merged: false };
        let merged = atomic_file::change(&place.file, |text| place.entries.merged(text).map(Some));
        merged.map_err(|reason| unchanged(&place.file, &reason))?;
        place.merged = true;
        Ok(place)
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the name of a replica's context.
    pub(crate) fn context(&self, replica: usize) -> String {
        self.entries.context(replica)
    }

    /// Removes the entries, and also a file created for them.
    pub(crate) fn withdraw(mut self) -> Result<(), Failure> {
        self.remove_entries().map_err(|reason| unchanged(&self.file, &reason))
    }

    fn remove_entries(&mut self) -> Result<(), UpdateError<MergeError>> {
        // `take` limits the removal to once, since both `withdraw` and `drop` call this function.
        if !std::mem::take(&mut self.merged) || self.folder.is_some() || !self.file.exists() {
            return Ok(());
        }
        atomic_file::change(&self.file, |text| {
            let left = self.entries.withdrawn(text)?;
            // A created file may contain entries of other programs by now.
            Ok(if left.is_empty && self.made { None } else { Some(left.text) })
        })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        // Errors are ignored here: `withdraw` reports them.
        let _ = self.remove_entries();
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Creates a new folder, readable by its owner only, under the temporary folder.
fn own_folder() -> Result<PathBuf, Failure> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut number = 0;
    loop {
        let folder = env::temp_dir().join(format!("steadfast-{}-{number}", process::id()));
        // Fails for an existing folder, so a folder of another user is never used.
        match builder.create(&folder) {
            Ok(()) => return Ok(folder),
            // Left by an earlier process with this ID.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => {
                let shown = folder.display();
                return Err(Failure::run(format!("{shown} cannot be created: {error}; name a file with --kubeconfig")));
            }
        }
    }
}

fn unchanged(file: &Path, reason: &UpdateError<MergeError>) -> Failure {
    let file = file.display();
    match reason {
        UpdateError::Unreadable(error) => {
            Failure::config(format!("{file} cannot be read: {error}; it is left unchanged"))
        }
        UpdateError::Unwritable(error) => {
            Failure::run(format!("{file} cannot be written: {error}; choose another place with --kubeconfig"))
        }
        UpdateError::Locked(lock) => Failure::run(format!(
            "{file} is being changed by another program, which holds {}; remove it if that program is no longer running",
            lock.display()
        )),
        UpdateError::Rejected(reason @ MergeError::Taken { .. }) => {
            Failure::config(format!("{file} is left unchanged: {reason}"))
        }
        UpdateError::Rejected(reason @ MergeError::NotKubeconfig(_)) => {
            Failure::config(format!("{file} is left unchanged: {reason}; choose another file with --kubeconfig"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let own = "clusters: [{name: e, cluster: {server: 'http://127.0.0.1:1'}}]\n";
        let control = ("127.0.0.1:9".to_owned(), "t".to_owned());
        Entries { name: "steadfast".to_owned(), run: "1".to_owned(), control, replicas: vec![own.to_owned()] }
    }

    #[test]
    fn temporary_kubeconfig_is_removed_on_drop() -> Result<(), Failure> {
        let place = KubeconfigFile::merge(None, entries())?;
        let file = place.file().to_owned();
        assert!(file.exists());
        drop(place);
        assert!(!file.exists() && !file.parent().is_some_and(Path::exists));
        Ok(())
    }
}
