//! A file that is changed as a whole or not at all, and that others change too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// How long another program's lock is waited for, and how often it is looked at.
const PATIENCE: (u32, Duration) = (40, Duration::from_millis(50));

/// Why a file was not changed.
#[derive(Debug)]
pub(crate) enum Unchanged<E> {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It cannot be written.
    Unwritable(io::Error),
    /// Another program holds its lock, which is this file.
    Locked(PathBuf),
    /// What is in it does not allow it.
    Refused(E),
}

/// Replaces what is in `path` by what `change` makes of it, readable by its owner alone; `None` takes the file away.
///
/// What is not there is empty to `change`. Meanwhile no program that locks kubeconfigs as kubectl does changes it.
pub(crate) fn change<E>(
    path: &Path,
    change: impl FnOnce(&str) -> Result<Option<String>, E>,
) -> Result<(), Unchanged<E>> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(Unchanged::Unwritable)?;
    }
    let _lock = Lock::take(path)?;
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Unchanged::Unreadable(error)),
    };
    // The file that a link leads to, and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match change(&text).map_err(Unchanged::Refused)? {
        Some(text) => replace(&path, &text).map_err(Unchanged::Unwritable),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Unchanged::Unwritable(error)),
            _ => Ok(()),
        },
    }
}

/// The right to change a file, until it is dropped.
struct Lock(PathBuf);

impl Lock {
    fn take<E>(path: &Path) -> Result<Self, Unchanged<E>> {
        let lock = beside(path, ".lock");
        for _ in 0..PATIENCE.0 {
            match owners_own().open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => sleep(PATIENCE.1),
                Err(error) => return Err(Unchanged::Unwritable(error)),
            }
        }
        Err(Unchanged::Locked(lock))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A file of its own is renamed over the other: whoever reads finds the one or the other, whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, &format!(".{}.new", std::process::id()));
    let written = owners_own().open(&new).and_then(|mut file: File| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

/// Makes files that were not there, and that their owner alone can read.
fn owners_own() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// A folder of its own for a test, gone with it.
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

    fn put(path: &Path, text: &str) -> Result<(), Unchanged<()>> {
        change(path, |_| Ok(Some(text.to_owned())))
    }

    #[test]
    fn a_file_is_made_changed_and_taken_away_and_nothing_is_left_beside_it() -> io::Result<()> {
        let folder = Folder::new("made")?;
        let path = folder.0.join("config");
        put(&path, "one").expect("it is made");
        let appended = change::<()>(&path, |text| Ok(Some(format!("{text} two"))));
        appended.expect("it is changed");
        assert_eq!((fs::read_to_string(&path)?.as_str(), folder.names()?), ("one two", vec!["config".to_owned()]));
        change::<()>(&path, |_| Ok(None)).expect("it is taken away");
        assert_eq!(folder.names()?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn what_is_refused_is_as_it_was() -> io::Result<()> {
        let folder = Folder::new("refused")?;
        let path = folder.0.join("config");
        fs::write(&path, "others")?;
        assert!(matches!(change(&path, |_| Err("no")), Err(Unchanged::Refused("no"))));
        assert_eq!((fs::read_to_string(&path)?.as_str(), folder.names()?), ("others", vec!["config".to_owned()]));
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_its_owner_alone_reads_what_it_leads_to() -> io::Result<()> {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = Folder::new("link")?;
        let (path, link) = (folder.0.join("config"), folder.0.join("link"));
        fs::write(&path, "old")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        symlink(&path, &link)?;
        put(&link, "new").expect("it is changed");
        assert_eq!(fs::read_to_string(&path)?, "new");
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        Ok(())
    }

    #[test]
    fn a_lock_that_stays_is_named() -> io::Result<()> {
        let folder = Folder::new("locked")?;
        let path = folder.0.join("config");
        fs::write(folder.0.join("config.lock"), "")?;
        let Err(Unchanged::Locked(lock)) = put(&path, "new") else { panic!("it is locked") };
        assert_eq!(lock, folder.0.join("config.lock"));
        assert!(!path.exists());
        Ok(())
    }
}
