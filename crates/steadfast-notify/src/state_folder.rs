//! State folder across restarts, with a lock against concurrent programs.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use steadfast_targets::MirrorMemory;

use crate::config::ClusterConfig;
use crate::mirror::Approvals;
use crate::private_file::{private_options, write_private};
use crate::short_hash::short_hash;

/// File with the address of the status endpoint, while the program holds the folder.
const ADDRESS_FILE: &str = "address";

/// Marker file of a replica that started with an empty folder and lacks recent deletions.
const NEW_REPLICA_FILE: &str = "new-replica";

/// File of a standby, with the identity of the leader.
const STANDBY_FILE: &str = "standby";

/// Suffix of checkpoint files.
const CHECKPOINT_SUFFIX: &str = ".checkpoint";

/// Locked state folder of this program. Dropping the value releases the lock.
#[derive(Debug)]
pub struct StateFolder {
    folder: PathBuf,
    memory: MirrorMemory,
    _lock: File,
}

impl StateFolder {
    /// Locks the folder. Creates a missing folder with access for the owner only.
    ///
    /// # Errors
    ///
    /// Returns an error with the process ID if another program holds the lock. Returns an error if the folder cannot
    /// be created or written, or if a file has unexpected content.
    pub fn lock(folder: &Path) -> io::Result<Self> {
        let folder_error = |error: io::Error| {
            let remedy = "make the folder writable for this user, or set another `state.folder`";
            io::Error::new(error.kind(), format!("{}: {error}; {remedy}", folder.display()))
        };
        create_folder(folder).map_err(folder_error)?;
        // The lock is held for the lifetime of the process and released by the kernel, even after a crash.
        let lock = lock(&folder.join("lock")).map_err(folder_error)?.map_err(|holder| {
            let remedy = "stop that process, or set a different `state.folder` and other mirrors";
            let reason = format!("{}: {holder} already uses the folder; {remedy}", folder.display());
            io::Error::new(io::ErrorKind::AddrInUse, reason)
        })?;
        // Both files belong to an earlier run.
        let _ = fs::remove_file(folder.join(ADDRESS_FILE));
        let _ = fs::remove_file(folder.join(STANDBY_FILE));
        let is_checkpoint = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(CHECKPOINT_SUFFIX);
        if !fs::read_dir(folder).map_err(folder_error)?.flatten().any(|entry| is_checkpoint(&entry)) {
            // Marks a replica without history, which must catch up before it may lead.
            write_private(&folder.join(NEW_REPLICA_FILE), "").map_err(folder_error)?;
        }
        let memory = MirrorMemory::open(&memory_file(folder))?;
        Ok(Self { folder: folder.to_owned(), memory, _lock: lock })
    }

    /// Returns the stored state of mirrors.
    pub fn mirror_memory(&self) -> &MirrorMemory {
        &self.memory
    }

