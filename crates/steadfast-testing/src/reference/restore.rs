//! A backup of the etcd, and the way back to it: versions start again lower, and what came after it is undone.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Reference, Undone, start_etcd, start_historian};
use crate::Error;

impl Reference {
    /// Makes a backup of the etcd in place of an older one, and tells of which revision it is. Nothing that is judged by
    /// the history may be written meanwhile.
    ///
    /// # Errors
    ///
    /// Where the first API server does not answer, or the etcd's files cannot be copied.
    pub async fn back_up(&self) -> Result<u64, Error> {
        let revision = self.newest_version().await?.parse()?;
        // Its files are those of one moment: from them it would start after a crash.
        self.etcd.freeze(true)?;
        let copied = copy(&self.folder.etcd(), &self.backup());
        self.etcd.freeze(false)?;
        copied?;
        Ok(revision)
    }

    /// Kills everything, and starts the etcd and the history on the [backup](Self::back_up), which is of the revision
    /// `to`. The API servers are to be [started again](Self::start_again).
    ///
    /// The etcd must not have been compacted: the history is read from the first change on.
    ///
    /// # Errors
    ///
    /// Where there is no backup, or something does not end or start.
    pub async fn restore(&mut self, to: u64) -> Result<(), Error> {
        self.undo(to).await?;
        copy(&self.backup(), &self.folder.etcd())?;
        self.start_the_etcd().await
    }

    /// Kills everything, and starts another etcd, which knows nothing, in the place of the old one, and its history. The
    /// API servers are to be [started again](Self::start_again): at their old addresses they then are another cluster.
    ///
    /// # Errors
    ///
    /// Where something does not end or start.
    pub async fn replace_etcd(&mut self) -> Result<(), Error> {
        self.undo(0).await?;
        fs::remove_dir_all(self.folder.etcd())?;
        self.start_the_etcd().await
    }

    /// Kills everything, and keeps what the history says: all since the revision `to` is undone.
    async fn undo(&mut self, to: u64) -> Result<(), Error> {
        for server in 0..self.servers.len() {
            self.kill(server);
        }
        let at = self.begun.1.elapsed();
        self.end_history().await?;
        self.etcd.kill();
        let history = self.folder.path.join(format!("undone-{}.jsonl", self.undone.len()));
        fs::rename(self.folder.history(), &history)?;
        self.undone.push(Undone { history, to, at });
        Ok(())
    }

    /// At its old address, where the API servers look for it, with its history.
    async fn start_the_etcd(&mut self) -> Result<(), Error> {
        let port = self.etcd_address()?.port();
        (self.etcd, self.etcd_url) = start_etcd(&self.program, &self.folder, port).await?;
        self.historian = Some(start_historian(&self.program, &self.folder, &self.etcd_url).await?);
        Ok(())
    }

    fn backup(&self) -> PathBuf {
        self.folder.path.join("backup")
    }
}

/// Puts a copy of the folder `from` in the place of `to`.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy(&from, &to)? } else { fs::copy(&from, &to).map(drop)? }
    }
    Ok(())
}
