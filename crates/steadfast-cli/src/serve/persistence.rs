//! Saves the state of the server to a file, after changes and at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast_apiserver::{ApiServer, Snapshot};
use tokio::time::{Instant, sleep};

use super::state_file::StateFile;
use crate::console;
use crate::failure::Failure;

/// Minimum time from a change to its save. Later changes within this time are part of the same save.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// Number of revisions that each save reserves. A killed server may have used some of them after its last save, so the
/// next server starts after all of them.
const RESERVED_REVISIONS: u64 = 1_000_000;

/// State file of a running server.
pub(crate) struct Persistence {
    file: Arc<StateFile>,
    /// Last saved snapshot. Empty before the first save.
    saved: Snapshot,
    /// Highest revision that the file on the disk reserves.
    reserved_revision: u64,
    last_duration: Duration,
    is_failing: bool,
}

impl Persistence {
    /// Locks and reads the file, and reserves the revisions of this run. Returns the snapshot of an earlier run.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<Snapshot>), Failure> {
        let (file, snapshot) = StateFile::open(path)?;
        // Before the first request, the file must reserve the revisions of this run: the run may be killed before its
        // first save. This write also shows early that the file is writable.
        let reserved = snapshot.clone().unwrap_or_default().with_reserved_revisions(RESERVED_REVISIONS);
        file.write(&reserved).map_err(|error| write_failure(file.path(), &error))?;
        let persistence = Self {
            file: Arc::new(file),
            saved: Snapshot::default(),
            reserved_revision: reserved.start_revision(),
            last_duration: Duration::ZERO,
            is_failing: false,
        };
        Ok((persistence, snapshot))
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Waits until the state differs from the saved one and should be saved.
    pub(crate) async fn until_due(&self, server: &ApiServer) {
        server.changed_since(&self.saved).await;
        // A large state is saved less often, so that saving takes at most half of the time.
        sleep(SAVE_DELAY.max(self.last_duration)).await;
    }

    /// Saves the current state. A failure is reported and the next attempt follows.
    ///
    /// # Errors
    /// Returns the failure if the reserved revisions are nearly used.
    pub(crate) async fn save(&mut self, server: &ApiServer) -> Result<(), Failure> {
        let snapshot = server.snapshot();
        let reserved = snapshot.clone().with_reserved_revisions(RESERVED_REVISIONS);
        let (revision, reserved_revision) = (reserved.revision(), reserved.start_revision());
        match self.write(reserved).await {
            Ok(()) => {
                (self.saved, self.reserved_revision) = (snapshot, reserved_revision);
                if std::mem::take(&mut self.is_failing) {
                    console::report(format_args!("{} is saved again", self.path().display()));
                }
                Ok(())
            }
            // If the server used more revisions than the file reserves, a later run would reuse versions that clients
            // already have.
            Err(failure) if revision + RESERVED_REVISIONS / 2 > self.reserved_revision => Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    console::report(format_args!(
                        "warning: {failure}; the next attempt follows in {} s",
                        SAVE_DELAY.as_secs()
                    ));
                }
                Ok(())
            }
        }
    }

    /// Stops the server and saves its last state. The next run continues with the next revision.
    pub(crate) async fn finish(mut self, server: ApiServer) -> Result<(), Failure> {
        // From here on, no client receives a response. Revisions beyond the snapshot are therefore unknown to clients,
        // and the next run may use them.
        server.faults().stop();
        let snapshot = server.snapshot();
        server.stop();
        self.write(snapshot).await
    }

    async fn write(&mut self, snapshot: Snapshot) -> Result<(), Failure> {
        let (file, start_time) = (Arc::clone(&self.file), Instant::now());
        // Encoding and the sync of the disk would block the server's requests.
        let written = tokio::task::spawn_blocking(move || file.write(&snapshot)).await.map_err(Failure::run)?;
        self.last_duration = start_time.elapsed();
        written.map_err(|error| write_failure(self.path(), &error))
    }
}

fn write_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::run(format!("{} cannot be written: {error}; make its folder writable and its disk free", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, io, process};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_save_is_repeated_while_revisions_remain() -> io::Result<()> {
        let folder = env::temp_dir().join(format!("steadfast-persistence-{}", process::id()));
        fs::create_dir_all(&folder)?;
        let (mut persistence, restored) = Persistence::open(&folder.join("state")).expect("a new file");
        assert!(restored.is_none());
        let server = ApiServer::builder().in_memory().start().await.expect("a server");
        fs::remove_dir_all(&folder)?;
        persistence.save(&server).await.expect("the next attempt follows");
        assert!(persistence.is_failing);
        persistence.until_due(&server).await;

        persistence.reserved_revision = RESERVED_REVISIONS / 2;
        let failure = persistence.save(&server).await.expect_err("too few reserved revisions are left").to_string();
        assert!(failure.contains("state cannot be written"), "{failure}");

        fs::create_dir_all(&folder)?;
        persistence.save(&server).await.expect("the folder is writable again");
        assert!(!persistence.is_failing);
        assert_eq!(persistence.reserved_revision, server.revision() + RESERVED_REVISIONS);
        let saved = Snapshot::decode(&fs::read(folder.join("state"))?).expect("an intact file");
        assert_eq!(saved.start_revision(), persistence.reserved_revision);
        fs::remove_dir_all(&folder)
    }
}
