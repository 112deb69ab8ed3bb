//! Dead letters: messages that could not be delivered, in a file, one a line.
//!
//! Two locks next to the file keep several processes apart:
//!
//! - `.lock` is held for each change of the files, so that the running program can add letters during a `redrive`;
//! - `.redrive` is held for as long as letters are [taken](DeadLetters::take). Without it, a second `redrive` would take the
//!   letters of the first one again, and the first one would remove the file that holds the letters of both.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::message::Message;

/// A message that could not be delivered.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Letter {
    /// To which sink.
    pub sink: String,
    /// Why, as of the last attempt.
    pub why: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The message.
    pub message: Message,
}

/// The file of dead letters.
pub struct DeadLetters {
    file: PathBuf,
    most: usize,
    /// How long the file was when its lines were counted, and how many it had.
    counted: Mutex<(u64, usize)>,
}

/// Why a letter was not taken.
#[derive(Debug)]
pub enum Untaken {
    /// The file has as many as it may have.
    Full,
    /// It cannot be written.
    Failed(io::Error),
}

impl std::fmt::Display for Untaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => f.write_str("it is full"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl DeadLetters {
    /// The letters of this file, which is made with the first of them and may have `most`.
    pub fn at(file: PathBuf, most: usize) -> Self {
        Self { file, most, counted: Mutex::new((0, 0)) }
    }

    /// Where they are.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Puts a letter behind the others, and returns when the disk has it.
    ///
    /// # Errors
    ///
    /// Where the file is full, or cannot be written.
    pub fn add(&self, letter: &Letter) -> Result<(), Untaken> {
        let _lock = self.lock().map_err(Untaken::Failed)?;
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = owners_own(&self.file).map_err(Untaken::Failed)?;
        let length = file.metadata().map_err(Untaken::Failed)?.len();
        if counted.0 != length {
            *counted = (length, BufReader::new(&file).lines().count());
        }
        if counted.1 >= self.most {
            return Err(Untaken::Full);
        }
        let line = serde_json::to_string(letter).unwrap_or_else(|_| unreachable!("texts and values are JSON"));
        // What was cut off when a machine stopped is a line of its own, and not the beginning of this one.
        let whole = ends_whole(&mut file).map_err(Untaken::Failed)?;
        let text = if whole { line + "\n" } else { format!("\n{line}\n") };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(Untaken::Failed)?;
        *counted = (length + text.len() as u64, counted.1 + 1);
        Ok(())
    }

    /// Takes all letters out for another attempt. Letters that are not [done](Taken::done) are taken again the next time.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be read or written, and of the kind `ResourceBusy` if another process has taken
    /// letters and is not done.
    pub fn take(&self) -> io::Result<Taken> {
        let redrive = self.redrive_lock()?;
        let _lock = self.lock()?;
        let taken = beside(&self.file, ".taken");
        // What another attempt has left goes first: it is older.
        let text = match (read(&taken)?, read(&self.file)?) {
            (Some(left), Some(more)) => {
                let text = left + &more;
                replace(&taken, &text)?;
                fs::remove_file(&self.file)?;
                text
            }
            (Some(left), None) => left,
            (None, Some(more)) => {
                fs::rename(&self.file, &taken)?;
                more
            }
            (None, None) => String::new(),
        };
        let (mut letters, mut torn) = (Vec::new(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(letter) => letters.push(letter),
                Err(_) => torn += 1,
            }
        }
        Ok(Taken { letters, torn, file: taken, _redrive: redrive })
    }

    fn lock(&self) -> io::Result<File> {
        let lock = self.lock_file(".lock")?;
        lock.lock()?;
        Ok(lock)
    }

    fn redrive_lock(&self) -> io::Result<File> {
        let lock = self.lock_file(".redrive")?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                let file = self.file.display();
                let why = format!(
                    "another `redrive` of {file} is running; wait until it has ended, then start this one again"
                );
                Err(io::Error::new(ErrorKind::ResourceBusy, why))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self, suffix: &str) -> io::Result<File> {
        if let Some(folder) = self.file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        owners_own(&beside(&self.file, suffix))
    }
}

/// Letters that are tried again.
#[derive(Debug)]
pub struct Taken {
    /// In their order.
    pub letters: Vec<Letter>,
    /// How many lines were no letters: what was cut off when a machine stopped.
    pub torn: usize,
    file: PathBuf,
    /// Held until this is dropped: a second `redrive` must not take these letters too.
    _redrive: File,
}

impl Taken {
    /// All were delivered, or are among the dead letters again.
    ///
    /// # Errors
    ///
    /// Where the file cannot be removed.
    pub fn done(self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Those that are still to be tried: the others were delivered, or are among the dead letters again.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn keep(self, letters: &[Letter]) -> io::Result<()> {
        let line = |letter| serde_json::to_string(letter).unwrap_or_else(|_| unreachable!("texts and values are JSON"));
        let text: String = letters.iter().map(|letter| line(letter) + "\n").collect();
        replace(&self.file, &text)
    }
}

fn read(file: &Path) -> io::Result<Option<String>> {
    match fs::read(file) {
        // What was cut off may be no text: it is one line, and no letter.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of its own is renamed over the other: whoever reads finds the one or the other, whole.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = beside(file, ".new");
    let _ = fs::remove_file(&new);
    let mut written = owners_own(&new)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&new, file)
}

/// Opens a file that its owner alone can read, and makes it where it is not there.
fn owners_own(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

fn ends_whole(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    io::Read::read_exact(file, &mut last)?;
    Ok(last == *b"\n")
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}
