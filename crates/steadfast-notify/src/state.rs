//! The folder of what no restart may forget, and the lock by which one program at a time acts by it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use steadfast_outside::Memory;

use crate::config::Cluster;
use crate::mirror::Approvals;
use crate::private_file::write_private;
use crate::short_hash::short_hash;

/// The file that says where the program tells how things are, for as long as it holds the folder.
const ADDRESS: &str = "address";

/// The file that exists while a replica does not know the recent past: it started with an empty folder.
const NEW: &str = "new-replica";

/// The file that exists while this process stands by. It has the identity of the leader.
const STANDBY: &str = "standby";

/// End of the names of checkpoints.
const CHECKPOINT: &str = ".checkpoint";

/// The folder of what no restart may forget, in the hands of this program as long as this is there.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    memory: Memory,
    _lock: File,
}

impl State {
    /// Takes the folder over; it is made where it is not there, for its owner alone.
    ///
    /// # Errors
    ///
    /// Where another program acts by it, which is named; where it cannot be made or written; or where what is in it is not what
    /// this program has written.
    pub fn take(folder: &Path) -> io::Result<Self> {
        let told = |error: io::Error| {
            let remedy = "make it writable for this user, or name another one in `state.folder`";
            io::Error::new(error.kind(), format!("{}: {error}; {remedy}", folder.display()))
        };
        make(folder).map_err(told)?;
        let lock = lock(&folder.join("lock")).map_err(told)?.map_err(|holder| {
            let remedy = "end it, or give this one a `state.folder` of its own, and other mirrors";
            let why = format!("{}: {holder} acts by it already; {remedy}", folder.display());
            io::Error::new(io::ErrorKind::AddrInUse, why)
        })?;
        // It was that of an earlier life.
        let _ = fs::remove_file(folder.join(ADDRESS));
        let _ = fs::remove_file(folder.join(STANDBY));
        let is_checkpoint = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(CHECKPOINT);
        if !fs::read_dir(folder).map_err(told)?.flatten().any(|entry| is_checkpoint(&entry)) {
            write_private(&folder.join(NEW), "").map_err(told)?;
        }
        let memory = Memory::open(&memory_in(folder))?;
        Ok(Self { folder: folder.to_owned(), memory, _lock: lock })
    }

    /// What mirrors remember.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Says where the program that acts by the folder tells how things are.
    ///
    /// # Errors
    ///
    /// Where that cannot be written.
    pub fn tells_at(&self, address: SocketAddr) -> io::Result<()> {
        let file = self.folder.join(ADDRESS);
        write_private(&file, &address.to_string())
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    }

    /// Where the caches of this cluster are kept beyond the program's life; another file for each way to name one.
    pub fn checkpoint_of(&self, name: &str, cluster: &Cluster) -> PathBuf {
        let said = format!("{name}\n{:?}\n{:?}", cluster.kubeconfig, cluster.context);
        self.folder.join(format!("{name}-{}{CHECKPOINT}", short_hash(&said, 4)))
    }

    /// Returns the folder of the instants up to which messages are settled that time or lookups cause.
    pub fn rechecks(&self) -> &Path {
        &self.folder
    }

    /// Whether the caches in the folder may lack deletions that other replicas have not settled: the folder was empty at the start of
    /// this process, or of an earlier one that did not [catch up](Self::has_caught_up).
    pub fn is_new(&self) -> bool {
        self.folder.join(NEW).exists()
    }