    /// Stores the address of the program's status endpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn record_address(&self, address: SocketAddr) -> io::Result<()> {
        let file = self.folder.join(ADDRESS_FILE);
        write_private(&file, &address.to_string())
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    }

    /// Returns the checkpoint file of a cluster. The file differs by kubeconfig and context.
    pub fn checkpoint_of(&self, name: &str, cluster: &ClusterConfig) -> PathBuf {
        // The cluster is part of the name: another cluster under this name must not restore the objects of this
        // cluster.
        let identity = format!("{name}\n{:?}\n{:?}", cluster.kubeconfig, cluster.context);
        self.folder.join(format!("{name}-{}{CHECKPOINT_SUFFIX}", short_hash(&identity, 4)))
    }

    /// Returns the folder of watermark files.
    pub fn watermark_folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if caches in the folder may lack deletions that other replicas still store as pending. This holds
    /// from a start with an empty folder until the first call of [`record_caught_up`](Self::record_caught_up), also
    /// across restarts.
    pub fn is_new(&self) -> bool {
        self.folder.join(NEW_REPLICA_FILE).exists()
    }

    /// Records that the caches include all changes that other replicas still store as pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be written.
    pub fn record_caught_up(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(NEW_REPLICA_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Records for other commands that this process is a standby. `leader` is the identity of the leader if known.
    /// Ignores write errors.
    pub fn record_standby(&self, leader: Option<&str>) {
        let _ = write_private(&self.folder.join(STANDBY_FILE), leader.unwrap_or_default());
    }

    /// Records for other commands that this process is the leader. Ignores write errors.
    pub fn record_leader(&self) {
        let _ = fs::remove_file(self.folder.join(STANDBY_FILE));
    }

    /// Returns the approvals in the folder.
    pub fn approvals(&self) -> Approvals {
        Approvals::new(&self.folder)
    }
}

/// Returns the process that holds the folder, and the address of the status endpoint. `None` if no process holds the
/// lock.
///
/// # Errors
///
/// Returns an error if the lock cannot be checked.
pub fn lock_holder(folder: &Path) -> io::Result<Option<(String, Option<SocketAddr>)>> {
    let mut file = match File::open(folder.join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A shared lock, released immediately: a starting program is blocked only for this short time.
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let holder = read_holder(&mut file)?;
    let address = fs::read_to_string(folder.join(ADDRESS_FILE)).ok();
    Ok(Some((holder, address.and_then(|text| text.parse().ok()))))
}

/// Returns the identity of the leader, if the process that holds the folder is a standby. Empty if the standby does not
/// know the leader.
///
/// # Errors
///
/// Returns an error if the folder cannot be read.
pub fn leader_of_standby(folder: &Path) -> io::Result<Option<String>> {
    if lock_holder(folder)?.is_none() {
        return Ok(None);
    }
    match fs::read_to_string(folder.join(STANDBY_FILE)) {
        Ok(leader) => Ok(Some(leader)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the stored state of mirrors for read-only commands. Empty if the file does not exist.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn read_mirror_memory(folder: &Path) -> io::Result<MirrorMemory> {
    MirrorMemory::open(&memory_file(folder))
}

fn memory_file(folder: &Path) -> PathBuf {
    folder.join("mirrors.json")
}

fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Returns the holder of a lock, as recorded in the file.
fn read_holder(file: &mut File) -> io::Result<String> {
    let mut holder = String::new();
    file.take(256).read_to_string(&mut holder)?;
    let holder = holder.trim();
    Ok(if holder.is_empty() { "another program".to_owned() } else { holder.to_owned() })
}

/// Acquires the lock of a file, or returns the current holder.
fn lock(path: &Path) -> io::Result<Result<File, String>> {
    let mut file = private_options().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Ok(Err(read_holder(&mut file)?));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Only the holder of the lock truncates the file, because other processes read the holder from it.
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {}", std::process::id())?;
    Ok(Ok(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_program_is_rejected_with_holder() {
        let folder = std::env::temp_dir().join(format!("steadfast-state-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = StateFolder::lock(&folder.join("deep/er")).expect("a free folder");
        // The lock also excludes a second open file of the same process, so no second process is needed here.
        let error = StateFolder::lock(&folder.join("deep/er")).map(drop).expect_err("a locked folder").to_string();
        assert!(error.contains(&format!("process {} already uses the folder", std::process::id())), "{error}");
        assert!(error.contains("different `state.folder`"), "{error}");
        drop(state);
        drop(StateFolder::lock(&folder.join("deep/er")).expect("a released folder"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(folder.join("deep/er")).expect("the folder exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        fs::remove_dir_all(&folder).expect("the folder exists");
    }

    #[test]
    fn folder_is_new_until_caught_up() {
        let folder = std::env::temp_dir().join(format!("steadfast-state-new-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = StateFolder::lock(&folder).expect("no other process holds the folder");
        assert!(state.is_new());
        fs::write(state.checkpoint_of("default", &ClusterConfig::default()), "").expect("the folder is writable");
        drop(state);
        let state = StateFolder::lock(&folder).expect("no other process holds the folder");
        assert!(state.is_new(), "the earlier process did not catch up");
        state.record_caught_up().expect("the folder is writable");
        drop(state);
        let state = StateFolder::lock(&folder).expect("no other process holds the folder");
        assert!(!state.is_new());
        assert_eq!(leader_of_standby(&folder).expect("a readable file"), None);
        state.record_standby(Some("other"));
        assert_eq!(leader_of_standby(&folder).expect("a readable file").as_deref(), Some("other"));
        state.record_leader();
        assert_eq!(leader_of_standby(&folder).expect("a readable file"), None);
        fs::remove_dir_all(&folder).expect("the folder exists");
    }

    #[cfg(unix)]
    // Checked with a folder that other users can read.
    #[test]
    fn address_and_approvals_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("steadfast-state-modes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = StateFolder::lock(&folder).expect("no other process holds the folder");
        // A folder that existed before may be open to others.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("the mode is changed");
        fs::write(folder.join("approved-web.new"), "of an earlier run").expect("the folder is writable");
        state.record_address(([127, 0, 0, 1], 7).into()).expect("the folder is writable");
        state.approvals().add("web", &["id".to_owned()]).expect("the folder is writable");
        for file in ["address", "approved-web"] {
            let mode = fs::metadata(folder.join(file)).expect("the file exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(state.approvals().take("web").expect("a readable file"), ["id".to_owned()].into());
        fs::remove_dir_all(&folder).expect("the folder exists");
    }
}
