//! Atomic replacement of a file that other programs change too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Number of attempts to take the lock of a file, and the delay between them: 2 s in total.
const LOCK_RETRIES: (u32, Duration) = (40, Duration::from_millis(50));

/// Reasons why a file was not changed.
#[derive(Debug)]
pub(crate) enum UpdateError<E> {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file cannot be written.
    Unwritable(io::Error),
    /// Another program holds the lock file with this path.
    Locked(PathBuf),
    /// The change was rejected because of the content.
    Rejected(E),
}

/// Replaces the content of `path` by the result of `change`, readable by the owner only; `None` removes the file.
///
/// `change` gets an empty text for a missing file. During the change, a lock file excludes other programs that use
/// kubectl's locking protocol.
pub(crate) fn change<E>(
    path: &Path,
    change: impl FnOnce(&str) -> Result<Option<String>, E>,
) -> Result<(), UpdateError<E>> {
    fs::create_dir_all(folder_of(path)).map_err(UpdateError::Unwritable)?;
    let _lock = Lock::take(path)?;
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(UpdateError::Unreadable(error)),
    };
    // Replaces the target of a symbolic link, not the link. The target may be missing.
    let path = link_target(path);
    match change(&text).map_err(UpdateError::Rejected)? {
        Some(text) => replace(&path, text.as_bytes()).map_err(UpdateError::Unwritable),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(UpdateError::Unwritable(error)),
            _ => Ok(()),
        },
    }
}

/// Maximum number of symbolic links that are followed, as on Linux.
const MAX_LINKS: usize = 40;

/// Returns the file to which the symbolic links at `path` lead, or `path` if it is no link. The file may be missing.
fn link_target(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        // Fails for a missing file, and for a file that is no link.
        let Ok(next) = fs::read_link(&target) else { break };
        // A relative link starts at the folder of the link.
        target = folder_of(&target).join(next);
    }
    target
}

/// Lock file next to a file; removed when dropped.
struct Lock(PathBuf);

impl Lock {
    fn take<E>(path: &Path) -> Result<Self, UpdateError<E>> {
        let lock = sibling(path, ".lock");
        for _ in 0..LOCK_RETRIES.0 {
            // Exclusive creation is the lock. kubectl locks a kubeconfig in this way too, with the suffix `.lock`.
            match private_file_options().open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => sleep(LOCK_RETRIES.1),
                Err(error) => return Err(UpdateError::Unwritable(error)),
            }
        }
        Err(UpdateError::Locked(lock))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a new file, readable by the owner only, and renames it over the old one: a reader finds either the old or the
/// new content, complete. The caller excludes concurrent writers.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    // The temporary file is in the same folder, because a rename is atomic only within one file system.
    let new_path = sibling(path, &format!(".{}.new", std::process::id()));
    // A killed process with this ID may have left the file.
    let _ = fs::remove_file(&new_path);
    let write_result = private_file_options().open(&new_path).and_then(|mut file: File| {
        file.write_all(content)?;
        // Without a sync before the rename, a power failure could leave an empty file.
        file.sync_all()
    });
    let replace_result = write_result.and_then(|()| fs::rename(&new_path, path));
    if replace_result.is_err() {
        let _ = fs::remove_file(&new_path);
    }
    replace_result?;
    sync_folder(path);
    Ok(())
}

/// Makes a rename durable: after a power failure, the folder contains the new file. Errors are ignored, because some
/// folders cannot be opened or synced. The content of the file is already on the disk.
fn sync_folder(path: &Path) {
    #[cfg(unix)]
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    #[cfg(not(unix))]
    let _ = path;
}

/// Returns the folder of a file. A name without a folder is in the working directory.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the temporary files of killed processes. The caller excludes concurrent writers.
pub(crate) fn remove_leftovers(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        let entry_name = entry.file_name().to_string_lossy().into_owned();
        let process_id = entry_name.strip_prefix(&format!("{name}.")).and_then(|rest| rest.strip_suffix(".new"));
        if process_id.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns options that create a new file, readable by its owner only.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns the path of a file next to `path`: the name with a suffix.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// Temporary folder of a test; removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> io::Result<Self> {
            let folder = env::temp_dir().join(format!("steadfast-whole-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder)?;
            Ok(Self(folder))
        }

        fn names(&self) -> io::Result<Vec<String>> {
            let entries = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            entries.collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write_text(path: &Path, text: &str) -> Result<(), UpdateError<()>> {
        change(path, |_| Ok(Some(text.to_owned())))
    }

    #[test]
    fn file_is_created_changed_and_removed() -> io::Result<()> {
        let folder = Folder::new("made")?;
        let path = folder.0.join("config");
        write_text(&path, "one").expect("the file is created");
        let appended = change::<()>(&path, |text| Ok(Some(format!("{text} two"))));
        appended.expect("the file is changed");
        assert_eq!((fs::read_to_string(&path)?.as_str(), folder.names()?), ("one two", vec!["config".to_owned()]));
        change::<()>(&path, |_| Ok(None)).expect("the file is removed");
        assert_eq!(folder.names()?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn rejected_change_leaves_file_unchanged() -> io::Result<()> {
        let folder = Folder::new("refused")?;
        let path = folder.0.join("config");
        fs::write(&path, "others")?;
        assert!(matches!(change(&path, |_| Err("no")), Err(UpdateError::Rejected("no"))));
        assert_eq!((fs::read_to_string(&path)?.as_str(), folder.names()?), ("others", vec!["config".to_owned()]));
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn link_is_kept_and_target_private() -> io::Result<()> {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = Folder::new("link")?;
        let (path, link) = (folder.0.join("config"), folder.0.join("link"));
        fs::write(&path, "old")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        symlink(&path, &link)?;
        write_text(&link, "new").expect("the file is changed");
        assert_eq!(fs::read_to_string(&path)?, "new");
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn dangling_link_is_kept_and_target_created() -> io::Result<()> {
        use std::os::unix::fs::symlink;

        let folder = Folder::new("dangling")?;
        let (path, link) = (folder.0.join("config"), folder.0.join("link"));
        symlink("config", folder.0.join("relative"))?;
        symlink(folder.0.join("relative"), &link)?;
        write_text(&link, "new").expect("the target is created");
        assert_eq!(fs::read_to_string(&path)?, "new");
        change::<()>(&link, |_| Ok(None)).expect("the target is removed");
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        write_text(&link, "again").expect("the target is created again");
        assert_eq!(fs::read_to_string(&path)?, "again");
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        Ok(())
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed() -> io::Result<()> {
        let folder = Folder::new("leftovers")?;
        let path = folder.0.join("state");
        let own_leftover = format!("state.{}.new", std::process::id());
        for name in ["state.1.new", "state.new", "state.x.new", "other.1.new", &own_leftover] {
            fs::write(folder.0.join(name), "")?;
        }
        replace(&path, b"content")?;
        assert_eq!(fs::read(&path)?, b"content");
        remove_leftovers(&path)?;
        let mut names = folder.names()?;
        names.sort();
        assert_eq!(names, ["other.1.new", "state", "state.new", "state.x.new"]);
        Ok(())
    }

    #[test]
    fn stale_lock_is_reported() -> io::Result<()> {
        let folder = Folder::new("locked")?;
        let path = folder.0.join("config");
        fs::write(folder.0.join("config.lock"), "")?;
        let Err(UpdateError::Locked(lock)) = write_text(&path, "new") else { panic!("the file must be locked") };
        assert_eq!(lock, folder.0.join("config.lock"));
        assert!(!path.exists());
        Ok(())
    }
}
