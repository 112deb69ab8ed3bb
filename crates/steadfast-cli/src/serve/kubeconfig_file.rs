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
    is_new: bool,
    /// Temporary folder, if no file was given.
    folder: Option<PathBuf>,
    /// Set while the entries are in the file.
    is_merged: bool,
}

impl KubeconfigFile {
    /// Merges `entries` into `file`, or into a temporary file by default.
    pub(crate) fn merge(file: Option<PathBuf>, entries: Entries) -> Result<Self, Failure> {
        let folder = if file.is_none() { Some(create_private_folder()?) } else { None };
        let temporary_file = folder.as_ref().map(|folder| folder.join("kubeconfig"));
        let file = file.or(temporary_file).unwrap_or_default();
        let is_new = !file.exists();
        // From here on, dropping `kubeconfig_file` removes created files, even if the merge fails.
        let mut kubeconfig_file = Self { file, entries, is_new, folder, is_merged: false };
        let merge_result =
            atomic_file::change(&kubeconfig_file.file, |text| kubeconfig_file.entries.merged(text).map(Some));
        merge_result.map_err(|reason| update_failure(&kubeconfig_file.file, &reason))?;
        kubeconfig_file.is_merged = true;
        Ok(kubeconfig_file)
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
    pub(crate) fn remove(mut self) -> Result<(), Failure> {
        self.remove_entries().map_err(|reason| update_failure(&self.file, &reason))
    }

    fn remove_entries(&mut self) -> Result<(), UpdateError<MergeError>> {
        // `take` limits the removal to once, since both `remove` and `drop` call this function.
        if !std::mem::take(&mut self.is_merged) || self.folder.is_some() || !self.file.exists() {
            return Ok(());
        }
        atomic_file::change(&self.file, |text| {
            let remaining = self.entries.withdrawn(text)?;
            // Other programs may have added entries to a created file.
            Ok(if remaining.is_empty && self.is_new { None } else { Some(remaining.text) })
        })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        // Errors are ignored here: `remove` reports them.
        let _ = self.remove_entries();
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Creates a new folder, readable by its owner only, under the temporary folder.
fn create_private_folder() -> Result<PathBuf, Failure> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut number = 0;
    loop {
        let folder = env::temp_dir().join(format!("steadfast-{}-{number}", process::id()));
        // The call fails for an existing folder, so a folder of another user is never used.
        match builder.create(&folder) {
            Ok(()) => return Ok(folder),
            // An earlier process with this ID has left the folder.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => {
                let shown = folder.display();
                return Err(Failure::run(format!("{shown} cannot be created: {error}; name a file with --kubeconfig")));
            }
        }
    }
}

fn update_failure(file: &Path, reason: &UpdateError<MergeError>) -> Failure {
    let file = file.display();
    match reason {
        UpdateError::Unreadable(error) => {
            Failure::config(format!("{file} cannot be read: {error}; it is left unchanged"))
        }
        UpdateError::Unwritable(error) => {
            Failure::run(format!("{file} cannot be written: {error}; choose another place with --kubeconfig"))
        }
        UpdateError::Locked(lock) => Failure::run(format!(
            "another program is changing {file} and holds the lock file {}; remove the lock file if that program is no longer running",
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
        let cluster = "clusters: [{name: e, cluster: {server: 'http://127.0.0.1:1'}}]\n";
        let control = ("127.0.0.1:9".to_owned(), "t".to_owned());
        Entries { name: "steadfast".to_owned(), run_id: "1".to_owned(), control, replicas: vec![cluster.to_owned()] }
    }

    #[test]
    fn temporary_kubeconfig_is_removed_on_drop() -> Result<(), Failure> {
        let kubeconfig_file = KubeconfigFile::merge(None, entries())?;
        let file = kubeconfig_file.file().to_owned();
        assert!(file.exists());
        drop(kubeconfig_file);
        assert!(!file.exists() && !file.parent().is_some_and(Path::exists));
        Ok(())
    }
}
