//! Backup and restore of the etcd: versions restart at a lower value, and later changes are undone.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Reference, UndoneHistory, start_etcd, start_history_process};
use crate::TestkitError;

impl Reference {
    /// Creates a backup of the etcd that replaces an earlier one, and returns its revision. Objects of a checked
    /// history must not be written concurrently.
    ///
    /// # Errors
    ///
    /// Returns an error if the first API server does not respond, or if the etcd's files cannot be copied.
    pub async fn back_up(&self) -> Result<u64, TestkitError> {
        let revision = self.newest_version().await?.parse()?;
        // The copied files must be from one instant: etcd can start from them as after a crash.
        self.etcd.set_frozen(true)?;
        let copy_result = copy(&self.folder.etcd(), &self.backup());
        // The etcd is resumed before the result is checked: an error must not leave it frozen.
        self.etcd.set_frozen(false)?;
        copy_result?;
        Ok(revision)
    }

    /// Kills all processes, and starts the etcd and the history on the [backup](Self::back_up) of revision `to`. The
    /// API servers must be [started again](Self::start_again).
    ///
    /// The etcd must not have been compacted, because the history is read from the first change.
    ///
    /// # Errors
    ///
    /// Returns an error if no backup exists, or if a process does not end or start.
    pub async fn restore(&mut self, to: u64) -> Result<(), TestkitError> {
        self.undo(to).await?;
        copy(&self.backup(), &self.folder.etcd())?;
        self.start_etcd_and_history().await
    }

    /// Kills all processes, and replaces the etcd with an empty one that has its own history. The API servers must be
    /// [started again](Self::start_again). They then serve a different cluster at their old addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not end or start.
    pub async fn replace_etcd(&mut self) -> Result<(), TestkitError> {
        self.undo(0).await?;
        fs::remove_dir_all(self.folder.etcd())?;
        self.start_etcd_and_history().await
    }

    /// Kills all processes, and keeps the recorded history. Changes after revision `restored_revision` count as undone.
    async fn undo(&mut self, restored_revision: u64) -> Result<(), TestkitError> {
        // The API servers end first, so that no write reaches the etcd after the recorded end.
        for server in 0..self.servers.len() {
            self.kill(server);
        }
        // The time is taken when no server can respond any more. The restore starts at this time.
        let restored_at = self.started.1.elapsed();
        self.end_history().await?;
        self.etcd.kill();
        let history_file = self.folder.path.join(format!("undone-{}.jsonl", self.undone.len()));
        fs::rename(self.folder.history(), &history_file)?;
        self.undone.push(UndoneHistory { history_file, restored_revision, restored_at });
        Ok(())
    }

    /// Starts the etcd with its history at its old address, to which the API servers connect.
    async fn start_etcd_and_history(&mut self) -> Result<(), TestkitError> {
        let port = self.etcd_address()?.port();
        (self.etcd, self.etcd_url) = start_etcd(&self.program, &self.folder, port).await?;
        self.history_process = Some(start_history_process(&self.program, &self.folder, &self.etcd_url).await?);
        Ok(())
    }

    fn backup(&self) -> PathBuf {
        self.folder.path.join("backup")
    }
}

/// Replaces the folder `target` by a copy of the folder `source`.
fn copy(source: &Path, target: &Path) -> io::Result<()> {
    match fs::remove_dir_all(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (source, target) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy(&source, &target)? } else { fs::copy(&source, &target).map(drop)? }
    }
    Ok(())
}
