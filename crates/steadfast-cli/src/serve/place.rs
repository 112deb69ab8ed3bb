//! Where a server's kubeconfig is: beside the entries of others in a file that was named, or in a file of its own.

use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use super::kubeconfig::{Entries, Refused};
use super::whole::{self, Unchanged};
use crate::failure::Failure;

/// The entries of a run in a kubeconfig; they are taken out again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    file: PathBuf,
    entries: Entries,
    /// The file was not there before.
    made: bool,
    /// A folder of its own, where no file was named.
    folder: Option<PathBuf>,
    /// The entries are in the file.
    merged: bool,
}

impl Place {
    /// Puts `entries` into `file`, or into one of its own where none is named.
    pub(crate) fn merge(file: Option<PathBuf>, entries: Entries) -> Result<Self, Failure> {
        let folder = if file.is_none() { Some(own_folder()?) } else { None };
        let own = folder.as_ref().map(|folder| folder.join("kubeconfig"));
        let file = file.or(own).unwrap_or_default();
        let made = !file.exists();
        // From here on, what was made is taken away whatever happens.
        let mut place = Self { file, entries, made, folder, merged: false };
        let merged = whole::change(&place.file, |text| place.entries.merged(text).map(Some));
        merged.map_err(|why| unchanged(&place.file, &why))?;
        place.merged = true;
        Ok(place)
    }

    /// The kubeconfig.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What the context of a replica is called in it.
    pub(crate) fn context(&self, replica: usize) -> String {
        self.entries.context(replica)
    }

    /// Takes the entries out, and with them a file that was made for them.
    pub(crate) fn withdraw(mut self) -> Result<(), Failure> {
        self.take_out().map_err(|why| unchanged(&self.file, &why))
    }

    fn take_out(&mut self) -> Result<(), Unchanged<Refused>> {
        if !std::mem::take(&mut self.merged) || self.folder.is_some() || !self.file.exists() {
            return Ok(());
        }
        whole::change(&self.file, |text| {
            let left = self.entries.withdrawn(text)?;
            Ok(if left.is_empty && self.made { None } else { Some(left.text) })
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever wants to know whether it worked has withdrawn it.
        let _ = self.take_out();
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A folder that nobody had before, under the temporary one.
fn own_folder() -> Result<PathBuf, Failure> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut number = 0;
    loop {
        let folder = env::temp_dir().join(format!("steadfast-{}-{number}", process::id()));
        match builder.create(&folder) {
            Ok(()) => return Ok(folder),
            // Left by another program of this number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
            Err(error) => {
                let shown = folder.display();
                return Err(Failure::run(format!("{shown} cannot be made: {error}; name a file with --kubeconfig")));
            }
        }
    }
}

fn unchanged(file: &Path, why: &Unchanged<Refused>) -> Failure {
    let file = file.display();
    match why {
        Unchanged::Unreadable(error) => Failure::config(format!("{file} cannot be read: {error}; it is left as it is")),
        Unchanged::Unwritable(error) => {
            Failure::run(format!("{file} cannot be written: {error}; choose another place with --kubeconfig"))
        }
        Unchanged::Locked(lock) => Failure::run(format!(
            "{file} is being changed by another program, which holds {}; remove that if the program is gone",
            lock.display()
        )),
        Unchanged::Refused(why @ Refused::Taken { .. }) => Failure::config(format!("{file} is left as it is: {why}")),
        Unchanged::Refused(why @ Refused::NoKubeconfig(_)) => {
            Failure::config(format!("{file} is left as it is: {why}; choose another file with --kubeconfig"))
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
    fn a_place_that_nobody_named_is_removed_at_the_end() -> Result<(), Failure> {
        let place = Place::merge(None, entries())?;
        let file = place.file().to_owned();
        assert!(file.exists());
        drop(place);
        assert!(!file.exists() && !file.parent().is_some_and(Path::exists));
        Ok(())
    }
}