    /// Records that the caches lack nothing that other replicas have not settled.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written.
    pub fn has_caught_up(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(NEW)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Records for other commands whether this process stands by, and the identity of the leader, if it is known. A folder that
    /// cannot be written is ignored.
    pub fn stands_by(&self, leader: Option<Option<&str>>) {
        let file = self.folder.join(STANDBY);
        let _ = match leader {
            Some(leader) => write_private(&file, leader.unwrap_or_default()),
            None => fs::remove_file(&file),
        };
    }

    /// Where approvals come from.
    pub fn approvals(&self) -> Approvals {
        Approvals::at(&self.folder)
    }
}

/// Who acts by this folder now, and where it tells how things are; none where nobody does.
///
/// # Errors
///
/// Where that cannot be found out.
pub fn acting(folder: &Path) -> io::Result<Option<(String, Option<SocketAddr>)>> {
    let mut file = match File::open(folder.join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Shared, and given back at once: nobody who begins now is kept from it for longer than this takes.
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let holder = holder(&mut file)?;
    let address = fs::read_to_string(folder.join(ADDRESS)).ok();
    Ok(Some((holder, address.and_then(|text| text.parse().ok()))))
}

/// Returns the identity of the leader as known to the process that acts by this folder, if that process stands by; an empty text if it
/// does not know the leader.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn leader_of_standby(folder: &Path) -> io::Result<Option<String>> {
    if acting(folder)?.is_none() {
        return Ok(None);
    }
    match fs::read_to_string(folder.join(STANDBY)) {
        Ok(leader) => Ok(Some(leader)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What mirrors remember in this folder, for who only looks: as it is now, and as nothing where there is nothing.
///
/// # Errors
///
/// Where it cannot be read.
pub fn remembered(folder: &Path) -> io::Result<Memory> {
    Memory::open(&memory_in(folder))
}

fn memory_in(folder: &Path) -> PathBuf {
    folder.join("mirrors.json")
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Who has the lock that is this file, as it says itself.
fn holder(file: &mut File) -> io::Result<String> {
    let mut holder = String::new();
    file.take(256).read_to_string(&mut holder)?;
    let holder = holder.trim();
    Ok(if holder.is_empty() { "another program".to_owned() } else { holder.to_owned() })
}

/// The lock that is this file, or who has it.
fn lock(path: &Path) -> io::Result<Result<File, String>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Ok(Err(holder(&mut file)?));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {}", std::process::id())?;
    Ok(Ok(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_at_a_time_acts_by_a_folder_and_another_is_told_who_does() {
        let folder = std::env::temp_dir().join(format!("steadfast-state-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = State::take(&folder.join("deep/er")).expect("nobody has it");
        // Another open file is as good as another process.
        let told = State::take(&folder.join("deep/er")).map(drop).expect_err("somebody has it").to_string();
        assert!(told.contains(&format!("process {} acts by it already", std::process::id())), "{told}");
        assert!(told.contains("`state.folder` of its own"), "{told}");
        drop(state);
        drop(State::take(&folder.join("deep/er")).expect("nobody has it any more"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(folder.join("deep/er")).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn folder_is_new_until_caught_up() {
        let folder = std::env::temp_dir().join(format!("steadfast-state-new-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = State::take(&folder).expect("no other program has it");
        assert!(state.is_new());
        fs::write(state.checkpoint_of("default", &Cluster::default()), "").expect("there is space");
        drop(state);
        let state = State::take(&folder).expect("no other program has it");
        assert!(state.is_new(), "the earlier process did not catch up");
        state.has_caught_up().expect("there is space");
        drop(state);
        let state = State::take(&folder).expect("no other program has it");
        assert!(!state.is_new());
        assert_eq!(leader_of_standby(&folder).expect("it can be read"), None);
        state.stands_by(Some(Some("other")));
        assert_eq!(leader_of_standby(&folder).expect("it can be read").as_deref(), Some("other"));
        state.stands_by(None);
        assert_eq!(leader_of_standby(&folder).expect("it can be read"), None);
        fs::remove_dir_all(&folder).expect("it exists");
    }

    #[cfg(unix)]
    #[test]
    fn address_and_approvals_are_readable_by_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("steadfast-state-modes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let state = State::take(&folder).expect("no other program has it");
        // A folder that existed before may be open to others.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is this user's");
        fs::write(folder.join("approved-web.new"), "of an earlier run").expect("there is space");
        state.tells_at(([127, 0, 0, 1], 7).into()).expect("there is space");
        state.approvals().give("web", &["id".to_owned()]).expect("there is space");
        for file in ["address", "approved-web"] {
            let mode = fs::metadata(folder.join(file)).expect("it exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(state.approvals().take("web").expect("it can be read"), ["id"]);
        fs::remove_dir_all(&folder).expect("it exists");
    }
}
